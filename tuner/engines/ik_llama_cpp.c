/* ik_llama.cpp: per tensor a type, another for the first N and another for the last M layers
 * (pull request 1599; src/llama.cpp: layer i < N takes the first, i >= n_layer - M the last one,
 * the last wins). -khad and -vhad rotate keys and values by a Hadamard matrix over head_dim before
 * they are quantized; unquantized types are left alone. */
#include <inttypes.h>
#include <string.h>

#include "kernels/memory.h"
#include "tuner/engine_state.h"

enum { ROTATED = 1, PLAIN };

#define Q8_NOTE "kvant follows ggml's reference; vectorized and CUDA code may differ by one code"
#define BLOCK_NOTE                                                                                 \
    "kvant follows ggml's reference; ik_llama.cpp's own CPU code may store a least-squares "       \
    "scale (iqk_quantize_q4_0), and CUDA code may differ by one code"
#define KV_NOTE                                                                                    \
    "ik_llama.cpp also stores an int32 sum, 4 bytes a token and head more than kvant counts"
#define NO_Q6                                                                                      \
    "its scale is m/-32 on CUDA and a least-squares one on the CPU; kvant has no such format yet"

/* Both rows of a quantized type. */
#define ROWS(its_words, scheme, its_note)                                                          \
    {.words = its_words, .key = {scheme}, .mode = PLAIN, .note = its_note},                        \
    {                                                                                              \
        .words = its_words, .key = {scheme ":hadamard"}, .open = KV_OPEN_ROTATION,                 \
        .mode = ROTATED, .note = its_note                                                          \
    }

static const kv_engine_type types[] = {
    {.words = "f16", .key = {"f16"}, .is_native = true},
    {.words = "bf16", .key = {"bf16"}, .is_native = true},
    {.words = "f32", .key = {"f32"}},
    ROWS("q8_0", "q8_0", Q8_NOTE),
    ROWS("q8_KV", "int8/token", KV_NOTE),
    ROWS("q5_1", "q5_1", BLOCK_NOTE),
    ROWS("q5_0", "q5_0", BLOCK_NOTE),
    ROWS("q4_1", "q4_1", BLOCK_NOTE),
    ROWS("q4_0", "q4_0", BLOCK_NOTE),
    ROWS("iq4_nl", "iq4_nl", BLOCK_NOTE),
    {.words = "q6_0", .mode = PLAIN, .refusal = NO_Q6},
};
enum { N_TYPES = sizeof types / sizeof types[0] };

static const char *unfit(const kv_engine_type *type, const kv_quantizer *scheme, bool is_key,
                         const kv_policy *policy, int64_t number)
{
    int64_t const head_dim = kv_engine_head_dim(policy, number);
    double const block = scheme->transforms[KV_TRANSFORM_HADAMARD].value;
    (void)is_key;
    if (!type->mode) return NULL;
    if (head_dim % 32) return "blocks of 32 do not divide head_dim";
    if (type->mode == ROTATED && block > 0 && block != (double)head_dim)
        return "-khad and -vhad rotate over head_dim (:hadamard)";
    return NULL;
}

/* ---- runs ---- */

/* What the options of one tensor say; counts 0: not given. */
typedef struct {
    int base, first, last;
    int64_t n_first, n_last;
    bool is_rotated;
} ends;

static int32_t row_of(const kv_engine_fit *fit, int64_t layer, bool is_key)
{
    return is_key ? fit->layers[layer].key : fit->layers[layer].value;
}

/* A fit's layers are at most three runs; of two the longer one is the base. */
static ends ends_of(const kv_engine_fit *fit, bool is_key)
{
    int64_t const layers = fit->n_layers;
    int64_t first = 1, last = 1;
    while (first < layers && row_of(fit, first, is_key) == row_of(fit, 0, is_key)) first++;
    while (last < layers &&
           row_of(fit, layers - 1 - last, is_key) == row_of(fit, layers - 1, is_key))
        last++;
    ends e = {row_of(fit, 0, is_key),
              row_of(fit, 0, is_key),
              row_of(fit, layers - 1, is_key),
              first,
              last,
              false};
    if (first == layers)
        e.n_first = e.n_last = 0;
    else if (first + last < layers)
        e.base = row_of(fit, first, is_key);
    else if (first > last)
        e.n_first = 0;
    else
        e.base = e.last, e.n_last = 0;
    for (int64_t l = 0; l < layers; l++)
        e.is_rotated |= types[row_of(fit, l, is_key)].mode == ROTATED;
    return e;
}

static kv_status write_ends(kv_text *out, const ends *e, const char *name, kv_error *err)
{
    kv_status status = KV_OK;
    if (e->n_first)
        KV_TRY(kv_text_add(out, err, " -%s-first %s,%" PRId64, name, types[e->first].words,
                           e->n_first));
    if (e->n_last)
        KV_TRY(
            kv_text_add(out, err, " -%s-last %s,%" PRId64, name, types[e->last].words, e->n_last));
done:
    return status;
}

