/* `heads.profile`: settings that hold for some layers, as a list of
 *     {layers: 0-3, window: 512, outliers.scale: 20}          or along a line between two layers
 *     {layers: 0-31, outliers: {scale: {from: 1, to: 20}}}
 * Kept flat, one key each; later ones win. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/memory.h"
#include "sim/config_parts.h"

typedef struct {
    kv_config *config;
    size_t capacity;
    kv_profile_setting range; /* the layers of the entry being read */
    kv_heads_config scratch;  /* values are tried here */
    kv_problems *problems;
} reader;

static void free_setting(kv_profile_setting *s)
{
    kv_free(s->layers.items);
    kv_free(s->path);
    kv_free(s->text);
    *s = (kv_profile_setting){0};
}

void kv_profile_free(kv_config *config)
{
    for (int64_t i = 0; i < config->n_profile; i++) free_setting(&config->profile[i]);
    kv_free(config->profile);
    config->profile = NULL, config->n_profile = 0;
}

/* ---- reading ---- */

bool kv_layers_parse(const char *text, int64_t *first, int64_t *last)
{
    char start[24] = "";
    if (kv_parse_int(text, first) && *first >= 0) return *last = *first, true;
    const char *const dash = strchr(text, '-');
    if (!dash || (size_t)(dash - text) >= sizeof start) return false;
    memcpy(start, text, (size_t)(dash - text));
    return kv_parse_int(start, first) && kv_parse_int(dash + 1, last) && *first >= 0 &&
           *last >= *first;
}

/* all, 7, 0-3 or [0, 5] */
static kv_status read_layers(kv_profile_setting *range, const kv_yaml_node *node,
                             kv_problems *problems, kv_error *err)
{
    static const kv_key_spec row = {"layers",
                                    KV_TYPE_INTS,
                                    offsetof(kv_profile_setting, layers),
                                    NULL,
                                    0,
                                    100000,
                                    NULL,
                                    "",
                                    "",
                                    KV_KEY_DISTINCT,
                                    0};
    static const kv_key_table table = {"heads.profile", &row, 1, sizeof(kv_profile_setting)};
    if (node->kind == KV_YAML_LIST && node->count)
        return kv_keys_set(range, &table, &row, node, problems, err);
    if (node->kind == KV_YAML_SCALAR) {
        if (strcmp(node->text, "all") == 0) return range->is_all = true, KV_OK;
        if (kv_layers_parse(node->text, &range->first, &range->last)) return KV_OK;
    }
    kv_problem_add(problems, node,
                   "heads.profile.layers: expected a layer, a range like 0-3, a list or all");
    return KV_OK;
}

static kv_status append(reader *r, const kv_key_spec *row, const char *text, double from, double to,
                        kv_error *err)
{
    kv_status status = KV_OK;
    kv_config *const c = r->config;
    kv_profile_setting s = r->range;
    size_t const n = (size_t)s.layers.count;
    s.layers = (kv_int_list){0}, s.from = from, s.to = to;
    KV_TRY(kv_grow((void **)&c->profile, &r->capacity, (size_t)c->n_profile,
                   (size_t)c->n_profile + 1, sizeof s, err));
    KV_TRY(kv_duplicate(&s.path, row->path, err));
    if (text) KV_TRY(kv_duplicate(&s.text, text, err));
    if (n) {
        KV_TRY(kv_allocate((void **)&s.layers.items, n, sizeof *s.layers.items, err));
        memcpy(s.layers.items, r->range.layers.items, n * sizeof *s.layers.items);
        s.layers.count = (int64_t)n;
    }
    c->profile[c->n_profile++] = s, s = (kv_profile_setting){0};
done:
    free_setting(&s);
    return status;
}

static kv_status read_curve(reader *r, const kv_key_spec *row, const kv_yaml_node *node,
                            kv_error *err)
{
    kv_status status = KV_OK;
    const kv_yaml_node *const from = kv_yaml_get(node, "from"), *const to = kv_yaml_get(node, "to");
    double ends[2];
    size_t const before = r->problems->count;
    if ((row->type != KV_TYPE_INT && row->type != KV_TYPE_REAL) || !from || !to ||
        node->count != 2) {
        kv_problem_add(r->problems, node, "heads.profile.%s: expected a value%s", row->path,
                       row->type == KV_TYPE_INT || row->type == KV_TYPE_REAL
                           ? ", or {from: NUMBER, to: NUMBER}"
                           : "");
        return KV_OK;
    }
    KV_TRY(kv_keys_set(&r->scratch, &kv_heads_table, row, from, r->problems, err));
    KV_TRY(kv_keys_set(&r->scratch, &kv_heads_table, row, to, r->problems, err));
    if (r->problems->count != before) goto done;
    if (kv_parse_real(from->text, &ends[0]) && kv_parse_real(to->text, &ends[1]))
        KV_TRY(append(r, row, NULL, ends[0], ends[1], err));
done:
    return status;
}

