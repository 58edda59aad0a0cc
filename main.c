/* kvant: the one command line. A table of commands; each reads its options, calls the rooms and
 * prints. Errors go to stderr, data to stdout; exit codes: 0 good, 1 the run failed, 2 the request
 * was wrong, 3 a comparison did not hold. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kernels/backend.h"
#include "kernels/bench.h"
#include "kernels/file.h"
#include "kernels/memory.h"
#include "kernels/shorthand.h"
#include "kernels/text.h"
#include "results/plot.h"
#include "results/progress.h"
#include "results/provenance.h"
#include "results/run.h"
#include "results/store.h"
#include "results/table.h"
#include "sim/capture.h"
#include "sim/config.h"
#include "sim/heads_keys.h"
#include "sim/metrics.h"
#include "sim/sweep.h"
#include "tuner/capacity.h"
#include "tuner/engine.h"
#include "tuner/problem_result.h"
#include "tuner/solution.h"
#include "tuner/strategies.h"
#include "tuner/tune.h"

enum { MAX_REPEATED = 64 };

/* Every option of every command; a command names the letters it takes. */
typedef struct {
    const char *output, *backend, *rows, *cols, *format, *x;
    const char *table, *max_error, *max_bytes, *policy, *explain, *resolution, *effort;
    const char *time_limit, *engine, *scales;
    const char *model, *scheme, *context, *memory, *weights, *pages;
    const char *sets[MAX_REPEATED], *metrics[MAX_REPEATED], *where[MAX_REPEATED];
    int n_sets, n_metrics, n_where;
    int threads;
    bool resume, dry_run, quiet;
    int n_arguments;
    char **arguments;
    int argc; /* the whole command line, for provenance */
    char **argv;
    int *code; /* the exit code of a command that ends well; 0 */
} options;

typedef struct {
    const char *name, *usage, *summary, *help;
    const char *letters; /* which rows of the option table it takes */
    int min_arguments, max_arguments;
    kv_status (*run)(const options *o, kv_error *err);
} command;

typedef struct {
    char letter;
    const char *name, *argument, *help;
} option_row;

static const option_row option_table[] = {
    {'o', "output", "FILE", "where the result goes"},
    {'s', "set", "KEY=VALUE", "set a key of the configuration; may be given again"},
    {'b', "backend", "NAME", "auto (default), cpu or cuda"},
    {'t', "threads", "N", "threads (bench: 1, else all processors); results do not depend on it"},
    {'r', "resume", NULL, "take up an interrupted run"},
    {'n', "dry-run", NULL,
     "print the effective configuration, units, memory and time; run nothing"},
    {'q', "quiet", NULL, "no progress, no table"},
    {'m', "metric", "NAME", "a metric to show; may be given again"},
    {'w', "where", "DIM=VALUE", "keep only this value of a dimension; may be given again"},
    {'R', "rows", "DIM", "spread this dimension over rows"},
    {'C', "cols", "DIM", "spread this dimension over columns"},
    {'f', "format", "NAME", "table (default), csv, json or markdown"},
    {'x', "x", "DIM", "the dimension on the x axis"},
    {'T', "table", "TABLE",
     "errors and bytes measured elsewhere (CSV or HDF5), instead of measuring"},
    {'E', "max-error", "ERROR", "no more error than this; at the least bytes"},
    {'B', "max-bytes", "BYTES", "no more bytes than this; at the least error"},
    {'p', "policy", "FILE", "the policy as YAML: tune writes it, capacity reads it"},
    {'X', "explain", "LAYER", "say why this layer has the schemes it has"},
    {'Z', "resolution", "BYTES", "keep the best within each such step, not every point"},
    {'e', "effort", "NAME", "estimate, measure (default), patient or exhaustive"},
    {'L', "time-limit", "S", "stop after so many seconds with the best so far"},
    {'g', "engine", "NAME", "a serving engine; kvant list engines"},
    {'S', "scales", "FILE", "write static scales as the engine reads them"},
    {'M', "model", "NAME", "kvant list models, or the path of a model file; default: the policy's"},
    {'H', "scheme", "SCHEME", "a preset, \"KEY | VALUE\" or one shorthand for both"},
    {'N', "context", "TOKENS", "length of a sequence"},
    {'G', "memory", "GIB", "memory of the device in GiB, 2^30 bytes"},
    {'W', "weights", "GIB", "what of it is not there for caches"},
    {'K', "pages", "KIND",
     "vllm[=BLOCK[,STEP]]: pages of BLOCK (16) tokens, STEP (2048) in flight"},
};
enum { N_OPTIONS = sizeof option_table / sizeof option_table[0] };

/* ---- the run that Ctrl-C may stop ---- */

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

static void catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    action.sa_handler = SIG_IGN; /* a file-size limit is a failed write, not death */
    sigaction(SIGXFSZ, &action, NULL);
}

/* What the sweep's sink needs. */
typedef struct {
    kv_run *run;
    kv_progress progress;
} sweep_run;

static bool unit_is_done(void *context, int64_t unit)
{
    return kv_run_is_done(((sweep_run *)context)->run, unit);
}

static bool run_is_cancelled(void *context)
{
    (void)context;
    return interrupted != 0;
}

static kv_status put_unit(void *context, int64_t unit, const double *values, kv_error *err)
{
    sweep_run *const r = context;
    kv_status const status = kv_run_put(r->run, unit, values, err);
    if (status == KV_OK) kv_progress_show(&r->progress);
    return status;
}

/* ---- sweep, check ---- */

/* Where schemes/ and models/ are looked for: the source tree, then the installed data. */
static const char *const data_dirs[] = {KVANT_SOURCE_DIR "/configs", KVANT_DATA_DIR};
enum { N_DATA_DIRS = sizeof data_dirs / sizeof data_dirs[0] };

static kv_status load_config(kv_config *config, const options *o, kv_error *err)
{
    kv_config_sources const sources = {.sets = o->sets,
                                       .n_sets = (size_t)o->n_sets,
                                       .data_dirs = data_dirs,
                                       .n_data_dirs = N_DATA_DIRS};
    return kv_config_load(config, o->arguments[0], &sources, err);
}

/* "dir/name.yaml" -> "name.h5". */
static kv_status default_output(char **out, const char *config_path, kv_error *err)
{
    const char *const slash = strrchr(config_path, '/');
    const char *const name = slash ? slash + 1 : config_path;
    const char *const dot = strrchr(name, '.');
    size_t const length = dot && dot > name ? (size_t)(dot - name) : strlen(name);
    void *text = NULL;
    kv_status const status = kv_allocate(&text, length + 4, 1, err);
    if (status != KV_OK) return status;
    memcpy(text, name, length);
    memcpy((char *)text + length, ".h5", 4);
    *out = text;
    return KV_OK;
}

static void dry_run(const kv_sweep *sweep, const char *config_text, int threads)
{
    kv_sweep_cost const cost = kv_sweep_estimate(sweep);
    double const rate = 40e9 * threads; /* FLOP/s, a cautious guess; kvant bench measures */
    printf("%s", config_text);
    printf("# units of work     %lld\n", (long long)kv_sweep_units(sweep));
    printf("# products          %.3g FLOP\n", cost.flops);
    printf("# memory            %.1f MiB a thread, results %.1f MiB\n",
           (double)cost.bytes_per_thread / 0x1p20, (double)cost.bytes_of_results / 0x1p20);
    printf("# time, at least    %.2g s with %d threads, quantization comes on top\n",
           cost.flops / rate, threads);
}

