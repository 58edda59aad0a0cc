/* `schemes:`, a list of presets, shorthands, {name, key, value}, {name, policy: FILE} and
 * {name, layers: {0-3: [KEY, VALUE], ...}} (what a policy becomes in an effective configuration),
 * or the full matrix {keys: [...], values: [...]}; and what contradicts what at the points of the
 * sweep. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/memory.h"
#include "kernels/shorthand.h"
#include "sim/config_parts.h"

typedef struct {
    char *name, *key, *value, *policy;
} scheme_keys;

enum { ROW_KEY = 1, ROW_VALUE, ROW_POLICY, MOST_LAYERS = 100000 };

static const kv_key_spec rows[] = {
    {"name", KV_TYPE_TEXT, offsetof(scheme_keys, name), "", 0, 0, NULL, "", "as tables show it", 0,
     0},
    {"key", KV_TYPE_TEXT, offsetof(scheme_keys, key), NULL, 0, 0, NULL, "", "key quantizer", 0, 0},
    {"value", KV_TYPE_TEXT, offsetof(scheme_keys, value), NULL, 0, 0, NULL, "", "value quantizer",
     0, 0},
    {"policy", KV_TYPE_PATH, offsetof(scheme_keys, policy), "", 0, 0, NULL, "",
     "file of a policy: a key and a value quantizer for each layer", 0, 0},
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };
static const kv_key_table scheme_table = {"schemes", rows, N_ROWS, sizeof(scheme_keys)};

/* What the user must mend becomes a problem; anything else goes up. */
static kv_status sort_out(kv_status status, const kv_error *found, const kv_yaml_node *node,
                          kv_problems *problems, kv_error *err)
{
    if (status == KV_OK) return KV_OK;
    if (status != KV_EREQUEST) return KV_FAIL(err, status, "%s", found->message);
    kv_problem_add(problems, node, "schemes: %s", found->message);
    return KV_OK;
}

/* Takes *scheme over, also where it is refused. */
static kv_status add_scheme(kv_config *config, kv_scheme *scheme, const kv_yaml_node *node,
                            kv_problems *problems, kv_error *err)
{
    size_t const count = (size_t)config->n_schemes;
    size_t capacity = count > 0;
    kv_status status = KV_OK;
    while (capacity < count) capacity *= 2; /* as kv_grow has made it */
    if (count == KV_CONFIG_MAX_SCHEMES) {
        kv_problem_add(problems, node, "schemes: more than %d", KV_CONFIG_MAX_SCHEMES);
        kv_scheme_free_contents(scheme);
        return KV_OK;
    }
    for (int64_t i = 0; i < config->n_schemes; i++)
        if (strcmp(config->schemes[i].name, scheme->name) == 0) {
            kv_problem_add(problems, node, "schemes: \"%s\" is there twice", scheme->name);
            goto done;
        }
    KV_TRY(kv_grow((void **)&config->schemes, &capacity, count, count + 1, sizeof *config->schemes,
                   err));
    config->schemes[config->n_schemes++] = *scheme, *scheme = (kv_scheme){0};
done:
    kv_scheme_free_contents(scheme);
    return status;
}

/* ---- schemes that differ between layers ---- */

/* Layers of a `layers:` mapping [first, last], appended to a policy that has room. */
static kv_status add_layers(kv_policy *policy, size_t *capacity, int64_t first, int64_t last,
                            const char *key, const char *value, kv_error *err)
{
    kv_status status = KV_OK;
    size_t const count = (size_t)policy->n_layers;
    KV_TRY(kv_grow((void **)&policy->layers, capacity, count, count + (size_t)(last - first + 1),
                   sizeof *policy->layers, err));
    for (int64_t layer = first; layer <= last; layer++) {
        kv_policy_layer *const l = &policy->layers[policy->n_layers++];
        l->layer = layer;
        KV_TRY(kv_duplicate(&l->key, key, err));
        KV_TRY(kv_duplicate(&l->value, value, err));
    }
done:
    return status;
}

static bool is_pair(const kv_yaml_node *node)
{
    return node->kind == KV_YAML_LIST && node->count == 2 &&
           node->entries[0].value->kind == KV_YAML_SCALAR &&
           node->entries[1].value->kind == KV_YAML_SCALAR;
}

