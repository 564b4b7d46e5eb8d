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

/* Rows that a thread makes of a column, whose weights they share. */
#define ACROSS_ROWS 4
/* Weights that are kept in registers, at most: those of bilinear reductions to less than a third. */
#define KEPT_TAPS 7
/* Channels of a finished image, at most. */
#define CHANNELS 4
/* Four columns of a row, or four rows of a column, that each thread of a block of the second pass makes. */
#define SECOND_ITEMS 2

/* The bits of the finished elements, and where an image's go. */
typedef struct {
    const u32 *table;
    u8 *out;
    u32 element;
    u32 channels;
    /* Of the image's first element. */
    i64 first;
    i64 channel, row, column;
} Target;

/* Weighted sums along ACROSS_ROWS rows of each plane, from `rows` on. `taps` that are known when this is compiled are
 * unrolled; KEPT_TAPS at most. They are stored as bytes of the middle or, if there is a target, as elements. */
DEVICE void across_taps(const Unfinished *image, const u8 *plane, u64 plane_step, u32 stride, u32 height, u32 row,
                        u32 x, const i32 *from, u32 taps, const Target *target, u8 *middle)
{
    /* What is read of the record stays in registers, where the compiler cannot know that stores leave it alone. */
    const u32 planes = image->planes, channels = target ? target->channels : planes;
    const u32 to = pixel_stride(image->out_width);
    const u64 middle_step = (u64)height * to;
    const u8 *lines[ACROSS_ROWS];
    u32 weights[KEPT_TAPS], c, r, t;
    i64 at = 0, down = 0;
    if (target) {
        down = image->flip_v ? -target->row : target->row;
        at = target->first + (i64)(image->flip_v ? height - 1 - row : row) * target->row +
             (i64)(image->flip_h ? image->out_width - 1 - x : x) * target->column;
    } else {
        middle += (u64)row * to + x;
    }
    UNROLL
    for (t = 0; t < KEPT_TAPS; ++t)
        weights[t] = t < taps ? (u32)from[t] : 0;
    UNROLL
    for (r = 0; r < ACROSS_ROWS; ++r)
        lines[r] = plane + (u64)(row + r < height ? row + r : height - 1) * stride;
    for (c = 0; c < channels; ++c) {
        /* One plane fills all channels. */
        const u64 skip = c < planes ? c * plane_step : 0;
        u32 sums[ACROSS_ROWS];
        UNROLL
        for (r = 0; r < ACROSS_ROWS; ++r) {
            const u8 *line = lines[r] + skip;
            sums[r] = 1u << 21;
            UNROLL
            for (t = 0; t < KEPT_TAPS; ++t)
                if (t < taps)
                    sums[r] += line[t] * weights[t];
        }
        for (t = KEPT_TAPS; t < taps; ++t)
            UNROLL
            for (r = 0; r < ACROSS_ROWS; ++r)
                sums[r] += lines[r][skip + t] * (u32)from[t];
        UNROLL
        for (r = 0; r < ACROSS_ROWS; ++r) {
            const u32 value = (u32)clamp_i32((i32)sums[r] >> 22, 0, 255);
            if (row + r >= height)
                continue;
            if (target)
                store_element(target->out, at + (i64)r * down, target->element, target->table[c * 256 + value]);
            else
                middle[r * to] = (u8)value;
        }
        if (target)
            at += target->channel;
        else
            middle += middle_step;
    }
}

/* ACROSS_ROWS rows of column `x` of all planes. */
DEVICE void across(const Unfinished *image, const u8 *plane, u64 plane_step, u32 stride, u32 height, u32 row, u32 x,
                   const Target *target, u8 *middle)
{
    const i32 *table = (const i32 *)((const u8 *)image + image->columns_at);
    const i32 *weights = table + image->out_width + (u64)x * image->column_taps;
    plane += (u32)table[x];
    switch (image->column_taps) {
    case 3:
        across_taps(image, plane, plane_step, stride, height, row, x, weights, 3, target, middle);
        break;
    case 5:
        across_taps(image, plane, plane_step, stride, height, row, x, weights, 5, target, middle);
        break;
    case 7:
        across_taps(image, plane, plane_step, stride, height, row, x, weights, 7, target, middle);
        break;
    default:
        across_taps(image, plane, plane_step, stride, height, row, x, weights, image->column_taps, target, middle);
    }
}

