/* Policies: see policy.h. One table for the keys of the file and one for those of a layer; reading,
 * writing and release follow them. What is unknown has one value per type (NaN, NULL, a number's
 * default), is written as nothing and read back from nothing. */
#include "sim/policy.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/file.h"
#include "kernels/memory.h"
#include "kernels/shorthand.h"
#include "sim/keys.h"

/* ---- the tables: a default is what stands for unknown; reals have NaN for it ---- */

#define AT(field) offsetof(kv_policy_layer, field)
static const kv_key_spec layer_rows[] = {
    {"layer", KV_TYPE_INT, AT(layer), NULL, 0, 1e15, NULL, "", "number of the layer", 0, 0},
    {"key", KV_TYPE_TEXT, AT(key), NULL, 0, 0, NULL, "", "key quantizer", 0, 0},
    {"value", KV_TYPE_TEXT, AT(value), NULL, 0, 0, NULL, "", "value quantizer", 0, 0},
    {"bytes", KV_TYPE_INT, AT(bytes), "0", 0, 9e18, NULL, "bytes", "stored, at the context", 0, 0},
    {"error", KV_TYPE_REAL, AT(error), "", -DBL_MAX, DBL_MAX, NULL, "", "power it adds", 0, 0},
    {"kv_heads", KV_TYPE_INT, AT(kv_heads), "0", 1, 1e6, NULL, "", "key-value heads", 0, 0},
    {"head_dim", KV_TYPE_INT, AT(head_dim), "0", 1, 1e6, NULL, "", "channels of a head", 0, 0},
    {"window", KV_TYPE_INT, AT(window), "-1", 0, 1e9, NULL, "tokens", "0: full attention", 0, 0},
    {"key_absmax", KV_TYPE_REAL, AT(key_absmax), "", 0, FLT_MAX, NULL, "", "largest |key|", 0, 0},
    {"value_absmax", KV_TYPE_REAL, AT(value_absmax), "", 0, FLT_MAX, NULL, "", "largest |value|", 0,
     0},
};
enum { N_LAYER_ROWS = sizeof layer_rows / sizeof layer_rows[0] };
static const kv_key_table layer_table = {"layers", layer_rows, N_LAYER_ROWS,
                                         sizeof(kv_policy_layer)};

typedef struct {
    int64_t version;
    double bytes_per_token; /* derived; checked where it is given */
    kv_policy policy;
} file_keys;

#undef AT
#define AT(field) offsetof(file_keys, field)
static const kv_key_spec file_rows[] = {
    {"kvant_policy", KV_TYPE_INT, AT(version), NULL, 1, 1, NULL, "", "version of the schema", 0, 0},
    {"title", KV_TYPE_TEXT, AT(policy.title), "", 0, 0, NULL, "", "what the policy is for", 0, 0},
    {"model", KV_TYPE_TEXT, AT(policy.model), "", 0, 0, NULL, "", "model it was made for", 0, 0},
    {"context", KV_TYPE_INT, AT(policy.context), "0", 1, 1e12, NULL, "tokens",
     "the bytes are for so many", 0, 0},
    {"bytes_per_token", KV_TYPE_REAL, AT(bytes_per_token), "", 0, DBL_MAX, NULL, "bytes",
     "of all layers, over the context", 0, 0},
    {"budget", KV_TYPE_TEXT, AT(policy.budget_text), "", 0, 0, NULL, "", "what was asked for", 0,
     0},
    {"budget_met", KV_TYPE_BOOL, AT(policy.is_budget_met), "true", 0, 0, NULL, "",
     "whether it holds, verified where that was possible", 0, 0},
    {"complete", KV_TYPE_BOOL, AT(policy.is_complete), "true", 0, 0, NULL, "",
     "the search was not cut short", 0, 0},
    {"error.kind", KV_TYPE_TEXT, AT(policy.error_kind), "", 0, 0, NULL, "", "which error", 0, 0},
    {"error.budget", KV_TYPE_REAL, AT(policy.budget), "", -DBL_MAX, DBL_MAX, NULL, "", "limit", 0,
     0},
    {"error.additive", KV_TYPE_REAL, AT(policy.additive_error), "", -DBL_MAX, DBL_MAX, NULL, "",
     "predicted by adding powers", 0, 0},
    {"error.verified", KV_TYPE_REAL, AT(policy.verified_error), "", -DBL_MAX, DBL_MAX, NULL, "",
     "measured end to end", 0, 0},
    {"error.low", KV_TYPE_REAL, AT(policy.verified_low), "", -DBL_MAX, DBL_MAX, NULL, "",
     "lower end of its 95 % interval", 0, 0},
    {"error.high", KV_TYPE_REAL, AT(policy.verified_high), "", -DBL_MAX, DBL_MAX, NULL, "",
     "upper end of its 95 % interval", 0, 0},
    {"result", KV_TYPE_PATH, AT(policy.result), "", 0, 0, NULL, "", "file with the tables", 0, 0},
    {"provenance.kvant", KV_TYPE_TEXT, AT(policy.version), "", 0, 0, NULL, "", "version", 0, 0},
    {"provenance.git", KV_TYPE_TEXT, AT(policy.git), "", 0, 0, NULL, "", "revision", 0, 0},
    {"provenance.config_sha256", KV_TYPE_TEXT, AT(policy.config_sha256), "", 0, 0, NULL, "",
     "of the configuration", 0, 0},
};
#undef AT
enum { N_FILE_ROWS = sizeof file_rows / sizeof file_rows[0] };
static const kv_key_table file_table = {"", file_rows, N_FILE_ROWS, sizeof(file_keys)};

