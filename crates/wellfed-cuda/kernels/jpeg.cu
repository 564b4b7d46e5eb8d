/* From quantized coefficients to pixels, as libjpeg-turbo makes them: bit by bit what crates/wellfed-jpeg does. */
#include "unfinished.h"

/* Bytes of a group's head: see crates/wellfed-jpeg/src/packed/mod.rs for every byte. */
#define GROUP_HEAD 14

DEVICE u32 read_u16(const u8 *bytes)
{
    return bytes[0] | (u32)bytes[1] << 8;
}

DEVICE u32 read_u32(const u8 *bytes)
{
    return read_u16(bytes) | read_u16(bytes + 2) << 16;
}

DEVICE u32 ones(u32 x)
{
#ifdef __CUDACC__
    return (u32)__popc(x);
#else
    return (u32)__builtin_popcount(x);
#endif
}

/* Unpacks one group: `body` has `size` bytes, and nothing beyond them is read, whatever they say. */
DEVICE void unpack_group(const u8 *head, const u8 *body, u32 size, i16 *group)
{
    u32 present = read_u32(head + 2), used = ones(present), escapes = 0, quarter, i, b;
    const u8 *map = body, *nibbles = body + used, *bytes, *words, *end = body + size;
    if (used <= size) {
        for (quarter = 0; quarter < 4; ++quarter) {
            u32 n = 0;
            for (i = 0; i < 8; ++i) {
                u32 bits;
                if (!(present >> (quarter * 8 + i) & 1))
                    continue;
                for (bits = *map++; bits; bits &= bits - 1, ++n) {
                    u32 place = quarter * 64 + i * 8 + ones((bits & (0u - bits)) - 1);
                    const u8 *nibble = nibbles + n / 2;
                    i32 value = nibble < end ? (i32)(*nibble >> (n % 2 * 4) & 15) - 8 : 0;
                    group[place] = (i16)value;
                    escapes += value == -8;
                }
            }
            nibbles += (n + 1) / 2;
        }
        /* Values of another size stand behind. */
        bytes = nibbles;
        words = nibbles + escapes;
        for (i = 0; escapes && i < 256; ++i) {
            if (group[i] != -8)
                continue;
            --escapes;
            group[i] = bytes < end ? (i8)*bytes : 0;
            ++bytes;
            if (group[i] == -128) {
                group[i] = words + 1 < end ? (i16)read_u16(words) : 0;
                words += 2;
            }
        }
    }
    for (b = 0; b < 4; ++b)
        group[b * 8] = (i16)read_u16(head + 6 + 2 * b);
}

/* Packed coefficients become plain ones. Grid: groups / 64 of the largest image, 1, images. */
KERNEL(unpack, BatchArgs, 64)
{
    const Unfinished *image = unfinished(&a, BLOCK_Z);
    u32 t, c, begin = 0;
    if (image->kind != PACKED)
        return;
    for (t = THREAD; t < 64; t += THREADS) {
        u32 number = BLOCK_X * 64 + t;
        begin = 0;
        for (c = 0; c < image->planes; ++c) {
            const Plane *plane = &image->plane[c];
            u32 count = plane->groups * plane->rows;
            if (number - begin < count) {
                u32 row = (number - begin) / plane->groups, g = (number - begin) % plane->groups, i;
                const u8 *data = (const u8 *)image + image->data_at;
                const u32 *table = (const u32 *)((const u8 *)image + plane->at);
                const u8 *heads = data + table[row], *body = heads + plane->groups * GROUP_HEAD;
                u32 size = read_u16(heads + g * GROUP_HEAD);
                i16 *group = (i16 *)(a.scratch + image->coefficients) + (u64)number * 256;
                for (i = 0; i < 64; ++i)
                    ((u64 *)group)[i] = 0;
                for (i = 0; i < g; ++i)
                    body += read_u16(heads + i * GROUP_HEAD);
                if (body + size <= data + table[row + 1])
                    unpack_group(heads + g * GROUP_HEAD, body, size, group);
                break;
            }
            begin += count;
        }
    }
}

/* Fixed-point constants with 13 fractional bits, named after their values. */
#define F_0_298 2446
#define F_0_390 3196
#define F_0_541 4433
#define F_0_765 6270
#define F_0_899 7373
#define F_1_175 9633
#define F_1_501 12299
#define F_1_847 15137
#define F_1_961 16069
#define F_2_053 16819
#define F_2_562 20995
#define F_3_072 25172

