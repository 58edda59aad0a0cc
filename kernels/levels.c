/* Distinct codes per channel: see levels.h. */
#include "kernels/levels.h"

#include <stdlib.h>

#include "kernels/memory.h"

static int ascending(const void *a, const void *b)
{
    int64_t const x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t bits_set(const uint64_t *words, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        for (uint64_t left = words[i]; left; left &= left - 1) count++;
    return count;
}

int64_t kv_levels_words(int bits)
{
    return ((INT64_C(1) << bits) + 63) / 64;
}

kv_status kv_levels_median(double *out, const uint64_t *used, int64_t head_dim, int64_t words,
                           kv_error *err)
{
    int64_t *counts = NULL;
    kv_status const status = kv_allocate((void **)&counts, (size_t)head_dim, sizeof *counts, err);
    if (status != KV_OK) return status;
    for (int64_t c = 0; c < head_dim; c++) counts[c] = bits_set(used + c * words, words);
    qsort(counts, (size_t)head_dim, sizeof *counts, ascending);
    *out = (double)(counts[(head_dim - 1) / 2] + counts[head_dim / 2]) / 2;
    kv_free(counts);
    return KV_OK;
}
