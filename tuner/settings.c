/* The `tune:` section: see settings.h. Numbers and switches are rows of one key table; pin, forbid
 * and baselines, which are mappings and lists of schemes, are read by hand. */
#include "tuner/settings.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/memory.h"
#include "kernels/shorthand.h"
#include "tuner/strategies.h"

/* What fits every layer and has something for every engine: 16 bit, 8 bit as FP8 (vLLM, SGLang,
 * TensorRT-LLM), ggml's q8_0 and int8 (LMDeploy), 6 and 4 bit in groups of 32 along tokens (KIVI's
 * keys), ggml's q4_0, 3 and 2 bit. Values are grouped along channels of one token. */
const char *const kv_tune_default_keys[] = {"f16",
                                            "q8_0",
                                            "e4m3/tensor",
                                            "int8/token:zero:scale=f16",
                                            "int6/32x1:zero:scale=f16",
                                            "q4_0",
                                            "int4/32x1:zero:scale=f16",
                                            "int3/32x1:zero:scale=f16",
                                            "int2/32x1:zero:scale=f16",
                                            NULL};
const char *const kv_tune_default_values[] = {"f16",
                                              "q8_0",
                                              "e4m3/tensor",
                                              "int8/token:zero:scale=f16",
                                              "int6/1x32:zero:scale=f16",
                                              "q4_0",
                                              "int4/1x32:zero:scale=f16",
                                              "int3/1x32:zero:scale=f16",
                                              "int2/1x32:zero:scale=f16",
                                              NULL};

static const char *const efforts[] = {"estimate", "measure", "patient", "exhaustive", NULL};

enum { ROW_MAX_ERROR, ROW_MAX_BYTES, ROW_MAX_BITS, ROW_MATCH, N_BUDGETS };

/* clang-format off */
#define AT(field) offsetof(kv_tune_settings, field)
static const kv_key_spec rows[] = {
    [ROW_MAX_ERROR] = {"max_error", KV_TYPE_REAL, AT(max_error), NULL, 1e-30, 1e30, NULL, "",
     "budget: the error at the end of the stack, or the error of a table", KV_KEY_BY_HAND, 0},
    [ROW_MAX_BYTES] = {"max_bytes_per_token", KV_TYPE_REAL, AT(max_bytes_per_token), NULL, 1e-3, 1e15, NULL,
     "bytes", "or budget: stored bytes of a token, all layers", KV_KEY_BY_HAND, 0},
    [ROW_MAX_BITS] = {"max_bits", KV_TYPE_REAL, AT(max_bits), NULL, 1e-3, 64, NULL, "bits",
     "or budget: mean stored bits of an element", KV_KEY_BY_HAND, 0},
    [ROW_MATCH] = {"match", KV_TYPE_TEXT, AT(match), "", 0, 0, NULL, "",
     "or budget: no more error than this scheme used in all layers", KV_KEY_BY_HAND, 0},
    {"context", KV_TYPE_INT, AT(context), "0", 0, 16777216, NULL, "tokens",
     "stored tokens that the bytes are for; 0: heads.tokens", 0, 0},
    {"effort", KV_TYPE_CHOICE, AT(effort), "measure", 0, 0, efforts, "",
     "how much is measured", 0, 0},
    {"streams", KV_TYPE_INT, AT(streams), "4", 1, 4096, NULL, "streams",
     "decode streams of a replicate", 0, 0},
    {"held_out", KV_TYPE_INT, AT(held_out), "16", 16, 4096, NULL, "seeds",
     "seeds after the largest search seed (heads.seeds) that verify", 0, 0},
    {"key_at_least_value", KV_TYPE_BOOL, AT(key_at_least_value), "false", 0, 0, NULL, "",
     "the key of a layer must not take fewer bytes than its value", 0, 0},
    {"resolution", KV_TYPE_INT, AT(resolution), "0", 0, 1e15, NULL, "bytes",
     "of the frontier's sizes; 0: every point", 0, 0},
    {"table", KV_TYPE_PATH, AT(table), "", 0, 0, NULL, "",
     "a table of choices measured elsewhere (CSV or HDF5) in place of measuring", 0, 0},
};
/* clang-format on */
enum { N_ROWS = sizeof rows / sizeof rows[0], MAX_BASELINES = 32 };
static const kv_key_table table = {"tune", rows, N_ROWS, sizeof(kv_tune_settings)};
static const char *const others[] = {"pin", "forbid", "baselines"};
enum { N_OTHERS = sizeof others / sizeof others[0] };

/* ---- ownership ---- */

