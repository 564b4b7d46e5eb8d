/* Changes of values: what augment.cu does to pixels where they stand.
 *
 * Arithmetic is that of the crate wellfed-kernels, so that the pixels are the same bits: float32 blends that are
 * truncated, and Pillow's HSV. Pillow makes hues with float32 and double; here a hue is a quotient of integers. The
 * exact quotient differs from Pillow's only where it is a whole number, and then which number it is decides. On the way
 * back float32 is enough. Both were found by trying all colours, as a test does.
 */
#ifndef WELLFED_VALUES_H
#define WELLFED_VALUES_H

#include "augment.h"

/* A whole number below 2^23 as a float. Conversions are slower than the addition that this is on the device. */
DEVICE float value_float(u32 whole)
{
#ifdef __CUDACC__
    return __uint_as_float(0x4B000000u | whole) - 8388608.0f;
#else
    return (float)whole;
#endif
}

/* The whole part of a float from 0 up to 2^22. */
DEVICE u32 value_whole(float x)
{
#ifdef __CUDACC__
    return __float_as_uint(__fadd_rz(x, 8388608.0f)) & 0x3FFFFFu;
#else
    return (u32)x;
#endif
}

/* `degenerate + factor * (value - degenerate)`, truncated and cut off; 0 for what is no number. */
DEVICE u32 value_blend(float degenerate, u32 value, float factor)
{
    const float x = degenerate + factor * (value_float(value) - degenerate);
#ifdef __CUDACC__
    return value_whole(fminf(fmaxf(x, 0.0f), 255.0f));
#else
    return x >= 255.0f ? 255u : x > 0.0f ? (u32)x : 0u;
#endif
}

DEVICE u32 value_luma(const u32 *p)
{
    return (p[0] * 19595u + p[1] * 38470u + p[2] * 7471u + 0x8000u) >> 16;
}

/* `v * (1 - share)`, rounded: the floor of the exact `v + 0.5 - v * share`. */
DEVICE u32 value_level(u32 v, float share)
{
#ifdef __CUDACC__
    const float x = value_float(v);
    return value_whole(__fmaf_rz(-x, share, x + 0.5f));
#else
    return (u32)((double)v + 0.5 - (double)v * (double)share);
#endif
}

/* x / 255 of a byte, as IEEE 754 rounds it. */
DEVICE float value_share(u32 byte)
{
#ifdef __CUDACC__
    const float x = value_float(byte), near = x * (1.0f / 255.0f);
    return __fmaf_rn(__fmaf_rn(-255.0f, near, x), 1.0f / 255.0f, near);
#else
    return (float)byte / 255.0f;
#endif
}

/* The whole part of a / b, which is below 2^22, as a is. */
DEVICE u32 value_quotient(u32 a, u32 b)
{
#ifdef __CUDACC__
    float reciprocal;
    u32 quotient, rest;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(value_float(b)));
    /* One too much or too little at most. */
    quotient = value_whole(value_float(a) * reciprocal);
    rest = a - quotient * b;
    return (i32)rest < 0 ? quotient - 1 : rest >= b ? quotient + 1 : quotient;
#else
    return a / b;
#endif
}

/* Hues that are whole numbers and that Pillow's sums make a little less: a bit for each. */
CONSTANT u32 value_hues_below[8] = {
    0xFFFFFFFE, 0x00000000, 0x11000000, 0x00000111,
    0x222AAAAA, 0x23232222, 0x00022222, 0x00000000,
};

/* The hue of a colour: 255 * (its sixths) / 6. */
DEVICE u32 value_hue(u32 r, u32 g, u32 b, u32 max, u32 chroma)
{
    const i32 c = (i32)chroma;
    i32 sixths;
    u32 above, below = 6 * chroma, hue;
    if (r == max)
        sixths = (i32)g - (i32)b;
    else if (g == max)
        sixths = 2 * c + (i32)b - (i32)r;
    else
        sixths = 4 * c + (i32)r - (i32)g;
    above = 255u * (u32)(sixths < 0 ? sixths + 6 * c : sixths);
    hue = value_quotient(above, below);
    if (hue * below == above && (value_hues_below[hue >> 5] >> (hue & 31u) & 1u))
        --hue;
    return hue;
}

