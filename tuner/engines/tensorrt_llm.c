/* TensorRT-LLM, PyTorch backend: KvCacheConfig(dtype=...), one for keys and values of all layers
 * (documentation, features/quantization, 1.3 and 1.4). Its kernels have not been read. */
#include <string.h>

#include "tuner/engine_state.h"

enum { F16 = 1, BF16 };

static const kv_engine_type types[] = {
    {.words = "auto", .key = {"f16"}, .mode = F16, .is_native = true, .needs = KV_NEEDS_F16},
    {.words = "auto", .key = {"bf16"}, .mode = BF16, .is_native = true, .needs = KV_NEEDS_BF16},
    {.words = "fp8",
     .key = {"e4m3/tensor", "e4m3/tensor:unit"},
     .open = KV_OPEN_STATIC,
     .note = "only its documentation was read: FP8 with a static scale per layer, how it rounds "
             "and saturates is taken to be as in vLLM"},
    {.words = "nvfp4",
     .refusal = "needs a checkpoint quantized by ModelOpt, and its arithmetic has "
                "not been read"},
    {.words = "int8",
     .refusal = "only in checkpoints of the legacy backend (kv_cache_quant_algo), "
                "KvCacheConfig does not name it"},
};

static const char *const before = "from tensorrt_llm.llmapi import KvCacheConfig\n\n"
                                  "kv_cache_config = KvCacheConfig(dtype=\"";
static const char *const after = "\")\n";

static kv_status write(kv_text *out, const kv_engine_fit *fit, const kv_policy *policy,
                       const char *scales, kv_error *err)
{
    (void)policy, (void)scales;
    return kv_text_add(out, err, "%s%s%s", before, types[fit->layers[0].key].words, after);
}

static kv_status read(int32_t *key, int32_t *value, int64_t n_layers, const kv_policy *policy,
                      const char *text, kv_error *err)
{
    (void)policy;
    if (strncmp(text, before, strlen(before)) == 0) {
        const char *const words = text + strlen(before);
        size_t const length = strcspn(words, "\"");
        int32_t const row = kv_engine_type_find(&kv_engine_tensorrt_llm, words, length);
        if (row >= 0 && strcmp(words + length, after) == 0)
            return kv_engine_fill(key, value, n_layers, row, row);
    }
    return KV_FAIL(err, KV_EINPUT, "not a KvCacheConfig as kvant writes it: %s", text);
}

static kv_status warn(kv_engine_fit *fit, const kv_policy *policy, const char *scales,
                      kv_error *err)
{
    (void)policy, (void)scales;
    if (types[fit->layers[0].key].is_native) return KV_OK;
    return kv_engine_warn(
        fit, err,
        "scales come from the checkpoint (ModelOpt, amax/448); legacy checkpoints "
        "share one between keys and values");
}

const kv_engine kv_engine_tensorrt_llm = {
    .name = "tensorrt-llm",
    .about = "Python for LLM(..., kv_cache_config=kv_cache_config)",
    .source = "TensorRT-LLM documentation, features/quantization and llmapi KvCacheConfig",
    .types = types,
    .n_types = sizeof types / sizeof types[0],
    .shape = KV_SHAPE_UNIFORM,
    .is_tied = true,
    .warn = warn,
    .write = write,
    .read = read,
    .no_scales = "scales are part of a checkpoint that ModelOpt makes",
};
