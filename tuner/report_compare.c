/* The comparison of a policy with the baselines, for reports. A baseline counts as within the
 * budget, and as better or worse, by the best measurement that it and the policy both have. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "kernels/memory.h"
#include "results/grid.h"
#include "tuner/outcome_parts.h"

/* Whether another candidate of the family is no larger and no worse, and better in one of the two;
 * of equal ones the first stands. */
static bool is_dominated(const kv_outcome *o, int64_t i)
{
    const kv_candidate *const c = &o->candidates[i];
    for (int64_t k = 0; k < o->n_candidates; k++) {
        const kv_candidate *const x = &o->candidates[k];
        if (k == i || strcmp(x->family, c->family) != 0) continue;
        double const own = kv_error_beside(o, c, x), other = kv_error_beside(o, x, c);
        if (x->bytes > c->bytes || !(other <= own)) continue;
        if (x->bytes < c->bytes || other < own || k < i) return true;
    }
    return false;
}

static kv_status print_error_cell(kv_grid *g, int64_t line, int64_t column, double error,
                                  kv_error *err)
{
    char text[KV_CELL_SIZE] = "-";
    if (!isnan(error)) snprintf(text, sizeof text, "%.4g", error);
    g->columns[column].is_number = true;
    return kv_grid_set(g, line, column, text, err);
}

/* One row a candidate: columns beyond the additive error only where something was verified. */
static kv_status fill_row(kv_grid *g, int64_t line, const kv_outcome *o, const kv_candidate *c,
                          kv_error *err)
{
    kv_status status = KV_OK;
    char text[KV_CELL_SIZE];
    double const ratio = o->policy.bytes > 0 ? (double)c->bytes / (double)o->policy.bytes : 0;
    KV_TRY(kv_grid_set(g, line, 0, c->name, err));
    snprintf(text, sizeof text, "%" PRId64, c->bytes);
    KV_TRY(kv_grid_set(g, line, 1, c->bytes < 0 ? "-" : text, err));
    snprintf(text, sizeof text, "%.3f", ratio);
    KV_TRY(kv_grid_set(g, line, 2, c->bytes < 0 || ratio == 0 ? "-" : text, err));
    g->columns[1].is_number = g->columns[2].is_number = true;
    KV_TRY(print_error_cell(g, line, 3, kv_outcome_error(o, c->additive), err));
    if (g->n_columns == 4) goto done;
    KV_TRY(print_error_cell(g, line, 4, c->verified, err));
    KV_TRY(print_error_cell(g, line, 5, c->held_out, err));
    if (!isnan(c->held_out_low)) {
        snprintf(text, sizeof text, "%.4g ... %.4g", c->held_out_low, c->held_out_high);
        KV_TRY(kv_grid_set(g, line, 6, text, err));
    }
    snprintf(text, sizeof text, "%" PRId64, c->runs);
    KV_TRY(kv_grid_set(g, line, 7, text, err));
    g->columns[7].is_number = true;
done:
    return status;
}

static kv_status print_candidates(FILE *out, const kv_outcome *o, const bool *is_shown,
                                  int64_t n_shown, kv_error *err)
{
    static const char *const heads[] = {"",         "bytes",    "of the policy's", "additive",
                                        "verified", "held out", "95 % interval",   "runs"};
    kv_status status = KV_OK;
    kv_grid g = {0};
    bool is_any_verified = !isnan(o->policy.verified);
    for (int64_t i = 0; i < o->n_candidates; i++)
        is_any_verified |= !isnan(o->candidates[i].verified) || o->candidates[i].runs > 0;
    KV_TRY(kv_grid_create(&g, 2 + n_shown, is_any_verified ? 8 : 4, err));
    for (int64_t i = 0; i < g.n_columns; i++) KV_TRY(kv_grid_set(&g, 0, i, heads[i], err));
    if (!is_any_verified) KV_TRY(kv_grid_set(&g, 0, 3, "error", err));
    KV_TRY(fill_row(&g, 1, o, &o->policy, err));
    for (int64_t i = 0, line = 2; i < o->n_candidates; i++)
        if (is_shown[i]) KV_TRY(fill_row(&g, line++, o, &o->candidates[i], err));
    fputs("\n", out);
    kv_grid_print(out, &g, false);
    int64_t const hidden = o->n_candidates - n_shown;
    if (hidden > 0)
        fprintf(out,
                "and %" PRId64 " more, each no smaller and no better than another of its family\n",
                hidden);
done:
    kv_grid_free_contents(&g);
    return status;
}

