/* kvant: the one command line. A table of options, a table of commands; each command reads its
 * options, calls the rooms and prints. Errors go to stderr, data to stdout; exit codes: 0 good, 1
 * the run failed, 2 the request was wrong, 3 a comparison did not hold. */
#include <errno.h>
#include <float.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/backend.h"
#include "kernels/bench.h"
#include "kernels/options.h"
#include "kernels/shorthand.h"
#include "kernels/text.h"
#include "results/plot.h"
#include "results/provenance.h"
#include "results/store.h"
#include "results/table.h"
#include "sim/metrics.h"
#include "tuner/capacity.h"
#include "tuner/check_file.h"
#include "tuner/export_file.h"
#include "tuner/settings.h"
#include "tuner/show_file.h"
#include "tuner/strategies.h"
#include "tuner/sweep_files.h"
#include "tuner/tune_files.h"

/* ---- options ---- */

/* Every option of every command, zero where it is not given; a command names the letters it takes.
 */
typedef struct {
    const char *output, *backend, *rows, *cols, *format, *x, *table, *policy, *effort;
    const char *engine, *scales, *model, *scheme, *pages;
    kv_option_whole threads, device, max_bytes, explain, resolution, context;
    kv_option_real max_error, time_limit, memory, weights;
    bool resume, dry_run, quiet;
    kv_option_list sets, metrics, where;
    int n_arguments;
    char **arguments;
    int argc; /* the whole command line, for provenance */
    char **argv;
    int *code; /* the exit code of a command that ends well; 0 */
} options;

#define TEXT(field) KV_OPTION(TEXT, options, field)
#define LIST(field) KV_OPTION(LIST, options, field)
#define FLAG(field) KV_OPTION(FLAG, options, field)
#define WHOLE(field, least, most, expected)                                                        \
    KV_OPTION_NUMBER(WHOLE, options, field, least, most, expected)
#define REAL(field, least, most, expected)                                                         \
    KV_OPTION_NUMBER(REAL, options, field, least, most, expected)
