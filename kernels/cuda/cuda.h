/* The CUDA backend: see kernels/backend.h for what it computes.
 *
 * Tensors are made (or captures uploaded) once per evaluation, scales are found by kernels, and all
 * schemes of a group are decoded from one reading of the keys or values; rows of logits are kept
 * whole, as on the CPU, since total variation and top-k need them. Codes, scales, dequantized
 * values, logits and weights are the CPU's bits, and so are outputs over up to KV_CUDA_SPLIT tokens
 * (plan.h); sums in double differ in their order. Where a number is not finite or does not fit its
 * storage, or a query's target is out of reach, the CPU is asked, so that both say the same.
 *
 * One evaluation at a time is on the device; callers of other threads wait. `threads` are the
 * host's, for its part. The kernels are a module of their own (device.h), found by load.h. */
#ifndef KVANT_KERNELS_CUDA_CUDA_H
#define KVANT_KERNELS_CUDA_CUDA_H

#include "kernels/backend.h"

KV_EXTERN_C_BEGIN

/* kv_backend.unavailable: NULL where the module and a device are there, else the reason. */
const char *kv_cuda_unavailable(void);
/* kv_backend.device: the name of the device in use. */
const char *kv_cuda_device_name(void);
/* kv_backend.choose: takes this device instead of the first (or the one of this MPI rank). */
kv_status kv_cuda_choose(int device, kv_error *err);

/* kv_backend.evaluate and kv_backend.attend. */
kv_status kv_cuda_evaluate(const kv_layer *layer, const kv_evaluation *evaluation, int threads,
                           kv_measurements *out, kv_error *err);
kv_status kv_cuda_attend(const kv_layer *layer, const kv_attention *attention, int threads,
                         float *out, kv_error *err);

/* The same with chosen extents, for tests: memory to plan with, heads of a wave, query rows of a
 * block, key schemes of a group, tokens of a split (a multiple of 256). 0 lets the backend choose.
 * Only split_tokens changes bits: those of outputs. */
typedef struct {
    int64_t free_bytes, heads, rows, group, split_tokens;
} kv_cuda_options;
kv_status kv_cuda_evaluate_with(const kv_cuda_options *options, const kv_layer *layer,
                                const kv_evaluation *evaluation, int threads, kv_measurements *out,
                                kv_error *err);
kv_status kv_cuda_attend_with(const kv_cuda_options *options, const kv_layer *layer,
                              const kv_attention *attention, int threads, float *out,
                              kv_error *err);

KV_EXTERN_C_END

#endif