static kv_status read_value(reader *r, const kv_key_spec *row, const kv_yaml_node *node,
                            kv_error *err)
{
    kv_status status = KV_OK;
    kv_text text = {0};
    size_t const before = r->problems->count;
    if (row->flags & KV_KEY_FIXED) {
        kv_problem_add(r->problems, node, "heads.profile.%s: is the same for every layer",
                       row->path);
        return KV_OK;
    }
    if (node->kind == KV_YAML_MAPPING) return read_curve(r, row, node, err);
    KV_TRY(kv_keys_set(&r->scratch, &kv_heads_table, row, node, r->problems, err));
    if (r->problems->count != before) goto done;
    KV_TRY(kv_keys_value(&text, &r->scratch, row, err));
    KV_TRY(append(r, row, text.data, 0, 0, err));
done:
    kv_text_free(&text);
    return status;
}

static bool is_curve(const kv_yaml_node *node)
{
    return kv_yaml_get(node, "from") || kv_yaml_get(node, "to");
}

static kv_status read_settings(reader *r, const kv_yaml_node *mapping, const char *prefix,
                               kv_error *err)
{
    kv_status status = KV_OK;
    for (size_t i = 0; i < mapping->count; i++) {
        const kv_yaml_node *const key = mapping->entries[i].key;
        const kv_yaml_node *const value = mapping->entries[i].value;
        char path[KV_KEY_PATH];
        if (!*prefix && strcmp(key->text, "layers") == 0) continue;
        if (!kv_keys_join(path, prefix, key, r->problems)) continue;
        const kv_key_spec *const row = kv_keys_target(&kv_heads_table, path);
        bool const is_row = kv_keys_find(&kv_heads_table, path) != NULL;
        if (row && (is_row || value->kind != KV_YAML_MAPPING))
            KV_TRY(read_value(r, row, value, err));
        else if (kv_keys_is_section(&kv_heads_table, path) && value->kind == KV_YAML_MAPPING &&
                 !is_curve(value))
            KV_TRY(read_settings(r, value, path, err));
        else
            kv_keys_unknown(&kv_heads_table, path, NULL, 0, key, r->problems);
    }
done:
    return status;
}

kv_status kv_profile_read(kv_config *config, const kv_yaml_node *list, kv_problems *problems,
                          kv_error *err)
{
    kv_status status = KV_OK;
    reader r = {.config = config, .capacity = (size_t)config->n_profile, .problems = problems};
    if (list->kind != KV_YAML_LIST) {
        kv_problem_add(problems, list,
                       "heads.profile: expected a list of {layers: 0-3, KEY: VALUE}, found %s",
                       kv_yaml_kind_name(list));
        return KV_OK;
    }
    for (size_t i = 0; i < list->count; i++) {
        const kv_yaml_node *const entry = list->entries[i].value;
        const kv_yaml_node *const layers = kv_yaml_get(entry, "layers");
        if (!layers) {
            kv_problem_add(problems, entry,
                           "heads.profile: expected {layers: 0-3, KEY: VALUE}; layers is missing");
            continue;
        }
        kv_free(r.range.layers.items);
        r.range = (kv_profile_setting){0};
        KV_TRY(read_layers(&r.range, layers, problems, err));
        KV_TRY(read_settings(&r, entry, "", err));
    }
done:
    free_setting(&r.range);
    kv_heads_config_free_contents(&r.scratch);
    return status;
}

/* ---- what the user said himself wins over the model's profile ---- */

static bool is_named(const kv_config *config, const char *path, const kv_yaml_node *const *given)
{
    const kv_key_spec *const row = kv_keys_find(&kv_heads_table, path);
    if (given[row - kv_heads_table.rows]) return true;
    for (int64_t a = 0; a < config->n_axes; a++)
        if (strcmp(config->axes[a].path + strlen("heads."), path) == 0) return true;
    return false;
}

/* Cuts a setting to layers below `count`; false where nothing is left. */
static bool cut_layers(kv_profile_setting *s, int64_t count)
{
    if (s->is_all) return true;
    if (s->layers.count) {
        int64_t kept = 0;
        for (int64_t i = 0; i < s->layers.count; i++)
            if (s->layers.items[i] < count) s->layers.items[kept++] = s->layers.items[i];
        return (s->layers.count = kept) > 0;
    }
    if (s->first >= count) return false;
    if (s->last < count) return true;
    s->to =
        s->from + (s->to - s->from) * (double)(count - 1 - s->first) / (double)(s->last - s->first);
    s->last = count - 1;
    return true;
}