#define ABOVE_0 DBL_TRUE_MIN
#define COUNT   "a whole number, 0 or more"
#define GIB     "GiB (2^30 bytes) above 0 to 1e6"
/* clang-format off */
static const kv_option_row option_table[] = {
    {'o', "output", "FILE", "where the result goes", TEXT(output)},
    {'s', "set", "KEY=VALUE", "set a key of the configuration; may be given again", LIST(sets)},
    {'b', "backend", "NAME", "cuda, cpu or auto: the first of them that can run here (default)",
     TEXT(backend)},
    {'d', "device", "N", "the GPU to use, from 0 (default: an MPI job's local rank chooses, else 0)",
     WHOLE(device, 0, 4095, "a device's number, from 0")},
    {'t', "threads", "N", "threads (bench: 1, else all processors); results do not depend on it",
     WHOLE(threads, 1, 4096, "a number from 1 to 4096")},
    {'r', "resume", NULL, "take up an interrupted run", FLAG(resume)},
    {'n', "dry-run", NULL, "print the effective configuration, units, memory and time; run nothing",
     FLAG(dry_run)},
    {'q', "quiet", NULL, "no progress, no table", FLAG(quiet)},
    {'m', "metric", "NAME", "a metric to show; may be given again", LIST(metrics)},
    {'w', "where", "DIM=VALUE", "keep only this value of a dimension; may be given again",
     LIST(where)},
    {'R', "rows", "DIM", "spread this dimension over rows", TEXT(rows)},
    {'C', "cols", "DIM", "spread this dimension over columns", TEXT(cols)},
    {'f', "format", "NAME", "table (default), csv, json or markdown", TEXT(format)},
    {'x', "x", "DIM", "the dimension on the x axis", TEXT(x)},
    {'T', "table", "TABLE",
     "errors and bytes measured elsewhere (CSV or HDF5), instead of measuring",
     TEXT(table)},
    {'E', "max-error", "ERROR", "no more error than this; at the least bytes",
     REAL(max_error, 0, DBL_MAX, "a number, 0 or more")},
    {'B', "max-bytes", "BYTES", "no more bytes than this; at the least error",
     WHOLE(max_bytes, 0, DBL_MAX, COUNT)},
    {'p', "policy", "FILE", "the policy as YAML: tune writes it, capacity reads it", TEXT(policy)},
    {'X', "explain", "LAYER", "say why this layer has the schemes it has",
     WHOLE(explain, 0, DBL_MAX, "a layer's number")},
    {'Z', "resolution", "BYTES", "keep the best within each such step, not every point",
     WHOLE(resolution, 0, DBL_MAX, COUNT)},
    {'e', "effort", "NAME", "estimate, measure (default), patient or exhaustive", TEXT(effort)},
    {'L', "time-limit", "S", "stop after so many seconds with the best so far",
     REAL(time_limit, ABOVE_0, DBL_MAX, "seconds above 0")},
    {'g', "engine", "NAME", "a serving engine; kvant list engines", TEXT(engine)},
    {'S', "scales", "FILE", "write static scales as the engine reads them", TEXT(scales)},
    {'M', "model", "NAME", "kvant list models, or the path of a model file; default: the policy's",
     TEXT(model)},
    {'H', "scheme", "SCHEME", "a preset, \"KEY | VALUE\" or one shorthand for both", TEXT(scheme)},
    {'N', "context", "TOKENS", "length of a sequence",
     WHOLE(context, -DBL_MAX, DBL_MAX, "a number of tokens")},
    {'G', "memory", "GIB", "memory of the device in GiB, 2^30 bytes",
     REAL(memory, ABOVE_0, 1e6, GIB)},
    {'W', "weights", "GIB", "what of it is not there for caches", REAL(weights, ABOVE_0, 1e6, GIB)},
    {'K', "pages", "KIND", "vllm[=BLOCK[,STEP]]: pages of BLOCK (16) tokens, STEP (2048) in flight",
     TEXT(pages)},
};
/* clang-format on */
enum { N_OPTIONS = sizeof option_table / sizeof option_table[0] };

typedef struct {
    const char *name, *usage, *summary, *help;
    const char *letters; /* which rows of the option table it takes */
    int min_arguments, max_arguments;
    kv_status (*run)(const options *o, kv_error *err);
} command;

/* ---- the run that Ctrl-C may stop ---- */

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

/* From here on Ctrl-C stops the run, which keeps what is done, not the program. */
static void catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    action.sa_handler = SIG_IGN; /* a file-size limit is a failed write, not death */
    sigaction(SIGXFSZ, &action, NULL);
}

static bool run_is_cancelled(void *context)
{
    (void)context;
    return interrupted != 0;
}

/* ---- what runs share ---- */

/* Where schemes/ and models/ are looked for: the source tree, then the installed data. */
static const char *const data_dirs[] = {KVANT_SOURCE_DIR "/configs", KVANT_DATA_DIR};
enum { N_DATA_DIRS = sizeof data_dirs / sizeof data_dirs[0] };

static kv_config_sources sources_of(const options *o)
{
    return (kv_config_sources){.sets = o->sets.items,
                               .n_sets = (size_t)o->sets.n,
                               .data_dirs = data_dirs,
                               .n_data_dirs = N_DATA_DIRS};
}

/* --backend and --device. */
static kv_status choose_backend(kv_session *session, const options *o, kv_error *err)
{
    kv_status status = KV_OK;
    const char *const name = o->backend ? o->backend : "auto";
    int const device = (int)o->device.value;
    const kv_backend *backend = NULL;
    KV_TRY(kv_backend_find(&backend, name, err));
    bool const is_auto = strcmp(name, "auto") == 0;
    if (o->device.is_given && backend->choose) KV_TRY(backend->choose(device, err));
    if (is_auto) kv_backend_why(session->why, sizeof session->why, backend);
    if (o->device.is_given && !backend->choose)
        KV_TRY(KV_FAIL(err, KV_EREQUEST,
                       "--device %d: backend %s has no devices to choose from%s%s", device,
                       backend->name, is_auto ? "; " : "", session->why));
    session->backend = backend;
done:
    return status;
}

