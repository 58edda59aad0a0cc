/* A fit of the CPU as kernels read it: its settings and arrays, copied to device memory. */
#ifndef KVANT_TESTS_GPU_SCHEME_OF_FIT_H
#define KVANT_TESTS_GPU_SCHEME_OF_FIT_H

#include <math.h>

#include "kernels/quantize_fit.h"
#include "tests/gpu/kernels.h"

/* NULL stays NULL. */
static inline const float *floats_of_fit(emulated *e, const float *from, int64_t n)
{
    return from ? to_device(e, from, (size_t)n * sizeof *from) : NULL;
}

static inline kv_cuda_scheme scheme_of_fit(emulated *e, const kv_fit *fit)
{
    int64_t const heads = fit->shape.heads, d = fit->shape.head_dim;
    int64_t const tiles = fit->grid.rows * fit->grid.columns;
    int64_t const vectors = fit->vectors.rows * fit->vectors.columns;
    const kv_transform_setting *const hadamard = &fit->q.transforms[KV_TRANSFORM_HADAMARD];
    int64_t const size = hadamard->is_on ? kv_hadamard_size(hadamard, &fit->shape) : 0;
    const float *const signs = fit->transforms[KV_TRANSFORM_HADAMARD].channel;
    return (kv_cuda_scheme){
        .format = (int32_t)fit->q.format,
        .is_pre_rope = fit->q.is_pre_rope,
        .rule = kv_fit_scale_rule(fit),
        .first = fit->first,
        .span = fit->span,
        .tile_tokens = fit->grid.tokens,
        .tile_channels = fit->grid.channels,
        .tile_columns = fit->grid.columns,
        .head_tiles = fit->grid.heads == 1 ? 0 : tiles,
        .scale = floats_of_fit(e, fit->scale, fit->grid.heads * tiles),
        .minimum = floats_of_fit(e, fit->minimum, fit->grid.heads * tiles),
        .keep_low = floats_of_fit(e, fit->keep_low, heads * vectors),
        .keep_high = floats_of_fit(e, fit->keep_high, heads * vectors),
        .vectors = vectors,
        .is_kept_by_channel = kv_outliers_by_channel(&fit->vectors),
        .mean = floats_of_fit(e, fit->transforms[KV_TRANSFORM_CENTER].channel, heads * d),
        .divisor = floats_of_fit(e, fit->transforms[KV_TRANSFORM_SMOOTH].channel, heads * d),
        .signs = floats_of_fit(e, signs, d),
        .hadamard = size,
        .hadamard_factor = size > 0 ? (float)(1.0 / sqrt((double)size)) : 0.0f,
    };
}

#endif
