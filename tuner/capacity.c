/* Capacity: see capacity.h. Layers of equal geometry and quantizers are one class, so that a size
 * is a short sum. */
#include "tuner/capacity.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "kernels/memory.h"
#include "kernels/shorthand.h"
#include "kernels/text.h"
#include "sim/config.h"
#include "sim/data_files.h"
#include "tuner/capacity_parts.h"

/* ---- the model ---- */

static kv_status unknown_model(const char *name, const char *const *dirs, size_t n, kv_error *err)
{
    kv_data_names names = {0};
    kv_status status = kv_data_list(&names, "models", dirs, n, err);
    if (status != KV_OK) return status;
    const char *const near = kv_closest_name(name, (const char *const *)names.names, names.count);
    status = KV_FAIL(err, KV_EREQUEST,
                     "no such model \"%s\"%s%s%s; see `kvant list models`, or give a path with a /",
                     name, near ? ", did you mean \"" : "", near ? near : "", near ? "\"?" : "");
    kv_data_names_free(&names);
    return status;
}

/* Through a configuration that says nothing else, so that one reader knows models. */
static kv_status load_model(kv_config *config, const char *name, const kv_capacity_request *r,
                            kv_error *err)
{
    kv_status status = KV_OK;
    kv_text text = {0};
    char *path = NULL;
    bool const is_path = strchr(name, '/') != NULL;
    if (!is_path) KV_TRY(kv_data_find(&path, "models", name, r->data_dirs, r->n_data_dirs, err));
    if (!is_path && !path) KV_TRY(unknown_model(name, r->data_dirs, r->n_data_dirs, err));
    KV_TRY(kv_text_add(&text, err, "kvant: 1\nschemes: [f16]\nmodel: "));
    KV_TRY(kv_yaml_quote(&text, name, err));
    kv_config_sources const sources = {.data_dirs = r->data_dirs, .n_data_dirs = r->n_data_dirs};
    KV_TRY(kv_config_read(config, text.data, text.length, "--model", &sources, err));
done:
    kv_free(path);
    kv_text_free(&text);
    return status;
}

/* Without a model the policy must say itself what all layers are. */
static kv_status check_geometry(const kv_policy *policy, const kv_capacity_request *r,
                                kv_error *err)
{
    if (!r->policy) return KV_FAIL(err, KV_EREQUEST, "capacity needs --model");
    for (int64_t i = 0; i < policy->n_layers; i++) {
        const kv_policy_layer *const l = &policy->layers[i];
        const char *const about = "capacity needs --model: the policy names none";
        if (l->layer != i)
            return KV_FAIL(err, KV_EREQUEST, "%s and says nothing of layer %" PRId64, about, i);
        if (!l->kv_heads || !l->head_dim || l->window < 0)
            return KV_FAIL(err, KV_EREQUEST,
                           "%s, nor kv_heads, head_dim and window of layer %" PRId64, about, i);
    }
    return KV_OK;
}

/* One layer of the model; where there is none, of the policy. */
static kv_status find_heads(kv_heads_config *out, const kv_config *config, const kv_policy *policy,
                            int64_t number, kv_error *err)
{
    int64_t const index[KV_CONFIG_MAX_AXES] = {0};
    if (config) return kv_config_layer(out, config, index, number, err);
    const kv_policy_layer *const l = &policy->layers[number];
    *out = (kv_heads_config){.kv_heads = l->kv_heads, .head_dim = l->head_dim, .window = l->window};
    return KV_OK;
}

/* ---- schemes ---- */

static kv_status make_scheme(kv_scheme *out, const kv_policy *policy, const kv_capacity_request *r,
                             kv_error *err)
{
    kv_status status = KV_OK;
    kv_problems problems = {0};
    kv_yaml_node const place = {.file = r->policy ? r->policy : ""};
    if (!r->policy) return kv_scheme_find(out, r->scheme, r->data_dirs, r->n_data_dirs, err);
    const char *const name = *policy->title ? NULL : r->policy;
    KV_TRY(kv_scheme_from_policy(out, name, policy, &place, &problems, err));
    KV_TRY(kv_problems_raise(&problems, err));
done:
    return status;
}

