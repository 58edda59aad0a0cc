/* Largest and median magnitude of a tensor, exactly. */
#ifndef KVANT_KERNELS_CPU_MAGNITUDES_H
#define KVANT_KERNELS_CPU_MAGNITUDES_H

#include <stdbool.h>

#include "kernels/cpu/kernels.h"

typedef struct {
    double largest;
    double median;      /* numpy.median of |x|: the mean of the two middle ones of an even count */
    int64_t not_finite; /* index of the first NaN or Inf, or -1; then the rest is not set */
} kv_magnitudes;

kv_magnitudes kv_magnitudes_of(const kv_cpu_kernels *kernels, const float *x, int64_t n);

#endif
