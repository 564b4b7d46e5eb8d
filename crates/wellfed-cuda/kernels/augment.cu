/* A batch of images, each with parameters of its own: crop, resize, flips, colours, and the finished elements.
 *
 * A block makes a tile of TILE x TILE pixels of one pass over one image, all channels. Arithmetic is that of the crate
 * wellfed-kernels, step by step, so that the pixels are the same bits: Pillow's two passes in 22-bit fixed point,
 * float32 blends that are truncated, and the mix of float32 and double of its HSV.
 */
#include "augment.h"

#define AUGMENT_TILE 32
/* Rows of a tile where pixels are only copied. */
#define AUGMENT_COPY_TILE 128
/* Source rows (or columns) between the two passes of a resize that are kept at once; a multiple of 4. */
#define AUGMENT_CHUNK 96
#define AUGMENT_THREADS 256
#define AUGMENT_HALF (1 << 21)
#define AUGMENT_BITS 22

#ifdef __CUDACC__
#define AUGMENT_ADD(at, value) atomicAdd((at), (value))
#define AUGMENT_ALIGN __align__(16)
/* Four blocks share a multiprocessor: no more than 64 registers a thread. */
#define AUGMENT_BOUNDS AUGMENT_THREADS, 4
#else
#define AUGMENT_ADD(at, value) (*(at) += (value))
#define AUGMENT_ALIGN _Alignas(16)
#define AUGMENT_BOUNDS AUGMENT_THREADS
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
    const i32 *starts, *lens, *weights;
    i32 step; /* from the weights of one tap to those of the next; 0 copies the side */
    i32 first;
} AugmentSide;

DEVICE AugmentSide augment_side(const i32 *axes, u32 table, i32 first)
{
    AugmentSide side;
    const i32 *at = axes + table;
    side.first = first;
    side.step = table ? at[0] : 0;
    side.starts = at + 1 + first;
    side.lens = side.starts + side.step;
    side.weights = side.lens + side.step;
    return side;
}

DEVICE i32 augment_start(AugmentSide side, i32 i)
{
    return side.step ? side.starts[i] : side.first + i;
}

