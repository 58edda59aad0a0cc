/* Which of an engine's types a scheme of the problem is.
 *
 * A scheme's shorthand, with the settings that the type leaves open set to one value, is compared
 * with the type's own shorthands as canonical texts; then the engine may object for this layer
 * (head_dim, window). A scheme that is no shorthand, from a table measured elsewhere, is the type
 * whose words it is: it was measured in the engine itself, so that kvant need not simulate it. */
#include <inttypes.h>
#include <string.h>

#include "kernels/memory.h"
#include "kernels/shorthand.h"
#include "tuner/engine_state.h"

/* The settings that are left open, set to one value each. */
static void close_settings(kv_quantizer *q, unsigned open)
{
    bool const is_16_bit = q->scale_storage == KV_SCALE_F16 || q->scale_storage == KV_SCALE_BF16;
    if (open & KV_OPEN_STATIC) q->static_tokens = q->static_seeds = 0;
    if ((open & KV_OPEN_SCALE) && is_16_bit) q->scale_storage = KV_SCALE_F32;
    if (open & KV_OPEN_FLUSH) q->flush = 0;
    if ((open & KV_OPEN_GROUP) && q->tile == KV_TILE_BLOCK && q->tile_tokens == 1)
        q->tile_channels = 64;
    if ((open & KV_OPEN_ROTATION) && !q->transforms[KV_TRANSFORM_HADAMARD].has_signs)
        q->transforms[KV_TRANSFORM_HADAMARD].value = 0;
}

/* Whether a type lists a scheme (already parsed). */
static kv_status lists(bool *out, const kv_engine_type *type, const kv_quantizer *scheme,
                       bool is_key, kv_error *err)
{
    kv_status status = KV_OK;
    const char *const *const own = is_key || !type->value[0] ? type->key : type->value;
    char *text = NULL, *own_text = NULL;
    kv_quantizer closed = *scheme;
    *out = false;
    close_settings(&closed, type->open);
    KV_TRY(kv_quantizer_text(&text, &closed, err));
    for (size_t i = 0; own[i] && !*out; i++) {
        kv_quantizer q;
        KV_TRY(kv_quantizer_parse(&q, own[i], is_key, err));
        close_settings(&q, type->open);
        kv_free(own_text), own_text = NULL;
        KV_TRY(kv_quantizer_text(&own_text, &q, err));
        *out = strcmp(text, own_text) == 0;
    }
done:
    kv_free(text), kv_free(own_text);
    return status;
}

/* One tensor: parses its schemes and finds their rows in every layer. */
static kv_status match_side(kv_engine_match *m, uint32_t *masks, kv_quantizer *schemes,
                            bool *is_known, bool is_key, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_engine *const e = m->engine;
    const kv_problem_side *const side = is_key ? &m->problem->keys : &m->problem->values;
    for (int64_t s = 0; s < side->n; s++) {
        kv_error ignored = {0};
        is_known[s] = kv_quantizer_parse(&schemes[s], side->schemes[s], is_key, &ignored) == KV_OK;
        if (!is_known[s] && ignored.status == KV_ENOMEM)
            KV_TRY(KV_FAIL(err, KV_ENOMEM, "%s", ignored.message));
        for (size_t t = 0; t < e->n_types; t++) {
            bool is_listed = strcmp(side->schemes[s], e->types[t].words) == 0;
            if (is_known[s]) KV_TRY(lists(&is_listed, &e->types[t], &schemes[s], is_key, err));
            for (int64_t l = 0; is_listed && l < m->problem->n_layers; l++) {
                int64_t const number = m->problem->layers[l].number;
                bool const is_unfit =
                    is_known[s] && e->unfit &&
                    e->unfit(&e->types[t], &schemes[s], is_key, m->policy, number);
                if (!is_unfit) masks[l * side->n + s] |= UINT32_C(1) << t;
            }
        }
    }
done:
    return status;
}

