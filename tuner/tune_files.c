/* A tuning from files to files: see tune_files.h. */
#include "tuner/tune_files.h"

#include <inttypes.h>
#include <string.h>

#include "kernels/file.h"
#include "kernels/memory.h"
#include "results/progress.h"
#include "results/provenance.h"
#include "results/sha256.h"
#include "results/store.h"
#include "sim/heads_keys.h"
#include "tuner/problem_result.h"
#include "tuner/tune_state.h"

/* ---- what every tuning starts and ends with ---- */

/* The result, the policy and what they are made from must be different files. */
static kv_status check_outputs(const char *result, const char *policy, const char *input,
                               kv_error *err)
{
    kv_status status = KV_OK;
    KV_TRY(kv_file_refuse_input(result, input, err));
    if (!policy) goto done;
    KV_TRY(kv_file_refuse_input(policy, input, err));
    if (strcmp(policy, result) == 0)
        KV_TRY(KV_FAIL(err, KV_EREQUEST, "%s cannot be both the result and the policy", result));
done:
    return status;
}

static kv_status no_layer(int64_t layer, int64_t n, int64_t first, int64_t last, kv_error *err)
{
    return KV_FAIL(err, KV_EREQUEST,
                   "--explain: there is no layer %" PRId64 "; there are %" PRId64 ", from %" PRId64
                   " to %" PRId64,
                   layer, n, first, last);
}

static kv_status check_explained(const kv_tune_request *r, const kv_problem *p, kv_error *err)
{
    if (!r->explain || kv_problem_layer_at(p, *r->explain) >= 0) return KV_OK;
    return no_layer(*r->explain, p->n_layers, p->layers[0].number,
                    p->layers[p->n_layers - 1].number, err);
}

/* Where an outcome goes. */
typedef struct {
    const char *result, *policy; /* policy NULL: none */
    const kv_provenance *provenance;
} target;

/* The result as the policy names it: beside it by its name alone, so that both may be moved. */
static kv_status name_result(char **out, const target *to, kv_error *err)
{
    const char *const slash = strrchr(to->result, '/');
    size_t const folder = slash ? (size_t)(slash - to->result) + 1 : 0;
    bool const is_beside =
        strncmp(to->result, to->policy, folder) == 0 && !strchr(to->policy + folder, '/');
    if (is_beside) return kv_duplicate(out, to->result + folder, err);
    return kv_file_whole_path(out, to->result, err);
}

static kv_status write_policy(const target *to, const kv_outcome *outcome, kv_error *err)
{
    kv_status status = KV_OK;
    kv_policy policy = {0};
    char digest[65];
    const char *const config_text = to->provenance->config_text;
    kv_sha256_hex(digest, config_text, strlen(config_text));
    KV_TRY(kv_outcome_policy(&policy, outcome, err));
    KV_TRY(name_result(&policy.result, to, err));
    KV_TRY(kv_duplicate(&policy.version, kv_this_build.version, err));
    KV_TRY(kv_duplicate(&policy.git, kv_this_build.git_revision, err));
    KV_TRY(kv_duplicate(&policy.config_sha256, digest, err));
    KV_TRY(kv_policy_write(to->policy, &policy, err));
done:
    kv_policy_free_contents(&policy);
    return status;
}

static kv_status print_outcome(const kv_tune_request *r, const kv_session *session,
                               const kv_outcome *outcome, const kv_record *record, kv_error *err)
{
    static const char *const metrics[] = {"policy"};
    kv_status status = KV_OK;
    if (r->format) {
        kv_table_request const table = {.n_metrics = 1, .metrics = metrics, .format = *r->format};
        KV_TRY(kv_table_write(session->out, record, &table, err));
    } else if (!session->is_quiet)
        KV_TRY(kv_outcome_report(session->out, outcome, err));
    if (r->explain) KV_TRY(kv_outcome_explain(session->out, outcome, *r->explain, err));
    fflush(session->out);
done:
    return status;
}

