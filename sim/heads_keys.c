/* The keys under `heads:`: one row per setting of kv_heads_config (sim/heads.h). */
#include "sim/heads_keys.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/memory.h"

static const char *const generators[] = {"philox", "numpy-pcg64", "torch-mt19937", "capture", NULL};
static const char *const distributions[] = {"normal", "uniform", "laplace", NULL};
static const char *const placements[] = {"random", "rope-low", NULL};
static const char *const drifts[] = {"none", "linear", "log", NULL};
static const char *const layouts[] = {"none", "half", "interleaved", NULL};
static const char *const scalings[] = {"none", "linear", "ntk", "yarn", "llama3", NULL};

#define AT(field) offsetof(kv_heads_config, field)
#define INT       KV_TYPE_INT
#define REAL      KV_TYPE_REAL
#define CHOICE    KV_TYPE_CHOICE
#define INTS      KV_TYPE_INTS
#define MOST      1e9
#define SEED_MAX  9007199254740992.0 /* 2^53 */

/* clang-format off */
static const kv_key_spec rows[KV_HEADS_KEYS] = {
    {"generator", CHOICE, AT(generator), "philox", 0, 0, generators, "",
     "where the numbers come from", 0, 0},
    {"distribution", CHOICE, AT(distribution), "normal", 0, 0, distributions, "",
     "of z, with mean 0 and variance 1", 0, 0},
    {"seeds", KV_TYPE_COUNT_OR_INTS, AT(seeds), "[0]", 0, SEED_MAX, NULL, "",
     "replicates: a list, or how many (0, 1, ...)", KV_KEY_FIXED | KV_KEY_DISTINCT, 0},
    {"tokens", INT, AT(tokens), "4096", 1, 16777216, NULL, "tokens", "cached tokens T", 0, 0},
    {"head_dim", INT, AT(head_dim), "128", 1, 65536, NULL, "channels", "channels of a head D", 0, 0},
    {"queries", INT, AT(queries), "1", 1, MOST, NULL, "queries", "queries of each query head Q", 0, 0},
    {"layers", INT, AT(layers), "1", 1, 100000, NULL, "layers",
     "layers L; with a capture a list picks some", KV_KEY_FIXED | KV_KEY_DISTINCT,
     AT(capture_layers)},
    {"kv_heads", INT, AT(kv_heads), "1", 1, 65536, NULL, "heads", "key-value heads of a layer G",
     KV_KEY_FIXED, 0},
    {"query_heads", INT, AT(query_heads), "0", 0, 65536, NULL, "heads",
     "query heads H, a multiple of kv_heads; 0: as many", 0, 0},
    {"window", INT, AT(window), "0", 0, MOST, NULL, "tokens",
     "sliding window: older tokens are not seen; 0: none", 0, 0},
    {"capture", KV_TYPE_PATH, AT(capture), "", 0, 0, NULL, "",
     "with generator capture: an HDF5 capture, or {key_position, window, layers: {N: {key, value, query}}}",
     KV_KEY_FIXED | KV_KEY_BY_HAND, 0},
    {"outliers.channels", INTS, AT(outliers.channels), "[]", 0, 65535, NULL, "",
     "planted outlier channels of keys", KV_KEY_DISTINCT, 0},
    {"outliers.count", INT, AT(outliers.count), "0", 0, 65536, NULL, "channels",
     "or how many are placed", 0, 0},
    {"outliers.placement", CHOICE, AT(outliers.placement), "random", 0, 0, placements, "",
     "where they are placed; rope-low: one channel of each pair that turns least", 0, 0},
    {"outliers.scale", REAL, AT(outliers.scale), "1", 0, 1e6, NULL, "sigma",
     "spread of a planted channel", 0, 0},
    {"outliers.bias", REAL, AT(outliers.bias), "0", -1e6, 1e6, NULL, "sigma",
     "mean of a planted channel, with random sign", 0, 0},
    {"value_outliers.channels", INTS, AT(value_outliers.channels), "[]", 0, 65535, NULL, "",
     "planted outlier channels of values", KV_KEY_DISTINCT, 0},
    {"value_outliers.count", INT, AT(value_outliers.count), "0", 0, 65536, NULL, "channels",
     "or how many are placed", 0, 0},
    {"value_outliers.placement", CHOICE, AT(value_outliers.placement), "random", 0, 0, placements,
     "", "as outliers.placement", 0, 0},
    {"value_outliers.scale", REAL, AT(value_outliers.scale), "1", 0, 1e6, NULL, "sigma",
     "spread of a planted channel", 0, 0},
    {"value_outliers.bias", REAL, AT(value_outliers.bias), "0", -1e6, 1e6, NULL, "sigma",
     "mean of a planted channel, with random sign", 0, 0},
    {"value_mean", REAL, AT(value_mean), "0", 0, 1e6, NULL, "sigma",
     "spread over channels of the values' channel means", 0, 0},
    {"rope.layout", CHOICE, AT(rope.layout), "none", 0, 0, layouts, "",
     "which channels rotate together: c and c + rotary_dim/2, or 2c and 2c + 1", KV_KEY_SECTION, 0},
    {"rope.base", REAL, AT(rope.base), "10000", 1, 1e12, NULL, "", "theta", 0, 0},
    {"rope.rotary_dim", INT, AT(rope.rotary_dim), "0", 0, 65536, NULL, "channels",
     "channels that rotate, even; 0: head_dim", 0, 0},
    {"rope.training_length", INT, AT(rope.training_length), "0", 0, MOST, NULL, "tokens",
     "what rope-low calls a long wavelength; 0: tokens", 0, 0},
    {"rope.scaling.type", CHOICE, AT(rope.scaling), "none", 0, 0, scalings, "",
     "frequency scaling of long-context models", KV_KEY_SECTION, 0},
    {"rope.scaling.factor", REAL, AT(rope.factor), "1", 1, 1e6, NULL, "", "s", 0, 0},
    {"rope.scaling.low_freq_factor", REAL, AT(rope.low_freq_factor), "1", 0, 1e6, NULL, "",
     "llama3", 0, 0},
    {"rope.scaling.high_freq_factor", REAL, AT(rope.high_freq_factor), "4", 0, 1e6, NULL, "",
     "llama3", 0, 0},
    {"rope.scaling.beta_fast", REAL, AT(rope.beta_fast), "32", 0, 1e6, NULL, "turns", "yarn", 0, 0},
    {"rope.scaling.beta_slow", REAL, AT(rope.beta_slow), "1", 0, 1e6, NULL, "turns", "yarn", 0, 0},
    {"rope.scaling.original_length", INT, AT(rope.original_length), "0", 0, MOST, NULL, "tokens",
     "original_max_position_embeddings of yarn and llama3", 0, 0},
    {"query.gain", REAL, AT(query_gain), "1", 0, 1e6, NULL, "", "multiplies the queries", 0, 0},
    {"query.position", INTS, AT(query_position), "[]", 0, MOST, NULL, "tokens",
     "position of each query; [] for the last Q", 0, 0},
    {"query.classes.isotropic", REAL, AT(class_share[KV_CLASS_ISOTROPIC]), "1", 0, 1e9, NULL, "",
     "share of queries of no special direction", 0, 0},
    {"query.classes.local", REAL, AT(class_share[KV_CLASS_LOCAL]), "0", 0, 1e9, NULL, "",
     "share of queries that attend to their recent tokens", 0, 0},
    {"query.classes.needle", REAL, AT(class_share[KV_CLASS_NEEDLE]), "0", 0, 1e9, NULL, "",
     "share of queries that look for one token", 0, 0},
    {"local.mass", REAL, AT(local_mass), "0.8", 0, 1, NULL, "",
     "attention weight of a local query on its span", 0, 0},
    {"local.span", INT, AT(local_span), "64", 1, MOST, NULL, "tokens", "recent tokens it sees so", 0, 0},
    {"needle.depth", REAL, AT(needle_depth), "0.5", 0, 1, NULL, "",
     "where the needle is: 0 first token, 1 last", 0, 0},
    {"needle.margin", REAL, AT(needle_margin), "2", -1e3, 1e3, NULL, "nats",
     "logit of the needle above the rest, before quantization", 0, 0},
    {"sinks.count", INT, AT(sink_count), "0", 0, MOST, NULL, "tokens", "first tokens that are sinks",
     0, 0},
    {"sinks.key_gain", REAL, AT(sink_key_gain), "1", 0, 1e6, NULL, "", "multiplies their keys", 0, 0},
    {"sinks.value_gain", REAL, AT(sink_value_gain), "1", 0, 1e6, NULL, "", "multiplies their values",
     0, 0},
    {"sinks.mass", REAL, AT(sink_mass), "0", 0, 0.999999, NULL, "",
     "attention weight they draw; 0: as it comes", 0, 0},
    {"drift.kind", CHOICE, AT(drift), "none", 0, 0, drifts, "",
     "growth of keys with position: 1 + rate t, or 1 + rate ln(1 + t)", 0, 0},
    {"drift.rate", REAL, AT(drift_rate), "0", -1, 1e6, NULL, "", "rate", 0, 0},
    {"stack.gain", REAL, AT(stack_gain), "1", 0, 1e6, NULL, "",
     "RMS of what each half of a layer adds to the decode stack's residual stream", 0, 0},
    {"stack.streams", INT, AT(stack_streams), "4", 1, 65536, NULL, "streams",
     "decode streams of stack_err and stack_err_layer", KV_KEY_FIXED, 0},
};
/* clang-format on */

