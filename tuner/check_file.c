/* Validating a configuration or a policy: see check_file.h. */
#include "tuner/check_file.h"

#include "kernels/memory.h"
#include "sim/policy.h"
#include "sim/sweep.h"
#include "tuner/settings.h"

static kv_status check_policy(FILE *out, FILE *notes, const char *path, kv_error *err)
{
    kv_status status = KV_OK;
    kv_policy policy = {0};
    char *text = NULL;
    KV_TRY(kv_policy_read(&policy, path, err));
    KV_TRY(kv_policy_text(&text, &policy, err));
    fputs(text, out);
    fflush(out);
    kv_policy_note_foreign(notes, &policy);
done:
    kv_free(text);
    kv_policy_free_contents(&policy);
    return status;
}

static kv_status check_config(FILE *out, const char *path, const kv_config_sources *sources,
                              kv_error *err)
{
    kv_status status = KV_OK;
    kv_config config = {0};
    kv_tune_settings settings = {0};
    kv_config_section const section = kv_tune_section(&settings);
    kv_config_sources with_tune = *sources;
    kv_sweep *sweep = NULL;
    char *text = NULL;
    kv_text tune = {0};
    with_tune.sections = &section, with_tune.n_sections = 1;
    KV_TRY(kv_config_load(&config, path, &with_tune, err));
    if (config.n_schemes) KV_TRY(kv_sweep_create(&sweep, &config, err));
    KV_TRY(kv_config_text(&text, &config, err));
    if (settings.is_given) KV_TRY(kv_tune_settings_text(&tune, &settings, err));
    fputs(text, out);
    if (tune.data) fputs(tune.data, out);
done:
    kv_free(text);
    kv_text_free(&tune);
    kv_sweep_free(sweep);
    kv_tune_settings_free_contents(&settings);
    kv_config_free_contents(&config);
    return status;
}

kv_status kv_check_file(FILE *out, FILE *notes, const char *path, const kv_config_sources *sources,
                        kv_error *err)
{
    bool is_policy = false;
    kv_status const status = kv_policy_probe(&is_policy, path, err);
    if (status != KV_OK) return status;
    if (!is_policy) return check_config(out, path, sources, err);
    if (sources->n_sets)
        return KV_FAIL(err, KV_EREQUEST, "--set goes with a configuration; %s is a policy", path);
    return check_policy(out, notes, path, err);
}