static kv_status finish(kv_tune_end *end, const kv_outcome *outcome, const target *to,
                        const kv_tune_request *r, const kv_session *session, kv_error *err)
{
    kv_status status = KV_OK;
    kv_record *record = NULL;
    KV_TRY(kv_outcome_record(&record, outcome, err));
    KV_TRY(kv_provenance_add(record, to->provenance, err));
    KV_TRY(kv_store_write(to->result, record, err));
    if (to->policy) KV_TRY(write_policy(to, outcome, err));
    KV_TRY(print_outcome(r, session, outcome, record, err));
    if (!session->is_quiet)
        fprintf(session->notes, "written to %s%s%s\n", to->result, to->policy ? " and " : "",
                to->policy ? to->policy : "");
    end->is_budget_met = outcome->is_budget_met;
done:
    kv_record_free(record);
    return status;
}

/* ---- a table alone ---- */

/* Its effective configuration. */
static kv_status table_config(kv_text *text, const kv_tune_request *r, kv_error *err)
{
    kv_status status = KV_OK;
    char limit[KV_REAL_TEXT];
    bool const is_on_error = kv_budget_is_on_error(r->budget->kind);
    KV_TRY(kv_text_add(text, err, "table: %s\n", r->table));
    KV_TRY(kv_text_add(text, err, "%s: %s\n", is_on_error ? "max_error" : "max_bytes",
                       kv_real_text(limit, r->budget->limit)));
    if (r->resolution) KV_TRY(kv_text_add(text, err, "resolution: %" PRId64 "\n", *r->resolution));
done:
    return status;
}

static kv_status tune_table(kv_tune_end *end, const kv_tune_request *r, const kv_session *session,
                            kv_error *err)
{
    kv_status status = KV_OK;
    kv_problem *problem = NULL;
    kv_solution *solution = NULL;
    kv_text config = {0};
    char *result = NULL;
    const char *const slash = strrchr(r->table, '/');
    const char *const name = slash ? slash + 1 : r->table;
    kv_solution_request request = {
        .is_power = true,
        .title = name,
        .budget = *r->budget,
        .resolution = r->resolution ? *r->resolution : 0,
        .why_not =
            "the table was measured elsewhere, so verifying and repairing (steps 3 and 4) have "
            "nothing to run"};
    KV_TRY(r->result ? kv_duplicate(&result, r->result, err)
                     : kv_file_name_after(&result, r->table, ".h5", err));
    KV_TRY(check_outputs(result, r->policy, r->table, err));
    KV_TRY(table_config(&config, r, err));
    kv_provenance provenance = {.title = name,
                                .config_text = config.data,
                                .argc = session->argc,
                                .argv = session->argv,
                                .is_complete = 1};
    kv_provenance_start(&provenance);
    KV_TRY(kv_problem_load_any(&problem, r->table, err));
    KV_TRY(check_explained(r, problem, err));
    KV_TRY(kv_solution_create(&solution, problem, &request, err));
    KV_TRY(finish(end, &solution->outcome, &(target){result, r->policy, &provenance}, r, session,
                  err));
done:
    kv_solution_free(solution);
    kv_problem_free(problem);
    kv_text_free(&config);
    kv_free(result);
    return status;
}

/* ---- a configuration ---- */

typedef struct {
    const kv_tune_request *request;
    const kv_session *session;
    kv_config config;
    kv_tune_settings settings;
    kv_tuning *tuning;
    kv_text text; /* effective configuration */
    char *result, *policy, *cache;
    char *seeds, *generator;
    double shown_s; /* of the progress */
} run;

static void run_free_contents(run *r)
{
    kv_tuning_free(r->tuning);
    kv_config_free_contents(&r->config);
    kv_tune_settings_free_contents(&r->settings);
    kv_text_free(&r->text);
    kv_free(r->result), kv_free(r->policy), kv_free(r->cache);
    kv_free(r->seeds), kv_free(r->generator);
}

static bool is_cancelled(void *context)
{
    const kv_session *const s = ((run *)context)->session;
    return s->is_cancelled && s->is_cancelled(s->context);
}

static void show(void *context, const char *task, double share, double eta_s)
{
    run *const r = context;
    double const now_s = kv_tune_now_s();
    char eta[32] = "", text[96];
    if (now_s - r->shown_s < 0.1) return;
    r->shown_s = now_s;
    if (eta_s >= 0) snprintf(eta, sizeof eta, "  ETA %.0f s", eta_s);
    snprintf(text, sizeof text, "%s%s", task, eta);
    kv_progress_bar(r->session->notes, share, text);
}

