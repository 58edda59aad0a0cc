/* A sweep from a configuration to its result file: see sweep_files.h. */
#include "tuner/sweep_files.h"

#include <inttypes.h>

#include "kernels/file.h"
#include "kernels/memory.h"
#include "results/progress.h"
#include "results/provenance.h"
#include "results/store.h"
#include "results/table.h"
#include "sim/heads_keys.h"
#include "sim/sweep.h"
#include "tuner/settings.h"

/* What the sweep's sink needs. */
typedef struct {
    kv_progress progress;
    const kv_session *session;
} sink;

static bool is_done(void *context, int64_t unit)
{
    return kv_run_is_done(((sink *)context)->progress.run, unit);
}

static kv_status put(void *context, int64_t unit, const double *values, kv_error *err)
{
    const kv_progress *const progress = &((sink *)context)->progress;
    kv_status const status = kv_run_put(progress->run, unit, values, err);
    if (status == KV_OK) kv_progress_show(progress);
    return status;
}

static bool is_cancelled(void *context)
{
    const kv_session *const s = ((sink *)context)->session;
    return s->is_cancelled && s->is_cancelled(s->context);
}

/* Runs what is not done; what was done is kept when it is stopped. */
static kv_status measure(const kv_sweep *sweep, kv_run *run, const char *path,
                         const kv_session *session, kv_error *err)
{
    sink k = {.session = session};
    kv_sweep_sink const units = {&k, is_done, put, is_cancelled};
    kv_progress_start(&k.progress, session->has_bar ? session->notes : NULL, run,
                      kv_sweep_units(sweep));
    kv_status const status = kv_sweep_run(sweep, session->backend, session->threads, &units, err);
    kv_progress_clear(&k.progress);
    if (status != KV_OK && kv_run_count_done(run) > 0)
        fprintf(session->notes,
                "kvant: %" PRId64 " of %" PRId64 " units are kept in %s.run; run the same command "
                "with --resume to go on\n",
                kv_run_count_done(run), kv_sweep_units(sweep), path);
    return status;
}

/* Only when the result is in its place the kept units go. */
static kv_status store(kv_record **out, const char *path, const kv_sweep *sweep, kv_run *run,
                       const kv_provenance *provenance, kv_error *err)
{
    kv_status status = KV_OK;
    void *all = NULL;
    KV_TRY(kv_allocate3(&all, (size_t)kv_sweep_units(sweep),
                        (size_t)kv_sweep_values_per_unit(sweep), 1, sizeof(double), err));
    KV_TRY(kv_run_collect(all, run, err));
    KV_TRY(kv_sweep_record(out, sweep, all, err));
    KV_TRY(kv_provenance_add(*out, provenance, err));
    KV_TRY(kv_store_write(path, *out, err));
    KV_TRY(kv_run_finish(run, err));
done:
    kv_free(all);
    return status;
}

static kv_status print(const kv_record *record, const char *path, const kv_session *session,
                       kv_error *err)
{
    kv_table_request const all = {0};
    kv_status const status = kv_table_write(session->out, record, &all, err);
    if (status != KV_OK) return status;
    fflush(session->out);
    kv_table_note(session->notes, record, &all);
    fprintf(session->notes, "written to %s\n", path);
    return KV_OK;
}

/* From the sweep to its files; `text` is the effective configuration. */
static kv_status run_sweep(const kv_sweep *sweep, const kv_config *config, const char *text,
                           const kv_sweep_request *request, const kv_session *session,
                           kv_error *err)
{
    kv_status status = KV_OK;
    kv_run *run = NULL;
    kv_record *record = NULL;
    char *seeds = NULL, *generator = NULL, *path = NULL;
    KV_TRY(request->result ? kv_duplicate(&path, request->result, err)
                           : kv_file_name_after(&path, request->config, ".h5", err));
    KV_TRY(kv_file_refuse_input(path, config->heads.capture, err));
    KV_TRY(kv_file_refuse_input(path, request->config, err));
    KV_TRY(kv_heads_origin(&generator, &seeds, &config->heads, err));
    kv_provenance provenance = {.title = config->title,
                                .config_text = text,
                                .backend = session->backend->name,
                                .device = session->backend->device(),
                                .backend_why = *session->why ? session->why : NULL,
                                .seeds = seeds,
                                .generator = generator,
                                .argc = session->argc,
                                .argv = session->argv,
                                .is_complete = 1};
    kv_provenance_start(&provenance);
    KV_TRY(kv_run_open(&run,
                       &(kv_run_spec){.final_path = path,
                                      .identity = text,
                                      .n_units = kv_sweep_units(sweep),
                                      .resume = request->is_resumed,
                                      .values_per_unit = kv_sweep_values_per_unit(sweep)},
                       err));
    kv_session_note(session);
    KV_TRY(measure(sweep, run, path, session, err));
    KV_TRY(store(&record, path, sweep, run, &provenance, err));
    if (!session->is_quiet) KV_TRY(print(record, path, session, err));
done:
    kv_free(seeds), kv_free(generator), kv_free(path);
    kv_record_free(record);
    kv_run_close(run);
    return status;
}

kv_status kv_sweep_files(const kv_sweep_request *request, const kv_session *session, kv_error *err)
{
    kv_status status = KV_OK;
    kv_config config = {0};
    kv_sweep *sweep = NULL;
    kv_tune_settings settings = {0}; /* one file may serve both; here its tune: is only checked */
    kv_config_section const section = kv_tune_section(&settings);
    kv_config_sources sources = session->sources;
    char *text = NULL;
    sources.sections = &section, sources.n_sections = 1;
    KV_TRY(kv_config_load(&config, request->config, &sources, err));
    if (!config.n_schemes)
        KV_TRY(
            KV_FAIL(err, KV_EREQUEST, "%s: has no schemes; it is for kvant tune", request->config));
    KV_TRY(kv_config_text(&text, &config, err));
    KV_TRY(kv_sweep_create(&sweep, &config, err));
    if (session->is_dry) {
        kv_session_note(session);
        fputs(text, session->out);
        kv_sweep_print_cost(session->out, sweep, session->threads);
    } else
        KV_TRY(run_sweep(sweep, &config, text, request, session, err));
done:
    kv_free(text);
    kv_sweep_free(sweep);
    kv_tune_settings_free_contents(&settings);
    kv_config_free_contents(&config);
    return status;
}
