/* Numbers about the tensors of a wave, found by kernels; results [heads] of the host unless said.
 */
#ifndef KVANT_KERNELS_CUDA_STATISTICS_H
#define KVANT_KERNELS_CUDA_STATISTICS_H

#include "kernels/cuda/wave.h"

/* Sum of squares and largest magnitude of each head of a tensor of the wave; INFINITY where a
 * number is not finite. */
kv_status kv_cuda_squares_of(double *sum, float *absmax, kv_cuda_wave *wave, const float *x,
                             kv_error *err);

/* Starts the kernel on a->tiles: sets a's statistics, elements, work and parts, with arrays of the
 * wave's memory that the caller gives back. */
kv_status kv_cuda_start_select(kv_cuda_select *a, kv_cuda_wave *wave, kv_error *err);

/* The median of |x| (of an even count the mean of the two middle ones). */
kv_status kv_cuda_medians(double *median, kv_cuda_wave *wave, const float *x, kv_error *err);

/* How many codes a key scheme uses (kernels/levels.h); its format has at most KV_LEVELS_MOST_BITS
 * bits. */
kv_status kv_cuda_levels(double *levels, kv_cuda_wave *wave, const kv_cuda_scheme *scheme,
                         kv_error *err);

#endif