static kv_status write(kv_text *out, const kv_engine_fit *fit, const kv_policy *policy,
                       const char *scales, kv_error *err)
{
    kv_status status = KV_OK;
    ends const key = ends_of(fit, true), value = ends_of(fit, false);
    (void)policy, (void)scales;
    KV_TRY(kv_text_add(out, err, "llama-server -ctk %s -ctv %s", types[key.base].words,
                       types[value.base].words));
    KV_TRY(write_ends(out, &key, "ctk", err));
    KV_TRY(write_ends(out, &value, "ctv", err));
    KV_TRY(kv_text_add(out, err, "%s%s\n", key.is_rotated ? " -khad" : "",
                       value.is_rotated ? " -vhad" : ""));
done:
    return status;
}

static kv_status warn(kv_engine_fit *fit, const kv_policy *policy, const char *scales,
                      kv_error *err)
{
    kv_status status = KV_OK;
    bool is_quantized = false, is_rotated = false;
    (void)scales;
    for (int64_t l = 0; l < fit->n_layers; l++) {
        is_quantized |= types[fit->layers[l].value].mode != 0;
        is_rotated |= types[fit->layers[l].key].mode == ROTATED;
        is_rotated |= types[fit->layers[l].value].mode == ROTATED;
    }
    if (is_quantized)
        KV_TRY(kv_engine_warn(fit, err, "quantized values need flash attention (-fa)"));
    if (is_rotated && kv_engine_head_dim(policy, 0) == 0)
        KV_TRY(kv_engine_warn(fit, err, "head_dim is not in the policy: taken as a power of two"));
    KV_TRY(kv_engine_warn(fit, err,
                          "-ct*-first and -ct*-last are not honoured for OpenPangu, and need "
                          "ik_llama.cpp of 2026-04-12 or later (#1599, #1626)"));
done:
    return status;
}

/* ---- reading ---- */

static int find_row(const char *words, size_t length, bool is_rotated)
{
    for (int t = 0; t < N_TYPES; t++)
        if (strlen(types[t].words) == length && memcmp(types[t].words, words, length) == 0 &&
            (!types[t].mode || (types[t].mode == ROTATED) == is_rotated))
            return t;
    return -1;
}

/* "q8_0,2" */
static bool parse_end(int *row, int64_t *count, const char *text, bool is_rotated)
{
    const char *const comma = strchr(text, ',');
    if (!comma) return false;
    *row = find_row(text, (size_t)(comma - text), is_rotated);
    return *row >= 0 && kv_parse_int(comma + 1, count) && *count >= 0;
}

static bool read_option(ends *e, const char *option, const char *argument)
{
    if (strcmp(option, "") == 0) {
        e->base = find_row(argument, strlen(argument), e->is_rotated);
        return e->base >= 0;
    }
    if (strcmp(option, "-first") == 0)
        return parse_end(&e->first, &e->n_first, argument, e->is_rotated);
    return strcmp(option, "-last") == 0 && parse_end(&e->last, &e->n_last, argument, e->is_rotated);
}

static void spread(int32_t *rows, int64_t n_layers, const ends *e)
{
    for (int64_t l = 0; l < n_layers; l++) {
        rows[l] = e->base;
        if (l < e->n_first) rows[l] = e->first;
        if (l >= n_layers - e->n_last) rows[l] = e->last;
    }
}

static kv_status read(int32_t *key, int32_t *value, int64_t n_layers, const kv_policy *policy,
                      const char *text, kv_error *err)
{
    kv_status status = KV_OK;
    char *copy = NULL, *pieces[32];
    ends k = {.base = -1}, v = {.base = -1};
    (void)policy;
    KV_TRY(kv_duplicate(&copy, text, err));
    int const n = kv_engine_split(copy, pieces, 32);
    for (int i = 1; i < n; i++) {
        k.is_rotated |= strcmp(pieces[i], "-khad") == 0;
        v.is_rotated |= strcmp(pieces[i], "-vhad") == 0;
    }
    bool is_good = n > 0 && strcmp(pieces[0], "llama-server") == 0;
    for (int i = 1; i < n && is_good; i++) {
        const char *const piece = pieces[i];
        if (strcmp(piece, "-khad") == 0 || strcmp(piece, "-vhad") == 0) continue;
        bool const is_key = strncmp(piece, "-ctk", 4) == 0;
        is_good = (is_key || strncmp(piece, "-ctv", 4) == 0) && i + 1 < n &&
                  read_option(is_key ? &k : &v, piece + 4, pieces[i + 1]);
        i++;
    }
    if (!is_good || k.base < 0 || v.base < 0)
        KV_TRY(KV_FAIL(err, KV_EINPUT, "not llama-server -ctk TYPE -ctv TYPE ...: %s", text));
    spread(key, n_layers, &k), spread(value, n_layers, &v);
done:
    kv_free(copy);
    return status;
}

const kv_engine kv_engine_ik_llama_cpp = {
    .name = "ik_llama.cpp",
    .about = "command line of llama-server; add -m MODEL.gguf",
    .source = "ik_llama.cpp common/common.cpp, src/llama.cpp (first and last layers), "
              "src/llama-build-context.cpp (Hadamard), pull request 1599",
    .types = types,
    .n_types = N_TYPES,
    .shape = KV_SHAPE_ENDS,
    .is_mode_per_tensor = true,
    .needs_all_layers = true,
    .unfit = unfit,
    .warn = warn,
    .write = write,
    .read = read,
    .no_scales = "ggml's blocks carry their own scales",
};
