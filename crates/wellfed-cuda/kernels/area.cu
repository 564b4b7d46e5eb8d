/* What makes the pixels of an image of others around them: both sides of a Gaussian blur, and affine maps.
 *
 * Each is a pass of its own over a source of bytes; the pass behind it maps values and finishes. Arithmetic is that of
 * blur.rs and affine/mod.rs of the crate wellfed-kernels, step by step: sums in the order of the taps, and coordinates
 * in Pillow's fixed point and double precision.
 */
#include "augment.h"

/* Elements of a block of a blur. */
#define AREA_ITEMS 1024
/* Pixels of the side of a block of an affine map. */
#define AREA_TILE 32

DEVICE const u8 *area_source(const AugmentArgs *a, const AugmentPass *pass)
{
    return (const u8 *)(pass->flags & FROM_SCRATCH ? a->scratch + pass->source : pass->source);
}

/* Mirrors at the outermost samples of a side, which are not repeated; `at` is at most one side away. */
DEVICE i32 area_reflect(i32 at, i32 side)
{
    at = at < 0 ? -at : at;
    return at > side - 1 ? 2 * (side - 1) - at : at;
}

/* The first side of a blur: from bytes to floats, channel by channel. Grid: blocks of AREA_ITEMS of the largest image,
 * images. */
KERNEL(augment_across, AugmentArgs, 256)
{
    const AugmentPass *pass = (const AugmentPass *)a.passes + BLOCK_Y;
    const AugmentArea *area = (const AugmentArea *)a.areas + pass->first_op;
    const float *weights = (const float *)((const u32 *)a.axes + area->weights);
    const u8 *source = area_source(&a, pass);
    float *target = (float *)(a.scratch + pass->target);
    const u32 width = (u32)pass->width, height = (u32)pass->height, total = pass->channels * height * width;
    const i32 taps = (i32)area->taps, radius = taps / 2;
    u32 n;
    for (n = THREAD; n < AREA_ITEMS; n += THREADS) {
        const u32 i = BLOCK_X * AREA_ITEMS + n, line = i / width, c = line / height, y = line - c * height;
        const i32 first = (i32)(i - line * width) - radius;
        const u8 *row = source + (i64)c * pass->source_plane + (i64)y * pass->source_row;
        float sum = 0.0f;
        i32 t;
        if (i >= total)
            continue;
        if (first >= 0 && first + taps <= (i32)width) {
            const u8 *from = row + first * pass->source_pixel;
            for (t = 0; t < taps; ++t, from += pass->source_pixel)
                sum += weights[t] * (float)*from;
        } else {
            for (t = 0; t < taps; ++t)
                sum += weights[t] * (float)row[area_reflect(first + t, (i32)width) * pass->source_pixel];
        }
        target[i] = sum;
    }
}

/* The second side: from floats to bytes, rounded half to even. Grid: as the first side. */
KERNEL(augment_down, AugmentArgs, 256)
{
    const AugmentPass *pass = (const AugmentPass *)a.passes + BLOCK_Y;
    const AugmentArea *area = (const AugmentArea *)a.areas + pass->first_op;
    const float *weights = (const float *)((const u32 *)a.axes + area->weights);
    const float *source = (const float *)area_source(&a, pass);
    u8 *target = (u8 *)(a.scratch + pass->target);
    const u32 width = (u32)pass->width, height = (u32)pass->height, total = pass->channels * height * width;
    const i32 taps = (i32)area->taps, radius = taps / 2;
    u32 n;
    for (n = THREAD; n < AREA_ITEMS; n += THREADS) {
        const u32 i = BLOCK_X * AREA_ITEMS + n, line = i / width, c = line / height, x = i - line * width;
        const i32 first = (i32)(line - c * height) - radius;
        const float *column = source + (u64)c * height * width + x;
        float sum = 0.0f;
        i32 t;
        if (i >= total)
            continue;
        if (first >= 0 && first + taps <= (i32)height) {
            const float *from = column + (u64)(u32)first * width;
            for (t = 0; t < taps; ++t, from += width)
                sum += weights[t] * *from;
        } else {
            for (t = 0; t < taps; ++t)
                sum += weights[t] * column[(u64)(u32)area_reflect(first + t, (i32)height) * width];
        }
        sum = rintf(sum);
        target[i] = (u8)(sum >= 255.0f ? 255u : sum > 0.0f ? (u32)sum : 0u);
    }
}

/* The sample that holds a coordinate: -1 for what is negative or further than any side. What is no number is the first,
 * as in Rust. */
DEVICE i32 area_coordinate(double v)
{
    return v < 0.0 || v >= 16777216.0 ? -1 : v == v ? (i32)v : 0;
}

/* The sample up or left of a coordinate that is no less than -0.5. */
DEVICE i32 area_floor(double v)
{
    return v == v ? (i32)v - (v < 0.0) : 0;
}

/* A value, truncated and cut off. */
DEVICE u8 area_byte(double v)
{
    return (u8)(v >= 255.0 ? 255u : v > 0.0 ? (u32)v : 0u);
}

DEVICE double area_between(double low, double high, double share)
{
    return low + (high - low) * share;
}

DEVICE double area_cubic(const double *v, double d)
{
    const double p2 = -v[0] + v[2];
    const double p3 = 2.0 * (v[0] - v[1]) + v[2] - v[3];
    const double p4 = -v[0] + v[1] - v[2] + v[3];
    return v[1] + d * (p2 + d * (p3 + d * p4));
}

