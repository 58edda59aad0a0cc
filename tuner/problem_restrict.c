/* What may be chosen: kv_problem_restrict of problem.h. First all that goes is marked, then it is
 * taken out, so that a ban may name what another one has taken already. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/memory.h"
#include "kernels/shorthand.h"
#include "tuner/problem.h"

/* The shape on which the bits of two schemes are compared where only their names are known. */
static const kv_tensor_shape nominal_shape = {.heads = 1, .tokens = 4096, .head_dim = 128};

/* A scheme named in a restriction: its number, with a message where the table has none such. */
static kv_status find_scheme(int32_t *out, const kv_problem *p, const char *what, const char *text,
                             bool is_key, kv_error *err)
{
    const kv_problem_side *const side = is_key ? &p->keys : &p->values;
    *out = kv_problem_scheme(p, text, is_key);
    if (*out >= 0) return KV_OK;
    const char *const near =
        kv_closest_name(text, (const char *const *)side->schemes, (size_t)side->n);
    return KV_FAIL(err, KV_EREQUEST, "%s: the table has no %s scheme \"%s\"%s%s%s", what,
                   is_key ? "key" : "value", text, near ? ", did you mean \"" : "",
                   near ? near : "", near ? "\"?" : "");
}

static kv_status find_layer(int64_t *out, const kv_problem *p, const char *what, int64_t number,
                            kv_error *err)
{
    *out = kv_problem_layer_at(p, number);
    if (*out >= 0) return KV_OK;
    return KV_FAIL(err, KV_EREQUEST,
                   "%s: there is no layer %" PRId64 "; the table has %" PRId64 " layers, %" PRId64
                   " to %" PRId64,
                   what, number, p->n_layers, p->layers[0].number,
                   p->layers[p->n_layers - 1].number);
}

static kv_status pin(bool *const *is_out, const kv_problem *p, const kv_choice_name *name,
                     kv_error *err)
{
    kv_status status = KV_OK;
    int64_t layer = -1;
    int32_t key, value;
    char what[64];
    snprintf(what, sizeof what, "pin of layer %" PRId64, name->layer);
    KV_TRY(find_layer(&layer, p, "pin", name->layer, err));
    KV_TRY(find_scheme(&key, p, what, name->key, true, err));
    KV_TRY(find_scheme(&value, p, what, name->value, false, err));
    const kv_problem_layer *const at = &p->layers[layer];
    bool is_there = false;
    for (int64_t c = 0; c < at->n_choices; c++) {
        bool const is_it = at->choices[c].key == key && at->choices[c].value == value;
        is_there |= is_it;
        is_out[layer][c] |= !is_it;
    }
    if (!is_there)
        KV_TRY(KV_FAIL(err, KV_EREQUEST, "%s: the layer has no choice \"%s | %s\"", what, name->key,
                       name->value));
done:
    return status;
}

static kv_status ban(bool *const *is_out, const kv_problem *p, const kv_choice_name *name,
                     kv_error *err)
{
    kv_status status = KV_OK;
    int64_t first = 0, end = p->n_layers, n_matches = 0;
    int32_t key = -1, value = -1;
    if (name->layer >= 0) {
        KV_TRY(find_layer(&first, p, "forbid", name->layer, err));
        end = first + 1;
    }
    if (name->key) KV_TRY(find_scheme(&key, p, "forbid", name->key, true, err));
    if (name->value) KV_TRY(find_scheme(&value, p, "forbid", name->value, false, err));
    for (int64_t layer = first; layer < end; layer++)
        for (int64_t c = 0; c < p->layers[layer].n_choices; c++) {
            const kv_choice *const choice = &p->layers[layer].choices[c];
            if ((name->key && choice->key != key) || (name->value && choice->value != value))
                continue;
            is_out[layer][c] = true, n_matches++;
        }
    if (n_matches == 0)
        KV_TRY(KV_FAIL(err, KV_EREQUEST, "forbid: nothing has key \"%s\" and value \"%s\"",
                       name->key ? name->key : "any", name->value ? name->value : "any"));
done:
    return status;
}

