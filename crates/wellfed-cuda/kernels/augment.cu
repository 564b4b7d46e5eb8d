/* A batch of images, each with parameters of its own: crop, resize, flips, colours, and the finished elements.
 *
 * A block makes tiles of TILE x TILE pixels of one pass over one image, all channels; a thread makes four neighbours of
 * a row. Arithmetic is that of the crate wellfed-kernels, step by step, so that the pixels are the same bits: Pillow's
 * two passes in 22-bit fixed point, and the changes of values of values.h.
 */
#include "values.h"

#define AUGMENT_TILE 32
/* Rows of a tile where pixels are only copied. */
#define AUGMENT_COPY_TILE 128
/* Source rows (or columns) between the two passes of a resize that are kept at once; a multiple of 4. */
#define AUGMENT_CHUNK 96
/* Fours of neighbours in a tile: as many as threads. */
#define AUGMENT_FOURS (AUGMENT_TILE * AUGMENT_TILE / 4)
#define AUGMENT_THREADS 256
/* Tiles of a block, one below the other: they share weights of columns and tables. */
#define AUGMENT_STACK 4
/* The most weights of a sample that are kept in shared memory. */
#define AUGMENT_TAPS 6
#define AUGMENT_HALF (1 << 21)
#define AUGMENT_BITS 22

#ifdef __CUDACC__
#define AUGMENT_ADD(at, value) atomicAdd((at), (value))
#define AUGMENT_ALIGN __align__(16)
/* Four blocks share a multiprocessor: no more than 64 registers a thread. Five (48 registers) are 2 to 5 % faster where no
 * values change, and a little slower where they do. */
#define AUGMENT_BOUNDS AUGMENT_THREADS, 4
#define AUGMENT_PLAIN_BOUNDS AUGMENT_THREADS, 5
/* Threads that are neighbours in memory, and rows of them. */
#define AUGMENT_LANE (THREAD & 31u)
#define AUGMENT_LANES 32u
#define AUGMENT_LINE (THREAD >> 5)
#define AUGMENT_LINES (AUGMENT_THREADS / 32u)
#else
#define AUGMENT_ADD(at, value) (*(at) += (value))
#define AUGMENT_ALIGN _Alignas(16)
#define AUGMENT_BOUNDS AUGMENT_THREADS
#define AUGMENT_PLAIN_BOUNDS AUGMENT_THREADS
#define AUGMENT_LANE 0u
#define AUGMENT_LANES 1u
#define AUGMENT_LINE 0u
#define AUGMENT_LINES 1u
#endif

