/* Reading a configuration: file, overrides, model, sections, cross-checks. See config.h. */
#include "sim/config.h"

#include <string.h>

#include "kernels/memory.h"
#include "kernels/shorthand.h"
#include "sim/config_parts.h"
#include "sim/data_files.h"
#include "sim/metrics.h"

enum { MAX_OTHERS = 24 };

static const char *const default_metrics[] = {"out_err", "logit_err_max", "attn_kl", "bits"};
enum { N_DEFAULT_METRICS = sizeof default_metrics / sizeof default_metrics[0] };

static const kv_config_sources no_sources;

/* The rows of the top level, in the order of the file. */
enum { ROW_VERSION, ROW_TITLE, ROW_MODEL, ROW_FROM_MODEL, ROW_BASELINE };

#define AT(field) offsetof(kv_top_keys, field)
static const kv_key_spec rows[KV_TOP_KEYS] = {
    [ROW_VERSION] = {"kvant", KV_TYPE_INT, AT(version), NULL, 1, 1, NULL, "",
                     "version of this schema", 0, 0},
    [ROW_TITLE] = {"title", KV_TYPE_TEXT, AT(title), "", 0, 0, NULL, "",
                   "what the experiment shows", 0, 0},
    [ROW_MODEL] =
        {"model", KV_TYPE_TEXT, AT(model), "", 0, 0, NULL, "",
         "a model (or the path of a model file, with a /) whose heads are taken where this "
         "file says nothing",
         0, 0},
    [ROW_FROM_MODEL] = {"from_model", KV_TYPE_TEXT, AT(from_model), "", 0, 0, NULL, "",
                        "in an effective configuration: the model that the heads came from", 0, 0},
    [ROW_BASELINE] = {"baseline", KV_TYPE_TEXT, AT(baseline), "", 0, 0, NULL, "",
                      "name of the scheme that others are compared with", 0, 0},
};
const kv_key_table kv_top_table = {"", rows, KV_TOP_KEYS, sizeof(kv_top_keys)};

/* What one load holds until it is done. */
typedef struct {
    kv_config config;
    const kv_config_sources *sources;
    kv_top_keys top;
    const kv_yaml_node *top_given[KV_TOP_KEYS], *heads_given[KV_HEADS_KEYS];
    int64_t model_settings; /* of the profile */
    kv_yaml *model_file;
    kv_yaml **set_files; /* [n_sets] */
    kv_problems problems;
} loading;

void kv_config_free_contents(kv_config *config)
{
    kv_free(config->title);
    kv_free(config->model);
    kv_heads_config_free_contents(&config->heads);
    kv_profile_free(config);
    for (int64_t i = 0; i < config->n_schemes; i++) kv_scheme_free_contents(&config->schemes[i]);
    kv_free(config->schemes);
    kv_axes_free(config);
    for (int64_t i = 0; i < config->n_metrics; i++) kv_free(config->metrics[i]);
    kv_free(config->metrics);
    *config = (kv_config){0};
}

/* ---- --set ---- */

static kv_status apply_set(loading *l, size_t i, kv_yaml *file, kv_error *err)
{
    kv_status status = KV_OK;
    const char *const set = l->sources->sets[i], *const equals = strchr(set, '=');
    char *path = NULL;
    kv_text name = {0};
    kv_problems broken = {0};
    KV_TRY(kv_text_add(&name, err, "--set %s", set));
    kv_yaml_node const place = {.file = name.data};
    if (!equals) {
        kv_problem_add(&l->problems, &place, "expected KEY=VALUE");
        goto done;
    }
    const char *const value = equals[1] ? equals + 1 : "\"\"";
    KV_TRY(kv_yaml_read(&l->set_files[i], value, strlen(value), name.data, &broken, err));
    if (!l->set_files[i]) {
        kv_problem_add(&l->problems, &place, "the value is not plain YAML, as 3, [1, 2] or {a: 1}");
        goto done;
    }
    kv_yaml_forget_places(l->set_files[i]);
    KV_TRY(kv_duplicate_part(&path, set, (size_t)(equals - set), err));
    KV_TRY(kv_yaml_put(file, path, kv_yaml_root(l->set_files[i]), &l->problems, err));
done:
    kv_text_free(&name);
    kv_free(path);
    return status;
}