static int by_number(const void *a, const void *b)
{
    int64_t const x = ((const kv_policy_layer *)a)->layer, y = ((const kv_policy_layer *)b)->layer;
    return (x > y) - (x < y);
}

/* {0: [KEY, VALUE], 1-3: [KEY, VALUE]} */
static kv_status read_layers(kv_policy *policy, const kv_yaml_node *layers, kv_problems *problems,
                             kv_error *err)
{
    kv_status status = KV_OK;
    size_t capacity = 0;
    if (layers->kind != KV_YAML_MAPPING || !layers->count) {
        kv_problem_add(
            problems, layers,
            "schemes.layers: expected {LAYERS: [KEY, VALUE], ...}, LAYERS like 7 or 0-3");
        return KV_OK;
    }
    for (size_t i = 0; i < layers->count; i++) {
        const kv_yaml_node *const range = layers->entries[i].key;
        const kv_yaml_node *const pair = layers->entries[i].value;
        int64_t first, last;
        if (!kv_layers_parse(range->text, &first, &last) || last >= MOST_LAYERS)
            kv_problem_add(problems, range,
                           "schemes.layers: expected a layer or a range like 0-3, below %d, found "
                           "%.80s",
                           MOST_LAYERS, range->text);
        else if (!is_pair(pair))
            kv_problem_add(problems, pair, "schemes.layers.%s: expected [KEY, VALUE]", range->text);
        else if (policy->n_layers > MOST_LAYERS - (last - first + 1))
            kv_problem_add(problems, range, "schemes.layers: layers are there twice");
        else
            KV_TRY(add_layers(policy, &capacity, first, last, pair->entries[0].value->text,
                              pair->entries[1].value->text, err));
    }
    if (policy->n_layers)
        qsort(policy->layers, (size_t)policy->n_layers, sizeof *policy->layers, by_number);
    for (int64_t i = 1; i < policy->n_layers; i++)
        if (policy->layers[i].layer == policy->layers[i - 1].layer) {
            kv_problem_add(problems, layers, "schemes.layers: layer %" PRId64 " is there twice",
                           policy->layers[i].layer);
            break;
        }
done:
    return status;
}

int64_t kv_scheme_run(const kv_scheme *scheme, int64_t first)
{
    const kv_scheme_layer *const l = scheme->layers;
    int64_t i = first;
    while (i + 1 < scheme->n_layers && l[i + 1].layer == l[i].layer + 1 &&
           strcmp(l[i].key_text, l[i + 1].key_text) == 0 &&
           strcmp(l[i].value_text, l[i + 1].value_text) == 0)
        i++;
    return i;
}

/* The effective configuration says each run of equal layers in one key of a mapping. */
static bool fits_mapping(const kv_scheme *scheme)
{
    int64_t runs = 0;
    for (int64_t i = 0; i < scheme->n_layers; i = kv_scheme_run(scheme, i) + 1) runs++;
    return runs <= KV_YAML_MAX_KEYS && scheme->layers[scheme->n_layers - 1].layer < MOST_LAYERS;
}

/* A scheme of a policy file (path given) or of a `layers:` mapping. */
static kv_status read_layered(kv_config *config, const char *name, const char *path,
                              const kv_yaml_node *layers, const kv_yaml_node *node,
                              kv_problems *problems, kv_error *err)
{
    kv_status status = KV_OK;
    kv_policy policy = {0};
    kv_scheme scheme = {0};
    kv_error why = {0};
    size_t const before = problems->count;
    if (path) {
        status = kv_policy_load(&policy, path, problems, &why);
        if (status == KV_EREQUEST || status == KV_EIO) {
            kv_problem_add(problems, node, "schemes.policy: %s", why.message);
            status = KV_OK;
        } else if (status != KV_OK)
            KV_TRY(KV_FAIL(err, status, "%s", why.message));
    } else
        KV_TRY(read_layers(&policy, layers, problems, err));
    if (problems->count != before) goto done;
    if (!name && (!policy.title || !*policy.title)) {
        kv_problem_add(problems, node, "schemes.name: must be given%s",
                       path ? ": the policy has no title" : "");
        goto done;
    }
    KV_TRY(kv_scheme_from_policy(&scheme, name, &policy, node, problems, err));
    if (!scheme.name) goto done;
    if (fits_mapping(&scheme))
        KV_TRY(add_scheme(config, &scheme, node, problems, err));
    else
        kv_problem_add(problems, node,
                       "schemes: \"%s\": more than %d different layers in a row, "
                       "or a layer from %d on",
                       scheme.name, KV_YAML_MAX_KEYS, MOST_LAYERS);
done:
    kv_scheme_free_contents(&scheme);
    kv_policy_free_contents(&policy);
    return status;
}