DEVICE double augment_weight(u32 filter, double x)
{
    if (filter == FILTER_BOX)
        return x > -0.5 && x <= 0.5 ? 1.0 : 0.0;
    x = x < 0.0 ? -x : x;
    if (filter == FILTER_BILINEAR)
        return x < 1.0 ? 1.0 - x : 0.0;
    if (x < 1.0)
        return ((-0.5 + 2.0) * x - (-0.5 + 3.0)) * x * x + 1.0;
    if (x < 2.0)
        return (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5;
    return 0.0;
}

/* Makes the weights of the axes of `jobs`, one a BLOCK_Y, as Pillow's precompute_coeffs does. */
KERNEL(augment_axes, AugmentArgs, 128)
{
    const AugmentAxis *job = (const AugmentAxis *)a.jobs + BLOCK_Y;
    i32 *table = (i32 *)a.axes + job->table;
    const i32 count = job->count;
    const double scale = (double)(float)job->input / (double)job->output;
    const double stretch = scale > 1.0 ? scale : 1.0;
    const double support =
        (job->filter == FILTER_BOX ? 0.5 : job->filter == FILTER_BILINEAR ? 1.0 : 2.0) * stretch;
    const double inverse = 1.0 / stretch;
    i32 i;
    if (BLOCK_X == 0 && THREAD == 0)
        table[0] = count;
    for (i = (i32)(BLOCK_X * 128 + THREAD); i < (i32)(BLOCK_X + 1) * 128 && i < count; i += THREADS) {
        const double center = 0.0 + ((double)(job->first + i) + 0.5) * scale;
        i64 first = (i64)(center - support + 0.5);
        i64 last = (i64)(center + support + 0.5);
        double sum = 0.0;
        i32 taps, t;
        first = first < 0 ? 0 : first;
        last = last > job->input ? job->input : last;
        taps = (i32)(last - first < 0 ? 0 : last - first);
        taps = taps > (i32)job->taps ? (i32)job->taps : taps;
        table[1 + i] = (i32)first;
        table[1 + count + i] = taps;
        for (t = 0; t < taps; ++t)
            sum += augment_weight(job->filter, ((double)(t + first) - center + 0.5) * inverse);
        for (t = 0; t < taps; ++t) {
            double weight = augment_weight(job->filter, ((double)(t + first) - center + 0.5) * inverse);
            double scaled;
            if (sum != 0.0)
                weight /= sum;
            scaled = weight * (double)(1 << AUGMENT_BITS);
            table[1 + (2 + t) * count + i] = (i32)(weight < 0.0 ? scaled - 0.5 : scaled + 0.5);
        }
    }
}

/* One side of a resize, from the first sample that a tile makes. */
typedef struct {
    const i32 *starts; /* `step` of them, then as many lens, and as many weights of each tap */
    i32 step;          /* 0 copies the side */
    i32 first;
} AugmentSide;

DEVICE AugmentSide augment_side(const i32 *axes, u32 table, i32 first)
{
    AugmentSide side;
    side.starts = axes + table + 1 + first;
    side.step = table ? axes[table] : 0;
    side.first = first;
    return side;
}

DEVICE i32 augment_start(AugmentSide side, i32 i)
{
    return side.step ? side.starts[i] : side.first + i;
}

DEVICE i32 augment_len(AugmentSide side, i32 i)
{
    return side.step ? side.starts[side.step + i] : 1;
}

DEVICE u32 augment_tap(AugmentSide side, i32 i, i32 tap)
{
    return side.step ? (u32)side.starts[(2 + tap) * side.step + i] : 1u << AUGMENT_BITS;
}

DEVICE u8 augment_clip(u32 sum)
{
    return (u8)clamp_i32((i32)sum >> AUGMENT_BITS, 0, 255);
}

/* The place in a side of `len` samples that position `at` of the padded side shows; -1 for the constant. */
DEVICE i32 augment_padded(i32 at, i32 len, u32 mode)
{
    i32 period;
    if (at >= 0 && at < len)
        return at;
    if (mode == PAD_CONSTANT)
        return -1;
    if (mode == PAD_EDGE)
        return at < 0 ? 0 : len - 1;
    period = mode == PAD_REFLECT ? 2 * (len > 1 ? len - 1 : 1) : 2 * len;
    at %= period;
    at = at < 0 ? at + period : at;
    if (at < len)
        return at;
    at = mode == PAD_REFLECT ? period - at : period - 1 - at;
    return at < len - 1 ? at : len - 1;
}

/* The finished elements of each value, from the arguments into shared memory. */
DEVICE void augment_table(u32 *table, const AugmentArgs *a)
{
    u32 i;
    for (i = THREAD; i < 3 * 256 / 4; i += THREADS)
        copy16(table + i * 4, (const u32 *)a->table + i * 4);
}

/* Bytes of the same four neighbours in each channel. */
typedef struct {
    u32 words[3];
} AugmentFour;

/* Reads `count` neighbours from (y, x) of a window, some of which are padded or do not lie together. */
DEVICE_APART AugmentFour augment_read_some(const AugmentPass *pass, const u8 *source, i32 y, i32 x, i32 count)
{
    AugmentFour four = {{0, 0, 0}};
    const u32 mode = pass->flags >> PAD_SHIFT & 3u;
    const i32 from_y = augment_padded(pass->top + y, pass->height, mode);
    u32 c;
    i32 k;
    for (k = 0; k < count; ++k) {
        const i32 from_x = augment_padded(pass->left + x + k, pass->width, mode);
        const u8 *from = source + from_y * pass->source_row + from_x * pass->source_pixel;
        UNROLL
        for (c = 0; c < 3; ++c)
            if (c < pass->channels)
                four.words[c] |= (from_y >= 0 && from_x >= 0 ? load_byte(from + c * pass->source_plane)
                                                             : pass->fill >> (8 * c) & 255u)
                                 << (8 * k);
    }
    return four;
}

/* Reads `count` neighbours from (y, x) of a window that lies in the source, or in what is padded. */
DEVICE AugmentFour augment_read(const AugmentPass *pass, const u8 *source, i32 y, i32 x, i32 count)
{
    AugmentFour four = {{0, 0, 0}};
    const u32 channels = pass->channels;
    /* Whether four pixels are twelve bytes. */
    const i32 together = channels == 3 && pass->source_plane == 1 && pass->source_pixel == 3;
    const i32 from_x = pass->left + x, from_y = pass->top + y;
    const u8 *from = source + from_y * pass->source_row + from_x * pass->source_pixel;
    if (count < 4 || !(together || pass->source_pixel == 1) || from_y < 0 || from_y >= pass->height || from_x < 0 ||
        from_x + 4 > pass->width)
        return augment_read_some(pass, source, y, x, count);
    if (together) {
        const u32 first = load_four(from), second = load_four(from + 4), third = load_four(from + 8);
        four.words[0] = (first & 255u) | (first >> 24) << 8 | (second & 0xFF0000u) | (third & 0xFF00u) << 16;
        four.words[1] = (first >> 8 & 255u) | (second & 255u) << 8 | (second >> 24) << 16 | (third & 0xFF0000u) << 8;
        four.words[2] = (first >> 16 & 255u) | (second & 0xFF00u) | (third & 255u) << 16 | (third & 0xFF000000u);
    } else {
        four.words[0] = load_four(from);
        if (channels == 3) {
            four.words[1] = load_four(from + pass->source_plane);
            four.words[2] = load_four(from + 2 * pass->source_plane);
        }
    }
    return four;
}

/* Writes `count` neighbours from (y, x) of the result before flips: bytes as they are, or elements of the table, with
 * the rectangles of a pass that is not `plain`. */
DEVICE void augment_write(const AugmentArgs *a, const AugmentPass *pass, const u32 *table, u32 channels, i32 y, i32 x,
                          i32 count, AugmentFour four, const i32 plain)
{
    const u32 flags = pass->flags;
    const i32 finish = (flags & FINISH) != 0, planar = pass->target_pixel == 1;
    const u32 element = finish ? a->element : 1;
    const i32 out_y = flags & FLIP_V ? pass->out_height - 1 - y : y;
    const i32 out_x = flags & FLIP_H ? pass->out_width - x - count : x;
    /* Rows fit 32 bits. */
    u8 *to = (u8 *)(flags & TO_SCRATCH ? a->scratch + pass->target : pass->target) +
             ((i64)out_y * (i32)pass->target_row + (i64)out_x * (i32)pass->target_pixel) * element;
    /* From four elements to the next, of another channel or of whole pixels. */
    const i64 apart = planar ? pass->target_plane * element : (i64)(4 * element);
    const u32 fours = planar ? channels : 3, whole = 4 * element - 1;
    u32 c, k, bits[3][4];
    if (flags & FLIP_H)
        UNROLL
        for (c = 0; c < 3; ++c)
            four.words[c] = swapped(four.words[c]) >> (32 - 8 * count);
    if (!planar) {
        const u32 r = four.words[0], g = four.words[1], b = four.words[2];
        four.words[0] = (r & 255u) | (g & 255u) << 8 | (b & 255u) << 16 | (r >> 8 & 255u) << 24;
        four.words[1] = (g >> 8 & 255u) | (b & 0xFF00u) | (r & 0xFF0000u) | (g >> 16 & 255u) << 24;
        four.words[2] = (b >> 16 & 255u) | (r >> 24) << 8 | (g >> 24) << 16 | (b & 0xFF000000u);
    }
    UNROLL
    for (c = 0; c < 3; ++c)
        UNROLL
        for (k = 0; k < 4; ++k)
            bits[c][k] = byte_of(four.words[c], k);
    if (finish) {
        if (planar)
            UNROLL
            for (c = 0; c < 3; ++c)
                UNROLL
                for (k = 0; k < 4; ++k)
                    bits[c][k] = (table + c * 256)[bits[c][k]];
        else
            UNROLL
            for (c = 0; c < 3; ++c)
                UNROLL
                for (k = 0; k < 4; ++k)
                    bits[c][k] = (table + (c * 4 + k) % 3 * 256)[bits[c][k]];
        if (!plain && pass->patches)
            UNROLL
            for (c = 0; c < 3; ++c)
                UNROLL
                for (k = 0; k < 4; ++k)
                    bits[c][k] = value_patched(a->patches, a->bytes, element, pass,
                                               planar ? c : (c * 4 + k) % 3, out_y,
                                               out_x + (i32)(planar ? k : (c * 4 + k) / 3), bits[c][k]);
    }
    if (count == 4 && ((u32)(u64)to & whole) == 0 && ((u32)apart & whole) == 0) {
        UNROLL
        for (c = 0; c < 3; ++c)
            if (c < fours)
                store_four(to + c * apart, element, bits[c]);
    } else {
        UNROLL
        for (c = 0; c < 3; ++c) {
            const i32 some = planar ? count : count * 3 - (i32)c * 4;
            if (c < fours && some > 0)
                store_few(to + c * apart, element, bits[c][0], bits[c][1], bits[c][2], bits[c][3], some);
        }
    }
}

/* What the samples of one side of a tile are made of, in shared memory: as many weights for each of them. */
typedef struct {
    i32 starts[AUGMENT_TILE];
    u32 weights[AUGMENT_TAPS][AUGMENT_TILE];
    u32 taps; /* more than AUGMENT_TAPS: they are not here */
    u32 padding[3];
} AugmentNear;

/* Up to three weights have two more bits, as they are not negative: the byte that they make is a sum's highest one. */
#define AUGMENT_POSITIVE(taps) ((taps) < 4)

DEVICE u32 augment_half(const u32 taps)
{
    return AUGMENT_POSITIVE(taps) ? (u32)AUGMENT_HALF << 2 : (u32)AUGMENT_HALF;
}

DEVICE u32 augment_byte(u32 sum, const u32 taps)
{
    return AUGMENT_POSITIVE(taps) ? sum >> 24 : augment_clip(sum);
}

/* The bytes that four sums make. */
DEVICE u32 augment_bytes(const u32 *sums, const u32 taps)
{
    if (AUGMENT_POSITIVE(taps))
        return top_bytes(sums[0], sums[1], sums[2], sums[3]);
    return augment_clip(sums[0]) | (u32)augment_clip(sums[1]) << 8 | (u32)augment_clip(sums[2]) << 16 |
           (u32)augment_clip(sums[3]) << 24;
}

/* The most weights that one of the side's first `count` samples has, if that is at most 6, else more than that. */
DEVICE u32 augment_most(AugmentSide side, i32 count)
{
    u32 most = 1;
#ifdef __CUDACC__
    const i32 lane = (i32)AUGMENT_LANE;
    const i32 len = lane < count ? augment_len(side, lane) : 0;
    u32 t;
    UNROLL
    for (t = 1; t <= AUGMENT_TAPS; ++t)
        most += __any_sync(~0u, len > (i32)t) ? 1 : 0;
#else
    i32 i;
    for (i = 0; i < count; ++i)
        if ((u32)augment_len(side, i) > most)
            most = (u32)augment_len(side, i);
#endif
    return most;
}

/* Puts `count` samples of a side there, of a source of `limit` samples. A warp does it, on the device. Where a sample
 * has fewer weights than others it begins earlier or has zeros behind, so that all are made by loops of one of a few
 * lengths. */
DEVICE void augment_near(AugmentNear *near, AugmentSide side, i32 count, i32 limit, u32 flags)
{
    u32 taps = augment_most(side, count), t;
    i32 i;
    /* Those that can be negative are made as four. A column first is rare: two lengths do for it. */
    if (flags & SIGNED)
        taps = taps < 4 ? 4 : taps;
    taps = taps < 2 ? 2 : taps == 5 ? 6 : taps;
    if (flags & DOWN_FIRST)
        taps = taps < 3 ? 3 : taps == 4 ? 6 : taps;
    if ((i32)taps > limit)
        taps = AUGMENT_TAPS + 1;
    if (AUGMENT_LANE == 0)
        near->taps = taps;
    if (taps > AUGMENT_TAPS)
        return;
    for (i = (i32)AUGMENT_LANE; i < count; i += (i32)AUGMENT_LANES) {
        const i32 start = augment_start(side, i), len = augment_len(side, i);
        const i32 late = start + (i32)taps > limit ? start + (i32)taps - limit : 0;
        near->starts[i] = start - late;
        for (t = 0; t < taps; ++t) {
            const i32 tap = (i32)t - late;
            const u32 weight = tap >= 0 && tap < len ? augment_tap(side, i, tap) : 0;
            near->weights[t][i] = AUGMENT_POSITIVE(taps) ? weight << 2 : weight;
        }
    }
}

/* What both passes of a resize of a tile need. */
typedef struct {
    const u8 *source;
    /* Bytes from one channel to the next, from one sample of the first side to the next, and of the second side. */
    i64 plane, step, along;
    u8 *between;
    u32 channels;
    i32 rows, columns; /* that are made */
    i32 down_first;
} AugmentTile;

/* The first pass, over `count` rows, whose samples are `step` bytes apart. `taps` and `step` are constants. Of one
 * channel it makes three that are the same, as `plane` is 0 then. */
DEVICE void augment_first(const AugmentTile *tile, const AugmentNear *near, i32 begin, i32 count, const u32 taps,
                          const i32 step)
{
    const i32 along = (i32)tile->along, plane = (i32)tile->plane;
    u32 m, c, t;
    i32 line;
    for (m = AUGMENT_LANE; (i32)m < tile->columns; m += AUGMENT_LANES) {
        const u8 *from =
            tile->source + (i64)(begin + (i32)AUGMENT_LINE) * along + (i64)near->starts[m] * step;
        u8 *to = tile->between + AUGMENT_LINE * AUGMENT_TILE + m;
        u32 weights[AUGMENT_TAPS];
        UNROLL
        for (t = 0; t < taps; ++t)
            weights[t] = near->weights[t][m];
        UNROLL_BY(2)
        for (line = (i32)AUGMENT_LINE; line < count; line += (i32)AUGMENT_LINES) {
            u32 sums[3];
            UNROLL
            for (c = 0; c < 3; ++c) {
                const u8 *of = from + (i64)(i32)c * plane;
                sums[c] = augment_half(taps);
                UNROLL
                for (t = 0; t < taps; ++t)
                    sums[c] += load_byte(of + (i32)t * step) * weights[t];
            }
            UNROLL
            for (c = 0; c < 3; ++c)
                to[c * AUGMENT_CHUNK * AUGMENT_TILE] = (u8)augment_byte(sums[c], taps);
            from += (i64)(i32)AUGMENT_LINES * along;
            to += AUGMENT_LINES * AUGMENT_TILE;
        }
    }
}

/* The first pass, down `count` columns. `taps` is a constant. */
DEVICE void augment_first_down(const AugmentTile *tile, const AugmentNear *near, i32 begin, i32 count, const u32 taps)
{
    const i32 along = (i32)tile->along, step = (i32)tile->step;
    u32 m, c, t;
    i32 x;
    for (m = AUGMENT_LINE; (i32)m < tile->rows; m += AUGMENT_LINES) {
        const u8 *line = tile->source + (i64)begin * along + (i64)near->starts[m] * step;
        for (x = (i32)AUGMENT_LANE; x < count; x += (i32)AUGMENT_LANES) {
            const u8 *from = line + (i64)x * along;
            for (c = 0; c < 3; ++c, from += tile->plane) {
                u32 sum = augment_half(taps);
                UNROLL
                for (t = 0; t < taps; ++t)
                    sum += load_byte(from + (i64)(i32)t * step) * near->weights[t][m];
                tile->between[(c * AUGMENT_TILE + m) * AUGMENT_CHUNK + (u32)x] = (u8)augment_byte(sum, taps);
            }
        }
    }
}

/* The second pass of four neighbours from (y, x) of the tile, down columns. `taps` is a constant. */
DEVICE AugmentFour augment_second(const AugmentTile *tile, const AugmentNear *near, i32 begin, u32 y, u32 x,
                                  const u32 taps)
{
    const u32 *from = (const u32 *)(tile->between + (near->starts[y] - begin) * AUGMENT_TILE + x);
    AugmentFour made;
    u32 c, k, t;
    UNROLL
    for (c = 0; c < 3; ++c) {
        u32 sums[4];
        UNROLL
        for (k = 0; k < 4; ++k)
            sums[k] = augment_half(taps);
        UNROLL
        for (t = 0; t < taps; ++t) {
            const u32 four = from[(c * AUGMENT_CHUNK + t) * (AUGMENT_TILE / 4)], weight = near->weights[t][y];
            UNROLL
            for (k = 0; k < 4; ++k)
                sums[k] += byte_of(four, k) * weight;
        }
        made.words[c] = augment_bytes(sums, taps);
    }
    return made;
}

/* The same over rows. */
DEVICE AugmentFour augment_second_over(const AugmentTile *tile, const AugmentNear *near, i32 begin, u32 y, u32 x,
                                       const u32 taps)
{
    u32 sums[3][4], c, k, t;
    AugmentFour made;
    UNROLL
    for (k = 0; k < 4; ++k) {
        /* Those past the last column are the last one, and never looked at. */
        const u32 m = (i32)(x + k) < tile->columns ? x + k : (u32)tile->columns - 1;
        const u8 *from = tile->between + y * AUGMENT_CHUNK + (near->starts[m] - begin);
        UNROLL
        for (c = 0; c < 3; ++c) {
            sums[c][k] = augment_half(taps);
            UNROLL
            for (t = 0; t < taps; ++t)
                sums[c][k] += from[c * AUGMENT_TILE * AUGMENT_CHUNK + t] * near->weights[t][m];
        }
    }
    UNROLL
    for (c = 0; c < 3; ++c)
        made.words[c] = augment_bytes(sums[c], taps);
    return made;
}

/* Both passes of samples of any length, in chunks of the second side, with weights and source where they are. Sums
 * between chunks are in `sums`, and at last the bytes that are made, one in a word. */
DEVICE void augment_far(const AugmentTile *tile, AugmentSide one, AugmentSide second, u32 *sums)
{
    const i32 rows = tile->rows, columns = tile->columns;
    const i32 ones = tile->down_first ? rows : columns, seconds = tile->down_first ? columns : rows;
    const i32 begin = augment_start(second, 0);
    const i32 end = augment_start(second, seconds - 1) + augment_len(second, seconds - 1);
    i32 chunk;
    u32 i, c, k;
    for (chunk = begin; chunk < end; chunk += AUGMENT_CHUNK) {
        const i32 next = chunk + AUGMENT_CHUNK < end ? chunk + AUGMENT_CHUNK : end;
        const u32 fours = (u32)(next - chunk + 3) / 4;
        for (i = THREAD; i < tile->channels * fours * AUGMENT_TILE; i += THREADS) {
            const u32 m = i % AUGMENT_TILE, line = i / AUGMENT_TILE, four = line % fours;
            const i32 left = next - chunk - 1 - (i32)four * 4;
            const u8 *from;
            u8 *to;
            u32 some[4] = {AUGMENT_HALF, AUGMENT_HALF, AUGMENT_HALF, AUGMENT_HALF};
            i32 len, t;
            c = line / fours;
            to = tile->between + c * AUGMENT_CHUNK * AUGMENT_TILE +
                 (tile->down_first ? m * AUGMENT_CHUNK + four * 4 : four * 4 * AUGMENT_TILE + m);
            if ((i32)m >= ones)
                continue;
            len = augment_len(one, (i32)m);
            from = tile->source + (i64)c * tile->plane + (chunk + (i32)four * 4) * tile->along +
                   augment_start(one, (i32)m) * tile->step;
            for (t = 0; t < len; ++t, from += tile->step) {
                const u32 weight = augment_tap(one, (i32)m, t);
                UNROLL
                for (k = 0; k < 4; ++k)
                    some[k] += load_byte(from + (i64)((i32)k < left ? (i32)k : left) * tile->along) * weight;
            }
            UNROLL
            for (k = 0; k < 4; ++k)
                to[tile->down_first ? k : k * AUGMENT_TILE] = augment_clip(some[k]);
        }
        SYNC();
        for (i = THREAD; i < tile->channels * AUGMENT_TILE * AUGMENT_TILE; i += THREADS) {
            const u32 x = i % AUGMENT_TILE, y = i / AUGMENT_TILE % AUGMENT_TILE, m = tile->down_first ? x : y;
            const u8 *from = tile->between;
            u32 *to;
            i32 start, first, last, t;
            u32 sum;
            if ((i32)x >= columns || (i32)y >= rows)
                continue;
            c = i / (AUGMENT_TILE * AUGMENT_TILE);
            from += c * AUGMENT_CHUNK * AUGMENT_TILE + (tile->down_first ? y * AUGMENT_CHUNK : x);
            to = sums + i;
            start = augment_start(second, (i32)m);
            first = start > chunk ? start : chunk;
            last = start + augment_len(second, (i32)m);
            last = last < next ? last : next;
            sum = chunk == begin ? AUGMENT_HALF : *to;
            for (t = first; t < last; ++t)
                sum += from[(t - chunk) * (tile->down_first ? 1 : AUGMENT_TILE)] *
                       augment_tap(second, (i32)m, t - start);
            *to = next == end ? augment_clip(sum) : sum;
        }
        SYNC();
    }
}

/* Four neighbours from (y, x) of what augment_far made. */
DEVICE AugmentFour augment_far_four(const u32 *sums, u32 y, u32 x)
{
    AugmentFour made;
    u32 c;
    UNROLL
    for (c = 0; c < 3; ++c) {
        const u32 *words = sums + (c * AUGMENT_TILE + y) * AUGMENT_TILE + x;
        made.words[c] = (words[0] & 255u) | (words[1] & 255u) << 8 | (words[2] & 255u) << 16 | words[3] << 24;
    }
    return made;
}

/* The tiles at BLOCK_X and BLOCK_Y of pass BLOCK_Z. A `plain` pass changes no values, overwrites nothing and counts
 * nothing. */
DEVICE void augment_tiles(const AugmentArgs a, const i32 plain)
{
    /* Rows (or columns) between the passes of a resize, all channels; then sums of lumas. */
    SHARED AUGMENT_ALIGN u32 between[3 * AUGMENT_TILE * AUGMENT_CHUNK / 4];
    SHARED AUGMENT_ALIGN u32 sums[3 * AUGMENT_TILE * AUGMENT_TILE];
    SHARED AUGMENT_ALIGN u32 table[3 * 256];
    /* Of columns, and of the rows of each tile. */
    SHARED AUGMENT_ALIGN AugmentNear near[1 + AUGMENT_STACK];
    SHARED u8 tables[3 * 256];
    /* Two counts in each word: a block has no more than 4,096 pixels. */
    SHARED u32 histogram[3 * 128];
    SHARED u32 mean;
    const AugmentPass *const pass = (const AugmentPass *)a.passes + BLOCK_Z;
    const i32 out_height = pass->out_height, out_width = pass->out_width;
    const i32 left = (i32)BLOCK_X * AUGMENT_TILE;
    const i32 columns = out_width - left < AUGMENT_TILE ? out_width - left : AUGMENT_TILE;
    const u32 flags = pass->flags, channels = pass->channels;
    const i32 down_first = (flags & DOWN_FIRST) != 0, resized = pass->vertical || pass->horizontal;
    const u8 *source = (const u8 *)(flags & FROM_SCRATCH ? a.scratch + pass->source : pass->source);
    const AugmentOp *first_op = (const AugmentOp *)a.ops + pass->first_op;
    i32 top = (i32)(BLOCK_Y * AUGMENT_STACK) * AUGMENT_TILE, stacked;
    u32 seen = 0, i, c, k;
    i32 near_enough = 0;
    AugmentTile tile;
    if (top >= out_height || columns <= 0)
        return;
    if (flags & FINISH)
        augment_table(table, &a);
    /* What looks at all pixels comes first among the changes of values: an earlier pass has counted for it. */
    if (!plain && pass->ops && first_op->statistic) {
        if (first_op->kind == OP_CONTRAST) {
            if (THREAD == 0) {
                const double sum = (double)((const u64 *)a.lumas)[first_op->statistic - 1];
                const double count = (double)(first_op->count ? first_op->count : 1);
                mean = (u32)(sum / count + 0.5);
            }
        } else {
            const u32 *counted = (const u32 *)a.histograms + (first_op->statistic - 1) * 768;
            for (c = THREAD; c < channels; c += THREADS)
                value_table(first_op->kind, counted + c * 256, tables + c * 256);
        }
    }
    if (!plain && pass->histogram)
        for (i = THREAD; i < 3 * 128; i += THREADS)
            histogram[i] = 0;
    tile.source = source;
    tile.plane = channels == 3 ? pass->source_plane : 0;
    tile.step = down_first ? pass->source_row : pass->source_pixel;
    tile.along = down_first ? pass->source_pixel : pass->source_row;
    tile.between = (u8 *)between;
    tile.channels = channels;
    tile.columns = columns;
    tile.rows = 0;
    tile.down_first = down_first;
    if (resized) {
        /* A side that is copied begins with the window. */
        const i32 height = pass->vertical ? pass->height : out_height;
        const i32 width = pass->horizontal ? pass->width : out_width;
        near_enough = tile.step == (i32)tile.step && tile.along == (i32)tile.along && tile.plane == (i32)tile.plane &&
                      (down_first || tile.step == 1 || tile.step == 3);
        for (i = AUGMENT_LINE; i < 1 + AUGMENT_STACK; i += AUGMENT_LINES) {
            const i32 at = i == 0 ? left : top + ((i32)i - 1) * AUGMENT_TILE;
            const i32 count = i == 0 ? columns : out_height - at < AUGMENT_TILE ? out_height - at : AUGMENT_TILE;
            const u32 side = i == 0 ? pass->horizontal : pass->vertical;
            if (count > 0)
                augment_near(&near[i], augment_side((const i32 *)a.axes, side, at), count, i == 0 ? width : height,
                             flags);
        }
    }
    SYNC();

    for (stacked = 0; stacked < AUGMENT_STACK && top < out_height; ++stacked, top += AUGMENT_TILE) {
        const i32 rows = out_height - top < AUGMENT_TILE ? out_height - top : AUGMENT_TILE;
        const AugmentNear *const one = &near[down_first ? 1 + stacked : 0];
        const AugmentNear *const second = &near[down_first ? 0 : 1 + stacked];
        const u32 first_taps = resized ? one->taps : 0;
        u32 taps = resized ? second->taps : 0;
        i32 begin = 0;
        if (resized) {
            i32 count;
            tile.rows = rows;
            begin = second->starts[0];
            count = second->starts[(down_first ? columns : rows) - 1] + (i32)taps - begin;
            /* Sums of any length are made from what lies in memory. */
            if (!near_enough || first_taps > AUGMENT_TAPS || taps > AUGMENT_TAPS || count > AUGMENT_CHUNK)
                taps = 0;
            if (taps == 0) {
                const AugmentSide over = augment_side((const i32 *)a.axes, pass->horizontal, left);
                const AugmentSide down = augment_side((const i32 *)a.axes, pass->vertical, top);
                augment_far(&tile, down_first ? down : over, down_first ? over : down, sums);
            } else if (down_first) {
                if (first_taps == 3)
                    augment_first_down(&tile, one, begin, count, 3);
                else
                    augment_first_down(&tile, one, begin, count, 6);
            } else if (tile.step == 1) {
                switch (first_taps) {
                case 2: augment_first(&tile, one, begin, count, 2, 1); break;
                case 3: augment_first(&tile, one, begin, count, 3, 1); break;
                case 4: augment_first(&tile, one, begin, count, 4, 1); break;
                default: augment_first(&tile, one, begin, count, 6, 1);
                }
            } else {
                switch (first_taps) {
                case 2: augment_first(&tile, one, begin, count, 2, 3); break;
                case 3: augment_first(&tile, one, begin, count, 3, 3); break;
                case 4: augment_first(&tile, one, begin, count, 4, 3); break;
                default: augment_first(&tile, one, begin, count, 6, 3);
                }
            }
            SYNC();
        }
        for (i = THREAD; i < AUGMENT_FOURS; i += THREADS) {
            const u32 x = i % (AUGMENT_TILE / 4) * 4, y = i / (AUGMENT_TILE / 4);
            const i32 count = columns - (i32)x < 4 ? columns - (i32)x : 4;
            u32 now = channels;
            AugmentFour four;
            if ((i32)y >= rows || count <= 0)
                continue;
            if (!resized)
                four = augment_read(pass, source, top + (i32)y, left + (i32)x, count);
            else if (taps == 0)
                four = augment_far_four(sums, y, x);
            else if (down_first)
                four = taps == 3 ? augment_second_over(&tile, second, begin, y, x, 3)
                                 : augment_second_over(&tile, second, begin, y, x, 6);
            else if (taps == 2)
                four = augment_second(&tile, second, begin, y, x, 2);
            else if (taps == 3)
                four = augment_second(&tile, second, begin, y, x, 3);
            else if (taps == 4)
                four = augment_second(&tile, second, begin, y, x, 4);
            else
                four = augment_second(&tile, second, begin, y, x, 6);
            if (!plain && (pass->ops || pass->luma || pass->histogram)) {
                Values values;
                UNROLL
                for (k = 0; k < 4; ++k)
                    UNROLL
                    for (c = 0; c < 3; ++c)
                        values.p[k][c] = byte_of(four.words[c], k);
                now = value_ops(&a, pass, channels,
                                flags & FLIP_V ? out_height - 1 - top - (i32)y : top + (i32)y,
                                flags & FLIP_H ? out_width - 1 - left - (i32)x : left + (i32)x, flags & FLIP_H ? -1 : 1,
                                mean, tables, &values);
                UNROLL
                for (k = 0; k < 4; ++k) {
                    if ((i32)k >= count)
                        continue;
                    seen += now == 3 ? value_luma(values.p[k]) : values.p[k][0];
                    if (pass->histogram)
                        UNROLL
                        for (c = 0; c < 3; ++c)
                            if (c < now)
                                AUGMENT_ADD(&histogram[c * 128 + values.p[k][c] / 2], 1u << values.p[k][c] % 2 * 16);
                }
                UNROLL
                for (c = 0; c < 3; ++c)
                    four.words[c] =
                        values.p[0][c] | values.p[1][c] << 8 | values.p[2][c] << 16 | values.p[3][c] << 24;
            }
            augment_write(&a, pass, table, now, top + (i32)y, left + (i32)x, count, four, plain);
        }
        /* The next tile overwrites what this one has read. */
        if (resized)
            SYNC();
    }
    if (!plain && pass->luma) {
        between[THREAD] = seen;
        SYNC();
        for (i = THREADS / 2; i > 0; i /= 2) {
            if (THREAD < i)
                between[THREAD] += between[THREAD + i];
            SYNC();
        }
        if (THREAD == 0)
            AUGMENT_ADD((u64 *)a.lumas + (pass->luma - 1), (u64)between[0]);
    }
    if (!plain && pass->histogram) {
        SYNC();
        for (i = THREAD; i < 3 * 256; i += THREADS) {
            const u32 counted = histogram[i / 2] >> i % 2 * 16 & 0xFFFFu;
            if (counted)
                AUGMENT_ADD((u32 *)a.histograms + (pass->histogram - 1) * 768 + i, counted);
        }
    }
}

/* Passes of all kinds. */
KERNEL(augment, AugmentArgs, AUGMENT_BOUNDS)
{
    augment_tiles(a, 0);
}

/* Passes that change no values, overwrite nothing and count nothing: with fewer registers. */
KERNEL(augment_plain, AugmentArgs, AUGMENT_PLAIN_BOUNDS)
{
    augment_tiles(a, 1);
}

/* Passes that take pixels as they are, from where the window lies or from what is padded. */
KERNEL(augment_copy, AugmentArgs, AUGMENT_THREADS)
{
    SHARED AUGMENT_ALIGN u32 table[3 * 256];
    const AugmentPass *const pass = (const AugmentPass *)a.passes + BLOCK_Z;
    const i32 left = (i32)BLOCK_X * AUGMENT_TILE, top = (i32)BLOCK_Y * AUGMENT_COPY_TILE;
    const u8 *source = (const u8 *)(pass->flags & FROM_SCRATCH ? a.scratch + pass->source : pass->source);
    u32 i;
    if (top >= pass->out_height || left >= pass->out_width)
        return;
    if (pass->flags & FINISH)
        augment_table(table, &a);
    SYNC();
    for (i = THREAD; i < AUGMENT_COPY_TILE * AUGMENT_TILE / 4; i += THREADS) {
        const i32 x = left + (i32)(i % (AUGMENT_TILE / 4) * 4), y = top + (i32)(i / (AUGMENT_TILE / 4));
        const i32 count = pass->out_width - x < 4 ? pass->out_width - x : 4;
        if (y < pass->out_height && count > 0)
            augment_write(&a, pass, table, pass->channels, y, x, count, augment_read(pass, source, y, x, count), 1);
    }
}
