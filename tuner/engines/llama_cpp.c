/* llama.cpp: one key and one value type for the whole model (common/arg.cpp, llama-kv-cache.cpp).
 *
 * Since April 2026 (pull request 21038) quantized keys and values are rotated by Hadamard matrices
 * where all layers of a cache have one head_dim that is a multiple of 64: keys over the largest
 * 64 * 2^j that divides head_dim, values in blocks of 64. LLAMA_ATTN_ROT_DISABLE=1 turns both off,
 * so that each quantized type has two rows. */
#include <inttypes.h>
#include <string.h>

#include "kernels/memory.h"
#include "tuner/engine_state.h"

enum { ROTATED = 1, PLAIN };

#define Q8_NOTE                                                                                    \
    "kvant follows ggml's reference; x86 rounds halves of q8_0 to even and CUDA divides "          \
    "approximately, so that a code may differ by one"
#define BLOCK_NOTE                                                                                 \
    "kvant follows ggml's reference; CUDA divides approximately, so that a code or the last bit "  \
    "of a scale may differ"
#define ROTATION_NEEDS "llama.cpp of April 2026 or later, which rotates by itself"

/* Both rows of a quantized type. */
#define BLOCKS(type, its_note)                                                                     \
    {.words = type,                                                                                \
     .key = {type ":hadamard", type},                                                              \
     .value = {type ":hadamard=64", type},                                                         \
     .open = KV_OPEN_ROTATION,                                                                     \
     .mode = ROTATED,                                                                              \
     .note = its_note,                                                                             \
     .needs = ROTATION_NEEDS},                                                                     \
    {                                                                                              \
        .words = type, .key = {type}, .mode = PLAIN, .note = its_note                              \
    }

static const kv_engine_type types[] = {
    {.words = "f16", .key = {"f16"}, .is_native = true},
    {.words = "bf16", .key = {"bf16"}, .is_native = true},
    {.words = "f32", .key = {"f32"}},
    BLOCKS("q8_0", Q8_NOTE),
    BLOCKS("q5_1", BLOCK_NOTE),
    BLOCKS("q5_0", BLOCK_NOTE),
    BLOCKS("q4_1", BLOCK_NOTE),
    BLOCKS("q4_0", BLOCK_NOTE),
    BLOCKS("iq4_nl", BLOCK_NOTE),
};

/* The block over which a layer is rotated; 0: not rotated, -1: not known. */
static int64_t rotation(const kv_policy *policy, int64_t number, bool is_key)
{
    int64_t const head_dim = kv_engine_head_dim(policy, number);
    int64_t const window = kv_engine_window(policy, number);
    if (head_dim <= 0) return -1;
    for (int64_t l = 0; l < policy->n_layers; l++) {
        const kv_policy_layer *const other = &policy->layers[l];
        bool const is_same_cache = (other->window > 0) == (window > 0);
        if (is_same_cache && other->head_dim && other->head_dim != head_dim) return 0;
    }
    int64_t block = 64;
    if (head_dim % block) return 0;
    while (is_key && head_dim % (2 * block) == 0) block *= 2;
    return block;
}

static const char *unfit_rotation(const kv_quantizer *scheme, bool is_key, const kv_policy *policy,
                                  int64_t number)
{
    const kv_transform_setting *const hadamard = &scheme->transforms[KV_TRANSFORM_HADAMARD];
    int64_t const head_dim = kv_engine_head_dim(policy, number);
    int64_t const expected = rotation(policy, number, is_key);
    int64_t const found = hadamard->value > 0 ? (int64_t)hadamard->value : head_dim;
    if (expected < 0 && is_key)
        return hadamard->is_on && hadamard->value == 0
                   ? NULL
                   : "head_dim is not known; keys are rotated over head_dim (:hadamard)";
    if (expected < 0)
        return hadamard->is_on && found == 64 ? NULL
                                              : "values are rotated in blocks of 64 (:hadamard=64)";
    if (expected == 0)
        return hadamard->is_on ? "llama.cpp does not rotate here: head_dim is no multiple of 64, "
                                 "or differs between layers"
                               : NULL;
    if (!hadamard->is_on) return "llama.cpp rotates here";
    if (found == expected) return NULL;
    return is_key ? "keys are rotated over the largest 64*2^j that divides head_dim"
                  : "values are rotated in blocks of 64 (:hadamard=64)";
}

static const char *unfit(const kv_engine_type *type, const kv_quantizer *scheme, bool is_key,
                         const kv_policy *policy, int64_t number)
{
    if (!type->mode) return NULL;
    if (kv_engine_head_dim(policy, number) % 32) return "blocks of 32 do not divide head_dim";
    return type->mode == ROTATED ? unfit_rotation(scheme, is_key, policy, number) : NULL;
}

