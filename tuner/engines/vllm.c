/* vLLM: one cache dtype for keys and values of all layers, and the model's own dtype in the layers
 * that --kv-cache-dtype-skip-layers names, by index or, as `sliding_window`, all layers with a
 * window (vllm/config/cache.py; Attention.__init__ in
 * model_executor/layers/attention/attention.py).
 *
 * fp8 has one static scale per layer and tensor, from the checkpoint, else 1.0: a code is
 * e4m3(x / scale). A scheme with a range of its own (e4m3/tensor) needs the scales file, :unit does
 * not; both may stand side by side, the file then says 1.0. */
#include <inttypes.h>
#include <string.h>

#include "kernels/file.h"
#include "kernels/memory.h"
#include "tuner/engine_state.h"

enum { F16 = 1, BF16 };

#define QUERY_NOTE                                                                                 \
    "vLLM also quantizes queries to fp8 where the backend does (FlashAttention 3, FlashInfer)"
#define TOKEN_NOTE " and keeps scales above 1e-6"

static const kv_engine_type types[] = {
    {.words = "auto", .key = {"f16"}, .mode = F16, .is_native = true, .needs = KV_NEEDS_F16},
    {.words = "auto", .key = {"bf16"}, .mode = BF16, .is_native = true, .needs = KV_NEEDS_BF16},
    {.words = "fp8",
     .key = {"e4m3/tensor", "e4m3/tensor:unit"},
     .open = KV_OPEN_STATIC,
     .note = QUERY_NOTE},
    {.words = "fp8_e5m2",
     .key = {"e5m2/tensor:unit"},
     .note = QUERY_NOTE,
     .needs = "the FLASHINFER, TRITON_ATTN or CPU backend (FLASH_ATTN has e4m3 only), and a "
              "checkpoint without fp8 scales"},
    {.words = "int8_per_token_head",
     .key = {"int8/token"},
     .note = "vLLM rounds halves away from zero, kvant to even," TOKEN_NOTE,
     .needs = "the TRITON_ATTN backend"},
    {.words = "fp8_per_token_head",
     .key = {"e4m3/token"},
     .note = "vLLM keeps scales above 1e-6",
     .needs = "the TRITON_ATTN backend"},
    {.words = "int4_per_token_head",
     .key = {"int4/token:hadamard+signs:zero"},
     .note = "vLLM rounds the zero point to 4 bits, rotates in bf16 with signs of its own, and "
             "stores 4 bytes less per token, head and tensor than kvant counts",
     .needs = "the TRITON_ATTN backend and a head_dim that is a power of two"},
    {.words = "nvfp4",
     .key = {"e2m1/1x16:scale=e4m3"},
     .note = "vLLM uses approximate reciprocals (rcp.approx), so that scales and codes may differ "
             "by one step; its global scale is the checkpoint's k_scale and v_scale",
     .needs =
         "the FLASHINFER backend on SM100 (on SM120 its value scales were corrupt, vllm#50084)"},
    {.words = "nvfp4_4over6",
     .refusal = "tries amax/6 and amax/4 for every block; kvant has no such range rule"},
    {.words = "turboquant_k8v4", .refusal = "Lloyd-Max codebooks: kvant has no fitted grid"},
    {.words = "turboquant_4bit_nc", .refusal = "Lloyd-Max codebooks: kvant has no fitted grid"},
    {.words = "turboquant_k3v4_nc", .refusal = "Lloyd-Max codebooks: kvant has no fitted grid"},
    {.words = "turboquant_3bit_nc", .refusal = "Lloyd-Max codebooks: kvant has no fitted grid"},
    {.words = "fp8_inc", .refusal = "Gaudi: scales and layers are in a file of INC's own"},
    {.words = "fp8_ds_mla", .refusal = "a latent (MLA) cache, not keys and values"},
};

static bool is_native(const kv_engine_layer *layer)
{
    return types[layer->key].is_native;
}

static bool has_own_scale(const char *scheme)
{
    bool const is_static =
        strncmp(scheme, "e4m3/tensor", 11) == 0 || strncmp(scheme, "e2m1/", 5) == 0;
    return is_static && !strstr(scheme, ":unit");
}

/* The layer that says the base type; NULL where all are native. */
static const kv_engine_layer *base_layer(const kv_engine_fit *fit)
{
    for (int64_t l = 0; l < fit->n_layers; l++)
        if (!is_native(&fit->layers[l])) return &fit->layers[l];
    return NULL;
}

