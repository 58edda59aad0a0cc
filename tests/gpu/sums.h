/* For tests of kernels whose blocks add up: random numbers, and sums in the order of a block's
 * threads, to be compared bit by bit. */
#ifndef KVANT_TESTS_GPU_SUMS_H
#define KVANT_TESTS_GPU_SUMS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "tests/gpu/draws.h"

/* In (-1, 1). */
static inline float random_float(void)
{
    return (float)((int32_t)(random_word() % 0xffffff) - 0x7fffff) / 8388608.0f;
}

static inline bool is_same(double found, double expected)
{
    return isnan(expected) ? isnan(found) : memcmp(&found, &expected, sizeof found) == 0;
}

/* As a block of threads adds up: each thread every threads-th term, then threads pairwise. */
static inline double block_sum(const double *term, int64_t n, int threads)
{
    double sum[1024] = {0};
    for (int64_t i = 0; i < n; i++) sum[i % threads] += term[i];
    for (int half = threads / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) sum[i] += sum[i + half];
    return sum[0];
}

#endif