/* Whether a metric of the table has this dimension. */
static bool is_spanned(const kv_record *record, const kv_table_request *request, int dimension)
{
    bool found = false;
    for (int i = 0; i < record->n_arrays; i++) {
        const kv_array *const a = &record->arrays[i];
        bool is_asked = a->numbers && request->n_metrics == 0;
        for (int m = 0; m < request->n_metrics; m++)
            is_asked |= strcmp(request->metrics[m], a->name) == 0;
        for (int r = 0; r < a->rank && is_asked; r++) found |= a->dimensions[r] == dimension;
    }
    return found;
}

/* Says on stderr what a text table's cells are means over, or largest values, beside the seeds. */
static void note_averages(const kv_record *record, const kv_table_request *request)
{
    const char *first = NULL;
    fflush(stdout);
    for (int i = 0; i < record->n_dimensions && request->format == KV_TABLE_TEXT; i++) {
        const kv_dimension *const d = &record->dimensions[i];
        bool is_shown = d->length < 2 || (strcmp(d->name, "layer") && strcmp(d->name, "head"));
        is_shown |= !is_spanned(record, request, i);
        is_shown |= request->rows && strcmp(request->rows, d->name) == 0;
        is_shown |= request->cols && strcmp(request->cols, d->name) == 0;
        for (int w = 0; w < request->n_where; w++) {
            size_t const length = strlen(d->name);
            is_shown |= strncmp(request->where[w], d->name, length) == 0 &&
                        request->where[w][length] == '=';
        }
        if (is_shown) continue;
        fprintf(stderr, "%s %lld %ss", first ? " and" : "each cell is taken over",
                (long long)d->length, d->name);
        first = first ? first : d->name;
    }
    if (first) fprintf(stderr, "; kvant show FILE --rows %s spreads them\n", first);
}

static kv_status store_sweep(const char *path, const kv_sweep *sweep, kv_run *run,
                             const kv_provenance *provenance, kv_record **record, kv_error *err)
{
    kv_status status = KV_OK;
    void *all = NULL;
    KV_TRY(kv_allocate3(&all, (size_t)kv_sweep_units(sweep),
                        (size_t)kv_sweep_values_per_unit(sweep), 1, sizeof(double), err));
    KV_TRY(kv_run_collect(all, run, err));
    KV_TRY(kv_sweep_record(record, sweep, all, err));
    KV_TRY(kv_provenance_add(*record, provenance, err));
    KV_TRY(kv_store_write(path, *record, err));
    KV_TRY(kv_run_finish(run, err));
done:
    kv_free(all);
    return status;
}

/* A result must not replace what it is made from. */
static kv_status refuse_input(const char *output, const char *input, kv_error *err)
{
    struct stat a, b;
    if (!input || stat(output, &a) != 0 || stat(input, &b) != 0) return KV_OK;
    if (a.st_dev != b.st_dev || a.st_ino != b.st_ino) return KV_OK;
    return KV_FAIL(err, KV_EREQUEST, "%s is read by this run; name another output", output);
}

static kv_status run_sweep(const options *o, kv_error *err)
{
    kv_status status = KV_OK;
    kv_config config = {0};
    kv_sweep *sweep = NULL;
    kv_run *run = NULL;
    kv_record *record = NULL;
    const kv_backend *backend = NULL;
    char *text = NULL, *seeds = NULL, *generator = NULL, *path = NULL;
    int const threads = o->threads ? o->threads : (int)sysconf(_SC_NPROCESSORS_ONLN);
    KV_TRY(kv_backend_find(&backend, o->backend ? o->backend : "auto", err));
    KV_TRY(load_config(&config, o, err));
    KV_TRY(kv_config_text(&text, &config, err));
    KV_TRY(kv_sweep_create(&sweep, &config, err));
    if (o->dry_run) {
        dry_run(sweep, text, threads);
        goto done;
    }
    if (o->output)
        KV_TRY(kv_duplicate(&path, o->output, err));
    else
        KV_TRY(default_output(&path, o->arguments[0], err));
    KV_TRY(refuse_input(path, config.heads.capture, err));
    KV_TRY(refuse_input(path, o->arguments[0], err));
    KV_TRY(kv_sweep_origin(&generator, &seeds, sweep, err));
    kv_provenance provenance = {.title = config.title,
                                .config_text = text,
                                .backend = backend->name,
                                .device = "cpu",
                                .seeds = seeds,
                                .argc = o->argc,
                                .argv = o->argv,
                                .generator = generator,
                                .is_complete = 1};
    kv_provenance_start(&provenance);
    KV_TRY(kv_run_open(&run,
                       &(kv_run_spec){.final_path = path,
                                      .identity = text,
                                      .n_units = kv_sweep_units(sweep),
                                      .resume = o->resume,
                                      .values_per_unit = kv_sweep_values_per_unit(sweep)},
                       err));
    sweep_run r = {.run = run};
    kv_sweep_sink const sink = {&r, unit_is_done, put_unit, run_is_cancelled};
    catch_interrupts();
    kv_progress_start(&r.progress, !o->quiet && isatty(STDERR_FILENO) ? stderr : NULL, run,
                      kv_sweep_units(sweep));
    status = kv_sweep_run(sweep, backend, threads, &sink, err);
    kv_progress_clear(&r.progress);
    if (status != KV_OK && kv_run_count_done(run) > 0)
        fprintf(stderr,
                "kvant: %lld of %lld units are kept in %s.run; run the same command with "
                "--resume to go on\n",
                (long long)kv_run_count_done(run), (long long)kv_sweep_units(sweep), path);
    KV_TRY(status);
    KV_TRY(store_sweep(path, sweep, run, &provenance, &record, err));
    if (!o->quiet) KV_TRY(kv_table_write(stdout, record, &(kv_table_request){0}, err));
    if (!o->quiet) note_averages(record, &(kv_table_request){0});
    if (!o->quiet) fprintf(stderr, "written to %s\n", path);
done:
    kv_free(text), kv_free(seeds), kv_free(generator), kv_free(path);
    kv_record_free(record);
    kv_run_close(run);
    kv_sweep_free(sweep);
    kv_config_free_contents(&config);
    return status;
}

/* Says on stderr which schemes of a policy cannot be simulated. */
static void note_foreign(const kv_policy *policy)
{
    const char *first = NULL;
    int64_t count = 0;
    for (int64_t i = 0; i < policy->n_layers; i++)
        for (int is_key = 1; is_key >= 0; is_key--) {
            const char *const text = is_key ? policy->layers[i].key : policy->layers[i].value;
            kv_quantizer q;
            kv_error why = {0};
            if (kv_quantizer_parse(&q, text, is_key, &why) == KV_OK) continue;
            if (!first) first = text;
            count++;
        }
    fflush(stdout);
    if (count)
        fprintf(stderr,
                "%lld of %lld schemes are not kvant's, as \"%s\": they cannot be simulated\n",
                (long long)count, (long long)(2 * policy->n_layers), first);
}

static kv_status check_policy(const options *o, kv_error *err)
{
    kv_status status = KV_OK;
    kv_policy policy = {0};
    char *text = NULL;
    if (o->n_sets)
        return KV_FAIL(err, KV_EREQUEST, "--set goes with a configuration; %s is a policy",
                       o->arguments[0]);
    KV_TRY(kv_policy_read(&policy, o->arguments[0], err));
    KV_TRY(kv_policy_text(&text, &policy, err));
    printf("%s", text);
    note_foreign(&policy);
done:
    kv_free(text);
    kv_policy_free_contents(&policy);
    return status;
}

