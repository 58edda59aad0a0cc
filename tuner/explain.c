/* Why a layer has the schemes it has: see kv_outcome_explain in outcome.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "kernels/memory.h"
#include "results/grid.h"
#include "tuner/outcome_parts.h"

static void print_name(FILE *out, const kv_problem *p, const kv_choice *c)
{
    fprintf(out, "%s | %s", p->keys.schemes[c->key], p->values.schemes[c->value]);
}

static void print_side(FILE *out, const kv_problem *p, const kv_problem_layer *layer,
                       const kv_choice *chosen, int64_t other, double price, bool is_up)
{
    fprintf(out, "  %-13s", is_up ? "next larger" : "next smaller");
    if (other < 0) {
        fprintf(out, "none %s\n", is_up ? "that is better" : "");
        return;
    }
    const kv_choice *const c = &layer->choices[other];
    print_name(out, p, c);
    fprintf(out, ": %+" PRId64 " bytes, %+.3g error, %.3g a byte\n", c->bytes - chosen->bytes,
            c->error - chosen->error, price);
}

/* The best policy that does not make this choice in this layer, with no more error than the policy
 * (no more bytes, where the budget is on bytes): *out has one point or none. */
static kv_status solve_without(kv_frontier **out, int32_t *taken, const kv_outcome *o,
                               int64_t layer, kv_error *err)
{
    kv_status status = KV_OK;
    kv_problem_integers n = {0};
    int64_t const chosen = o->policy.assignment[layer];
    KV_TRY(kv_problem_integers_create(&n, o->problem, err));
    int64_t size = 0, error = 0;
    for (int64_t i = 0; i < o->problem->n_layers; i++) {
        size += n.options[i][o->policy.assignment[i]].size;
        error += n.options[i][o->policy.assignment[i]].error;
    }
    n.n_options[layer]--;
    for (int64_t i = chosen; i < n.n_options[layer]; i++)
        n.options[layer][i] = n.options[layer][i + 1];
    if (n.n_options[layer] == 0) goto done;
    KV_TRY(kv_budget_is_on_error(o->budget.kind)
               ? kv_knapsack_within_error(out, &n.knapsack, error, err)
               : kv_knapsack_within_size(out, &n.knapsack, size, err));
    if ((*out)->count) *taken = (*out)->option[layer];
    *taken += *taken >= chosen;
done:
    kv_problem_integers_free(&n);
    return status;
}

static kv_status print_runner_up(FILE *out, const kv_outcome *o, int64_t layer, kv_error *err)
{
    kv_frontier *without = NULL;
    int32_t taken = 0;
    const kv_problem *const p = o->problem;
    bool const is_on_error = kv_budget_is_on_error(o->budget.kind);
    kv_status const status = solve_without(&without, &taken, o, layer, err);
    if (status != KV_OK) return status;
    fputs("  runner-up    ", out);
    if (p->layers[layer].n_choices == 1) {
        fputs("none: it is the only choice\n", out);
    } else if (!without->count) {
        fprintf(out, "none: no policy without this choice has so %s\n",
                is_on_error ? "small an error" : "few bytes");
    } else {
        print_name(out, p, &p->layers[layer].choices[taken]);
        if (is_on_error)
            fprintf(out, ": the best policy of no more error then stores %+" PRId64 " bytes\n",
                    without->size[0] - o->policy.bytes);
        else
            fprintf(out, ": the best policy of no more bytes then has %+.3g error\n",
                    o->unit * (double)without->error[0] - o->policy.additive);
    }
    kv_frontier_free(without);
    return KV_OK;
}

static kv_status set_row(kv_grid *g, int64_t line, const kv_problem *p, const kv_choice *c,
                         bool is_chosen, kv_error *err)
{
    kv_status status = KV_OK;
    char text[KV_CELL_SIZE];
    KV_TRY(kv_grid_set(g, line, 0, p->keys.schemes[c->key], err));
    KV_TRY(kv_grid_set(g, line, 1, p->values.schemes[c->value], err));
    snprintf(text, sizeof text, "%" PRId64, c->bytes);
    KV_TRY(kv_grid_set(g, line, 2, text, err));
    snprintf(text, sizeof text, "%.3g", c->error);
    KV_TRY(kv_grid_set(g, line, 3, text, err));
    if (is_chosen) KV_TRY(kv_grid_set(g, line, 4, "<- chosen", err));
done:
    return status;
}