/* A policy and its model must name the same layers. */
static kv_status check_layers(const kv_scheme *scheme, int64_t n_layers, const char *model,
                              kv_error *err)
{
    kv_status const status = kv_scheme_covers(scheme, NULL, n_layers, err);
    if (status != KV_OK || !scheme->layers) return status;
    int64_t const last = scheme->layers[scheme->n_layers - 1].layer;
    if (last < n_layers) return KV_OK;
    return KV_FAIL(err, KV_EREQUEST,
                   "\"%s\" names layer %" PRId64 ", but %s has the layers 0 to %" PRId64,
                   scheme->name, last, model, n_layers - 1);
}

/* ---- sizes ---- */

kv_status kv_capacity_class_bytes(int64_t *out, const kv_capacity_class *c, int64_t tokens,
                                  kv_error *err)
{
    int64_t key, value;
    kv_tensor_shape shape = {.heads = c->kv_heads,
                             .tokens = tokens,
                             .head_dim = c->head_dim,
                             .rotary_dim = c->rotary_dim,
                             .is_rope_interleaved = c->is_rope_interleaved};
    kv_status status = kv_quantizer_layer_bytes(&key, c->key, &shape, err);
    shape.rotary_dim = 0;
    if (status == KV_OK) status = kv_quantizer_layer_bytes(&value, c->value, &shape, err);
    if (status == KV_OK) *out = key + value; /* each below 2^61 */
    return status;
}

/* Of a sequence: within the layer's window. */
static kv_status cut_bytes(int64_t *out, const kv_capacity_class *c, int64_t tokens, kv_error *err)
{
    bool const is_cut = c->window && c->window < tokens;
    return kv_capacity_class_bytes(out, c, is_cut ? c->window : tokens, err);
}

static kv_status sequence_bytes(int64_t *out, const kv_capacity_model *m, int64_t tokens,
                                kv_error *err)
{
    kv_status status = KV_OK;
    int64_t sum = 0;
    for (int64_t i = 0; i < m->n_classes; i++) {
        int64_t bytes;
        if (m->has_pages)
            bytes = kv_capacity_pages_of(&m->pages, &m->classes[i], tokens) * m->pages.page_bytes;
        else
            KV_TRY(cut_bytes(&bytes, &m->classes[i], tokens, err));
        if (!kv_multiply_sizes(bytes, m->classes[i].count, &bytes) || bytes > INT64_MAX - sum)
            KV_TRY(KV_FAIL(err, KV_EREQUEST, "the cache's bytes do not fit into a 64-bit number"));
        sum += bytes;
    }
    *out = sum;
done:
    return status;
}

/* Sizes grow with the context but for what a flush turns from 16 bits into codes: those never grow
 * less than nothing over one period, so the least size within a period from here on is monotone. */
static kv_status least_bytes(int64_t *out, const kv_capacity_model *m, int64_t tokens,
                             kv_error *err)
{
    kv_status status = KV_OK;
    int64_t least = INT64_MAX, bytes;
    for (int64_t i = 0; i < m->period; i++) {
        KV_TRY(sequence_bytes(&bytes, m, tokens + i, err));
        if (bytes < least) least = bytes;
    }
    *out = least;
done:
    return status;
}

/* The longest sequence that fits: beyond it, none does. */
static kv_status find_longest(int64_t *out, const kv_capacity_model *m, int64_t room, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t low = 0, high = KV_CAPACITY_MAX_CONTEXT, bytes;
    KV_TRY(least_bytes(&bytes, m, high, err));
    if (bytes <= room) return *out = KV_CAPACITY_ENDLESS, KV_OK;
    while (high - low > 1) {
        int64_t const middle = low + (high - low) / 2;
        KV_TRY(least_bytes(&bytes, m, middle, err));
        *(bytes <= room ? &low : &high) = middle;
    }
    *out = low;
done:
    return status;
}

