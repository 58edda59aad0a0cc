/* What a tuning chooses from: the layers, the candidates of both tensors, the bytes they store. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "kernels/memory.h"
#include "kernels/shorthand.h"
#include "results/provenance.h"
#include "tuner/tune_state.h"

/* Seeds are whole numbers that a double holds. */
#define SEED_MAX ((int64_t)1 << 53)

/* ---- candidates ---- */

static int64_t find_text(const kv_tune_side *side, const char *text)
{
    for (int64_t i = 0; i < side->n; i++)
        if (strcmp(side->texts[i], text) == 0) return i;
    return -1;
}

/* The index of a scheme, which is added where it is new. */
static kv_status add_scheme(int64_t *index, kv_tune_side *side, const kv_quantizer *quantizer,
                            const char *text, kv_error *err)
{
    *index = find_text(side, text);
    if (*index >= 0) return KV_OK;
    kv_status const status = kv_duplicate(&side->texts[side->n], text, err);
    if (status != KV_OK) return status;
    *index = side->n;
    side->quantizers[side->n++] = *quantizer;
    return KV_OK;
}

static kv_status allocate_side(kv_tune_side *side, int64_t most, kv_error *err)
{
    kv_status status = KV_OK;
    KV_TRY(kv_allocate((void **)&side->quantizers, (size_t)most, sizeof *side->quantizers, err));
    KV_TRY(kv_allocate((void **)&side->texts, (size_t)most, sizeof *side->texts, err));
done:
    return status;
}

static int64_t count_texts(const char *const *texts)
{
    int64_t n = 0;
    while (texts[n]) n++;
    return n;
}

static kv_status add_configured(kv_tuning *t, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_config *const c = t->config;
    KV_TRY(kv_allocate((void **)&t->pairs, (size_t)c->n_schemes, sizeof *t->pairs, err));
    for (int64_t i = 0; i < c->n_schemes; i++) {
        const kv_scheme *const s = &c->schemes[i];
        int64_t k, v;
        if (s->layers)
            KV_TRY(KV_FAIL(err, KV_EREQUEST,
                           "schemes: \"%s\" differs between layers, which is what a tuning "
                           "chooses; compare with it in a sweep",
                           s->name));
        KV_TRY(add_scheme(&k, &t->keys, &s->key, s->key_text, err));
        KV_TRY(add_scheme(&v, &t->values, &s->value, s->value_text, err));
        bool is_new = true;
        for (int64_t p = 0; p < t->n_pairs; p++)
            is_new &= t->pairs[p][0] != k || t->pairs[p][1] != v;
        if (!is_new) continue;
        t->pairs[t->n_pairs][0] = (int32_t)k, t->pairs[t->n_pairs][1] = (int32_t)v;
        t->n_pairs++;
    }
    if (t->n_pairs == t->keys.n * t->values.n) t->n_pairs = 0; /* all of them */
done:
    return status;
}

static kv_status stored_bytes(int64_t *bytes, const kv_tuning *t, const kv_quantizer *q,
                              const kv_layer *layer, bool is_key, kv_error *err)
{
    bool const is_cut = layer->window > 0 && layer->window < t->context;
    kv_tensor_shape const shape = {.heads = layer->kv_heads,
                                   .tokens = is_cut ? layer->window : t->context,
                                   .head_dim = layer->head_dim,
                                   .rotary_dim = is_key ? layer->rotary_dim : 0,
                                   .is_rope_interleaved = layer->is_rope_interleaved};
    return kv_quantizer_layer_bytes(bytes, q, &shape, err);
}

kv_status kv_tune_layer_heads(kv_heads **out, const kv_tuning *t, int64_t layer, int64_t seed,
                              kv_error *err)
{
    kv_status status = KV_OK;
    kv_heads_config settings = {0};
    int64_t const index[KV_CONFIG_MAX_AXES] = {0}, number = t->geometry[layer].number;
    KV_TRY(kv_config_layer(&settings, t->config, index, number, err));
    if (t->is_capture)
        KV_TRY(kv_heads_create(out, &settings, number, seed, err));
    else
        KV_TRY(kv_heads_create_decoding(out, &settings, number, seed, 1, err));
done:
    kv_heads_config_free_contents(&settings);
    return status;
}