/* Affine maps. Grid: tiles of the largest image, images. */
KERNEL(augment_affine, AugmentArgs, 256)
{
    SHARED double across[2][AREA_TILE], down[2][AREA_TILE];
    const AugmentPass *pass = (const AugmentPass *)a.passes + BLOCK_Y;
    const AugmentArea *area = (const AugmentArea *)a.areas + pass->first_op;
    const u8 *source = area_source(&a, pass);
    u8 *target = (u8 *)(a.scratch + pass->target);
    const double *m = area->matrix;
    const u32 kind = area->kind, channels = pass->channels;
    const i32 wide = (pass->out_width + AREA_TILE - 1) / AREA_TILE;
    const i32 top = (i32)BLOCK_X / wide * AREA_TILE, left = (i32)BLOCK_X % wide * AREA_TILE;
    /* Whether columns alone decide of x, and rows alone of y. */
    const i32 straight = m[1] == 0.0 && m[3] == 0.0;
    u32 i, c;
    if (top >= pass->out_height)
        return;
    if (kind == AREA_NEAREST_SUMS) {
        /* Positions are added up from the first pixel on, since that is how Pillow's are rounded. */
        for (i = THREAD; i < 2 * AREA_TILE; i += THREADS) {
            const i32 rows = i >= AREA_TILE, at = (i32)(i % AREA_TILE);
            double x = m[2] + m[1] * 0.5 + m[0] * 0.5, y = m[5] + m[4] * 0.5 + m[3] * 0.5;
            i32 n;
            for (n = rows ? top + at : straight ? left + at : 0; n > 0; --n) {
                x += rows ? m[1] : m[0];
                y += rows ? m[4] : m[3];
            }
            (rows ? down : across)[0][at] = x;
            (rows ? down : across)[1][at] = y;
        }
        SYNC();
    }
    for (i = THREAD; i < AREA_TILE * AREA_TILE; i += THREADS) {
        const i32 x = left + (i32)(i % AREA_TILE), y = top + (i32)(i / AREA_TILE);
        u8 *to = target + (i64)y * pass->out_width + x;
        const i64 plane = (i64)pass->out_height * pass->out_width;
        if (x >= pass->out_width || y >= pass->out_height)
            continue;
        if (kind == AREA_NEAREST_FIXED || kind == AREA_NEAREST_SUMS) {
            i32 from_x, from_y, inside;
            if (kind == AREA_NEAREST_FIXED) {
                const i32 *f = area->fixed;
                from_x = (i32)((u32)f[0] + (u32)x * (u32)f[2] + (u32)y * (u32)f[4]) >> 16;
                from_y = (i32)((u32)f[1] + (u32)x * (u32)f[3] + (u32)y * (u32)f[5]) >> 16;
            } else if (straight) {
                from_x = area_coordinate(across[0][x - left]);
                from_y = area_coordinate(down[1][y - top]);
            } else {
                double u = down[0][y - top], v = down[1][y - top];
                i32 n;
                for (n = 0; n < x; ++n) {
                    u += m[0];
                    v += m[3];
                }
                from_x = area_coordinate(u);
                from_y = area_coordinate(v);
            }
            inside = from_x >= 0 && from_x < pass->width && from_y >= 0 && from_y < pass->height;
            for (c = 0; c < channels; ++c)
                to[c * plane] = inside ? source[(i64)c * pass->source_plane + from_y * pass->source_row +
                                                from_x * pass->source_pixel]
                                       : (u8)(area->fill >> (8 * c));
            continue;
        }
        {
            const double at_x = (double)x + 0.5, at_y = (double)y + 0.5;
            double u = m[0] * at_x + m[1] * at_y + m[2], v = m[3] * at_x + m[4] * at_y + m[5];
            const i32 outside =
                u < 0.0 || u >= (double)pass->width || v < 0.0 || v >= (double)pass->height;
            const i32 right = pass->width - 1, bottom = pass->height - 1;
            i32 column, row, k, t;
            u -= 0.5;
            v -= 0.5;
            column = outside ? 0 : area_floor(u);
            row = outside ? 0 : area_floor(v);
            u -= (double)column;
            v -= (double)row;
            for (c = 0; c < channels; ++c) {
                const u8 *from = source + (i64)c * pass->source_plane;
                u8 value = (u8)(area->fill >> (8 * c));
                if (!outside && kind == AREA_BILINEAR) {
                    const i64 near = clamp_i32(column, 0, right) * pass->source_pixel;
                    const i64 far = clamp_i32(column + 1, 0, right) * pass->source_pixel;
                    const u8 *upper = from + clamp_i32(row, 0, bottom) * pass->source_row;
                    const u8 *lower = from + clamp_i32(row + 1, 0, bottom) * pass->source_row;
                    value = area_byte(area_between(area_between((double)upper[near], (double)upper[far], u),
                                                   area_between((double)lower[near], (double)lower[far], u), v));
                } else if (!outside) {
                    double lines[4];
                    for (k = 0; k < 4; ++k) {
                        const i32 at = row - 1 + k;
                        /* A row outside repeats the one before it, the first one that within. */
                        if (k > 0 && (at < 0 || at > bottom)) {
                            lines[k] = lines[k - 1];
                        } else {
                            const u8 *line = from + clamp_i32(at, 0, bottom) * pass->source_row;
                            double four[4];
                            for (t = 0; t < 4; ++t)
                                four[t] = (double)line[clamp_i32(column - 1 + t, 0, right) * pass->source_pixel];
                            lines[k] = area_cubic(four, u);
                        }
                    }
                    value = area_byte(area_cubic(lines, v));
                }
                to[c * plane] = value;
            }
        }
    }
}
