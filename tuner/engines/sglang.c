/* SGLang: one cache dtype for keys and values of all layers (server_args.py,
 * mem_cache/kv_cache_dtype.py), and for fp8_e4m3 a JSON file with one scaling factor per layer that
 * keys and values share (--quantization-param-path). */
#include <inttypes.h>
#include <string.h>

#include "kernels/file.h"
#include "kernels/memory.h"
#include "tuner/engine_state.h"

enum { F16 = 1, BF16 };

static const kv_engine_type types[] = {
    {.words = "auto", .key = {"f16"}, .mode = F16, .is_native = true, .needs = KV_NEEDS_F16},
    {.words = "auto", .key = {"bf16"}, .mode = BF16, .is_native = true, .needs = KV_NEEDS_BF16},
    {.words = "fp8_e4m3",
     .key = {"e4m3/tensor", "e4m3/tensor:unit"},
     .open = KV_OPEN_STATIC,
     .note = "SGLang divides by the scale in bf16 before it rounds, and what is out of range may "
             "become NaN where kvant saturates"},
    {.words = "fp8_e5m2",
     .key = {"e5m2/tensor:unit"},
     .note = "what is out of range may become infinite or NaN where kvant saturates"},
    {.words = "mxfp8", .key = {"e4m3/1x32:scale=e8m0"}, .needs = "SM100 or later and FA4"},
    {.words = "fp4_mx_block16",
     .key = {"e2m1/1x16:scale=e8m0"},
     .note = "SGLang rounds ties up, kvant to even"},
    {.words = "nvfp4",
     .refusal = "its arithmetic has not been read; three conventions for its "
                "global scale were found"},
    {.words = "fp4_e2m1", .refusal = "SGLang itself refuses it, see fp4_mx_block16"},
};

static bool has_own_scale(const char *scheme)
{
    return strncmp(scheme, "e4m3/tensor", 11) == 0 && !strstr(scheme, ":unit");
}

static kv_status write(kv_text *out, const kv_engine_fit *fit, const kv_policy *policy,
                       const char *scales, kv_error *err)
{
    kv_status status = KV_OK;
    (void)policy;
    KV_TRY(kv_text_add(out, err, "--kv-cache-dtype %s", types[fit->layers[0].key].words));
    if (scales) KV_TRY(kv_text_add(out, err, " --quantization-param-path %s", scales));
    KV_TRY(kv_text_add(out, err, "\n"));
done:
    return status;
}

static kv_status read(int32_t *key, int32_t *value, int64_t n_layers, const kv_policy *policy,
                      const char *text, kv_error *err)
{
    kv_status status = KV_OK;
    char *copy = NULL, *pieces[4];
    (void)policy;
    KV_TRY(kv_duplicate(&copy, text, err));
    int const n = kv_engine_split(copy, pieces, 4);
    bool is_good = n == 2 || (n == 4 && strcmp(pieces[2], "--quantization-param-path") == 0);
    is_good = is_good && strcmp(pieces[0], "--kv-cache-dtype") == 0;
    int32_t const row =
        is_good ? kv_engine_type_find(&kv_engine_sglang, pieces[1], strlen(pieces[1])) : -1;
    if (row < 0)
        KV_TRY(KV_FAIL(err, KV_EINPUT,
                       "not --kv-cache-dtype TYPE [--quantization-param-path FILE]: %s", text));
    KV_TRY(kv_engine_fill(key, value, n_layers, row, row));
done:
    kv_free(copy);
    return status;
}

/* {"kv_cache": {"dtype": "float8_e4m3fn", "scaling_factor": {RANK: {LAYER: FACTOR}}}} */
static kv_status write_scales(const char *path, const kv_engine_fit *fit, const kv_policy *policy,
                              kv_error *err)
{
    kv_status status = KV_OK;
    kv_text json = {0};
    char number[KV_REAL_TEXT];
    const char *const words = types[fit->layers[0].key].words;
    if (strcmp(words, "fp8_e4m3") != 0)
        return KV_FAIL(err, KV_EREQUEST, "sglang: %s takes no scales", words);
    KV_TRY(kv_text_add(&json, err,
                       "{\"kv_cache\": {\"dtype\": \"float8_e4m3fn\", \"scaling_factor\": "
                       "{\"0\": {"));
    for (int64_t l = 0; l < fit->n_layers; l++) {
        float key, value;
        KV_TRY(kv_engine_scale(&key, policy, &fit->layers[l], true, err));
        KV_TRY(kv_engine_scale(&value, policy, &fit->layers[l], false, err));
        KV_TRY(kv_text_add(&json, err, "%s\"%" PRId64 "\": %s", l ? ", " : "",
                           fit->layers[l].number,
                           kv_real_text(number, (double)(key > value ? key : value))));
    }
    KV_TRY(kv_text_add(&json, err, "}}}}\n"));
    KV_TRY(kv_file_replace(path, json.data, json.length, err));
done:
    kv_text_free(&json);
    return status;
}

static kv_status warn(kv_engine_fit *fit, const kv_policy *policy, const char *scales,
                      kv_error *err)
{
    kv_status status = KV_OK;
    bool has_scale = false;
    (void)policy;
    for (int64_t l = 0; l < fit->n_layers; l++)
        has_scale |=
            has_own_scale(fit->layers[l].key_scheme) || has_own_scale(fit->layers[l].value_scheme);
    if (has_scale && !scales)
        KV_TRY(kv_engine_warn(fit, err,
                              "without scales in the checkpoint SGLang uses 1.0; --scales "
                              "FILE.json writes them"));
    if (scales)
        KV_TRY(kv_engine_warn(fit, err,
                              "keys and values of a layer share one factor in %s, the larger of "
                              "the two, where kvant simulated one each; it is for one "
                              "tensor-parallel rank, and only models that define "
                              "load_kv_cache_scales read it",
                              scales));
done:
    return status;
}

const kv_engine kv_engine_sglang = {
    .name = "sglang",
    .about = "options of python -m sglang.launch_server --model-path MODEL",
    .source = "SGLang python/sglang/srt/server_args.py, mem_cache/kv_cache_dtype.py, "
              "mem_cache/memory_pool.py (set_kv_buffer)",
    .types = types,
    .n_types = sizeof types / sizeof types[0],
    .shape = KV_SHAPE_UNIFORM,
    .is_tied = true,
    .warn = warn,
    .write = write,
    .read = read,
    .write_scales = write_scales,
};