/* The configuration with its `tune:`; what the request replaces goes after its sets. */
static kv_status load(run *r, kv_error *err)
{
    enum { EFFORT, TABLE, RESOLUTION, N_MORE };
    kv_status status = KV_OK;
    const kv_tune_request *const q = r->request;
    kv_config_sources sources = r->session->sources;
    kv_text more[N_MORE] = {0};
    const char **sets = NULL;
    char *text = NULL;
    size_t n = sources.n_sets;
    kv_config_section const section = kv_tune_section(&r->settings);
    KV_TRY(kv_allocate((void **)&sets, n + N_MORE, sizeof *sets, err));
    if (n) memcpy(sets, sources.sets, n * sizeof *sets);
    if (q->effort) KV_TRY(kv_text_add(&more[EFFORT], err, "tune.effort=%s", q->effort));
    if (q->table) KV_TRY(kv_text_add(&more[TABLE], err, "tune.table=%s", q->table));
    if (q->resolution)
        KV_TRY(kv_text_add(&more[RESOLUTION], err, "tune.resolution=%" PRId64, *q->resolution));
    for (int i = 0; i < N_MORE; i++)
        if (more[i].data) sets[n++] = more[i].data;
    sources.sets = sets, sources.n_sets = n;
    sources.sections = &section, sources.n_sections = 1;
    r->settings.data_dirs = sources.data_dirs, r->settings.n_data_dirs = sources.n_data_dirs;
    KV_TRY(kv_config_load(&r->config, q->config, &sources, err));
    if (!r->settings.is_given) KV_TRY(kv_tune_settings_defaults(&r->settings, err));
    KV_TRY(kv_config_text(&text, &r->config, err));
    KV_TRY(kv_text_add(&r->text, err, "%s", text));
done:
    for (int i = 0; i < N_MORE; i++) kv_text_free(&more[i]);
    kv_free(sets), kv_free(text);
    return status;
}

static void replace_budget(kv_tune_settings *s, const kv_config *config, const kv_budget *budget)
{
    double const context = (double)(s->context ? s->context : config->heads.tokens);
    if (!budget) return;
    s->max_error = s->max_bytes_per_token = s->max_bits = 0;
    if (s->match) *s->match = 0;
    if (budget->kind == KV_BUDGET_ERROR)
        s->max_error = budget->limit;
    else /* a table's bytes are its own */
        s->max_bytes_per_token = *s->table ? budget->limit : budget->limit / context;
}

/* NAME.h5, NAME.policy.yaml and NAME.h5.cache, unless told otherwise. */
static kv_status name_outputs(run *r, kv_error *err)
{
    kv_status status = KV_OK;
    kv_text policy = {0}, cache = {0};
    const kv_tune_request *const q = r->request;
    KV_TRY(q->result ? kv_duplicate(&r->result, q->result, err)
                     : kv_file_name_after(&r->result, q->config, ".h5", err));
    size_t const length = strlen(r->result);
    bool const has_end = length > 3 && strcmp(r->result + length - 3, ".h5") == 0;
    if (q->policy)
        KV_TRY(kv_text_add(&policy, err, "%s", q->policy));
    else
        KV_TRY(kv_text_add(&policy, err, "%.*s.policy.yaml", (int)(length - (has_end ? 3 : 0)),
                           r->result));
    KV_TRY(kv_text_add(&cache, err, "%s.cache", r->result));
    r->policy = kv_text_take(&policy), r->cache = kv_text_take(&cache);
    if (strcmp(r->policy, r->cache) == 0)
        KV_TRY(KV_FAIL(err, KV_EREQUEST, "%s cannot be both the policy and the cache", r->policy));
    KV_TRY(check_outputs(r->result, r->policy, q->config, err));
    KV_TRY(check_outputs(r->result, r->policy, r->config.heads.capture, err));
    KV_TRY(check_outputs(r->result, r->policy, *r->settings.table ? r->settings.table : NULL, err));
done:
    kv_text_free(&policy), kv_text_free(&cache);
    return status;
}

