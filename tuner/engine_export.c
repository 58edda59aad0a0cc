/* `kvant export`: from a policy to an engine's words, with what they cost beside the free optimum.
 *
 * Budget: what the policy itself attains, additive error for budgets on error (also `match`), bytes
 * for budgets on bytes, or what was asked for where that is more: a declared error limit divided by
 * kappa = true / additive power, where both are known. The true one is the upper end of the
 * held-out interval, which a tuning keeps within its budget, and where there is none the verified
 * error. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "kernels/memory.h"
#include "tuner/engine_state.h"
#include "tuner/problem_result.h"

/* ---- budget ---- */

/* Errors are reported as roots of powers but for a table's own. */
static bool is_power(const kv_policy *policy)
{
    return !policy->error_kind || strcmp(policy->error_kind, "error") == 0;
}

static double to_power(const kv_policy *policy, double error)
{
    return is_power(policy) ? error : error * error;
}

static double to_error(const kv_policy *policy, double power)
{
    return is_power(policy) ? power : sqrt(power);
}

/* The choice of these schemes, canonical as policies and problems hold them; -1 for none. */
static int32_t find_choice(const kv_problem *problem, int64_t layer, const kv_policy_layer *own)
{
    const kv_problem_layer *const at = &problem->layers[layer];
    for (int64_t c = 0; own && c < at->n_choices; c++)
        if (strcmp(problem->keys.schemes[at->choices[c].key], own->key) == 0 &&
            strcmp(problem->values.schemes[at->choices[c].value], own->value) == 0)
            return (int32_t)c;
    return -1;
}

/* What the policy's own assignment costs: by the table where that has all of it, else by its own
 * word; -1 and NaN unknown. */
static kv_status own_cost(int64_t *bytes, double *power, const kv_policy *policy,
                          const kv_problem *problem, kv_error *err)
{
    kv_status status = KV_OK;
    int32_t *assignment = NULL;
    bool is_there = true, is_known = true;
    KV_TRY(kv_allocate((void **)&assignment, (size_t)problem->n_layers, sizeof *assignment, err));
    for (int64_t l = 0; l < problem->n_layers; l++) {
        const kv_policy_layer *const layer = kv_policy_find(policy, problem->layers[l].number);
        assignment[l] = find_choice(problem, l, layer), is_there &= assignment[l] >= 0;
    }
    for (int64_t l = 0; l < policy->n_layers; l++) is_known &= policy->layers[l].bytes > 0;
    *bytes = is_there   ? kv_problem_bytes(problem, assignment)
             : is_known ? kv_policy_bytes(policy)
                        : -1;
    *power =
        is_there ? kv_problem_error(problem, assignment) : to_power(policy, policy->additive_error);
done:
    kv_free(assignment);
    return status;
}

static bool starts(const char *text, const char *with)
{
    return text && strncmp(text, with, strlen(with)) == 0;
}

/* The number of "max_error 0.01"; of "match SCHEME" the error found for it. */
static double declared_number(const kv_policy *policy)
{
    const char *const space = policy->budget_text ? strchr(policy->budget_text, ' ') : NULL;
    double number;
    return space && kv_parse_real(space + 1, &number) ? number : policy->budget;
}

static double declared_power(const kv_policy *policy)
{
    double const asked = to_power(policy, declared_number(policy));
    double const true_error =
        policy->verified_high > 0 ? policy->verified_high : policy->verified_error;
    double const kappa = to_power(policy, true_error / policy->additive_error);
    return kappa > 0 && isfinite(kappa) ? asked / kappa : asked;
}

/* Bytes that were asked for; NaN where the policy does not say so. */
static double declared_bytes(const kv_policy *policy)
{
    bool const is_per_token = starts(policy->budget_text, "max_bytes_per_token");
    if (!starts(policy->budget_text, "max_bytes")) return NAN;
    return floor(declared_number(policy) *
                 (is_per_token && policy->context ? (double)policy->context : 1));
}

static kv_status find_budget(kv_engine_budget *out, const kv_policy *policy,
                             const kv_problem *problem, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t bytes;
    double power;
    const char *const asked = policy->budget_text;
    *out = (kv_engine_budget){0};
    KV_TRY(own_cost(&bytes, &power, policy, problem, err));
    bool const is_declared = starts(asked, "max_error") || starts(asked, "match");
    double const most = fmax(power, is_declared ? declared_power(policy) : NAN);
    bool const on_bytes = starts(asked, "max_bytes") || starts(asked, "max_bits");
    double const declared = declared_bytes(policy);
    if (!on_bytes && most >= 0) return out->max_error = most, KV_OK;
    out->max_bytes = bytes;
    if (declared > (double)bytes && declared < 0x1p61) out->max_bytes = (int64_t)declared;
    if (out->max_bytes <= 0)
        KV_TRY(KV_FAIL(err, KV_EREQUEST,
                       "the policy says neither its error nor its bytes, and the table does not "
                       "have its choices: there is no budget to search at"));
done:
    return status;
}

