/* The effective configuration as YAML, the list of keys, and model files. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/memory.h"
#include "sim/config_parts.h"
#include "sim/data_files.h"

/* KEY: TEXT, quoted where it must be. */
static kv_status print_pair(kv_text *text, const char *before, const char *value, const char *after,
                            kv_error *err)
{
    kv_status status = KV_OK;
    KV_TRY(kv_text_add(text, err, "%s", before));
    KV_TRY(kv_yaml_quote(text, value, err));
    KV_TRY(kv_text_add(text, err, "%s", after));
done:
    return status;
}

/* Every layer itself: the policy file may be gone when this is read. */
static kv_status print_layers(kv_text *t, const kv_scheme *s, kv_error *err)
{
    kv_status status = KV_OK;
    KV_TRY(print_pair(t, "  - name: ", s->name, "\n    layers:\n", err));
    for (int64_t i = 0, last; i < s->n_layers; i = last + 1) {
        last = kv_scheme_run(s, i);
        KV_TRY(kv_text_add(t, err, "      %" PRId64, s->layers[i].layer));
        if (last > i) KV_TRY(kv_text_add(t, err, "-%" PRId64, s->layers[last].layer));
        KV_TRY(print_pair(t, ": [", s->layers[i].key_text, ", ", err));
        KV_TRY(print_pair(t, "", s->layers[i].value_text, "]\n", err));
    }
done:
    return status;
}

static kv_status print_schemes(kv_text *t, const kv_config *config, kv_error *err)
{
    kv_status status = KV_OK;
    if (config->n_schemes) KV_TRY(kv_text_add(t, err, "schemes:\n"));
    for (int64_t i = 0; i < config->n_schemes; i++) {
        const kv_scheme *const s = &config->schemes[i];
        if (s->layers) {
            KV_TRY(print_layers(t, s, err));
            continue;
        }
        KV_TRY(print_pair(t, "  - {name: ", s->name, ", ", err));
        KV_TRY(print_pair(t, "key: ", s->key_text, ", ", err));
        KV_TRY(print_pair(t, "value: ", s->value_text, "}\n", err));
    }
    if (config->baseline >= 0)
        KV_TRY(print_pair(t, "baseline: ", config->schemes[config->baseline].name, "\n", err));
done:
    return status;
}

static kv_status print_axes(kv_text *t, const kv_config *config, kv_error *err)
{
    kv_status status = KV_OK;
    if (config->n_axes) KV_TRY(kv_text_add(t, err, "sweep:\n"));
    for (int64_t a = 0; a < config->n_axes; a++) {
        const kv_axis *const axis = &config->axes[a];
        KV_TRY(kv_text_add(t, err, "  %s: [", axis->path));
        for (int64_t i = 0; i < axis->count; i++)
            KV_TRY(kv_text_add(t, err, "%s%s", i ? ", " : "", axis->texts[i]));
        KV_TRY(kv_text_add(t, err, "]\n"));
    }
done:
    return status;
}

kv_status kv_config_text(char **out, const kv_config *config, kv_error *err)
{
    kv_status status = KV_OK;
    kv_text t = {0};
    KV_TRY(kv_text_add(&t, err, "kvant: 1\n"));
    KV_TRY(print_pair(&t, "title: ", config->title ? config->title : "", "\n", err));
    if (config->model) KV_TRY(print_pair(&t, "from_model: ", config->model, "\n", err));
    KV_TRY(kv_text_add(&t, err, "heads:\n"));
    KV_TRY(kv_heads_keys_print(&t, &config->heads, err));
    KV_TRY(kv_profile_print(&t, config, err));
    KV_TRY(print_schemes(&t, config, err));
    KV_TRY(print_axes(&t, config, err));
    KV_TRY(kv_text_add(&t, err, "metrics: ["));
    for (int64_t i = 0; i < config->n_metrics; i++)
        KV_TRY(kv_text_add(&t, err, "%s%s", i ? ", " : "", config->metrics[i]));
    KV_TRY(kv_text_add(&t, err, "]\n"));
    *out = kv_text_take(&t);
done:
    kv_text_free(&t);
    return status;
}

/* ---- keys ---- */

/* What no table row says. */
static const kv_key_description extras[] = {
    {"heads.profile", "list", "", "", "",
     "settings of some layers: [{layers: 0-3, KEY: VALUE or {from: X, to: Y}}]"},
    {"schemes", "list", "required", "", "",
     "presets, shorthands, {name, key, value}, {name, policy: FILE} (a scheme for each layer), "
     "{name, "
     "layers: {0-3: [KEY, VALUE], ...}}; or all pairs: {keys: [...], values: [...]}"},
    {"sweep", "mapping", "", "", "", "{heads.KEY: [VALUE, ...]}: a grid over keys of heads"},
    {"metrics", "list", "[out_err, logit_err_max, attn_kl, bits]", "", "",
     "names of metrics, or all"},
};
enum { N_EXTRAS = sizeof extras / sizeof extras[0] };

