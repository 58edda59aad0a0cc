/* The policy file of an outcome: see kv_outcome_policy in outcome.h. */
#include <math.h>

#include "kernels/memory.h"
#include "tuner/outcome_parts.h"

static kv_status fill_layer(kv_policy_layer *out, const kv_outcome *o, int64_t i, kv_error *err)
{
    kv_status status = KV_OK;
    double const none = (double)NAN;
    const kv_problem *const p = o->problem;
    const kv_choice *const c = kv_assigned(p, o->policy.assignment, i);
    *out = (kv_policy_layer){.layer = p->layers[i].number,
                             .bytes = c->bytes,
                             .error = c->error,
                             .kv_heads = o->kv_heads ? o->kv_heads[i] : 0,
                             .head_dim = o->head_dims ? o->head_dims[i] : 0,
                             .window = o->windows ? o->windows[i] : -1,
                             .key_absmax = o->key_absmax ? o->key_absmax[i] : none,
                             .value_absmax = o->value_absmax ? o->value_absmax[i] : none};
    KV_TRY(kv_duplicate(&out->key, p->keys.schemes[c->key], err));
    KV_TRY(kv_duplicate(&out->value, p->values.schemes[c->value], err));
done:
    return status;
}

kv_status kv_outcome_policy(kv_policy *out, const kv_outcome *o, kv_error *err)
{
    kv_status status = KV_OK;
    kv_text budget = {0};
    bool const is_on_error = kv_budget_is_on_error(o->budget.kind);
    bool const has_held_out = !isnan(o->policy.held_out);
    kv_policy policy = {.context = o->context,
                        .budget = is_on_error ? o->budget.limit : (double)NAN,
                        .additive_error = kv_outcome_error(o, o->policy.additive),
                        .verified_error = has_held_out ? o->policy.held_out : o->policy.verified,
                        .verified_low = o->policy.held_out_low,
                        .verified_high = o->policy.held_out_high,
                        .is_budget_met = o->is_budget_met,
                        .is_complete = o->is_complete};
    KV_TRY(kv_duplicate(&policy.title, o->title ? o->title : "", err));
    if (o->model) KV_TRY(kv_duplicate(&policy.model, o->model, err));
    KV_TRY(kv_duplicate(&policy.error_kind, o->error_kind, err));
    KV_TRY(kv_budget_text(&budget, &o->budget, err));
    policy.budget_text = kv_text_take(&budget);
    KV_TRY(kv_allocate((void **)&policy.layers, (size_t)o->problem->n_layers, sizeof *policy.layers,
                       err));
    for (; policy.n_layers < o->problem->n_layers;) {
        int64_t const i = policy.n_layers++; /* counted first: what it holds is freed on failure */
        KV_TRY(fill_layer(&policy.layers[i], o, i, err));
    }
    *out = policy, policy = (kv_policy){0};
done:
    kv_policy_free_contents(&policy);
    kv_text_free(&budget);
    return status;
}
