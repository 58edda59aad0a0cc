/* A fitted quantizer as kernels read it; all pointers are device memory. What each stage does is
 * kernels/quantize.h's business: this is its settings and what was learnt, laid out for kernels.
 *
 * Tokens are counted from the first quantized one: u = t - first, u < span. Heads are those of the
 * wave that is on the device. */
#ifndef KVANT_KERNELS_CUDA_SCHEME_H
#define KVANT_KERNELS_CUDA_SCHEME_H

#include <stdint.h>

#include "kernels/scale.h"

/* Number of a scheme in a chunk: the tensor itself, not quantized. */
enum { KV_CUDA_EXACT = -1 };

typedef struct {
    int32_t format; /* kv_format_id */
    int32_t is_pre_rope;
    kv_scale_rule rule;  /* global is in *global */
    int64_t first, span; /* quantized tokens; the others are rounded to f16 */

    /* Tile of (head, u, c): head * head_tiles + (u / tile_tokens) * tile_columns + c /
     * tile_channels. head_tiles is 0 where tiles span heads. scale NULL: scale 1 everywhere. */
    int64_t tile_tokens, tile_channels, tile_columns, head_tiles;
    const float *scale, *minimum, *global;

    /* Kept outliers x <= low or x >= high of vector head * vectors + (by channel ? c : u); NULL for
     * none. */
    const float *keep_low, *keep_high;
    int64_t vectors;
    int32_t is_kept_by_channel;

    /* Transforms in the order they are applied; NULL or 0 where off. */
    const float *mean;     /* [heads][D] center */
    const float *divisor;  /* [heads][D] smooth */
    const float *signs;    /* [D] hadamard, +1 or -1 */
    int64_t hadamard;      /* its size */
    float hadamard_factor; /* float(1 / sqrt(size)) */
} kv_cuda_scheme;

#endif