/* On held-out seeds the upper end of the interval counts, as it does for the policy. */
static bool is_within(const kv_outcome *o, const kv_candidate *c)
{
    double const slack = 1 + 1e-12;
    if (c->bytes < 0) return false;
    if (kv_budget_is_on_error(o->budget.kind) && !isnan(c->held_out_high))
        return c->held_out_high <= o->budget.limit * slack;
    if (kv_budget_is_on_error(o->budget.kind))
        return kv_error_beside(o, c, &o->policy) <= o->budget.limit * slack;
    return (double)c->bytes <= kv_solution_limit(o) * slack;
}

/* Whether a is the better answer to the budget. */
static bool is_better(const kv_outcome *o, const kv_candidate *a, const kv_candidate *b)
{
    double const x = kv_error_beside(o, a, b), y = kv_error_beside(o, b, a);
    if (kv_budget_is_on_error(o->budget.kind))
        return a->bytes < b->bytes || (a->bytes == b->bytes && x < y);
    return x < y || (x == y && a->bytes < b->bytes);
}

/* The best of a family within the budget, NULL for none. */
static const kv_candidate *best_of(const kv_outcome *o, const char *family)
{
    const kv_candidate *best = NULL;
    for (int64_t i = 0; i < o->n_candidates; i++) {
        const kv_candidate *const c = &o->candidates[i];
        if (strcmp(c->family, family) != 0 || !is_within(o, c)) continue;
        if (!best || is_better(o, c, best)) best = c;
    }
    return best;
}

static void print_best(FILE *out, const kv_outcome *o, const char *family)
{
    const kv_candidate *const best = best_of(o, family), *const p = &o->policy;
    bool const is_on_error = kv_budget_is_on_error(o->budget.kind);
    if (!best) {
        fprintf(out, "Family %s: none is within the budget.\n", family);
        return;
    }
    double const error = kv_error_beside(o, best, p), own = kv_error_beside(o, p, best);
    bool const is_beaten = is_on_error ? best->bytes < p->bytes : error < own;
    if (is_beaten)
        fprintf(out,
                "A BASELINE IS %s: %s stores %" PRId64 " bytes with error %.4g; the policy "
                "%" PRId64 " with %.4g.\n",
                is_on_error ? "CHEAPER" : "BETTER", best->name, best->bytes, error, p->bytes, own);
    else if (is_on_error && p->bytes > 0)
        fprintf(out,
                "Family %s: the cheapest within the budget is %s: %" PRId64 " bytes, %.3f times "
                "the policy's.\n",
                family, best->name, best->bytes, (double)best->bytes / (double)p->bytes);
    else if (!is_on_error && own > 0)
        fprintf(out,
                "Family %s: the best within the budget is %s: error %.4g, %.3g times the "
                "policy's.\n",
                family, best->name, error, error / own);
    else
        fprintf(out,
                "Family %s: the best within the budget is %s: %" PRId64 " bytes, error %.4g.\n",
                family, best->name, best->bytes, error);
}

kv_status kv_outcome_compare(FILE *out, const kv_outcome *o, kv_error *err)
{
    kv_status status = KV_OK;
    bool *is_shown = NULL;
    int64_t n_shown = 0;
    if (o->n_candidates == 0) return KV_OK;
    KV_TRY(kv_allocate((void **)&is_shown, (size_t)o->n_candidates, sizeof *is_shown, err));
    for (int64_t i = 0; i < o->n_candidates; i++) {
        is_shown[i] = !is_dominated(o, i);
        n_shown += is_shown[i];
    }
    KV_TRY(print_candidates(out, o, is_shown, n_shown, err));
    if (o->is_feasible) fputs("\n", out);
    for (int64_t i = 0; o->is_feasible && i < o->n_candidates; i++) {
        bool is_first = true;
        for (int64_t k = 0; k < i; k++)
            is_first &= strcmp(o->candidates[k].family, o->candidates[i].family) != 0;
        if (is_first) print_best(out, o, o->candidates[i].family);
    }
done:
    kv_free(is_shown);
    return status;
}
