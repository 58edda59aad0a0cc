/* LMDeploy: --quant-policy, one for keys and values of all layers (lmdeploy/messages.py). FP8
 * exists in the PyTorch engine only, with scale 1 (pytorch/nn/attention.py). */
#include <string.h>

#include "kernels/memory.h"
#include "tuner/engine_state.h"

enum { F16 = 1, BF16 };

#define INTEGER_NOTE                                                                               \
    "TurboMind computes scale, zero point and codes in the model's 16-bit type, kvant only "       \
    "rounds "                                                                                      \
    "scale and minimum to it; the PyTorch engine rounds halves up"
#define FP8_NOTE "whether values out of range saturate has not been read"

static const kv_engine_type types[] = {
    {.words = "0", .key = {"f16"}, .mode = F16, .is_native = true, .needs = KV_NEEDS_F16},
    {.words = "0", .key = {"bf16"}, .mode = BF16, .is_native = true, .needs = KV_NEEDS_BF16},
    {.words = "4", .key = {"int4/token:zero:scale=f16"}, .mode = F16, .note = INTEGER_NOTE},
    {.words = "4", .key = {"int4/token:zero:scale=bf16"}, .mode = BF16, .note = INTEGER_NOTE},
    {.words = "8", .key = {"int8/token:zero:scale=f16"}, .mode = F16, .note = INTEGER_NOTE},
    {.words = "8", .key = {"int8/token:zero:scale=bf16"}, .mode = BF16, .note = INTEGER_NOTE},
    {.words = "16", .key = {"e4m3/tensor:unit"}, .note = FP8_NOTE},
    {.words = "17", .key = {"e5m2/tensor:unit"}, .note = FP8_NOTE},
    {.words = "42", .refusal = "Lloyd-Max codebooks and sign bits: kvant has no fitted grid"},
};

static const char *const pytorch = "--backend pytorch ", *const policy_option = "--quant-policy ";

static kv_status write(kv_text *out, const kv_engine_fit *fit, const kv_policy *policy,
                       const char *scales, kv_error *err)
{
    const char *const words = types[fit->layers[0].key].words;
    bool const is_pytorch = strlen(words) == 2;
    (void)policy, (void)scales;
    return kv_text_add(out, err, "%s%s%s\n", is_pytorch ? pytorch : "", policy_option, words);
}

static kv_status read(int32_t *key, int32_t *value, int64_t n_layers, const kv_policy *policy,
                      const char *text, kv_error *err)
{
    const char *at = text;
    bool const is_pytorch = strncmp(at, pytorch, strlen(pytorch)) == 0;
    (void)policy;
    at += is_pytorch ? strlen(pytorch) : 0;
    if (strncmp(at, policy_option, strlen(policy_option)) == 0) {
        at += strlen(policy_option);
        size_t const length = strcspn(at, "\n");
        int32_t const row = kv_engine_type_find(&kv_engine_lmdeploy, at, length);
        if (row >= 0 && strcmp(at + length, "\n") == 0 && is_pytorch == (length == 2))
            return kv_engine_fill(key, value, n_layers, row, row);
    }
    return KV_FAIL(err, KV_EINPUT, "not [--backend pytorch] --quant-policy N: %s", text);
}

const kv_engine kv_engine_lmdeploy = {
    .name = "lmdeploy",
    .about = "options of lmdeploy serve api_server MODEL",
    .source = "LMDeploy lmdeploy/messages.py (QuantPolicy), cli/utils.py, "
              "src/turbomind/kernels/attention/quantization.h, "
              "pytorch/kernels/cuda/fill_kv_cache.py, pytorch/nn/attention.py",
    .types = types,
    .n_types = sizeof types / sizeof types[0],
    .shape = KV_SHAPE_UNIFORM,
    .is_tied = true,
    .write = write,
    .read = read,
    .no_scales = "its FP8 scale is fixed at 1, its integer types compute their own",
};
