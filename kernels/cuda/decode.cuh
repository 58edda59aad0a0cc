/* What a scheme makes of a tile of tokens, in shared memory: the dequantized values, bit for bit
 * those of kv_fit_decode (quantize_decode.c), or the codes, those of kv_fit_codes.
 *
 * Rows and channels belong to warps and lanes as in transform.cuh. Grids work element by element;
 * of formats that own blocks of 32 channels a thread takes a whole block: two loops over its
 * numbers, for the scale and for what is made of them. All is expanded over KV_FORMAT_TABLE: a new
 * format needs no edit here. Formats are functions that are not inlined, so that they do not get in
 * each other's way. */
#ifndef KVANT_KERNELS_CUDA_DECODE_CUH
#define KVANT_KERNELS_CUDA_DECODE_CUH

#include <cuda_fp16.h>

#include "kernels/cuda/transform.cuh"
#include "kernels/format.h"
#include "kernels/grid.h"

/* The memory of a block of threads: values y and what they are made of, z, [tokens][stride] each.
 */
typedef struct {
    float *y, *z;
    int d, stride; /* d: head_dim */
} kv_decode_room;

/* Floats from a row to the next: an odd number of float4, so that eight neighbouring rows lie in
 * different banks. */
static inline __host__ __device__ int64_t kv_tile_stride(int64_t head_dim)
{
    return (int64_t)(((uint64_t)head_dim + 3) / 4 | 1) * 4;
}

/* kv_f16_round, but for the bits of NaN, by the machine's conversions. */
static __device__ __forceinline__ float kv_half(float x)
{
    return __half2float(__float2half_rn(x));
}

/* The quantized tokens of a tile: rows [from, from + n), the first of them token u of the span. */
typedef struct {
    int64_t head, u;
    int from, n;
} kv_quantized;

static __device__ __forceinline__ kv_quantized kv_quantized_of(const kv_cuda_scheme &s,
                                                               int64_t head, int64_t first_token,
                                                               int count)
{
    const int64_t begin = s.first - first_token, none = 0, all = count;
    const int64_t from = min(max(begin, none), all), end = min(max(begin + s.span, from), all);
    const kv_quantized part = {head, first_token + from - s.first, (int)from, (int)(end - from)};
    return part;
}

/* The elements of n rows that are this thread's. */
#define KV_FOR_ROWS(n, d)                                                                          \
    _Pragma("unroll 1") for (int t = threadIdx.x / KV_WARP; t < (n); t += blockDim.x / KV_WARP)    \
        _Pragma("unroll 1") for (int c = threadIdx.x % KV_WARP; c < (d); c += KV_WARP)

/* Whether element (u, c) is an outlier kept at f16. */
static __device__ __forceinline__ bool kv_is_kept(const kv_cuda_scheme &s, int64_t head, int64_t u,
                                                  int c, float z)
{
    const int64_t i = head * s.vectors + (s.is_kept_by_channel ? c : u);
    return (z <= s.keep_low[i]) | (z >= s.keep_high[i]);
}

/* ---- formats ---- */

/* What a grid needs to know of a part. Tokens and channels fit into 32 bits, which divide faster.
 */
typedef struct {
    const float *scale, *minimum;
    int64_t first_tile, tile_columns; /* first_tile: of the head */
    uint32_t u, tile_tokens, tile_channels, d;
    int n, stride;
    float limit;
} kv_part_scales;

static __device__ __forceinline__ kv_part_scales kv_part_scales_of(const kv_cuda_scheme &s,
                                                                   const kv_decode_room &room,
                                                                   const kv_quantized &part)
{
    const kv_part_scales scales = {s.scale,
                                   s.minimum,
                                   part.head * s.head_tiles,
                                   s.tile_columns,
                                   (uint32_t)part.u,
                                   (uint32_t)s.tile_tokens,
                                   (uint32_t)s.tile_channels,
                                   (uint32_t)room.d,
                                   part.n,
                                   room.stride,
                                   s.rule.limit};
    return scales;
}