/* Everything up to the first measurement. */
static kv_status prepare(run *r, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_tune_request *const q = r->request;
    const kv_session *const session = r->session;
    kv_tune_environment e = {.backend = session->backend,
                             .threads = session->threads,
                             .time_limit = q->time_limit,
                             .is_cancelled = is_cancelled,
                             .progress = session->has_bar ? show : NULL,
                             .context = r};
    KV_TRY(load(r, err));
    replace_budget(&r->settings, &r->config, q->budget);
    KV_TRY(name_outputs(r, err));
    if (!session->is_dry && !*r->settings.table) e.cache_path = r->cache;
    KV_TRY(kv_tuning_create(&r->tuning, &r->config, &r->settings, &e, err));
    KV_TRY(kv_tune_settings_text(&r->text, &r->settings, err));
    KV_TRY(kv_heads_origin(&r->generator, &r->seeds, &r->config.heads, err));
    const kv_tuning *const t = r->tuning;
    bool is_there = !q->explain || t->is_table; /* a table is not read yet */
    for (int64_t l = 0; l < t->layers && !is_there; l++)
        is_there = t->geometry[l].number == *q->explain;
    if (!is_there)
        KV_TRY(no_layer(*q->explain, t->layers, t->geometry[0].number,
                        t->geometry[t->layers - 1].number, err));
done:
    return status;
}

/* Runs it, and says what the report does not. */
static kv_status measure(run *r, kv_error *err)
{
    const kv_session *const session = r->session;
    int64_t const before = kv_tuning_cached(r->tuning);
    if (before && !session->is_quiet)
        fprintf(session->notes, "%" PRId64 " measurements of an earlier run are in %s\n", before,
                r->cache);
    kv_status const status = kv_tuning_run(r->tuning, err);
    if (session->has_bar) kv_progress_wipe(session->notes);
    if (!session->is_quiet) fputs(kv_tuning_notes(r->tuning), session->notes);
    if (status == KV_EINTERRUPTED)
        fprintf(session->notes,
                "kvant: %" PRId64 " measurements are kept in %s; the same command goes on\n",
                kv_tuning_cached(r->tuning), r->cache);
    return status;
}

static kv_status tune_config(kv_tune_end *end, const kv_tune_request *request,
                             const kv_session *session, kv_error *err)
{
    kv_status status = KV_OK, ended = KV_OK;
    run r = {.request = request, .session = session};
    kv_error stopped = {0};
    KV_TRY(prepare(&r, err));
    kv_session_note(session);
    if (session->is_dry) {
        fprintf(session->out, "%s# products          %.3g FLOP without the comparison\n",
                r.text.data, kv_tuning_flops(r.tuning));
        end->is_budget_met = true;
        goto done;
    }
    kv_provenance provenance = {.title = r.config.title,
                                .config_text = r.text.data,
                                .backend = session->backend->name,
                                .device = session->backend->device(),
                                .backend_why = *session->why ? session->why : NULL,
                                .seeds = r.seeds,
                                .generator = r.generator,
                                .argc = session->argc,
                                .argv = session->argv};
    kv_provenance_start(&provenance);
    ended = measure(&r, &stopped);
    const kv_outcome *const outcome = kv_tuning_outcome(r.tuning);
    if (ended != KV_OK && (ended != KV_EINTERRUPTED || !outcome))
        KV_TRY(KV_FAIL(err, ended, "%s", stopped.message));
    provenance.is_complete = outcome->is_complete;
    KV_TRY(check_explained(request, outcome->problem, err));
    KV_TRY(finish(end, outcome, &(target){r.result, r.policy, &provenance}, request, session, err));
    end->is_unfinished = ended != KV_OK && (!outcome->is_verified || is_cancelled(&r));
done:
    run_free_contents(&r);
    return status;
}

kv_status kv_tune_files(kv_tune_end *end, const kv_tune_request *request, const kv_session *session,
                        kv_error *err)
{
    *end = (kv_tune_end){0};
    return request->config ? tune_config(end, request, session, err)
                           : tune_table(end, request, session, err);
}