const kv_key_table kv_heads_table = {"heads", rows, KV_HEADS_KEYS, sizeof(kv_heads_config)};

/* ---- captures in separate files ---- */

typedef struct {
    int64_t key_position, window;
} map_keys;

static const char *const key_positions[] = {"post-rope", "pre-rope", NULL};
static const kv_key_spec map_rows[] = {
    {"key_position", CHOICE, offsetof(map_keys, key_position), "post-rope", 0, 0, key_positions, "",
     "whether the keys were taken before RoPE", 0, 0},
    {"window", INT, offsetof(map_keys, window), "0", 0, MOST, NULL, "tokens", "sliding window", 0,
     0},
};
static const kv_key_table map_table = {"heads.capture", map_rows, 2, sizeof(map_keys)};

static const kv_key_spec file_rows[] = {
    {"key", KV_TYPE_PATH, offsetof(kv_capture_files, key), NULL, 0, 0, NULL, "", "FILE.npy", 0, 0},
    {"value", KV_TYPE_PATH, offsetof(kv_capture_files, value), NULL, 0, 0, NULL, "", "FILE.npy", 0,
     0},
    {"query", KV_TYPE_PATH, offsetof(kv_capture_files, query), "", 0, 0, NULL, "", "FILE.npy", 0,
     0},
};
static const kv_key_table file_table = {"heads.capture.layers", file_rows, 3,
                                        sizeof(kv_capture_files)};

