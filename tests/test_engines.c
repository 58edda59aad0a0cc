/* Serving engines: on random small problems the search finds what plain enumeration of all
 * assignments finds; what is written reads back; outputs, refusals and notes to the letter. */
#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/memory.h"
#include "kernels/shorthand.h"
#include "tests/check.h"
#include "tuner/engine.h"
#include "tuner/problem_result.h"

enum { MAX_LAYERS = 6, MAX_SCHEMES = 12, MAX_CHOICES = 64 };

static uint64_t state = 20260917;

static int64_t draw(int64_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)n);
}

static const kv_engine *engine(const char *name)
{
    const kv_engine *found = NULL;
    kv_error err = {0};
    CHECK(kv_engine_find(&found, name, &err) == KV_OK, "%s", err.message);
    return found;
}

/* ---- plain enumeration ---- */

/* Whether row t of an engine computes a text in a layer: listed to the letter, and not unfit. */
static bool is_row(const kv_engine *e, int t, const char *text, bool is_key,
                   const kv_policy *policy, int64_t number)
{
    const kv_engine_type *const type = &e->types[t];
    const char *const *const own = is_key || !type->value[0] ? type->key : type->value;
    kv_quantizer q;
    kv_error err = {0};
    bool is_listed = false;
    for (int i = 0; own[i]; i++) is_listed |= strcmp(own[i], text) == 0;
    if (!is_listed || kv_quantizer_parse(&q, text, is_key, &err) != KV_OK) return false;
    return !e->unfit || !e->unfit(type, &q, is_key, policy, number);
}

static bool modes_go(const kv_engine *e, int a, int b)
{
    int const x = e->types[a].mode, y = e->types[b].mode;
    return !x || !y || x == y;
}

static int runs_of(const int *rows, int64_t n)
{
    int runs = 1;
    for (int64_t l = 1; l < n; l++) runs += rows[l] != rows[l - 1];
    return runs;
}

/* Whether rows per layer are a policy of the engine, from the words of engine.h alone. */
static bool is_expressible(const kv_engine *e, const int *key, const int *value, int64_t n)
{
    for (int64_t a = 0; a < n; a++)
        for (int64_t b = 0; b < n; b++) {
            if (!modes_go(e, key[a], key[b]) || !modes_go(e, value[a], value[b])) return false;
            if (!e->is_mode_per_tensor && !modes_go(e, key[a], value[b])) return false;
        }
    for (int64_t a = 0; a < n; a++)
        if (e->is_tied && key[a] != value[a]) return false;
    if (e->shape == KV_SHAPE_FREE) return true;
    if (e->shape == KV_SHAPE_UNIFORM) return runs_of(key, n) == 1 && runs_of(value, n) == 1;
    if (e->shape == KV_SHAPE_ENDS) return runs_of(key, n) <= 3 && runs_of(value, n) <= 3;
    int64_t base = -1; /* SKIP */
    for (int64_t l = 0; l < n; l++) {
        if (e->types[key[l]].is_native && e->types[value[l]].is_native) continue;
        if (base >= 0 && (key[l] != key[base] || value[l] != value[base])) return false;
        base = base < 0 ? l : base;
    }
    return true;
}

typedef struct {
    const kv_engine *e;
    const kv_problem *p;
    const kv_policy *policy;
    const kv_engine_budget *budget;
    int key[MAX_LAYERS], value[MAX_LAYERS];
    int32_t choice[MAX_LAYERS];
    uint32_t keys[MAX_LAYERS][MAX_CHOICES], values[MAX_LAYERS][MAX_CHOICES]; /* rows */
    bool is_found, is_feasible;
    int64_t bytes;
    double error;
} search;

static void judge(search *s)
{
    if (!is_expressible(s->e, s->key, s->value, s->p->n_layers)) return;
    int64_t const bytes = kv_problem_bytes(s->p, s->choice);
    double const error = kv_problem_error(s->p, s->choice);
    bool const by_bytes = s->budget->max_bytes > 0;
    bool const is_feasible =
        by_bytes ? bytes <= s->budget->max_bytes : error <= s->budget->max_error;
    bool const bytes_first = is_feasible != by_bytes;
    bool is_less = bytes_first ? bytes < s->bytes || (bytes == s->bytes && error < s->error)
                               : error < s->error || (error == s->error && bytes < s->bytes);
    if (is_feasible != s->is_feasible) is_less = is_feasible;
    if (s->is_found && !is_less) return;
    s->is_found = true, s->is_feasible = is_feasible, s->bytes = bytes, s->error = error;
}