static void free_choice(kv_choice_name *choice)
{
    kv_free((void *)(uintptr_t)choice->key);
    kv_free((void *)(uintptr_t)choice->value);
    *choice = (kv_choice_name){0};
}

void kv_tune_settings_free_contents(kv_tune_settings *settings)
{
    for (int64_t i = 0; i < settings->n_pins; i++) free_choice(&settings->pins[i]);
    for (int64_t i = 0; i < settings->n_bans; i++) free_choice(&settings->bans[i]);
    for (int64_t i = 0; i < settings->n_forbidden; i++) kv_free(settings->forbidden[i]);
    kv_free(settings->pins), kv_free(settings->bans), kv_free(settings->forbidden);
    kv_keys_free(settings, &table);
    *settings = (kv_tune_settings){0};
}

static uint32_t all_baselines(void)
{
    uint32_t bits = 0;
    for (size_t i = 0; kv_strategy_at(i); i++) bits |= (uint32_t)1 << i;
    return bits;
}

kv_status kv_tune_settings_defaults(kv_tune_settings *out, kv_error *err)
{
    out->baselines = all_baselines();
    return kv_keys_defaults(out, &table, err);
}

/* ---- pin, forbid ---- */

typedef struct {
    kv_tune_settings *settings;
    kv_problems *problems;
    bool is_table; /* schemes are a table's names: any text */
} reading;

/* A scheme as a scalar, where kvant itself must understand it; NULL with a problem. */
static const char *scheme_text(const reading *r, const char *key, const kv_yaml_node *node,
                               bool is_key)
{
    kv_quantizer q;
    kv_error why = {0};
    if (node->kind != KV_YAML_SCALAR || !*node->text) {
        kv_problem_add(r->problems, node, "tune.%s: expected a scheme, found %s", key,
                       node->kind == KV_YAML_SCALAR ? "nothing" : kv_yaml_kind_name(node));
        return NULL;
    }
    if (r->is_table || kv_quantizer_parse(&q, node->text, is_key, &why) == KV_OK) return node->text;
    kv_problem_add(r->problems, node, "tune.%s: %s", key, why.message);
    return NULL;
}

static kv_status add_choice(kv_choice_name **list, int64_t *count, int64_t layer, const char *key,
                            const char *value, kv_error *err)
{
    kv_status status = KV_OK;
    char *copies[2] = {0};
    if (key) KV_TRY(kv_duplicate(&copies[0], key, err));
    if (value) KV_TRY(kv_duplicate(&copies[1], value, err));
    (*list)[(*count)++] = (kv_choice_name){layer, copies[0], copies[1]};
    copies[0] = copies[1] = NULL;
done:
    kv_free(copies[0]), kv_free(copies[1]);
    return status;
}

static kv_status read_pins(const reading *r, const kv_yaml_node *node, kv_error *err)
{
    kv_status status = KV_OK;
    kv_tune_settings *const s = r->settings;
    if (node->kind != KV_YAML_MAPPING) {
        kv_problem_add(r->problems, node, "tune.pin: expected {LAYER: [KEY, VALUE]}, found %s",
                       kv_yaml_kind_name(node));
        return KV_OK;
    }
    KV_TRY(kv_allocate((void **)&s->pins, node->count, sizeof *s->pins, err));
    for (size_t i = 0; i < node->count; i++) {
        const kv_yaml_node *const name = node->entries[i].key, *const pair = node->entries[i].value;
        int64_t layer;
        if (!kv_parse_int(name->text, &layer) || layer < 0) {
            kv_problem_add(r->problems, name, "tune.pin: expected the number of a layer, found %s",
                           name->text);
            continue;
        }
        if (pair->kind != KV_YAML_LIST || pair->count != 2) {
            kv_problem_add(r->problems, pair, "tune.pin.%s: expected [KEY, VALUE]", name->text);
            continue;
        }
        const char *const key = scheme_text(r, "pin", pair->entries[0].value, true);
        const char *const value = scheme_text(r, "pin", pair->entries[1].value, false);
        if (key && value) KV_TRY(add_choice(&s->pins, &s->n_pins, layer, key, value, err));
    }
done:
    return status;
}

typedef struct {
    int64_t layer;
    char *key, *value;
} ban_keys;
static const kv_key_spec ban_rows[] = {
    {"layer", KV_TYPE_INT, offsetof(ban_keys, layer), NULL, 0, 1e6, NULL, "", "number of a layer",
     0, 0},
    {"key", KV_TYPE_TEXT, offsetof(ban_keys, key), NULL, 0, 0, NULL, "", "key scheme", 0, 0},
    {"value", KV_TYPE_TEXT, offsetof(ban_keys, value), NULL, 0, 0, NULL, "", "value scheme", 0, 0},
};
static const kv_key_table ban_table = {"tune.forbid", ban_rows, 3, sizeof(ban_keys)};

