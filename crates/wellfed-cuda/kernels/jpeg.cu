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

/* Groups that a block of threads unpacks, 32 threads each: one for every byte of a group's map. */
#define UNPACK_GROUPS 8

/* A group that is being unpacked. */
typedef struct {
    const u8 *head, *body;
    i16 *out;
    u32 present;
    /* Nothing is read beyond so many bytes of the body, whatever they say. */
    u32 size;
    /* 0 where there is no group, 1 where it becomes zeros, 2 where only its head can be used, 3 where all of it can. */
    u32 parts;
} PackedGroup;

/* A row of a block. */
typedef union {
    i16 values[8];
    u32 words[4];
} CoefficientRow;

/* Finds group `number` of an image. */
DEVICE PackedGroup packed_group(const BatchArgs *a, const Unfinished *image, u32 number)
{
    PackedGroup group;
    u32 c, begin = 0, i;
    group.head = group.body = (const u8 *)0;
    group.out = (i16 *)(a->scratch + image->coefficients) + (u64)number * 256;
    group.present = group.size = group.parts = 0;
    for (c = 0; c < image->planes; ++c) {
        const Plane *plane = &image->plane[c];
        const u32 count = plane->groups * plane->rows;
        if (number - begin < count) {
            const u32 row = (number - begin) / plane->groups, g = (number - begin) - row * plane->groups;
            const u8 *data = (const u8 *)image + image->data_at;
            const u32 *table = (const u32 *)((const u8 *)image + plane->at);
            const u8 *heads = data + table[row];
            group.head = heads + g * GROUP_HEAD;
            group.body = heads + plane->groups * GROUP_HEAD;
            for (i = 0; i < g; ++i)
                group.body += read_u16(heads + i * GROUP_HEAD);
            group.size = read_u16(group.head);
            group.present = read_u32(group.head + 2);
            if (group.body + group.size > data + table[row + 1])
                group.parts = 1;
            else
                group.parts = ones(group.present) <= group.size ? 3 : 2;
            break;
        }
        begin += count;
    }
    return group;
}

/* Ones in the bytes of eight words before byte `end`, from byte `begin` on: a multiple of 4. */
DEVICE u32 ones_before(const u32 *words, u32 begin, u32 end)
{
    u32 sum = 0, w;
    UNROLL
    for (w = 0; w < 8; ++w) {
        if (w * 4 >= begin && w * 4 < end)
            sum += ones(end >= w * 4 + 4 ? words[w] : words[w] & ((1u << (8 * (end - w * 4))) - 1));
    }
    return sum;
}

/* Bytes of the values of the quarters before one, each of which begins with a byte. */
DEVICE u32 nibbles_before(const u32 *map, u32 quarter)
{
    u32 sum = 0, q;
    UNROLL
    for (q = 0; q < 4; ++q)
        if (q < quarter)
            sum += (ones(map[2 * q]) + ones(map[2 * q + 1]) + 1) / 2;
    return sum;
}

