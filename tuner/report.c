/* The report of a tuning: see kv_outcome_report in outcome.h. First what was found and whether the
 * budget is met, then the policy layer by layer, then how far from the best it can be, then what
 * else was looked at. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/memory.h"
#include "results/grid.h"
#include "tuner/outcome_parts.h"

static void row(FILE *out, const char *name)
{
    fprintf(out, "%-10s", name);
}

/* ---- what was found ---- */

static const kv_candidate *find_f16(const kv_outcome *o)
{
    for (int64_t i = 0; i < o->n_candidates; i++)
        if (strcmp(o->candidates[i].name, "uniform f16 | f16") == 0) return &o->candidates[i];
    return NULL;
}

/* "1302528 bytes (1.242 MiB)" */
static void print_bytes(FILE *out, double bytes)
{
    char text[KV_BYTES_TEXT];
    if (bytes == rint(bytes))
        fprintf(out, "%.0f bytes", bytes);
    else
        fprintf(out, "%.7g bytes", bytes);
    if (bytes >= 0x1p10) fprintf(out, " (%s)", kv_bytes_text(text, bytes));
}

static void print_size(FILE *out, const kv_outcome *o)
{
    int64_t const elements = kv_outcome_elements(o), bytes = o->policy.bytes;
    const kv_candidate *const f16 = find_f16(o);
    row(out, "size");
    print_bytes(out, (double)bytes);
    if (o->context > 0) {
        fprintf(out, " at a context of %" PRId64 " tokens, ", o->context);
        print_bytes(out, (double)bytes / (double)o->context);
        fputs(" a token", out);
    } else
        fputs(" as the table counts them", out);
    if (elements > 0) fprintf(out, "; %.3f bits an element", 8 * (double)bytes / (double)elements);
    double const full = f16 ? (double)f16->bytes : 2 * (double)elements;
    if (full > 0 && bytes > 0) {
        fputs("; f16 would take ", out);
        print_bytes(out, full);
        fprintf(out, ", %.2f times as many", full / (double)bytes);
    }
    fputs("\n", out);
}

static void print_error(FILE *out, const kv_outcome *o)
{
    const kv_candidate *const p = &o->policy;
    row(out, "error");
    fprintf(out, "%.4g%s", kv_outcome_error(o, p->additive),
            o->is_power ? ", the sum of the layers' errors" : " as the additive model has it");
    if (!isnan(p->verified)) fprintf(out, "; %.4g end to end on the search seeds", p->verified);
    if (!isnan(p->held_out))
        fprintf(out, "; %.4g on %" PRId64 " held-out seeds, 95 %% interval %.4g ... %.4g",
                p->held_out, o->held_out_seeds, p->held_out_low, p->held_out_high);
    fputs("\n", out);
}

static kv_status print_head(FILE *out, const kv_outcome *o, kv_error *err)
{
    kv_text budget = {0};
    kv_status const status = kv_budget_text(&budget, &o->budget, err);
    if (status != KV_OK) return status;
    bool const is_on_error = kv_budget_is_on_error(o->budget.kind);
    if (o->title && *o->title) fprintf(out, "%s\n", o->title);
    if (!o->is_complete) fputs("NOT COMPLETE: cut short; the best so far\n", out);
    row(out, "budget");
    fprintf(out, "%s: ", budget.data);
    bool const is_paired = o->budget.kind == KV_BUDGET_MATCH && o->is_verified;
    if (o->is_budget_met)
        fputs(is_paired ? "met: no more in the paired difference on the held-out seeds\n" : "met\n",
              out);
    else if (!o->is_feasible)
        fprintf(out, "NOT MET: no choice has so %s; below is the nearest, of least %s\n",
                is_on_error ? "small an error" : "few bytes", is_on_error ? "error" : "bytes");
    else if (!o->is_complete && !o->is_verified)
        fputs("NOT KNOWN to be met: stopped before it was run end to end\n", out);
    else
        fputs("NOT MET\n", out);
    print_size(out, o);
    print_error(out, o);
    kv_text_free(&budget);
    return KV_OK;
}

/* ---- the policy ---- */

static kv_status set_number(kv_grid *g, int64_t line, int64_t column, const char *format,
                            double number, kv_error *err)
{
    char text[KV_CELL_SIZE] = "-";
    if (!isnan(number)) {
        /* the formats are this file's own */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(text, sizeof text, format, number);
#pragma GCC diagnostic pop
    }
    g->columns[column].is_number = true;
    return kv_grid_set(g, line, column, text, err);
}

