#include "kernel.h"

typedef struct {
    u64 data;
    u64 bytes;
    u32 value;
    u32 padding;
} FillArgs;

/* Sets bytes to one value: what the self-test of a device launches first. */
KERNEL(fill, FillArgs, 256)
{
    u8 *data = (u8 *)a.data;
    u64 i;
    for (i = (u64)BLOCK_X * 4096 + THREAD; i < (u64)(BLOCK_X + 1) * 4096 && i < a.bytes; i += THREADS)
        data[i] = (u8)a.value;
}