static kv_status start_session(kv_session *out, const options *o, kv_error *err)
{
    *out = (kv_session){.threads = (int)sysconf(_SC_NPROCESSORS_ONLN),
                        .is_cancelled = run_is_cancelled,
                        .sources = sources_of(o),
                        .out = stdout,
                        .notes = stderr,
                        .is_dry = o->dry_run,
                        .is_quiet = o->quiet,
                        .has_bar = !o->quiet && isatty(STDERR_FILENO),
                        .argc = o->argc,
                        .argv = o->argv};
    if (o->threads.is_given) out->threads = (int)o->threads.value;
    return choose_backend(out, o, err);
}

/* ---- sweep, check, tune ---- */

static kv_status run_sweep(const options *o, kv_error *err)
{
    kv_session session;
    kv_sweep_request const request = {
        .config = o->arguments[0], .result = o->output, .is_resumed = o->resume};
    kv_status const status = start_session(&session, o, err);
    if (!o->dry_run) catch_interrupts();
    return status == KV_OK ? kv_sweep_files(&request, &session, err) : status;
}

static kv_status run_check(const options *o, kv_error *err)
{
    kv_config_sources const sources = sources_of(o);
    return kv_check_file(stdout, stderr, o->arguments[0], &sources, err);
}

/* What cannot be said of a table alone, which leaves nothing to measure. */
static kv_status check_table_alone(const options *o, kv_error *err)
{
    const char *const name = o->effort                ? "--effort"
                             : o->time_limit.is_given ? "--time-limit"
                             : o->resume              ? "--resume"
                             : o->sets.n              ? "--set"
                             : o->backend             ? "--backend"
                             : o->device.is_given     ? "--device"
                                                      : NULL;
    if (!o->table)
        return KV_FAIL(err, KV_EREQUEST,
                       "tune needs a CONFIG.yaml, or --table TABLE with --max-error or "
                       "--max-bytes; see kvant help tune");
    if (!name) return KV_OK;
    return KV_FAIL(err, KV_EREQUEST,
                   "%s goes with a CONFIG.yaml; a table alone leaves nothing to measure", name);
}

/* The budget of --max-error or --max-bytes; a table alone must have one. */
static kv_status read_budget(kv_budget *out, const options *o, bool is_table_alone, kv_error *err)
{
    if (is_table_alone ? o->max_error.is_given == o->max_bytes.is_given
                       : o->max_error.is_given && o->max_bytes.is_given)
        return KV_FAIL(err, KV_EREQUEST, "a table needs one budget: --max-error or --max-bytes");
    if (o->max_error.is_given)
        *out = (kv_budget){.kind = KV_BUDGET_ERROR, .limit = o->max_error.value};
    if (o->max_bytes.is_given)
        *out = (kv_budget){.kind = KV_BUDGET_BYTES, .limit = (double)o->max_bytes.value};
    return KV_OK;
}

static kv_status run_tune(const options *o, kv_error *err)
{
    kv_status status = KV_OK;
    kv_session session;
    kv_tune_end end;
    kv_table_format format;
    kv_budget budget;
    bool const is_table_alone = o->n_arguments == 0;
    kv_tune_request const request = {
        .config = is_table_alone ? NULL : o->arguments[0],
        .table = o->table,
        .budget = o->max_error.is_given || o->max_bytes.is_given ? &budget : NULL,
        .resolution = o->resolution.is_given ? &o->resolution.value : NULL,
        .effort = o->effort,
        .result = o->output,
        .policy = o->policy,
        .explain = o->explain.is_given ? &o->explain.value : NULL,
        .time_limit = o->time_limit.value,
        .format = o->format ? &format : NULL};
    if (is_table_alone) KV_TRY(check_table_alone(o, err));
    KV_TRY(read_budget(&budget, o, is_table_alone, err));
    if (o->format) KV_TRY(kv_table_find_format(&format, o->format, err));
    KV_TRY(start_session(&session, o, err));
    if (!is_table_alone && !o->dry_run) catch_interrupts();
    KV_TRY(kv_tune_files(&end, &request, &session, err));
    *o->code = end.is_unfinished ? 1 : end.is_budget_met ? 0 : 3;
done:
    return status;
}

