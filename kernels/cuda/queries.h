/* Queries of a wave's heads: drawn, or loaded, and pulled on the device. */
#ifndef KVANT_KERNELS_CUDA_QUERIES_H
#define KVANT_KERNELS_CUDA_QUERIES_H

#include "kernels/cuda/wave.h"

/* The rows that the layer's source gives the wave's heads, into query [heads][R][D] on the device;
 * wave->key holds the keys. *are_reached becomes false where a target is out of reach, which the
 * source would refuse. */
kv_status kv_cuda_queries(float *query, bool *are_reached, kv_cuda_wave *wave, int threads,
                          kv_error *err);

/* Bytes of device memory that this takes for each kv head while it works. */
int64_t kv_cuda_queries_size(const kv_layer *layer);

#endif