/* One line of the inverse DCT: products and sums of 16 bits wrap, results saturate (crates/wellfed-jpeg's idct). */
DEVICE void idct_line(const i16 x[8], i32 shift, i16 out[8])
{
    i32 half = 1 << (shift - 1), k;
    i32 even2 = x[2] * F_0_541 + x[6] * (F_0_541 - F_1_847);
    i32 even3 = x[2] * (F_0_541 + F_0_765) + x[6] * F_0_541;
    i32 even0 = (i16)(x[0] + x[4]) * 8192 + half;
    i32 even1 = (i16)(x[0] - x[4]) * 8192 + half;
    i32 z3 = (i16)(x[7] + x[3]), z4 = (i16)(x[5] + x[1]);
    i32 odd3 = z3 * (F_1_175 - F_1_961) + z4 * F_1_175;
    i32 odd4 = z3 * F_1_175 + z4 * (F_1_175 - F_0_390);
    i32 even[4], odd[4];
    even[0] = even0 + even3;
    even[1] = even1 + even2;
    even[2] = even1 - even2;
    even[3] = even0 - even3;
    odd[0] = x[7] * -F_0_899 + x[1] * (F_1_501 - F_0_899) + odd4;
    odd[1] = x[5] * -F_2_562 + x[3] * (F_3_072 - F_2_562) + odd3;
    odd[2] = x[5] * (F_2_053 - F_2_562) + x[3] * -F_2_562 + odd4;
    odd[3] = x[7] * (F_0_298 - F_0_899) + x[1] * -F_0_899 + odd3;
    for (k = 0; k < 4; ++k) {
        out[k] = (i16)clamp_i32((even[k] + odd[k]) >> shift, -32768, 32767);
        out[7 - k] = (i16)clamp_i32((even[k] - odd[k]) >> shift, -32768, 32767);
    }
}

/* Groups that a block of threads transforms. */
#define IDCT_GROUPS 8
/* Elements of a block between the passes: 8 x 8, and as many more as keep threads off each other's banks. */
#define IDCT_BLOCK 72

/* Coefficients become samples. Grid: groups / 8 of the largest image, 1, images. */
KERNEL(idct, BatchArgs, 256)
{
    SHARED i16 lines[IDCT_GROUPS * 4 * IDCT_BLOCK];
    SHARED u8 below[IDCT_GROUPS * 4 * 8];
    const Unfinished *image = unfinished(&a, BLOCK_Z);
    u32 t, c, total = 0;
    if (image->kind != COEFFICIENTS && image->kind != PACKED)
        return;
    for (c = 0; c < image->planes; ++c)
        total += image->plane[c].groups * image->plane[c].rows;
    if (BLOCK_X * IDCT_GROUPS >= total)
        return;
    /* Each thread takes a column of a block. */
    for (t = THREAD; t < IDCT_GROUPS * 32; t += THREADS) {
        u32 number = BLOCK_X * IDCT_GROUPS + t / 32, lane = t % 32, r, begin = 0;
        const i16 *group;
        u8 any = 0;
        if (number >= total)
            continue;
        for (c = 0; number - begin >= image->plane[c].groups * image->plane[c].rows; ++c)
            begin += image->plane[c].groups * image->plane[c].rows;
        group = image->kind == PACKED
                    ? (const i16 *)(a.scratch + image->coefficients) + (u64)number * 256
                    : (const i16 *)((const u8 *)image + image->plane[c].at) + (u64)(number - begin) * 256;
        for (r = 0; r < 8; ++r) {
            i16 x = group[r * 32 + lane];
            any |= r > 0 && x != 0;
            lines[(t / 8) * IDCT_BLOCK + r * 8 + lane % 8] =
                (i16)(x * (i16)image->plane[c].quant[r * 8 + lane % 8]);
        }
        below[t] = any;
    }
    SYNC();
    for (t = THREAD; t < IDCT_GROUPS * 32; t += THREADS) {
        i16 *column = lines + (t / 8) * IDCT_BLOCK + t % 8;
        const u8 *others = below + (t & ~7u);
        i16 x[8], y[8];
        u32 r, any = 0;
        if (BLOCK_X * IDCT_GROUPS + t / 32 >= total)
            continue;
        for (r = 0; r < 8; ++r) {
            x[r] = column[r * 8];
            any |= others[r];
        }
        if (any)
            idct_line(x, 11, y);
        for (r = 0; r < 8; ++r)
            /* The shortcut wraps where the other way saturates. */
            column[r * 8] = any ? y[r] : (i16)((u32)(i32)x[0] << 2);
    }
    SYNC();
    /* Each thread takes a row of a block. */
    for (t = THREAD; t < IDCT_GROUPS * 32; t += THREADS) {
        u32 number = BLOCK_X * IDCT_GROUPS + t / 32, begin = 0, row, g, r, block = t / 8 % 4;
        const Plane *plane;
        const i16 *line = lines + (t / 8) * IDCT_BLOCK + t % 8 * 8;
        i16 x[8], y[8];
        u32 low = 0, high = 0, *out;
        if (number >= total)
            continue;
        for (c = 0; number - begin >= image->plane[c].groups * image->plane[c].rows; ++c)
            begin += image->plane[c].groups * image->plane[c].rows;
        plane = &image->plane[c];
        row = (number - begin) / plane->groups;
        g = (number - begin) % plane->groups;
        for (r = 0; r < 8; ++r)
            x[r] = line[r];
        idct_line(x, 18, y);
        for (r = 0; r < 4; ++r) {
            low |= (u32)(clamp_i32(y[r], -128, 127) + 128) << (8 * r);
            high |= (u32)(clamp_i32(y[r + 4], -128, 127) + 128) << (8 * r);
        }
        out = (u32 *)(a.scratch + image->samples[c] + (u64)(row * 8 + t % 8) * sample_stride(plane) + g * 32 + block * 8);
        out[0] = low;
        out[1] = high;
    }
}

