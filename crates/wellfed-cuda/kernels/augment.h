/* What augment.cu takes: the same structures as src/augment.rs has. All addresses and offsets are in bytes but where a
 * comment says otherwise. */
#ifndef WELLFED_AUGMENT_H
#define WELLFED_AUGMENT_H

#include "kernel.h"

/* One pass over one image: crop, resize, window, flips, changes of values, and perhaps the map to finished elements. */
typedef struct {
    u64 source;       /* of the crop's first pixel: an address, or an offset in the scratch memory (FROM_SCRATCH) */
    i64 source_plane; /* from one channel to the next */
    i64 source_row;
    i64 source_pixel;
    u64 target;       /* likewise (TO_SCRATCH); strides count elements */
    i64 target_plane;
    i64 target_row;
    i64 target_pixel;
    i32 height, width;         /* of the crop */
    i32 out_height, out_width; /* of the window */
    i32 top, left;             /* of the window, where nothing is resampled */
    u32 flags;
    u32 fill; /* a byte for each channel, for PAD_CONSTANT */
    /* Tables of starts, lens and weights (words of `axes`): 0 copies the side. */
    u32 vertical, horizontal;
    u32 channels; /* of the source, 1 or 3 */
    u32 first_op, ops;
    u32 first_patch, patches;
    u32 luma, histogram; /* which sum or histogram this pass fills, from 1 on; 0 for none */
    u32 padding;
} AugmentPass;

enum {
    FROM_SCRATCH = 1,
    TO_SCRATCH = 2,
    FLIP_H = 4,
    FLIP_V = 8,
    DOWN_FIRST = 16,
    /* Elements are those of the table, not bytes as they are. */
    FINISH = 32,
    /* Weights of the resize can be negative. */
    SIGNED = 64,
    PAD_SHIFT = 8
};

enum { PAD_CONSTANT, PAD_EDGE, PAD_REFLECT, PAD_SYMMETRIC };

/* A change of values. */
typedef struct {
    u32 kind;
    float factor;
    u32 value;
    u32 statistic; /* the sum or histogram that it looks at, from 1 on */
    u64 count;     /* pixels that were seen */
    i32 top, left, height, width;
    u32 fill;      /* a byte for each channel; with `each`, where its bytes begin in `bytes` */
    u32 each;
} AugmentOp;

enum {
    OP_BRIGHTNESS,
    OP_CONTRAST,
    OP_SATURATION,
    OP_HUE,
    OP_GRAY,
    OP_INVERT,
    OP_POSTERIZE,
    OP_SOLARIZE,
    OP_SOLARIZE_ADD,
    OP_AUTOCONTRAST,
    OP_EQUALIZE,
    OP_PERMUTE,
    OP_ERASE
};

/* A rectangle of the finished image that is overwritten. */
typedef struct {
    i32 top, left, height, width;
    u32 fill[4]; /* an element's bits for each channel; with `each`, fill[0] is where its elements begin in `bytes` */
    u32 each;
    u32 padding[3];
} AugmentPatch;

/* Weights that are made on the device: exact where a filter has only products, sums and quotients. */
typedef struct {
    u32 table; /* words of `axes` */
    u32 taps;
    i32 input, output;
    i32 first, count; /* output samples that are wanted */
    u32 filter;
    u32 padding;
} AugmentAxis;

enum { FILTER_BOX, FILTER_BILINEAR, FILTER_BICUBIC };

/* What makes the pixels of an image of others around them. A pass names it by first_op. */
typedef struct {
    double matrix[6]; /* from the target to the source */
    i32 fixed[6];     /* the same in 16.16: the middle of the first pixel (x, y), steps of a column, steps of a row */
    u32 kind;
    u32 taps;    /* of a side of a blur */
    u32 weights; /* as many floats from this word of `axes` on */
    u32 fill;    /* a byte for each channel */
    u32 padding[2];
} AugmentArea;

enum { AREA_BLUR, AREA_NEAREST_FIXED, AREA_NEAREST_SUMS, AREA_BILINEAR, AREA_BICUBIC };

/* The arguments of all kernels. */
typedef struct {
    u64 passes; /* of this launch, AugmentPass */
    u64 ops;
    u64 patches;
    u64 bytes;
    u64 axes; /* words; a table is `count`, then as many starts, as many lens, and as many weights of each tap */
    u64 jobs; /* AugmentAxis */
    u64 lumas;      /* u64 sums */
    u64 histograms; /* u32 [3][256] each */
    u64 table;      /* u32 [3][256]: bits of the finished elements */
    u64 scratch;
    u64 areas;   /* AugmentArea */
    u32 element; /* bytes of a finished element */
    u32 padding;
} AugmentArgs;

#endif
