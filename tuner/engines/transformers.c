/* Hugging Face transformers: Python that builds Cache(layers=[...]) with one object per layer
 * (src/transformers/cache_utils.py): DynamicLayer, DynamicSlidingWindowLayer or
 * QuantoQuantizedLayer with one nbits, group size and residual length for keys and values. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/memory.h"
#include "kernels/shorthand.h"
#include "tuner/engine_state.h"

enum { F16 = 1, BF16 };

#define QUANTO_NOTE                                                                                \
    "quanto computes scale, shift and codes in the model's 16-bit type; transformers quantizes "   \
    "the whole history anew when the residual is full, and attends exactly during prefill"
#define NO_HQQ "HQQ fits its zero points by an iteration that kvant does not have"

static const kv_engine_type types[] = {
    {.words = "DynamicLayer",
     .key = {"f16"},
     .mode = F16,
     .is_native = true,
     .needs = KV_NEEDS_F16},
    {.words = "DynamicLayer",
     .key = {"bf16"},
     .mode = BF16,
     .is_native = true,
     .needs = KV_NEEDS_BF16},
    {.words = "quanto 2",
     .key = {"int2/1x64:zero"},
     .open = KV_OPEN_SCALE | KV_OPEN_FLUSH | KV_OPEN_GROUP,
     .note = QUANTO_NOTE,
     .needs = "optimum-quanto 0.2.5 or later"},
    {.words = "quanto 4",
     .key = {"int4/1x64:zero"},
     .open = KV_OPEN_SCALE | KV_OPEN_FLUSH | KV_OPEN_GROUP,
     .note = QUANTO_NOTE,
     .needs = "optimum-quanto 0.2.5 or later"},
    {.words = "quanto axis -1",
     .refusal = "its groups run over tokens, heads and batch of a channel; kvant's tiles stay "
                "inside a head"},
    {.words = "hqq 1", .refusal = NO_HQQ},
    {.words = "hqq 2", .refusal = NO_HQQ},
    {.words = "hqq 3", .refusal = NO_HQQ},
    {.words = "hqq 4", .refusal = NO_HQQ},
    {.words = "hqq 8", .refusal = NO_HQQ},
};

static const char *unfit(const kv_engine_type *type, const kv_quantizer *scheme, bool is_key,
                         const kv_policy *policy, int64_t number)
{
    int64_t const head_dim = kv_engine_head_dim(policy, number);
    (void)is_key;
    if (type->is_native) return NULL;
    if (kv_engine_window(policy, number) > 0)
        return "transformers has no quantized layer with a sliding window";
    if (head_dim % scheme->tile_channels)
        return "quanto's groups would run over the end of a token: the group does not divide "
               "head_dim";
    return NULL;
}

static const char *unfit_pair(const kv_quantizer *key, const kv_quantizer *value)
{
    if (key->format != value->format) return "a layer object has one nbits for keys and values";
    if (key->tile_channels != value->tile_channels || key->flush != value->flush)
        return "a layer object has one q_group_size and residual_length for keys and values";
    return NULL;
}

static kv_status write_layer(kv_text *out, const kv_engine_layer *layer, int64_t window,
                             kv_error *err)
{
    kv_status status = KV_OK;
    kv_quantizer q;
    kv_error ignored = {0};
    if (types[layer->key].is_native && window > 0)
        return kv_text_add(out, err, "DynamicSlidingWindowLayer(sliding_window=%" PRId64 "),\n",
                           window);
    if (types[layer->key].is_native) return kv_text_add(out, err, "DynamicLayer(),\n");
    /* What is no shorthand was measured in transformers itself: with its defaults. */
    if (kv_quantizer_parse(&q, layer->key_scheme, true, &ignored) != KV_OK)
        q = (kv_quantizer){.tile_channels = 64, .flush = 128};
    KV_TRY(kv_text_add(out, err,
                       "QuantoQuantizedLayer(nbits=%c, axis_key=0, axis_value=0, "
                       "q_group_size=%" PRId64 ", residual_length=%" PRId64 "),\n",
                       types[layer->key].words[7], q.tile_channels, q.flush ? q.flush : 1));
done:
    return status;
}