/* Whether the native layers are exactly those with a window, and there are some. */
static bool skips_windows(const kv_engine_fit *fit, const kv_policy *policy)
{
    bool is_any = false;
    for (int64_t l = 0; l < fit->n_layers; l++) {
        int64_t const window = kv_engine_window(policy, fit->layers[l].number);
        if (window < 0 || (window > 0) != is_native(&fit->layers[l])) return false;
        is_any |= window > 0;
    }
    return is_any;
}

static kv_status write(kv_text *out, const kv_engine_fit *fit, const kv_policy *policy,
                       const char *scales, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_engine_layer *const base = base_layer(fit);
    bool is_first = true;
    (void)scales;
    KV_TRY(kv_text_add(out, err, "--kv-cache-dtype %s", base ? types[base->key].words : "auto"));
    if (base && skips_windows(fit, policy)) {
        KV_TRY(kv_text_add(out, err, " --kv-cache-dtype-skip-layers sliding_window"));
    } else {
        for (int64_t l = 0; base && l < fit->n_layers; l++) {
            if (!is_native(&fit->layers[l])) continue;
            KV_TRY(kv_text_add(out, err, "%s %" PRId64,
                               is_first ? " --kv-cache-dtype-skip-layers" : "",
                               fit->layers[l].number));
            is_first = false;
        }
    }
    KV_TRY(kv_text_add(out, err, "\n"));
done:
    return status;
}

/* A layer's position by its number or -1. */
static int64_t position(const kv_policy *policy, int64_t n_layers, const char *text)
{
    int64_t number;
    if (!kv_parse_int(text, &number)) return -1;
    for (int64_t l = 0; l < n_layers; l++)
        if (kv_engine_number(policy, l) == number) return l;
    return -1;
}

static kv_status read_skips(int32_t *key, int32_t *value, int64_t n_layers, const kv_policy *policy,
                            char *const *pieces, int n, kv_error *err)
{
    for (int i = 0; i < n; i++) {
        bool const is_windows = strcmp(pieces[i], "sliding_window") == 0;
        int64_t const layer = is_windows ? -1 : position(policy, n_layers, pieces[i]);
        if (!is_windows && layer < 0)
            return KV_FAIL(err, KV_EINPUT,
                           "--kv-cache-dtype-skip-layers: \"%s\" is no layer of the policy",
                           pieces[i]);
        for (int64_t l = 0; l < n_layers; l++) {
            int64_t const window = kv_engine_window(policy, kv_engine_number(policy, l));
            if (l == layer || (is_windows && window > 0)) key[l] = value[l] = 0;
        }
    }
    return KV_OK;
}

static kv_status read(int32_t *key, int32_t *value, int64_t n_layers, const kv_policy *policy,
                      const char *text, kv_error *err)
{
    kv_status status = KV_OK;
    char *copy = NULL, **pieces = NULL;
    int const room = (int)n_layers + 4;
    KV_TRY(kv_duplicate(&copy, text, err));
    KV_TRY(kv_allocate((void **)&pieces, (size_t)room, sizeof *pieces, err));
    int const n = kv_engine_split(copy, pieces, room);
    bool const is_shape = n >= 2 && strcmp(pieces[0], "--kv-cache-dtype") == 0;
    int32_t const base =
        is_shape ? kv_engine_type_find(&kv_engine_vllm, pieces[1], strlen(pieces[1])) : -1;
    bool const is_short = n == 2;
    if (base < 0 ||
        !(is_short || (n > 3 && strcmp(pieces[2], "--kv-cache-dtype-skip-layers") == 0)))
        KV_TRY(KV_FAIL(err, KV_EINPUT,
                       "not --kv-cache-dtype TYPE [--kv-cache-dtype-skip-layers LAYER...]: %s",
                       text));
    KV_TRY(kv_engine_fill(key, value, n_layers, base, base));
    if (!is_short) KV_TRY(read_skips(key, value, n_layers, policy, pieces + 3, n - 3, err));
done:
    kv_free(copy), kv_free(pieces);
    return status;
}

/* ---- scales: a safetensors file ---- */

/* Names, shapes and offsets, padded with spaces to a multiple of 8 bytes, and the numbers. */
static kv_status scale_tensors(kv_text *header, float *numbers, int64_t *count,
                               const kv_engine_fit *fit, const kv_policy *policy, kv_error *err)
{
    kv_status status = KV_OK;
    *count = 0;
    KV_TRY(kv_text_add(header, err, "{"));
    for (int64_t i = 0; i < 2 * fit->n_layers; i++) {
        const kv_engine_layer *const layer = &fit->layers[i / 2];
        bool const is_key = i % 2 == 0;
        int64_t const at = *count * (int64_t)sizeof *numbers;
        if (is_native(layer)) continue;
        KV_TRY(kv_engine_scale(&numbers[*count], policy, layer, is_key, err));
        KV_TRY(kv_text_add(header, err,
                           "%s\"model.layers.%" PRId64 ".self_attn.%c_scale\":{\"dtype\":\"F32\","
                           "\"shape\":[1],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}",
                           *count ? "," : "", layer->number, is_key ? 'k' : 'v', at,
                           at + (int64_t)sizeof *numbers));
        ++*count;
    }
    KV_TRY(kv_text_add(header, err, "}"));
    while (header->length % 8) KV_TRY(kv_text_add(header, err, " "));
done:
    return status;
}

