/* Which quantizers a sweep evaluates at which layer. All distinct ones of the sweep are numbered
 * once; a plan is what one layer needs of them, numbered for itself, so that a layer evaluates
 * nothing that no scheme uses there. Quantizers are the same where their canonical texts are. */
#include <string.h>

#include "kernels/memory.h"
#include "sim/sweep_state.h"

/* The index of text among the first n of texts, n where it is new. */
static int64_t index_of(const char *text, const char *const *texts, int64_t n)
{
    int64_t i = 0;
    while (i < n && strcmp(texts[i], text) != 0) i++;
    return i;
}

/* Distinct quantizers with their texts, which belong to the schemes. */
typedef struct {
    int64_t count;
    size_t room_texts, room;
    const char **texts;
    kv_quantizer *quantizers;
} distinct;

static kv_status add(int64_t *index, distinct *d, const char *text, const kv_quantizer *q,
                     kv_error *err)
{
    kv_status status = KV_OK;
    size_t const n = (size_t)d->count;
    *index = index_of(text, d->texts, d->count);
    if (*index < d->count) return KV_OK;
    KV_TRY(kv_grow((void **)&d->texts, &d->room_texts, n, n + 1, sizeof *d->texts, err));
    KV_TRY(kv_grow((void **)&d->quantizers, &d->room, n, n + 1, sizeof *q, err));
    d->texts[n] = text, d->quantizers[n] = *q;
    d->count++;
done:
    return status;
}

static kv_status find_pairs(kv_sweep *s, distinct *keys, distinct *values, kv_error *err)
{
    kv_status status = KV_OK;
    for (int64_t plan = 0; plan < s->n_plans; plan++)
        for (int64_t c = 0; c < s->config->n_schemes; c++) {
            kv_scheme_pair const q =
                kv_scheme_at(&s->config->schemes[c], s->n_layers ? s->layers[plan] : 0);
            int64_t *const pair = s->pairs[plan * s->config->n_schemes + c];
            KV_TRY(add(&pair[0], keys, q.key_text, q.key, err));
            KV_TRY(add(&pair[1], values, q.value_text, q.value, err));
        }
done:
    return status;
}

/* The number of `global` within a plan: its place in local, added where it is new. */
static int64_t localize(int64_t *local, int64_t *n, int64_t global)
{
    int64_t i = 0;
    while (i < *n && local[i] != global) i++;
    if (i == *n) local[(*n)++] = global;
    return i;
}

static kv_status gather(kv_quantizer **out, const kv_quantizer *all, const int64_t *local,
                        int64_t n, kv_error *err)
{
    kv_status const status = kv_allocate((void **)out, (size_t)n, sizeof **out, err);
    for (int64_t i = 0; status == KV_OK && i < n; i++) (*out)[i] = all[local[i]];
    return status;
}

static kv_status make_plan(kv_sweep_plan *p, const kv_sweep *s, const int64_t (*pairs)[2],
                           kv_error *err)
{
    kv_status status = KV_OK;
    size_t const n = (size_t)s->config->n_schemes;
    int64_t *keys = NULL, *values = NULL;
    KV_TRY(kv_allocate((void **)&keys, n, sizeof *keys, err));
    KV_TRY(kv_allocate((void **)&values, n, sizeof *values, err));
    KV_TRY(kv_allocate((void **)&p->pairs, n, sizeof *p->pairs, err));
    KV_TRY(kv_allocate((void **)&p->pair_of, n, sizeof *p->pair_of, err));
    for (size_t c = 0; c < n; c++) {
        int64_t const k = localize(keys, &p->n_keys, pairs[c][0]);
        int64_t const v = localize(values, &p->n_values, pairs[c][1]);
        int64_t i = 0;
        while (i < p->n_pairs && (p->pairs[i][0] != k || p->pairs[i][1] != v)) i++;
        if (i == p->n_pairs) p->pairs[i][0] = k, p->pairs[i][1] = v, p->n_pairs++;
        p->pair_of[c] = i;
    }
    KV_TRY(gather(&p->keys, s->keys, keys, p->n_keys, err));
    KV_TRY(gather(&p->values, s->values, values, p->n_values, err));
done:
    kv_free(keys), kv_free(values);
    return status;
}

kv_status kv_sweep_make_plans(kv_sweep *s, kv_error *err)
{
    kv_status status = KV_OK;
    distinct keys = {0}, values = {0};
    int64_t const n = s->config->n_schemes;
    s->n_plans = 1;
    for (int64_t c = 0; c < n; c++) {
        KV_TRY(kv_scheme_covers(&s->config->schemes[c], s->layers, s->n_layers, err));
        if (s->config->schemes[c].layers) s->n_plans = s->n_layers;
    }
    KV_TRY(
        kv_allocate3((void **)&s->pairs, (size_t)s->n_plans, (size_t)n, 1, sizeof *s->pairs, err));
    KV_TRY(kv_allocate((void **)&s->plans, (size_t)s->n_plans, sizeof *s->plans, err));
    KV_TRY(find_pairs(s, &keys, &values, err));
    s->keys = keys.quantizers, s->n_keys = keys.count, keys.quantizers = NULL;
    s->values = values.quantizers, s->n_values = values.count, values.quantizers = NULL;
    for (int64_t plan = 0; plan < s->n_plans; plan++)
        KV_TRY(make_plan(&s->plans[plan], s, (const int64_t(*)[2])s->pairs + plan * n, err));
done:
    kv_free(keys.texts), kv_free(keys.quantizers);
    kv_free(values.texts), kv_free(values.quantizers);
    return status;
}

void kv_sweep_free_plans(kv_sweep *s)
{
    for (int64_t i = 0; s->plans && i < s->n_plans; i++) {
        kv_sweep_plan *const p = &s->plans[i];
        kv_free(p->keys), kv_free(p->values), kv_free(p->pairs), kv_free(p->pair_of);
    }
    kv_free(s->plans), kv_free(s->keys), kv_free(s->values), kv_free(s->pairs);
}

const kv_sweep_plan *kv_sweep_plan_of(const kv_sweep *s, int64_t layer)
{
    return &s->plans[s->n_plans == 1 ? 0 : layer];
}

const int64_t *kv_sweep_pair(const kv_sweep *s, int64_t layer, int64_t scheme)
{
    return s->pairs[(s->n_plans == 1 ? 0 : layer) * s->config->n_schemes + scheme];
}