/* ---- capacity ---- */

/* What `--format` says where there is a table or JSON. */
static kv_status wants_json(bool *is_json, const options *o, const char *name, kv_error *err)
{
    *is_json = o->format && strcmp(o->format, "json") == 0;
    if (!o->format || *is_json || strcmp(o->format, "table") == 0) return KV_OK;
    return KV_FAIL(err, KV_EREQUEST, "unknown format \"%s\"; %s prints table or json", o->format,
                   name);
}

static kv_status run_capacity(const options *o, kv_error *err)
{
    kv_status status = KV_OK;
    kv_capacity capacity = {0};
    kv_capacity_request r = {.model = o->model,
                             .policy = o->policy,
                             .scheme = o->scheme,
                             .context = o->context.value,
                             .memory_gib = o->memory.value,
                             .weights_gib = o->weights.value,
                             .data_dirs = data_dirs,
                             .n_data_dirs = N_DATA_DIRS};
    bool is_json;
    KV_TRY(wants_json(&is_json, o, "capacity", err));
    if (o->pages) KV_TRY(kv_capacity_parse_pages(&r, o->pages, err));
    KV_TRY(kv_capacity_find(&capacity, &r, err));
    KV_TRY(kv_capacity_print(stdout, &capacity, is_json, err));
done:
    kv_capacity_free_contents(&capacity);
    return status;
}

/* ---- show, plot ---- */

static kv_status run_show(const options *o, kv_error *err)
{
    kv_table_request request = {.n_metrics = o->metrics.n,
                                .metrics = o->metrics.items,
                                .n_where = o->where.n,
                                .where = o->where.items,
                                .rows = o->rows,
                                .cols = o->cols};
    bool const is_table = o->metrics.n || o->where.n || o->rows || o->cols || o->format;
    kv_status const status =
        o->format ? kv_table_find_format(&request.format, o->format, err) : KV_OK;
    if (status != KV_OK) return status;
    return kv_show_file(stdout, stderr, o->arguments[0], is_table ? &request : NULL, err);
}

static kv_status run_plot(const options *o, kv_error *err)
{
    kv_status status = KV_OK;
    kv_record *record = NULL;
    if (!o->output) return KV_FAIL(err, KV_EREQUEST, "plot needs -o FIG.svg, .png, .pdf or -");
    if (o->metrics.n > 1)
        return KV_FAIL(err, KV_EREQUEST, "plot draws one --metric, %d are given", o->metrics.n);
    KV_TRY(kv_store_read(&record, o->arguments[0], err));
    KV_TRY(kv_plot(stdout, o->output, record,
                   &(kv_plot_request){.metric = o->metrics.items[0],
                                      .x = o->x,
                                      .n_where = o->where.n,
                                      .where = o->where.items},
                   err));
done:
    kv_record_free(record);
    return status;
}

/* ---- export ---- */

static kv_status run_export(const options *o, kv_error *err)
{
    kv_status status = KV_OK;
    bool is_feasible;
    kv_export_request r = {
        .policy = o->arguments[0], .output = o->output, .options = {o->table, o->scales}};
    if (!o->engine)
        return KV_FAIL(err, KV_EREQUEST, "export needs --engine NAME; see kvant list engines");
    KV_TRY(kv_engine_find(&r.engine, o->engine, err));
    KV_TRY(kv_export_file(stdout, stderr, &is_feasible, &r, err));
    *o->code = is_feasible ? 0 : 3;
done:
    return status;
}

/* ---- list, bench ---- */

