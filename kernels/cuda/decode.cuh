/* What a scheme makes of a tile of tokens, in shared memory: the dequantized values, bit for bit
 * those of kv_fit_decode (quantize_decode.c).
 *
 * Rows and channels belong to warps and lanes as in transform.cuh. Grids work element by element;
 * of formats that own blocks of 32 channels a thread takes a whole block: two loops over its
 * numbers, for the scale and for what is made of them. All is expanded over KV_FORMAT_TABLE: a new
 * format needs no edit here. */
#ifndef KVANT_KERNELS_CUDA_DECODE_CUH
#define KVANT_KERNELS_CUDA_DECODE_CUH

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
static inline __host__ __device__ int kv_tile_stride(int64_t head_dim)
{
    return (int)((head_dim + 3) / 4 | 1) * 4;
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
    int64_t from = s.first - first_token, end = from + s.span;
    from = from < 0 ? 0 : from < count ? from : count;
    end = end < from ? from : end < count ? end : count;
    const kv_quantized part = {head, first_token + from - s.first, (int)from, (int)(end - from)};
    return part;
}

/* The elements of a part that are this thread's. */
#define KV_FOR_PART(part, d)                                                                       \
    _Pragma("unroll 1") for (int t = threadIdx.x / KV_WARP; t < (part).n;                          \
                             t += blockDim.x / KV_WARP)                                            \
        _Pragma("unroll 1") for (int c = threadIdx.x % KV_WARP; c < (d); c += KV_WARP)

/* Whether element (u, c) is an outlier kept at f16. */
static __device__ __forceinline__ bool kv_is_kept(const kv_cuda_scheme &s, int64_t head, int64_t u,
                                                  int c, float z)
{
    const int64_t i = head * s.vectors + (s.is_kept_by_channel ? c : u);
    return z <= s.keep_low[i] || z >= s.keep_high[i];
}

/* What a grid needs to know of a part. Tokens and channels fit into 32 bits, which divide faster.
 */
typedef struct {
    const float *scale, *minimum; /* of the head */
    int64_t tile_columns;
    uint32_t u, tile_tokens, tile_channels;
    int n, d, stride;
    float limit;
} kv_part_scales;

static __device__ __forceinline__ kv_part_scales kv_part_scales_of(const kv_cuda_scheme &s,
                                                                   const kv_decode_room &room,
                                                                   const kv_quantized &part)
{
    const int64_t base = part.head * s.head_tiles;
    const kv_part_scales scales = {s.scale ? s.scale + base : NULL,
                                   s.minimum + base,
                                   s.tile_columns,
                                   (uint32_t)part.u,
                                   (uint32_t)s.tile_tokens,
                                   (uint32_t)s.tile_channels,
                                   part.n,
                                   room.d,
                                   room.stride,
                                   s.rule.limit};
    return scales;
}

/* out = function(z): a grid's value or code. z and out begin at the part's first row. Neither this
 * nor what takes blocks is inlined, so that formats do not get in each other's way. */
template <class T, T function(float, float, float, float, float)>
static __device__ __noinline__ void kv_part_grid(T *out, const float *z, const kv_part_scales p)
{
    KV_FOR_PART(p, p.d)
    {
        float scale = 1.0f, minimum = 0.0f;
        if (p.scale) {
            const uint32_t row = (p.u + t) / p.tile_tokens, column = c / p.tile_channels;
            scale = p.scale[row * p.tile_columns + column];
            minimum = p.minimum[row * p.tile_columns + column];
        }
        out[t * p.stride + c] =
            function(z[t * p.stride + c], scale, kv_int_inverse(scale), minimum, p.limit);
    }
}

/* What a block format makes of z; `through` makes 32 numbers of 32. It sees zeros where
 * outliers are kept: y, which out may be, has what it sees. */
template <class T, void through(T *, const float *, int32_t)>
static __device__ __forceinline__ void
kv_part_blocks(T *out, float *y, const float *z, const kv_decode_room &room,
               const kv_cuda_scheme &s, const kv_quantized &part)
{
    KV_FOR_PART(part, room.d)
    {
        const float x = z[t * room.stride + c];
        const bool is_kept = s.keep_low && kv_is_kept(s, part.head, part.u + t, c, x);
        y[t * room.stride + c] = is_kept ? 0.0f : x;
    }
    __syncthreads();
    const int columns = room.d / 32;
    for (int i = threadIdx.x; i < part.n * columns; i += blockDim.x) {
        const int at = i / columns * room.stride + i % columns * 32;
        through(out + at, y + at, s.format);
    }
    __syncthreads();
}

/* ---- by format ---- */

static __device__ __forceinline__ int kv_kind_of(int32_t format)
{
#define KV_ROW(name, NAME, KIND, ...) format == KV_FORMAT_##NAME ? KV_KIND_##KIND:
    return KV_FORMAT_TABLE(KV_ROW) KV_KIND_EXACT;
#undef KV_ROW
}

#define KV_NO_CASE(name, NAME)
#define KV_VALUES_EXACT   KV_NO_CASE
#define KV_VALUES_INTEGER KV_NO_CASE
#define KV_VALUES_FLOAT(name, NAME)                                                                \
    case KV_FORMAT_##NAME:                                                                         \
        kv_part_grid<float, kv_grid_##name##_value>(y, z, scales);                                 \
        break;