static kv_status read_ban(const reading *r, const kv_yaml_node *node, kv_error *err)
{
    kv_status status = KV_OK;
    ban_keys keys = {.layer = -1};
    const kv_yaml_node *given[3] = {0};
    size_t const before = r->problems->count;
    KV_TRY(kv_keys_read(&keys, &ban_table, node, NULL, 0, given, r->problems, err));
    if (!given[1] && !given[2])
        kv_problem_add(r->problems, node, "tune.forbid: needs a key or a value scheme");
    if (given[1]) scheme_text(r, "forbid.key", given[1], true);
    if (given[2]) scheme_text(r, "forbid.value", given[2], false);
    if (r->problems->count == before)
        KV_TRY(add_choice(&r->settings->bans, &r->settings->n_bans, keys.layer, keys.key,
                          keys.value, err));
done:
    kv_keys_free(&keys, &ban_table);
    return status;
}

/* "KEY | VALUE": that pair in every layer. */
static kv_status read_pair_ban(const reading *r, const kv_yaml_node *node, const char *bar,
                               kv_error *err)
{
    kv_status status = KV_OK;
    char *key = NULL;
    size_t length = (size_t)(bar - node->text);
    const char *value = bar + 1;
    while (length && node->text[length - 1] == ' ') length--;
    while (*value == ' ') value++;
    KV_TRY(kv_duplicate_part(&key, node->text, length, err));
    kv_yaml_node first = *node, second = *node;
    first.text = key, second.text = (char *)(uintptr_t)value;
    if (scheme_text(r, "forbid", &first, true) && scheme_text(r, "forbid", &second, false))
        KV_TRY(add_choice(&r->settings->bans, &r->settings->n_bans, -1, key, value, err));
done:
    kv_free(key);
    return status;
}

static kv_status read_forbid(const reading *r, const kv_yaml_node *node, kv_error *err)
{
    kv_status status = KV_OK;
    kv_tune_settings *const s = r->settings;
    if (node->kind != KV_YAML_LIST) {
        kv_problem_add(r->problems, node,
                       "tune.forbid: expected a list of schemes and {layer, key, value}, found %s",
                       kv_yaml_kind_name(node));
        return KV_OK;
    }
    KV_TRY(kv_allocate((void **)&s->bans, node->count, sizeof *s->bans, err));
    KV_TRY(kv_allocate((void **)&s->forbidden, node->count, sizeof *s->forbidden, err));
    for (size_t i = 0; i < node->count; i++) {
        const kv_yaml_node *const item = node->entries[i].value;
        const char *const bar = item->kind == KV_YAML_SCALAR ? strchr(item->text, '|') : NULL;
        if (item->kind == KV_YAML_MAPPING)
            KV_TRY(read_ban(r, item, err));
        else if (bar)
            KV_TRY(read_pair_ban(r, item, bar, err));
        else if (scheme_text(r, "forbid", item, true)) {
            KV_TRY(kv_duplicate(&s->forbidden[s->n_forbidden], item->text, err));
            s->n_forbidden++;
        }
    }
done:
    return status;
}

/* ---- baselines, budget ---- */

static void read_baselines(const reading *r, const kv_yaml_node *node)
{
    const char *names[MAX_BASELINES + 1];
    size_t count = 0;
    for (; kv_strategy_at(count); count++) names[count] = kv_strategy_at(count)->name;
    if (node->kind != KV_YAML_LIST) {
        kv_problem_add(r->problems, node, "tune.baselines: expected a list of names, found %s",
                       kv_yaml_kind_name(node));
        return;
    }
    r->settings->baselines = 0;
    for (size_t i = 0; i < node->count; i++) {
        const kv_yaml_node *const item = node->entries[i].value;
        const char *const text = item->kind == KV_YAML_SCALAR ? item->text : "";
        size_t k = 0;
        while (k < count && strcmp(names[k], text) != 0) k++;
        if (k < count) {
            r->settings->baselines |= (uint32_t)1 << k;
            continue;
        }
        const char *const near = kv_closest_name(text, names, count);
        kv_problem_add(r->problems, item, "tune.baselines: unknown baseline \"%s\"%s%s%s", text,
                       near ? ", did you mean \"" : "; see `kvant list baselines`",
                       near ? near : "", near ? "\"?" : "");
    }
}

