/* Order statistics of magnitudes by counting: the bits of a magnitude order like its value, so
 * three histograms of 11, 10 and 10 bits, each within the bin that holds the wanted rank, give it
 * exactly in three passes without a copy. */
#include "kernels/cpu/magnitudes.h"

#include <math.h>
#include <string.h>

enum { FIRST_SHIFT = 2 * KV_NARROW_BITS, FIRST_BINS = 1 << (31 - FIRST_SHIFT), TABLES = 4 };

static uint32_t magnitude_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffffu;
}

static float magnitude_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The bin holding the rank; *rank becomes the rank within it. */
static uint32_t find_bin(const uint32_t *counts, int64_t *rank)
{
    uint32_t bin = 0;
    while (*rank >= counts[bin]) *rank -= counts[bin++];
    return bin;
}

/* Lengthens prefix, the bits above shift + KV_NARROW_BITS, down to those above shift. */
static uint32_t narrow(const kv_cpu_kernels *kernels, const float *x, int64_t n, uint32_t prefix,
                       int shift, int64_t *rank, int64_t *count)
{
    uint32_t counts[1 << KV_NARROW_BITS] = {0};
    uint32_t const first = prefix << (shift + KV_NARROW_BITS);
    uint32_t const last = first | ((1u << (shift + KV_NARROW_BITS)) - 1);
    float const above = first ? magnitude_of(first - 1) : -1.0f;
    kernels->count_magnitudes(counts, x, n, above, magnitude_of(last), shift);
    uint32_t const bin = find_bin(counts, rank);
    *count = counts[bin];
    return prefix << KV_NARROW_BITS | bin;
}

kv_magnitudes kv_magnitudes_of(const kv_cpu_kernels *kernels, const float *x, int64_t n)
{
    uint32_t counts[TABLES][FIRST_BINS] = {{0}}; /* several, so that equal neighbours do not wait */
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t const bits = magnitude_bits(x[i]);
        largest = bits > largest ? bits : largest;
        counts[i % TABLES][bits >> FIRST_SHIFT]++;
    }
    kv_magnitudes m = {.largest = (double)magnitude_of(largest), .not_finite = -1};
    if (!isfinite(m.largest)) {
        m.not_finite = 0;
        while (isfinite(x[m.not_finite])) m.not_finite++;
        return m;
    }
    for (int i = 0; i < FIRST_BINS; i++)
        for (int table = 1; table < TABLES; table++) counts[0][i] += counts[table][i];
    int64_t rank = (n - 1) / 2, count;
    uint32_t bits = find_bin(counts[0], &rank);
    bits = narrow(kernels, x, n, bits, KV_NARROW_BITS, &rank, &count);
    bits = narrow(kernels, x, n, bits, 0, &rank, &count);
    uint32_t upper = bits;
    if (n % 2 == 0 && rank + 1 >= count) { /* the next rank is the least magnitude above */
        upper = UINT32_MAX;
        for (int64_t i = 0; i < n; i++) {
            uint32_t const b = magnitude_bits(x[i]);
            if (b > bits && b < upper) upper = b;
        }
    }
    m.median = (double)magnitude_of(bits);
    if (n % 2 == 0) m.median = (m.median + (double)magnitude_of(upper)) / 2;
    return m;
}