static const char *const error_kinds[] = {"stack_err", "out_err", "error"};
enum { N_ERROR_KINDS = sizeof error_kinds / sizeof error_kinds[0] };

/* ---- unknown ---- */

static void set_unknown(void *out, const kv_key_table *table)
{
    for (size_t i = 0; i < table->count; i++) {
        const kv_key_spec *const row = &table->rows[i];
        void *const at = (char *)out + row->offset;
        if (row->type == KV_TYPE_REAL) *(double *)at = NAN;
        if (row->type == KV_TYPE_BOOL) *(bool *)at = true;
        if (row->type == KV_TYPE_INT && row->preset) kv_parse_int(row->preset, at);
    }
}

static bool is_known(const void *in, const kv_key_spec *row)
{
    const void *const at = (const char *)in + row->offset;
    int64_t unknown;
    switch (row->type) {
    case KV_TYPE_REAL: return isfinite(*(const double *)at);
    case KV_TYPE_INT:
        return !row->preset || !kv_parse_int(row->preset, &unknown) ||
               *(const int64_t *)at != unknown;
    case KV_TYPE_TEXT:
    case KV_TYPE_PATH: return *(char *const *)at && **(char *const *)at;
    default: return true;
    }
}

void kv_policy_free_contents(kv_policy *policy)
{
    file_keys keys = {.policy = *policy};
    for (int64_t i = 0; i < policy->n_layers; i++) kv_keys_free(&policy->layers[i], &layer_table);
    kv_free(policy->layers);
    kv_keys_free(&keys, &file_table);
    *policy = (kv_policy){0};
}

/* ---- reading ---- */

static kv_status make_canonical(char **text, bool is_key, kv_error *err)
{
    char *canonical = NULL;
    kv_status const status = kv_scheme_canonical(&canonical, *text, is_key, err);
    if (status != KV_OK) return status;
    kv_free(*text);
    *text = canonical;
    return KV_OK;
}

static kv_status read_layer(kv_policy_layer *out, const kv_yaml_node *node, kv_problems *problems,
                            kv_error *err)
{
    kv_status status = KV_OK;
    const kv_yaml_node *given[N_LAYER_ROWS] = {0};
    size_t const before = problems->count;
    set_unknown(out, &layer_table);
    KV_TRY(kv_keys_read(out, &layer_table, node, NULL, 0, given, problems, err));
    if (node->kind != KV_YAML_MAPPING) return KV_OK;
    kv_keys_require(&layer_table, node, given, problems);
    if (problems->count != before) return KV_OK;
    if (!*out->key || !*out->value)
        kv_problem_add(problems, node, "layers: layer %" PRId64 ": %s is empty", out->layer,
                       *out->key ? "value" : "key");
    KV_TRY(make_canonical(&out->key, true, err));
    KV_TRY(make_canonical(&out->value, false, err));
done:
    return status;
}

static int by_number(const void *a, const void *b)
{
    int64_t const x = ((const kv_policy_layer *)a)->layer, y = ((const kv_policy_layer *)b)->layer;
    return (x > y) - (x < y);
}

/* The last item of the list with this layer number. */
static const kv_yaml_node *item_of(const kv_yaml_node *list, int64_t layer)
{
    const kv_yaml_node *found = list;
    int64_t number;
    for (size_t i = 0; i < list->count; i++) {
        const kv_yaml_node *const item = list->entries[i].value;
        if (kv_parse_int(kv_yaml_get(item, "layer")->text, &number) && number == layer)
            found = item;
    }
    return found;
}