/* A preset or shorthand becomes "KEY | VALUE"; names of a table stay as they are. */
static kv_status resolve_match(const reading *r, const kv_yaml_node *node, kv_error *err)
{
    kv_status status = KV_OK;
    kv_tune_settings *const s = r->settings;
    kv_scheme scheme = {0};
    kv_error why = {0};
    kv_text text = {0};
    status = kv_scheme_find(&scheme, s->match, s->data_dirs, s->n_data_dirs, &why);
    if (status != KV_OK) {
        if (status != KV_EREQUEST) return KV_FAIL(err, status, "%s", why.message);
        if (!r->is_table) kv_problem_add(r->problems, node, "tune.match: %s", why.message);
        return KV_OK;
    }
    KV_TRY(kv_text_add(&text, err, "%s | %s", scheme.key_text, scheme.value_text));
    kv_free(s->match);
    s->match = kv_text_take(&text);
done:
    kv_text_free(&text);
    kv_scheme_free_contents(&scheme);
    return status;
}

static void check_budgets(const reading *r, const kv_yaml_node *const *given)
{
    int first = -1;
    for (int i = 0; i < N_BUDGETS; i++) {
        if (!given[i]) continue;
        if (first >= 0)
            kv_problem_add(r->problems, given[i], "tune.%s: %s is given already; one budget only",
                           rows[i].path, rows[first].path);
        first = first < 0 ? i : first;
    }
}

static kv_status read_section(void *context, const kv_yaml_node *node, kv_problems *problems,
                              kv_error *err)
{
    kv_status status = KV_OK;
    kv_tune_settings *const s = context;
    reading r = {s, problems, false};
    const kv_yaml_node *given[N_ROWS] = {0};
    KV_TRY(kv_tune_settings_defaults(s, err));
    s->is_given = true;
    KV_TRY(kv_keys_read(s, &table, node, others, N_OTHERS, given, problems, err));
    if (node->kind != KV_YAML_MAPPING) goto done;
    r.is_table = *s->table != 0;
    check_budgets(&r, given);
    if (given[ROW_MATCH] && *s->match) KV_TRY(resolve_match(&r, given[ROW_MATCH], err));
    const kv_yaml_node *const pin = kv_yaml_get(node, "pin");
    const kv_yaml_node *const forbid = kv_yaml_get(node, "forbid");
    const kv_yaml_node *const baselines = kv_yaml_get(node, "baselines");
    if (pin) KV_TRY(read_pins(&r, pin, err));
    if (forbid) KV_TRY(read_forbid(&r, forbid, err));
    if (baselines) read_baselines(&r, baselines);
done:
    return status;
}

kv_config_section kv_tune_section(kv_tune_settings *settings)
{
    return (kv_config_section){"tune", settings, read_section};
}

kv_status kv_tune_settings_budget(kv_budget *out, const kv_tune_settings *s, kv_error *err)
{
    int const given = (s->max_error > 0) + (s->max_bytes_per_token > 0) + (s->max_bits > 0) +
                      (s->match && *s->match);
    static const char allowed[] = "max_error, max_bytes_per_token, max_bits or match";
    if (given == 0) return KV_FAIL(err, KV_EREQUEST, "tune: no budget; give one of %s", allowed);
    if (given > 1)
        return KV_FAIL(err, KV_EREQUEST, "tune: %d budgets; give only one of %s", given, allowed);
    if (s->max_error > 0)
        *out = (kv_budget){KV_BUDGET_ERROR, s->max_error, NULL};
    else if (s->max_bytes_per_token > 0)
        *out = (kv_budget){KV_BUDGET_BYTES_PER_TOKEN, s->max_bytes_per_token, NULL};
    else if (s->max_bits > 0)
        *out = (kv_budget){KV_BUDGET_BITS, s->max_bits, NULL};
    else
        *out = (kv_budget){KV_BUDGET_MATCH, (double)NAN, s->match};
    return KV_OK;
}

/* ---- text ---- */

static kv_status print_choice(kv_text *out, const char *before, const char *scheme,
                              const char *after, kv_error *err)
{
    kv_status status = KV_OK;
    KV_TRY(kv_text_add(out, err, "%s", before));
    KV_TRY(kv_yaml_quote(out, scheme, err));
    KV_TRY(kv_text_add(out, err, "%s", after));
done:
    return status;
}