/* The weighted sum of words of four neighbours `stride` bytes apart, as such a word. */
DEVICE u32 down_taps(const u8 *from, u32 stride, const i32 *weights, u32 taps)
{
    u32 s0 = 1u << 21, s1 = 1u << 21, s2 = 1u << 21, s3 = 1u << 21, t;
    UNROLL
    for (t = 0; t < taps; ++t) {
        const u32 four = *(const u32 *)(from + (u64)t * stride), weight = (u32)weights[t];
        s0 += (four & 255u) * weight;
        s1 += (four >> 8 & 255u) * weight;
        s2 += (four >> 16 & 255u) * weight;
        s3 += (four >> 24) * weight;
    }
    return (u32)clamp_i32((i32)s0 >> 22, 0, 255) | (u32)clamp_i32((i32)s1 >> 22, 0, 255) << 8 |
           (u32)clamp_i32((i32)s2 >> 22, 0, 255) << 16 | (u32)clamp_i32((i32)s3 >> 22, 0, 255) << 24;
}

/* Output row `y` of four neighbouring columns, of which the first row's word is at `column`. */
DEVICE u32 down(const Unfinished *image, const u8 *column, u32 stride, u32 y)
{
    const i32 *table = (const i32 *)((const u8 *)image + image->rows_at);
    const i32 *weights = table + image->out_height + (u64)y * image->row_taps;
    column += (u64)(u32)table[y] * stride;
    switch (image->row_taps) {
    case 3:
        return down_taps(column, stride, weights, 3);
    case 5:
        return down_taps(column, stride, weights, 5);
    default:
        return down_taps(column, stride, weights, image->row_taps);
    }
}

/* Up to four neighbouring columns, each by itself. */
DEVICE u32 one_by_one(const Unfinished *image, const u8 *plane, u32 stride, u32 width, u32 row, u32 column, u32 rows)
{
    u32 word = 0, i;
    for (i = 0; i < 4 && column + i < width; ++i) {
        u32 x = column + i;
        word |= (u32)(rows ? along(image, 1, plane + x, stride, row)
                           : along(image, 0, plane + (u64)row * stride, 1, x))
                << (8 * i);
    }
    return word;
}

/* The first pass. Grid: words of four pixels or columns of four rows / 128 of the largest image, 1, images. */
KERNEL(resample_first, BatchArgs, 128)
{
    const Unfinished *image = unfinished(&a, BLOCK_Z);
    const u32 width = middle_width(image), height = middle_height(image);
    const u32 from = row_of(image), to = pixel_stride(width), vertical = image->vertical_first;
    const u64 plane_step = (u64)from * (image->kind == JPEG ? image->full_height : image->height);
    const u8 *plane = pixels_of(&a, image, 0);
    const u32 aligned = ((from | (u32)(u64)plane) & 3u) == 0, columns = !vertical && image->columns_at;
    const u32 each = columns ? width : to / 4, lines = columns ? (height + ACROSS_ROWS - 1) / ACROSS_ROWS : height;
    u8 *out = (u8 *)(a.scratch + image->middle);
    u32 t, c;
    for (t = THREAD; t < 128; t += THREADS) {
        const u32 number = BLOCK_X * 128 + t, line = number / each, at = number - line * each;
        if (line >= lines)
            continue;
        if (columns) {
            across(image, plane, plane_step, from, height, line * ACROSS_ROWS, at, (const Target *)0, out);
            continue;
        }
        for (c = 0; c < image->planes; ++c)
            *(u32 *)(out + ((u64)c * height + line) * to + at * 4) =
                vertical && image->rows_at && aligned
                    ? down(image, plane + c * plane_step + at * 4, from, line)
                    : one_by_one(image, plane + c * plane_step, from, width, line, at * 4, vertical);
    }
}