/* A default that does not fit some layer is left out, with a note; anything else is an error. */
static kv_status add_defaults(kv_tuning *t, kv_tune_side *side, const char *const *texts,
                              bool is_key, kv_error *err)
{
    kv_status status = KV_OK;
    kv_heads *heads = NULL;
    for (int64_t i = 0; texts[i]; i++) {
        kv_quantizer q;
        kv_error why = {0};
        int64_t index, bytes;
        KV_TRY(kv_quantizer_parse(&q, texts[i], is_key, err));
        for (int64_t l = 0; l < t->layers && status == KV_OK; l++) {
            KV_TRY(kv_tune_layer_heads(&heads, t, l, t->search_seeds[0], err));
            status = stored_bytes(&bytes, t, &q, kv_heads_layer(heads), is_key, &why);
            kv_heads_free(heads), heads = NULL;
        }
        if (status == KV_EREQUEST) {
            KV_TRY(kv_text_add(&t->notes, err, "%s %s is not considered: %s\n",
                               is_key ? "key" : "value", texts[i], why.message));
            continue;
        }
        if (status != KV_OK) KV_TRY(KV_FAIL(err, status, "%s", why.message));
        KV_TRY(add_scheme(&index, side, &q, texts[i], err));
    }
done:
    kv_heads_free(heads);
    return status;
}

static kv_status find_match(kv_tuning *t, kv_error *err)
{
    kv_status status = KV_OK;
    kv_scheme scheme = {0};
    int64_t k, v;
    t->match[0] = t->match[1] = -1;
    if (t->budget.kind != KV_BUDGET_MATCH) return KV_OK;
    status = kv_scheme_find(&scheme, t->budget.match, t->settings->data_dirs,
                            t->settings->n_data_dirs, err);
    if (status != KV_OK) {
        kv_error_prepend(err, "tune.match");
        return status;
    }
    KV_TRY(add_scheme(&k, &t->keys, &scheme.key, scheme.key_text, err));
    KV_TRY(add_scheme(&v, &t->values, &scheme.value, scheme.value_text, err));
    t->match[0] = (int32_t)k, t->match[1] = (int32_t)v;
done:
    kv_scheme_free_contents(&scheme);
    return status;
}

static kv_status find_candidates(kv_tuning *t, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t const given = t->config->n_schemes;
    KV_TRY(allocate_side(&t->keys, (given ? given : count_texts(kv_tune_default_keys)) + 1, err));
    KV_TRY(
        allocate_side(&t->values, (given ? given : count_texts(kv_tune_default_values)) + 1, err));
    if (given)
        KV_TRY(add_configured(t, err));
    else {
        KV_TRY(add_defaults(t, &t->keys, kv_tune_default_keys, true, err));
        KV_TRY(add_defaults(t, &t->values, kv_tune_default_values, false, err));
    }
    t->keys.n_choices = t->keys.n, t->values.n_choices = t->values.n;
    KV_TRY(find_match(t, err));
done:
    return status;
}

/* ---- sizes ---- */

static kv_status size_side(kv_tune_side *side, const kv_tuning *t, bool is_key, kv_error *err)
{
    kv_status status = KV_OK;
    size_t const layers = (size_t)t->layers, n = (size_t)side->n;
    kv_heads *heads = NULL;
    KV_TRY(kv_allocate3((void **)&side->bytes, layers, n, 1, sizeof *side->bytes, err));
    KV_TRY(kv_allocate3((void **)&side->local, layers, n, 1, sizeof *side->local, err));
    KV_TRY(kv_allocate3((void **)&side->error, layers, n, 1, sizeof *side->error, err));
    KV_TRY(kv_allocate3((void **)&side->state, layers, n, 1, sizeof *side->state, err));
    for (int64_t l = 0; l < t->layers; l++) {
        KV_TRY(kv_tune_layer_heads(&heads, t, l, t->search_seeds[0], err));
        for (int64_t i = 0; i < side->n; i++) {
            status = stored_bytes(&side->bytes[l * side->n + i], t, &side->quantizers[i],
                                  kv_heads_layer(heads), is_key, err);
            if (status == KV_OK) continue;
            kv_error_prepend(err, "layer %" PRId64 ", %s %s", t->geometry[l].number,
                             is_key ? "key" : "value", side->texts[i]);
            goto done;
        }
        kv_heads_free(heads), heads = NULL;
    }
done:
    kv_heads_free(heads);
    return status;
}