/* Numbers y of a part become a grid's values, or its codes. */
typedef float kv_grid_value(float, float, float, float, float);
typedef uint32_t kv_grid_code(float, float, float, float, float);
template <bool IS_CODE, kv_grid_value value, kv_grid_code code>
static __device__ __noinline__ void kv_part_grid(float *y, const kv_part_scales p)
{
    for (int t = threadIdx.x / KV_WARP; t < p.n; t += blockDim.x / KV_WARP) {
        const int64_t row = p.first_tile + (p.u + t) / p.tile_tokens * p.tile_columns;
#pragma unroll 1
        for (uint32_t c = threadIdx.x % KV_WARP; c < p.d; c += KV_WARP) {
            float *const x = y + t * p.stride + c, scale = 1.0f, minimum = 0.0f;
            if (p.scale) {
                const int64_t tile = row + c / p.tile_channels;
                scale = p.scale[tile], minimum = p.minimum[tile];
            }
            const float inverse = kv_int_inverse(scale);
            *x = IS_CODE ? kv_bits_float(code(*x, scale, inverse, minimum, p.limit))
                         : value(*x, scale, inverse, minimum, p.limit);
        }
    }
}

/* Numbers x [32] become a block format's values, or its codes. */
typedef kv_block_scale kv_block_scale_of(const float *);
typedef float kv_block_value(uint32_t, kv_block_scale);
typedef uint32_t kv_block_code(float, kv_block_scale);
template <bool IS_CODE, kv_block_scale_of scale_of, kv_block_value value, kv_block_code code>
static __device__ __noinline__ void kv_block(float *x)
{
    const kv_block_scale s = scale_of(x), stored = {kv_half(s.d), kv_half(s.m), 0.0f};
#pragma unroll 1
    for (int i = 0; i < 32; i++) {
        const uint32_t k = code(x[i], s);
        x[i] = IS_CODE ? kv_bits_float(k) : value(k, stored);
    }
}

/* ---- by format ---- */

#define KV_NO_CASE(name, NAME)
#define KV_GRID_CASE_EXACT(name, NAME)                                                             \
    case KV_FORMAT_##NAME:                                                                         \
        break;
#define KV_GRID_CASE_INTEGER KV_NO_CASE /* the default */
#define KV_GRID_CASE_FLOAT(name, NAME)                                                             \
    case KV_FORMAT_##NAME:                                                                         \
        kv_part_grid<IS_CODE, kv_grid_##name##_value, kv_grid_##name##_code>(y, scales);           \
        break;
#define KV_GRID_CASE_BLOCK KV_NO_CASE
template <bool IS_CODE>
static __device__ __forceinline__ void kv_part_grids(float *y, const kv_part_scales &scales,
                                                     uint32_t format, bool is_asymmetric)
{
    switch (format) {
#define KV_ROW(name, NAME, KIND, ...) KV_GRID_CASE_##KIND(name, NAME)
        KV_FORMAT_TABLE(KV_ROW)
#undef KV_ROW
    default:
        if (is_asymmetric)
            kv_part_grid<IS_CODE, kv_asymmetric_value, kv_asymmetric_code>(y, scales);
        else
            kv_part_grid<IS_CODE, kv_symmetric_value, kv_symmetric_code>(y, scales);
    }
}

#define KV_BLOCK_CASE_EXACT   KV_NO_CASE
#define KV_BLOCK_CASE_INTEGER KV_NO_CASE
#define KV_BLOCK_CASE_FLOAT   KV_NO_CASE
#define KV_BLOCK_CASE_BLOCK(name, NAME)                                                            \
    case KV_FORMAT_##NAME:                                                                         \
        kv_block<IS_CODE, kv_##name##_scale, kv_##name##_value, kv_##name##_code>(x);              \
        break;
