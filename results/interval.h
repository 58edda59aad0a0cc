/* Mean and 95 % interval over replicates (Student's t); NaN means "not there" and is left out. */
#ifndef KVANT_RESULTS_INTERVAL_H
#define KVANT_RESULTS_INTERVAL_H

#include <stdint.h>

/* mean is NaN for n = 0; low and high are NaN for n < 2. */
typedef struct {
    int64_t n;
    double mean, low, high;
} kv_interval;

/* values [count]: mean -+ t(0.975, n - 1) * s / sqrt(n), s with divisor n - 1. */
kv_interval kv_interval_of(const double *values, int64_t count);

/* The interval of a - b, [count] each, over the replicates that both have (the same heads). */
kv_interval kv_interval_of_difference(const double *a, const double *b, int64_t count);

#endif