/* What CUDA's flash attention reads in a default build (ggml-cuda/fattn.cu). */
static bool is_built(const kv_engine_type *type)
{
    static const char *const words[] = {"f16", "bf16", "q8_0", "q4_0"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(words[i], type->words) == 0) return true;
    return false;
}

static kv_status warn(kv_engine_fit *fit, const kv_policy *policy, const char *scales,
                      kv_error *err)
{
    kv_status status = KV_OK;
    const kv_engine_type *const key = &types[fit->layers[0].key];
    const kv_engine_type *const value = &types[fit->layers[0].value];
    bool const is_rotated = key->mode == ROTATED || value->mode == ROTATED;
    (void)scales;
    if (strcmp(key->words, "iq4_nl") == 0 || strcmp(value->words, "iq4_nl") == 0)
        KV_TRY(kv_engine_warn(fit, err,
                              "CUDA has no flash attention for iq4_nl: attention silently runs on "
                              "the CPU"));
    else if (key != value || !is_built(key))
        KV_TRY(kv_engine_warn(fit, err,
                              "CUDA needs a build with -DGGML_CUDA_FA_ALL_QUANTS=ON for -ctk %s "
                              "-ctv %s; without it attention silently runs on the CPU",
                              key->words, value->words));
    if (is_rotated && kv_engine_head_dim(policy, fit->layers[0].number) == 0)
        KV_TRY(kv_engine_warn(fit, err,
                              "head_dim is not in the policy: taken as 64, 128 or 256 in every "
                              "layer, where keys are rotated over all of it"));
done:
    return status;
}

static kv_status write(kv_text *out, const kv_engine_fit *fit, const kv_policy *policy,
                       const char *scales, kv_error *err)
{
    const kv_engine_type *const key = &types[fit->layers[0].key];
    const kv_engine_type *const value = &types[fit->layers[0].value];
    bool const is_plain = key->mode == PLAIN || value->mode == PLAIN;
    (void)policy, (void)scales;
    return kv_text_add(out, err, "%sllama-server -fa on -ctk %s -ctv %s\n",
                       is_plain ? "LLAMA_ATTN_ROT_DISABLE=1 " : "", key->words, value->words);
}

/* The row of these words under a switch. */
static int32_t find_row(const char *words, bool is_plain)
{
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
        if (strcmp(types[t].words, words) == 0 &&
            (!types[t].mode || (types[t].mode == PLAIN) == is_plain))
            return (int32_t)t;
    return -1;
}

static kv_status read(int32_t *key, int32_t *value, int64_t n_layers, const kv_policy *policy,
                      const char *text, kv_error *err)
{
    kv_status status = KV_OK;
    char *copy = NULL, *pieces[16], **at = pieces;
    (void)policy;
    KV_TRY(kv_duplicate(&copy, text, err));
    int n = kv_engine_split(copy, pieces, 16);
    bool const is_plain = n > 0 && strcmp(pieces[0], "LLAMA_ATTN_ROT_DISABLE=1") == 0;
    at += is_plain, n -= is_plain;
    bool const is_shape = n == 7 && strcmp(at[0], "llama-server") == 0 &&
                          strcmp(at[1], "-fa") == 0 && strcmp(at[2], "on") == 0 &&
                          strcmp(at[3], "-ctk") == 0 && strcmp(at[5], "-ctv") == 0;
    int32_t const k = is_shape ? find_row(at[4], is_plain) : -1;
    int32_t const v = is_shape ? find_row(at[6], is_plain) : -1;
    if (k < 0 || v < 0)
        KV_TRY(KV_FAIL(err, KV_EINPUT, "not llama-server -fa on -ctk TYPE -ctv TYPE: %s", text));
    KV_TRY(kv_engine_fill(key, value, n_layers, k, v));
done:
    kv_free(copy);
    return status;
}

const kv_engine kv_engine_llama_cpp = {
    .name = "llama.cpp",
    .about = "command line of llama-server; add -m MODEL.gguf",
    .source = "llama.cpp common/arg.cpp (--cache-type-k/v), src/llama-kv-cache.cpp, "
              "ggml/src/ggml-quants.c, ggml/src/ggml-cuda/fattn.cu, pull request 21038",
    .types = types,
    .n_types = sizeof types / sizeof types[0],
    .shape = KV_SHAPE_UNIFORM,
    .unfit = unfit,
    .warn = warn,
    .write = write,
    .read = read,
    .no_scales = "ggml's blocks carry their own scales",
};
