/* RoPE on the device: the arithmetic of kernels/rope_pairs.c, in double from the tables of
 * kernels/rope.c, so that a rotated key has the same bits. */
#ifndef KVANT_KERNELS_CUDA_ROPE_CUH
#define KVANT_KERNELS_CUDA_ROPE_CUH

#include "kernels/cuda/device.h"
#include "kernels/rope.h"

/* The first channel of a pair, and how far the second one is from it. */
static __device__ __forceinline__ int64_t kv_rope_channel(const kv_cuda_rope &rope, int64_t pair)
{
    return rope.is_interleaved ? 2 * pair : pair;
}
static __device__ __forceinline__ int64_t kv_rope_distance(const kv_cuda_rope &rope)
{
    return rope.is_interleaved ? 1 : rope.pairs;
}

/* Turns the pair (*a, *b) by the angle of a token. */
static __device__ __forceinline__ void kv_rotate_pair(float *a, float *b, const kv_cuda_rope &rope,
                                                      int64_t token, int64_t pair)
{
    const int64_t offset = token % KV_ROPE_OFFSETS * rope.pairs + pair;
    const int64_t block = token / KV_ROPE_OFFSETS * rope.pairs + pair;
    const double cosine = rope.cosine[offset], block_cosine = rope.block_cosine[block];
    const double sine = rope.sine[offset], block_sine = rope.block_sine[block];
    const double c = (cosine * block_cosine - sine * block_sine) * rope.magnitude;
    const double s = (sine * block_cosine + cosine * block_sine) * rope.magnitude;
    const double x = *a, y = *b;
    *a = (float)(x * c - y * s);
    *b = (float)(y * c + x * s);
}

#endif