kv_status kv_engine_match_create(kv_engine_match *out, const kv_engine *engine,
                                 const kv_problem *problem, const kv_policy *policy, kv_error *err)
{
    kv_status status = KV_OK;
    kv_engine_match m = {.engine = engine, .problem = problem, .policy = policy};
    size_t const layers = (size_t)problem->n_layers;
    size_t const n_keys = (size_t)problem->keys.n, n_values = (size_t)problem->values.n;
    KV_TRY(kv_allocate3((void **)&m.keys, layers, n_keys, 1, sizeof *m.keys, err));
    KV_TRY(kv_allocate3((void **)&m.values, layers, n_values, 1, sizeof *m.values, err));
    KV_TRY(kv_allocate((void **)&m.key_schemes, n_keys, sizeof *m.key_schemes, err));
    KV_TRY(kv_allocate((void **)&m.value_schemes, n_values, sizeof *m.value_schemes, err));
    KV_TRY(kv_allocate((void **)&m.is_key_known, n_keys, sizeof(bool), err));
    KV_TRY(kv_allocate((void **)&m.is_value_known, n_values, sizeof(bool), err));
    KV_TRY(match_side(&m, m.keys, m.key_schemes, m.is_key_known, true, err));
    KV_TRY(match_side(&m, m.values, m.value_schemes, m.is_value_known, false, err));
    *out = m, m = (kv_engine_match){0};
done:
    kv_engine_match_free_contents(&m);
    return status;
}

void kv_engine_match_free_contents(kv_engine_match *match)
{
    kv_free(match->keys), kv_free(match->values);
    kv_free(match->key_schemes), kv_free(match->value_schemes);
    kv_free(match->is_key_known), kv_free(match->is_value_known);
    *match = (kv_engine_match){0};
}

static bool is_crossed(const kv_engine *e, int key, int value)
{
    if (e->is_tied && key != value) return true;
    int const a = e->types[key].mode, b = e->types[value].mode;
    return !e->is_mode_per_tensor && a && b && a != b;
}

bool kv_engine_pair_fits(const kv_engine_match *match, const kv_choice *choice, int key, int value)
{
    const kv_engine *const e = match->engine;
    if (is_crossed(e, key, value)) return false;
    if (!e->unfit_pair || !match->is_key_known[choice->key] ||
        !match->is_value_known[choice->value])
        return true;
    return !e->unfit_pair(&match->key_schemes[choice->key], &match->value_schemes[choice->value]);
}

/* ---- why not ---- */

static uint32_t all_of(const uint32_t *masks, int64_t n)
{
    uint32_t all = 0;
    for (int64_t i = 0; i < n; i++) all |= masks[i];
    return all;
}

kv_status kv_engine_add_absent(kv_text *text, const kv_engine_match *m, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t const layers = m->problem->n_layers;
    uint32_t const found = all_of(m->keys, layers * m->problem->keys.n) &
                           all_of(m->values, layers * m->problem->values.n);
    for (size_t t = 0; t < m->engine->n_types; t++) {
        const kv_engine_type *const type = &m->engine->types[t];
        if (type->refusal || type->is_native || found >> t & 1) continue;
        KV_TRY(kv_text_add(text, err, "%s%s (%s%s%s)", text->length ? ", " : "", type->words,
                           type->key[0], type->value[0] ? " | " : "",
                           type->value[0] ? type->value[0] : ""));
    }
done:
    return status;
}

/* The words of all types that kvant can simulate, or refused rows for a scheme of that name. */
static kv_status add_types(kv_text *text, const kv_engine *e, kv_error *err)
{
    kv_status status = KV_OK;
    bool is_first = true;
    for (size_t t = 0; t < e->n_types; t++) {
        const kv_engine_type *const type = &e->types[t];
        bool const is_split = type->value[0] != NULL;
        if (type->refusal) continue;
        KV_TRY(
            kv_text_add(text, err, "%s%s = %s", is_first ? "" : ", ", type->words, type->key[0]));
        if (is_split) KV_TRY(kv_text_add(text, err, " (values %s)", type->value[0]));
        is_first = false;
    }
done:
    return status;
}