/* A list is printed from a table of the code, or from the files of the data directories. */
static const struct {
    const char *name;
    void (*list)(FILE *out);
    kv_status (*list_files)(FILE *out, const char *const *dirs, size_t n_dirs, kv_error *err);
} lists[] = {
    {"formats", kv_format_list, NULL},     {"options", kv_shorthand_list, NULL},
    {"schemes", NULL, kv_presets_list},    {"metrics", kv_metric_list, NULL},
    {"models", NULL, kv_models_list},      {"backends", kv_backend_list, NULL},
    {"keys", kv_tune_list_keys, NULL},     {"engines", kv_engine_list, NULL},
    {"baselines", kv_strategy_list, NULL},
};
enum { N_LISTS = sizeof lists / sizeof lists[0] };

static kv_status run_list(const options *o, kv_error *err)
{
    kv_text names = {0};
    kv_status status = KV_OK;
    for (int i = 0; i < N_LISTS; i++) {
        if (strcmp(lists[i].name, o->arguments[0]) != 0) continue;
        if (lists[i].list_files) return lists[i].list_files(stdout, data_dirs, N_DATA_DIRS, err);
        lists[i].list(stdout);
        return KV_OK;
    }
    for (int i = 0; i < N_LISTS; i++)
        KV_TRY(kv_text_add(&names, err, "%s%s", i ? ", " : "", lists[i].name));
    status = KV_FAIL(err, KV_EREQUEST, "unknown list \"%s\"; choose one of: %s", o->arguments[0],
                     names.data);
done:
    kv_text_free(&names);
    return status;
}

static kv_status run_bench(const options *o, kv_error *err)
{
    kv_status status = KV_OK;
    kv_bench_row rows[KV_BENCH_MAX_ROWS];
    int n = 0;
    bool is_json;
    KV_TRY(wants_json(&is_json, o, "bench", err));
    KV_TRY(kv_bench_run(rows, &n, (int)o->threads.value, err));
    kv_bench_print(stdout, rows, n, is_json);
done:
    return status;
}

/* ---- the table of commands ---- */

static kv_status run_help(const options *o, kv_error *err);

