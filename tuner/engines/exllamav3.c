/* exllamav3 and tabbyAPI: cache_mode "k,v" with 2 ... 8 bits each, or FP16, for the whole model.
 * Each group of 32 channels is rotated by a Hadamard matrix, then quantized on a mid-rise grid
 * under its absmax (exllamav3_ext/cache/q_cache_kernels.cuh, quant_block_x4;
 * kernels/formats/exl.h). */
#include <string.h>

#include "tuner/engine_state.h"

#define NOTE                                                                                       \
    "exllamav3 takes and returns f16 where kvant has f32; companding (compand_a above 0) is not "  \
    "simulated"

enum { HALF = 1, BITS };

#define BITS_ROW(bits)                                                                             \
    {                                                                                              \
        .words = bits, .key = {"exl" bits ":hadamard=32"}, .mode = BITS, .note = NOTE              \
    }

static const kv_engine_type types[] = {
    {.words = "FP16", .key = {"f16"}, .mode = HALF, .is_native = true},
    BITS_ROW("2"),
    BITS_ROW("3"),
    BITS_ROW("4"),
    BITS_ROW("5"),
    BITS_ROW("6"),
    BITS_ROW("7"),
    BITS_ROW("8"),
};

static const char *unfit(const kv_engine_type *type, const kv_quantizer *scheme, bool is_key,
                         const kv_policy *policy, int64_t number)
{
    (void)scheme, (void)is_key;
    return type->mode == BITS && kv_engine_head_dim(policy, number) % 32
               ? "groups of 32 do not divide head_dim"
               : NULL;
}

static const char *const prefix = "cache_mode: ";

static kv_status write(kv_text *out, const kv_engine_fit *fit, const kv_policy *policy,
                       const char *scales, kv_error *err)
{
    const char *const key = types[fit->layers[0].key].words;
    const char *const value = types[fit->layers[0].value].words;
    (void)policy, (void)scales;
    if (strcmp(key, "FP16") == 0) return kv_text_add(out, err, "%sFP16\n", prefix);
    return kv_text_add(out, err, "%s\"%s,%s\"\n", prefix, key, value);
}

static kv_status read(int32_t *key, int32_t *value, int64_t n_layers, const kv_policy *policy,
                      const char *text, kv_error *err)
{
    size_t const skip = strlen(prefix);
    const char *const mode = strncmp(text, prefix, skip) == 0 ? text + skip : "";
    (void)policy;
    if (strcmp(mode, "FP16\n") == 0) return kv_engine_fill(key, value, n_layers, 0, 0);
    if (strlen(mode) == 6 && mode[0] == '"' && mode[2] == ',' && strcmp(mode + 4, "\"\n") == 0) {
        int32_t const k = kv_engine_type_find(&kv_engine_exllamav3, mode + 1, 1);
        int32_t const v = kv_engine_type_find(&kv_engine_exllamav3, mode + 3, 1);
        if (k > 0 && v > 0) return kv_engine_fill(key, value, n_layers, k, v);
    }
    return KV_FAIL(err, KV_EINPUT, "not cache_mode: FP16 or \"k,v\": %s", text);
}

const kv_engine kv_engine_exllamav3 = {
    .name = "exllamav3",
    .about = "cache_mode of tabbyAPI's model section (config.yml)",
    .source = "exllamav3 exllamav3_ext/cache/q_cache_kernels.cuh; tabbyAPI cache_mode",
    .types = types,
    .n_types = sizeof types / sizeof types[0],
    .shape = KV_SHAPE_UNIFORM,
    .unfit = unfit,
    .write = write,
    .read = read,
    .no_scales = "it computes its scales itself",
};
