/* Codes of a whole tensor under one scheme: what tests compare, and what levels are counted from.
 *
 * As decode.cu, with codes instead of values, and nothing to undo. Grid (tiles of ROWS tokens,
 * heads), block 128. Dynamic shared: two tiles, 17 KiB at head_dim 128; registers: at most 64.
 */
#include "kernels/cuda/decode.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/quantize.h"

enum { THREADS = 128, ROWS = 16 };

/* A row of the tile that is not quantized has no codes. */
static __device__ __forceinline__ void store_codes(const kv_cuda_codes &a, const kv_cuda_scheme &s,
                                                   const kv_decode_room &room,
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
            const uint32_t code = kv_float_bits(room.y[i]);
            if (a.codes) a.codes[row * room.d + c] = has_code ? code : KV_CODE_KEPT;
            if (a.used && has_code)
                atomicOr(a.used + (part.head * room.d + c) * a.words + code / 32, 1u << code % 32);
        }
    }
}

__global__ void __launch_bounds__(THREADS, 4) codes(const kv_cuda_codes a)
{
    extern __shared__ float4 memory[];
    const int d = (int)a.head_dim, stride = (int)kv_tile_stride(d), tile = ROWS * stride;
    float *const y = (float *)memory;
    const kv_decode_room room = {y, y + tile, d, stride};
    const int64_t head = blockIdx.y, first = (int64_t)blockIdx.x * ROWS;
    const int count = (int)(a.tokens - first < ROWS ? a.tokens - first : ROWS);
    const kv_cuda_scheme &s = a.scheme;
    const kv_quantized part = kv_tile_load(room, a.x + head * a.tokens * d, s, head, first, count);
    kv_part_format<true>(y + part.from * stride, room, s, part);
    store_codes(a, s, room, part, first, count);
}

kv_status kv_cuda_launch_codes(const kv_cuda_codes *a, kv_error *err)
{
    const int64_t tile = ROWS * kv_tile_stride(a->head_dim);
    const int64_t bytes = 2 * tile * (int64_t)sizeof(float);
    if (a->heads < 1 || a->tokens < 1) return KV_OK;
    const kv_status status = kv_cuda_shared((const void *)codes, "codes", bytes, err);
    if (status != KV_OK) return status;
    const dim3 grid(kv_cuda_blocks(a->tokens, ROWS), (unsigned)a->heads);
    codes<<<grid, THREADS, (size_t)bytes>>>(*a);
    return kv_cuda_launched("codes", err);
}