static kv_status apply_sets(loading *l, kv_yaml *file, kv_error *err)
{
    kv_status status = KV_OK;
    KV_TRY(kv_allocate((void **)&l->set_files, l->sources->n_sets, sizeof *l->set_files, err));
    for (size_t i = 0; i < l->sources->n_sets; i++) KV_TRY(apply_set(l, i, file, err));
done:
    return status;
}

/* ---- the model ---- */

static kv_status unknown_model(loading *l, const kv_yaml_node *node, kv_error *err)
{
    kv_data_names names = {0};
    kv_status const status =
        kv_data_list(&names, "models", l->sources->data_dirs, l->sources->n_data_dirs, err);
    if (status != KV_OK) return status;
    const char *const closest =
        kv_closest_name(l->top.model, (const char *const *)names.names, names.count);
    kv_problem_add(&l->problems, node, "model: no such model \"%s\"%s%s%s", l->top.model,
                   closest ? ", did you mean \"" : "; see `kvant list models`",
                   closest ? closest : "", closest ? "\"?" : "");
    kv_data_names_free(&names);
    return KV_OK;
}

static kv_status read_model(loading *l, kv_error *err)
{
    kv_status status = KV_OK;
    char *path = NULL;
    const kv_yaml_node *const node = l->top_given[ROW_MODEL], *given[KV_HEADS_KEYS] = {0};
    if (!*l->top.model) return KV_OK;
    if (strchr(l->top.model, '/'))
        KV_TRY(kv_keys_resolve(&path, node, err));
    else
        KV_TRY(kv_data_find(&path, "models", l->top.model, l->sources->data_dirs,
                            l->sources->n_data_dirs, err));
    if (!path) return unknown_model(l, node, err);
    KV_TRY(kv_yaml_load(&l->model_file, path, &l->problems, err));
    if (!l->model_file) goto done;
    const kv_yaml_node *const heads = kv_yaml_get(kv_yaml_root(l->model_file), "heads");
    if (!heads) {
        kv_problem_add(&l->problems, kv_yaml_root(l->model_file), "heads: must be given");
        goto done;
    }
    KV_TRY(kv_heads_keys_read(&l->config.heads, heads, given, &l->problems, err));
    const kv_yaml_node *const profile = kv_yaml_get(heads, "profile");
    if (profile) KV_TRY(kv_profile_read(&l->config, profile, &l->problems, err));
    l->model_settings = l->config.n_profile;
done:
    kv_free(path);
    return status;
}

/* ---- heads ---- */

/* rope: {base: ...} without a layout would be silently without effect. */
static void check_rope_given(loading *l)
{
    if (l->config.heads.rope.layout != KV_ROPE_NONE) return;
    for (size_t i = 0; i < KV_HEADS_KEYS; i++) {
        const char *const path = kv_heads_table.rows[i].path;
        if (strncmp(path, "rope.", 5) || strcmp(path, "rope.layout") == 0 || !l->heads_given[i])
            continue;
        for (int64_t a = 0; a < l->config.n_axes; a++)
            if (strcmp(l->config.axes[a].path, "heads.rope.layout") == 0) return;
        size_t const layout =
            (size_t)(kv_keys_find(&kv_heads_table, "rope.layout") - kv_heads_table.rows);
        if (l->heads_given[layout]) return; /* none was said on purpose: an effective file */
        kv_problem_add(&l->problems, l->heads_given[i],
                       "heads.%s: has no effect without heads.rope.layout: half or interleaved",
                       path);
        return;
    }
}

static kv_status read_heads(loading *l, const kv_yaml_node *root, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_yaml_node *const heads = kv_yaml_get(root, "heads");
    if (!heads) return KV_OK;
    KV_TRY(kv_heads_keys_read(&l->config.heads, heads, l->heads_given, &l->problems, err));
    const kv_yaml_node *const profile = kv_yaml_get(heads, "profile");
    if (profile) KV_TRY(kv_profile_read(&l->config, profile, &l->problems, err));
done:
    return status;
}

/* ---- metrics and baseline ---- */