static kv_status read_layers(kv_policy *policy, const kv_yaml_node *root, kv_problems *problems,
                             kv_error *err)
{
    kv_status status = KV_OK;
    const kv_yaml_node *const list = kv_yaml_get(root, "layers");
    if (!list || list->kind != KV_YAML_LIST || !list->count) {
        kv_problem_add(problems, list ? list : root,
                       "layers: expected a list of {layer: N, key: SCHEME, value: SCHEME}");
        return KV_OK;
    }
    size_t const before = problems->count;
    KV_TRY(kv_allocate((void **)&policy->layers, list->count, sizeof *policy->layers, err));
    for (size_t i = 0; i < list->count; i++) {
        policy->n_layers++;
        KV_TRY(read_layer(&policy->layers[i], list->entries[i].value, problems, err));
    }
    if (problems->count != before) return KV_OK;
    qsort(policy->layers, list->count, sizeof *policy->layers, by_number);
    int64_t room = INT64_MAX;
    for (size_t i = 0; i < list->count; i++) {
        const kv_policy_layer *const l = &policy->layers[i];
        if (i && l->layer == l[-1].layer && problems->count < KV_PROBLEMS_SHOWN)
            kv_problem_add(problems, item_of(list, l->layer),
                           "layers: layer %" PRId64 " is there twice", l->layer);
        if (l->bytes > room)
            kv_problem_add(problems, list, "layers: their bytes add up to more than 2^63 - 1");
        room = l->bytes > room ? INT64_MAX : room - l->bytes;
    }
done:
    return status;
}

static double bytes_per_token(const kv_policy *policy)
{
    return (double)kv_policy_bytes(policy) / (double)(policy->context ? policy->context : 1);
}

/* What no row of the table can say. */
static void check_whole(const file_keys *keys, const kv_yaml_node *root, kv_problems *problems)
{
    const char *const kind = keys->policy.error_kind;
    bool is_kind = !kind;
    for (size_t i = 0; kind && i < N_ERROR_KINDS; i++) is_kind |= !strcmp(kind, error_kinds[i]);
    if (!is_kind) {
        const char *const closest = kv_closest_name(kind, error_kinds, N_ERROR_KINDS);
        kv_problem_add(problems, kv_yaml_get(kv_yaml_get(root, "error"), "kind"),
                       "error.kind: unknown value \"%.80s\"%s%s%s choose one of: stack_err, "
                       "out_err, error",
                       kind, closest ? ", did you mean \"" : ";", closest ? closest : "",
                       closest ? "\"?" : "");
    }
    double const sum = bytes_per_token(&keys->policy), given = keys->bytes_per_token;
    if (fabs(given - sum) > 1e-9 * fabs(sum)) { /* false for NaN */
        char found[KV_REAL_TEXT], wanted[KV_REAL_TEXT];
        kv_problem_add(problems, kv_yaml_get(root, "bytes_per_token"),
                       "bytes_per_token: is %s, but the layers' bytes %s %s; leave it out or mend "
                       "it",
                       kv_real_text(found, given),
                       keys->policy.context ? "over the context are" : "are",
                       kv_real_text(wanted, sum));
    }
}

static kv_status read_tree(kv_policy *out, const kv_yaml *file, kv_problems *problems,
                           kv_error *err)
{
    static const char *const others[] = {"layers"};
    kv_status status = KV_OK;
    const kv_yaml_node *const root = kv_yaml_root(file), *given[N_FILE_ROWS] = {0};
    size_t const before = problems->count;
    file_keys keys = {0};
    set_unknown(&keys, &file_table);
    KV_TRY(kv_keys_read(&keys, &file_table, root, others, 1, given, problems, err));
    if (root->kind != KV_YAML_MAPPING) goto done;
    kv_keys_require(&file_table, root, given, problems);
    KV_TRY(read_layers(&keys.policy, root, problems, err));
    if (problems->count == before) check_whole(&keys, root, problems);
    if (!keys.policy.title) KV_TRY(kv_duplicate(&keys.policy.title, "", err));
    if (problems->count != before) goto done;
    *out = keys.policy, keys.policy = (kv_policy){0};
done:
    kv_policy_free_contents(&keys.policy);
    return status;
}

kv_status kv_policy_load(kv_policy *out, const char *path, kv_problems *problems, kv_error *err)
{
    kv_yaml *file = NULL;
    kv_status status = kv_yaml_load(&file, path, problems, err);
    if (status == KV_OK && file) status = read_tree(out, file, problems, err);
    kv_yaml_free(file);
    return status;
}

