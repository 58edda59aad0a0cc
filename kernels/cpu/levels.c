/* key_levels of every key scheme of a head: see kernels/levels.h. */
#include <math.h>
#include <omp.h>

#include "kernels/cpu/work.h"
#include "kernels/format.h"
#include "kernels/levels.h"
#include "kernels/memory.h"

static kv_status levels_of(double *out, kv_cpu_work *w, int64_t scheme, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_cpu_plan *const plan = w->plan;
    const kv_layer *const layer = plan->layer;
    const kv_quantizer *const q = &plan->keys.quantizers[scheme];
    const kv_fit *const fit = kv_cpu_key_fit(w, scheme);
    int const bits = kv_format_at((size_t)q->format)->bits;
    int64_t const head_dim = layer->head_dim, words = kv_levels_words(bits % 32);
    uint64_t *used = NULL; /* [D][words] */
    uint32_t *codes = NULL;
    float *scratch = NULL;
    if (bits > KV_LEVELS_MOST_BITS) return KV_OK;
    KV_TRY(kv_allocate3((void **)&used, (size_t)head_dim, (size_t)words, 1, sizeof *used, err));
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
    KV_TRY(kv_levels_median(out, used, head_dim, words, err));
done:
    kv_free(used);
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