static void free_map(kv_capture_map *map)
{
    for (int64_t i = 0; i < map->count; i++) kv_keys_free(&map->files[i], &file_table);
    kv_free(map->files);
    *map = (kv_capture_map){0};
}

static int by_layer(const void *a, const void *b)
{
    int64_t const x = ((const kv_capture_files *)a)->layer;
    int64_t const y = ((const kv_capture_files *)b)->layer;
    return (x > y) - (x < y);
}

static kv_status read_map_layers(kv_capture_map *map, const kv_yaml_node *layers,
                                 kv_problems *problems, kv_error *err)
{
    kv_status status = KV_OK;
    if (!layers || layers->kind != KV_YAML_MAPPING || !layers->count) {
        kv_problem_add(problems, layers,
                       "heads.capture.layers: expected {0: {key: FILE, value: FILE}, ...}");
        return KV_OK;
    }
    KV_TRY(kv_allocate((void **)&map->files, layers->count, sizeof *map->files, err));
    map->count = (int64_t)layers->count;
    for (size_t i = 0; i < layers->count; i++) {
        const kv_yaml_node *const key = layers->entries[i].key, *given[3] = {0};
        if (!kv_parse_int(key->text, &map->files[i].layer) || map->files[i].layer < 0)
            kv_problem_add(problems, key, "heads.capture.layers: \"%.80s\" is not a layer's number",
                           key->text);
        KV_TRY(kv_keys_read(&map->files[i], &file_table, layers->entries[i].value, NULL, 0, given,
                            problems, err));
        if (layers->entries[i].value->kind == KV_YAML_MAPPING)
            kv_keys_require(&file_table, layers->entries[i].value, given, problems);
    }
    qsort(map->files, layers->count, sizeof *map->files, by_layer);
done:
    return status;
}

static kv_status read_map(kv_heads_config *out, const kv_yaml_node *node, kv_problems *problems,
                          kv_error *err)
{
    kv_status status = KV_OK;
    static const char *const others[] = {"layers"};
    map_keys keys = {0};
    kv_capture_map map = {0};
    KV_TRY(kv_keys_read(&keys, &map_table, node, others, 1, NULL, problems, err));
    const kv_yaml_node *const layers = kv_yaml_get(node, "layers");
    if (layers)
        KV_TRY(read_map_layers(&map, layers, problems, err));
    else
        kv_problem_add(problems, node, "heads.capture.layers: must be given");
    map.is_pre_rope = keys.key_position == 1, map.window = keys.window;
    free_map(&out->capture_map);
    out->capture_map = map;
    map = (kv_capture_map){0};
done:
    free_map(&map);
    return status;
}