static kv_status read_named(kv_config *config, const kv_yaml_node *node, kv_problems *problems,
                            kv_error *err)
{
    kv_status status = KV_OK;
    scheme_keys keys = {0};
    kv_scheme scheme = {0};
    kv_error why = {0};
    const kv_yaml_node *given[N_ROWS] = {0};
    static const char *const others[] = {"layers"};
    size_t const before = problems->count;
    KV_TRY(kv_keys_read(&keys, &scheme_table, node, others, 1, given, problems, err));
    const kv_yaml_node *const layers = kv_yaml_get(node, "layers");
    bool const has_policy = given[ROW_POLICY] != NULL;
    if (!has_policy && !layers) kv_keys_require(&scheme_table, node, given, problems);
    if ((given[ROW_KEY] || given[ROW_VALUE]) + has_policy + (layers != NULL) > 1)
        kv_problem_add(problems, node,
                       "schemes: key and value, policy and layers exclude each other");
    if (problems->count != before) goto done;
    const char *const name = keys.name && *keys.name ? keys.name : NULL;
    if (has_policy || layers) {
        status = read_layered(config, name, keys.policy, layers, node, problems, err);
        goto done;
    }
    status = kv_scheme_make(&scheme, name, keys.key, keys.value, &why);
    KV_TRY(sort_out(status, &why, node, problems, err));
    if (scheme.name) KV_TRY(add_scheme(config, &scheme, node, problems, err));
done:
    kv_keys_free(&keys, &scheme_table);
    return status;
}

static kv_status read_text(kv_config *config, const kv_yaml_node *node,
                           const kv_config_sources *sources, kv_problems *problems, kv_error *err)
{
    kv_scheme scheme = {0};
    kv_error why = {0};
    kv_status status =
        kv_scheme_find(&scheme, node->text, sources->data_dirs, sources->n_data_dirs, &why);
    if (status == KV_OK) return add_scheme(config, &scheme, node, problems, err);
    return sort_out(status, &why, node, problems, err);
}

static kv_status read_list(kv_config *config, const kv_yaml_node *list,
                           const kv_config_sources *sources, kv_problems *problems, kv_error *err)
{
    kv_status status = KV_OK;
    for (size_t i = 0; i < list->count; i++) {
        const kv_yaml_node *const node = list->entries[i].value;
        if (node->kind == KV_YAML_MAPPING)
            KV_TRY(read_named(config, node, problems, err));
        else if (node->kind == KV_YAML_SCALAR)
            KV_TRY(read_text(config, node, sources, problems, err));
        else
            kv_problem_add(
                problems, node,
                "schemes: expected a preset, a shorthand, {name, key, value} or {name, policy}");
    }
done:
    return status;
}

/* ---- the matrix ---- */

static const kv_yaml_node *matrix_side(const kv_yaml_node *node, const char *side,
                                       kv_problems *problems)
{
    const kv_yaml_node *const list = kv_yaml_get(node, side);
    if (list && list->kind == KV_YAML_LIST && list->count) return list;
    kv_problem_add(problems, list ? list : node,
                   "schemes.%s: expected a list; all pairs are {keys: [...], values: [...]}", side);
    return NULL;
}

/* Judges each side once, so that a mistake is not reported for every pair. */
static kv_status check_side(const kv_yaml_node *list, bool is_key, kv_problems *problems,
                            kv_error *err)
{
    kv_status status = KV_OK;
    for (size_t i = 0; i < list->count; i++) {
        const kv_yaml_node *const node = list->entries[i].value;
        kv_quantizer q;
        kv_error why = {0};
        if (node->kind != KV_YAML_SCALAR)
            kv_problem_add(problems, node, "schemes: expected a shorthand, found %s",
                           kv_yaml_kind_name(node));
        else
            KV_TRY(sort_out(kv_quantizer_parse(&q, node->text, is_key, &why), &why, node, problems,
                            err));
    }
done:
    return status;
}