/* The rows of every choice; none where its schemes do not go together. */
static void find_rows(search *s)
{
    for (int64_t l = 0; l < s->p->n_layers; l++)
        for (int64_t c = 0; c < s->p->layers[l].n_choices; c++) {
            const kv_choice *const at = &s->p->layers[l].choices[c];
            int64_t const number = s->p->layers[l].number;
            const char *const key = s->p->keys.schemes[at->key];
            const char *const value = s->p->values.schemes[at->value];
            kv_quantizer k, v;
            kv_error err = {0};
            s->keys[l][c] = s->values[l][c] = 0;
            kv_quantizer_parse(&k, key, true, &err), kv_quantizer_parse(&v, value, false, &err);
            if (s->e->unfit_pair && s->e->unfit_pair(&k, &v)) continue;
            for (int t = 0; t < (int)s->e->n_types; t++) {
                if (is_row(s->e, t, key, true, s->policy, number))
                    s->keys[l][c] |= UINT32_C(1) << t;
                if (is_row(s->e, t, value, false, s->policy, number))
                    s->values[l][c] |= UINT32_C(1) << t;
            }
        }
}

static void enumerate(search *s, int64_t layer)
{
    if (layer == s->p->n_layers || layer == MAX_LAYERS) {
        judge(s);
        return;
    }
    int const n = (int)s->e->n_types;
    for (int32_t c = 0; c < s->p->layers[layer].n_choices; c++) {
        s->choice[layer] = c;
        for (int a = 0; a < n; a++)
            for (int b = 0; (s->keys[layer][c] >> a & 1) && b < n; b++) {
                if (!(s->values[layer][c] >> b & 1)) continue;
                s->key[layer] = a, s->value[layer] = b;
                enumerate(s, layer + 1);
            }
    }
}

/* ---- problems ---- */

/* Some of the texts of an engine's types, often not the first ones, and one that no engine has. */
static int64_t pick_schemes(char **out, const kv_engine *e, bool is_key)
{
    int64_t n = 0;
    size_t const skip = draw(2) ? (size_t)draw((int64_t)e->n_types) : 0;
    for (size_t i = 0; i < e->n_types && n < 4; i++) {
        const kv_engine_type *const type = &e->types[(i + skip) % e->n_types];
        const char *const *const own = is_key || !type->value[0] ? type->key : type->value;
        for (int s = 0; own[s] && n < 4; s++) {
            bool is_new = draw(3) > 0;
            for (int64_t k = 0; k < n; k++) is_new &= strcmp(out[k], own[s]) != 0;
            if (is_new) out[n++] = (char *)(uintptr_t)own[s];
        }
    }
    if (!n) out[n++] = (char *)(uintptr_t)e->types[0].key[0];
    if (draw(2)) out[n++] = (char *)(uintptr_t) "int3/token";
    return n;
}

/* A separable problem with small dyadic errors, so that sums are exact and ties are common. */
static kv_problem *make_problem(const kv_engine *e, int64_t layers)
{
    kv_problem *p = NULL;
    kv_error err = {0};
    char *key_texts[MAX_SCHEMES], *value_texts[MAX_SCHEMES];
    double key_error[MAX_LAYERS * MAX_SCHEMES], value_error[MAX_LAYERS * MAX_SCHEMES];
    int64_t key_bytes[MAX_LAYERS * MAX_SCHEMES], value_bytes[MAX_LAYERS * MAX_SCHEMES];
    int64_t numbers[MAX_LAYERS];
    kv_problem_side keys = {.schemes = key_texts, .error = key_error, .bytes = key_bytes};
    kv_problem_side values = {.schemes = value_texts, .error = value_error, .bytes = value_bytes};
    keys.n = pick_schemes(key_texts, e, true), values.n = pick_schemes(value_texts, e, false);
    for (int64_t l = 0; l < layers; l++) numbers[l] = l;
    for (int64_t i = 0; i < layers * keys.n; i++)
        key_error[i] = (double)draw(9) / 16, key_bytes[i] = draw(6);
    for (int64_t i = 0; i < layers * values.n; i++)
        value_error[i] = (double)draw(9) / 16, value_bytes[i] = draw(6);
    kv_status const status = kv_problem_create(&p, layers, numbers, &keys, &values, NULL, 0, &err);
    CHECK(status == KV_OK, "%s", err.message);
    return p;
}