static kv_status run_check(const options *o, kv_error *err)
{
    kv_status status = KV_OK;
    kv_config config = {0};
    kv_sweep *sweep = NULL;
    char *text = NULL;
    bool is_policy = false;
    KV_TRY(kv_policy_probe(&is_policy, o->arguments[0], err));
    if (is_policy) return check_policy(o, err);
    KV_TRY(load_config(&config, o, err));
    KV_TRY(kv_sweep_create(&sweep, &config, err));
    KV_TRY(kv_config_text(&text, &config, err));
    printf("%s", text);
done:
    kv_free(text);
    kv_sweep_free(sweep);
    kv_config_free_contents(&config);
    return status;
}

/* ---- capacity ---- */

static kv_status read_gib(double *out, const char *option, const char *text, kv_error *err)
{
    if (!text) return KV_OK;
    if (kv_parse_real(text, out) && *out > 0 && *out <= 1e6) return KV_OK;
    return KV_FAIL(err, KV_EREQUEST, "%s: expected GiB (2^30 bytes) above 0 to 1e6, found \"%s\"",
                   option, text);
}

static kv_status run_capacity(const options *o, kv_error *err)
{
    kv_status status = KV_OK;
    kv_capacity capacity = {0};
    kv_capacity_request r = {.model = o->model,
                             .policy = o->policy,
                             .scheme = o->scheme,
                             .data_dirs = data_dirs,
                             .n_data_dirs = N_DATA_DIRS};
    bool const is_json = o->format && strcmp(o->format, "json") == 0;
    if (o->format && !is_json && strcmp(o->format, "table") != 0)
        return KV_FAIL(err, KV_EREQUEST, "unknown format \"%s\"; capacity prints table or json",
                       o->format);
    if (o->context && !kv_parse_int(o->context, &r.context))
        return KV_FAIL(err, KV_EREQUEST, "--context: expected a number of tokens, found \"%s\"",
                       o->context);
    KV_TRY(read_gib(&r.memory_gib, "--memory", o->memory, err));
    KV_TRY(read_gib(&r.weights_gib, "--weights", o->weights, err));
    if (o->pages) KV_TRY(kv_capacity_parse_pages(&r, o->pages, err));
    KV_TRY(kv_capacity_find(&capacity, &r, err));
    KV_TRY(kv_capacity_print(stdout, &capacity, is_json, err));
done:
    kv_capacity_free_contents(&capacity);
    return status;
}

/* ---- show, plot ---- */

/* A capture's statistics per layer, or a result file as it is. */
static kv_status read_record(kv_record **out, bool *is_capture, const char *path, kv_error *err)
{
    kv_capture *capture = NULL;
    kv_error not_capture = {0}, not_result = {0};
    *is_capture = false;
    if (kv_store_is_sealed(path)) return kv_store_read(out, path, err);
    kv_status status = kv_capture_probe(path, err);
    if (status != KV_OK) return status;
    status = kv_capture_open(&capture, path, &not_capture);
    *is_capture = status == KV_OK;
    if (status == KV_OK) {
        status = kv_capture_statistics(out, capture, err);
        kv_capture_close(capture);
        return status;
    }
    if (access(path, R_OK) != 0) return KV_FAIL(err, KV_EREQUEST, "%s: %s", path, strerror(errno));
    status = kv_store_read(out, path, &not_result);
    if (status != KV_OK)
        return KV_FAIL(err, status, "%s is neither a result nor a capture:\n  %s\n  %s", path,
                       not_result.message, not_capture.message);
    return status;
}

static kv_status run_show(const options *o, kv_error *err)
{
    kv_status status = KV_OK;
    kv_record *record = NULL;
    kv_table_request request = {.n_metrics = o->n_metrics,
                                .metrics = o->metrics,
                                .n_where = o->n_where,
                                .where = o->where,
                                .rows = o->rows,
                                .cols = o->cols};
    bool is_capture;
    bool const is_summary = !o->n_metrics && !o->n_where && !o->rows && !o->cols && !o->format;
    if (o->format) KV_TRY(kv_table_find_format(&request.format, o->format, err));
    KV_TRY(read_record(&record, &is_capture, o->arguments[0], err));
    if (is_summary) KV_TRY(kv_table_write_summary(stdout, record, err));
    if (is_summary && is_capture) {
        printf("\n");
        request.rows = "layer";
    }
    if (is_capture || !is_summary) KV_TRY(kv_table_write(stdout, record, &request, err));
    if (!is_capture && !is_summary) note_averages(record, &request);
done:
    kv_record_free(record);
    return status;
}

static kv_status run_plot(const options *o, kv_error *err)
{
    kv_status status = KV_OK;
    kv_record *record = NULL;
    if (!o->output) return KV_FAIL(err, KV_EREQUEST, "plot needs -o FIG.svg, .png, .pdf or -");
    if (o->n_metrics > 1)
        return KV_FAIL(err, KV_EREQUEST, "plot draws one --metric, %d are given", o->n_metrics);
    KV_TRY(kv_store_read(&record, o->arguments[0], err));
    KV_TRY(kv_plot(stdout, o->output, record,
                   &(kv_plot_request){.metric = o->n_metrics ? o->metrics[0] : NULL,
                                      .x = o->x,
                                      .n_where = o->n_where,
                                      .where = o->where},
                   err));
done:
    kv_record_free(record);
    return status;
}

/* ---- tune ---- */

static kv_status read_limits(kv_budget *budget, int64_t *resolution, const options *o,
                             kv_error *err)
{
    int64_t bytes = 0;
    *budget = (kv_budget){.kind = o->max_error ? KV_BUDGET_ERROR : KV_BUDGET_BYTES};
    if (!o->max_error == !o->max_bytes)
        return KV_FAIL(err, KV_EREQUEST, "a table needs one budget: --max-error or --max-bytes");
    if (o->max_error && (!kv_parse_real(o->max_error, &budget->limit) || budget->limit < 0))
        return KV_FAIL(err, KV_EREQUEST, "--max-error: expected a number, 0 or more, found \"%s\"",
                       o->max_error);
    if (o->max_bytes && (!kv_parse_int(o->max_bytes, &bytes) || bytes < 0))
        return KV_FAIL(err, KV_EREQUEST,
                       "--max-bytes: expected a whole number, 0 or more, found \"%s\"",
                       o->max_bytes);
    if (o->max_bytes) budget->limit = (double)bytes;
    if (o->resolution && (!kv_parse_int(o->resolution, resolution) || *resolution < 0))
        return KV_FAIL(err, KV_EREQUEST,
                       "--resolution: expected a whole number, 0 or more, found \"%s\"",
                       o->resolution);
    return KV_OK;
}

/* The layer of --explain, -1 without one. */
static kv_status read_explain(int64_t *layer, const kv_problem *problem, const options *o,
                              kv_error *err)
{
    *layer = -1;
    if (!o->explain) return KV_OK;
    if (!kv_parse_int(o->explain, layer) || *layer < 0)
        return KV_FAIL(err, KV_EREQUEST, "--explain: expected a layer's number, found \"%s\"",
                       o->explain);
    if (kv_problem_layer_at(problem, *layer) < 0)
        return KV_FAIL(err, KV_EREQUEST,
                       "--explain: there is no layer %lld; there are %lld, from %lld to %lld",
                       (long long)*layer, (long long)problem->n_layers,
                       (long long)problem->layers[0].number,
                       (long long)problem->layers[problem->n_layers - 1].number);
    return KV_OK;
}

