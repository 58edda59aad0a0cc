/* `sweep:`, the grid over keys of heads, and the settings at one of its points. */
#include <inttypes.h>
#include <string.h>

#include "kernels/memory.h"
#include "sim/config_parts.h"

static const char heads_prefix[] = "heads.";

static void free_axis(kv_axis *axis)
{
    for (int64_t i = 0; axis->texts && i < axis->count; i++) kv_free(axis->texts[i]);
    kv_free(axis->texts);
    kv_free(axis->numbers);
    kv_free(axis->path);
    kv_free(axis->unit);
    *axis = (kv_axis){0};
}

void kv_axes_free(kv_config *config)
{
    for (int64_t a = 0; a < config->n_axes; a++) free_axis(&config->axes[a]);
    kv_free(config->axes);
    config->axes = NULL, config->n_axes = 0;
}

/* ---- reading ---- */

static kv_status read_values(kv_axis *axis, const kv_key_spec *row, const kv_yaml_node *list,
                             kv_heads_config *scratch, kv_problems *problems, kv_error *err)
{
    kv_status status = KV_OK;
    kv_text text = {0};
    bool const are_numbers = row->type == KV_TYPE_INT || row->type == KV_TYPE_REAL;
    KV_TRY(kv_allocate((void **)&axis->texts, list->count, sizeof *axis->texts, err));
    if (are_numbers)
        KV_TRY(kv_allocate((void **)&axis->numbers, list->count, sizeof *axis->numbers, err));
    for (size_t i = 0; i < list->count; i++) {
        const kv_yaml_node *const node = list->entries[i].value;
        size_t const before = problems->count;
        KV_TRY(kv_keys_set(scratch, &kv_heads_table, row, node, problems, err));
        if (problems->count != before) continue;
        KV_TRY(kv_keys_value(&text, scratch, row, err));
        char *const value = axis->texts[axis->count] = kv_text_take(&text);
        for (int64_t k = 0; k < axis->count; k++)
            if (strcmp(axis->texts[k], value) == 0)
                kv_problem_add(problems, node, "sweep: %s: %s is in the list twice", axis->path,
                               value);
        if (are_numbers) kv_parse_real(value, &axis->numbers[axis->count]);
        axis->count++;
    }
done:
    kv_text_free(&text);
    return status;
}

static kv_status read_axis(kv_config *config, const char *path, const kv_yaml_node *key,
                           const kv_yaml_node *list, kv_problems *problems, kv_error *err)
{
    kv_status status = KV_OK;
    kv_axis axis = {0};
    kv_text full = {0};
    kv_heads_config scratch = {0};
    const kv_key_spec *const row = kv_keys_target(&kv_heads_table, path);
    if (!row) {
        kv_keys_unknown(&kv_heads_table, path, NULL, 0, key, problems);
        return KV_OK;
    }
    KV_TRY(kv_text_add(&full, err, "%s%s", heads_prefix, row->path));
    axis.path = kv_text_take(&full);
    KV_TRY(kv_duplicate(&axis.unit, row->unit, err));
    for (int64_t a = 0; a < config->n_axes; a++)
        if (strcmp(config->axes[a].path, axis.path) == 0)
            kv_problem_add(problems, key, "sweep: %s: given twice", axis.path);
    if (row->flags & KV_KEY_FIXED)
        kv_problem_add(problems, key, "sweep: %s: is the same for the whole run", axis.path);
    else if (list->kind != KV_YAML_LIST || !list->count)
        kv_problem_add(problems, list, "sweep: %s: expected a list of values", axis.path);
    else if (list->count > KV_CONFIG_MAX_VALUES)
        kv_problem_add(problems, list, "sweep: %s: %zu values, at most %d are possible", axis.path,
                       list->count, KV_CONFIG_MAX_VALUES);
    else if (config->n_axes == KV_CONFIG_MAX_AXES)
        kv_problem_add(problems, key, "sweep: more than %d keys", KV_CONFIG_MAX_AXES);
    else {
        KV_TRY(read_values(&axis, row, list, &scratch, problems, err));
        config->axes[config->n_axes++] = axis, axis = (kv_axis){0};
    }
done:
    kv_text_free(&full);
    free_axis(&axis);
    kv_heads_config_free_contents(&scratch);
    return status;
}

static kv_status read_axes(kv_config *config, const kv_yaml_node *mapping, const char *prefix,
                           kv_problems *problems, kv_error *err)
{
    kv_status status = KV_OK;
    size_t const skip = strlen(heads_prefix);
    for (size_t i = 0; i < mapping->count; i++) {
        const kv_yaml_node *const key = mapping->entries[i].key;
        const kv_yaml_node *const value = mapping->entries[i].value;
        char path[KV_KEY_PATH];
        if (!kv_keys_join(path, prefix, key, problems)) continue;
        if (value->kind == KV_YAML_MAPPING)
            KV_TRY(read_axes(config, value, path, problems, err));
        else if (strncmp(path, heads_prefix, skip) != 0)
            kv_problem_add(problems, key, "sweep: %s: only keys of heads can be swept%s%s", path,
                           kv_keys_target(&kv_heads_table, path) ? ", as heads." : "",
                           kv_keys_target(&kv_heads_table, path) ? path : "");
        else
            KV_TRY(read_axis(config, path + skip, key, value, problems, err));
    }
done:
    return status;
}

kv_status kv_axes_read(kv_config *config, const kv_yaml_node *mapping, kv_problems *problems,
                       kv_error *err)
{
    kv_status status = KV_OK;
    if (mapping->kind != KV_YAML_MAPPING) {
        kv_problem_add(problems, mapping, "sweep: expected {heads.KEY: [VALUE, ...]}, found %s",
                       kv_yaml_kind_name(mapping));
        return KV_OK;
    }
    KV_TRY(kv_allocate((void **)&config->axes, KV_CONFIG_MAX_AXES, sizeof *config->axes, err));
    KV_TRY(read_axes(config, mapping, "", problems, err));
    double points = 1;
    for (int64_t a = 0; a < config->n_axes; a++) points *= (double)config->axes[a].count;
    if (points > KV_CONFIG_MAX_POINTS)
        kv_problem_add(problems, mapping, "sweep: %.0f points, at most %d are possible", points,
                       KV_CONFIG_MAX_POINTS);
done:
    return status;
}

/* ---- points ---- */

int64_t kv_config_points(const kv_config *config)
{
    int64_t points = 1;
    for (int64_t a = 0; a < config->n_axes; a++) points *= config->axes[a].count;
    return points;
}

void kv_config_point(const kv_config *config, int64_t point, int64_t *index)
{
    for (int64_t a = config->n_axes; a-- > 0; point /= config->axes[a].count)
        index[a] = point % config->axes[a].count;
}

kv_status kv_config_layer(kv_heads_config *out, const kv_config *config, const int64_t *index,
                          int64_t layer, kv_error *err)
{
    kv_status status = KV_OK;
    kv_heads_config heads = {0};
    KV_TRY(kv_heads_config_copy(&heads, &config->heads, err));
    for (int64_t a = 0; a < config->n_axes; a++)
        KV_TRY(kv_keys_set_text(&heads, &kv_heads_table,
                                config->axes[a].path + strlen(heads_prefix),
                                config->axes[a].texts[index[a]], err));
    KV_TRY(kv_profile_apply(&heads, config, layer, err));
    *out = heads, heads = (kv_heads_config){0};
done:
    kv_heads_config_free_contents(&heads);
    return status;
}
