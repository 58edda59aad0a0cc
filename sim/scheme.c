/* Schemes and the presets that name them: see scheme.h. */
#include "sim/scheme.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/memory.h"
#include "kernels/shorthand.h"
#include "sim/data_files.h"
#include "sim/keys.h"

void kv_scheme_free_contents(kv_scheme *scheme)
{
    for (int64_t i = 0; i < scheme->n_layers; i++) {
        kv_free(scheme->layers[i].key_text);
        kv_free(scheme->layers[i].value_text);
    }
    kv_free(scheme->layers);
    kv_free(scheme->name);
    kv_free(scheme->key_text);
    kv_free(scheme->value_text);
    *scheme = (kv_scheme){0};
}

kv_status kv_scheme_make(kv_scheme *out, const char *name, const char *key, const char *value,
                         kv_error *err)
{
    kv_status status = KV_OK;
    kv_scheme s = {0};
    kv_text pair = {0};
    KV_TRY(kv_quantizer_parse(&s.key, key, true, err));
    KV_TRY(kv_quantizer_parse(&s.value, value, false, err));
    KV_TRY(kv_quantizer_text(&s.key_text, &s.key, err));
    KV_TRY(kv_quantizer_text(&s.value_text, &s.value, err));
    KV_TRY(name ? kv_text_add(&pair, err, "%s", name)
                : kv_text_add(&pair, err, "%s | %s", s.key_text, s.value_text));
    s.name = kv_text_take(&pair);
    *out = s, s = (kv_scheme){0};
done:
    kv_text_free(&pair);
    kv_scheme_free_contents(&s);
    return status;
}

/* ---- schemes that differ between layers ---- */

/* A quantizer and its canonical text; both stay unset with a problem. */
static kv_status parse_layer(char **text, kv_quantizer *q, const char *from, bool is_key,
                             const char *place, const kv_yaml_node *at, kv_problems *problems,
                             kv_error *err)
{
    kv_error why = {0};
    kv_status const status = kv_quantizer_parse(q, from, is_key, &why);
    if (status == KV_OK) return kv_quantizer_text(text, q, err);
    if (status != KV_EREQUEST) return KV_FAIL(err, status, "%s", why.message);
    kv_problem_add(problems, at, "%s, %s: %s", place, is_key ? "key" : "value", why.message);
    return KV_OK;
}

kv_status kv_scheme_from_policy(kv_scheme *out, const char *name, const kv_policy *policy,
                                const kv_yaml_node *at, kv_problems *problems, kv_error *err)
{
    kv_status status = KV_OK;
    kv_scheme s = {0};
    kv_text place = {0};
    size_t const before = problems->count;
    KV_TRY(kv_duplicate(&s.name, name ? name : policy->title, err));
    KV_TRY(kv_duplicate(&s.key_text, "per layer", err));
    KV_TRY(kv_duplicate(&s.value_text, "per layer", err));
    KV_TRY(kv_allocate((void **)&s.layers, (size_t)policy->n_layers, sizeof *s.layers, err));
    for (int64_t i = 0; i < policy->n_layers; i++) {
        const kv_policy_layer *const from = &policy->layers[i];
        kv_scheme_layer *const l = &s.layers[s.n_layers++];
        l->layer = from->layer;
        kv_text_free(&place);
        KV_TRY(kv_text_add(&place, err, "%s\"%s\", layer %" PRId64,
                           at && at->line ? "schemes: " : "", s.name, l->layer));
        KV_TRY(parse_layer(&l->key_text, &l->key, from->key, true, place.data, at, problems, err));
        KV_TRY(parse_layer(&l->value_text, &l->value, from->value, false, place.data, at, problems,
                           err));
    }
    if (problems->count == before) *out = s, s = (kv_scheme){0};
done:
    kv_text_free(&place);
    kv_scheme_free_contents(&s);
    return status;
}

static int by_number(const void *a, const void *b)
{
    int64_t const x = *(const int64_t *)a, y = ((const kv_scheme_layer *)b)->layer;
    return (x > y) - (x < y);
}