static void describe(kv_key_description *out, const kv_key_table *table, size_t index)
{
    const kv_key_spec *const row = &table->rows[index];
    snprintf(out->path, sizeof out->path, "%s%s%s", table->section, *table->section ? "." : "",
             row->path);
    out->type = kv_keys_type_name(row), out->unit = row->unit, out->help = row->help;
    snprintf(out->preset, sizeof out->preset, "%s", row->preset ? row->preset : "required");
    kv_keys_range(out->range, sizeof out->range, row);
}

bool kv_config_describe_key(kv_key_description *out, size_t index)
{
    *out = (kv_key_description){.type = ""};
    if (index < kv_top_table.count) return describe(out, &kv_top_table, index), true;
    index -= kv_top_table.count;
    if (index < kv_heads_table.count) return describe(out, &kv_heads_table, index), true;
    index -= kv_heads_table.count;
    if (index >= N_EXTRAS) return false;
    *out = extras[index];
    return true;
}

void kv_key_description_print(FILE *out, const kv_key_description *key)
{
    fprintf(out, "%-32s %-14s %-12s %s%s%s\n%34s%s\n", key->path, key->type, key->preset,
            key->range, *key->unit ? " " : "", key->unit, "", key->help);
}

void kv_config_list_keys(FILE *out)
{
    kv_key_description key;
    fprintf(out, "%-32s %-14s %-12s %s\n", "key", "type", "default", "range or choices, unit");
    for (size_t i = 0; kv_config_describe_key(&key, i); i++) kv_key_description_print(out, &key);
}

/* ---- models ---- */

typedef struct {
    char *about, *source;
} model_keys;

static const kv_key_spec rows[] = {
    {"about", KV_TYPE_TEXT, offsetof(model_keys, about), NULL, 0, 0, NULL, "", "the model", 0, 0},
    {"source", KV_TYPE_TEXT, offsetof(model_keys, source), NULL, 0, 0, NULL, "",
     "where its numbers are from", 0, 0},
};
static const kv_key_table model_table = {"", rows, 2, sizeof(model_keys)};

static kv_status load_model(kv_model *out, const char *path, const char *name, kv_error *err)
{
    kv_status status = KV_OK;
    static const char *const others[] = {"heads"};
    kv_problems problems = {0};
    kv_yaml *file = NULL;
    model_keys keys = {0};
    const kv_yaml_node *given[2] = {0};
    KV_TRY(kv_yaml_load(&file, path, &problems, err));
    if (file) {
        KV_TRY(kv_keys_read(&keys, &model_table, kv_yaml_root(file), others, 1, given, &problems,
                            err));
        kv_keys_require(&model_table, kv_yaml_root(file), given, &problems);
    }
    KV_TRY(kv_problems_raise(&problems, err));
    KV_TRY(kv_duplicate(&out->name, name, err));
    out->about = keys.about, out->source = keys.source;
    keys = (model_keys){0};
done:
    kv_keys_free(&keys, &model_table);
    kv_yaml_free(file);
    return status;
}

void kv_models_free(kv_model *models, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        kv_free(models[i].name);
        kv_free(models[i].about);
        kv_free(models[i].source);
    }
    kv_free(models);
}

kv_status kv_models_load(kv_model **out, size_t *count, const char *const *data_dirs,
                         size_t n_data_dirs, kv_error *err)
{
    kv_status status = KV_OK;
    kv_data_names names = {0};
    kv_model *models = NULL;
    char *path = NULL;
    KV_TRY(kv_data_list(&names, "models", data_dirs, n_data_dirs, err));
    KV_TRY(kv_allocate((void **)&models, names.count, sizeof *models, err));
    for (size_t i = 0; i < names.count; i++) {
        KV_TRY(kv_data_find(&path, "models", names.names[i], data_dirs, n_data_dirs, err));
        if (!path) KV_TRY(KV_FAIL(err, KV_EIO, "model %s has vanished", names.names[i]));
        KV_TRY(load_model(&models[i], path, names.names[i], err));
        kv_free(path), path = NULL;
    }
    *out = models, *count = names.count;
    models = NULL;
done:
    if (models) kv_models_free(models, names.count);
    kv_free(path);
    kv_data_names_free(&names);
    return status;
}

kv_status kv_models_list(FILE *out, const char *const *data_dirs, size_t n_data_dirs, kv_error *err)
{
    kv_model *models = NULL;
    size_t n = 0;
    kv_status const status = kv_models_load(&models, &n, data_dirs, n_data_dirs, err);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "%-16s %s (%s)\n", models[i].name, models[i].about, models[i].source);
    kv_models_free(models, n);
    return status;
}