/* Packed coefficients become plain ones. Grid: groups / 8 of the largest image, 1, images. */
KERNEL(unpack, BatchArgs, 256)
{
    SHARED PackedGroup groups[UNPACK_GROUPS];
    /* Bytes of the maps, and which of their values are escapes: stand in a byte, or in two. */
    SHARED u32 maps[UNPACK_GROUPS * 8], escapes[UNPACK_GROUPS * 8], wide[UNPACK_GROUPS * 8];
    SHARED CoefficientRow rows[UNPACK_GROUPS * 32];
    const Unfinished *image = unfinished(&a, BLOCK_Z);
    u32 t, c, total = 0;
    if (image->kind != PACKED)
        return;
    for (c = 0; c < image->planes; ++c)
        total += image->plane[c].groups * image->plane[c].rows;
    if (BLOCK_X * UNPACK_GROUPS >= total)
        return;
    for (t = THREAD; t < UNPACK_GROUPS; t += THREADS)
        groups[t] = packed_group(&a, image, BLOCK_X * UNPACK_GROUPS + t);
    SYNC();
    for (t = THREAD; t < UNPACK_GROUPS * 32; t += THREADS) {
        const PackedGroup *group = &groups[t / 32];
        const u32 k = t % 32, shown = group->parts == 3 && (group->present >> k & 1);
        ((u8 *)maps)[t] = shown ? group->body[ones(group->present & ((1u << k) - 1))] : 0;
    }
    SYNC();
    for (t = THREAD; t < UNPACK_GROUPS * 32; t += THREADS) {
        const PackedGroup *group = &groups[t / 32];
        const u32 k = t % 32, *map = maps + t / 32 * 8;
        CoefficientRow *row = &rows[t];
        u32 bits = ((const u8 *)maps)[t], own = 0;
        row->words[0] = row->words[1] = row->words[2] = row->words[3] = 0;
        if (bits) {
            const u8 *nibbles = group->body + ones(group->present) + nibbles_before(map, k / 8);
            const u8 *end = group->body + group->size;
            u32 n = ones_before(map, k & ~7u, k);
            for (; bits; bits &= bits - 1, ++n) {
                const u32 place = ones((bits & (0u - bits)) - 1);
                const u8 *nibble = nibbles + n / 2;
                const i32 value = nibble < end ? (i32)(*nibble >> (n % 2 * 4) & 15) - 8 : 0;
                row->values[place] = (i16)value;
                own |= (u32)(value == -8) << place;
            }
        }
        ((u8 *)escapes)[t] = (u8)own;
    }
    SYNC();
    /* Values of another size stand behind, in a byte. */
    for (t = THREAD; t < UNPACK_GROUPS * 32; t += THREADS) {
        const PackedGroup *group = &groups[t / 32];
        const u32 k = t % 32;
        CoefficientRow *row = &rows[t];
        u32 bits = ((const u8 *)escapes)[t], own = 0;
        if (bits) {
            const u8 *bytes = group->body + ones(group->present) + nibbles_before(maps + t / 32 * 8, 4) +
                              ones_before(escapes + t / 32 * 8, 0, k);
            const u8 *end = group->body + group->size;
            for (; bits; bits &= bits - 1, ++bytes) {
                const u32 place = ones((bits & (0u - bits)) - 1);
                row->values[place] = bytes < end ? (i8)*bytes : 0;
                own |= (u32)(row->values[place] == -128) << place;
            }
        }
        ((u8 *)wide)[t] = (u8)own;
    }
    SYNC();
    /* And behind these, in two. */
    for (t = THREAD; t < UNPACK_GROUPS * 32; t += THREADS) {
        const PackedGroup *group = &groups[t / 32];
        const u32 k = t % 32;
        CoefficientRow *row = &rows[t];
        u32 bits = ((const u8 *)wide)[t];
        if (bits) {
            const u8 *words = group->body + ones(group->present) + nibbles_before(maps + t / 32 * 8, 4) +
                              ones_before(escapes + t / 32 * 8, 0, 32) + 2 * ones_before(wide + t / 32 * 8, 0, k);
            const u8 *end = group->body + group->size;
            for (; bits; bits &= bits - 1, words += 2)
                row->values[ones((bits & (0u - bits)) - 1)] = words + 1 < end ? (i16)read_u16(words) : 0;
        }
        if (!group->parts)
            continue;
        if (k < 4 && group->parts >= 2)
            row->values[0] = (i16)read_u16(group->head + 6 + 2 * k);
        store16(group->out + k * 8, row->words[0], row->words[1], row->words[2], row->words[3]);
    }
}

/* A place to read Huffman codes from: see crates/wellfed-jpeg/src/part.rs. */
typedef struct {
    u32 bit;
    /* Of the MCUs: the row, counted from the first one of the part, the first column in the image, and how many. */
    u16 row, column, count;
    i16 predictor[3];
} Segment;

#define HUFFMAN_THREADS 128
/* Threads to a place to read from: there are few places, and threads of a warp wait for each other. */
#define HUFFMAN_SPREAD 4
#define HUFFMAN_PLACES (HUFFMAN_THREADS / HUFFMAN_SPREAD)
#define HUFFMAN_TABLES 4
/* Codes of so many bits are looked up at once. */
#define FAST_BITS 9
/* Bytes of a table: counts, symbols. */
#define HUFFMAN_TABLE 272

typedef struct {
    /* By the next bits: 256 times the length of the code, plus its symbol; 0 for longer codes. */
    u16 fast[1 << FAST_BITS];
    /* By length, from FAST_BITS + 1 on: the first 16 bits that are above all codes, and what makes a place among the
     * symbols of a code. */
    u32 above[17];
    i32 place[17];
} HuffmanTable;

