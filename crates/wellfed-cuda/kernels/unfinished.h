/* An image that a device finishes, as crates/wellfed/src/engine/unfinished.rs writes it: the structures of both are the
 * same, byte by byte. Offsets named `at` count bytes from the beginning of the record.
 */
#ifndef WELLFED_UNFINISHED_H
#define WELLFED_UNFINISHED_H

#include "kernel.h"

/* What a record holds. */
enum { PIXELS = 0, COEFFICIENTS = 1, PACKED = 2, JPEG = 3, HUFFMAN = 4 };
/* What its components are. */
enum { GREY = 0, YCBCR = 1, RGB = 2 };
enum { NO_UPSAMPLING = 0, H2V1 = 1, H1V2 = 2, H2V2 = 3, REPEAT = 4 };

/* One component: coefficients of blocks, and the samples that they become. */
typedef struct {
    u32 at;
    /* The column and row of the plane's samples that the first block begins with. */
    u32 left, top;
    /* Groups of four blocks in a block row, and block rows. */
    u32 groups, rows;
    /* Samples that the image reaches. */
    u32 width, height;
    u32 upsampling;
    /* How often samples are repeated. */
    u32 across, down;
    /* Blocks in an MCU, and numbers of Huffman tables. */
    u32 h, v;
    u32 dc, ac;
    u16 quant[64];
} Plane;

typedef struct {
    u32 bytes;
    u32 kind;
    u32 colour;
    /* Planes of pixels or coefficients: 1 or 3. */
    u32 planes;
    /* The pixels that are made first: a part of the image. */
    u32 left, top, width, height;
    /* Where pixels lie, plane after plane without gaps, or where coefficients begin, from where row tables count. */
    u32 data_at;
    /* The finished image. */
    u32 out_width, out_height;
    /* Weights along an axis: `out` first samples, counted from the part's own first, and `taps` weights for each. Without
     * (0) samples are those of the part from `skip` on. */
    u32 columns_at, column_taps, column_skip;
    u32 rows_at, row_taps, row_skip;
    u32 vertical_first;
    u32 flip_h, flip_v;
    /* The whole image, of a JPEG. */
    u32 full_width, full_height;
    u32 data_bytes;
    /* Huffman codes: the first column of MCUs that is kept; places to read from; tables; the codes. */
    u32 mcu_left;
    u32 segments_at, segments;
    u32 tables_at, tables;
    u32 codes_at, codes;
    /* What follows, which the host reads. */
    u32 recipe_at, recipe_bytes, recipe_channels, padding;
    /* Where in the scratch memory things lie; filled in before a batch is copied. */
    u64 coefficients;
    u64 samples[3];
    u64 rgb;
    u64 middle;
    Plane plane[3];
} Unfinished;

/* A batch of them. */
typedef struct {
    /* The records, and where each begins: one number more than there are images. */
    u64 records;
    u64 offsets;
    /* The first image. */
    u32 first;
    u32 channels;
    u64 scratch;
    /* The finished images: 256 elements for each channel, as numbers of 32 bits of which `element` bytes count. */
    u64 table;
    u64 out;
    u32 element;
    u32 padding;
    /* Elements from one image, channel, row and column to the next. */
    i64 step[4];
} BatchArgs;

DEVICE const Unfinished *unfinished(const BatchArgs *a, u32 n)
{
    const i64 *offsets = (const i64 *)a->offsets;
    return (const Unfinished *)(a->records + (u64)offsets[a->first + n]);
}

/* Bytes from one row of samples to the next. */
DEVICE u32 sample_stride(const Plane *plane)
{
    return plane->groups * 32;
}

/* Bytes from one row of pixels to the next: whole words. */
DEVICE u32 pixel_stride(u32 width)
{
    return (width + 3) & ~3u;
}

#endif
