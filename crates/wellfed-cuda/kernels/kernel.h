/* What every kernel includes: one source that is CUDA C++ for NVRTC and C11 for the host.
 *
 * A kernel is written for a block of any number of threads: work is shared out by loops from THREAD in steps of
 * THREADS, and phases end with SYNC(). On the host a block has one thread, so that the same loops do all the work and
 * SYNC() is nothing. Kernels take one structure by value, which Rust knows as a #[repr(C)] of the same name.
 *
 * Products and sums of floats are not contracted, on either side, so that both give the same bits.
 */
#ifndef WELLFED_KERNEL_H
#define WELLFED_KERNEL_H

#ifdef __CUDACC__

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;

#define KERNEL(name, Args, threads) extern "C" __global__ void __launch_bounds__(threads) name(const Args a)
#define DEVICE static __device__ __forceinline__
#define CONSTANT static __device__ __constant__ const
#define SHARED __shared__
#define SYNC() __syncthreads()
#define THREAD threadIdx.x
#define THREADS blockDim.x
#define BLOCK_X blockIdx.x
#define BLOCK_Y blockIdx.y
#define BLOCK_Z blockIdx.z

#else

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
/* `unsigned long long`, as on the device: `uint64_t` is `unsigned long` on some hosts, which printf and casts tell. */
typedef unsigned long long u64;
typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef long long i64;

struct wellfed_index {
    u32 x, y, z;
};
/* Each thread of the host that launches a kernel has its own place in the grid. */
static _Thread_local struct wellfed_index wellfed_block;

/* A kernel of the host, and what launches are checked by. src/host.rs has the same structure. */
struct wellfed_kernel {
    void (*launch)(const void *args, u32 x, u32 y, u32 z);
    u32 bytes;   /* of the structure that it takes */
    u32 threads; /* of a block, at most */
};

/* The host's launch of a kernel: its blocks one after another. */
#define KERNEL(name, Args, threads)                                                            \
    static void name##_block(const Args a);                                                    \
    void wellfed_host_##name(const void *args, u32 x, u32 y, u32 z);                           \
    void wellfed_host_##name(const void *args, u32 x, u32 y, u32 z)                            \
    {                                                                                          \
        Args copy;                                                                             \
        memcpy(&copy, args, sizeof copy);                                                      \
        for (wellfed_block.z = 0; wellfed_block.z < z; ++wellfed_block.z)                      \
            for (wellfed_block.y = 0; wellfed_block.y < y; ++wellfed_block.y)                  \
                for (wellfed_block.x = 0; wellfed_block.x < x; ++wellfed_block.x)              \
                    name##_block(copy);                                                        \
    }                                                                                          \
    extern const struct wellfed_kernel wellfed_kernel_##name;                                  \
    const struct wellfed_kernel wellfed_kernel_##name = {wellfed_host_##name, sizeof(Args), (threads)}; \
    static void name##_block(const Args a)
#define DEVICE static inline
#define CONSTANT static const
#define SHARED static _Thread_local
#define SYNC() ((void)0)
#define THREAD 0u
#define THREADS 1u
#define BLOCK_X wellfed_block.x
#define BLOCK_Y wellfed_block.y
#define BLOCK_Z wellfed_block.z

#endif

DEVICE i32 clamp_i32(i32 value, i32 low, i32 high)
{
    return value < low ? low : value > high ? high : value;
}

#endif
