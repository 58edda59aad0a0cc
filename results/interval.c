/* Intervals: see interval.h. Sums run in the order of the values, in double. */
#include "results/interval.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <stddef.h>

static kv_interval interval(const double *a, const double *b, int64_t count)
{
    double const nan = (double)NAN;
    kv_interval result = {.mean = nan, .low = nan, .high = nan};
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < count; i++) {
        double const x = b ? a[i] - b[i] : a[i];
        if (!isnan(x)) result.n++, sum += x;
    }
    if (result.n == 0) return result;
    double const n = (double)result.n;
    result.mean = sum / n;
    if (result.n < 2) return result;
    for (int64_t i = 0; i < count; i++) {
        double const x = b ? a[i] - b[i] : a[i];
        if (!isnan(x)) squares += (x - result.mean) * (x - result.mean);
    }
    double const half = gsl_cdf_tdist_Pinv(0.975, n - 1) * sqrt(squares / (n - 1) / n);
    result.low = result.mean - half, result.high = result.mean + half;
    return result;
}

kv_interval kv_interval_of(const double *values, int64_t count)
{
    return interval(values, NULL, count);
}

kv_interval kv_interval_of_difference(const double *a, const double *b, int64_t count)
{
    return interval(a, b, count);
}
