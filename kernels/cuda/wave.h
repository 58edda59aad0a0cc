/* The heads that are on the device: several kv heads of a layer, one after the other in each
 * tensor. A layer too large for the memory passes in waves. */
#ifndef KVANT_KERNELS_CUDA_WAVE_H
#define KVANT_KERNELS_CUDA_WAVE_H

#include "kernels/backend.h"
#include "kernels/cuda/memory.h"

typedef struct {
    const kv_cuda_module *cuda;
    const kv_layer *layer;
    kv_cuda_memory memory;
    int64_t first, heads;              /* kv heads first ... first + heads - 1 */
    float *key, *key_pre_rope, *value; /* [heads][T][D]; NULL where not wanted */
    kv_cuda_rope rope;
    /* Of layers with a recipe: [tokens], and [G][D] of all kv heads. */
    double *gain[KV_RECIPE_TENSORS], *mean[KV_RECIPE_TENSORS], *spread[KV_RECIPE_TENSORS];
    uint32_t *flags; /* one word of device memory: what kernels met */
    float *host;     /* [T][D] on the host, for tensors that are loaded */
} kv_cuda_wave;

/* Memory for the tensors of up to `heads` heads, not filled, and what their making needs. Free with
 * kv_cuda_wave_free after success or failure. */
kv_status kv_cuda_wave_create(kv_cuda_wave *out, const kv_cuda_module *cuda, const kv_layer *layer,
                              int64_t heads, bool wants_pre_rope, kv_error *err);
void kv_cuda_wave_free(kv_cuda_wave *wave);

/* Moves the wave to heads first ... and makes or loads their tensors. */
kv_status kv_cuda_wave_load(kv_cuda_wave *wave, int64_t first, int64_t heads, kv_error *err);

/* One tensor of all heads of the wave into x [heads][T][D]; calibration as in kv_source. */
kv_status kv_cuda_wave_tensor(float *x, kv_cuda_wave *wave, kv_tensor tensor, int64_t calibration,
                              kv_error *err);

/* What kernels have flagged so far, 0 for nothing; waits for them. */
kv_status kv_cuda_wave_flags(uint32_t *flags, kv_cuda_wave *wave, kv_error *err);

#endif
