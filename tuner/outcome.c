/* What reports, records and policies of an outcome share: see outcome_parts.h. */
#include <math.h>

#include "tuner/outcome_parts.h"

static const char *const budget_names[] = {[KV_BUDGET_ERROR] = "max_error",
                                           [KV_BUDGET_BYTES] = "max_bytes",
                                           [KV_BUDGET_BYTES_PER_TOKEN] = "max_bytes_per_token",
                                           [KV_BUDGET_BITS] = "max_bits",
                                           [KV_BUDGET_MATCH] = "match"};

kv_status kv_budget_text(kv_text *out, const kv_budget *budget, kv_error *err)
{
    char limit[KV_REAL_TEXT];
    bool const is_match = budget->kind == KV_BUDGET_MATCH;
    if (is_match)
        return kv_text_add(out, err, "match %s (%.4g)", budget->match ? budget->match : "",
                           budget->limit);
    if (fabs(budget->limit) <= 0x1p53 && rint(budget->limit) == budget->limit)
        return kv_text_add(out, err, "%s %.0f", budget_names[budget->kind], budget->limit);
    return kv_text_add(out, err, "%s %s", budget_names[budget->kind],
                       kv_real_text(limit, budget->limit));
}

const kv_choice *kv_assigned(const kv_problem *problem, const int32_t *assignment, int64_t layer)
{
    return assignment[layer] < 0 ? NULL : &problem->layers[layer].choices[assignment[layer]];
}

kv_marginal kv_marginal_at(const kv_problem_layer *layer, int64_t choice)
{
    kv_marginal m = {(double)NAN, (double)NAN, -1, -1};
    const kv_choice *const at = &layer->choices[choice];
    for (int64_t i = 0; i < layer->n_choices; i++) {
        const kv_choice *const other = &layer->choices[i];
        if (other->bytes == at->bytes) continue;
        double const slope = (at->error - other->error) / (double)(other->bytes - at->bytes);
        bool const is_larger = other->bytes > at->bytes;
        if (is_larger && slope > 0 && !(slope <= m.up)) m.up = slope, m.up_choice = i;
        if (!is_larger && !(slope >= m.down)) m.down = slope, m.down_choice = i;
    }
    return m;
}

double kv_error_beside(const kv_outcome *o, const kv_candidate *c, const kv_candidate *other)
{
    if (!isnan(c->held_out) && !isnan(other->held_out)) return c->held_out;
    if (!isnan(c->verified) && !isnan(other->verified)) return c->verified;
    return kv_outcome_error(o, c->additive);
}

double kv_point_power(const kv_problem *problem, const kv_frontier *f, int64_t point)
{
    double sum = 0;
    for (int64_t i = 0; i < f->n_groups; i++)
        sum += problem->layers[i].choices[f->option[point * f->n_groups + i]].error;
    return sum;
}

double kv_lower_bound(const kv_outcome *o)
{
    const kv_frontier *const f = o->frontier;
    int64_t i = 0;
    while (i < f->count - 1 && f->size[i] < o->policy.bytes) i++;
    return fmin(fmax(o->unit * f->lower_bound[i], 0), o->policy.additive);
}

bool kv_is_frontier_point(const kv_outcome *o)
{
    const kv_frontier *const f = o->frontier;
    for (int64_t i = 0; i < f->n_groups; i++)
        if (o->policy.assignment[i] != f->option[o->point * f->n_groups + i]) return false;
    return true;
}
