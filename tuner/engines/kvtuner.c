/* KVTuner's per-layer YAML (cmd2001/KVTuner, calibration_presets): bits of keys and of values of
 * each layer. How they are quantized is a setting of the run, not of the file: per-token-asym
 * (residual_length 0, one group a row) or KIVI-like (keys in groups of 32 tokens of a channel,
 * values in groups of 32 channels, residual_length 32), the same for all layers. */
#include <inttypes.h>
#include <string.h>

#include "sim/yaml.h"
#include "tuner/engine_state.h"

enum { PER_TOKEN = 1, KIVI };

#define ZERO_NOTE                                                                                  \
    "KVTuner rounds the zero point to an integer (the minimum is off by up to half a step), "      \
    "keeps "                                                                                       \
    "ranges above 1e-5 and quantizes the whole history anew"

#define PER_TOKEN_ROW(bits)                                                                        \
    {                                                                                              \
        .words = #bits, .key = {"int" #bits "/token:zero"}, .open = KV_OPEN_SCALE,                 \
        .mode = PER_TOKEN, .note = ZERO_NOTE                                                       \
    }
#define KIVI_ROW(bits)                                                                             \
    {                                                                                              \
        .words = #bits, .key = {"int" #bits "/32x1:zero:flush=32"},                                \
        .value = {"int" #bits "/1x32:zero:flush=32"}, .open = KV_OPEN_SCALE, .mode = KIVI,         \
        .note = ZERO_NOTE                                                                          \
    }

static const kv_engine_type types[] = {
    PER_TOKEN_ROW(2),
    PER_TOKEN_ROW(4),
    PER_TOKEN_ROW(8),
    KIVI_ROW(2),
    KIVI_ROW(4),
    KIVI_ROW(8),
    {.words = "16", .refusal = "KVTuner's layers have 2, 4 or 8 bits"},
};

static kv_status write(kv_text *out, const kv_engine_fit *fit, const kv_policy *policy,
                       const char *scales, kv_error *err)
{
    kv_status status = KV_OK;
    bool const is_kivi = types[fit->layers[0].key].mode == KIVI;
    (void)policy, (void)scales;
    KV_TRY(kv_text_add(out, err, "# KVTuner per_layer_config_path, for %s\n",
                       is_kivi ? "residual_length=32,q_group_size=32,axis_key=1,axis_value=0"
                               : "residual_length=0,q_group_size=-1,axis_key=0,axis_value=0"));
    for (int64_t l = 0; l < fit->n_layers; l++)
        KV_TRY(kv_text_add(out, err, "%" PRId64 ":\n  nbits_key: %s\n  nbits_value: %s\n",
                           fit->layers[l].number, types[fit->layers[l].key].words,
                           types[fit->layers[l].value].words));
done:
    return status;
}

static int32_t read_bits(const kv_yaml_node *layer, const char *name)
{
    const kv_yaml_node *const node = kv_yaml_get(layer, name);
    if (!node || node->kind != KV_YAML_SCALAR) return -1;
    return kv_engine_type_find(&kv_engine_kvtuner, node->text, strlen(node->text));
}

static kv_status read(int32_t *key, int32_t *value, int64_t n_layers, const kv_policy *policy,
                      const char *text, kv_error *err)
{
    kv_status status = KV_OK;
    kv_yaml *file = NULL;
    kv_problems problems = {0};
    (void)policy;
    KV_TRY(kv_yaml_read(&file, text, strlen(text), "KVTuner", &problems, err));
    KV_TRY(kv_problems_raise(&problems, err));
    const kv_yaml_node *const root = kv_yaml_root(file);
    bool is_good = root->kind == KV_YAML_MAPPING && (int64_t)root->count == n_layers;
    for (int64_t l = 0; is_good && l < n_layers; l++) {
        const kv_yaml_entry *const entry = &root->entries[l];
        int64_t number;
        is_good = kv_parse_int(entry->key->text, &number) && number == l &&
                  entry->value->kind == KV_YAML_MAPPING && entry->value->count == 2;
        if (!is_good) break;
        key[l] = read_bits(entry->value, "nbits_key");
        value[l] = read_bits(entry->value, "nbits_value");
        is_good = key[l] >= 0 && value[l] >= 0;
    }
    if (!is_good)
        KV_TRY(KV_FAIL(err, KV_EINPUT, "not nbits_key and nbits_value of %" PRId64 " layers",
                       n_layers));
done:
    kv_yaml_free(file);
    return status;
}

const kv_engine kv_engine_kvtuner = {
    .name = "kvtuner",
    .about = "KVTuner's YAML with the bits of each layer (per_layer_config_path)",
    .source = "KVTuner calibration_presets, flexible_quant/vanilla_quantizer.py (arXiv 2502.04420)",
    .types = types,
    .n_types = sizeof types / sizeof types[0],
    .shape = KV_SHAPE_FREE,
    .needs_all_layers = true,
    .write = write,
    .read = read,
    .no_scales = "it computes its scales itself",
};