kv_scheme_pair kv_scheme_at(const kv_scheme *s, int64_t layer)
{
    if (!s->layers) return (kv_scheme_pair){s->key_text, s->value_text, &s->key, &s->value};
    const kv_scheme_layer *const l =
        bsearch(&layer, s->layers, (size_t)s->n_layers, sizeof *s->layers, by_number);
    if (!l) return (kv_scheme_pair){0};
    return (kv_scheme_pair){l->key_text, l->value_text, &l->key, &l->value};
}

kv_status kv_scheme_covers(const kv_scheme *scheme, const int64_t *numbers, int64_t n,
                           kv_error *err)
{
    enum { SHOWN = 10 };
    kv_status status = KV_OK;
    kv_text missing = {0};
    int64_t count = 0;
    for (int64_t i = 0; i < n && scheme->layers; i++) {
        int64_t const layer = numbers ? numbers[i] : i;
        if (kv_scheme_at(scheme, layer).key) continue;
        if (count++ < SHOWN)
            KV_TRY(kv_text_add(&missing, err, "%s%" PRId64, count > 1 ? ", " : "", layer));
    }
    if (count > SHOWN) KV_TRY(kv_text_add(&missing, err, " and %" PRId64 " more", count - SHOWN));
    if (count)
        status = KV_FAIL(err, KV_EREQUEST, "\"%s\" says nothing of layer%s %s", scheme->name,
                         count > 1 ? "s" : "", missing.data);
done:
    kv_text_free(&missing);
    return status;
}

/* ---- preset files ---- */

typedef struct {
    char *about, *source, *key, *value;
} preset_keys;

static const kv_key_spec rows[] = {
    {"about", KV_TYPE_TEXT, offsetof(preset_keys, about), NULL, 0, 0, NULL, "",
     "what the method is and where this deviates from it", 0, 0},
    {"source", KV_TYPE_TEXT, offsetof(preset_keys, source), NULL, 0, 0, NULL, "",
     "paper and table, or project and function", 0, 0},
    {"key", KV_TYPE_TEXT, offsetof(preset_keys, key), NULL, 0, 0, NULL, "", "key quantizer", 0, 0},
    {"value", KV_TYPE_TEXT, offsetof(preset_keys, value), NULL, 0, 0, NULL, "", "value quantizer",
     0, 0},
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };
static const kv_key_table preset_table = {"", rows, N_ROWS, sizeof(preset_keys)};

static kv_status load_preset(kv_preset *out, const char *path, const char *name, kv_error *err)
{
    kv_status status = KV_OK;
    kv_problems problems = {0};
    kv_yaml *file = NULL;
    preset_keys keys = {0};
    const kv_yaml_node *given[N_ROWS] = {0};
    KV_TRY(kv_yaml_load(&file, path, &problems, err));
    if (file) {
        const kv_yaml_node *const root = kv_yaml_root(file);
        KV_TRY(kv_keys_read(&keys, &preset_table, root, NULL, 0, given, &problems, err));
        kv_keys_require(&preset_table, root, given, &problems);
    }
    KV_TRY(kv_problems_raise(&problems, err));
    status = kv_scheme_make(&out->scheme, name, keys.key, keys.value, err);
    if (status == KV_EREQUEST) kv_error_prepend(err, "%s", path);
    if (status != KV_OK) goto done;
    out->about = keys.about, out->source = keys.source;
    keys.about = keys.source = NULL;
done:
    kv_keys_free(&keys, &preset_table);
    kv_yaml_free(file);
    return status;
}

static void free_preset(kv_preset *preset)
{
    kv_scheme_free_contents(&preset->scheme);
    kv_free(preset->about);
    kv_free(preset->source);
    *preset = (kv_preset){0};
}

void kv_presets_free(kv_preset *presets, size_t count)
{
    for (size_t i = 0; i < count; i++) free_preset(&presets[i]);
    kv_free(presets);
}