template <bool IS_CODE>
static __device__ __forceinline__ void kv_part_blocks(float *y, unsigned n, unsigned d,
                                                      unsigned stride, uint32_t format)
{
    const unsigned columns = d / 32, blocks = n * columns;
    for (unsigned i = threadIdx.x; i < blocks; i += blockDim.x) {
        float *const x = y + i / columns * stride + i % columns * 32;
        switch (format) {
#define KV_ROW(name, NAME, KIND, ...) KV_BLOCK_CASE_##KIND(name, NAME)
            KV_FORMAT_TABLE(KV_ROW)
#undef KV_ROW
        default: __builtin_unreachable();
        }
    }
}

static_assert(KV_FORMAT_COUNT <= 64, "formats are bits of a word");
#define KV_ROW(name, NAME, KIND, ...)                                                              \
    +((uint64_t)(KV_KIND_##KIND == KV_KIND_BLOCK) << KV_FORMAT_##NAME)
static const uint64_t KV_BLOCK_FORMATS = 0 KV_FORMAT_TABLE(KV_ROW);
#undef KV_ROW

/* Numbers of a part's rows become what its format has of them. Between barriers, for threads of
 * block formats take numbers of others. */
template <bool IS_CODE>
static __device__ __forceinline__ void kv_part_format(float *y, const kv_decode_room &room,
                                                      const kv_cuda_scheme &s,
                                                      const kv_quantized &part)
{
    const uint32_t format = (uint32_t)s.format;
    __syncthreads();
    if (KV_BLOCK_FORMATS >> format & 1)
        kv_part_blocks<IS_CODE>(y, part.n, room.d, room.stride, format);
    else
        kv_part_grids<IS_CODE>(y, kv_part_scales_of(s, room, part), format, s.rule.is_asymmetric);
    __syncthreads();
}

/* ---- tiles ---- */

/* Loads tokens [first_token, first_token + count) of a head, x [T][D]: room.z has those that are
 * quantized, transformed; room.y the others, rounded to f16, and of the quantized ones what their
 * format sees, with zeros where outliers are kept. */
static __device__ __forceinline__ kv_quantized kv_tile_load(const kv_decode_room &room,
                                                            const float *x, const kv_cuda_scheme &s,
                                                            int64_t head, int64_t first_token,
                                                            int count)
{
    const kv_quantized part = kv_quantized_of(s, head, first_token, count);
    const int d = room.d, stride = room.stride;
    const float *const tile = x + first_token * d;
    float *const y = room.y + part.from * stride, *const z = room.z + part.from * stride;
    KV_FOR_ROWS(count, d)
    {
        const float number = tile[(int64_t)t * d + c];
        room.z[t * stride + c] = number;
        room.y[t * stride + c] = kv_half(number);
    }
    __syncthreads();
    kv_tile_apply(z, s, KV_TRANSFORM_COUNT, head, part.n, d, stride);
    KV_FOR_ROWS(part.n, d)
    {
        const float number = z[t * stride + c];
        const bool is_kept = s.keep_low && kv_is_kept(s, head, part.u + t, c, number);
        y[t * stride + c] = is_kept ? 0.0f : number;
    }
    return part;
}

/* room.y [count][stride] as the scheme gives tokens back; room.z is free after it. Ends with a
 * barrier. */
static __device__ __forceinline__ void kv_tile_decode(const kv_decode_room &room, const float *x,
                                                      const kv_cuda_scheme &s, int64_t head,
                                                      int64_t first_token, int count)
{
    const kv_quantized part = kv_tile_load(room, x, s, head, first_token, count);
    const int stride = room.stride;
    float *const y = room.y + part.from * stride;
    const float *const z = room.z + part.from * stride;
    kv_part_format<false>(y, room, s, part);
    if (s.keep_low) KV_FOR_ROWS(part.n, room.d)
        {
            const float number = z[t * stride + c];
            if (kv_is_kept(s, head, part.u + t, c, number)) y[t * stride + c] = kv_half(number);
        }
    kv_tile_undo(y, s, head, part.n, room.d, stride);
}

#endif