static kv_status print_layers(FILE *out, const kv_outcome *o, kv_error *err)
{
    static const char *const heads[] = {"layer", "key",   "value", "bytes",
                                        "share", "error", "share", "price"};
    enum { N = sizeof heads / sizeof heads[0] };
    kv_status status = KV_OK;
    const kv_problem *const p = o->problem;
    int64_t const L = p->n_layers;
    double const bytes = (double)o->policy.bytes, power = o->policy.additive;
    kv_grid g = {0};
    KV_TRY(kv_grid_create(&g, 2 + L, N, err));
    for (int i = 0; i < N; i++) KV_TRY(kv_grid_set(&g, 0, i, heads[i], err));
    for (int64_t i = 0; i < L; i++) {
        const kv_choice *const c = kv_assigned(p, o->policy.assignment, i);
        double const share = bytes > 0 ? 100 * (double)c->bytes / bytes : (double)NAN;
        double const error_share = power > 0 ? 100 * c->error / power : (double)NAN;
        KV_TRY(set_number(&g, 1 + i, 0, "%.0f", (double)p->layers[i].number, err));
        KV_TRY(kv_grid_set(&g, 1 + i, 1, p->keys.schemes[c->key], err));
        KV_TRY(kv_grid_set(&g, 1 + i, 2, p->values.schemes[c->value], err));
        KV_TRY(set_number(&g, 1 + i, 3, "%.0f", (double)c->bytes, err));
        KV_TRY(set_number(&g, 1 + i, 4, "%.1f %%", share, err));
        KV_TRY(set_number(&g, 1 + i, 5, "%.3g", c->error, err));
        KV_TRY(set_number(&g, 1 + i, 6, "%.1f %%", error_share, err));
        KV_TRY(set_number(&g, 1 + i, 7, "%.2g",
                          kv_marginal_at(&p->layers[i], o->policy.assignment[i]).up, err));
    }
    KV_TRY(kv_grid_set(&g, 1 + L, 0, "all", err));
    KV_TRY(set_number(&g, 1 + L, 3, "%.0f", bytes, err));
    KV_TRY(set_number(&g, 1 + L, 5, "%.3g", power, err));
    KV_TRY(set_number(&g, 1 + L, 7, "%.2g", o->unit * o->frontier->multiplier[o->point], err));
    fputs("\n", out);
    kv_grid_print(out, &g, false);
    fprintf(out, "\n%sprice: the error%s one more byte would save there at best\n",
            o->is_power ? "" : "error: power, adds up over layers; ", o->is_power ? "" : " power");
done:
    kv_grid_free_contents(&g);
    return status;
}

/* ---- gaps ---- */

/* Least and largest ratio of verified to additive error over what was verified. */
static int64_t ratios(double *least, double *largest, const kv_outcome *o)
{
    int64_t n = 0;
    for (int64_t i = -1; i < o->n_candidates; i++) {
        const kv_candidate *const c = i < 0 ? &o->policy : &o->candidates[i];
        double const ratio = c->verified / kv_outcome_error(o, c->additive);
        if (!isfinite(ratio)) continue;
        *least = n ? fmin(*least, ratio) : ratio;
        *largest = n ? fmax(*largest, ratio) : ratio;
        n++;
    }
    return n;
}

static void print_conditional(FILE *out, const kv_outcome *o)
{
    double least = 0, largest = 0;
    int64_t const n = ratios(&least, &largest, o);
    double const bound = least * kv_outcome_error(o, kv_lower_bound(o));
    if (n == 0 || isnan(o->policy.verified)) {
        fprintf(out,
                "That is about sums of errors. Whether errors of layers add up was not tested"
                "%s%s.\n",
                o->why_not ? ":\n" : "", o->why_not ? o->why_not : "");
        return;
    }
    fprintf(out,
            "End to end, %" PRId64 " assignments had %.3g to %.3g times their additive error. If "
            "every one has,\nno assignment within these bytes has an error below %.4g",
            n, least, largest, bound);
    if (bound > 0) fprintf(out, ": the policy's is %.3g times that", o->policy.verified / bound);
    fputs(".\n", out);
}

static void print_gap(FILE *out, const kv_outcome *o)
{
    const kv_frontier *const f = o->frontier;
    double const bound = kv_outcome_error(o, kv_lower_bound(o));
    double const chosen = kv_outcome_error(o, o->unit * (double)f->error[o->point]);
    double const error = kv_outcome_error(o, o->policy.additive);
    bool const is_chosen = kv_is_frontier_point(o);
    fputs("\nThe frontier is exact", out);
    if (o->resolution) fprintf(out, " at budgets %" PRId64 " bytes apart", o->resolution);
    fprintf(out, ": %" PRId64 " points, %" PRId64 " to %" PRId64 " bytes, error %.4g to %.4g.\n",
            f->count, f->size[0], f->size[f->count - 1],
            kv_outcome_error(o, o->unit * (double)f->error[0]),
            kv_outcome_error(o, o->unit * (double)f->error[f->count - 1]));
    if (is_chosen)
        fprintf(out, "No assignment within %" PRId64 " bytes has a smaller additive error; ",
                o->policy.bytes);
    else
        fprintf(
            out,
            "The policy was improved by running it and lies beside it, near the point of %" PRId64
            " bytes and error %.4g; ",
            f->size[o->point], chosen);
    fprintf(out, "the linear relaxation,\na bound of its own, allows none below %.4g", bound);
    double const gap = error > 0 ? (error - bound) / error : 0;
    if (is_chosen && gap > 1e-9)
        fprintf(out, ": a gap of %.2g (%.2g %%)", error - bound, 100 * gap);
    else if (is_chosen)
        fputs(": no gap", out);
    fputs(".\n", out);
    print_conditional(out, o);
    if (o->runs > 0) fprintf(out, "Runs of the stack: %" PRId64 ".\n", o->runs);
}

kv_status kv_outcome_report(FILE *out, const kv_outcome *outcome, kv_error *err)
{
    kv_status status = KV_OK;
    KV_TRY(print_head(out, outcome, err));
    KV_TRY(print_layers(out, outcome, err));
    print_gap(out, outcome);
    KV_TRY(kv_outcome_compare(out, outcome, err));
    if (ferror(out)) KV_TRY(KV_FAIL(err, KV_EIO, "writing the report failed"));
done:
    return status;
}