/* Takes away that choices add up, and some choices. */
static void spoil(kv_problem *p)
{
    p->is_separable = false;
    for (int64_t l = 0; l < p->n_layers; l++) {
        kv_problem_layer *const layer = &p->layers[l];
        for (int64_t c = 0; c < layer->n_choices; c++) {
            layer->choices[c].error = (double)draw(12) / 16, layer->choices[c].bytes = draw(9);
            if (draw(8) == 0 && layer->n_choices > 1)
                layer->choices[c] = layer->choices[--layer->n_choices];
        }
    }
}

static kv_policy make_policy(kv_policy_layer *layers, int64_t n, int64_t head_dim)
{
    kv_policy const policy = {.title = (char *)(uintptr_t) "test",
                              .budget = (double)NAN,
                              .additive_error = (double)NAN,
                              .verified_error = (double)NAN,
                              .n_layers = n,
                              .layers = layers};
    for (int64_t l = 0; l < n; l++)
        layers[l] = (kv_policy_layer){.layer = l,
                                      .head_dim = head_dim,
                                      .kv_heads = 8,
                                      .window = 0,
                                      .error = (double)NAN,
                                      .key_absmax = (double)NAN,
                                      .value_absmax = (double)NAN};
    return policy;
}

/* What was written reads back as the same words. */
static void check_round_trip(const kv_engine_fit *fit, const kv_policy *policy)
{
    const kv_engine *const e = fit->engine;
    int32_t key[MAX_LAYERS], value[MAX_LAYERS];
    kv_text text = {0};
    kv_error err = {0};
    kv_status status = e->write(&text, fit, policy, NULL, &err);
    if (status == KV_OK) status = e->read(key, value, fit->n_layers, policy, text.data, &err);
    CHECK(status == KV_OK, "%s: %s", e->name, err.message);
    for (int64_t l = 0; status == KV_OK && l < fit->n_layers; l++) {
        const char *const k = e->types[fit->layers[l].key].words;
        const char *const v = e->types[fit->layers[l].value].words;
        CHECK(strcmp(e->types[key[l]].words, k) == 0, "%s: layer %" PRId64 " of\n%s", e->name, l,
              text.data);
        CHECK(strcmp(e->types[value[l]].words, v) == 0, "%s: layer %" PRId64 " of\n%s", e->name, l,
              text.data);
    }
    kv_text_free(&text);
}

static void check_fit(const kv_engine *e, const kv_problem *p, const kv_policy *policy,
                      const kv_engine_budget *budget, int64_t *n_found)
{
    kv_engine_fit fit = {0};
    kv_error err = {0};
    search s = {.e = e, .p = p, .policy = policy, .budget = budget};
    find_rows(&s), enumerate(&s, 0);
    kv_status const status = kv_engine_solve(&fit, e, p, policy, budget, &err);
    CHECK((status == KV_OK) == s.is_found, "%s: status %d, found %d: %s", e->name, status,
          s.is_found, err.message);
    CHECK(status == KV_OK || status == KV_EREQUEST, "%s: %s", e->name, err.message);
    if (status != KV_OK || !s.is_found) return;
    ++*n_found;
    CHECK(fit.is_feasible == s.is_feasible && fit.bytes == s.bytes && fit.error == s.error,
          "%s: feasible %d %d, bytes %" PRId64 " %" PRId64 ", error %g %g", e->name,
          fit.is_feasible, s.is_feasible, fit.bytes, s.bytes, fit.error, s.error);
    CHECK(fit.is_exact, "%s: called not exact", e->name);
    if (fit.is_feasible) {
        CHECK(fit.is_free_feasible, "%s: no free optimum", e->name);
        CHECK(budget->max_bytes ? fit.free_error <= fit.error : fit.free_bytes <= fit.bytes,
              "%s: better than the free optimum", e->name);
    }
    int key[MAX_LAYERS], value[MAX_LAYERS];
    for (int64_t l = 0; l < fit.n_layers; l++) key[l] = fit.layers[l].key;
    for (int64_t l = 0; l < fit.n_layers; l++) value[l] = fit.layers[l].value;
    CHECK(is_expressible(e, key, value, fit.n_layers), "%s: not expressible", e->name);
    check_round_trip(&fit, policy);
    kv_engine_fit_free_contents(&fit);
}