static kv_status add_metric(loading *l, const char *name, const kv_yaml_node *node, kv_error *err)
{
    kv_config *const c = &l->config;
    for (int64_t i = 0; i < c->n_metrics; i++)
        if (strcmp(c->metrics[i], name) == 0) {
            kv_problem_add(&l->problems, node, "metrics: %s is in the list twice", name);
            return KV_OK;
        }
    kv_status const status = kv_duplicate(&c->metrics[c->n_metrics], name, err);
    if (status == KV_OK) c->n_metrics++;
    return status;
}

static kv_status read_metric(loading *l, const kv_yaml_node *node, kv_error *err)
{
    const char *names[KV_MAX_METRICS];
    size_t count = 0;
    if (node->kind != KV_YAML_SCALAR) {
        kv_problem_add(&l->problems, node, "metrics: expected a name, found %s",
                       kv_yaml_kind_name(node));
        return KV_OK;
    }
    if (kv_metric_find(node->text)) return add_metric(l, node->text, node, err);
    for (; kv_metric_at(count); count++) names[count] = kv_metric_at(count)->name;
    const char *const closest = kv_closest_name(node->text, names, count);
    kv_problem_add(&l->problems, node, "metrics: unknown metric \"%s\"%s%s%s", node->text,
                   closest ? ", did you mean \"" : "; see `kvant list metrics`",
                   closest ? closest : "", closest ? "\"?" : "");
    return KV_OK;
}

static kv_status read_metrics(loading *l, const kv_yaml_node *root, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_yaml_node *const list = kv_yaml_get(root, "metrics");
    bool const is_all = list && list->kind == KV_YAML_SCALAR && strcmp(list->text, "all") == 0;
    KV_TRY(
        kv_allocate((void **)&l->config.metrics, KV_MAX_METRICS, sizeof *l->config.metrics, err));
    if (!list)
        for (size_t i = 0; i < N_DEFAULT_METRICS; i++)
            KV_TRY(add_metric(l, default_metrics[i], NULL, err));
    else if (is_all)
        for (size_t i = 0; kv_metric_at(i); i++) {
            const kv_metric *const metric = kv_metric_at(i); /* a stack is asked for by name */
            if (!kv_scope_is_stack(metric->scope)) KV_TRY(add_metric(l, metric->name, NULL, err));
        }
    else if (list->kind != KV_YAML_LIST || !list->count)
        kv_problem_add(&l->problems, list, "metrics: expected a list of names, or all");
    else
        for (size_t i = 0; i < list->count; i++)
            KV_TRY(read_metric(l, list->entries[i].value, err));
done:
    return status;
}

static kv_status find_baseline(loading *l, kv_error *err)
{
    kv_status status = KV_OK;
    kv_config *const c = &l->config;
    const char **names = NULL;
    c->baseline = -1;
    if (!*l->top.baseline) return KV_OK;
    KV_TRY(kv_allocate((void **)&names, (size_t)c->n_schemes, sizeof *names, err));
    for (int64_t i = 0; i < c->n_schemes; i++) {
        names[i] = c->schemes[i].name;
        if (strcmp(names[i], l->top.baseline) == 0) c->baseline = i;
    }
    if (c->baseline >= 0) goto done;
    const char *const closest = kv_closest_name(l->top.baseline, names, (size_t)c->n_schemes);
    kv_problem_add(&l->problems, l->top_given[ROW_BASELINE],
                   "baseline: no scheme is named \"%s\"%s%s%s", l->top.baseline,
                   closest ? ", did you mean \"" : "", closest ? closest : "",
                   closest ? "\"?" : "");
done:
    kv_free(names);
    return status;
}

/* ---- the whole ---- */

static kv_status read_top(loading *l, const kv_yaml_node *root, kv_error *err)
{
    kv_status status = KV_OK;
    const char *others[MAX_OTHERS] = {"heads", "schemes", "sweep", "metrics"};
    size_t n = 4;
    for (size_t i = 0; i < l->sources->n_sections && n < MAX_OTHERS; i++)
        others[n++] = l->sources->sections[i].name;
    KV_TRY(kv_keys_read(&l->top, &kv_top_table, root, others, n, l->top_given, &l->problems, err));
    kv_keys_require(&kv_top_table, root, l->top_given, &l->problems);
done:
    return status;
}