DEVICE void value_shift_hue(u32 *p, u32 shift)
{
    const u32 r = p[0], g = p[1], b = p[2];
    const u32 max = r > g ? (r > b ? r : b) : (g > b ? g : b);
    const u32 min = r < g ? (r < b ? r : b) : (g < b ? g : b);
    u32 hue, saturation, sector, low, falling, rising;
    float share, f;
    if (max == min)
        return;
    hue = (value_hue(r, g, b, max, max - min) + shift) & 255u;
    saturation = value_quotient(255u * (max - min), max);
    if (saturation == 0) {
        p[0] = p[1] = p[2] = max;
        return;
    }
    sector = 6 * hue / 255u;
    f = value_share(6 * hue - 255u * sector);
    share = value_share(saturation);
    low = value_level(max, share);
    falling = value_level(max, share * f);
    rising = value_level(max, share * (1.0f - f));
    /* The hue 255 is the first sector's. */
    sector = sector == 6 ? 0 : sector;
    p[0] = sector == 0 || sector == 5 ? max : sector == 1 ? falling : sector == 4 ? rising : low;
    p[1] = sector == 1 || sector == 2 ? max : sector == 3 ? falling : sector == 0 ? rising : low;
    p[2] = sector == 3 || sector == 4 ? max : sector == 5 ? falling : sector == 2 ? rising : low;
}

/* The table of a channel's histogram, Pillow's autocontrast or equalize. One thread makes it. */
DEVICE_APART void value_table(u32 kind, const u32 *histogram, u8 *table)
{
    u32 v, low = 0, high = 255, step, below;
    u64 sum = 0;
    for (v = 0; v < 256; ++v) {
        table[v] = (u8)v;
        sum += histogram[v];
    }
    if (sum == 0)
        return;
    while (histogram[low] == 0)
        ++low;
    while (histogram[high] == 0)
        --high;
    if (kind == OP_AUTOCONTRAST) {
        double scale, offset;
        if (low == high)
            return;
        scale = 255.0 / (double)(high - low);
        offset = -(double)low * scale;
        for (v = 0; v < 256; ++v) {
            const double x = (double)v * scale + offset;
            table[v] = x >= 255.0 ? 255 : x > 0.0 ? (u8)x : 0;
        }
        return;
    }
    step = (u32)((sum - histogram[high]) / 255u);
    if (step == 0)
        return;
    below = step / 2;
    for (v = 0; v < 256; ++v) {
        const u32 to = below / step;
        table[v] = (u8)(to < 255 ? to : 255);
        below += histogram[v];
    }
}

/* Whether (y, x) lies in a rectangle, and which of its pixels it is. */
DEVICE i32 value_inside(i32 y, i32 x, i32 top, i32 left, i32 height, i32 width)
{
    y -= top;
    x -= left;
    return y >= 0 && y < height && x >= 0 && x < width ? y * width + x : -1;
}

/* What changes each channel by itself. */
DEVICE u32 value_mapped(u32 kind, u32 by, const u8 *table, u32 value)
{
    switch (kind) {
    case OP_INVERT: return 255u - value;
    case OP_POSTERIZE: return value & by;
    case OP_SOLARIZE: return value < by ? value : 255u - value;
    case OP_SOLARIZE_ADD: return value >= 128u ? value : value + by > 255u ? 255u : value + by;
    default: return table[value];
    }
}

/* Four neighbours of a row: what their channels are. */
typedef struct {
    u32 p[4][3];
} Values;

/* Changes the values of four pixels from (y, x) of the result on, `step` columns from one to the next; says how many
 * channels they have then. All three are changed, so that they stay in registers: those that there are not are never
 * looked at. */