static void test_search(void)
{
    for (size_t i = 0; kv_engine_at(i); i++) {
        const kv_engine *const e = kv_engine_at(i);
        int64_t n_found = 0;
        for (int round = 0; round < 100; round++) {
            kv_policy_layer layers[MAX_LAYERS];
            int64_t const n = 1 + draw(e->shape == KV_SHAPE_ENDS ? 4 : 3);
            static const int64_t dims[] = {64, 128, 96, 192};
            kv_policy policy = make_policy(layers, n, dims[draw(4)]);
            kv_problem *const p = make_problem(e, n);
            if (!p) return;
            for (int64_t l = 0; l < n && draw(2); l++) layers[l].window = draw(2) * 512;
            if (round % 2) spoil(p);
            for (int b = 0; b < 3; b++) {
                kv_engine_budget const on_error = {.max_error = (double)draw((int64_t)n * 16) / 16};
                kv_engine_budget const on_bytes = {.max_bytes = 1 + draw(n * 10)};
                const kv_policy *const known = draw(4) ? &policy : NULL;
                check_fit(e, p, known, b % 2 ? &on_bytes : &on_error, &n_found);
            }
            kv_problem_free(p);
        }
        CHECK(n_found > 50, "%s: only %" PRId64 " problems had a policy", e->name, n_found);
    }
}

/* ---- outputs to the letter ---- */

/* One layer of a case: schemes, window, geometry. */
typedef struct {
    const char *key, *value;
    int64_t window;
} layer_case;

typedef struct {
    const char *engine;
    int64_t head_dim;
    layer_case layers[5];
    kv_status status;
    const char *expected; /* the output, or the message */
} output_case;

#define EXL                                                                                        \
    "FP16 = f16, 2 = exl2:hadamard=32, 3 = exl3:hadamard=32, 4 = exl4:hadamard=32, "               \
    "5 = exl5:hadamard=32, 6 = exl6:hadamard=32, 7 = exl7:hadamard=32, 8 = exl8:hadamard=32"