static kv_status find_side(kv_capacity_side *out, const kv_capacity_model *m, int64_t context,
                           int64_t room, kv_error *err)
{
    kv_status status = KV_OK;
    *out = (kv_capacity_side){.sequences = -1, .longest = -1};
    KV_TRY(sequence_bytes(&out->bytes, m, context, err));
    if (room >= 0) {
        out->sequences = room / out->bytes;
        KV_TRY(find_longest(&out->longest, m, room, err));
    }
    if (m->has_pages) kv_capacity_describe_pages(out, &m->pages);
done:
    return status;
}

/* ---- classes ---- */

static int64_t least_common_multiple(int64_t a, int64_t b)
{
    int64_t x = a, y = b;
    while (y) {
        int64_t const rest = x % y;
        x = y, y = rest;
    }
    return a / x * b;
}

static bool same_class(const kv_capacity_class *a, const kv_capacity_class *b)
{
    return a->kv_heads == b->kv_heads && a->head_dim == b->head_dim && a->window == b->window &&
           a->rotary_dim == b->rotary_dim && a->is_rope_interleaved == b->is_rope_interleaved &&
           strcmp(a->key_text, b->key_text) == 0 && strcmp(a->value_text, b->value_text) == 0;
}

/* Longest flushes in common up to which the longest sequence is exact. */
enum { MOST_PERIOD = 4096 };

static void add_class(kv_capacity_model *m, const kv_capacity_class *c)
{
    int64_t const flushes[] = {c->key->flush, c->value->flush};
    int64_t i = 0;
    while (i < m->n_classes && !same_class(&m->classes[i], c)) i++;
    if (i == m->n_classes) m->classes[m->n_classes++] = *c;
    m->classes[i].count++;
    for (int f = 0; f < 2; f++)
        if (flushes[f] > 1 && flushes[f] <= MOST_PERIOD) {
            int64_t const common = least_common_multiple(m->period, flushes[f]);
            m->period = common > MOST_PERIOD ? MOST_PERIOD : common;
        }
}

static kv_capacity_class class_of(const kv_heads_config *h, kv_scheme_pair pair)
{
    kv_tensor_shape const shape = kv_heads_config_shape(h);
    return (kv_capacity_class){.kv_heads = h->kv_heads,
                               .head_dim = h->head_dim,
                               .window = h->window,
                               .rotary_dim = shape.rotary_dim,
                               .is_rope_interleaved = shape.is_rope_interleaved,
                               .key = pair.key,
                               .value = pair.value,
                               .key_text = pair.key_text,
                               .value_text = pair.value_text};
}

static kv_status add_layer(kv_capacity *c, kv_capacity_model sides[2], const kv_heads_config *heads,
                           const kv_scheme *const schemes[2], int64_t number, kv_error *err)
{
    kv_status status = KV_OK;
    kv_capacity_layer *const layer = &c->layers[c->n_layers++];
    int64_t *const bytes[] = {&layer->bytes, &layer->f16_bytes};
    layer->kv_heads = heads->kv_heads, layer->head_dim = heads->head_dim;
    layer->window = heads->window;
    for (int side = 0; side < 2; side++) {
        kv_scheme_pair const pair = kv_scheme_at(schemes[side], number);
        kv_capacity_class const class = class_of(heads, pair);
        KV_TRY(cut_bytes(bytes[side], &class, c->context, err));
        add_class(&sides[side], &class);
        if (side) continue;
        KV_TRY(kv_duplicate(&layer->key, pair.key_text, err));
        KV_TRY(kv_duplicate(&layer->value, pair.value_text, err));
    }
done:
    if (status != KV_OK) kv_error_prepend(err, "layer %" PRId64, number);
    return status;
}

/* ---- the whole ---- */