DEVICE u32 value_ops(const AugmentArgs *a, const AugmentPass *pass, u32 channels, i32 y, i32 x, i32 step, u32 mean,
                     const u8 *tables, Values *v)
{
    const AugmentOp *op = (const AugmentOp *)a->ops + pass->first_op;
    const AugmentOp *end = op + pass->ops;
    u32 c, k;
    for (; op < end; ++op) {
        switch (op->kind) {
        case OP_BRIGHTNESS:
        case OP_CONTRAST: {
            const float degenerate = value_float(op->kind == OP_CONTRAST ? mean : 0), factor = op->factor;
            UNROLL
            for (k = 0; k < 4; ++k)
                UNROLL
                for (c = 0; c < 3; ++c)
                    v->p[k][c] = value_blend(degenerate, v->p[k][c], factor);
            break;
        }
        case OP_SATURATION:
            if (channels == 3) {
                const float factor = op->factor;
                UNROLL
                for (k = 0; k < 4; ++k) {
                    const float grey = value_float(value_luma(v->p[k]));
                    UNROLL
                    for (c = 0; c < 3; ++c)
                        v->p[k][c] = value_blend(grey, v->p[k][c], factor);
                }
            }
            break;
        case OP_HUE:
            if (channels == 3) {
                const u32 shift = op->value;
                UNROLL
                for (k = 0; k < 4; ++k)
                    value_shift_hue(v->p[k], shift);
            }
            break;
        case OP_GRAY:
            UNROLL
            for (k = 0; k < 4; ++k) {
                if (channels == 3)
                    v->p[k][0] = value_luma(v->p[k]);
                v->p[k][1] = v->p[k][2] = v->p[k][0];
            }
            channels = op->value;
            break;
        case OP_PERMUTE:
            if (channels == 3) {
                const u32 order = op->value;
                UNROLL
                for (k = 0; k < 4; ++k) {
                    const u32 r = v->p[k][0], g = v->p[k][1], b = v->p[k][2];
                    UNROLL
                    for (c = 0; c < 3; ++c) {
                        const u32 from = order >> (8 * c) & 255u;
                        v->p[k][c] = from == 0 ? r : from == 1 ? g : b;
                    }
                }
            }
            break;
        case OP_ERASE:
            UNROLL
            for (k = 0; k < 4; ++k) {
                const i32 at = value_inside(y, x + (i32)k * step, op->top, op->left, op->height, op->width);
                if (at >= 0)
                    UNROLL
                    for (c = 0; c < 3; ++c)
                        v->p[k][c] =
                            op->each
                                ? ((const u8 *)a->bytes)[op->fill + c * (u32)(op->height * op->width) + (u32)at]
                                : op->fill >> (8 * c) & 255u;
            }
            break;
        default: {
            const u32 kind = op->kind, value = op->value;
            UNROLL
            for (k = 0; k < 4; ++k)
                UNROLL
                for (c = 0; c < 3; ++c)
                    v->p[k][c] = value_mapped(kind, value, tables + c * 256, v->p[k][c]);
        }
        }
    }
    return channels;
}

/* The bits of a finished element of channel c at (y, x), after all rectangles. */
DEVICE_APART u32 value_patched(u64 patches, u64 bytes, u32 element, const AugmentPass *pass, u32 c, i32 y, i32 x,
                               u32 bits)
{
    const AugmentPatch *patch = (const AugmentPatch *)patches + pass->first_patch;
    u32 i;
    for (i = 0; i < pass->patches; ++i, ++patch) {
        const i32 at = value_inside(y, x, patch->top, patch->left, patch->height, patch->width);
        if (at >= 0) {
            const u32 place = c * (u32)(patch->height * patch->width) + (u32)at;
            const u8 *values = (const u8 *)bytes + patch->fill[0];
            if (!patch->each)
                bits = patch->fill[c];
            else if (element == 1)
                bits = values[place];
            else if (element == 2)
                bits = ((const u16 *)values)[place];
            else
                bits = ((const u32 *)values)[place];
        }
    }
    return bits;
}

#endif
