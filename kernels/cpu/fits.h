/* Fits of an evaluation's quantizers: layer-wide ones over all heads before anything else (where
 * there are several), the others for one head at a time. */
#ifndef KVANT_KERNELS_CPU_FITS_H
#define KVANT_KERNELS_CPU_FITS_H

#include "kernels/backend.h"

/* The quantizers of one side, keys or values. */
typedef struct {
    const kv_quantizer *quantizers; /* [n] */
    int64_t n;
    bool is_key;
} kv_side;

/* Which tensor a quantizer of this side is fitted on. */
kv_tensor kv_side_tensor(const kv_side *side, int64_t scheme);

/* Fits the layer-wide quantizers of a side: fits [n] get theirs, others stay NULL. */
kv_status kv_fit_layer(kv_fit **fits, const kv_side *side, const kv_layer *layer, int threads,
                       kv_error *err);

/* Fits the quantizers of a side that are not layer-wide to one head: fits [n] get theirs, others
 * stay NULL. key [T][D] (or value), key_pre_rope may be NULL where no quantizer wants it. */
kv_status kv_fit_head(kv_fit **fits, const kv_side *side, const kv_layer *layer, int64_t head,
                      const float *x, const float *x_pre_rope, int threads, kv_error *err);

/* Frees all and sets them NULL. */
void kv_fits_free(kv_fit **fits, int64_t n);

/* Keeps the error of the lowest index of a parallel loop. Start as {.index = INT64_MAX}. */
typedef struct {
    int64_t index;
    kv_error error;
} kv_first_error;
void kv_first_error_keep(kv_first_error *first, int64_t index, const kv_error *error);
bool kv_first_error_before(kv_first_error *first, int64_t index);
kv_status kv_first_error_end(const kv_first_error *first, kv_error *err);

#endif