/* The sample of a plane at pixel (x, y) of the image, as libjpeg-turbo's jdsample.c makes it. */
DEVICE i32 upsampled(const Plane *plane, const u8 *samples, u32 x, u32 y)
{
    u32 stride = sample_stride(plane), near, far, last;
    const u8 *row, *other;
    i32 here, there;
    switch (plane->upsampling) {
    case NO_UPSAMPLING:
        return samples[(u64)(y - plane->top) * stride + (x - plane->left)];
    case REPEAT:
        return samples[(u64)(y / plane->down - plane->top) * stride + (x / plane->across - plane->left)];
    case H2V1:
        row = samples + (u64)(y - plane->top) * stride;
        near = x / 2;
        last = plane->width - 1;
        far = x & 1 ? (near < last ? near + 1 : last) : (near ? near - 1 : 0);
        return (3 * row[near - plane->left] + row[far - plane->left] + 1 + (i32)(x & 1)) >> 2;
    default:
        break;
    }
    near = y / 2;
    last = plane->height - 1;
    far = y & 1 ? (near < last ? near + 1 : last) : (near ? near - 1 : 0);
    row = samples + (u64)(near - plane->top) * stride;
    other = samples + (u64)(far - plane->top) * stride;
    if (plane->upsampling == H1V2)
        return (3 * row[x - plane->left] + other[x - plane->left] + 1 + (i32)(y & 1)) >> 2;
    near = x / 2;
    last = plane->width - 1;
    far = x & 1 ? (near < last ? near + 1 : last) : (near ? near - 1 : 0);
    here = 3 * row[near - plane->left] + other[near - plane->left];
    there = 3 * row[far - plane->left] + other[far - plane->left];
    return (3 * here + there + 8 - (i32)(x & 1)) >> 4;
}

/* Samples become pixels: planes of red, green and blue, or one of grey. Grid: words of four pixels / 128 of the largest
 * image, 1, images. */
KERNEL(colour, BatchArgs, 128)
{
    const Unfinished *image = unfinished(&a, BLOCK_Z);
    u32 words = pixel_stride(image->width) / 4, t;
    u64 plane = (u64)pixel_stride(image->width) * image->height;
    u8 *out = (u8 *)(a.scratch + image->rgb);
    if (image->kind != COEFFICIENTS && image->kind != PACKED)
        return;
    for (t = THREAD; t < 128; t += THREADS) {
        u32 number = BLOCK_X * 128 + t, row = number / words, column = number % words * 4, i, c;
        u32 packed[3] = {0, 0, 0};
        if (row >= image->height)
            continue;
        for (i = 0; i < 4 && column + i < image->width; ++i) {
            u32 x = image->left + column + i, y = image->top + row;
            i32 first = upsampled(&image->plane[0], (const u8 *)(a.scratch + image->samples[0]), x, y);
            i32 second, third;
            if (image->planes == 1) {
                packed[0] |= (u32)first << (8 * i);
                continue;
            }
            second = upsampled(&image->plane[1], (const u8 *)(a.scratch + image->samples[1]), x, y);
            third = upsampled(&image->plane[2], (const u8 *)(a.scratch + image->samples[2]), x, y);
            if (image->colour == YCBCR) {
                /* 1.402, 0.34414, 0.71414 and 1.772 times 2^16, rounded. */
                i32 cb = second - 128, cr = third - 128, luma = first;
                first = clamp_i32(luma + ((91881 * cr + 32768) >> 16), 0, 255);
                second = clamp_i32(luma + ((-22554 * cb - 46802 * cr + 32768) >> 16), 0, 255);
                third = clamp_i32(luma + ((116130 * cb + 32768) >> 16), 0, 255);
            }
            packed[0] |= (u32)first << (8 * i);
            packed[1] |= (u32)second << (8 * i);
            packed[2] |= (u32)third << (8 * i);
        }
        for (c = 0; c < image->planes; ++c)
            *(u32 *)(out + c * plane + (u64)row * pixel_stride(image->width) + column) = packed[c];
    }
}
