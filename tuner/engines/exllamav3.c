/* exllamav3 and tabbyAPI: cache_mode "k,v" with 2 ... 8 bits each, or FP16, for the whole model
 * (exllamav3_ext/cache/q_cache_kernels.cuh). Its grid is mid-rise after a Hadamard rotation of each
 * group of 32 channels: no scheme of kvant has that arithmetic, so only 16 bit can be exported. */
#include <string.h>

#include "tuner/engine_state.h"

#define NO_GRID                                                                                    \
    "its grid is mid-rise (a value is never 0) under absmax after a Hadamard-32 rotation; kvant "  \
    "has no such grid yet"

enum { HALF = 1, BITS };

static const kv_engine_type types[] = {
    {.words = "FP16", .key = {"f16"}, .mode = HALF, .is_native = true},
    {.words = "2", .mode = BITS, .refusal = NO_GRID},
    {.words = "3", .mode = BITS, .refusal = NO_GRID},
    {.words = "4", .mode = BITS, .refusal = NO_GRID},
    {.words = "5", .mode = BITS, .refusal = NO_GRID},
    {.words = "6", .mode = BITS, .refusal = NO_GRID},
    {.words = "7", .mode = BITS, .refusal = NO_GRID},
    {.words = "8", .mode = BITS, .refusal = NO_GRID},
};

/* A table measured in exllamav3 itself may hold its bits: "6" with "5". */
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
    const char *const mode = text + skip;
    (void)policy;
    if (strncmp(text, prefix, skip) == 0 && strcmp(mode, "FP16\n") == 0)
        return kv_engine_fill(key, value, n_layers, 0, 0);
    if (strncmp(text, prefix, skip) == 0 && strlen(mode) == 6 && mode[0] == '"' && mode[2] == ',' &&
        strcmp(mode + 4, "\"\n") == 0) {
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
    .write = write,
    .read = read,
    .no_scales = "it computes its scales itself",
};