/* A path that holds from any folder. */
static kv_status whole_path(char **out, const char *path, kv_error *err)
{
    kv_text text = {0};
    char folder[4096];
    if (*path == '/') return kv_duplicate(out, path, err);
    if (!getcwd(folder, sizeof folder))
        return KV_FAIL(err, KV_EIO, "the working folder: %s", strerror(errno));
    kv_status const status = kv_text_add(&text, err, "%s/%s", folder, path);
    if (status == KV_OK) *out = kv_text_take(&text);
    return status;
}

static kv_status write_policy(const options *o, const kv_outcome *outcome, const char *result,
                              kv_error *err)
{
    kv_status status = KV_OK;
    kv_policy policy = {0};
    KV_TRY(kv_outcome_policy(&policy, outcome, err));
    KV_TRY(whole_path(&policy.result, result, err));
    KV_TRY(kv_duplicate(&policy.version, kv_this_build.version, err));
    KV_TRY(kv_duplicate(&policy.git, kv_this_build.git_revision, err));
    KV_TRY(kv_policy_write(o->policy, &policy, err));
done:
    kv_policy_free_contents(&policy);
    return status;
}

/* What every tuning ends with: the result file, the policy, the report, the exit code. */
static kv_status finish_tuning(const options *o, const kv_outcome *outcome, const char *path,
                               kv_record *record, int64_t explain, kv_error *err)
{
    static const char *const policy_name[] = {"policy"};
    kv_status status = KV_OK;
    kv_table_request request = {.n_metrics = 1, .metrics = policy_name};
    if (o->format) KV_TRY(kv_table_find_format(&request.format, o->format, err));
    KV_TRY(kv_store_write(path, record, err));
    if (o->policy) KV_TRY(write_policy(o, outcome, path, err));
    if (o->format)
        KV_TRY(kv_table_write(stdout, record, &request, err));
    else if (!o->quiet)
        KV_TRY(kv_outcome_report(stdout, outcome, err));
    if (explain >= 0) KV_TRY(kv_outcome_explain(stdout, outcome, explain, err));
    fflush(stdout);
    if (!o->quiet)
        fprintf(stderr, "written to %s%s%s\n", path, o->policy ? " and " : "",
                o->policy ? o->policy : "");
    *o->code = outcome->is_budget_met ? 0 : 3;
done:
    return status;
}

/* The result, the policy and what they are made from must be different files. */
static kv_status check_outputs(const options *o, const char *path, const char *input, kv_error *err)
{
    kv_status status = KV_OK;
    KV_TRY(refuse_input(path, input, err));
    if (!o->policy) goto done;
    KV_TRY(refuse_input(o->policy, input, err));
    if (strcmp(o->policy, path) == 0)
        KV_TRY(KV_FAIL(err, KV_EREQUEST, "%s cannot be both the result and the policy", path));
done:
    return status;
}

/* The effective configuration of a table that was measured elsewhere. */
static kv_status table_config(kv_text *text, const options *o, kv_error *err)
{
    kv_status status = KV_OK;
    KV_TRY(kv_text_add(text, err, "table: %s\n", o->table));
    KV_TRY(kv_text_add(text, err, "%s: %s\n", o->max_error ? "max_error" : "max_bytes",
                       o->max_error ? o->max_error : o->max_bytes));
    if (o->resolution) KV_TRY(kv_text_add(text, err, "resolution: %s\n", o->resolution));
done:
    return status;
}

/* Options that say how to measure. */
static kv_status refuse_measuring(const options *o, kv_error *err)
{
    const char *const name = o->effort       ? "--effort"
                             : o->time_limit ? "--time-limit"
                             : o->resume     ? "--resume"
                             : o->n_sets     ? "--set"
                             : o->backend    ? "--backend"
                                             : NULL;
    if (!name) return KV_OK;
    return KV_FAIL(err, KV_EREQUEST,
                   "%s goes with a CONFIG.yaml; a table alone leaves nothing to measure", name);
}

/* kvant tune --table TABLE without a configuration: nothing is measured. */
static kv_status tune_table(const options *o, kv_error *err)
{
    kv_status status = KV_OK;
    kv_problem *problem = NULL;
    kv_solution *solution = NULL;
    kv_record *record = NULL;
    kv_text config = {0};
    char *path = NULL;
    int64_t explain;
    const char *const slash = strrchr(o->table, '/');
    const char *const name = slash ? slash + 1 : o->table;
    kv_solution_request request = {
        .is_power = true,
        .title = name,
        .why_not =
            "the table was measured elsewhere, so verifying and repairing (steps 3 and 4) have "
            "nothing to run"};
    KV_TRY(refuse_measuring(o, err));
    KV_TRY(read_limits(&request.budget, &request.resolution, o, err));
    if (o->output)
        KV_TRY(kv_duplicate(&path, o->output, err));
    else
        KV_TRY(default_output(&path, o->table, err));
    KV_TRY(check_outputs(o, path, o->table, err));
    KV_TRY(table_config(&config, o, err));
    kv_provenance provenance = {.title = name,
                                .config_text = config.data,
                                .argc = o->argc,
                                .argv = o->argv,
                                .is_complete = 1};
    kv_provenance_start(&provenance);
    KV_TRY(kv_problem_load_any(&problem, o->table, err));
    KV_TRY(read_explain(&explain, problem, o, err));
    KV_TRY(kv_solution_create(&solution, problem, &request, err));
    KV_TRY(kv_outcome_record(&record, &solution->outcome, err));
    KV_TRY(kv_provenance_add(record, &provenance, err));
    KV_TRY(finish_tuning(o, &solution->outcome, path, record, explain, err));
done:
    kv_record_free(record);
    kv_solution_free(solution);
    kv_problem_free(problem);
    kv_text_free(&config);
    kv_free(path);
    return status;
}

/* ---- tune CONFIG.yaml ---- */

/* Everything of a tuning by configuration. */
typedef struct {
    kv_config config;
    kv_tune_settings settings;
    kv_tuning *tuning;
    kv_text text; /* effective configuration */
    char *path, *policy, *cache;
    char *seeds, *generator;
    double shown_s; /* of the progress */
} tune_run;

static void free_tune_run(tune_run *r)
{
    kv_tuning_free(r->tuning);
    kv_config_free_contents(&r->config);
    kv_tune_settings_free_contents(&r->settings);
    kv_text_free(&r->text);
    kv_free(r->path), kv_free(r->policy), kv_free(r->cache);
    kv_free(r->seeds), kv_free(r->generator);
}

