/* Fits on the device: what kernels/quantize.h's kv_fit learns, learnt by kernels from the heads of
 * a wave, with equal bits.
 *
 * Passes over tensors are kernels; what follows from a few numbers per channel (a mean, a divisor,
 * signs) is the host's own code, run on statistics that kernels found. Numbers that must not be are
 * flags: the caller then lets the CPU say what and where. */
#ifndef KVANT_KERNELS_CUDA_FIT_H
#define KVANT_KERNELS_CUDA_FIT_H

#include "kernels/cuda/wave.h"
#include "kernels/quantize.h"

/* Fits q to a tensor of all heads of the wave; the scheme's arrays are taken from wave->memory.
 * *bits gets the stored bits of the wave's heads added. Flags go to wave->flags. */
kv_status kv_cuda_fit(kv_cuda_scheme *out, int64_t *bits, kv_cuda_wave *wave, const kv_quantizer *q,
                      kv_tensor tensor, kv_error *err);

/* Bytes of device memory that a fit of one head keeps, and that it needs while it runs. */
typedef struct {
    int64_t kept, working;
} kv_cuda_fit_bytes;
kv_cuda_fit_bytes kv_cuda_fit_size(const kv_layer *layer, const kv_quantizer *q);

#endif