kv_status kv_policy_read(kv_policy *out, const char *path, kv_error *err)
{
    kv_problems problems = {0};
    kv_status const status = kv_policy_load(out, path, &problems, err);
    return status == KV_OK ? kv_problems_raise(&problems, err) : status;
}

kv_status kv_policy_parse(kv_policy *out, const char *text, size_t length, const char *name,
                          kv_error *err)
{
    kv_problems problems = {0};
    kv_yaml *file = NULL;
    kv_status status = kv_yaml_read(&file, text, length, name, &problems, err);
    if (status == KV_OK && file) status = read_tree(out, file, &problems, err);
    kv_yaml_free(file);
    return status == KV_OK ? kv_problems_raise(&problems, err) : status;
}

kv_status kv_policy_probe(bool *is_policy, const char *path, kv_error *err)
{
    kv_problems problems = {0};
    kv_yaml *file = NULL;
    kv_status const status = kv_yaml_load(&file, path, &problems, err);
    if (status != KV_OK) return status;
    const kv_yaml_node *const root = file ? kv_yaml_root(file) : NULL;
    *is_policy = root && root->kind == KV_YAML_MAPPING && kv_yaml_get(root, "kvant_policy");
    kv_yaml_free(file);
    return KV_OK;
}

/* ---- writing ---- */

/* The rows of a table whose paths start with `section` ("" for those without a dot), one after
 * another: "{a: 1, b: 2}" in flow style, else a line each. Nothing where nothing is known. */
static kv_status print_rows(kv_text *t, const void *in, const kv_key_table *table,
                            const char *before, const char *section, bool is_flow, kv_error *err)
{
    kv_status status = KV_OK;
    size_t const length = strlen(section);
    int n = 0;
    for (size_t i = 0; i < table->count; i++) {
        const kv_key_spec *const row = &table->rows[i];
        const char *const name = row->path + length;
        if (strncmp(row->path, section, length) || strchr(name, '.') || !is_known(in, row))
            continue;
        KV_TRY(kv_text_add(t, err, "%s%s: ", !is_flow ? "" : n++ ? ", " : before, name));
        KV_TRY(kv_keys_value(t, in, row, err));
        if (!is_flow) KV_TRY(kv_text_add(t, err, "\n"));
    }
    if (n) KV_TRY(kv_text_add(t, err, "}\n"));
done:
    return status;
}

kv_status kv_policy_text(char **out, const kv_policy *policy, kv_error *err)
{
    kv_status status = KV_OK;
    kv_text t = {0};
    file_keys const keys = {1, kv_policy_bytes(policy) ? bytes_per_token(policy) : NAN, *policy};
    KV_TRY(print_rows(&t, &keys, &file_table, "", "", false, err));
    KV_TRY(print_rows(&t, &keys, &file_table, "error: {", "error.", true, err));
    KV_TRY(kv_text_add(&t, err, "layers:\n"));
    for (int64_t i = 0; i < policy->n_layers; i++)
        KV_TRY(print_rows(&t, &policy->layers[i], &layer_table, "  - {", "", true, err));
    KV_TRY(print_rows(&t, &keys, &file_table, "provenance: {", "provenance.", true, err));
    *out = kv_text_take(&t);
done:
    kv_text_free(&t);
    return status;
}

kv_status kv_policy_write(const char *path, const kv_policy *policy, kv_error *err)
{
    kv_status status = KV_OK;
    char *text = NULL;
    kv_policy again = {0};
    KV_TRY(kv_policy_text(&text, policy, err));
    KV_TRY(kv_policy_parse(&again, text, strlen(text), path, err));
    KV_TRY(kv_file_replace(path, text, strlen(text), err));
done:
    kv_policy_free_contents(&again);
    kv_free(text);
    return status;
}

/* ---- use ---- */

const kv_policy_layer *kv_policy_find(const kv_policy *policy, int64_t layer)
{
    kv_policy_layer const wanted = {.layer = layer};
    if (!policy->n_layers) return NULL;
    return bsearch(&wanted, policy->layers, (size_t)policy->n_layers, sizeof wanted, by_number);
}

int64_t kv_policy_bytes(const kv_policy *policy)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < policy->n_layers; i++) sum += policy->layers[i].bytes;
    return sum;
}

void kv_policy_note_foreign(FILE *notes, const kv_policy *policy)
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
    if (count)
        fprintf(notes,
                "%" PRId64 " of %" PRId64
                " schemes are not kvant's, as \"%s\": they cannot be simulated\n",
                count, 2 * policy->n_layers, first);
}