/* clang-format off */
static const command commands[] = {
    {"sweep", "CONFIG.yaml", "run a grid of schemes on attention heads",
     "Makes (or loads) attention heads, quantizes their keys and values with each scheme,\n"
     "measures what that does to attention, writes one HDF5 file (default: the config's name +\n"
     ".h5 here) and prints the table. A first configuration:\n\n"
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
     "osbdtrnq", 1, 1, run_sweep},
    {"tune", "[CONFIG.yaml]", "choose each layer's schemes within a budget",
     "With CONFIG.yaml: measures what each scheme does in each layer of a decode stack, solves\n"
     "exactly for the budget in its `tune:` section (kvant list keys), verifies the choice end to\n"
     "end, also on seeds the search never saw, and compares it with baselines. Writes NAME.h5,\n"
     "NAME.policy.yaml and keeps every measurement in NAME.h5.cache, so that the same command\n"
     "goes on after Ctrl-C or --time-limit and a greater --effort measures only what is new.\n"
     "Exit code 3: the budget is not met.\n\n"
     "    kvant: 1\n"
     "    model: llama-3.1-8b\n"
     "    heads: {tokens: 8192}\n"
     "    tune: {max_error: 0.02}        # or max_bits: 4.5, match: e4m3/tensor ...\n\n"
     "With --table TABLE: solves, exactly, a table of errors and bytes measured elsewhere.\n"
     "Columns layer,key,value,error,bytes (a row a choice), or layer,tensor,scheme,error,bytes\n"
     "with tensor key or value (every key scheme with every value scheme); error is what the\n"
     "choice alone adds (KL, squared error: it adds up), bytes a whole number. Writes one HDF5\n"
     "file (default: the table's name + .h5 here) with the whole frontier, and prints the report,\n"
     "or with --format the policy as a table. Exit code 3: the budget cannot be met, the nearest\n"
     "point is shown. Then\n\n"
     "    kvant show OUT.h5 --metric frontier --format csv\n"
     "    kvant plot OUT.h5 --metric frontier -o frontier.svg\n",
     "oTEBpXZfqeLrsbdtn", 0, 1, run_tune},
    {"check", "FILE.yaml", "validate a configuration or policy and print the effective one",
     "A configuration is printed with every default filled in and policies written out, and can\n"
     "be run as it is; a policy in its canonical form.\n",
     "s", 1, 1, run_check},
    {"capacity", "", "what a model's cache takes, and how much of it fits",
     "Stored bytes with all scales and windows under a policy or a scheme, and at f16, averaged\n"
     "over a sequence of --context tokens; with --memory also how many such sequences fit and how\n"
     "long a single one may be.\n\n"
     "    kvant capacity --model llama-3.1-70b --scheme kivi-2 --context 131072 --memory 80\n"
     "    kvant capacity --policy policy.yaml --context 32768 --memory 24 --pages vllm\n",
     "MpHNGWKf", 0, 0, run_capacity},
    {"show", "FILE", "what a result file or a capture holds, and its metrics as tables",
     "Without options: a summary with provenance; of a capture (.h5, .safetensors, .npy): its\n"
     "layers and their outlier statistics. With any option: a table with 95 % intervals over the\n"
     "seeds.\n",
     "mwRCf", 1, 1, run_show},
    {"plot", "FILE.h5 -o FIG", "draw a metric",
     "FIG ends in .svg, .png or .pdf; - draws in the terminal.\n", "omxw", 1, 1, run_plot},
    {"export", "POLICY.yaml", "a policy in the words of a serving engine",
     "Prints the exact options, YAML, JSON or Python of the best policy that the engine can\n"
     "express, at the policy's own error (or bytes); on stderr what it costs beside the free\n"
     "optimum, and what the engine needs or does not compute as kvant simulates it. The choices\n"
     "come from the policy's result file or from --table; without either the policy itself must\n"
     "be expressible. Exit code 3: nothing within the budget can be expressed, the nearest is\n"
     "printed.\n",
     "goTS", 1, 1, run_export},
    {"list", "WHAT",
     "formats, options, schemes, metrics, models, engines, baselines, backends or keys",
     "Printed from the tables the code uses.\n", "", 1, 1, run_list},
    {"bench", "", "measured speed of the main kernels beside the machine's peaks",
     "JSON: an array of {kernel, shape, seconds (median), rate, unit, bound, peak, fraction}.\n",
     "tf", 0, 0, run_bench},
    {"help", "[COMMAND]", "this, or one command's manual", "", "", 0, 1, run_help},
};
/* clang-format on */
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

static kv_option_set options_of(const command *c)
{
    return (kv_option_set){c->name, c->letters, option_table, N_OPTIONS};
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
    kv_option_set const set = options_of(c);
    kv_options_list(stdout, &set);
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

/* Reads what stands after the command's name, and runs it. */
static kv_status run_command(options *o, const command *c, int argc, char **argv, kv_error *err)
{
    kv_status status = KV_OK;
    kv_option_set const set = options_of(c);
    KV_TRY(kv_options_read(o, &set, &argc, &argv, err));
    o->arguments = argv, o->n_arguments = argc;
    if (argc < c->min_arguments || argc > c->max_arguments)
        KV_TRY(KV_FAIL(err, KV_EREQUEST, "usage: kvant %s %s; see kvant help %s", c->name, c->usage,
                       c->name));
    KV_TRY(c->run(o, err));
done:
    return status;
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
        status = run_command(&o, c, argc > 1 ? argc - 1 : argc, argc > 1 ? argv + 1 : argv, &err);
    if (status == KV_OK && (fflush(stdout) || ferror(stdout)))
        status = KV_FAIL(&err, KV_EIO, "writing to standard output: %s", strerror(errno));
    if (status != KV_OK) fprintf(stderr, "kvant: %s\n", err.message);
    return status == KV_OK ? code : exit_code(status);
}