/* Stores up to four neighbouring pixels, of which `words` have a byte each for every channel. */
DEVICE void store_pixels(const Target *target, const Unfinished *image, u32 y, u32 x, u32 *words)
{
    const u32 count = image->out_width - x < 4 ? image->out_width - x : 4;
    const i64 at = target->first + (i64)(image->flip_v ? image->out_height - 1 - y : y) * target->row +
                   (i64)(image->flip_h ? image->out_width - count - x : x) * target->column;
    u32 bits[4], c, k;
    if (image->flip_h)
        UNROLL
        for (c = 0; c < CHANNELS; ++c)
            words[c] = swapped(words[c]) >> (32 - 8 * count);
    if (count == 4 && target->channels == 3 && target->channel == 1 && target->column == 3) {
        /* Whole pixels. */
        u32 part;
        UNROLL
        for (part = 0; part < 3; ++part) {
            UNROLL
            for (k = 0; k < 4; ++k) {
                const u32 place = part * 4 + k;
                bits[k] = target->table[place % 3 * 256 + (words[place % 3] >> (place / 3 * 8) & 255u)];
            }
            store_elements(target->out, at + part * 4, target->element, bits);
        }
        return;
    }
    UNROLL
    for (c = 0; c < CHANNELS; ++c) {
        if (c >= target->channels)
            continue;
        UNROLL
        for (k = 0; k < 4; ++k)
            bits[k] = target->table[c * 256 + (words[c] >> (8 * k) & 255u)];
        if (count == 4 && target->column == 1)
            store_elements(target->out, at + c * target->channel, target->element, bits);
        else
            UNROLL
            for (k = 0; k < 4; ++k)
                if (k < count)
                    store_element(target->out, at + c * target->channel + k * target->column, target->element, bits[k]);
    }
}

/* The second pass, into the batch. Grid: words of four pixels or columns of four rows / 256 of the largest image, 1,
 * images. */
KERNEL(resample_second, BatchArgs, 128)
{
    SHARED u32 table[CHANNELS * 256];
    const Unfinished *image = unfinished(&a, BLOCK_Z);
    const u32 stride = pixel_stride(middle_width(image)), height = image->out_height, width = image->out_width;
    const u32 vertical = image->vertical_first, columns = vertical && image->columns_at;
    const u32 each = columns ? width : pixel_stride(width) / 4;
    const u32 lines = columns ? (height + ACROSS_ROWS - 1) / ACROSS_ROWS : height;
    const u64 plane_step = (u64)stride * middle_height(image);
    const u8 *middle = (const u8 *)(a.scratch + image->middle);
    Target target;
    u32 t, c;
    if (BLOCK_X * SECOND_ITEMS * 128 >= each * lines)
        return;
    for (t = THREAD; t < a.channels * 256; t += THREADS)
        table[t] = ((const u32 *)a.table)[t];
    SYNC();
    target.table = table;
    target.out = (u8 *)a.out;
    target.element = a.element;
    target.channels = a.channels;
    target.first = (i64)(a.first + BLOCK_Z) * a.step[0];
    target.channel = a.step[1];
    target.row = a.step[2];
    target.column = a.step[3];
    for (t = THREAD; t < SECOND_ITEMS * 128; t += THREADS) {
        const u32 number = BLOCK_X * SECOND_ITEMS * 128 + t, line = number / each, at = number - line * each;
        u32 words[CHANNELS];
        if (line >= lines)
            continue;
        if (columns) {
            across(image, middle, plane_step, stride, height, line * ACROSS_ROWS, at, &target, (u8 *)0);
            continue;
        }
        UNROLL
        for (c = 0; c < CHANNELS; ++c) {
            const u8 *plane = middle + c * plane_step;
            /* One plane fills all channels. */
            if (c >= image->planes)
                words[c] = words[0];
            else if (vertical)
                words[c] = one_by_one(image, plane, stride, width, line, at * 4, 0);
            else if (image->rows_at)
                words[c] = down(image, plane + at * 4, stride, line);
            else
                words[c] = *(const u32 *)(plane + (u64)(line + image->row_skip) * stride + at * 4);
        }
        store_pixels(&target, image, line, at * 4, words);
    }
}
