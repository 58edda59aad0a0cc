/* Codes of a whole tensor under one scheme: what tests compare, and what levels are counted from.
 *
 * As decode.cu, with codes instead of values, and nothing to undo. Grid (tiles of ROWS tokens,
 * heads), block 128. Dynamic shared: three tiles, 25 KiB at head_dim 128; registers: at most 64.
 */
#include "kernels/cuda/decode.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/quantize.h"

enum { THREADS = 128, ROWS = 16 };

#define FLOAT_CODES_EXACT   KV_NO_CASE
#define FLOAT_CODES_INTEGER KV_NO_CASE
#define FLOAT_CODES_FLOAT(name, NAME)                                                              \
    case KV_FORMAT_##NAME:                                                                         \
        kv_part_grid<uint32_t, kv_grid_##name##_code>(k, z, scales);                               \
        break;
#define FLOAT_CODES_BLOCK KV_NO_CASE
static __device__ __forceinline__ void
part_float_codes(uint32_t *k, const float *z, const kv_part_scales &scales, int32_t format)
{
    switch (format) {
#define KV_ROW(name, NAME, KIND, ...) FLOAT_CODES_##KIND(name, NAME)
        KV_FORMAT_TABLE(KV_ROW)
#undef KV_ROW
    }
}

template <kv_block_scale scale(const float *), uint32_t code(float, kv_block_scale)>
static __device__ __noinline__ void block_codes(uint32_t *k, const float *x)
{
    const kv_block_scale s = scale(x);
#pragma unroll 1
    for (int i = 0; i < 32; i++) k[i] = code(x[i], s);
}

#define BLOCK_CODES_EXACT   KV_NO_CASE
#define BLOCK_CODES_INTEGER KV_NO_CASE
#define BLOCK_CODES_FLOAT   KV_NO_CASE
#define BLOCK_CODES_BLOCK(name, NAME)                                                              \
    case KV_FORMAT_##NAME: block_codes<kv_##name##_scale, kv_##name##_code>(k, x); break;
static __device__ __forceinline__ void block_format_codes(uint32_t *k, const float *x,
                                                          int32_t format)
{
    switch (format) {
#define KV_ROW(name, NAME, KIND, ...) BLOCK_CODES_##KIND(name, NAME)
        KV_FORMAT_TABLE(KV_ROW)
#undef KV_ROW
    }
}

/* k = codes of z, as kv_part_values has the values. */
static __device__ __forceinline__ void part_codes(uint32_t *k, const float *z,
                                                  const kv_decode_room &room,
                                                  const kv_cuda_scheme &s, const kv_quantized &part)
{
    const kv_part_scales scales = kv_part_scales_of(s, room, part);
    const int kind = kv_kind_of(s.format);
    if (kind == KV_KIND_EXACT) {
        KV_FOR_PART(part, room.d)
        k[t * room.stride + c] = kv_float_bits(z[t * room.stride + c]);
    } else if (kind == KV_KIND_BLOCK) {
        float *const y = room.y + part.from * room.stride;
        kv_part_blocks<uint32_t, block_format_codes>(k, y, z, room, s, part);
    } else if (kind == KV_KIND_FLOAT) {
        part_float_codes(k, z, scales, s.format);
    } else if (s.rule.is_asymmetric) {
        kv_part_grid<uint32_t, kv_asymmetric_code>(k, z, scales);
    } else {
        kv_part_grid<uint32_t, kv_symmetric_code>(k, z, scales);
    }
}

/* A row of the tile that is not quantized has no codes. */
static __device__ __forceinline__ void store_codes(const kv_cuda_codes &a, const kv_cuda_scheme &s,
                                                   const kv_decode_room &room, const uint32_t *k,
                                                   const kv_quantized &part, int64_t first,
                                                   int count)
{
    for (int t = threadIdx.x / KV_WARP; t < count; t += THREADS / KV_WARP) {
        const bool is_quantized = t >= part.from && t < part.from + part.n;
        const int64_t row = part.head * a.tokens + first + t;
#pragma unroll 1
        for (int c = threadIdx.x % KV_WARP; c < room.d; c += KV_WARP) {
            const int i = t * room.stride + c;
            const bool has_code =
                is_quantized &&
                !(s.keep_low && kv_is_kept(s, part.head, first + t - s.first, c, room.z[i]));
            if (a.codes) a.codes[row * room.d + c] = has_code ? k[i] : KV_CODE_KEPT;
            if (a.used && has_code)
                atomicOr(a.used + (part.head * room.d + c) * a.words + k[i] / 32, 1u << k[i] % 32);
        }
    }
}

__global__ void __launch_bounds__(THREADS, 4) codes(const kv_cuda_codes a)
{
    extern __shared__ float4 memory[];
    const int d = (int)a.head_dim, stride = kv_tile_stride(d), tile = ROWS * stride;
    float *const y = (float *)memory;
    uint32_t *const k = (uint32_t *)(y + 2 * tile);
    const kv_decode_room room = {y, y + tile, d, stride};
    const int64_t head = blockIdx.y, first = (int64_t)blockIdx.x * ROWS;
    const int count = (int)(a.tokens - first < ROWS ? a.tokens - first : ROWS);
    const kv_cuda_scheme &s = a.scheme;
    const kv_quantized part = kv_tile_load(room, a.x + head * a.tokens * d, s, head, first, count);
    part_codes(k + part.from * stride, room.z + part.from * stride, room, s, part);
    __syncthreads();
    store_codes(a, s, room, k, part, first, count);
}

kv_status kv_cuda_launch_codes(const kv_cuda_codes *a, kv_error *err)
{
    const int64_t tile = ROWS * (int64_t)kv_tile_stride(a->head_dim);
    const int64_t bytes = 3 * tile * (int64_t)sizeof(float);
    if (a->heads < 1 || a->tokens < 1) return KV_OK;
    const kv_status status = kv_cuda_shared((const void *)codes, "codes", bytes, err);
    if (status != KV_OK) return status;
    const dim3 grid(kv_cuda_blocks(a->tokens, ROWS), (unsigned)a->heads);
    codes<<<grid, THREADS, (size_t)bytes>>>(*a);
    return kv_cuda_launched("codes", err);
}