static kv_status read_matrix(kv_config *config, const kv_yaml_node *node, kv_problems *problems,
                             kv_error *err)
{
    kv_status status = KV_OK;
    size_t const before = problems->count;
    for (size_t i = 0; i < node->count; i++) {
        const char *const name = node->entries[i].key->text;
        if (strcmp(name, "keys") && strcmp(name, "values"))
            kv_problem_add(problems, node->entries[i].key,
                           "schemes.%s: unknown key; all pairs are {keys: [...], values: [...]}",
                           name);
    }
    const kv_yaml_node *const keys = matrix_side(node, "keys", problems);
    const kv_yaml_node *const values = matrix_side(node, "values", problems);
    if (keys) KV_TRY(check_side(keys, true, problems, err));
    if (values) KV_TRY(check_side(values, false, problems, err));
    if (problems->count != before) goto done;
    for (size_t k = 0; k < keys->count; k++)
        for (size_t v = 0; v < values->count; v++) {
            const kv_yaml_node *const value = values->entries[v].value;
            kv_scheme scheme = {0};
            KV_TRY(kv_scheme_make(&scheme, NULL, keys->entries[k].value->text, value->text, err));
            KV_TRY(add_scheme(config, &scheme, value, problems, err));
        }
done:
    return status;
}

kv_status kv_schemes_read(kv_config *config, const kv_yaml_node *node,
                          const kv_config_sources *sources, kv_problems *problems, kv_error *err)
{
    if (node->kind == KV_YAML_MAPPING) return read_matrix(config, node, problems, err);
    if (node->kind == KV_YAML_LIST && node->count)
        return read_list(config, node, sources, problems, err);
    kv_problem_add(problems, node,
                   "schemes: expected a list of schemes or {keys: [...], values: [...]}");
    return KV_OK;
}

/* ---- cross-checks ---- */

/* Whether a scheme differs between layers. */
static bool has_layers(const kv_config *config)
{
    for (int64_t i = 0; i < config->n_schemes; i++)
        if (config->schemes[i].layers) return true;
    return false;
}

/* "heads.tokens = 64, layer 3: " */
static kv_status name_place(kv_text *text, const kv_config *config, const int64_t *index,
                            int64_t layer, kv_error *err)
{
    kv_status status = KV_OK;
    for (int64_t a = 0; a < config->n_axes; a++)
        KV_TRY(kv_text_add(text, err, "%s%s = %s", a ? ", " : "", config->axes[a].path,
                           config->axes[a].texts[index[a]]));
    if (config->n_profile || has_layers(config))
        KV_TRY(kv_text_add(text, err, "%slayer %" PRId64, config->n_axes ? ", " : "", layer));
    if (text->length) KV_TRY(kv_text_add(text, err, ": "));
done:
    return status;
}

/* All schemes, or those that differ between layers only. */
static kv_status check_schemes(const kv_config *config, const kv_heads_config *h, int64_t layer,
                               bool is_layered_only, kv_error *why)
{
    for (int64_t i = 0; i < config->n_schemes; i++) {
        const kv_scheme *const s = &config->schemes[i];
        kv_scheme_pair const pair = kv_scheme_at(s, layer);
        if (!pair.key || (is_layered_only && !s->layers)) continue;
        kv_tensor_shape const layer_key = kv_heads_config_shape(h);
        kv_tensor_shape const key = kv_quantizer_fit_shape(pair.key, &layer_key);
        kv_tensor_shape value = kv_quantizer_fit_shape(pair.value, &layer_key);
        value.rotary_dim = 0;
        kv_status status = kv_quantizer_check(pair.value, &value, why);
        if (status != KV_OK) return kv_error_prepend(why, "\"%s\", value", s->name), status;
        status = kv_quantizer_check(pair.key, &key, why);
        if (status != KV_OK) return kv_error_prepend(why, "\"%s\", key", s->name), status;
    }
    return KV_OK;
}

