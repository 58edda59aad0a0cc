/* Queries of a wave's heads: drawn, or loaded, and pulled on the device. */
#ifndef KVANT_KERNELS_CUDA_QUERIES_H
#define KVANT_KERNELS_CUDA_QUERIES_H

#include "kernels/cuda/wave.h"

/* The rows that the layer's source gives the wave's heads, into query [heads][R][D] on the device.
 * Keys are loaded. The wave's flags have KV_CUDA_UNREACHED where the source would refuse them. */
kv_status kv_cuda_queries(float *query, kv_cuda_wave *wave, kv_error *err);

/* Bytes of device memory that this takes for each kv head while it works. */
int64_t kv_cuda_queries_size(const kv_layer *layer);

#endif