/* The configuration with its `tune:`; options of the command line are further --set. */
static kv_status load_tuning(tune_run *r, const options *o, kv_error *err)
{
    const struct {
        const char *key, *value;
    } extra[] = {
        {"tune.effort", o->effort}, {"tune.table", o->table}, {"tune.resolution", o->resolution}};
    enum { N_EXTRA = sizeof extra / sizeof extra[0] };
    kv_status status = KV_OK;
    const char *sets[MAX_REPEATED + N_EXTRA];
    kv_text texts[N_EXTRA] = {0};
    size_t n = (size_t)o->n_sets;
    char *config_text = NULL;
    kv_config_section const section = kv_tune_section(&r->settings);
    memcpy(sets, o->sets, n * sizeof *sets);
    for (int i = 0; i < N_EXTRA; i++) {
        if (!extra[i].value) continue;
        KV_TRY(kv_text_add(&texts[i], err, "%s=%s", extra[i].key, extra[i].value));
        sets[n++] = texts[i].data;
    }
    kv_config_sources const sources = {.sets = sets,
                                       .n_sets = n,
                                       .data_dirs = data_dirs,
                                       .n_data_dirs = N_DATA_DIRS,
                                       .sections = &section,
                                       .n_sections = 1};
    r->settings.data_dirs = data_dirs, r->settings.n_data_dirs = N_DATA_DIRS;
    KV_TRY(kv_config_load(&r->config, o->arguments[0], &sources, err));
    if (!r->settings.is_given) KV_TRY(kv_tune_settings_defaults(&r->settings, err));
    KV_TRY(kv_config_text(&config_text, &r->config, err));
    KV_TRY(kv_text_add(&r->text, err, "%s", config_text));
done:
    for (int i = 0; i < N_EXTRA; i++) kv_text_free(&texts[i]);
    kv_free(config_text);
    return status;
}

/* --max-error and --max-bytes in place of the configuration's budget. */
static kv_status replace_budget(kv_tune_settings *s, const kv_config *config, const options *o,
                                kv_error *err)
{
    kv_budget budget;
    int64_t resolution;
    if (!o->max_error && !o->max_bytes) return KV_OK;
    kv_status const status = read_limits(&budget, &resolution, o, err);
    if (status != KV_OK) return status;
    double const context = (double)(s->context ? s->context : config->heads.tokens);
    s->max_error = s->max_bytes_per_token = s->max_bits = 0;
    if (s->match) *s->match = 0;
    if (o->max_error)
        s->max_error = budget.limit;
    else
        s->max_bytes_per_token = *s->table ? budget.limit : budget.limit / context;
    return KV_OK;
}

/* NAME.h5, NAME.policy.yaml and NAME.h5.cache, unless told otherwise. */
static kv_status name_outputs(tune_run *r, const options *o, kv_error *err)
{
    kv_status status = KV_OK;
    kv_text policy = {0}, cache = {0};
    if (o->output)
        KV_TRY(kv_duplicate(&r->path, o->output, err));
    else
        KV_TRY(default_output(&r->path, o->arguments[0], err));
    size_t const length = strlen(r->path);
    bool const has_end = length > 3 && strcmp(r->path + length - 3, ".h5") == 0;
    if (o->policy)
        KV_TRY(kv_text_add(&policy, err, "%s", o->policy));
    else
        KV_TRY(kv_text_add(&policy, err, "%.*s.policy.yaml", (int)(length - (has_end ? 3 : 0)),
                           r->path));
    KV_TRY(kv_text_add(&cache, err, "%s.cache", r->path));
    r->policy = kv_text_take(&policy), r->cache = kv_text_take(&cache);
done:
    kv_text_free(&policy), kv_text_free(&cache);
    return status;
}