/* Which classes are used: only those are imported. */
static kv_status write_imports(kv_text *out, const kv_engine_fit *fit, const kv_policy *policy,
                               kv_error *err)
{
    bool is_dynamic = false, is_sliding = false, is_quanto = false;
    for (int64_t l = 0; l < fit->n_layers; l++) {
        bool const is_native = types[fit->layers[l].key].is_native;
        bool const has_window = kv_engine_window(policy, fit->layers[l].number) > 0;
        is_dynamic |= is_native && !has_window;
        is_sliding |= is_native && has_window;
        is_quanto |= !is_native;
    }
    return kv_text_add(out, err, "from transformers.cache_utils import Cache%s%s%s\n",
                       is_dynamic ? ", DynamicLayer" : "",
                       is_sliding ? ", DynamicSlidingWindowLayer" : "",
                       is_quanto ? ", QuantoQuantizedLayer" : "");
}

static kv_status write(kv_text *out, const kv_engine_fit *fit, const kv_policy *policy,
                       const char *scales, kv_error *err)
{
    kv_status status = KV_OK;
    (void)scales;
    KV_TRY(write_imports(out, fit, policy, err));
    KV_TRY(kv_text_add(out, err,
                       "\n\ndef kv_cache():\n"
                       "    \"\"\"A new cache for model.generate(..., past_key_values=kv_cache())."
                       "\"\"\"\n"
                       "    return Cache(layers=[\n"));
    for (int64_t l = 0; l < fit->n_layers; l++) {
        KV_TRY(kv_text_add(out, err, "        "));
        KV_TRY(write_layer(out, &fit->layers[l], kv_engine_window(policy, fit->layers[l].number),
                           err));
    }
    KV_TRY(kv_text_add(out, err, "    ])\n"));
done:
    return status;
}

/* One line of the list; -1 for anything else. */
static int32_t read_layer(const char *line)
{
    static const char *const quanto = "QuantoQuantizedLayer(nbits=";
    line += strspn(line, " ");
    if (strncmp(line, "DynamicLayer()", 14) == 0) return 0;
    if (strncmp(line, "DynamicSlidingWindowLayer(", 26) == 0) return 0;
    if (strncmp(line, quanto, strlen(quanto)) != 0) return -1;
    char words[] = "quanto ?";
    words[7] = line[strlen(quanto)];
    return kv_engine_type_find(&kv_engine_transformers, words, strlen(words));
}

static kv_status read(int32_t *key, int32_t *value, int64_t n_layers, const kv_policy *policy,
                      const char *text, kv_error *err)
{
    static const char *const opening = "    return Cache(layers=[\n";
    const char *at = strstr(text, opening);
    (void)policy;
    if (at) at += strlen(opening);
    for (int64_t l = 0; at && l < n_layers; l++) {
        key[l] = value[l] = read_layer(at);
        const char *const end = strchr(at, '\n');
        at = key[l] >= 0 && end ? end + 1 : NULL;
    }
    if (!at || strcmp(at, "    ])\n") != 0)
        return KV_FAIL(err, KV_EINPUT, "not Cache(layers=[...]) of %" PRId64 " layers", n_layers);
    return KV_OK;
}

static kv_status warn(kv_engine_fit *fit, const kv_policy *policy, const char *scales,
                      kv_error *err)
{
    (void)scales;
    for (int64_t l = 0; l < fit->n_layers; l++)
        if (kv_engine_window(policy, fit->layers[l].number) < 0)
            return kv_engine_warn(fit, err,
                                  "the policy does not say which layers have a sliding window; "
                                  "all are taken to have none");
    return KV_OK;
}

const kv_engine kv_engine_transformers = {
    .name = "transformers",
    .about = "Python: kv_cache() makes a Cache with one layer object per layer",
    .source = "transformers src/transformers/cache_utils.py (Cache, QuantoQuantizedLayer), "
              "optimum-quanto quantize_affine",
    .types = types,
    .n_types = sizeof types / sizeof types[0],
    .shape = KV_SHAPE_FREE,
    .needs_all_layers = true,
    .unfit = unfit,
    .unfit_pair = unfit_pair,
    .warn = warn,
    .write = write,
    .read = read,
    .no_scales = "quanto computes its scales itself",
};
