/* Order statistics of magnitudes by counting: the bits of a magnitude order like its value, so
 * three histograms of 11, 10 and 10 bits, each within the bin that holds the wanted rank, give it
 * exactly in three passes without a copy. */
#include "kernels/cpu/magnitudes.h"

#include <math.h>
#include <string.h>

enum { FIRST_BITS = 11, NEXT_BITS = 10, FIRST_BINS = 1 << FIRST_BITS, NEXT_BINS = 1 << NEXT_BITS };

static uint32_t magnitude_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffffu;
}

static double magnitude_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

/* The bin holding the rank; *rank becomes the rank within it. */
static uint32_t find_bin(const uint32_t *counts, int64_t *rank)
{
    uint32_t bin = 0;
    while (*rank >= counts[bin]) *rank -= counts[bin++];
    return bin;
}

/* Narrows prefix (the bits above `shift` + NEXT_BITS) by NEXT_BITS. */
static uint32_t narrow(const float *x, int64_t n, uint32_t prefix, int shift, int64_t *rank,
                       int64_t *count)
{
    uint32_t counts[NEXT_BINS] = {0};
    for (int64_t i = 0; i < n; i++) {
        uint32_t const bits = magnitude_bits(x[i]);
        if (bits >> (shift + NEXT_BITS) == prefix) counts[bits >> shift & (NEXT_BINS - 1)]++;
    }
    uint32_t const bin = find_bin(counts, rank);
    *count = counts[bin];
    return prefix << NEXT_BITS | bin;
}

kv_magnitudes kv_magnitudes_of(const float *x, int64_t n)
{
    uint32_t counts[2][FIRST_BINS] = {{0}}; /* two, so that equal neighbours do not wait */
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t const bits = magnitude_bits(x[i]);
        largest = bits > largest ? bits : largest;
        counts[i & 1][bits >> (31 - FIRST_BITS)]++;
    }
    kv_magnitudes m = {.largest = magnitude_of(largest), .not_finite = -1};
    if (!isfinite(m.largest)) {
        m.not_finite = 0;
        while (isfinite(x[m.not_finite])) m.not_finite++;
        return m;
    }
    for (int64_t i = 0; i < FIRST_BINS; i++) counts[0][i] += counts[1][i];
    int64_t rank = (n - 1) / 2, count;
    uint32_t bits = find_bin(counts[0], &rank);
    bits = narrow(x, n, bits, NEXT_BITS, &rank, &count);
    bits = narrow(x, n, bits, 0, &rank, &count);
    uint32_t upper = bits;
    if (n % 2 == 0 && rank + 1 >= count) { /* the next rank is the least magnitude above */
        upper = UINT32_MAX;
        for (int64_t i = 0; i < n; i++) {
            uint32_t const b = magnitude_bits(x[i]);
            if (b > bits && b < upper) upper = b;
        }
    }
    m.median = n % 2 ? magnitude_of(bits) : (magnitude_of(bits) + magnitude_of(upper)) / 2;
    return m;
}