/* clang-format off */
static const output_case outputs[] = {
    {"vllm", 128, {{"f16", "f16", 0}, {"e4m3/tensor", "e4m3/tensor:static=512", 0}, {"e4m3/tensor:unit", "e4m3/tensor", 0}, {"f16", "f16", 0}}, KV_OK,
     "--kv-cache-dtype fp8 --kv-cache-dtype-skip-layers 0 3\n"},
    {"vllm", 128, {{"bf16", "bf16", 1024}, {"int8/token", "int8/token", 0}, {"bf16", "bf16", 1024}}, KV_OK,
     "--kv-cache-dtype int8_per_token_head --kv-cache-dtype-skip-layers sliding_window\n"},
    {"vllm", 128, {{"f16", "f16", 1024}, {"f16", "f16", 0}, {"e4m3/token", "e4m3/token", 0}}, KV_OK,
     "--kv-cache-dtype fp8_per_token_head --kv-cache-dtype-skip-layers 0 1\n"},
    {"vllm", 128, {{"f16", "f16", 0}}, KV_OK, "--kv-cache-dtype auto\n"},
    {"vllm", 128, {{"f16", "f16", 0}, {"bf16", "bf16", 0}}, KV_EREQUEST,
     "vllm: the layers differ in a way it cannot express: it has one type, and 16 bit in a chosen set of layers"},
    {"vllm", 128, {{"int8/token", "e4m3/token", 0}}, KV_EREQUEST,
     "vllm: layer 0: key int8/token with value e4m3/token: keys and values have the same type"},
    {"vllm", 128, {{"int8/token", "int8/token", 0}, {"e4m3/token", "e4m3/token", 0}}, KV_EREQUEST,
     "vllm: the layers differ in a way it cannot express: it has one type, and 16 bit in a chosen set of layers"},
    {"llama.cpp", 128, {{"q8_0:hadamard", "q4_0:hadamard=64", 0}}, KV_OK, "llama-server -fa on -ctk q8_0 -ctv q4_0\n"},
    {"llama.cpp", 128, {{"q8_0:hadamard=128", "f16", 0}}, KV_OK, "llama-server -fa on -ctk q8_0 -ctv f16\n"},
    {"llama.cpp", 192, {{"q8_0:hadamard=64", "q8_0:hadamard=64", 0}}, KV_OK, "llama-server -fa on -ctk q8_0 -ctv q8_0\n"},
    {"llama.cpp", 64, {{"q4_0:hadamard", "q4_0:hadamard", 0}}, KV_OK, "llama-server -fa on -ctk q4_0 -ctv q4_0\n"},
    {"llama.cpp", 96, {{"q4_0", "q4_0", 0}}, KV_OK, "llama-server -fa on -ctk q4_0 -ctv q4_0\n"},
    {"llama.cpp", 128, {{"q8_0", "q4_0", 0}}, KV_OK, "LLAMA_ATTN_ROT_DISABLE=1 llama-server -fa on -ctk q8_0 -ctv q4_0\n"},
    {"llama.cpp", 0, {{"q8_0:hadamard", "q8_0:hadamard=64", 0}}, KV_OK, "llama-server -fa on -ctk q8_0 -ctv q8_0\n"},
    {"llama.cpp", 128, {{"q8_0:hadamard", "q8_0", 0}}, KV_EREQUEST,
     "llama.cpp: layer 0: key q8_0:hadamard with value q8_0: a switch of the whole cache would have to be on and off"},
    {"llama.cpp", 128, {{"q8_0:hadamard", "q8_0:hadamard", 0}}, KV_EREQUEST,
     "llama.cpp: layer 0: value q8_0:hadamard: values are rotated in blocks of 64 (:hadamard=64)"},
    {"llama.cpp", 96, {{"q8_0:hadamard=32", "q8_0", 0}}, KV_EREQUEST,
     "llama.cpp: layer 0: key q8_0:hadamard=32: llama.cpp does not rotate here: head_dim is no multiple of 64, or differs between layers"},
    {"llama.cpp", 80, {{"q8_0", "q8_0", 0}}, KV_EREQUEST, "llama.cpp: layer 0: key q8_0: blocks of 32 do not divide head_dim"},
    {"llama.cpp", 128, {{"q5_1:hadamard", "q4_1:hadamard=64", 0}}, KV_OK, "llama-server -fa on -ctk q5_1 -ctv q4_1\n"},
    {"llama.cpp", 96, {{"q5_0", "iq4_nl", 0}}, KV_OK, "llama-server -fa on -ctk q5_0 -ctv iq4_nl\n"},
    {"llama.cpp", 128, {{"iq4_nl", "q5_0", 0}}, KV_OK, "LLAMA_ATTN_ROT_DISABLE=1 llama-server -fa on -ctk iq4_nl -ctv q5_0\n"},
    {"llama.cpp", 128, {{"q5_1:hadamard", "q5_1", 0}}, KV_EREQUEST,
     "llama.cpp: layer 0: key q5_1:hadamard with value q5_1: a switch of the whole cache would have to be on and off"},
    {"llama.cpp", 128, {{"f16", "f16", 0}, {"q8_0", "f16", 0}}, KV_EREQUEST,
     "llama.cpp: the layers differ in a way it cannot express: it has one key and one value type for all layers"},
    {"llama.cpp", 128, {{"int4/token", "f16", 0}}, KV_EREQUEST,
     "llama.cpp: layer 0: key int4/token is none of the cache types that kvant can simulate: f16 = f16, bf16 = bf16, f32 = f32, "
     "q8_0 = q8_0:hadamard (values q8_0:hadamard=64), q8_0 = q8_0, q5_1 = q5_1:hadamard (values q5_1:hadamard=64), q5_1 = q5_1, "
     "q5_0 = q5_0:hadamard (values q5_0:hadamard=64), q5_0 = q5_0, q4_1 = q4_1:hadamard (values q4_1:hadamard=64), q4_1 = q4_1, "
     "q4_0 = q4_0:hadamard (values q4_0:hadamard=64), q4_0 = q4_0, iq4_nl = iq4_nl:hadamard (values iq4_nl:hadamard=64), iq4_nl = iq4_nl; "
     "kvant list engines says why others are refused"},
    {"ik_llama.cpp", 128, {{"q8_0", "q4_0", 0}, {"q4_0", "q4_0", 0}, {"q4_0", "q4_0", 0}, {"f16", "q8_0", 0}, {"f16", "q8_0", 0}}, KV_OK,
     "llama-server -ctk q4_0 -ctv q4_0 -ctk-first q8_0,1 -ctk-last f16,2 -ctv-last q8_0,2\n"},
    {"ik_llama.cpp", 128, {{"q8_0", "q4_0:hadamard", 0}, {"q8_0", "f16", 0}, {"q4_0", "f16", 0}}, KV_OK,
     "llama-server -ctk q8_0 -ctv f16 -ctk-last q4_0,1 -ctv-first q4_0,1 -vhad\n"},
    {"ik_llama.cpp", 128, {{"int8/token:hadamard=128", "int8/token", 0}}, KV_OK, "llama-server -ctk q8_KV -ctv q8_KV -khad\n"},
    {"ik_llama.cpp", 128, {{"q5_1:hadamard", "iq4_nl", 0}, {"q5_1:hadamard", "iq4_nl", 0}, {"q4_1:hadamard", "q5_0", 0}}, KV_OK,
     "llama-server -ctk q5_1 -ctv iq4_nl -ctk-last q4_1,1 -ctv-last q5_0,1 -khad\n"},
    {"ik_llama.cpp", 128, {{"q8_0", "f16", 0}, {"q8_0:hadamard", "f16", 0}}, KV_EREQUEST,
     "ik_llama.cpp: the layers differ in a way it cannot express: it has one type, another in the first N and another in the last M layers, keys and values apart"},
    {"ik_llama.cpp", 128, {{"f16", "f16", 0}, {"q8_0", "f16", 0}, {"f16", "f16", 0}, {"q8_0", "f16", 0}}, KV_EREQUEST,
     "ik_llama.cpp: the layers differ in a way it cannot express: it has one type, another in the first N and another in the last M layers, keys and values apart"},
    {"ik_llama.cpp", 128, {{"q8_0:hadamard=64", "f16", 0}}, KV_EREQUEST,
     "ik_llama.cpp: layer 0: key q8_0:hadamard=64: -khad and -vhad rotate over head_dim (:hadamard)"},
    {"transformers", 128, {{"int4/1x64:zero:scale=bf16:flush=128", "int4/1x64:zero:scale=bf16:flush=128", 0}, {"f16", "f16", 512}, {"f16", "f16", 0}, {"int2/1x32:zero", "int2/1x32:zero", 0}}, KV_OK,
     "from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer, QuantoQuantizedLayer\n"
     "\n\ndef kv_cache():\n"
     "    \"\"\"A new cache for model.generate(..., past_key_values=kv_cache()).\"\"\"\n"
     "    return Cache(layers=[\n"
     "        QuantoQuantizedLayer(nbits=4, axis_key=0, axis_value=0, q_group_size=64, residual_length=128),\n"
     "        DynamicSlidingWindowLayer(sliding_window=512),\n"
     "        DynamicLayer(),\n"
     "        QuantoQuantizedLayer(nbits=2, axis_key=0, axis_value=0, q_group_size=32, residual_length=1),\n"
     "    ])\n"},
    {"transformers", 128, {{"int4/1x64:zero", "int2/1x64:zero", 0}}, KV_EREQUEST,
     "transformers: layer 0: key int4/1x64:zero with value int2/1x64:zero: a layer object has one nbits for keys and values"},
    {"transformers", 128, {{"int4/1x64:zero", "int4/1x32:zero", 0}}, KV_EREQUEST,
     "transformers: layer 0: key int4/1x64:zero with value int4/1x32:zero: a layer object has one q_group_size and residual_length for keys and values"},
    {"transformers", 128, {{"int4/1x64:zero", "int4/1x64:zero", 512}}, KV_EREQUEST,
     "transformers: layer 0: key int4/1x64:zero: transformers has no quantized layer with a sliding window"},
    {"transformers", 96, {{"int4/1x64:zero", "int4/1x64:zero", 0}}, KV_EREQUEST,
     "transformers: layer 0: key int4/1x64:zero: quanto's groups would run over the end of a token: the group does not divide head_dim"},
    {"kvtuner", 128, {{"int8/token:zero", "int4/token:zero", 0}, {"int4/token:zero:scale=f16", "int2/token:zero", 0}}, KV_OK,
     "# KVTuner per_layer_config_path, for residual_length=0,q_group_size=-1,axis_key=0,axis_value=0\n"
     "0:\n  nbits_key: 8\n  nbits_value: 4\n1:\n  nbits_key: 4\n  nbits_value: 2\n"},
    {"kvtuner", 128, {{"int2/32x1:zero:flush=32", "int4/1x32:zero:flush=32", 0}}, KV_OK,
     "# KVTuner per_layer_config_path, for residual_length=32,q_group_size=32,axis_key=1,axis_value=0\n"
     "0:\n  nbits_key: 2\n  nbits_value: 4\n"},
    {"kvtuner", 128, {{"int2/32x1:zero:flush=32", "int4/token:zero", 0}}, KV_EREQUEST,
     "kvtuner: layer 0: key int2/32x1:zero:flush=32 with value int4/token:zero: a switch of the whole cache would have to be on and off"},
    {"lmdeploy", 128, {{"int4/token:zero:scale=f16", "int4/token:zero:scale=f16", 0}}, KV_OK, "--quant-policy 4\n"},
    {"lmdeploy", 128, {{"int8/token:zero:scale=bf16", "int8/token:zero:scale=bf16", 0}}, KV_OK, "--quant-policy 8\n"},
    {"lmdeploy", 128, {{"e4m3/tensor:unit", "e4m3/tensor:unit", 0}}, KV_OK, "--backend pytorch --quant-policy 16\n"},
    {"lmdeploy", 128, {{"e5m2/tensor:unit", "e5m2/tensor:unit", 0}}, KV_OK, "--backend pytorch --quant-policy 17\n"},
    {"lmdeploy", 128, {{"bf16", "bf16", 0}}, KV_OK, "--quant-policy 0\n"},
    {"lmdeploy", 128, {{"e4m3/tensor", "e4m3/tensor", 0}}, KV_EREQUEST,
     "lmdeploy: layer 0: key e4m3/tensor is none of the cache types that kvant can simulate: 0 = f16, 0 = bf16, "
     "4 = int4/token:zero:scale=f16, 4 = int4/token:zero:scale=bf16, 8 = int8/token:zero:scale=f16, "
     "8 = int8/token:zero:scale=bf16, 16 = e4m3/tensor:unit, 17 = e5m2/tensor:unit; kvant list engines says why others are refused"},
    {"sglang", 128, {{"e4m3/tensor", "e4m3/tensor", 0}, {"e4m3/tensor:static=seed:4", "e4m3/tensor:unit", 0}}, KV_OK, "--kv-cache-dtype fp8_e4m3\n"},
    {"sglang", 128, {{"e4m3/1x32:scale=e8m0", "e4m3/1x32:scale=e8m0", 0}}, KV_OK, "--kv-cache-dtype mxfp8\n"},
    {"sglang", 128, {{"e2m1/1x16:scale=e8m0", "e2m1/1x16:scale=e8m0", 0}}, KV_OK, "--kv-cache-dtype fp4_mx_block16\n"},
    {"tensorrt-llm", 128, {{"e4m3/tensor", "e4m3/tensor", 0}}, KV_OK,
     "from tensorrt_llm.llmapi import KvCacheConfig\n\nkv_cache_config = KvCacheConfig(dtype=\"fp8\")\n"},
    {"exllamav3", 128, {{"f16", "f16", 0}}, KV_OK, "cache_mode: FP16\n"},
    {"exllamav3", 128, {{"exl6:hadamard=32", "exl5:hadamard=32", 0}}, KV_OK, "cache_mode: \"6,5\"\n"},
    {"exllamav3", 0, {{"exl8:hadamard=32", "exl2:hadamard=32", 0}}, KV_OK, "cache_mode: \"8,2\"\n"},
    {"exllamav3", 128, {{"f16", "exl4:hadamard=32", 0}}, KV_EREQUEST,
     "exllamav3: layer 0: key f16 with value exl4:hadamard=32: a switch of the whole cache would have to be on and off"},
    {"exllamav3", 80, {{"exl4:hadamard=32", "exl4:hadamard=32", 0}}, KV_EREQUEST,
     "exllamav3: layer 0: key exl4:hadamard=32: groups of 32 do not divide head_dim"},
    {"exllamav3", 128, {{"exl4", "exl4", 0}}, KV_EREQUEST,
     "exllamav3: layer 0: key exl4 is none of the cache types that kvant can simulate: " EXL "; kvant list engines says why others are refused"},
    /* types kvant cannot simulate, of tables measured in the engine itself */
    {"exllamav3", 128, {{"6", "5", 0}, {"6", "5", 0}}, KV_OK, "cache_mode: \"6,5\"\n"},
    {"ik_llama.cpp", 128, {{"q6_0", "q4_0", 0}}, KV_OK, "llama-server -ctk q6_0 -ctv q4_0\n"},
    {"transformers", 0, {{"quanto 4", "quanto 4", 0}}, KV_OK,
     "from transformers.cache_utils import Cache, QuantoQuantizedLayer\n"
     "\n\ndef kv_cache():\n"
     "    \"\"\"A new cache for model.generate(..., past_key_values=kv_cache()).\"\"\"\n"
     "    return Cache(layers=[\n"
     "        QuantoQuantizedLayer(nbits=4, axis_key=0, axis_value=0, q_group_size=64, residual_length=128),\n"
     "    ])\n"},
    {"exllamav3", 128, {{"int4/token", "int4/token", 0}}, KV_EREQUEST,
     "exllamav3: layer 0: key int4/token is none of the cache types that kvant can simulate: " EXL "; kvant list engines says why others are refused"},
};
/* clang-format on */