CONSTANT u8 ZIGZAG[64] = {0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
                          41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
                          30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

/* Bits that are read one after the other: those at hand, the first one uppermost, how many, and the word that comes
 * then, so that nothing waits for it; zeros behind the end. */
typedef struct {
    const u32 *words;
    u32 count, at;
    u64 bits;
    u32 have, then;
} BitsAhead;

/* The next word. */
DEVICE u32 word_ahead(BitsAhead *from)
{
    const u32 word = from->at < from->count ? swapped(from->words[from->at]) : 0;
    ++from->at;
    return word;
}

/* Sees to more than 32 bits being at hand. */
DEVICE void fill_up(BitsAhead *from)
{
    if (from->have <= 32) {
        from->bits |= (u64)from->then << (32 - from->have);
        from->have += 32;
        from->then = word_ahead(from);
    }
}

DEVICE BitsAhead bits_from(const u32 *words, u32 count, u32 bit)
{
    BitsAhead from;
    from.words = words;
    from.count = count;
    from.at = bit >> 5;
    from.bits = (u64)word_ahead(&from) << (32 + (bit & 31));
    from.have = 32 - (bit & 31);
    from.then = word_ahead(&from);
    fill_up(&from);
    return from;
}

/* The symbol of the code that `next` begins with, and 256 times its length. */
DEVICE u32 huffman_symbol(const HuffmanTable *table, const u8 *symbols, u32 next)
{
    u32 entry = table->fast[next >> (32 - FAST_BITS)], length;
    if (entry)
        return entry;
    for (length = FAST_BITS + 1; length <= 16; ++length)
        if (next >> 16 < table->above[length])
            return length << 8 | symbols[(u32)(table->place[length] + (i32)(next >> (32 - length))) & 255];
    /* No code: sound files have none of these. */
    return 16 << 8;
}

/* Fills entry `i` of a table for fast codes. */
DEVICE u16 huffman_fast(const u8 *counts, u32 i)
{
    u32 code = 0, place = 0, length;
    for (length = 1; length <= FAST_BITS; ++length) {
        u32 count = counts[length - 1], prefix = i >> (FAST_BITS - length);
        if (prefix - code < count)
            return (u16)(length << 8 | counts[16 + place + prefix - code]);
        code = (code + count) << 1;
        place += count;
    }
    return 0;
}

/* The value of `size` bits, as T.81 F.2.2.1 extends it. `next` are the bits behind the code. */
DEVICE i32 huffman_value(u32 next, u32 size)
{
    i32 bits = size ? (i32)(next >> (32 - size)) : 0;
    return size && bits < 1 << (size - 1) ? bits - (1 << size) + 1 : bits;
}

/* Huffman codes become plain coefficients. Grid: places to read from / 32 of the largest image, 1, images. */
KERNEL(huffman, BatchArgs, HUFFMAN_THREADS)
{
    SHARED HuffmanTable tables[HUFFMAN_TABLES];
    /* Where coefficients go among those of their block, whose rows are 32 apart. */
    SHARED u8 zigzag[64];
    const Unfinished *image = unfinished(&a, BLOCK_Z);
    const u8 *record = (const u8 *)image, *specs = record + image->tables_at;
    const u32 *words = (const u32 *)(record + image->codes_at);
    u32 t, count = image->codes / 4;
    if (image->kind != HUFFMAN || BLOCK_X * HUFFMAN_PLACES >= image->segments)
        return;
    for (t = THREAD; t < image->tables << FAST_BITS; t += THREADS)
        tables[t >> FAST_BITS].fast[t & ((1 << FAST_BITS) - 1)] =
            huffman_fast(specs + (t >> FAST_BITS) * HUFFMAN_TABLE, t & ((1 << FAST_BITS) - 1));
    for (t = THREAD; t < image->tables; t += THREADS) {
        const u8 *counts = specs + t * HUFFMAN_TABLE;
        u32 code = 0, place = 0, length;
        for (length = 1; length <= 16; ++length) {
            tables[t].place[length] = (i32)place - (i32)code;
            code += counts[length - 1];
            place += counts[length - 1];
            tables[t].above[length] = code << (16 - length);
            code <<= 1;
        }
    }
    for (t = THREAD; t < 64; t += THREADS)
        zigzag[t] = (u8)(ZIGZAG[t] / 8 * 32 + ZIGZAG[t] % 8);
    SYNC();
    for (t = THREAD; t < HUFFMAN_THREADS; t += THREADS) {
        const u32 place = BLOCK_X * HUFFMAN_PLACES + t / HUFFMAN_SPREAD;
        Segment segment;
        BitsAhead from;
        const Plane *plane = image->plane;
        i16 *plane_out = (i16 *)(a.scratch + image->coefficients), *out = (i16 *)0;
        i32 predictor, others[2];
        u32 m = 0, c = 0, b = 0, k = 0, dc = 0, ac = 0;
        if (t % HUFFMAN_SPREAD || place >= image->segments)
            continue;
        segment = ((const Segment *)(record + image->segments_at))[place];
        predictor = segment.predictor[0];
        others[0] = segment.predictor[1];
        others[1] = segment.predictor[2];
        from = bits_from(words, count, segment.bit);
        /* One code after the other, whatever block it is of, so that threads do not wait for each other's blocks. */
        while (m < segment.count) {
            u32 next, entry, length, size, run;
            i32 value;
            if (k == 0) {
                const u32 column = segment.column + m;
                dc = plane->dc;
                ac = plane->ac;
                out = (i16 *)0;
                if (column >= image->mcu_left) {
                    const u32 y = segment.row * plane->v + b / plane->h;
                    const u32 x = (column - image->mcu_left) * plane->h + b % plane->h;
                    u32 r;
                    out = plane_out + ((u64)y * plane->groups + x / 4) * 256 + x % 4 * 8;
                    for (r = 0; r < 8; ++r)
                        store16(out + r * 32, 0, 0, 0, 0);
                }
            }
            {
                const u32 table = k ? ac : dc;
                next = (u32)(from.bits >> 32);
                entry = huffman_symbol(&tables[table], specs + table * HUFFMAN_TABLE + 16, next);
            }
            length = entry >> 8;
            size = entry & 15;
            run = entry >> 4 & 15;
            value = huffman_value(next << length, size);
            from.bits <<= length + size;
            from.have -= length + size;
            fill_up(&from);
            if (k == 0) {
                predictor += value;
                if (out)
                    out[0] = (i16)predictor;
                k = 1;
            } else if (size) {
                k += run;
                /* What comes after the last coefficient is written over the last, as in libjpeg. */
                if (out)
                    out[zigzag[k < 64 ? k : 63]] = (i16)value;
                ++k;
            } else {
                k = run == 15 ? k + 16 : 64;
            }
            if (k < 64)
                continue;
            /* The next block. */
            k = 0;
            if (++b < plane->h * plane->v)
                continue;
            b = 0;
            if (image->planes == 3) {
                const i32 own = predictor;
                predictor = others[0];
                others[0] = others[1];
                others[1] = own;
            }
            plane_out += (u64)plane->groups * plane->rows * 256;
            ++plane;
            if (++c < image->planes)
                continue;
            c = 0;
            plane = image->plane;
            plane_out = (i16 *)(a.scratch + image->coefficients);
            ++m;
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
    if (image->kind != COEFFICIENTS && image->kind != PACKED && image->kind != HUFFMAN)
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
        group = image->kind == COEFFICIENTS
                    ? (const i16 *)((const u8 *)image + image->plane[c].at) + (u64)(number - begin) * 256
                    : (const i16 *)(a.scratch + image->coefficients) + (u64)number * 256;
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

/* Four neighbours of twice as many columns than there are samples, from pixel `x` on, of which the first four samples
 * that they are made of are given, from (x - 1) / 2 on. Odd pixels have another bias. */
DEVICE u32 twice_as_wide(u32 s0, u32 s1, u32 s2, u32 s3, u32 x, u32 even, u32 odd, u32 shift)
{
    u32 a, b, c, d;
    if (x & 1) {
        a = (3 * s0 + s1 + odd) >> shift;
        b = (3 * s1 + s0 + even) >> shift;
        c = (3 * s1 + s2 + odd) >> shift;
        d = (3 * s2 + s1 + even) >> shift;
    } else {
        a = (3 * s1 + s0 + even) >> shift;
        b = (3 * s1 + s2 + odd) >> shift;
        c = (3 * s2 + s1 + even) >> shift;
        d = (3 * s2 + s3 + odd) >> shift;
    }
    return a | b << 8 | c << 16 | d << 24;
}

/* Four samples of a row from `first` on, those beyond the plane's sides being those at them. */
DEVICE u32 four_samples(const Plane *plane, const u8 *row, i32 first)
{
    const i32 last = (i32)plane->width - 1, left = (i32)plane->left;
    u32 word = 0;
    i32 i;
    if (first >= 0 && first + 3 <= last)
        return load_four(row + (first - left));
    for (i = 0; i < 4; ++i)
        word |= (u32)row[clamp_i32(first + i, 0, last) - left] << (8 * i);
    return word;
}

/* `upsampled` of the four pixels from (x, y) on, of which `count` are in the image. What others are does not matter: the
 * samples that are read for them are still in the scratch memory, as pixels come behind samples. */
DEVICE u32 upsampled_four(const Plane *plane, const u8 *samples, u32 x, u32 y, u32 count)
{
    const u32 stride = sample_stride(plane), last = plane->height - 1;
    const i32 first = (i32)((x + 1) / 2) - 1;
    u32 near, far, here, there, word = 0, i;
    if (plane->upsampling == NO_UPSAMPLING)
        return load_four(samples + (u64)(y - plane->top) * stride + (x - plane->left));
    if (plane->upsampling == REPEAT) {
        for (i = 0; i < count; ++i)
            word |= (u32)upsampled(plane, samples, x + i, y) << (8 * i);
        return word;
    }
    if (plane->upsampling == H2V1) {
        here = four_samples(plane, samples + (u64)(y - plane->top) * stride, first);
        return twice_as_wide(here & 255u, here >> 8 & 255u, here >> 16 & 255u, here >> 24, x, 1, 2, 2);
    }
    near = y / 2;
    far = y & 1 ? (near < last ? near + 1 : last) : (near ? near - 1 : 0);
    samples -= (u64)plane->top * stride;
    if (plane->upsampling == H1V2) {
        here = load_four(samples + (u64)near * stride + (x - plane->left));
        there = load_four(samples + (u64)far * stride + (x - plane->left));
    } else {
        here = four_samples(plane, samples + (u64)near * stride, first);
        there = four_samples(plane, samples + (u64)far * stride, first);
    }
    {
        /* Two sums of 16 bits at once. */
        const u32 even = 3 * (here & 0xFF00FFu) + (there & 0xFF00FFu);
        const u32 odd = 3 * (here >> 8 & 0xFF00FFu) + (there >> 8 & 0xFF00FFu);
        if (plane->upsampling == H1V2) {
            const u32 bias = (1 + (y & 1)) * 0x10001u;
            return ((even + bias) >> 2 & 0xFF00FFu) | ((odd + bias) >> 2 & 0xFF00FFu) << 8;
        }
        return twice_as_wide(even & 0xFFFFu, odd & 0xFFFFu, even >> 16, odd >> 16, x, 8, 7, 4);
    }
}

/* Samples become pixels: planes of red, green and blue, or one of grey. Grid: words of four pixels / 128 of the largest
 * image, 1, images. */
KERNEL(colour, BatchArgs, 128)
{
    const Unfinished *image = unfinished(&a, BLOCK_Z);
    const u32 words = pixel_stride(image->width) / 4, planes = image->planes;
    const u64 plane = (u64)words * 4 * image->height;
    u32 t;
    if (image->kind != COEFFICIENTS && image->kind != PACKED && image->kind != HUFFMAN)
        return;
    for (t = THREAD; t < 128; t += THREADS) {
        const u32 number = BLOCK_X * 128 + t, row = number / words, column = (number - row * words) * 4;
        const u32 x = image->left + column, y = image->top + row;
        const u32 count = image->width - column < 4 ? image->width - column : 4;
        u32 *out = (u32 *)(a.scratch + image->rgb + (u64)row * words * 4 + column);
        u32 first, second, third;
        if (row >= image->height)
            continue;
        first = upsampled_four(&image->plane[0], (const u8 *)(a.scratch + image->samples[0]), x, y, count);
        if (planes == 1) {
            *out = first;
            continue;
        }
        second = upsampled_four(&image->plane[1], (const u8 *)(a.scratch + image->samples[1]), x, y, count);
        third = upsampled_four(&image->plane[2], (const u8 *)(a.scratch + image->samples[2]), x, y, count);
        if (image->colour == YCBCR) {
            u32 red = 0, green = 0, blue = 0, i;
            UNROLL
            for (i = 0; i < 4; ++i) {
                /* 1.402, 0.34414, 0.71414 and 1.772 times 2^16, rounded. */
                const i32 luma = (i32)(first >> (8 * i) & 255u);
                const i32 cb = (i32)(second >> (8 * i) & 255u) - 128, cr = (i32)(third >> (8 * i) & 255u) - 128;
                red |= (u32)clamp_i32(luma + ((91881 * cr + 32768) >> 16), 0, 255) << (8 * i);
                green |= (u32)clamp_i32(luma + ((-22554 * cb - 46802 * cr + 32768) >> 16), 0, 255) << (8 * i);
                blue |= (u32)clamp_i32(luma + ((116130 * cb + 32768) >> 16), 0, 255) << (8 * i);
            }
            first = red;
            second = green;
            third = blue;
        }
        *out = first;
        *(u32 *)((u8 *)out + plane) = second;
        *(u32 *)((u8 *)out + 2 * plane) = third;
    }
}
