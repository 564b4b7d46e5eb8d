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
/* What is needed rarely, so that it stays out of the way of what is not. */
#define DEVICE_APART static __device__ __noinline__
#define CONSTANT static __device__ __constant__ const
#define SHARED __shared__
#define SYNC() __syncthreads()
#define THREAD threadIdx.x
#define THREADS blockDim.x
#define BLOCK_X blockIdx.x
#define BLOCK_Y blockIdx.y
#define BLOCK_Z blockIdx.z
#define UNROLL _Pragma("unroll")
#define PRAGMA(words) _Pragma(#words)
#define UNROLL_BY(times) PRAGMA(unroll times)

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
#define DEVICE_APART static
#define CONSTANT static const
#define SHARED static _Thread_local
#define SYNC() ((void)0)
#define THREAD 0u
#define THREADS 1u
#define BLOCK_X wellfed_block.x
#define BLOCK_Y wellfed_block.y
#define BLOCK_Z wellfed_block.z
#define UNROLL
#define UNROLL_BY(times)

#endif

DEVICE i32 clamp_i32(i32 value, i32 low, i32 high)
{
    return value < low ? low : value > high ? high : value;
}

/* The bytes of a word in the other order. */
DEVICE u32 swapped(u32 x)
{
#ifdef __CUDACC__
    return __byte_perm(x, 0, 0x0123);
#else
    return __builtin_bswap32(x);
#endif
}

/* A byte that no thread of the kernel writes. */
DEVICE u32 load_byte(const u8 *from)
{
#ifdef __CUDACC__
    return __ldg(from);
#else
    return *from;
#endif
}

/* Four bytes as a word, wherever they lie. On the device whole words are read, each of which has one of the bytes. */
DEVICE u32 load_four(const u8 *from)
{
#ifdef __CUDACC__
    const u32 *low = (const u32 *)((u64)from & ~3ull), *high = (const u32 *)((u64)(from + 3) & ~3ull);
    return __funnelshift_r(__ldg(low), __ldg(high), ((u32)(u64)from & 3u) * 8);
#else
    u32 word;
    memcpy(&word, from, sizeof word);
    return word;
#endif
}

/* Byte k of a word, the lowest being 0: one instruction, while a shift and a mask are two. */
DEVICE u32 byte_of(u32 word, u32 k)
{
#ifdef __CUDACC__
    return __byte_perm(word, 0, 0x4440 + k);
#else
    return word >> (8 * k) & 255u;
#endif
}

/* The highest bytes of four words. */
DEVICE u32 top_bytes(u32 a, u32 b, u32 c, u32 d)
{
#ifdef __CUDACC__
    return __byte_perm(__byte_perm(a, b, 0x0073), __byte_perm(c, d, 0x0073), 0x5410);
#else
    return a >> 24 | b >> 24 << 8 | c >> 24 << 16 | d >> 24 << 24;
#endif
}

/* Stores 16 bytes at a multiple of 16. */
DEVICE void store16(void *to, u32 a, u32 b, u32 c, u32 d)
{
#ifdef __CUDACC__
    *(uint4 *)to = make_uint4(a, b, c, d);
#else
    u32 all[4];
    all[0] = a;
    all[1] = b;
    all[2] = c;
    all[3] = d;
    memcpy(to, all, sizeof all);
#endif
}

/* Copies 16 bytes from a multiple of 16 to another one. */
DEVICE void copy16(void *to, const void *from)
{
#ifdef __CUDACC__
    *(uint4 *)to = *(const uint4 *)from;
#else
    memcpy(to, from, 16);
#endif
}

/* Stores 8 bytes at a multiple of 8. */
DEVICE void store8(void *to, u32 a, u32 b)
{
#ifdef __CUDACC__
    *(uint2 *)to = make_uint2(a, b);
#else
    u32 all[2];
    all[0] = a;
    all[1] = b;
    memcpy(to, all, sizeof all);
#endif
}

/* Stores element `at` of an array of elements of 1, 2 or 4 bytes: the low ones of `bits`. */
DEVICE void store_element(u8 *to, i64 at, u32 element, u32 bits)
{
    if (element == 4)
        ((u32 *)to)[at] = bits;
    else if (element == 2)
        ((u16 *)to)[at] = (u16)bits;
    else
        to[at] = (u8)bits;
}

/* Stores the first `count` of four elements. */
DEVICE_APART void store_few(u8 *to, u32 element, u32 a, u32 b, u32 c, u32 d, i32 count)
{
    store_element(to, 0, element, a);
    if (count > 1)
        store_element(to, 1, element, b);
    if (count > 2)
        store_element(to, 2, element, c);
    if (count > 3)
        store_element(to, 3, element, d);
}

/* Stores four elements at a multiple of their size. */
DEVICE void store_four(u8 *to, u32 element, const u32 *bits)
{
    if (element == 4)
        store16(to, bits[0], bits[1], bits[2], bits[3]);
    else if (element == 2)
        store8(to, (bits[0] & 0xFFFFu) | bits[1] << 16, (bits[2] & 0xFFFFu) | bits[3] << 16);
    else
        *(u32 *)to = (bits[0] & 255u) | (bits[1] & 255u) << 8 | (bits[2] & 255u) << 16 | bits[3] << 24;
}

/* Stores four elements from `at` on: at once where they lie at a multiple of their size. */
DEVICE void store_elements(u8 *to, i64 at, u32 element, const u32 *bits)
{
    u8 *first = to + at * element;
    if (((u32)(u64)first & (4 * element - 1)) == 0)
        store_four(first, element, bits);
    else
        store_few(first, element, bits[0], bits[1], bits[2], bits[3], 4);
}

#endif
