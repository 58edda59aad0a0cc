/* The comparison of a policy with the baselines, for reports. A baseline counts as within the
 * budget, and as better or worse, by the best measurement that it and the policy both have. Of each
 * family only a few rows are shown, those that say where it stands beside the policy; the result
 * file has all. */
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

/* The policy, then the candidates shown [n_shown]. */
static kv_status print_candidates(FILE *out, const kv_outcome *o, const int64_t *shown,
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
    for (int64_t i = 0; i < n_shown; i++)
        KV_TRY(fill_row(&g, 2 + i, o, &o->candidates[shown[i]], err));
    fputs("\n", out);
    kv_grid_print(out, &g, false);
done:
    kv_grid_free_contents(&g);
    return status;
}

/* Beside a policy that was run end to end only what was run as well counts. */
static bool is_comparable(const kv_outcome *o, const kv_candidate *c)
{
    return c->bytes >= 0 && (!o->is_verified || !isnan(c->verified) || !isnan(c->held_out));
}

static bool is_any_comparable(const kv_outcome *o, const char *family)
{
    for (int64_t i = 0; i < o->n_candidates; i++)
        if (strcmp(o->candidates[i].family, family) == 0 && is_comparable(o, &o->candidates[i]))
            return true;
    return false;
}

/* On held-out seeds the upper end of the interval counts, as it does for the policy. */
static bool is_within(const kv_outcome *o, const kv_candidate *c)
{
    double const slack = 1 + 1e-12;
    if (!is_comparable(o, c)) return false;
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
        fprintf(out, "Family %s: none %s.\n", family,
                is_any_comparable(o, family) ? "is within the budget" : "was run end to end");
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

/* ---- which of them are shown ---- */

/* The best of a family within the budget, and the nearest to the policy on each side: of those with
 * fewer bytes the largest, of those with more the smallest, of those with less error the worst. */
enum { BEST, SMALLER, LARGER, BETTER, N_PLACES };

static bool is_of_frontier(const kv_candidate *c)
{
    return strcmp(c->family, "frontier") == 0;
}

static bool is_same_assignment(const kv_outcome *o, const kv_candidate *a, const kv_candidate *b)
{
    size_t const size = (size_t)o->problem->n_layers * sizeof *a->assignment;
    return a->bytes == b->bytes && memcmp(a->assignment, b->assignment, size) == 0;
}

static void find_places(int64_t places[N_PLACES], const kv_outcome *o, const char *family)
{
    const kv_candidate *const p = &o->policy, *const all = o->candidates;
    const kv_candidate *const best = best_of(o, family);
    for (int k = 0; k < N_PLACES; k++) places[k] = -1;
    if (best && !is_of_frontier(best)) places[BEST] = best - all;
    for (int64_t i = 0; i < o->n_candidates; i++) {
        const kv_candidate *const c = &all[i];
        if (strcmp(c->family, family) != 0 || c->bytes < 0 || is_dominated(o, i)) continue;
        int64_t *const side = &places[c->bytes < p->bytes ? SMALLER : LARGER];
        bool const is_nearer = *side < 0 || (c->bytes < p->bytes ? c->bytes > all[*side].bytes
                                                                 : c->bytes < all[*side].bytes);
        if (c->bytes != p->bytes && is_nearer) *side = i;
        if (is_of_frontier(c) || !(kv_error_beside(o, c, p) < kv_error_beside(o, p, c))) continue;
        if (places[BETTER] < 0 || c->bytes < all[places[BETTER]].bytes) places[BETTER] = i;
    }
}

/* Adds a family's rows, by rising bytes; an assignment that is already there stands once. */
static void add_family(int64_t *shown, int64_t *n_shown, const kv_outcome *o, const char *family)
{
    int64_t places[N_PLACES];
    int64_t const first = *n_shown;
    find_places(places, o, family);
    for (int k = 0; k < N_PLACES; k++) {
        if (places[k] < 0) continue;
        const kv_candidate *const c = &o->candidates[places[k]];
        bool is_there = is_same_assignment(o, c, &o->policy);
        for (int64_t i = 0; i < *n_shown; i++)
            is_there |= is_same_assignment(o, c, &o->candidates[shown[i]]);
        if (is_there) continue;
        int64_t at = (*n_shown)++;
        for (; at > first && o->candidates[shown[at - 1]].bytes > c->bytes; at--)
            shown[at] = shown[at - 1];
        shown[at] = places[k];
    }
}

/* Whether no candidate before this one is of its family. */
static bool is_first(const kv_outcome *o, int64_t candidate)
{
    for (int64_t k = 0; k < candidate; k++)
        if (strcmp(o->candidates[k].family, o->candidates[candidate].family) == 0) return false;
    return true;
}

kv_status kv_outcome_compare(FILE *out, const kv_outcome *o, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t *shown = NULL;
    int64_t n_shown = 0;
    if (o->n_candidates == 0) return KV_OK;
    KV_TRY(kv_allocate((void **)&shown, (size_t)o->n_candidates, sizeof *shown, err));
    for (int64_t i = 0; i < o->n_candidates; i++)
        if (is_first(o, i)) add_family(shown, &n_shown, o, o->candidates[i].family);
    KV_TRY(print_candidates(out, o, shown, n_shown, err));
    fputs("\n", out);
    for (int64_t i = 0; o->is_feasible && i < o->n_candidates; i++)
        if (is_first(o, i) && !is_of_frontier(&o->candidates[i]))
            print_best(out, o, o->candidates[i].family);
    if (o->n_candidates > n_shown)
        fprintf(out, "%" PRId64 " more: kvant show FILE --metric candidate\n",
                o->n_candidates - n_shown);
done:
    kv_free(shown);
    return status;
}
