/* Order statistics of magnitudes by counting: the bits of a magnitude order like its value. A
 * sample says where the median will be; a pass counts what lies in that range by bins, and the bin
 * that holds the wanted rank is the next range, until it is one number. Exact without a copy: a
 * range that misses the rank is replaced by all numbers. */
#include "kernels/cpu/magnitudes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN UINT32_MAX
enum { SAMPLE = 1024, SPREAD = 80 }; /* 5 standard deviations of a sample's median rank */

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

static int ascending(const void *a, const void *b)
{
    uint32_t const x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

typedef struct {
    uint32_t first, last;
} range;

static range guess_median(const float *x, int64_t n, uint32_t largest)
{
    uint32_t sample[SAMPLE];
    if (n < 8 * SAMPLE) return (range){0, largest};
    int64_t const step = n / SAMPLE, shift = step < 64 ? step : 64; /* no channel is favoured */
    for (int64_t i = 0; i < SAMPLE; i++) sample[i] = magnitude_bits(x[step * i + i % shift]);
    qsort(sample, SAMPLE, sizeof sample[0], ascending);
    return (range){sample[SAMPLE / 2 - SPREAD], sample[SAMPLE / 2 + SPREAD]};
}

/* Bits of the magnitudes of this rank and of the next; next may be UNKNOWN. */
static range find_ranks(const kv_cpu_kernels *kernels, const float *x, int64_t n, int64_t rank,
                        range in, uint32_t largest)
{
    for (;;) {
        uint32_t bins[KV_MAGNITUDE_BINS] = {0};
        int shift = 0;
        while ((in.last - in.first) >> shift >= KV_MAGNITUDE_BINS) shift++;
        int64_t left = rank - kernels->count_magnitudes(bins, x, n, in.first, in.last, shift);
        uint32_t bin = 0;
        while (left >= 0 && bin < KV_MAGNITUDE_BINS && left >= bins[bin]) left -= bins[bin++];
        if (left < 0 || bin == KV_MAGNITUDE_BINS) {
            in = (range){0, largest};
            continue;
        }
        if (shift == 0) {
            uint32_t next = bin;
            bool const is_shared = left + 1 < bins[bin];
            while (!is_shared && ++next < KV_MAGNITUDE_BINS && bins[next] == 0) continue;
            return (range){in.first + bin, next < KV_MAGNITUDE_BINS ? in.first + next : UNKNOWN};
        }
        in.first += bin << shift;
        uint32_t width = 1u << shift; /* at least all bins, so that the next rank is seen too */
        if (width < KV_MAGNITUDE_BINS) width = KV_MAGNITUDE_BINS;
        in.last = largest - in.first < width ? largest : in.first + (width - 1);
    }
}

static uint32_t least_above(const float *x, int64_t n, uint32_t bits)
{
    uint32_t least = UNKNOWN;
    for (int64_t i = 0; i < n; i++) {
        uint32_t const b = magnitude_bits(x[i]);
        if (b > bits && b < least) least = b;
    }
    return least;
}

kv_magnitudes kv_magnitudes_of(const kv_cpu_kernels *kernels, const float *x, int64_t n)
{
    float const largest = kernels->largest_magnitude(x, n);
    kv_magnitudes m = {.largest = (double)largest, .not_finite = -1};
    if (!isfinite(largest)) {
        m.not_finite = 0;
        while (isfinite(x[m.not_finite])) m.not_finite++;
        return m;
    }
    uint32_t const most = magnitude_bits(largest);
    range middle = find_ranks(kernels, x, n, (n - 1) / 2, guess_median(x, n, most), most);
    if (n % 2 == 1)
        middle.last = middle.first;
    else if (middle.last == UNKNOWN)
        middle.last = least_above(x, n, middle.first);
    m.median = (magnitude_of(middle.first) + magnitude_of(middle.last)) / 2;
    return m;
}