/* ---- notes ---- */

static void write_cost(FILE *notes, const char *name, int64_t bytes, double power,
                       const kv_policy *policy)
{
    fprintf(notes, "%-13s %12" PRId64 " bytes, additive error %.4g\n", name, bytes,
            to_error(policy, power));
}

static void write_regret(FILE *notes, const kv_engine_fit *fit, const kv_policy *policy)
{
    int64_t const bytes = fit->bytes - fit->free_bytes;
    double const error = to_error(policy, fit->error) - to_error(policy, fit->free_error);
    write_cost(notes, "free optimum", fit->free_bytes, fit->free_error, policy);
    fprintf(notes, "%-13s %+12" PRId64 " bytes", "regret", bytes);
    if (fit->free_bytes > 0)
        fprintf(notes, " (%+.1f %%)", 100 * (double)bytes / (double)fit->free_bytes);
    fprintf(notes, ", error %+.3g\n", error);
}

static void write_notes(FILE *notes, const kv_engine_fit *fit, const kv_engine_budget *budget,
                        const kv_policy *policy, const char *table)
{
    if (!table) {
        fprintf(notes,
                "%s: the policy's own assignment; without a table (--table, or the policy's result "
                "file) there is nothing to compare\n",
                fit->engine->name);
    } else {
        fprintf(notes, "%s: %s at ", fit->engine->name,
                fit->is_feasible ? "the best of what it can express"
                                 : "nothing it can express is within the budget; the nearest");
        if (budget->max_bytes > 0)
            fprintf(notes, "%" PRId64 " bytes\n", budget->max_bytes);
        else
            fprintf(notes, "an additive error of %.4g\n", to_error(policy, budget->max_error));
        write_cost(notes, fit->engine->name, fit->bytes, fit->error, policy);
        if (fit->is_free_feasible) write_regret(notes, fit, policy);
        if (fit->absent.length)
            fprintf(notes, "not considered, as no choice of the table is one: %s\n",
                    fit->absent.data);
        if (!fit->is_exact)
            fprintf(notes, "warning: keys and values were improved in turn; a better policy may "
                           "exist\n");
    }
    for (const char *at = fit->warnings.data; at && *at;) {
        size_t const length = strcspn(at, "\n");
        fprintf(notes, "warning: %.*s\n", (int)length, at);
        at += length + (at[length] == '\n');
    }
}

/* ---- all together ---- */

/* *table: the file the choices come from, NULL for the policy itself. */
static kv_status load_problem(kv_problem **out, const char **table, FILE *notes,
                              const kv_policy *policy, const char *asked, kv_error *err)
{
    *table = asked ? asked : policy->result;
    if (!asked && *table && access(*table, R_OK) != 0) {
        fprintf(notes, "warning: the policy's result file %s is not there\n", *table);
        *table = NULL;
    }
    return *table ? kv_problem_load_any(out, *table, err) : kv_problem_of_policy(out, policy, err);
}

kv_status kv_engine_export(kv_text *out, FILE *notes, bool *is_feasible, const kv_engine *engine,
                           const kv_policy *policy, const kv_engine_export_options *options,
                           kv_error *err)
{
    kv_status status = KV_OK;
    kv_problem *problem = NULL;
    kv_engine_fit fit = {0};
    kv_engine_budget budget = {.max_error = 1e300};
    kv_text text = {0};
    const char *table = NULL;
    if (options->scales && !engine->write_scales)
        return KV_FAIL(err, KV_EREQUEST, "%s takes no scales: %s", engine->name, engine->no_scales);
    KV_TRY(load_problem(&problem, &table, notes, policy, options->table, err));
    if (table) KV_TRY(find_budget(&budget, policy, problem, err));
    KV_TRY(kv_engine_solve(&fit, engine, problem, policy, &budget, err));
    if (options->scales && policy->error_kind && strcmp(policy->error_kind, "stack_err") == 0)
        KV_TRY(
            kv_engine_warn(&fit, err,
                           "%s holds scales of simulated heads, which are no model's: to serve a "
                           "model, tune on its capture (heads.capture)",
                           options->scales));
    if (engine->warn) KV_TRY(engine->warn(&fit, policy, options->scales, err));
    KV_TRY(engine->write(&text, &fit, policy, options->scales, err));
    if (options->scales) KV_TRY(engine->write_scales(options->scales, &fit, policy, err));
    write_notes(notes, &fit, &budget, policy, table);
    *is_feasible = fit.is_feasible;
    *out = text, text = (kv_text){0};
done:
    kv_text_free(&text);
    kv_engine_fit_free_contents(&fit);
    kv_problem_free(problem);
    return status;
}