static kv_status write_scales(const char *path, const kv_engine_fit *fit, const kv_policy *policy,
                              kv_error *err)
{
    kv_status status = KV_OK;
    kv_text header = {0};
    float *numbers = NULL;
    char *bytes = NULL;
    int64_t count;
    const kv_engine_layer *const base = base_layer(fit);
    const char *const words = base ? types[base->key].words : "auto";
    if (strcmp(words, "fp8") != 0 && strcmp(words, "nvfp4") != 0)
        return KV_FAIL(err, KV_EREQUEST, "vllm: %s takes no scales", words);
    KV_TRY(kv_allocate((void **)&numbers, 2 * (size_t)fit->n_layers, sizeof *numbers, err));
    KV_TRY(scale_tensors(&header, numbers, &count, fit, policy, err));
    size_t const data = (size_t)count * sizeof *numbers, size = 8 + header.length + data;
    KV_TRY(kv_allocate((void **)&bytes, size, 1, err));
    for (int i = 0; i < 8; i++) bytes[i] = (char)((uint64_t)header.length >> 8 * i);
    memcpy(bytes + 8, header.data, header.length);
    memcpy(bytes + 8 + header.length, numbers, data);
    KV_TRY(kv_file_replace(path, bytes, size, err));
done:
    kv_text_free(&header), kv_free(numbers), kv_free(bytes);
    return status;
}

/* ---- warnings ---- */

static kv_status warn(kv_engine_fit *fit, const kv_policy *policy, const char *scales,
                      kv_error *err)
{
    kv_status status = KV_OK;
    bool has_scale = false, is_static = false, is_native_any = false, has_gap = false;
    const kv_engine_layer *const base = base_layer(fit);
    (void)policy;
    for (int64_t l = 0; l < fit->n_layers; l++) {
        const kv_engine_layer *const layer = &fit->layers[l];
        has_scale |= has_own_scale(layer->key_scheme) || has_own_scale(layer->value_scheme);
        is_static |= strstr(layer->key_scheme, ":static=") != NULL;
        is_static |= strstr(layer->value_scheme, ":static=") != NULL;
        is_native_any |= is_native(layer);
        has_gap |= layer->number != l;
    }
    if (!base) goto done;
    if (has_scale && !scales)
        KV_TRY(kv_engine_warn(fit, err,
                              "without k_scale and v_scale in the checkpoint vLLM uses 1.0; "
                              "--scales FILE.safetensors writes them"));
    if (scales)
        KV_TRY(kv_engine_warn(
            fit, err,
            "%s belongs beside the checkpoint's weights, its tensors into "
            "model.safetensors.index.json; vLLM reads k_scale and v_scale where config.json's "
            "quantization_config has a KV method (compressed-tensors: kv_cache_scheme {num_bits: "
            "8, "
            "type: float, strategy: tensor, dynamic: false, symmetric: true})",
            scales));
    if (scales && is_static)
        KV_TRY(kv_engine_warn(fit, err,
                              "scales are from the largest numbers of the whole tensors, not of "
                              "the calibration tokens that static= names"));
    if (is_native_any)
        KV_TRY(kv_engine_warn(fit, err,
                              "all layers share one page size; padding of skipped layers' pages is "
                              "not in kvant's bytes"));
    if (has_gap)
        KV_TRY(kv_engine_warn(fit, err, "layers that the policy does not list become %s",
                              types[base->key].words));
done:
    return status;
}

const kv_engine kv_engine_vllm = {
    .name = "vllm",
    .about = "options of vllm serve MODEL",
    .source = "vLLM vllm/config/cache.py, vllm/model_executor/layers/attention/attention.py, "
              "csrc/quantization/w8a8/fp8/nvidia/quant_utils.cuh, vllm/v1/attention/backends",
    .types = types,
    .n_types = sizeof types / sizeof types[0],
    .shape = KV_SHAPE_SKIP,
    .is_tied = true,
    .warn = warn,
    .write = write,
    .read = read,
    .write_scales = write_scales,
};