#define KV_VALUES_BLOCK KV_NO_CASE
static __device__ __forceinline__ void
kv_part_float_values(float *y, const float *z, const kv_part_scales &scales, int32_t format)
{
    switch (format) {
#define KV_ROW(name, NAME, KIND, ...) KV_VALUES_##KIND(name, NAME)
        KV_FORMAT_TABLE(KV_ROW)
#undef KV_ROW
    }
}

template <kv_block_scale scale(const float *), uint32_t code(float, kv_block_scale),
          float value(uint32_t, kv_block_scale)>
static __device__ __noinline__ void kv_block_values(float *y, const float *x)
{
    const kv_block_scale s = scale(x), stored = kv_block_stored(s);
#pragma unroll 1
    for (int i = 0; i < 32; i++) y[i] = value(code(x[i], s), stored);
}

#define KV_BLOCK_VALUES_EXACT   KV_NO_CASE
#define KV_BLOCK_VALUES_INTEGER KV_NO_CASE
#define KV_BLOCK_VALUES_FLOAT   KV_NO_CASE
#define KV_BLOCK_VALUES_BLOCK(name, NAME)                                                          \
    case KV_FORMAT_##NAME:                                                                         \
        kv_block_values<kv_##name##_scale, kv_##name##_code, kv_##name##_value>(y, x);             \
        break;
static __device__ __forceinline__ void kv_block_format_values(float *y, const float *x,
                                                              int32_t format)
{
    switch (format) {
#define KV_ROW(name, NAME, KIND, ...) KV_BLOCK_VALUES_##KIND(name, NAME)
        KV_FORMAT_TABLE(KV_ROW)
#undef KV_ROW
    }
}

/* y = the values of z before anything is undone. */
static __device__ __forceinline__ void kv_part_values(float *y, const float *z,
                                                      const kv_decode_room &room,
                                                      const kv_cuda_scheme &s,
                                                      const kv_quantized &part)
{
    const kv_part_scales scales = kv_part_scales_of(s, room, part);
    const int kind = kv_kind_of(s.format);
    if (kind == KV_KIND_EXACT) {
        KV_FOR_PART(part, room.d) y[t * room.stride + c] = z[t * room.stride + c];
    } else if (kind == KV_KIND_BLOCK) {
        kv_part_blocks<float, kv_block_format_values>(y, y, z, room, s, part);
    } else if (kind == KV_KIND_FLOAT) {
        kv_part_float_values(y, z, scales, s.format);
    } else if (s.rule.is_asymmetric) {
        kv_part_grid<float, kv_asymmetric_value>(y, z, scales);
    } else {
        kv_part_grid<float, kv_symmetric_value>(y, z, scales);
    }
}

/* ---- tiles ---- */

/* Loads tokens [first_token, first_token + count) of a head, x [T][D]: room.z has those that are
 * quantized, transformed, room.y the others, rounded to f16. Ends with a barrier. */
static __device__ __forceinline__ kv_quantized kv_tile_load(const kv_decode_room &room,
                                                            const float *x, const kv_cuda_scheme &s,
                                                            int64_t head, int64_t first_token,
                                                            int count)
{
    const kv_quantized part = kv_quantized_of(s, head, first_token, count);
    const int d = room.d, stride = room.stride;
    const float *const tile = x + first_token * d;
    float *const z = room.z + part.from * stride;
    KV_FOR_PART(part, d) z[t * stride + c] = tile[(int64_t)(part.from + t) * d + c];
    for (int t = threadIdx.x / KV_WARP; t < count; t += blockDim.x / KV_WARP)
        if (t < part.from || t >= part.from + part.n)
#pragma unroll 1
            for (int c = threadIdx.x % KV_WARP; c < d; c += KV_WARP)
                room.y[t * stride + c] = kv_f16_round(tile[(int64_t)t * d + c]);
    kv_tile_apply(z, s, KV_TRANSFORM_COUNT, head, part.n, d, stride);
    return part;
}

/* From transformed tokens to values: room.y. Ends with a barrier. */
static __device__ __forceinline__ void
kv_tile_values(const kv_decode_room &room, const kv_cuda_scheme &s, const kv_quantized &part)
{
    const int stride = room.stride;
    float *const y = room.y + part.from * stride;
    const float *const z = room.z + part.from * stride;
    kv_part_values(y, z, room, s, part);
    if (s.keep_low) KV_FOR_PART(part, room.d)
        {
            const float x = z[t * stride + c];
            if (kv_is_kept(s, part.head, part.u + t, c, x)) y[t * stride + c] = kv_f16_round(x);
        }
    kv_tile_undo(y, s, part.head, part.n, room.d, stride);
}

/* Both: room.y [count][stride] as the scheme gives tokens back; room.z is free after it. */
static __device__ __forceinline__ void kv_tile_decode(const kv_decode_room &room, const float *x,
                                                      const kv_cuda_scheme &s, int64_t head,
                                                      int64_t first_token, int count)
{
    kv_tile_values(room, s, kv_tile_load(room, x, s, head, first_token, count));
}

#endif