static kv_status read_sections(loading *l, const kv_yaml_node *root, bool *has_any, kv_error *err)
{
    kv_status status = KV_OK;
    for (size_t i = 0; i < l->sources->n_sections; i++) {
        const kv_config_section *const section = &l->sources->sections[i];
        const kv_yaml_node *const node = kv_yaml_get(root, section->name);
        if (!node) continue;
        *has_any = true;
        KV_TRY(section->read(section->context, node, &l->problems, err));
    }
done:
    return status;
}

static kv_status read_all(loading *l, kv_yaml *file, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_yaml_node *const root = kv_yaml_root(file);
    bool has_section = false;
    if (root->kind != KV_YAML_MAPPING) {
        kv_problem_add(&l->problems, root, "expected a mapping of keys, found %s",
                       kv_yaml_kind_name(root));
        return KV_OK;
    }
    KV_TRY(apply_sets(l, file, err));
    KV_TRY(kv_keys_defaults(&l->top, &kv_top_table, err));
    KV_TRY(kv_keys_defaults(&l->config.heads, &kv_heads_table, err));
    KV_TRY(read_top(l, root, err));
    KV_TRY(read_model(l, err));
    KV_TRY(read_heads(l, root, err));
    const kv_yaml_node *const schemes = kv_yaml_get(root, "schemes");
    if (schemes) KV_TRY(kv_schemes_read(&l->config, schemes, l->sources, &l->problems, err));
    const kv_yaml_node *const sweep = kv_yaml_get(root, "sweep");
    if (sweep) KV_TRY(kv_axes_read(&l->config, sweep, &l->problems, err));
    KV_TRY(read_metrics(l, root, err));
    KV_TRY(read_sections(l, root, &has_section, err));
    if (!schemes && !has_section)
        kv_problem_add(&l->problems, root, "schemes: must be given: what to compare");
    if (l->problems.count) goto done; /* what follows would only repeat them */
    KV_TRY(find_baseline(l, err));
    check_rope_given(l);
    int64_t const own = l->config.n_profile - l->model_settings;
    kv_profile_yield(&l->config, l->model_settings, l->heads_given);
    kv_profile_check(&l->config, l->config.n_profile - own,
                     kv_yaml_get(kv_yaml_get(root, "heads"), "profile"), &l->problems);
    if (!l->problems.count) KV_TRY(kv_config_check(&l->config, root, &l->problems, err));
done:
    return status;
}

/* Reads the tree and gives the configuration over; problems may be there already. */
static kv_status read_tree(kv_config *out, loading *l, kv_yaml *file, kv_error *err)
{
    kv_status status = KV_OK;
    if (file) KV_TRY(read_all(l, file, err));
    KV_TRY(kv_problems_raise(&l->problems, err));
    l->config.title = l->top.title, l->top.title = NULL;
    char **const model = *l->top.model ? &l->top.model : &l->top.from_model;
    if (**model) l->config.model = *model, *model = NULL;
    *out = l->config, l->config = (kv_config){0};
done:
    kv_config_free_contents(&l->config);
    kv_keys_free(&l->top, &kv_top_table);
    for (size_t i = 0; l->set_files && i < l->sources->n_sets; i++) kv_yaml_free(l->set_files[i]);
    kv_free(l->set_files);
    kv_yaml_free(l->model_file);
    return status;
}

kv_status kv_config_load(kv_config *out, const char *path, const kv_config_sources *sources,
                         kv_error *err)
{
    loading l = {.sources = sources ? sources : &no_sources};
    kv_yaml *file = NULL;
    kv_status status = kv_yaml_load(&file, path, &l.problems, err);
    if (status == KV_OK) status = read_tree(out, &l, file, err);
    kv_yaml_free(file);
    return status;
}

kv_status kv_config_read(kv_config *out, const char *text, size_t length, const char *name,
                         const kv_config_sources *sources, kv_error *err)
{
    loading l = {.sources = sources ? sources : &no_sources};
    kv_yaml *file = NULL;
    kv_status status = kv_yaml_read(&file, text, length, name, &l.problems, err);
    if (status == KV_OK) status = read_tree(out, &l, file, err);
    kv_yaml_free(file);
    return status;
}