/* Whether the quantizers' checks would see the same shapes. */
static bool same_shape(const kv_heads_config *a, const kv_heads_config *b)
{
    return a->tokens == b->tokens && a->head_dim == b->head_dim && a->kv_heads == b->kv_heads &&
           a->rope.layout == b->rope.layout && a->rope.rotary_dim == b->rope.rotary_dim;
}

static kv_status check_layer(const kv_config *config, const int64_t *index, int64_t layer,
                             kv_heads_config *last, const kv_yaml_node *root, kv_problems *problems,
                             kv_error *err)
{
    kv_status status = KV_OK;
    kv_heads_config heads = {0};
    kv_error why = {0};
    kv_text place = {0};
    KV_TRY(kv_config_layer(&heads, config, index, layer, err));
    const char *part = "";
    status = kv_heads_config_check(&heads, &why);
    if (status == KV_OK && heads.generator != KV_GENERATOR_CAPTURE) {
        part = "schemes: ";
        status = check_schemes(config, &heads, layer, same_shape(&heads, last), &why);
    }
    bool const is_mixed = (heads.generator == KV_GENERATOR_CAPTURE) !=
                          (config->heads.generator == KV_GENERATOR_CAPTURE);
    if (status == KV_OK && is_mixed)
        status = KV_FAIL(&why, KV_EREQUEST,
                         "heads.generator: capture cannot be mixed with other generators");
    *last = (kv_heads_config){.tokens = heads.tokens,
                              .head_dim = heads.head_dim,
                              .kv_heads = heads.kv_heads,
                              .rope = heads.rope};
    if (status == KV_EREQUEST) {
        status = KV_OK;
        KV_TRY(name_place(&place, config, index, layer, err));
        kv_yaml_node const whole = {.file = root->file};
        kv_problem_add(problems, &whole, "%s%s%s", place.data ? place.data : "", part, why.message);
    } else if (status != KV_OK)
        KV_FAIL(err, status, "%s", why.message);
done:
    kv_text_free(&place);
    kv_heads_config_free_contents(&heads);
    return status;
}

/* A scheme that differs between layers must name those there are; a capture's are not known yet. */
static kv_status check_coverage(const kv_config *config, const kv_yaml_node *root,
                                kv_problems *problems, kv_error *err)
{
    kv_yaml_node const whole = {.file = root->file};
    for (int64_t i = 0; i < config->n_schemes; i++) {
        kv_error why = {0};
        kv_status const found =
            kv_scheme_covers(&config->schemes[i], NULL, config->heads.layers, &why);
        kv_status const status = sort_out(found, &why, &whole, problems, err);
        if (status != KV_OK) return status;
    }
    return KV_OK;
}

kv_status kv_config_check(const kv_config *config, const kv_yaml_node *root, kv_problems *problems,
                          kv_error *err)
{
    kv_status status = KV_OK;
    kv_heads_config last = {0};
    bool const is_capture = config->heads.generator == KV_GENERATOR_CAPTURE;
    int64_t const points = kv_config_points(config);
    bool const differ = config->n_profile || has_layers(config);
    int64_t const layers = differ && !is_capture ? config->heads.layers : 1;
    double const units = (double)points * (double)(is_capture ? 1 : config->heads.layers) *
                         (double)config->heads.seeds.count;
    if (units > KV_CONFIG_MAX_UNITS) {
        kv_yaml_node const whole = {.file = root->file};
        kv_problem_add(
            problems, &whole,
            "%.0f units of work (sweep points x layers x seeds), at most %d are possible", units,
            KV_CONFIG_MAX_UNITS);
        return KV_OK;
    }
    if (!is_capture) KV_TRY(check_coverage(config, root, problems, err));
    if (problems->count) return KV_OK;
    for (int64_t p = 0; p < points; p++)
        for (int64_t l = 0; l < layers; l++) {
            int64_t index[KV_CONFIG_MAX_AXES] = {0};
            kv_config_point(config, p, index);
            KV_TRY(check_layer(config, index, l, &last, root, problems, err));
            if (problems->count) return KV_OK;
        }
done:
    return status;
}