static kv_status print_ban(kv_text *out, const kv_choice_name *ban, kv_error *err)
{
    kv_status status = KV_OK;
    const char *separator = "";
    KV_TRY(kv_text_add(out, err, "{"));
    if (ban->layer >= 0) KV_TRY(kv_text_add(out, err, "layer: %" PRId64, ban->layer));
    if (ban->layer >= 0) separator = ", ";
    if (ban->key) {
        KV_TRY(kv_text_add(out, err, "%s", separator));
        KV_TRY(print_choice(out, "key: ", ban->key, "", err));
        separator = ", ";
    }
    if (ban->value) {
        KV_TRY(kv_text_add(out, err, "%s", separator));
        KV_TRY(print_choice(out, "value: ", ban->value, "", err));
    }
    KV_TRY(kv_text_add(out, err, "}"));
done:
    return status;
}

static kv_status print_lists(kv_text *out, const kv_tune_settings *s, kv_error *err)
{
    kv_status status = KV_OK;
    if (s->n_pins) KV_TRY(kv_text_add(out, err, "  pin:\n"));
    for (int64_t i = 0; i < s->n_pins; i++) {
        KV_TRY(kv_text_add(out, err, "    %" PRId64 ": ", s->pins[i].layer));
        KV_TRY(print_choice(out, "[", s->pins[i].key, ", ", err));
        KV_TRY(print_choice(out, "", s->pins[i].value, "]\n", err));
    }
    if (s->n_bans + s->n_forbidden) KV_TRY(kv_text_add(out, err, "  forbid:\n"));
    for (int64_t i = 0; i < s->n_forbidden; i++)
        KV_TRY(print_choice(out, "    - ", s->forbidden[i], "\n", err));
    for (int64_t i = 0; i < s->n_bans; i++) {
        KV_TRY(kv_text_add(out, err, "    - "));
        KV_TRY(print_ban(out, &s->bans[i], err));
        KV_TRY(kv_text_add(out, err, "\n"));
    }
    KV_TRY(kv_text_add(out, err, "  baselines: ["));
    const char *separator = "";
    for (size_t i = 0; kv_strategy_at(i); i++) {
        if (!(s->baselines >> i & 1)) continue;
        KV_TRY(kv_text_add(out, err, "%s%s", separator, kv_strategy_at(i)->name));
        separator = ", ";
    }
    KV_TRY(kv_text_add(out, err, "]\n"));
done:
    return status;
}

kv_status kv_tune_settings_text(kv_text *out, const kv_tune_settings *s, kv_error *err)
{
    kv_status status = KV_OK;
    const double numbers[] = {s->max_error, s->max_bytes_per_token, s->max_bits};
    char number[KV_REAL_TEXT];
    KV_TRY(kv_text_add(out, err, "tune:\n"));
    for (int i = 0; i < ROW_MATCH; i++)
        if (numbers[i] > 0)
            KV_TRY(kv_text_add(out, err, "  %s: %s\n", rows[i].path,
                               kv_real_text(number, numbers[i])));
    if (s->match && *s->match) KV_TRY(print_choice(out, "  match: ", s->match, "\n", err));
    KV_TRY(kv_keys_print(out, s, &table, 2, err));
    KV_TRY(print_lists(out, s, err));
done:
    return status;
}

/* ---- documentation ---- */

static const kv_key_description extras[] = {
    {"tune.pin", "mapping", "", "", "", "{LAYER: [KEY, VALUE]}: schemes that are fixed"},
    {"tune.forbid", "list", "", "", "",
     "SCHEME, KEY | VALUE, or {layer: N, key: SCHEME, value: SCHEME}: what must not be chosen"},
    {"tune.baselines", "list", "all", "", "", "names of kvant list baselines, to compare with"},
};
enum { N_EXTRAS = sizeof extras / sizeof extras[0] };

bool kv_tune_describe_key(kv_key_description *out, size_t index)
{
    if (index >= N_ROWS + N_EXTRAS) return false;
    if (index >= N_ROWS) {
        *out = extras[index - N_ROWS];
        return true;
    }
    const kv_key_spec *const row = &rows[index];
    *out =
        (kv_key_description){.type = kv_keys_type_name(row), .unit = row->unit, .help = row->help};
    snprintf(out->path, sizeof out->path, "tune.%s", row->path);
    snprintf(out->preset, sizeof out->preset, "%s", row->preset ? row->preset : "");
    kv_keys_range(out->range, sizeof out->range, row);
    return true;
}

void kv_tune_list_keys(FILE *out)
{
    kv_key_description key;
    kv_config_list_keys(out);
    for (size_t i = 0; kv_tune_describe_key(&key, i); i++) kv_key_description_print(out, &key);
}