DEVICE i32 augment_len(AugmentSide side, i32 i)
{
    return side.step ? side.lens[i] : 1;
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

/* `degenerate + factor * (value - degenerate)`, truncated and cut off; 0 for what is no number. */
DEVICE u32 augment_blend(u32 degenerate, u32 value, float factor)
{
    const float x = (float)degenerate + factor * ((float)value - (float)degenerate);
    return x >= 255.0f ? 255u : x > 0.0f ? (u32)x : 0u;
}

DEVICE u32 augment_luma(u32 r, u32 g, u32 b)
{
    return (r * 19595u + g * 38470u + b * 7471u + 0x8000u) >> 16;
}

DEVICE u32 augment_level(u32 v, double share)
{
    return (u32)round((double)v * (1.0 - share));
}

DEVICE void augment_hue(u32 *p, u32 shift)
{
    const u32 r = p[0], g = p[1], b = p[2];
    const u32 max = r > g ? (r > b ? r : b) : (g > b ? g : b);
    const u32 min = r < g ? (r < b ? r : b) : (g < b ? g : b);
    u32 h8, s8, v, low, q, t;
    float chroma, s, rc, gc, bc, h, f, fs;
    double turn, sector, whole;
    if (max == min)
        return;
    chroma = (float)(max - min);
    s = chroma / (float)max;
    rc = (float)(max - r) / chroma;
    gc = (float)(max - g) / chroma;
    bc = (float)(max - b) / chroma;
    if (r == max)
        h = bc - gc;
    else if (g == max)
        h = (float)(2.0 + (double)rc - (double)bc);
    else
        h = (float)(4.0 + (double)gc - (double)rc);
    /* Between 5/6 and 11/6, where a remainder is a difference, and exact. */
    turn = (double)h / 6.0 + 1.0;
    h = (float)(turn >= 1.0 ? turn - 1.0 : turn);
    h8 = ((u32)((double)h * 255.0) + shift) & 255u;
    s8 = (u32)((double)s * 255.0);
    v = max;
    if (s8 == 0) {
        p[0] = p[1] = p[2] = v;
        return;
    }
    sector = (double)h8 * 6.0 / 255.0;
    whole = floor(sector);
    f = (float)(sector - whole);
    fs = (float)((double)s8 / 255.0);
    low = augment_level(v, (double)fs);
    q = augment_level(v, (double)(fs * f));
    t = augment_level(v, (double)fs * (1.0 - (double)f));
    switch ((u32)whole % 6u) {
    case 0: p[0] = v, p[1] = t, p[2] = low; break;
    case 1: p[0] = q, p[1] = v, p[2] = low; break;
    case 2: p[0] = low, p[1] = v, p[2] = t; break;
    case 3: p[0] = low, p[1] = q, p[2] = v; break;
    case 4: p[0] = t, p[1] = low, p[2] = v; break;
    default: p[0] = v, p[1] = low, p[2] = q; break;
    }
}

/* The table of a channel's histogram, Pillow's autocontrast or equalize. One thread makes it. */
DEVICE void augment_by_histogram(u32 kind, const u32 *histogram, u8 *table)
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
DEVICE i32 augment_inside(i32 y, i32 x, i32 top, i32 left, i32 height, i32 width)
{
    y -= top;
    x -= left;
    return y >= 0 && y < height && x >= 0 && x < width ? y * width + x : -1;
}

/* Changes the values of the pixel at (y, x) of the result; says how many channels it has then. All three of `p` are
 * changed, so that they stay in registers: those that there are not are never looked at. */
DEVICE u32 augment_ops(const AugmentArgs *a, const AugmentPass *pass, u32 channels, i32 y, i32 x, u32 mean,
                       const u8 *tables, u32 *p)
{
    const AugmentOp *op = (const AugmentOp *)a->ops + pass->first_op;
    const AugmentOp *end = op + pass->ops;
    u32 c, gray;
    for (; op < end; ++op) {
        switch (op->kind) {
        case OP_BRIGHTNESS:
        case OP_CONTRAST:
            gray = op->kind == OP_CONTRAST ? mean : 0;
            for (c = 0; c < 3; ++c)
                p[c] = augment_blend(gray, p[c], op->factor);
            break;
        case OP_SATURATION:
            if (channels == 3) {
                gray = augment_luma(p[0], p[1], p[2]);
                for (c = 0; c < 3; ++c)
                    p[c] = augment_blend(gray, p[c], op->factor);
            }
            break;
        case OP_HUE:
            if (channels == 3)
                augment_hue(p, op->value);
            break;
        case OP_GRAY:
            if (channels == 3)
                p[0] = augment_luma(p[0], p[1], p[2]);
            p[1] = p[2] = p[0];
            channels = op->value;
            break;
        case OP_INVERT:
            for (c = 0; c < 3; ++c)
                p[c] = 255u - p[c];
            break;
        case OP_POSTERIZE:
            for (c = 0; c < 3; ++c)
                p[c] &= op->value;
            break;
        case OP_SOLARIZE:
            for (c = 0; c < 3; ++c)
                p[c] = p[c] < op->value ? p[c] : 255u - p[c];
            break;
        case OP_SOLARIZE_ADD:
            for (c = 0; c < 3; ++c)
                if (p[c] < 128u)
                    p[c] = p[c] + op->value > 255u ? 255u : p[c] + op->value;
            break;
        case OP_AUTOCONTRAST:
        case OP_EQUALIZE:
            for (c = 0; c < 3; ++c)
                p[c] = tables[c * 256 + p[c]];
            break;
        case OP_PERMUTE:
            if (channels == 3) {
                const u32 r = p[0], g = p[1], b = p[2];
                for (c = 0; c < 3; ++c) {
                    const u32 from = op->value >> (8 * c) & 255u;
                    p[c] = from == 0 ? r : from == 1 ? g : b;
                }
            }
            break;
        default: {
            const i32 at = augment_inside(y, x, op->top, op->left, op->height, op->width);
            if (at >= 0)
                for (c = 0; c < 3; ++c)
                    p[c] = op->each
                               ? ((const u8 *)a->bytes)[op->fill + c * (u32)(op->height * op->width) + (u32)at]
                               : op->fill >> (8 * c) & 255u;
        }
        }
    }
    return channels;
}

/* The bits of a finished element of channel c at (y, x), after all rectangles. */
DEVICE u32 augment_patched(const AugmentArgs *a, const AugmentPass *pass, u32 c, i32 y, i32 x, u32 bits)
{
    const AugmentPatch *patch = (const AugmentPatch *)a->patches + pass->first_patch;
    u32 i;
    for (i = 0; i < pass->patches; ++i, ++patch) {
        const i32 at = augment_inside(y, x, patch->top, patch->left, patch->height, patch->width);
        if (at >= 0) {
            const u32 place = c * (u32)(patch->height * patch->width) + (u32)at;
            const u8 *values = (const u8 *)a->bytes + patch->fill[0];
            if (!patch->each)
                bits = patch->fill[c];
            else if (a->element == 1)
                bits = values[place];
            else if (a->element == 2)
                bits = ((const u16 *)values)[place];
            else
                bits = ((const u32 *)values)[place];
        }
    }
    return bits;
}

/* The tile at BLOCK_X of pass BLOCK_Y. Unless `full`, passes change no values and overwrite nothing. */
DEVICE void augment_tile(const AugmentArgs a, const i32 full)
{
    /* Rows (or columns) between the passes, all channels. */
    SHARED AUGMENT_ALIGN u32 between_words[3 * AUGMENT_TILE * AUGMENT_CHUNK / 4];
    /* Sums where the source comes in several chunks; before and after that histograms, tables of 8 bits, sums. */
    SHARED AUGMENT_ALIGN u32 sums[3 * AUGMENT_TILE * AUGMENT_TILE];
    SHARED AUGMENT_ALIGN u32 tile_words[3 * AUGMENT_TILE * AUGMENT_TILE / 4];
    SHARED AUGMENT_ALIGN u32 table[3 * 256];
    SHARED u32 partial[AUGMENT_THREADS];
    SHARED u32 mean;
    u8 *const between = (u8 *)between_words;
    u8 *const tile = (u8 *)tile_words;
    const AugmentPass *pass = (const AugmentPass *)a.passes + BLOCK_Y;
    const i32 *axes = (const i32 *)a.axes;
    const i32 across = (pass->out_width + AUGMENT_TILE - 1) / AUGMENT_TILE;
    const i32 tile_y = (i32)BLOCK_X / across, tile_x = (i32)BLOCK_X % across;
    const i32 top = tile_y * AUGMENT_TILE, left = tile_x * AUGMENT_TILE;
    const i32 rows = pass->out_height - top < AUGMENT_TILE ? pass->out_height - top : AUGMENT_TILE;
    const i32 columns = pass->out_width - left < AUGMENT_TILE ? pass->out_width - left : AUGMENT_TILE;
    const u32 flags = pass->flags, channels = pass->channels;
    const u8 *source = (const u8 *)(flags & FROM_SCRATCH ? a.scratch + pass->source : pass->source);
    u8 *target = (u8 *)(flags & TO_SCRATCH ? a.scratch + pass->target : pass->target);
    const AugmentOp *first_op = (const AugmentOp *)a.ops + pass->first_op;
    u32 out_channels = channels, i, c;
    if (rows <= 0)
        return;

    if (!pass->vertical && !pass->horizontal) {
        const u32 mode = flags >> PAD_SHIFT & 3u;
        for (i = THREAD; i < channels * AUGMENT_TILE * AUGMENT_TILE; i += THREADS) {
            const i32 x = (i32)(i % AUGMENT_TILE), y = (i32)(i / AUGMENT_TILE % AUGMENT_TILE);
            const i32 from_y = augment_padded(pass->top + top + y, pass->height, mode);
            const i32 from_x = augment_padded(pass->left + left + x, pass->width, mode);
            c = i / (AUGMENT_TILE * AUGMENT_TILE);
            if (y < rows && x < columns)
                tile[i] = from_y < 0 || from_x < 0
                              ? (u8)(pass->fill >> (8 * c))
                              : source[c * pass->source_plane + from_y * pass->source_row +
                                       from_x * pass->source_pixel];
        }
    } else {
        const i32 down_first = (flags & DOWN_FIRST) != 0;
        const AugmentSide down = augment_side(axes, pass->vertical, top);
        const AugmentSide over = augment_side(axes, pass->horizontal, left);
        /* The second pass sums up its side in chunks of the source. */
        const AugmentSide one = down_first ? down : over;
        const AugmentSide second = down_first ? over : down;
        const i32 made = down_first ? columns : rows;
        const i32 begin = augment_start(second, 0);
        const i32 end = augment_start(second, made - 1) + augment_len(second, made - 1);
        i32 chunk;
        for (chunk = begin; chunk < end; chunk += AUGMENT_CHUNK) {
            const i32 next = chunk + AUGMENT_CHUNK < end ? chunk + AUGMENT_CHUNK : end;
            const u32 fours = (u32)(next - chunk + 3) / 4;
            /* The first pass: four samples of the second one's side at once, whose weights are the same. */
            for (i = THREAD; i < channels * fours * AUGMENT_TILE; i += THREADS) {
                const u32 m = i % AUGMENT_TILE, line = i / AUGMENT_TILE;
                const u32 four = line - (line >= fours ? fours : 0) - (line >= 2 * fours ? fours : 0);
                const i32 at = chunk + (i32)(four * 4);
                i32 start, len, t;
                u32 s0 = AUGMENT_HALF, s1 = AUGMENT_HALF, s2 = AUGMENT_HALF, s3 = AUGMENT_HALF;
                i64 step, d1, d2, d3;
                const i32 *weights = one.weights + m;
                const u8 *from;
                u8 *to;
                c = (u32)(line >= fours) + (u32)(line >= 2 * fours);
                if ((i32)m >= (down_first ? rows : columns))
                    continue;
                start = augment_start(one, (i32)m);
                len = augment_len(one, (i32)m);
                step = down_first ? pass->source_row : pass->source_pixel;
                d1 = down_first ? pass->source_pixel : pass->source_row;
                from = source + (i64)c * pass->source_plane + at * d1 + start * step;
                /* Samples past the chunk are made of its last one, and never looked at. */
                d3 = (next - 1 - at < 3 ? next - 1 - at : 3) * d1;
                d2 = (next - 1 - at < 2 ? next - 1 - at : 2) * d1;
                d1 = (next - 1 - at < 1 ? next - 1 - at : 1) * d1;
                for (t = 0; t < len; ++t, from += step, weights += one.step) {
                    const u32 weight = one.step ? (u32)*weights : 1u << AUGMENT_BITS;
                    s0 += from[0] * weight;
                    s1 += from[d1] * weight;
                    s2 += from[d2] * weight;
                    s3 += from[d3] * weight;
                }
                if (down_first) {
                    to = between + (c * AUGMENT_TILE + m) * AUGMENT_CHUNK + four * 4;
                    to[0] = augment_clip(s0);
                    to[1] = augment_clip(s1);
                    to[2] = augment_clip(s2);
                    to[3] = augment_clip(s3);
                } else {
                    to = between + (c * AUGMENT_CHUNK + four * 4) * AUGMENT_TILE + m;
                    to[0] = augment_clip(s0);
                    to[AUGMENT_TILE] = augment_clip(s1);
                    to[2 * AUGMENT_TILE] = augment_clip(s2);
                    to[3 * AUGMENT_TILE] = augment_clip(s3);
                }
            }
            SYNC();
            /* The second pass, of what this chunk has. */
            if (down_first) {
                for (i = THREAD; i < channels * AUGMENT_TILE * AUGMENT_TILE; i += THREADS) {
                    const i32 x = (i32)(i % AUGMENT_TILE), y = (i32)(i / AUGMENT_TILE % AUGMENT_TILE);
                    const i32 *weights;
                    i32 start, from, to, t;
                    u32 sum;
                    if (x >= columns || y >= rows)
                        continue;
                    start = augment_start(second, x);
                    from = start > chunk ? start : chunk;
                    to = start + augment_len(second, x);
                    to = to < next ? to : next;
                    sum = chunk == begin ? AUGMENT_HALF : sums[i];
                    weights = second.weights + (from - start) * second.step + x;
                    for (t = from; t < to; ++t, weights += second.step)
                        sum += between[i / AUGMENT_TILE * AUGMENT_CHUNK + (u32)(t - chunk)] *
                               (second.step ? (u32)*weights : 1u << AUGMENT_BITS);
                    if (next == end)
                        tile[i] = augment_clip(sum);
                    else
                        sums[i] = sum;
                }
            } else {
                for (i = THREAD; i < channels * AUGMENT_TILE * AUGMENT_TILE / 4; i += THREADS) {
                    const i32 y = (i32)(i / (AUGMENT_TILE / 4) % AUGMENT_TILE);
                    const u32 *column;
                    const i32 *weights;
                    i32 start, from, to, t;
                    u32 s0 = AUGMENT_HALF, s1 = AUGMENT_HALF, s2 = AUGMENT_HALF, s3 = AUGMENT_HALF;
                    c = i / (AUGMENT_TILE / 4) / AUGMENT_TILE;
                    if (y >= rows)
                        continue;
                    start = augment_start(second, y);
                    from = start > chunk ? start : chunk;
                    to = start + augment_len(second, y);
                    to = to < next ? to : next;
                    if (chunk != begin) {
                        s0 = sums[i * 4];
                        s1 = sums[i * 4 + 1];
                        s2 = sums[i * 4 + 2];
                        s3 = sums[i * 4 + 3];
                    }
                    column = between_words + (c * AUGMENT_CHUNK + (u32)(from - chunk)) * (AUGMENT_TILE / 4) +
                             i % (AUGMENT_TILE / 4);
                    weights = second.weights + (from - start) * second.step + y;
                    for (t = from; t < to; ++t, column += AUGMENT_TILE / 4, weights += second.step) {
                        const u32 four = *column;
                        const u32 weight = second.step ? (u32)*weights : 1u << AUGMENT_BITS;
                        s0 += (four & 255u) * weight;
                        s1 += (four >> 8 & 255u) * weight;
                        s2 += (four >> 16 & 255u) * weight;
                        s3 += (four >> 24) * weight;
                    }
                    if (next == end) {
                        tile_words[i] = augment_clip(s0) | (u32)augment_clip(s1) << 8 |
                                        (u32)augment_clip(s2) << 16 | (u32)augment_clip(s3) << 24;
                    } else {
                        sums[i * 4] = s0;
                        sums[i * 4 + 1] = s1;
                        sums[i * 4 + 2] = s2;
                        sums[i * 4 + 3] = s3;
                    }
                }
            }
            SYNC();
        }
    }
    if (flags & FINISH)
        for (i = THREAD; i < 3 * 256; i += THREADS)
            table[i] = ((const u32 *)a.table)[i];
    /* What looks at all pixels comes first among the changes of values: an earlier pass has counted for it. */
    if (full && pass->ops && first_op->statistic) {
        if (first_op->kind == OP_CONTRAST) {
            if (THREAD == 0) {
                const double sum = (double)((const u64 *)a.lumas)[first_op->statistic - 1];
                const double count = (double)(first_op->count ? first_op->count : 1);
                mean = (u32)(sum / count + 0.5);
            }
        } else {
            const u32 *histogram = (const u32 *)a.histograms + (first_op->statistic - 1) * 768;
            for (c = THREAD; c < channels; c += THREADS)
                augment_by_histogram(first_op->kind, histogram + c * 256, between + c * 256);
        }
    }
    if (full && pass->histogram)
        for (i = THREAD; i < 3 * 256; i += THREADS)
            sums[i] = 0;
    SYNC();

    if (full && (pass->ops || pass->luma || pass->histogram)) {
        u32 seen = 0;
        for (i = THREAD; i < AUGMENT_TILE * AUGMENT_TILE; i += THREADS) {
            const i32 x = (i32)(i % AUGMENT_TILE), y = (i32)(i / AUGMENT_TILE);
            u32 p[3], now;
            if (x >= columns || y >= rows)
                continue;
            p[0] = tile[i];
            p[1] = channels == 3 ? tile[AUGMENT_TILE * AUGMENT_TILE + i] : 0;
            p[2] = channels == 3 ? tile[2 * AUGMENT_TILE * AUGMENT_TILE + i] : 0;
            now = augment_ops(&a, pass, channels, flags & FLIP_V ? pass->out_height - 1 - top - y : top + y,
                              flags & FLIP_H ? pass->out_width - 1 - left - x : left + x, mean, between, p);
            for (c = 0; c < 3; ++c)
                tile[c * AUGMENT_TILE * AUGMENT_TILE + i] = (u8)p[c];
            seen += now == 3 ? augment_luma(p[0], p[1], p[2]) : p[0];
            if (pass->histogram)
                for (c = 0; c < 3; ++c)
                    if (c < now)
                        AUGMENT_ADD(&sums[c * 256 + p[c]], 1u);
        }
        partial[THREAD] = seen;
        for (i = 0; i < pass->ops; ++i)
            if (first_op[i].kind == OP_GRAY)
                out_channels = first_op[i].value;
        SYNC();
        if (pass->luma) {
            for (i = THREADS / 2; i > 0; i /= 2) {
                if (THREAD < i)
                    partial[THREAD] += partial[THREAD + i];
                SYNC();
            }
            if (THREAD == 0)
                AUGMENT_ADD((u64 *)a.lumas + (pass->luma - 1), (u64)partial[0]);
        }
        if (pass->histogram)
            for (i = THREAD; i < 3 * 256; i += THREADS)
                if (sums[i])
                    AUGMENT_ADD((u32 *)a.histograms + (pass->histogram - 1) * 768 + i, sums[i]);
    }

    {
        const i32 finish = (flags & FINISH) != 0;
        const u32 element = finish ? a.element : 1;
        const i32 out_top = flags & FLIP_V ? pass->out_height - top - rows : top;
        const i32 out_left = flags & FLIP_H ? pass->out_width - left - columns : left;
        /* Four neighbours at once, be they of a row of one channel or of pixels with their three channels: elements are
         * dense along a line in both layouts. */
        const i32 planar = pass->target_pixel == 1;
        const i32 line = planar ? columns : columns * 3;
        const u32 groups = (planar ? out_channels : 3) * AUGMENT_TILE * AUGMENT_TILE / 4;
        for (i = THREAD; i < groups; i += THREADS) {
            const i32 first = (i32)(planar ? i % (AUGMENT_TILE / 4) : i % (3 * AUGMENT_TILE / 4)) * 4;
            const i32 y = (i32)(planar ? i / (AUGMENT_TILE / 4) % AUGMENT_TILE : i / (3 * AUGMENT_TILE / 4));
            const u32 plane = planar ? i / (AUGMENT_TILE / 4) / AUGMENT_TILE : 0;
            const i32 count = line - first < 4 ? line - first : 4;
            u32 from, four = 0, bits[4];
            i64 at;
            i32 k;
            if (y >= rows || count <= 0)
                continue;
            from = (plane * AUGMENT_TILE + (u32)(flags & FLIP_V ? rows - 1 - y : y)) * AUGMENT_TILE;
            at = (i64)plane * pass->target_plane + (i64)(out_top + y) * pass->target_row +
                 (i64)out_left * pass->target_pixel + first;
            /* A word of four pixels, where they lie in one; what is past the line's end is not looked at. */
            if (planar && !(flags & FLIP_H)) {
                four = tile_words[(from + (u32)first) / 4];
            } else if (planar && columns % 4 == 0) {
                four = tile_words[(from + (u32)(columns - 4 - first)) / 4];
                four = four >> 24 | (four >> 8 & 0xFF00u) | (four << 8 & 0xFF0000u) | four << 24;
            } else {
                UNROLL
                for (k = 0; k < 4; ++k) {
                    const i32 place = first + (k < count ? k : count - 1);
                    const i32 x = planar ? place : place / 3;
                    const u32 channel = planar ? 0 : (u32)(place - x * 3);
                    four |= (u32)tile[from + channel * AUGMENT_TILE * AUGMENT_TILE +
                                      (u32)(flags & FLIP_H ? columns - 1 - x : x)]
                            << (8 * k);
                }
            }
            /* All four, so that they stay in registers. */
            UNROLL
            for (k = 0; k < 4; ++k) {
                const i32 place = first + k;
                c = planar ? plane : (u32)place % 3;
                bits[k] = four >> (8 * k) & 255u;
                if (finish) {
                    bits[k] = table[c * 256 + bits[k]];
                    if (full && pass->patches)
                        bits[k] = augment_patched(&a, pass, c, out_top + y,
                                                  out_left + (planar ? place : place / 3), bits[k]);
                }
            }
            if (count == 4) {
                store_elements(target, at, element, bits);
            } else {
                UNROLL
                for (k = 0; k < 4; ++k)
                    if (k < count)
                        store_element(target, at + k, element, bits[k]);
            }
        }
    }
}

/* Passes of all kinds. */
KERNEL(augment, AugmentArgs, AUGMENT_BOUNDS)
{
    augment_tile(a, 1);
}

/* Passes that change no values, overwrite nothing and count nothing: with fewer registers. */
KERNEL(augment_plain, AugmentArgs, AUGMENT_BOUNDS)
{
    augment_tile(a, 0);
}

/* Passes that take pixels as they are, from where the window lies or from what is padded. A thread makes four neighbours
 * of all channels. */
KERNEL(augment_copy, AugmentArgs, AUGMENT_THREADS)
{
    SHARED u32 table[3 * 256];
    const AugmentPass pass = ((const AugmentPass *)a.passes)[BLOCK_Y];
    const u32 flags = pass.flags, channels = pass.channels, mode = flags >> PAD_SHIFT & 3u;
    const i32 finish = (flags & FINISH) != 0, planar = pass.target_pixel == 1;
    /* Whether four pixels are twelve bytes. */
    const i32 together = channels == 3 && pass.source_plane == 1 && pass.source_pixel == 3;
    const i32 dense = pass.source_pixel == 1 || together;
    const u32 element = finish ? a.element : 1;
    const i32 across = (pass.out_width + AUGMENT_TILE - 1) / AUGMENT_TILE;
    const i32 tile_y = (i32)BLOCK_X / across, tile_x = (i32)BLOCK_X - tile_y * across;
    const u8 *source = (const u8 *)(flags & FROM_SCRATCH ? a.scratch + pass.source : pass.source);
    u8 *target = (u8 *)(flags & TO_SCRATCH ? a.scratch + pass.target : pass.target);
    u32 i, c, k;
    if (tile_y * AUGMENT_COPY_TILE >= pass.out_height)
        return;
    if (finish)
        for (i = THREAD; i < channels * 256; i += THREADS)
            table[i] = ((const u32 *)a.table)[i];
    SYNC();
    for (i = THREAD; i < AUGMENT_COPY_TILE * AUGMENT_TILE / 4; i += THREADS) {
        const i32 x = tile_x * AUGMENT_TILE + (i32)(i % (AUGMENT_TILE / 4) * 4);
        const i32 y = tile_y * AUGMENT_COPY_TILE + (i32)(i / (AUGMENT_TILE / 4));
        const i32 count = pass.out_width - x < 4 ? pass.out_width - x : 4;
        const i32 from_x = pass.left + x, from_y = augment_padded(pass.top + y, pass.height, mode);
        u32 words[3] = {0, 0, 0}, bits[4];
        i64 at;
        if (y >= pass.out_height || count <= 0)
            continue;
        if (dense && count == 4 && from_y >= 0 && from_x >= 0 && from_x + 4 <= pass.width) {
            const u8 *from = source + from_y * pass.source_row + from_x * pass.source_pixel;
            if (together) {
                const u32 first = load_four(from), second = load_four(from + 4), third = load_four(from + 8);
                words[0] = (first & 255u) | (first >> 24) << 8 | (second & 0xFF0000u) | (third & 0xFF00u) << 16;
                words[1] = (first >> 8 & 255u) | (second & 255u) << 8 | (second >> 24) << 16 |
                           (third & 0xFF0000u) << 8;
                words[2] = (first >> 16 & 255u) | (second & 0xFF00u) | (third & 255u) << 16 | (third & 0xFF000000u);
            } else {
                words[0] = load_four(from);
                if (channels == 3) {
                    words[1] = load_four(from + pass.source_plane);
                    words[2] = load_four(from + 2 * pass.source_plane);
                }
            }
        } else {
            UNROLL
            for (k = 0; k < 4; ++k) {
                const i32 at_x = augment_padded(from_x + (i32)k, pass.width, mode);
                const i32 inside = from_y >= 0 && at_x >= 0 && (i32)k < count;
                UNROLL
                for (c = 0; c < 3; ++c)
                    if (c < channels)
                        words[c] |= (inside ? (u32)source[(i64)c * pass.source_plane + from_y * pass.source_row +
                                                          at_x * pass.source_pixel]
                                            : pass.fill >> (8 * c) & 255u)
                                    << (8 * k);
            }
        }
        if (flags & FLIP_H)
            UNROLL
            for (c = 0; c < 3; ++c)
                words[c] = swapped(words[c]) >> (32 - 8 * count);
        at = (flags & FLIP_V ? pass.out_height - 1 - y : y) * pass.target_row +
             (flags & FLIP_H ? pass.out_width - x - count : x) * pass.target_pixel;
        if (planar) {
            UNROLL
            for (c = 0; c < 3; ++c) {
                if (c >= channels)
                    continue;
                UNROLL
                for (k = 0; k < 4; ++k) {
                    bits[k] = words[c] >> (8 * k) & 255u;
                    if (finish)
                        bits[k] = table[c * 256 + bits[k]];
                }
                if (count == 4)
                    store_elements(target, at + c * pass.target_plane, element, bits);
                else
                    UNROLL
                    for (k = 0; k < 4; ++k)
                        if ((i32)k < count)
                            store_element(target, at + c * pass.target_plane + k, element, bits[k]);
            }
        } else {
            /* Whole pixels of three channels. */
            UNROLL
            for (c = 0; c < 3; ++c) {
                UNROLL
                for (k = 0; k < 4; ++k) {
                    const u32 place = c * 4 + k;
                    bits[k] = words[place % 3] >> (place / 3 * 8) & 255u;
                    if (finish)
                        bits[k] = table[place % 3 * 256 + bits[k]];
                }
                if (count == 4)
                    store_elements(target, at + c * 4, element, bits);
                else
                    UNROLL
                    for (k = 0; k < 4; ++k)
                        if ((i32)(c * 4 + k) < count * 3)
                            store_element(target, at + c * 4 + k, element, bits[k]);
            }
        }
    }
}