/* "key int3/token is none of vllm's types (...)", or what a listed type objects to. */
static kv_status explain_scheme(const kv_engine_match *m, int64_t layer, int32_t scheme,
                                bool is_key, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_engine *const e = m->engine;
    const kv_problem_side *const side = is_key ? &m->problem->keys : &m->problem->values;
    const kv_quantizer *const q = is_key ? &m->key_schemes[scheme] : &m->value_schemes[scheme];
    bool const is_known = is_key ? m->is_key_known[scheme] : m->is_value_known[scheme];
    int64_t const number = m->problem->layers[layer].number;
    const char *const tensor = is_key ? "key" : "value";
    kv_text types = {0};
    for (size_t t = 0; is_known && e->unfit && t < e->n_types; t++) {
        bool is_listed;
        KV_TRY(lists(&is_listed, &e->types[t], q, is_key, err));
        const char *const why =
            is_listed ? e->unfit(&e->types[t], q, is_key, m->policy, number) : NULL;
        if (why)
            KV_TRY(KV_FAIL(err, KV_EREQUEST, "layer %" PRId64 ": %s %s: %s", number, tensor,
                           side->schemes[scheme], why));
    }
    KV_TRY(add_types(&types, e, err));
    status = KV_FAIL(err, KV_EREQUEST,
                     "layer %" PRId64 ": %s %s is none of the cache types that kvant can "
                     "simulate: %s; kvant list engines says why others are refused",
                     number, tensor, side->schemes[scheme], types.data ? types.data : "none");
done:
    kv_text_free(&types);
    return status;
}

/* Whether some pair of rows takes the choice. */
static bool choice_fits(const kv_engine_match *m, int64_t layer, const kv_choice *c)
{
    int const n = (int)m->engine->n_types;
    uint32_t const keys = m->keys[layer * m->problem->keys.n + c->key];
    uint32_t const values = m->values[layer * m->problem->values.n + c->value];
    for (int k = 0; k < n; k++)
        for (int v = 0; (keys >> k & 1) && v < n; v++)
            if ((values >> v & 1) && kv_engine_pair_fits(m, c, k, v)) return true;
    return false;
}

/* Why the first choice of a layer does not fit, where none does. */
static kv_status explain_layer(const kv_engine_match *m, int64_t layer, kv_error *err)
{
    const kv_problem *const p = m->problem;
    const kv_choice *const c = &p->layers[layer].choices[0];
    if (!m->keys[layer * p->keys.n + c->key]) return explain_scheme(m, layer, c->key, true, err);
    if (!m->values[layer * p->values.n + c->value])
        return explain_scheme(m, layer, c->value, false, err);
    bool const is_known = m->is_key_known[c->key] && m->is_value_known[c->value];
    const char *why =
        is_known && m->engine->unfit_pair
            ? m->engine->unfit_pair(&m->key_schemes[c->key], &m->value_schemes[c->value])
            : NULL;
    if (!why)
        why = m->engine->is_tied ? "keys and values have the same type"
                                 : "a switch of the whole cache would have to be on and off";
    return KV_FAIL(err, KV_EREQUEST, "layer %" PRId64 ": key %s with value %s: %s",
                   p->layers[layer].number, p->keys.schemes[c->key], p->values.schemes[c->value],
                   why);
}

kv_status kv_engine_nothing_fits(const kv_engine_match *match, kv_error *err)
{
    const kv_problem *const p = match->problem;
    kv_status status = KV_OK;
    for (int64_t l = 0; l < p->n_layers && status == KV_OK; l++) {
        bool is_fit = false;
        for (int64_t c = 0; c < p->layers[l].n_choices && !is_fit; c++)
            is_fit = choice_fits(match, l, &p->layers[l].choices[c]);
        if (!is_fit) status = explain_layer(match, l, err);
        if (!is_fit && p->layers[l].n_choices > 1)
            kv_error_prepend(err, "none of the %" PRId64 " choices fits; the first",
                             p->layers[l].n_choices);
    }
    if (status == KV_OK)
        status =
            KV_FAIL(err, KV_EREQUEST, "the layers differ in a way it cannot express: it has %s",
                    kv_engine_shape_about(match->engine->shape));
    kv_error_prepend(err, "%s", match->engine->name);
    return status;
}