static kv_status check_request(const kv_capacity_request *r, kv_error *err)
{
    if (!r->policy == !r->scheme)
        return KV_FAIL(err, KV_EREQUEST, "capacity needs --policy or --scheme%s",
                       r->policy ? ", not both" : "");
    if (r->context < 1 || r->context > KV_CAPACITY_MAX_CONTEXT)
        return KV_FAIL(err, KV_EREQUEST, "capacity needs --context, 1 to %d tokens",
                       KV_CAPACITY_MAX_CONTEXT);
    if (r->weights_gib > 0 && !(r->memory_gib > 0))
        return KV_FAIL(err, KV_EREQUEST, "--weights goes with --memory");
    if (r->memory_gib > 0 && r->weights_gib >= r->memory_gib)
        return KV_FAIL(err, KV_EREQUEST, "--weights %g GiB leave nothing of --memory %g GiB",
                       r->weights_gib, r->memory_gib);
    return KV_OK;
}

void kv_capacity_free_contents(kv_capacity *c)
{
    for (int64_t i = 0; i < c->n_layers; i++)
        kv_free(c->layers[i].key), kv_free(c->layers[i].value);
    kv_free(c->layers), kv_free(c->model), kv_free(c->scheme);
    *c = (kv_capacity){0};
}

kv_status kv_capacity_find(kv_capacity *out, const kv_capacity_request *r, kv_error *err)
{
    kv_status status = KV_OK;
    kv_capacity c = {.context = r->context, .cache_bytes = -1, .has_pages = r->has_pages};
    kv_capacity_model sides[2] = {{.period = 1}, {.period = 1}};
    kv_policy policy = {0};
    kv_config config = {0};
    kv_heads_config heads = {0};
    kv_scheme scheme = {0}, f16 = {0};
    KV_TRY(check_request(r, err));
    if (r->policy) KV_TRY(kv_policy_read(&policy, r->policy, err));
    const char *const model = r->model ? r->model : policy.model;
    if (model)
        KV_TRY(load_model(&config, model, r, err));
    else
        KV_TRY(check_geometry(&policy, r, err));
    KV_TRY(make_scheme(&scheme, &policy, r, err));
    KV_TRY(kv_scheme_make(&f16, NULL, "f16", "f16", err));
    int64_t const n = model ? config.heads.layers : policy.n_layers;
    KV_TRY(check_layers(&scheme, n, model, err));
    if (model) KV_TRY(kv_duplicate(&c.model, model, err));
    KV_TRY(kv_duplicate(&c.scheme, scheme.name, err));
    KV_TRY(kv_allocate((void **)&c.layers, (size_t)n, sizeof *c.layers, err));
    for (int s = 0; s < 2; s++)
        KV_TRY(kv_allocate((void **)&sides[s].classes, (size_t)n, sizeof *sides[s].classes, err));
    const kv_scheme *const schemes[2] = {&scheme, &f16};
    for (int64_t l = 0; l < n; l++) {
        kv_heads_config_free_contents(&heads);
        KV_TRY(find_heads(&heads, model ? &config : NULL, &policy, l, err));
        KV_TRY(add_layer(&c, sides, &heads, schemes, l, err));
    }
    if (r->memory_gib > 0) c.cache_bytes = (int64_t)((r->memory_gib - r->weights_gib) * 0x1p30);
    c.in_flight = r->in_flight ? r->in_flight : KV_CAPACITY_IN_FLIGHT;
    for (int s = 0; r->has_pages && s < 2; s++) {
        KV_TRY(kv_capacity_plan_pages(&sides[s], r->block ? r->block : KV_CAPACITY_BLOCK,
                                      c.in_flight, err));
    }
    KV_TRY(find_side(&c.scheme_side, &sides[0], c.context, c.cache_bytes, err));
    KV_TRY(find_side(&c.f16_side, &sides[1], c.context, c.cache_bytes, err));
    *out = c, c = (kv_capacity){0};
done:
    for (int s = 0; s < 2; s++) kv_free(sides[s].classes);
    kv_scheme_free_contents(&scheme), kv_scheme_free_contents(&f16);
    kv_config_free_contents(&config), kv_heads_config_free_contents(&heads);
    kv_policy_free_contents(&policy);
    kv_capacity_free_contents(&c);
    return status;
}