/* The choices that nothing dominates, as a table. */
static kv_status print_choices(FILE *out, const kv_problem *p, const kv_problem_layer *layer,
                               int64_t chosen, kv_error *err)
{
    static const char *const heads[] = {"key", "value", "bytes", "error", ""};
    enum { N = sizeof heads / sizeof heads[0] };
    kv_status status = KV_OK;
    kv_grid g = {0};
    int64_t n = 0, line = 1;
    for (int64_t i = 0; i < layer->n_choices; i++)
        n += i == chosen || kv_problem_dominator(layer, i) < 0;
    KV_TRY(kv_grid_create(&g, 1 + n, N, err));
    for (int i = 0; i < N; i++) KV_TRY(kv_grid_set(&g, 0, i, heads[i], err));
    for (int i = 2; i < 4; i++) g.columns[i].is_number = true;
    for (int64_t i = 0; i < layer->n_choices; i++)
        if (i == chosen || kv_problem_dominator(layer, i) < 0)
            KV_TRY(set_row(&g, line++, p, &layer->choices[i], i == chosen, err));
    kv_grid_print(out, &g, false);
done:
    kv_grid_free_contents(&g);
    return status;
}

/* What is no larger and no worse than the others, and these. */
static void print_dominated(FILE *out, const kv_problem *p, const kv_problem_layer *layer)
{
    for (int64_t by = 0; by < layer->n_choices; by++) {
        int64_t n = 0;
        if (kv_problem_dominator(layer, by) >= 0) continue;
        for (int64_t i = 0; i < layer->n_choices; i++) {
            const kv_choice *const c = &layer->choices[i], *const x = &layer->choices[by];
            if (kv_problem_dominator(layer, i) < 0 || x->bytes > c->bytes || x->error > c->error)
                continue;
            bool is_first = true; /* counted under the first that dominates it */
            for (int64_t k = 0; is_first && k < by; k++)
                is_first = kv_problem_dominator(layer, k) >= 0 ||
                           layer->choices[k].bytes > c->bytes || layer->choices[k].error > c->error;
            if (!is_first) continue;
            if (n == 0) fputs("\ndominated by ", out), print_name(out, p, x);
            fputs(n++ ? "; " : ": ", out);
            print_name(out, p, c);
        }
    }
    fputs("\n", out);
}

kv_status kv_outcome_explain(FILE *out, const kv_outcome *o, int64_t number, kv_error *err)
{
    const kv_problem *const p = o->problem;
    int64_t const at = kv_problem_layer_at(p, number);
    if (at < 0)
        return KV_FAIL(err, KV_EREQUEST,
                       "there is no layer %" PRId64 " to explain; there are %" PRId64
                       ", from %" PRId64 " to %" PRId64,
                       number, p->n_layers, p->layers[0].number, p->layers[p->n_layers - 1].number);
    const kv_problem_layer *const layer = &p->layers[at];
    int64_t const chosen = o->policy.assignment[at];
    const kv_choice *const c = &layer->choices[chosen];
    kv_marginal const m = kv_marginal_at(layer, chosen);
    double const price = o->unit * o->frontier->multiplier[o->point];
    fprintf(out, "\nLayer %" PRId64 ": ", number);
    print_name(out, p, c);
    fprintf(out, ", %" PRId64 " bytes, error %.3g\n", c->bytes, c->error);
    fprintf(out, "  a byte of the whole policy is worth %.3g of error\n", price);
    print_side(out, p, layer, c, m.up_choice, m.up, true);
    print_side(out, p, layer, c, m.down_choice, m.down, false);
    kv_status status = print_runner_up(out, o, at, err);
    if (status != KV_OK) return status;
    fputs("\nchoices that none dominates\n", out);
    status = print_choices(out, p, layer, chosen, err);
    print_dominated(out, p, layer);
    if (status == KV_OK && ferror(out))
        return KV_FAIL(err, KV_EIO, "writing the explanation failed");
    return status;
}