static double monotonic_s(void)
{
    struct timespec t = {0};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void show_tuning(void *context, const char *task, double share, double eta_s)
{
    static const char bar[] = "##############################";
    tune_run *const r = context;
    int const width = (int)sizeof bar - 1, filled = (int)(width * share);
    double const now = monotonic_s();
    char eta[32] = "";
    if (now - r->shown_s < 0.1) return;
    r->shown_s = now;
    if (eta_s >= 0) snprintf(eta, sizeof eta, "  ETA %.0f s", eta_s);
    fprintf(stderr, "\r[%.*s%*s] %s%s\033[K", filled, bar, width - filled, "", task, eta);
}

static kv_status start_tuning(tune_run *r, const options *o, bool is_dry, kv_error *err)
{
    kv_tune_environment e = {.threads = o->threads, .is_cancelled = run_is_cancelled, .context = r};
    kv_status status = KV_OK;
    if (!e.threads) e.threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (o->time_limit && (!kv_parse_real(o->time_limit, &e.time_limit) || !(e.time_limit > 0)))
        KV_TRY(KV_FAIL(err, KV_EREQUEST, "--time-limit: expected seconds above 0, found \"%s\"",
                       o->time_limit));
    KV_TRY(kv_backend_find(&e.backend, o->backend ? o->backend : "auto", err));
    if (!is_dry && !*r->settings.table) e.cache_path = r->cache;
    if (!o->quiet && isatty(STDERR_FILENO)) e.progress = show_tuning;
    KV_TRY(kv_tuning_create(&r->tuning, &r->config, &r->settings, &e, err));
    KV_TRY(kv_tune_settings_text(&r->text, &r->settings, err));
done:
    return status;
}

static kv_status origin_of(tune_run *r, kv_error *err)
{
    kv_status status = KV_OK;
    kv_text seeds = {0}, generator = {0};
    const kv_heads_config *const heads = &r->config.heads;
    KV_TRY(kv_keys_value(&seeds, heads, kv_keys_find(&kv_heads_table, "seeds"), err));
    KV_TRY(kv_keys_value(&generator, heads, kv_keys_find(&kv_heads_table, "generator"), err));
    r->seeds = kv_text_take(&seeds), r->generator = kv_text_take(&generator);
done:
    kv_text_free(&seeds), kv_text_free(&generator);
    return status;
}

/* Runs it, and says on stderr what the report does not. */
static kv_status measure_tuning(tune_run *r, const options *o, kv_error *err)
{
    int64_t const before = kv_tuning_cached(r->tuning);
    if (before && !o->quiet)
        fprintf(stderr, "%lld measurements of an earlier run are in %s\n", (long long)before,
                r->cache);
    catch_interrupts();
    kv_status const status = kv_tuning_run(r->tuning, err);
    if (!o->quiet && isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
    if (!o->quiet) fputs(kv_tuning_notes(r->tuning), stderr);
    if (status == KV_EINTERRUPTED)
        fprintf(stderr, "kvant: %lld measurements are kept in %s; the same command goes on\n",
                (long long)kv_tuning_cached(r->tuning), r->cache);
    return status;
}

/* kvant tune CONFIG.yaml: measures. What there is is written also where it was stopped. */
static kv_status tune_config(const options *o, kv_error *err)
{
    kv_status status = KV_OK, ended = KV_OK;
    tune_run r = {0};
    kv_record *record = NULL;
    int64_t explain;
    kv_error stopped = {0};
    KV_TRY(load_tuning(&r, o, err));
    KV_TRY(replace_budget(&r.settings, &r.config, o, err));
    KV_TRY(name_outputs(&r, o, err));
    options mine = *o;
    mine.policy = r.policy;
    KV_TRY(check_outputs(&mine, r.path, o->arguments[0], err));
    KV_TRY(check_outputs(&mine, r.path, r.config.heads.capture, err));
    KV_TRY(check_outputs(&mine, r.path, *r.settings.table ? r.settings.table : NULL, err));
    KV_TRY(start_tuning(&r, o, o->dry_run, err));
    if (o->dry_run) {
        printf("%s", r.text.data);
        printf("# products          %.3g FLOP without the comparison\n", kv_tuning_flops(r.tuning));
        goto done;
    }
    KV_TRY(origin_of(&r, err));
    kv_provenance provenance = {.title = r.config.title,
                                .config_text = r.text.data,
                                .backend = "cpu",
                                .device = "cpu",
                                .seeds = r.seeds,
                                .generator = r.generator,
                                .argc = o->argc,
                                .argv = o->argv};
    kv_provenance_start(&provenance);
    ended = measure_tuning(&r, o, &stopped);
    const kv_outcome *const outcome = kv_tuning_outcome(r.tuning);
    if (ended != KV_OK && (ended != KV_EINTERRUPTED || !outcome))
        KV_TRY(KV_FAIL(err, ended, "%s", stopped.message));
    provenance.is_complete = outcome->is_complete;
    KV_TRY(read_explain(&explain, outcome->problem, o, err));
    KV_TRY(kv_outcome_record(&record, outcome, err));
    KV_TRY(kv_provenance_add(record, &provenance, err));
    KV_TRY(finish_tuning(&mine, outcome, r.path, record, explain, err));
    /* Cut short, a budget is met only where that was verified. */
    if (ended != KV_OK && !outcome->is_verified) *o->code = 1;
    if (interrupted) *o->code = 1;
done:
    kv_record_free(record);
    free_tune_run(&r);
    return status;
}

static kv_status run_tune(const options *o, kv_error *err)
{
    if (o->n_arguments) return tune_config(o, err);
    if (o->table) return tune_table(o, err);
    return KV_FAIL(err, KV_EREQUEST,
                   "tune needs a CONFIG.yaml, or --table TABLE with --max-error or --max-bytes; "
                   "see kvant help tune");
}

/* ---- export ---- */

static kv_status run_export(const options *o, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_engine *engine = NULL;
    kv_policy policy = {0};
    kv_text text = {0};
    bool is_feasible = true;
    const char *const outputs[] = {o->output, o->scales};
    if (!o->engine)
        return KV_FAIL(err, KV_EREQUEST, "export needs --engine NAME; see kvant list engines");
    KV_TRY(kv_engine_find(&engine, o->engine, err));
    KV_TRY(kv_policy_read(&policy, o->arguments[0], err));
    for (int i = 0; i < 2; i++) {
        if (!outputs[i]) continue;
        KV_TRY(refuse_input(outputs[i], o->arguments[0], err));
        KV_TRY(refuse_input(outputs[i], o->table, err));
        KV_TRY(refuse_input(outputs[i], policy.result, err));
    }
    KV_TRY(kv_engine_export(&text, stderr, &is_feasible, engine, &policy,
                            &(kv_engine_export_options){o->table, o->scales}, err));
    if (o->output)
        KV_TRY(kv_file_replace(o->output, text.data, text.length, err));
    else
        fputs(text.data, stdout);
    *o->code = is_feasible ? 0 : 3;
done:
    kv_text_free(&text);
    kv_policy_free_contents(&policy);
    return status;
}

/* ---- list, bench ---- */

static kv_status list_formats(kv_error *err)
{
    (void)err;
    for (size_t i = 0; kv_format_at(i); i++)
        printf("%-10s %2d bit  %s\n", kv_format_at(i)->name, kv_format_at(i)->bits,
               kv_format_at(i)->about);
    return KV_OK;
}

static void list_stages(const char *title, const kv_stage_row *(*row_at)(size_t),
                        const char *prefix)
{
    printf("\n%s\n", title);
    for (size_t i = 0; row_at(i); i++) {
        const kv_stage_row *const row = row_at(i);
        char name[64];
        snprintf(name, sizeof name, "%s%s%s", prefix, row->name,
                 row->value == KV_VALUE_REQUIRED   ? "=X"
                 : row->value == KV_VALUE_OPTIONAL ? "[=X]"
                                                   : "");
        printf("  %-20s %s\n", name, row->about);
    }
}

/* The rest of what a scheme's text may hold; the words are those of kernels/shorthand.h. */
static kv_status list_options(kv_error *err)
{
    (void)err;
    printf("A scheme: format[/tile][:option[=value]]..., for example int4/32x1:zero:scale=f16\n"
           "\ntiles: what shares a scale\n");
    for (size_t i = 0; kv_tile_at(i); i++)
        printf("  %-20s %s\n", kv_tile_at(i)->name, kv_tile_at(i)->about);
    printf("\noptions\n");
    for (size_t i = 0; kv_shorthand_option_at(i); i++) {
        const kv_shorthand_option *const option = kv_shorthand_option_at(i);
        int const width = 20 - (int)strlen(option->name);
        printf("  %s%-*s %s\n", option->name, width, option->value, option->about);
    }
    list_stages("options: transforms, in this order", kv_transform_at, "");
    list_stages("options: ranges", kv_range_at, "");
    list_stages("options: how scales are stored", kv_scale_at, "scale=");
    return KV_OK;
}

static kv_status list_metrics(kv_error *err)
{
    (void)err;
    for (size_t i = 0; kv_metric_at(i); i++)
        printf("%-24s %-5s %s\n", kv_metric_at(i)->name, kv_metric_at(i)->units,
               kv_metric_at(i)->about);
    return KV_OK;
}

static kv_status list_backends(kv_error *err)
{
    (void)err;
    for (size_t i = 0; kv_backend_at(i); i++) {
        const kv_backend *const b = kv_backend_at(i);
        const char *const reason = b->unavailable();
        printf("%-10s %s%s%s\n", b->name, b->about, reason ? "; not available: " : "",
               reason ? reason : "");
    }
    return KV_OK;
}

static void print_key(const kv_key_description *key)
{
    printf("%-32s %-14s %-12s %s%s%s\n%34s%s\n", key->path, key->type, key->preset, key->range,
           *key->unit ? " " : "", key->unit, "", key->help);
}

static kv_status list_keys(kv_error *err)
{
    (void)err;
    kv_key_description key;
    printf("%-32s %-14s %-12s %s\n", "key", "type", "default", "range or choices, unit");
    for (size_t i = 0; kv_config_describe_key(&key, i); i++) print_key(&key);
    for (size_t i = 0; kv_tune_describe_key(&key, i); i++) print_key(&key);
    return KV_OK;
}

static kv_status list_baselines(kv_error *err)
{
    (void)err;
    for (size_t i = 0; kv_strategy_at(i); i++)
        printf("%-10s %s\n", kv_strategy_at(i)->name, kv_strategy_at(i)->about);
    return KV_OK;
}

static kv_status list_schemes(kv_error *err)
{
    kv_preset *presets = NULL;
    size_t n = 0;
    kv_status const status = kv_presets_load(&presets, &n, data_dirs, N_DATA_DIRS, err);
    for (size_t i = 0; i < n; i++)
        printf("%-28s key %s  value %s\n%29s%s (%s)\n", presets[i].scheme.name,
               presets[i].scheme.key_text, presets[i].scheme.value_text, "", presets[i].about,
               presets[i].source);
    kv_presets_free(presets, n);
    return status;
}

static kv_status list_models(kv_error *err)
{
    kv_model *models = NULL;
    size_t n = 0;
    kv_status const status = kv_models_load(&models, &n, data_dirs, N_DATA_DIRS, err);
    for (size_t i = 0; i < n; i++)
        printf("%-16s %s (%s)\n", models[i].name, models[i].about, models[i].source);
    kv_models_free(models, n);
    return status;
}

static kv_status list_engines(kv_error *err)
{
    (void)err;
    kv_engine_list(stdout);
    return KV_OK;
}

static const struct {
    const char *name;
    kv_status (*list)(kv_error *err);
} lists[] = {
    {"formats", list_formats}, {"options", list_options}, {"schemes", list_schemes},
    {"metrics", list_metrics}, {"models", list_models},   {"backends", list_backends},
    {"keys", list_keys},       {"engines", list_engines}, {"baselines", list_baselines},
};

static kv_status run_list(const options *o, kv_error *err)
{
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        if (strcmp(lists[i].name, o->arguments[0]) == 0) return lists[i].list(err);
    kv_text names = {0};
    kv_status status = KV_OK;
    for (size_t i = 0; status == KV_OK && i < sizeof lists / sizeof lists[0]; i++)
        status = kv_text_add(&names, err, "%s%s", i ? ", " : "", lists[i].name);
    if (status == KV_OK)
        status = KV_FAIL(err, KV_EREQUEST, "unknown list \"%s\"; choose one of: %s",
                         o->arguments[0], names.data);
    kv_text_free(&names);
    return status;
}

static void print_bench_row(const kv_bench_row *row, bool is_json, bool is_last)
{
    if (is_json)
        printf("  {\"kernel\": \"%s\", \"shape\": \"%s\", \"seconds\": %.9g, \"rate\": %.6g, "
               "\"unit\": "
               "\"%s\", \"bound\": \"%s\", \"peak\": %.6g, \"fraction\": %.4f}%s\n",
               row->kernel, row->shape, row->seconds, row->rate, row->unit, row->bound, row->peak,
               row->fraction, is_last ? "" : ",");
    else
        printf("%-26s %-34s %10.3f ms %8.1f %-7s %5.1f %% of %s\n", row->kernel, row->shape,
               1e3 * row->seconds, row->rate, row->unit, 100 * row->fraction, row->bound);
}

static kv_status run_bench(const options *o, kv_error *err)
{
    bool const is_json = o->format && strcmp(o->format, "json") == 0;
    if (o->format && !is_json && strcmp(o->format, "table") != 0)
        return KV_FAIL(err, KV_EREQUEST, "unknown format \"%s\"; bench prints table or json",
                       o->format);
    kv_bench_row rows[KV_BENCH_MAX_ROWS];
    int n = 0;
    kv_status const status = kv_bench_run(rows, &n, o->threads, err);
    if (status != KV_OK) return status;
    if (is_json) printf("[\n");
    for (int i = 0; i < n; i++) print_bench_row(&rows[i], is_json, i == n - 1);
    if (is_json) printf("]\n");
    return KV_OK;
}

/* ---- the table of commands ---- */

static kv_status run_help(const options *o, kv_error *err);

static const command commands[] = {
    {"sweep", "CONFIG.yaml", "run a grid of schemes on attention heads",
     "Makes (or loads) attention heads, quantizes their keys and values with each scheme, "
     "measures\n"
     "what that does to attention, writes one HDF5 file (default: the config's name + .h5 here)\n"
     "and prints the table. A first configuration:\n\n"
     "    kvant: 1\n"
     "    title: Why keys break first\n"
     "    heads:\n"
     "      tokens: 4096\n"
     "      head_dim: 128\n"
     "      queries: 16\n"
     "      seeds: 8                                    # 8 replicates, seeds 0 ... 7\n"
     "      outliers: {count: 3, scale: 20}             # planted outlier key channels\n"
     "      rope: {layout: half, base: 10000}\n"
     "    schemes:\n"
     "      - {name: per tensor, key: int8/tensor, value: int8/tensor}\n"
     "      - {name: per channel, key: int8/channel, value: int8/token}\n"
     "      - kivi-2                                    # a published method\n"
     "    sweep:\n"
     "      heads.outliers.scale: [1, 10, 100]\n"
     "    metrics: [out_err, logit_err_max, attn_kl, bits]\n\n"
     "Every key: kvant list keys. A scheme is format[/tile][:option[=value]]..., for example\n"
     "int4/32x1:zero:scale=f16; see kvant list formats, options (tiles too) and schemes.\n",
     "osbtrnq", 1, 1, run_sweep},
    {"tune", "[CONFIG.yaml]", "choose each layer's schemes within a budget",
     "With CONFIG.yaml: measures what each scheme does in each layer of a decode stack, solves\n"
     "exactly for the budget in its `tune:` section (kvant list keys), verifies the choice end to "
     "end,\n"
     "also on seeds the search never saw, and compares it with baselines. Writes NAME.h5, "
     "NAME.policy.yaml\n"
     "and keeps every measurement in NAME.h5.cache, so that the same command goes on after Ctrl-C "
     "or\n"
     "--time-limit and a greater --effort measures only what is new. Exit code 3: the budget is "
     "not met.\n\n"
     "    kvant: 1\n"
     "    model: llama-3.1-8b\n"
     "    heads: {tokens: 8192}\n"
     "    tune: {max_error: 0.02}        # or max_bits: 4.5, match: e4m3/tensor ...\n\n"
     "With --table TABLE: solves a table of errors and bytes that was measured elsewhere, "
     "exactly.\n"
     "Columns layer,key,value,error,bytes (a row a choice), or layer,tensor,scheme,error,bytes "
     "with\n"
     "tensor key or value (every key scheme with every value scheme); error is what the choice "
     "alone\n"
     "adds (KL, squared error: it adds up), bytes a whole number. Writes one HDF5 file (default: "
     "the\n"
     "table's name + .h5 here) with the whole frontier, and prints the report, or with --format "
     "the\n"
     "policy as a table. Exit code 3: the budget cannot be met, the nearest point is shown. "
     "Then\n\n"
     "    kvant show OUT.h5 --metric frontier --format csv\n"
     "    kvant plot OUT.h5 --metric frontier -o frontier.svg\n",
     "oTEBpXZfqeLrsbtn", 0, 1, run_tune},
    {"check", "FILE.yaml", "validate a configuration or policy and print the effective one",
     "A configuration is printed with every default filled in and policies written out, and can "
     "be\n"
     "run as it is; a policy in its canonical form.\n",
     "s", 1, 1, run_check},
    {"capacity", "", "what a model's cache takes, and how much of it fits",
     "Stored bytes with all scales and windows under a policy or a scheme, and at f16, averaged\n"
     "over a sequence of --context tokens; with --memory also how many such sequences fit and how\n"
     "long a single one may be.\n\n"
     "    kvant capacity --model llama-3.1-70b --scheme kivi-2 --context 131072 --memory 80\n"
     "    kvant capacity --policy policy.yaml --context 32768 --memory 24 --pages vllm\n",
     "MpHNGWKf", 0, 0, run_capacity},
    {"show", "FILE", "what a result file or a capture holds, and its metrics as tables",
     "Without options: a summary with provenance; of a capture (.h5, .safetensors, .npy): its "
     "layers\n"
     "and their outlier statistics. With any option: a table with 95 % intervals over the seeds.\n",
     "mwRCf", 1, 1, run_show},
    {"plot", "FILE.h5 -o FIG", "draw a metric",
     "FIG ends in .svg, .png or .pdf; - draws in the terminal.\n", "omxw", 1, 1, run_plot},
    {"export", "POLICY.yaml", "a policy in the words of a serving engine",
     "Prints the exact options, YAML, JSON or Python of the best policy that the engine can "
     "express, at\n"
     "the policy's own error (or bytes); on stderr what it costs beside the free optimum, and what "
     "the\n"
     "engine needs or does not compute as kvant simulates it. The choices come from the policy's "
     "result\n"
     "file or from --table; without either the policy itself must be expressible. Exit code 3: "
     "nothing\n"
     "within the budget can be expressed, the nearest is printed.\n",
     "goTS", 1, 1, run_export},
    {"list", "WHAT",
     "formats, options, schemes, metrics, models, engines, baselines, backends or keys",
     "Printed from the tables the code uses.\n", "", 1, 1, run_list},
    {"bench", "", "measured speed of the main kernels beside the machine's peaks",
     "JSON: an array of {kernel, shape, seconds (median), rate, unit, bound, peak, fraction}.\n",
     "tf", 0, 0, run_bench},
    {"help", "[COMMAND]", "this, or one command's manual", "", "", 0, 1, run_help},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static const command *find_command(const char *name)
{
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

static kv_status unknown_command(const char *name, kv_error *err)
{
    const char *names[N_COMMANDS];
    for (int i = 0; i < N_COMMANDS; i++) names[i] = commands[i].name;
    const char *const near = kv_closest_name(name, names, N_COMMANDS);
    return KV_FAIL(err, KV_EREQUEST, "unknown command \"%s\"%s%s%s; see kvant help", name,
                   near ? ", did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static kv_status run_help(const options *o, kv_error *err)
{
    if (o->n_arguments == 0) {
        printf("kvant %s: which precision should each layer's key and value cache have, and what "
               "does it "
               "cost?\n\n",
               kv_this_build.version);
        for (int i = 0; i < N_COMMANDS; i++)
            printf("  kvant %-8s %-16s %s\n", commands[i].name, commands[i].usage,
                   commands[i].summary);
        printf("\nkvant help COMMAND tells more.\n");
        return KV_OK;
    }
    const command *const c = find_command(o->arguments[0]);
    if (!c) return unknown_command(o->arguments[0], err);
    printf("kvant %s %s\n    %s\n\n%s", c->name, c->usage, c->summary, c->help);
    if (*c->letters) printf("\noptions\n");
    for (int i = 0; i < N_OPTIONS; i++) {
        const option_row *const row = &option_table[i];
        if (!strchr(c->letters, row->letter)) continue;
        char left[64];
        snprintf(left, sizeof left, "--%s%s%s", row->name, row->argument ? " " : "",
                 row->argument ? row->argument : "");
        printf("  -%c, %-20s %s\n", row->letter, left, row->help);
    }
    return KV_OK;
}

/* ---- options ---- */

static kv_status push(const char **list, int *count, const char *text, kv_error *err)
{
    if (*count == MAX_REPEATED)
        return KV_FAIL(err, KV_EREQUEST, "an option is given more than %d times", MAX_REPEATED);
    list[(*count)++] = text;
    return KV_OK;
}

static kv_status set_option(options *o, int letter, const char *value, kv_error *err)
{
    switch (letter) {
    case 'o': o->output = value; break;
    case 'b': o->backend = value; break;
    case 'R': o->rows = value; break;
    case 'C': o->cols = value; break;
    case 'f': o->format = value; break;
    case 'x': o->x = value; break;
    case 'g': o->engine = value; break;
    case 'M': o->model = value; break;
    case 'H': o->scheme = value; break;
    case 'N': o->context = value; break;
    case 'G': o->memory = value; break;
    case 'W': o->weights = value; break;
    case 'K': o->pages = value; break;
    case 'S': o->scales = value; break;
    case 'T': o->table = value; break;
    case 'E': o->max_error = value; break;
    case 'B': o->max_bytes = value; break;
    case 'p': o->policy = value; break;
    case 'X': o->explain = value; break;
    case 'Z': o->resolution = value; break;
    case 'e': o->effort = value; break;
    case 'L': o->time_limit = value; break;
    case 'r': o->resume = true; break;
    case 'n': o->dry_run = true; break;
    case 'q': o->quiet = true; break;
    case 's': return push(o->sets, &o->n_sets, value, err);
    case 'm': return push(o->metrics, &o->n_metrics, value, err);
    case 'w': return push(o->where, &o->n_where, value, err);
    case 't': {
        char *end = NULL;
        long const n = strtol(value, &end, 10);
        if (end == value || *end || n < 1 || n > 4096)
            return KV_FAIL(err, KV_EREQUEST,
                           "--threads: expected a number from 1 to 4096, found \"%s\"", value);
        o->threads = (int)n;
        break;
    }
    }
    return KV_OK;
}

/* Reads the options that command `c` takes; what is left are its arguments. */
static kv_status read_options(options *o, const command *c, int argc, char **argv, kv_error *err)
{
    struct option names[N_OPTIONS + 1];
    char letters[2 * N_OPTIONS + 2] = ":";
    int n = 0;
    size_t used = 1;
    for (int i = 0; i < N_OPTIONS; i++) {
        const option_row *const row = &option_table[i];
        if (!strchr(c->letters, row->letter)) continue;
        names[n++] = (struct option){row->name, row->argument ? required_argument : no_argument,
                                     NULL, row->letter};
        letters[used++] = row->letter;
        if (row->argument) letters[used++] = ':';
    }
    names[n] = (struct option){0};
    letters[used] = 0;
    opterr = 0;
    for (int letter; (letter = getopt_long(argc, argv, letters, names, NULL)) != -1;) {
        if (letter == '?')
            return KV_FAIL(err, KV_EREQUEST, "%s does not take \"%s\"; see kvant help %s", c->name,
                           argv[optind - 1], c->name);
        if (letter == ':')
            return KV_FAIL(err, KV_EREQUEST, "%s needs a value; see kvant help %s",
                           argv[optind - 1], c->name);
        kv_status const status = set_option(o, letter, optarg, err);
        if (status != KV_OK) return status;
    }
    o->arguments = argv + optind, o->n_arguments = argc - optind;
    if (o->n_arguments < c->min_arguments || o->n_arguments > c->max_arguments)
        return KV_FAIL(err, KV_EREQUEST, "usage: kvant %s %s; see kvant help %s", c->name, c->usage,
                       c->name);
    return KV_OK;
}

static int exit_code(kv_status status)
{
    switch (status) {
    case KV_OK: return 0;
    case KV_EREQUEST:
    case KV_EINPUT: return 2;
    default: return 1;
    }
}

int main(int argc, char **argv)
{
    kv_error err = {0};
    int code = 0;
    options o = {.argc = argc, .argv = argv, .code = &code};
    const char *const name = argc > 1 ? argv[1] : "help";
    if (strcmp(name, "--version") == 0) {
        printf("kvant %s\n", kv_this_build.version);
        bool const is_bad = fflush(stdout) != 0;
        if (is_bad) fprintf(stderr, "kvant: writing to standard output: %s\n", strerror(errno));
        return is_bad;
    }
    const command *const c =
        find_command(strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 ? "help" : name);
    kv_status status = c ? KV_OK : unknown_command(name, &err);
    for (int i = 2; c && i < argc && strcmp(argv[i], "--"); i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            o.n_arguments = 1, o.arguments = argv + 1;
            return exit_code(run_help(&o, &err));
        }
    if (status == KV_OK)
        status = read_options(&o, c, argc > 1 ? argc - 1 : argc, argc > 1 ? argv + 1 : argv, &err);
    if (status == KV_OK) status = c->run(&o, &err);
    if (status == KV_OK && (fflush(stdout) || ferror(stdout)))
        status = KV_FAIL(&err, KV_EIO, "writing to standard output: %s", strerror(errno));
    if (status != KV_OK) fprintf(stderr, "kvant: %s\n", err.message);
    return status == KV_OK ? code : exit_code(status);
}