kv_status kv_heads_keys_read(kv_heads_config *out, const kv_yaml_node *mapping,
                             const kv_yaml_node **given, kv_problems *problems, kv_error *err)
{
    kv_status status = KV_OK;
    static const char *const others[] = {"profile", "capture"};
    const kv_yaml_node *const capture = kv_yaml_get(mapping, "capture");
    bool const is_map = capture && capture->kind == KV_YAML_MAPPING;
    KV_TRY(
        kv_keys_read(out, &kv_heads_table, mapping, others, is_map ? 2 : 1, given, problems, err));
    if (is_map)
        KV_TRY(read_map(out, capture, problems, err));
    else if (capture)
        free_map(&out->capture_map);
done:
    return status;
}

static kv_status print_capture(kv_text *text, const kv_heads_config *c, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_capture_map *const map = &c->capture_map;
    if (!map->count) {
        KV_TRY(kv_text_add(text, err, "  capture: "));
        KV_TRY(kv_keys_value(text, c, kv_keys_find(&kv_heads_table, "capture"), err));
        return kv_text_add(text, err, "\n");
    }
    KV_TRY(kv_text_add(text, err,
                       "  capture:\n    key_position: %s\n    window: %" PRId64 "\n    layers:\n",
                       key_positions[map->is_pre_rope], map->window));
    for (int64_t i = 0; i < map->count; i++) {
        KV_TRY(kv_text_add(text, err, "      %" PRId64 ":\n", map->files[i].layer));
        for (size_t r = 0; r < file_table.count; r++) {
            const char *const path = *(char **)((char *)&map->files[i] + file_rows[r].offset);
            if (!path) continue;
            KV_TRY(kv_text_add(text, err, "        %s: ", file_rows[r].path));
            KV_TRY(kv_keys_value(text, &map->files[i], &file_rows[r], err));
            KV_TRY(kv_text_add(text, err, "\n"));
        }
    }
done:
    return status;
}

kv_status kv_heads_keys_print(kv_text *text, const kv_heads_config *config, kv_error *err)
{
    kv_status const status = kv_keys_print(text, config, &kv_heads_table, 2, err);
    return status == KV_OK ? print_capture(text, config, err) : status;
}

/* ---- ownership ---- */

kv_status kv_heads_config_copy(kv_heads_config *out, const kv_heads_config *config, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_capture_map *const from = &config->capture_map;
    kv_heads_config copy = {0};
    status = kv_keys_copy(&copy, config, &kv_heads_table, err);
    copy.capture_map = (kv_capture_map){from->is_pre_rope, from->window, 0, NULL};
    if (status != KV_OK) goto done;
    if (from->count)
        KV_TRY(kv_allocate((void **)&copy.capture_map.files, (size_t)from->count,
                           sizeof *from->files, err));
    for (int64_t i = 0; i < from->count; i++) {
        KV_TRY(kv_keys_copy(&copy.capture_map.files[i], &from->files[i], &file_table, err));
        copy.capture_map.count++;
    }
    *out = copy;
    return KV_OK;
done:
    kv_heads_config_free_contents(&copy);
    return status;
}

void kv_heads_config_free_contents(kv_heads_config *config)
{
    kv_keys_free(config, &kv_heads_table);
    free_map(&config->capture_map);
}

/* One key, as a configuration writes it. */
static kv_status key_text(char **out, const kv_heads_config *heads, const char *path, kv_error *err)
{
    kv_text text = {0};
    kv_status const status = kv_keys_value(&text, heads, kv_keys_find(&kv_heads_table, path), err);
    if (status == KV_OK) *out = kv_text_take(&text);
    kv_text_free(&text);
    return status;
}

kv_status kv_heads_origin(char **generator, char **seeds, const kv_heads_config *config,
                          kv_error *err)
{
    char *name = NULL;
    kv_status status = key_text(&name, config, "generator", err);
    if (status == KV_OK) status = key_text(seeds, config, "seeds", err);
    if (status == KV_OK)
        *generator = name;
    else
        kv_free(name);
    return status;
}