static kv_status find_seeds(kv_tuning *t, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_int_list *const given = &t->config->heads.seeds;
    bool const is_double = t->settings->effort == KV_EFFORT_EXHAUSTIVE && !t->is_capture;
    int64_t next = 0;
    t->n_search = t->is_capture ? 1 : given->count, t->n_held_out = t->settings->held_out;
    t->n_further = is_double ? given->count : 0;
    KV_TRY(kv_allocate((void **)&t->search_seeds, (size_t)(t->n_search + t->n_further), sizeof next,
                       err));
    KV_TRY(kv_allocate((void **)&t->held_out_seeds, (size_t)t->n_held_out, sizeof next, err));
    for (int64_t i = 0; i < given->count; i++) {
        if (i < t->n_search) t->search_seeds[i] = given->items[i];
        if (given->items[i] >= next) next = given->items[i] + 1;
    }
    for (int64_t i = 0; i < t->n_held_out; i++) t->held_out_seeds[i] = next++;
    /* behind the held-out ones, which are so the same at every effort */
    for (int64_t i = 0; i < t->n_further; i++) t->search_seeds[t->n_search + i] = next++;
    if (next - 1 > SEED_MAX)
        KV_TRY(KV_FAIL(err, KV_EREQUEST,
                       "heads.seeds: the held-out seeds follow the largest search seed and end at "
                       "%" PRId64 "; at most %" PRId64 " is possible",
                       next - 1, SEED_MAX));
done:
    return status;
}

static kv_status find_geometry(kv_tuning *t, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t *numbers = NULL;
    kv_heads *heads = NULL;
    KV_TRY(kv_heads_layer_numbers(&numbers, &t->layers, &t->config->heads, err));
    size_t const n = (size_t)t->layers;
    KV_TRY(kv_allocate((void **)&t->geometry, n, sizeof *t->geometry, err));
    KV_TRY(kv_allocate((void **)&t->kv_heads, n, sizeof *t->kv_heads, err));
    KV_TRY(kv_allocate((void **)&t->head_dims, n, sizeof *t->head_dims, err));
    KV_TRY(kv_allocate((void **)&t->windows, n, sizeof *t->windows, err));
    int64_t tokens = 0;
    for (int64_t l = 0; l < t->layers; l++) {
        t->geometry[l].number = numbers[l];
        KV_TRY(kv_tune_layer_heads(&heads, t, l, t->search_seeds[0], err));
        const kv_layer *const from = kv_heads_layer(heads);
        t->geometry[l] = (kv_stack_layer){numbers[l],   from->kv_heads, from->query_heads,
                                          from->tokens, from->head_dim, from->window};
        t->kv_heads[l] = from->kv_heads, t->head_dims[l] = from->head_dim;
        t->windows[l] = from->window;
        if (from->tokens > tokens) tokens = from->tokens;
        kv_heads_free(heads), heads = NULL;
    }
    t->context = t->settings->context ? t->settings->context : tokens;
done:
    kv_heads_free(heads);
    kv_free(numbers);
    return status;
}

/* Everything a measurement depends on but its seed and assignment. */
static kv_status find_identity(kv_tuning *t, kv_error *err)
{
    kv_status status = KV_OK;
    kv_text text = {0};
    char *config = NULL;
    kv_config only_heads = *t->config; /* borrows all of it */
    only_heads.title = NULL, only_heads.model = NULL;
    only_heads.n_schemes = 0, only_heads.n_metrics = 0, only_heads.baseline = -1;
    only_heads.heads.seeds = (kv_int_list){0};
    KV_TRY(kv_config_text(&config, &only_heads, err));
    KV_TRY(kv_text_add(&text, err, "kvant %s %s %d\nbackend %s\nstreams %" PRId64 "\n%s",
                       kv_this_build.version, kv_this_build.git_revision, kv_this_build.git_dirty,
                       t->environment.backend->name, t->settings->streams, config));
    t->identity = kv_text_take(&text);
done:
    kv_text_free(&text);
    kv_free(config);
    return status;
}