kv_status kv_presets_load(kv_preset **out, size_t *count, const char *const *data_dirs,
                          size_t n_data_dirs, kv_error *err)
{
    kv_status status = KV_OK;
    kv_data_names names = {0};
    kv_preset *presets = NULL;
    size_t loaded = 0;
    char *path = NULL;
    KV_TRY(kv_data_list(&names, "schemes", data_dirs, n_data_dirs, err));
    KV_TRY(kv_allocate((void **)&presets, names.count, sizeof *presets, err));
    for (size_t i = 0; i < names.count; i++) {
        KV_TRY(kv_data_find(&path, "schemes", names.names[i], data_dirs, n_data_dirs, err));
        if (!path) KV_TRY(KV_FAIL(err, KV_EIO, "preset %s has vanished", names.names[i]));
        loaded++;
        KV_TRY(load_preset(&presets[i], path, names.names[i], err));
        kv_free(path), path = NULL;
    }
    *out = presets, *count = names.count;
    presets = NULL;
done:
    if (presets) kv_presets_free(presets, loaded);
    kv_free(path);
    kv_data_names_free(&names);
    return status;
}

/* ---- finding by text ---- */

static kv_status find_preset(kv_scheme *out, bool *is_found, const char *name,
                             const char *const *data_dirs, size_t n_data_dirs, kv_error *err)
{
    kv_status status = KV_OK;
    kv_preset preset = {0};
    char *path = NULL;
    KV_TRY(kv_data_find(&path, "schemes", name, data_dirs, n_data_dirs, err));
    *is_found = path != NULL;
    if (!path) goto done;
    KV_TRY(load_preset(&preset, path, name, err));
    *out = preset.scheme, preset.scheme = (kv_scheme){0};
done:
    free_preset(&preset);
    kv_free(path);
    return status;
}

/* "KEY | VALUE" */
static kv_status make_pair(kv_scheme *out, const char *text, const char *bar, kv_error *err)
{
    kv_status status = KV_OK;
    char *key = NULL;
    size_t length = (size_t)(bar - text);
    while (length && text[length - 1] == ' ') length--;
    const char *value = bar + 1;
    while (*value == ' ') value++;
    KV_TRY(kv_duplicate_part(&key, text, length, err));
    KV_TRY(kv_scheme_make(out, NULL, key, value, err));
done:
    kv_free(key);
    return status;
}

/* Neither a preset nor a shorthand: which of the two was meant shows in the message. */
static kv_status neither(const char *text, const char *why, const char *const *data_dirs,
                         size_t n_data_dirs, kv_error *err)
{
    kv_status status = KV_OK;
    kv_data_names names = {0};
    KV_TRY(kv_data_list(&names, "schemes", data_dirs, n_data_dirs, err));
    const char *const closest =
        kv_closest_name(text, (const char *const *)names.names, names.count);
    if (closest)
        status = KV_FAIL(err, KV_EREQUEST, "\"%s\": no such preset, did you mean \"%s\"?", text,
                         closest);
    else
        status = KV_FAIL(err, KV_EREQUEST,
                         "no preset (see `kvant list schemes`), nor a shorthand: %s", why);
done:
    kv_data_names_free(&names);
    return status;
}

kv_status kv_scheme_find(kv_scheme *out, const char *text, const char *const *data_dirs,
                         size_t n_data_dirs, kv_error *err)
{
    kv_status status = KV_OK;
    bool is_found = false;
    kv_error why = {0};
    const char *const bar = strchr(text, '|');
    if (bar) return make_pair(out, text, bar, err);
    KV_TRY(find_preset(out, &is_found, text, data_dirs, n_data_dirs, err));
    if (is_found) return KV_OK;
    status = kv_scheme_make(out, NULL, text, text, &why);
    if (status == KV_EREQUEST && !strpbrk(text, "/:"))
        status = neither(text, why.message, data_dirs, n_data_dirs, err);
    else if (status != KV_OK)
        KV_FAIL(err, status, "%s", why.message);
done:
    return status;
}

kv_status kv_presets_list(FILE *out, const char *const *data_dirs, size_t n_data_dirs,
                          kv_error *err)
{
    kv_preset *presets = NULL;
    size_t n = 0;
    kv_status const status = kv_presets_load(&presets, &n, data_dirs, n_data_dirs, err);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "%-28s key %s  value %s\n%29s%s (%s)\n", presets[i].scheme.name,
                presets[i].scheme.key_text, presets[i].scheme.value_text, "", presets[i].about,
                presets[i].source);
    kv_presets_free(presets, n);
    return status;
}
