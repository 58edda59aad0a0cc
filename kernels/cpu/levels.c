/* How many of a format's codes a key scheme really uses: per channel the number of distinct codes,
 * then the median over channels (numpy's: the mean of the two middle ones of an even count).
 * Elements kept at 16 bit have no code. Formats of more than 16 bits have no levels (NaN). */
#include <math.h>
#include <omp.h>
#include <stdlib.h>

#include "kernels/cpu/work.h"
#include "kernels/format.h"
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

static kv_status levels_of(double *out, kv_cpu_work *w, int64_t scheme, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_cpu_plan *const plan = w->plan;
    const kv_layer *const layer = plan->layer;
    const kv_quantizer *const q = &plan->keys.quantizers[scheme];
    const kv_fit *const fit = kv_cpu_key_fit(w, scheme);
    int const bits = kv_format_at((size_t)q->format)->bits;
    int64_t const head_dim = layer->head_dim, words = ((INT64_C(1) << bits % 32) + 63) / 64;
    uint64_t *used = NULL; /* [D][words] */
    int64_t *counts = NULL;
    uint32_t *codes = NULL;
    float *scratch = NULL;
    if (bits > 16) return KV_OK;
    KV_TRY(kv_allocate3((void **)&used, (size_t)head_dim, (size_t)words, 1, sizeof *used, err));
    KV_TRY(kv_allocate((void **)&counts, (size_t)head_dim, sizeof *counts, err));
    KV_TRY(kv_allocate3((void **)&codes, KV_TOKEN_TILE, (size_t)head_dim, 1, sizeof *codes, err));
    KV_TRY(kv_allocate((void **)&scratch, (size_t)kv_fit_scratch_floats(fit, KV_TOKEN_TILE),
                       sizeof *scratch, err));
    for (int64_t t = 0; t < layer->tokens; t += KV_TOKEN_TILE) {
        int64_t const count = layer->tokens - t < KV_TOKEN_TILE ? layer->tokens - t : KV_TOKEN_TILE;
        kv_fit_codes(fit, kv_cpu_fit_head(w, plan->layer_keys[scheme] != NULL),
                     q->is_pre_rope ? w->key_pre_rope : w->key, t, count, codes, scratch);
        for (int64_t i = 0; i < count * head_dim; i++) {
            uint32_t const code = codes[i];
            if (code == KV_CODE_KEPT) continue;
            uint32_t const folded = code & ((1u << bits) - 1);
            used[i % head_dim * words + folded / 64] |= UINT64_C(1) << folded % 64;
        }
    }
    for (int64_t c = 0; c < head_dim; c++) counts[c] = bits_set(used + c * words, words);
    qsort(counts, (size_t)head_dim, sizeof *counts, ascending);
    *out = (double)(counts[(head_dim - 1) / 2] + counts[head_dim / 2]) / 2;
done:
    kv_free(used);
    kv_free(counts);
    kv_free(codes);
    kv_free(scratch);
    return status;
}

kv_status kv_cpu_levels(kv_cpu_work *w, kv_error *err)
{
    kv_first_error first = {.index = INT64_MAX};
    int64_t const n_k = w->plan->keys.n;
#pragma omp parallel for num_threads(w->team) schedule(dynamic)
    for (int64_t scheme = 0; scheme < n_k; scheme++) {
        kv_error error = {0};
        if (levels_of(&w->plan->out->key_levels[w->head * n_k + scheme], w, scheme, &error) !=
            KV_OK)
            kv_first_error_keep(&first, scheme, &error);
    }
    return kv_first_error_end(&first, err);
}
