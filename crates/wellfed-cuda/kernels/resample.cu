/* From pixels to the finished image: both passes of Pillow's resize in its fixed point, flips, and the table that makes
 * elements of 8-bit values. Bit by bit what crates/wellfed-kernels does. */
#include "unfinished.h"

/* Bytes from one row of an image's pixels to the next. */
DEVICE u32 row_of(const Unfinished *image)
{
    return image->kind == PIXELS ? image->width
                                 : pixel_stride(image->kind == JPEG ? image->full_width : image->width);
}

/* Where the pixels of plane `c` begin. */
DEVICE const u8 *pixels_of(const BatchArgs *a, const Unfinished *image, u32 c)
{
    u32 row = row_of(image), height = image->kind == JPEG ? image->full_height : image->height;
    const u8 *first = image->kind == PIXELS ? (const u8 *)image + image->data_at
                                            : (const u8 *)(a->scratch + image->rgb);
    if (image->kind == JPEG)
        first += (u64)image->top * row + image->left;
    return first + (u64)c * row * height;
}

/* A weighted sum of `taps` values `stride` bytes apart, rounded to 8 bits. */
DEVICE i32 weighted(const u8 *from, u32 stride, const i32 *weights, u32 taps)
{
    /* Sums wrap, as on the CPU. */
    u32 sum = 1u << 21, t;
    for (t = 0; t < taps; ++t)
        sum += (u32)(i32)from[(u64)t * stride] * (u32)weights[t];
    return clamp_i32((i32)sum >> 22, 0, 255);
}

/* Output sample `o` along the columns or rows of a line that begins at `line`. */
DEVICE i32 along(const Unfinished *image, u32 rows, const u8 *line, u32 stride, u32 o)
{
    u32 at = rows ? image->rows_at : image->columns_at;
    u32 taps = rows ? image->row_taps : image->column_taps;
    u32 out = rows ? image->out_height : image->out_width;
    const i32 *table = (const i32 *)((const u8 *)image + at);
    if (!at)
        return line[(u64)(o + (rows ? image->row_skip : image->column_skip)) * stride];
    return weighted(line + (u64)(u32)table[o] * stride, stride, table + out + (u64)o * taps, taps);
}

/* Rows and columns between the passes. */
DEVICE u32 middle_height(const Unfinished *image)
{
    return image->vertical_first ? image->out_height : image->height;
}

DEVICE u32 middle_width(const Unfinished *image)
{
    return image->vertical_first ? image->width : image->out_width;
}

/* The first pass. Grid: words of four pixels / 128 of the largest image, 1, images. */
KERNEL(resample_first, BatchArgs, 128)
{
    const Unfinished *image = unfinished(&a, BLOCK_Z);
    u32 width = middle_width(image), height = middle_height(image);
    u32 from = row_of(image), to = pixel_stride(width), words = to / 4, t;
    u32 total = words * height * image->planes;
    u8 *out = (u8 *)(a.scratch + image->middle);
    for (t = THREAD; t < 128; t += THREADS) {
        u32 number = BLOCK_X * 128 + t, column = number % words * 4, row = number / words % height;
        u32 c = number / words / height, word = 0, i;
        const u8 *plane;
        if (number >= total)
            continue;
        plane = pixels_of(&a, image, c);
        for (i = 0; i < 4 && column + i < width; ++i) {
            u32 x = column + i;
            i32 value = image->vertical_first ? along(image, 1, plane + x, from, row)
                                              : along(image, 0, plane + (u64)row * from, 1, x);
            word |= (u32)value << (8 * i);
        }
        *(u32 *)(out + ((u64)c * height + row) * to + column) = word;
    }
}

/* The second pass, into the batch. Grid: pixels / 128 of the largest image, 1, images. */
KERNEL(resample_second, BatchArgs, 128)
{
    const Unfinished *image = unfinished(&a, BLOCK_Z);
    u32 stride = pixel_stride(middle_width(image)), height = middle_height(image), t, c;
    const u8 *middle = (const u8 *)(a.scratch + image->middle);
    const u32 *table = (const u32 *)a.table;
    for (t = THREAD; t < 128; t += THREADS) {
        u32 number = BLOCK_X * 128 + t, x = number % image->out_width, y = number / image->out_width;
        i64 place;
        if (y >= image->out_height)
            continue;
        place = (i64)(a.first + BLOCK_Z) * a.step[0] +
                (i64)(image->flip_v ? image->out_height - 1 - y : y) * a.step[2] +
                (i64)(image->flip_h ? image->out_width - 1 - x : x) * a.step[3];
        for (c = 0; c < a.channels; ++c) {
            /* One plane fills all channels. */
            const u8 *plane = middle + (u64)(c < image->planes ? c : 0) * stride * height;
            i32 value = image->vertical_first ? along(image, 0, plane + (u64)y * stride, 1, x)
                                              : along(image, 1, plane + x, stride, y);
            u32 element = table[c * 256 + (u32)value];
            i64 at = place + (i64)c * a.step[1];
            if (a.element == 4)
                ((u32 *)a.out)[at] = element;
            else if (a.element == 2)
                ((u16 *)a.out)[at] = (u16)element;
            else
                ((u8 *)a.out)[at] = (u8)element;
        }
    }
}