/* A policy of a case's layers; the texts are borrowed. */
static kv_policy policy_of(kv_policy_layer *layers, const layer_case *cases, int64_t head_dim)
{
    int64_t n = 0;
    while (n < 5 && cases[n].key) n++;
    kv_policy const policy = make_policy(layers, n, head_dim);
    for (int64_t l = 0; l < n; l++) {
        layers[l].key = (char *)(uintptr_t)cases[l].key;
        layers[l].value = (char *)(uintptr_t)cases[l].value;
        layers[l].window = cases[l].window;
        layers[l].bytes = 100 + l, layers[l].error = 0.25;
        layers[l].key_absmax = 44.8 * (double)(l + 1), layers[l].value_absmax = 4.48;
    }
    return policy;
}

static void test_outputs(void)
{
    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++) {
        const output_case *const c = &outputs[i];
        kv_policy_layer layers[5];
        kv_policy const policy = policy_of(layers, c->layers, c->head_dim);
        kv_problem *problem = NULL;
        kv_engine_fit fit = {0};
        kv_error err = {0};
        const kv_engine *const e = engine(c->engine);
        CHECK(kv_problem_of_policy(&problem, &policy, &err) == KV_OK, "%s", err.message);
        kv_status const status = kv_engine_solve(&fit, e, problem, &policy,
                                                 &(kv_engine_budget){.max_error = INFINITY}, &err);
        CHECK(status == c->status, "case %zu, %s: status %d: %s", i, e->name, status, err.message);
        if (status == KV_OK && c->status == KV_OK) {
            kv_text text = {0};
            CHECK(e->write(&text, &fit, &policy, NULL, &err) == KV_OK, "%s", err.message);
            CHECK_TEXT(text.data, c->expected);
            check_round_trip(&fit, &policy);
            kv_text_free(&text);
        } else if (status != KV_OK) {
            CHECK_TEXT(err.message, c->expected);
        }
        kv_engine_fit_free_contents(&fit);
        kv_problem_free(problem);
    }
}

int main(void)
{
    test_outputs();
    test_search();
    return check_done();
}