kv_status kv_tune_layers_create(kv_tuning *t, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t const index[KV_CONFIG_MAX_AXES] = {0};
    if (t->config->n_axes)
        return KV_FAIL(err, KV_EREQUEST,
                       "sweep: a tuning is of one point; run one for each value with --set");
    KV_TRY(find_seeds(t, err));
    KV_TRY(find_geometry(t, err));
    KV_TRY(find_candidates(t, err));
    KV_TRY(size_side(&t->keys, t, true, err));
    KV_TRY(size_side(&t->values, t, false, err));
    KV_TRY(find_identity(t, err));
    if (!t->is_capture) KV_TRY(kv_stack_pulls_create(&t->pulls, err));
    if (!t->is_capture)
        KV_TRY(kv_stack_create(&t->stack, t->config, index, t->settings->streams, err));
done:
    return status;
}

static void free_side(kv_tune_side *side)
{
    for (int64_t i = 0; i < side->n; i++) kv_free(side->texts[i]);
    kv_free(side->texts), kv_free(side->quantizers), kv_free(side->bytes);
    kv_free(side->local), kv_free(side->error), kv_free(side->state);
}

void kv_tune_layers_free(kv_tuning *t)
{
    free_side(&t->keys), free_side(&t->values);
    kv_free(t->pairs), kv_free(t->geometry), kv_free(t->kv_heads), kv_free(t->head_dims);
    kv_free(t->windows), kv_free(t->key_absmax), kv_free(t->value_absmax);
    kv_free(t->search_seeds), kv_free(t->held_out_seeds), kv_free(t->identity);
    kv_text_free(&t->notes);
    kv_stack_free(t->stack);
    kv_stack_pulls_free(t->pulls);
}

/* ---- maxima ---- */

/* max |x| of a tensor over all kv heads; heads are independent. */
static kv_status absmax_of(double *out, const kv_layer *layer, kv_tensor tensor, int threads,
                           kv_error *err)
{
    int64_t const n = layer->tokens * layer->head_dim;
    kv_status result = KV_OK;
    double most = 0;
    kv_error first = {0};
#pragma omp parallel for schedule(dynamic) num_threads(threads) reduction(max : most)
    for (int64_t g = 0; g < layer->kv_heads; g++) {
        void *x = NULL;
        kv_error own = {0};
        kv_status status = kv_allocate3_unset(&x, (size_t)n, 1, 1, sizeof(float), &own);
        if (status == KV_OK)
            status = layer->source.load(layer->source.context, tensor, g, 0, x, &own);
        for (int64_t i = 0; status == KV_OK && i < n; i++) {
            double const a = fabs((double)((const float *)x)[i]);
            if (a > most) most = a;
        }
        kv_free(x);
        if (status == KV_OK) continue;
#pragma omp critical(kv_tune_absmax)
        result = status, first = own;
    }
    if (result != KV_OK && err && err->status == KV_OK) *err = first;
    if (result == KV_OK) *out = most;
    return result;
}

kv_status kv_tune_find_absmax(kv_tuning *t, kv_error *err)
{
    kv_status status = KV_OK;
    kv_heads *heads = NULL;
    int const threads = t->environment.threads > 1 ? t->environment.threads : 1;
    if (t->key_absmax) return KV_OK;
    void *key = NULL, *value = NULL;
    KV_TRY(kv_allocate(&key, (size_t)t->layers, sizeof(double), err));
    KV_TRY(kv_allocate(&value, (size_t)t->layers, sizeof(double), err));
    for (int64_t l = 0; l < t->layers; l++) {
        KV_TRY(kv_tune_check_cancelled(t, err));
        KV_TRY(kv_tune_layer_heads(&heads, t, l, t->search_seeds[0], err));
        const kv_layer *const layer = kv_heads_layer(heads);
        KV_TRY(absmax_of((double *)key + l, layer, KV_KEY, threads, err));
        KV_TRY(absmax_of((double *)value + l, layer, KV_VALUE, threads, err));
        kv_heads_free(heads), heads = NULL;
    }
    t->key_absmax = key, t->value_absmax = value, key = value = NULL;
done:
    kv_heads_free(heads);
    kv_free(key), kv_free(value);
    return status;
}
