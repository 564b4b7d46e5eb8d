/* libjpeg-turbo's plain API behind functions that a foreign language can call: errors come back instead of exiting.
   Defaults as Pillow leaves them: accurate integer DCT, fancy upsampling, block smoothing. Warnings are counted. */

#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

struct turbo {
  struct jpeg_decompress_struct c;
  struct jpeg_error_mgr errors;
  struct jpeg_source_mgr strict;
  jmp_buf back;
  char message[JMSG_LENGTH_MAX];
};

struct turbo_image {
  uint32_t width, height, channels, warnings;
  /* What the file says, before regions and scales. */
  uint32_t file_width, file_height, progressive;
};

/* A source that is at its end where the data is: as Pillow's, which then has nothing more to give and reports a
   truncated file, while jpeg_mem_src invents an end-of-image marker. */
static void nothing(j_decompress_ptr c) { (void)c; }
static boolean no_more(j_decompress_ptr c) {
  (void)c;
  return FALSE;
}
static void skip(j_decompress_ptr c, long n) {
  if (n <= 0) return;
  size_t step = (size_t)n < c->src->bytes_in_buffer ? (size_t)n : c->src->bytes_in_buffer;
  c->src->next_input_byte += step;
  c->src->bytes_in_buffer -= step;
}

static void fail(j_common_ptr c) {
  struct turbo *t = (struct turbo *)c->client_data;
  c->err->format_message(c, t->message);
  longjmp(t->back, 1);
}

static void emit(j_common_ptr c, int level) {
  if (level < 0) {
    struct turbo *t = (struct turbo *)c->client_data;
    if (c->err->num_warnings++ == 0) c->err->format_message(c, t->message);
  }
}

struct turbo *turbo_new(void) {
  struct turbo *volatile t = calloc(1, sizeof *t);
  if (!t) return NULL;
  t->c.err = jpeg_std_error(&t->errors);
  t->errors.error_exit = fail;
  t->errors.emit_message = emit;
  t->c.client_data = t;
  if (setjmp(t->back)) {
    free(t);
    return NULL;
  }
  jpeg_create_decompress(&t->c);
  t->c.client_data = t;
  return t;
}

void turbo_free(struct turbo *t) {
  jpeg_destroy_decompress(&t->c);
  free(t);
}

/* The first warning or the error of the last call. */
const char *turbo_message(const struct turbo *t) { return t->message; }

/* Reads the header only. 0 is success. */
int turbo_header(struct turbo *t, const uint8_t *data, size_t size, struct turbo_image *image) {
  struct jpeg_decompress_struct *c = &t->c;
  t->message[0] = 0;
  if (setjmp(t->back)) {
    jpeg_abort_decompress(c);
    return -1;
  }
  jpeg_mem_src(c, data, size);
  jpeg_read_header(c, TRUE);
  image->file_width = c->image_width;
  image->file_height = c->image_height;
  image->channels = c->num_components;
  image->progressive = c->progressive_mode;
  jpeg_abort_decompress(c);
  return 0;
}

static int truncated(struct turbo *t) {
  strcpy(t->message, "truncated");
  jpeg_abort_decompress(&t->c);
  return -1;
}

/* Decodes into `out`, rows `stride` apart. `format`: 0 as Pillow (grey, RGB or CMYK), 1 RGB, 2 grey.
   `region` (x, y, width, height) may be null; columns are then widened to what libjpeg-turbo can crop at, and
   `image->width` tells how many were written. `denominator` is 1, 2, 4 or 8. `strict`: 1 as Pillow,
   data that end early and markers after the image that make no sense are errors; 2 likewise, with end markers where
   the data end; 0 end markers there, and nothing after the rows is looked at. 0 is success, -1 an error, -2 too little room, -3 more scans
   than `most_scans` (0: any number). */
int turbo_decode(struct turbo *t, const uint8_t *data, size_t size, int format, const uint32_t *region,
                 int denominator, int strict, int most_scans, uint8_t *out, size_t stride, size_t room,
                 struct turbo_image *image) {
  struct jpeg_decompress_struct *c = &t->c;
  t->message[0] = 0;
  if (setjmp(t->back)) {
    image->warnings = t->errors.num_warnings;
    jpeg_abort_decompress(c);
    return -1;
  }
  if (strict == 1) {
    t->strict = (struct jpeg_source_mgr){data, size, nothing, no_more, skip, jpeg_resync_to_restart, nothing};
    c->src = &t->strict;
  } else {
    jpeg_mem_src(c, data, size);
  }
  if (jpeg_read_header(c, TRUE) != JPEG_HEADER_OK) return truncated(t);
  image->file_width = c->image_width;
  image->file_height = c->image_height;
  image->progressive = c->progressive_mode;
  if (format == 1) {
    c->out_color_space = JCS_RGB;
  } else if (format == 2) {
    c->out_color_space = JCS_GRAYSCALE;
  } else {
    c->out_color_space = c->num_components == 1 ? JCS_GRAYSCALE : c->num_components == 4 ? JCS_CMYK : JCS_RGB;
  }
  c->scale_num = 1;
  c->scale_denom = denominator;
  if (most_scans && jpeg_has_multiple_scans(c)) {
    /* As jpeg_start_decompress, with an end. */
    c->buffered_image = TRUE;
    jpeg_start_decompress(c);
    while (!jpeg_input_complete(c)) {
      if (c->input_scan_number > most_scans) {
        jpeg_abort_decompress(c);
        return -3;
      }
      if (jpeg_consume_input(c) == JPEG_SUSPENDED) return truncated(t);
    }
    jpeg_start_output(c, c->input_scan_number);
  } else if (!jpeg_start_decompress(c)) {
    return truncated(t);
  }
  JDIMENSION x = 0, y = 0, width = c->output_width, height = c->output_height;
  if (region) {
    x = region[0], y = region[1], width = region[2], height = region[3];
    if (x != 0 || width != c->output_width) jpeg_crop_scanline(c, &x, &width);
  }
  image->width = width;
  image->height = height;
  image->channels = c->output_components;
  if ((size_t)width * c->output_components > stride || (size_t)stride * height > room) {
    jpeg_abort_decompress(c);
    return -2;
  }
  if (y > 0) jpeg_skip_scanlines(c, y);
  for (JDIMENSION row = 0; row < height;) {
    JSAMPROW rows[16];
    JDIMENSION n = height - row < 16 ? height - row : 16;
    for (JDIMENSION i = 0; i < n; i++) rows[i] = out + (size_t)(row + i) * stride;
    n = jpeg_read_scanlines(c, rows, n);
    if (n == 0) return truncated(t);
    row += n;
  }
  /* Pillow reads on to the end of the image: what is wrong there is an error, that it is missing is not. */
  if (strict && !c->buffered_image) jpeg_finish_decompress(c);
  image->warnings = t->errors.num_warnings;
  jpeg_abort_decompress(c);
  return 0;
}
