/* Batches of finished images mixed with themselves, rolled by one: image i with image i - 1, and the first with the last.
 *
 * In place: a thread has one place of an image, and walks over all images from the last to the first, so that all that it
 * must put aside is that place of the last one. Arithmetic is that of the crate wellfed-kernels (`mix`), step by step:
 * every product and sum is rounded to the type of the elements.
 */
#include "kernel.h"

typedef struct {
    u64 images;
    u64 count;   /* of images, at least 1 */
    u64 size;    /* bytes of an image */
    u64 items;   /* places of an image: words or elements of a sum, elements of rectangles */
    float previous, own; /* weights of the image before, and of the image itself */
    u32 dtype;
    u32 words;   /* whether places of a sum are words of 4 bytes */
    u64 first, plane, row; /* of the rectangle in bytes: where it begins, from one channel and one row to the next */
    u32 run, rows; /* elements of a row, and rows in a channel */
} MixArgs;

/* Types of elements, and the bytes of each in a rectangle. */
enum { MIX_F32 = 4, MIX_F16 = 2, MIX_U8 = 1, MIX_BF16 = 3 };

DEVICE float mix_float(u32 bits)
{
#ifdef __CUDACC__
    return __uint_as_float(bits);
#else
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
#endif
}

DEVICE u32 mix_bits(float value)
{
#ifdef __CUDACC__
    return __float_as_uint(value);
#else
    u32 bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
#endif
}

/* The number that these bits of half precision are. */
DEVICE float mix_from_half(u32 half)
{
    const u32 sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31u, fraction = half & 0x3FFu;
    if (exponent == 0)
        return mix_float(mix_bits((float)fraction * 5.9604644775390625e-8f) | sign);
    return mix_float(sign | (exponent == 31 ? 0x7F800000u : (exponent + 112u) << 23) | fraction << 13);
}

/* The nearest number of half precision, of two the even one. */
DEVICE u32 mix_to_half(float value)
{
    const u32 bits = mix_bits(value), sign = bits >> 16 & 0x8000u, size = bits & 0x7FFFFFFFu;
    if (size >= 0x47800000u)
        return sign | (size > 0x7F800000u ? 0x7E00u | (size >> 13 & 0x3FFu) : 0x7C00u);
    /* Below the least normal number a sum with 1/2 rounds to multiples of the least number of all. */
    if (size < 0x38800000u)
        return sign | (mix_bits(mix_float(size) + 0.5f) - 0x3F000000u);
    return sign | ((size - 0x38000000u + 0xFFFu + (size >> 13 & 1u)) >> 13);
}

/* As mix_to_half, of bfloat16. */
DEVICE u32 mix_to_bfloat(float value)
{
    const u32 bits = mix_bits(value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
        return bits >> 16 | 0x40u;
    return (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
}

/* An element of the sum, of which `before` and `own` are bits. */
DEVICE u32 mix_element(const MixArgs *a, u32 before, u32 own)
{
    if (a->dtype == MIX_F32)
        return mix_bits(mix_float(before) * a->previous + mix_float(own) * a->own);
    if (a->dtype == MIX_F16) {
        before = mix_to_half(mix_from_half(before) * a->previous);
        own = mix_to_half(mix_from_half(own) * a->own);
        return mix_to_half(mix_from_half(before) + mix_from_half(own));
    }
    before = mix_to_bfloat(mix_float(before << 16) * a->previous);
    own = mix_to_bfloat(mix_float(own << 16) * a->own);
    return mix_to_bfloat(mix_float(before << 16) + mix_float(own << 16));
}

/* Weighted sums. Grid: places of an image / 256. */
KERNEL(mix_sum, MixArgs, 256)
{
    u32 n;
    for (n = THREAD; n < 256; n += THREADS) {
        const u64 at = (u64)BLOCK_X * 256 + n;
        u64 left;
        if (at >= a.items)
            continue;
        if (a.words) {
            u32 *place = (u32 *)(a.images + (a.count - 1) * a.size) + at;
            const u32 last = *place;
            u32 own = last;
            for (left = a.count; left > 0; --left) {
                u32 *next = (u32 *)((u64)place - a.size);
                const u32 before = left > 1 ? *next : last;
                if (a.dtype == MIX_F32)
                    *place = mix_element(&a, before, own);
                else
                    *place = mix_element(&a, before & 0xFFFFu, own & 0xFFFFu) |
                             mix_element(&a, before >> 16, own >> 16) << 16;
                own = before;
                place = next;
            }
        } else {
            u16 *place = (u16 *)(a.images + (a.count - 1) * a.size) + at;
            const u32 last = *place;
            u32 own = last;
            for (left = a.count; left > 0; --left) {
                u16 *next = (u16 *)((u64)place - a.size);
                const u32 before = left > 1 ? *next : last;
                *place = (u16)mix_element(&a, before, own);
                own = before;
                place = next;
            }
        }
    }
}

/* A rectangle of each image from the one before. Grid: elements of the rectangle / 256. */
KERNEL(mix_box, MixArgs, 256)
{
    const u32 element = a.dtype == MIX_BF16 ? 2 : a.dtype;
    u32 n;
    for (n = THREAD; n < 256; n += THREADS) {
        const u32 at = BLOCK_X * 256 + n, line = at / a.run, plane = line / a.rows;
        const u64 inside = a.first + plane * a.plane + (line - plane * a.rows) * a.row + (u64)(at - line * a.run) * element;
        u8 *place = (u8 *)(a.images + (a.count - 1) * a.size + inside);
        u32 last;
        u64 left;
        if (at >= a.items)
            continue;
        last = element == 4 ? *(u32 *)place : element == 2 ? *(u16 *)place : *place;
        for (left = a.count; left > 1; --left, place -= a.size)
            store_element(place, 0, element,
                          element == 4   ? *(u32 *)(place - a.size)
                          : element == 2 ? *(u16 *)(place - a.size)
                                         : *(place - a.size));
        store_element(place, 0, element, last);
    }
}