/* Stored bits of every scheme of a side on the nominal shape. */
static kv_status nominal_bits(int64_t *bits, const kv_problem_side *side, bool is_key,
                              kv_error *err)
{
    kv_status status = KV_OK;
    for (int64_t i = 0; i < side->n; i++) {
        kv_quantizer q;
        KV_TRY(kv_quantizer_parse(&q, side->schemes[i], is_key, err));
        KV_TRY(kv_quantizer_bits(&bits[i], &q, &nominal_shape, err));
    }
done:
    if (status != KV_OK) kv_error_prepend(err, "key_at_least_value");
    return status;
}

static kv_status keep_large_keys(bool *const *is_out, const kv_problem *p, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t *keys = NULL, *values = NULL;
    KV_TRY(kv_allocate((void **)&keys, (size_t)p->keys.n, sizeof *keys, err));
    KV_TRY(kv_allocate((void **)&values, (size_t)p->values.n, sizeof *values, err));
    bool const are_stored = p->is_separable && !p->is_split;
    if (!are_stored) {
        KV_TRY(nominal_bits(keys, &p->keys, true, err));
        KV_TRY(nominal_bits(values, &p->values, false, err));
    }
    for (int64_t layer = 0; layer < p->n_layers; layer++)
        for (int64_t c = 0; c < p->layers[layer].n_choices; c++) {
            const kv_choice *const choice = &p->layers[layer].choices[c];
            int64_t const k = choice->key, v = choice->value;
            is_out[layer][c] |= are_stored ? p->keys.bytes[layer * p->keys.n + k] <
                                                 p->values.bytes[layer * p->values.n + v]
                                           : keys[k] < values[v];
        }
done:
    kv_free(keys), kv_free(values);
    return status;
}

static kv_status check_rest(bool *const *is_out, const kv_problem *p, kv_error *err)
{
    for (int64_t layer = 0; layer < p->n_layers; layer++) {
        int64_t rest = 0;
        for (int64_t c = 0; c < p->layers[layer].n_choices; c++) rest += !is_out[layer][c];
        if (rest == 0)
            return KV_FAIL(err, KV_EREQUEST,
                           "layer %" PRId64
                           ": pin, forbid and key_at_least_value leave none of its "
                           "%" PRId64 " choices",
                           p->layers[layer].number, p->layers[layer].n_choices);
    }
    return KV_OK;
}

kv_status kv_problem_restrict(kv_problem *p, const kv_restrictions *restrictions, kv_error *err)
{
    kv_status status = KV_OK;
    bool **is_out = NULL;
    KV_TRY(kv_allocate((void **)&is_out, (size_t)p->n_layers, sizeof *is_out, err));
    for (int64_t i = 0; i < p->n_layers; i++)
        KV_TRY(
            kv_allocate((void **)&is_out[i], (size_t)p->layers[i].n_choices, sizeof **is_out, err));
    for (int64_t i = 0; i < restrictions->n_pins; i++)
        KV_TRY(pin(is_out, p, &restrictions->pins[i], err));
    for (int64_t i = 0; i < restrictions->n_bans; i++)
        KV_TRY(ban(is_out, p, &restrictions->bans[i], err));
    if (restrictions->key_at_least_value) KV_TRY(keep_large_keys(is_out, p, err));
    KV_TRY(check_rest(is_out, p, err));
    for (int64_t i = 0; i < p->n_layers; i++) {
        kv_problem_layer *const layer = &p->layers[i];
        int64_t kept = 0;
        for (int64_t c = 0; c < layer->n_choices; c++)
            if (!is_out[i][c]) layer->choices[kept++] = layer->choices[c];
        layer->n_choices = kept;
    }
done:
    for (int64_t i = 0; is_out && i < p->n_layers; i++) kv_free(is_out[i]);
    kv_free(is_out);
    return status;
}