void kv_profile_yield(kv_config *config, int64_t count, const kv_yaml_node *const *given)
{
    bool const has_count = config->heads.generator != KV_GENERATOR_CAPTURE;
    int64_t kept = 0;
    for (int64_t i = 0; i < config->n_profile; i++) {
        kv_profile_setting *const s = &config->profile[i];
        bool const keep = i >= count || (!is_named(config, s->path, given) &&
                                         (!has_count || cut_layers(s, config->heads.layers)));
        if (keep)
            config->profile[kept++] = *s;
        else
            free_setting(s);
    }
    config->n_profile = kept;
}

void kv_profile_check(const kv_config *config, int64_t first, const kv_yaml_node *list,
                      kv_problems *problems)
{
    bool const is_capture = config->heads.generator == KV_GENERATOR_CAPTURE;
    for (int64_t i = first; i < config->n_profile; i++) {
        const kv_profile_setting *const s = &config->profile[i];
        int64_t last = s->is_all ? 0 : s->last;
        for (int64_t k = 0; k < s->layers.count; k++)
            if (s->layers.items[k] > last) last = s->layers.items[k];
        if (!is_capture && last >= config->heads.layers)
            kv_problem_add(problems, list,
                           "heads.profile.%s: layer %" PRId64
                           " is not below heads.layers = %" PRId64,
                           s->path, last, config->heads.layers);
        if (is_capture && s->is_all && !s->text)
            kv_problem_add(problems, list,
                           "heads.profile.%s: from and to need layers like 0-17 with a capture",
                           s->path);
        for (int64_t a = 0; a < config->n_axes; a++)
            if (strcmp(config->axes[a].path + strlen("heads."), s->path) == 0)
                kv_problem_add(problems, list,
                               "heads.profile.%s: is swept too; one of them has no effect",
                               s->path);
    }
}

/* ---- using ---- */

/* Whether the setting is for this layer, and where it lies between the first (0) and the last. */
static bool holds(const kv_profile_setting *s, const kv_config *config, int64_t layer,
                  double *share)
{
    int64_t first = s->first, last = s->last, at = layer;
    if (s->layers.count) {
        for (at = 0; at < s->layers.count && s->layers.items[at] != layer;) at++;
        first = 0, last = s->layers.count - 1;
    } else if (s->is_all)
        first = 0, last = config->heads.layers - 1;
    *share = last > first ? (double)(at - first) / (double)(last - first) : 0;
    return s->is_all || (at >= first && at <= last);
}

kv_status kv_profile_apply(kv_heads_config *heads, const kv_config *config, int64_t layer,
                           kv_error *err)
{
    kv_status status = KV_OK;
    for (int64_t i = 0; i < config->n_profile; i++) {
        const kv_profile_setting *const s = &config->profile[i];
        const kv_key_spec *const row = kv_keys_find(&kv_heads_table, s->path);
        char number[KV_REAL_TEXT];
        double share;
        if (!holds(s, config, layer, &share)) continue;
        double const value = s->from + (s->to - s->from) * share;
        if (!s->text && row->type == KV_TYPE_INT)
            snprintf(number, sizeof number, "%.0f", rint(value));
        else if (!s->text)
            kv_real_text(number, value);
        KV_TRY(kv_keys_set_text(heads, &kv_heads_table, s->path, s->text ? s->text : number, err));
    }
done:
    return status;
}

kv_status kv_profile_print(kv_text *text, const kv_config *config, kv_error *err)
{
    kv_status status = KV_OK;
    char from[KV_REAL_TEXT], to[KV_REAL_TEXT];
    if (config->n_profile) KV_TRY(kv_text_add(text, err, "  profile:\n"));
    for (int64_t i = 0; i < config->n_profile; i++) {
        const kv_profile_setting *const s = &config->profile[i];
        KV_TRY(kv_text_add(text, err, "    - {layers: "));
        if (s->is_all) KV_TRY(kv_text_add(text, err, "all"));
        for (int64_t k = 0; k < s->layers.count; k++)
            KV_TRY(kv_text_add(text, err, "%s%" PRId64 "%s", k ? ", " : "[", s->layers.items[k],
                               k + 1 == s->layers.count ? "]" : ""));
        if (!s->is_all && !s->layers.count)
            KV_TRY(kv_text_add(text, err, "%" PRId64 "-%" PRId64, s->first, s->last));
        if (s->text)
            KV_TRY(kv_text_add(text, err, ", %s: %s}\n", s->path, s->text));
        else
            KV_TRY(kv_text_add(text, err, ", %s: {from: %s, to: %s}}\n", s->path,
                               kv_real_text(from, s->from), kv_real_text(to, s->to)));
    }
done:
    return status;
}
