/* `kvant export` below the command line: problems from result files and policies, what is written
 * to the letter, scales, refusals; long models against naive search. */
#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/file.h"
#include "kernels/memory.h"
#include "results/store.h"
#include "tests/check.h"
#include "tuner/engine.h"
#include "tuner/problem_result.h"

enum { MAX_LAYERS = 64, MAX_ROWS = 8 };

static uint64_t state = 7;

static int64_t draw(int64_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)n);
}

static char *text(const char *constant)
{
    return (char *)(uintptr_t)constant;
}

static const kv_engine *engine(const char *name)
{
    const kv_engine *found = NULL;
    kv_error err = {0};
    CHECK(kv_engine_find(&found, name, &err) == KV_OK, "%s", err.message);
    return found;
}

/* ---- problems ---- */

/* Errors and bytes of layer l: (l + 1) times those of the schemes. */
static kv_problem *make_problem(int64_t layers, char **keys, const double *key_error,
                                const int64_t *key_bytes, int64_t n_keys, char **values,
                                const double *value_error, const int64_t *value_bytes,
                                int64_t n_values)
{
    kv_problem *p = NULL;
    kv_error err = {0};
    int64_t numbers[MAX_LAYERS], kb[MAX_LAYERS * MAX_ROWS], vb[MAX_LAYERS * MAX_ROWS];
    double ke[MAX_LAYERS * MAX_ROWS], ve[MAX_LAYERS * MAX_ROWS];
    for (int64_t l = 0; l < layers; l++) {
        numbers[l] = l;
        for (int64_t i = 0; i < n_keys; i++)
            ke[l * n_keys + i] = (double)(l + 1) * key_error[i], kb[l * n_keys + i] = key_bytes[i];
        for (int64_t i = 0; i < n_values; i++) {
            ve[l * n_values + i] = (double)(l + 1) * value_error[i];
            vb[l * n_values + i] = value_bytes[i];
        }
    }
    kv_problem_side const k = {n_keys, keys, ke, kb}, v = {n_values, values, ve, vb};
    CHECK(kv_problem_create(&p, layers, numbers, &k, &v, NULL, 0, &err) == KV_OK, "%s",
          err.message);
    return p;
}

/* f16, fp8 and int8 per token for both: a small problem of four layers. */
static kv_problem *make_vllm_problem(void)
{
    char *schemes[] = {text("f16"), text("e4m3/tensor"), text("int8/token"), text("int4/channel")};
    double const key_error[] = {0, 0.25, 0.125, 0.03125}, value_error[] = {0, 0.125, 0.0625, 0.25};
    int64_t const bytes[] = {2000, 1000, 1100, 500};
    return make_problem(4, schemes, key_error, bytes, 4, schemes, value_error, bytes, 4);
}

static void check_same(const kv_problem *a, const kv_problem *b)
{
    CHECK(a->n_layers == b->n_layers && a->is_separable == b->is_separable, "%d %d",
          a->is_separable, b->is_separable);
    for (int64_t l = 0; l < a->n_layers; l++) {
        CHECK(a->layers[l].number == b->layers[l].number, "layer %" PRId64, l);
        CHECK(a->layers[l].n_choices == b->layers[l].n_choices, "layer %" PRId64, l);
        for (int64_t c = 0; c < a->layers[l].n_choices; c++) {
            const kv_choice *const x = &a->layers[l].choices[c];
            const char *const key = a->keys.schemes[x->key];
            const char *const value = a->values.schemes[x->value];
            int64_t const found = kv_problem_find(b, l, key, value);
            CHECK(found >= 0, "layer %" PRId64 ": %s | %s is lost", l, key, value);
            if (found < 0) continue;
            const kv_choice *const y = &b->layers[l].choices[found];
            CHECK(x->bytes == y->bytes && x->error == y->error, "layer %" PRId64, l);
        }
    }
}

static kv_record *record_of(const kv_problem *p)
{
    kv_record *record = NULL;
    kv_error err = {0};
    CHECK(kv_record_create(&record, &err) == KV_OK, "%s", err.message);
    CHECK(kv_problem_record(record, p, &err) == KV_OK, "%s", err.message);
    return record;
}

static void test_record(void)
{
    kv_problem *const p = make_vllm_problem();
    kv_error err = {0};
    for (int spoilt = 0; spoilt < 2; spoilt++) {
        kv_problem *back = NULL;
        if (spoilt) {
            p->is_separable = false;
            p->layers[1].choices[5].error = 0.75;
            p->layers[2].choices[3] = p->layers[2].choices[--p->layers[2].n_choices];
        }
        kv_record *const record = record_of(p);
        CHECK(kv_problem_of_record(&back, record, "r.h5", &err) == KV_OK, "%s", err.message);
        if (back) check_same(p, back), check_same(back, p);
        kv_problem_free(back), kv_record_free(record);
    }
    kv_problem_free(p);
}

static void test_bad_records(void)
{
    static const struct {
        const char *table;
        int64_t at;
        double value;
        const char *expected;
    } cases[] = {
        {"table_error", 5, -1,
         "r.h5: layer 0, key e4m3/tensor, value e4m3/tensor: error -1 and 2000 bytes: errors must "
         "be finite and not negative, bytes whole numbers"},
        {"table_error", 5, (double)INFINITY,
         "r.h5: layer 0, key e4m3/tensor, value e4m3/tensor: error inf and 2000 bytes: errors must "
         "be finite and not negative, bytes whole numbers"},
        {"table_bytes", 16, 0.5,
         "r.h5: layer 1, key f16, value f16: error 0 and 0.5 bytes: errors must be finite and not "
         "negative, bytes whole numbers"},
        {"table_bytes", 16, (double)NAN,
         "r.h5: layer 1, key f16, value f16: error 0 and nan bytes: errors must be finite and not "
         "negative, bytes whole numbers"},
        {NULL, 0, 0,
         "r.h5 is not the result of a tuning: it needs table_error and table_bytes over layer, "
         "key_scheme and value_scheme"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        kv_problem *const p = make_vllm_problem();
        kv_problem *back = NULL;
        kv_error err = {0};
        kv_record *record = record_of(p);
        if (cases[i].table) {
            kv_record_array(record, cases[i].table)->numbers[cases[i].at] = cases[i].value;
        } else {
            kv_record_free(record), record = NULL;
            CHECK(kv_record_create(&record, &err) == KV_OK, "%s", err.message);
        }
        CHECK(kv_problem_of_record(&back, record, "r.h5", &err) == KV_EINPUT, "case %zu", i);
        CHECK_TEXT(err.message, cases[i].expected);
        kv_record_free(record), kv_problem_free(p), kv_problem_free(back);
    }
}

/* ---- exports ---- */

/* A policy of four layers: keys int8/token, values as given; absmax known. */
static kv_policy make_policy(kv_policy_layer *layers, const char *key, const char *value)
{
    kv_policy const policy = {.title = text("test"),
                              .error_kind = text("stack_err"),
                              .budget_text = text("max_error 0.5"),
                              .budget = 0.5,
                              .additive_error = (double)NAN,
                              .verified_error = (double)NAN,
                              .verified_high = (double)NAN,
                              .n_layers = 4,
                              .layers = layers};
    for (int64_t l = 0; l < 4; l++)
        layers[l] = (kv_policy_layer){.layer = l,
                                      .key = text(key),
                                      .value = text(value),
                                      .error = (double)NAN,
                                      .kv_heads = 8,
                                      .head_dim = 128,
                                      .window = l == 2 ? 512 : 0,
                                      .key_absmax = 44.8 * (double)(l + 1),
                                      .value_absmax = l == 3 ? 0 : 8.96};
    return policy;
}

/* Exports and compares; `expected` is output, then notes, or the message. */
static void check_export(const char *name, const kv_policy *policy, const char *table,
                         const char *scales, kv_status status, bool is_feasible,
                         const char *expected)
{
    kv_text out = {0};
    kv_error err = {0};
    char *notes = NULL;
    size_t size = 0;
    bool feasible = false;
    FILE *const stream = open_memstream(&notes, &size);
    kv_engine_export_options const options = {table, scales};
    kv_status const found =
        kv_engine_export(&out, stream, &feasible, engine(name), policy, &options, &err);
    fclose(stream);
    CHECK(found == status, "%s: status %d: %s", name, found, err.message);
    CHECK(found != KV_OK || feasible == is_feasible, "%s: feasible %d", name, feasible);
    kv_text all = {0};
    if (found == KV_OK) CHECK(kv_text_add(&all, &err, "%s%s", out.data, notes) == KV_OK, "memory");
    CHECK_TEXT(found == KV_OK ? all.data : err.message, expected);
    kv_text_free(&all), kv_text_free(&out), free(notes);
}

#define QUERIES                                                                                    \
    "warning: fp8 is not simulated exactly: vLLM also quantizes queries to fp8 where the backend " \
    "does (FlashAttention 3, FlashInfer)\n"
#define HALF " needs a model in float16, as its 16-bit layers were simulated\n"
#define BLOCKS                                                                                     \
    " is not simulated exactly: kvant follows ggml's reference; CUDA divides approximately, so "   \
    "that a code or the last bit of a scale may differ\n"
#define EXL                                                                                        \
    ": exllamav3 takes and returns f16 where kvant has f32; companding (compand_a above 0) is "    \
    "not "                                                                                         \
    "simulated\n"
#define ABSENT "not considered, as no choice of the table is one: "
#define NO_VLLM                                                                                    \
    ABSENT "fp8_e5m2 (e5m2/tensor:unit), fp8_per_token_head (e4m3/token), int4_per_token_head "    \
           "(int4/token:hadamard+signs:zero), nvfp4 (e2m1/1x16:scale=e4m3)\n"
#define NO_EXL                                                                                     \
    ABSENT "2 (exl2:hadamard=32), 3 (exl3:hadamard=32), 4 (exl4:hadamard=32), 5 "                  \
           "(exl5:hadamard=32), 6 (exl6:hadamard=32), 7 (exl7:hadamard=32), 8 "                    \
           "(exl8:hadamard=32)\n"
#define PAGES                                                                                      \
    "warning: all layers share one page size; padding of skipped layers' pages is not in kvant's " \
    "bytes\n"

/* Budget: power 0.25. Free optimum and vLLM's best of the table were worked out by hand: see the
 * numbers of make_vllm_problem. */
static void test_exports(const char *table)
{
    kv_policy_layer layers[4];
    kv_policy policy = make_policy(layers, "int4/channel", "f16");
    /* own power 10 * 0.03125 = 0.3125, bytes 4 * 2500; more than the declared 0.25 */
    check_export("vllm", &policy, table, NULL, KV_OK, true,
                 "--kv-cache-dtype int8_per_token_head --kv-cache-dtype-skip-layers 1 2 3\n"
                 "vllm: the best of what it can express at an additive error of 0.559\n"
                 "vllm                 14200 bytes, additive error 0.433\n"
                 "free optimum         10000 bytes, additive error 0.559\n"
                 "regret               +4200 bytes (+42.0 %), error -0.126\n" NO_VLLM
                 "warning: auto" HALF
                 "warning: int8_per_token_head is not simulated exactly: vLLM rounds halves away "
                 "from zero, kvant to even, and keeps scales above 1e-6\n"
                 "warning: int8_per_token_head needs the TRITON_ATTN backend\n" PAGES);
    /* a budget on bytes: 4 * 2000 */
    policy = make_policy(layers, "e4m3/tensor", "e4m3/tensor");
    policy.budget_text = text("max_bytes 8000"), policy.budget = 8000;
    check_export("vllm", &policy, table, NULL, KV_OK, true,
                 "--kv-cache-dtype fp8\n"
                 "vllm: the best of what it can express at 8000 bytes\n"
                 "vllm                  8000 bytes, additive error 1.936\n"
                 "free optimum          7300 bytes, additive error 0.8292\n"
                 "regret                +700 bytes (+9.6 %), error +1.11\n" NO_VLLM QUERIES
                 "warning: without k_scale and v_scale in the checkpoint vLLM uses 1.0; --scales "
                 "FILE.safetensors writes them\n");
    /* nothing within the budget */
    policy = make_policy(layers, "int4/channel", "int4/channel");
    policy.budget_text = text("max_bytes 4000"), policy.budget = 4000;
    check_export("vllm", &policy, table, NULL, KV_OK, false,
                 "--kv-cache-dtype fp8\n"
                 "vllm: nothing it can express is within the budget; the nearest at 4000 bytes\n"
                 "vllm                  8000 bytes, additive error 1.936\n"
                 "free optimum          4000 bytes, additive error 1.677\n"
                 "regret               +4000 bytes (+100.0 %), error +0.259\n" NO_VLLM QUERIES
                 "warning: without k_scale and v_scale in the checkpoint vLLM uses 1.0; --scales "
                 "FILE.safetensors writes them\n");
    /* no table */
    policy = make_policy(layers, "q8_0", "q4_0");
    check_export("llama.cpp", &policy, NULL, NULL, KV_OK, true,
                 "LLAMA_ATTN_ROT_DISABLE=1 llama-server -fa on -ctk q8_0 -ctv q4_0\n"
                 "llama.cpp: the policy's own assignment; without a table (--table, or the "
                 "policy's result file) there is nothing to compare\n"
                 "warning: q8_0 is not simulated exactly: kvant follows ggml's reference; x86 "
                 "rounds halves of q8_0 to even and CUDA divides approximately, so that a code may "
                 "differ by one\n"
                 "warning: q4_0" BLOCKS
                 "warning: CUDA needs a build with -DGGML_CUDA_FA_ALL_QUANTS=ON for -ctk q8_0 -ctv "
                 "q4_0; without it attention silently runs on the CPU\n");
    policy = make_policy(layers, "q5_1:hadamard", "q5_1:hadamard=64");
    check_export("llama.cpp", &policy, NULL, NULL, KV_OK, true,
                 "llama-server -fa on -ctk q5_1 -ctv q5_1\n"
                 "llama.cpp: the policy's own assignment; without a table (--table, or the "
                 "policy's result file) there is nothing to compare\n"
                 "warning: q5_1" BLOCKS
                 "warning: q5_1 needs llama.cpp of April 2026 or later, which rotates by itself\n"
                 "warning: CUDA needs a build with -DGGML_CUDA_FA_ALL_QUANTS=ON for -ctk q5_1 -ctv "
                 "q5_1; without it attention silently runs on the CPU\n");
    policy = make_policy(layers, "iq4_nl:hadamard", "f16");
    check_export("llama.cpp", &policy, NULL, NULL, KV_OK, true,
                 "llama-server -fa on -ctk iq4_nl -ctv f16\n"
                 "llama.cpp: the policy's own assignment; without a table (--table, or the "
                 "policy's result file) there is nothing to compare\n"
                 "warning: iq4_nl" BLOCKS
                 "warning: iq4_nl needs llama.cpp of April 2026 or later, which rotates by itself\n"
                 "warning: CUDA has no flash attention for iq4_nl: attention silently runs on the "
                 "CPU\n");
    policy = make_policy(layers, "exl6:hadamard=32", "exl4:hadamard=32");
    check_export("exllamav3", &policy, NULL, NULL, KV_OK, true,
                 "cache_mode: \"6,4\"\n"
                 "exllamav3: the policy's own assignment; without a table (--table, or the "
                 "policy's result file) there is nothing to compare\n"
                 "warning: 4 is not simulated exactly" EXL
                 "warning: 6 is not simulated exactly" EXL);
    policy = make_policy(layers, "q4_1", "q8_0");
    check_export("ik_llama.cpp", &policy, NULL, NULL, KV_OK, true,
                 "llama-server -ctk q4_1 -ctv q8_0\n"
                 "ik_llama.cpp: the policy's own assignment; without a table (--table, or the "
                 "policy's result file) there is nothing to compare\n"
                 "warning: q8_0 is not simulated exactly: kvant follows ggml's reference; "
                 "vectorized and CUDA code may differ by one code\n"
                 "warning: q4_1 is not simulated exactly: kvant follows ggml's reference; "
                 "ik_llama.cpp's own CPU code may store a least-squares scale (iqk_quantize_q4_0), "
                 "and CUDA code may differ by one code\n"
                 "warning: quantized values need flash attention (-fa)\n"
                 "warning: -ct*-first and -ct*-last are not honoured for OpenPangu, and need "
                 "ik_llama.cpp of 2026-04-12 or later (#1599, #1626)\n");
    policy = make_policy(layers, "q8_0", "q4_0");
    policy.result = text("nowhere.h5");
    policy.layers[1].key = text("f16");
    check_export("llama.cpp", &policy, NULL, NULL, KV_EREQUEST, false,
                 "llama.cpp: the layers differ in a way it cannot express: it has one key and one "
                 "value type for all layers");
    check_export("llama.cpp", &policy, NULL, "s.json", KV_EREQUEST, false,
                 "llama.cpp takes no scales: ggml's blocks carry their own scales");
    /* choices that the table does not have, so that what was asked for is the budget */
    policy = make_policy(layers, "int3/token", "f16");
    check_export("exllamav3", &policy, table, NULL, KV_OK, true,
                 "cache_mode: FP16\n"
                 "exllamav3: the best of what it can express at an additive error of 0.5\n"
                 "exllamav3            16000 bytes, additive error 0\n"
                 "free optimum         10600 bytes, additive error 0.5\n"
                 "regret               +5400 bytes (+50.9 %), error -0.5\n" NO_EXL);
    policy.verified_error = 0.6, policy.additive_error = 0.4; /* kappa 2.25 */
    check_export("exllamav3", &policy, table, NULL, KV_OK, true,
                 "cache_mode: FP16\n"
                 "exllamav3: the best of what it can express at an additive error of 0.4\n"
                 "exllamav3            16000 bytes, additive error 0\n"
                 "free optimum         12100 bytes, additive error 0.3953\n"
                 "regret               +3900 bytes (+32.2 %), error -0.395\n" NO_EXL);
    policy.verified_error = 0.5, policy.verified_high = 0.6; /* the interval is what must hold */
    check_export("exllamav3", &policy, table, NULL, KV_OK, true,
                 "cache_mode: FP16\n"
                 "exllamav3: the best of what it can express at an additive error of 0.4\n"
                 "exllamav3            16000 bytes, additive error 0\n"
                 "free optimum         12100 bytes, additive error 0.3953\n"
                 "regret               +3900 bytes (+32.2 %), error -0.395\n" NO_EXL);
    policy = make_policy(layers, "int3/token", "f16");
    policy.budget_text = NULL;
    check_export("exllamav3", &policy, table, NULL, KV_EREQUEST, false,
                 "the policy says neither its error nor its bytes, and the table does not have its "
                 "choices: there is no budget to search at");
}

/* ---- scales ---- */

static char *read_file(const char *path, size_t *size)
{
    char *bytes = NULL;
    kv_error err = {0};
    CHECK(kv_file_read(&bytes, size, path, &err) == KV_OK, "%s", err.message);
    return bytes;
}

static void test_scales(void)
{
    static const char header[] =
        "{\"model.layers.1.self_attn.k_scale\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":"
        "[0,4]},\"model.layers.1.self_attn.v_scale\":{\"dtype\":\"F32\",\"shape\":[1],"
        "\"data_offsets\":[4,8]},\"model.layers.3.self_attn.k_scale\":{\"dtype\":\"F32\","
        "\"shape\":[1],\"data_offsets\":[8,12]},\"model.layers.3.self_attn.v_scale\":{\"dtype\":"
        "\"F32\",\"shape\":[1],\"data_offsets\":[12,16]}}";
    kv_policy_layer layers[4];
    kv_policy policy = make_policy(layers, "e4m3/tensor", "e4m3/tensor:unit");
    for (int l = 0; l < 4; l += 2) layers[l].key = layers[l].value = text("f16");
    layers[3].value = text("e4m3/tensor:static=64"); /* a value of absmax 0: scale 1 */
    kv_text out = {0};
    kv_error err = {0};
    bool is_feasible;
    size_t size = 0, length = strlen(header);
    char *notes = NULL;
    size_t notes_size = 0;
    FILE *const stream = open_memstream(&notes, &notes_size);
    kv_engine_export_options options = {.scales = "s.safetensors"};
    CHECK(kv_engine_export(&out, stream, &is_feasible, engine("vllm"), &policy, &options, &err) ==
              KV_OK,
          "%s", err.message);
    CHECK_TEXT(out.data, "--kv-cache-dtype fp8 --kv-cache-dtype-skip-layers 0 2\n");
    static const char simulated[] =
        "warning: s.safetensors holds scales of simulated heads, which are no model's: to serve a "
        "model, tune on its capture (heads.capture)\n";
    fflush(stream);
    CHECK(strstr(notes, simulated), "%s", notes);
    char *bytes = read_file("s.safetensors", &size);
    size_t const padded = (length + 7) / 8 * 8;
    CHECK(size == 8 + padded + 16, "%zu bytes", size);
    if (size == 8 + padded + 16) {
        uint64_t found = 0;
        float numbers[4];
        for (int i = 7; i >= 0; i--) found = found << 8 | (unsigned char)bytes[i];
        CHECK(found == padded, "header of %" PRIu64, found);
        memcpy(numbers, bytes + 8 + padded, sizeof numbers);
        bytes[8 + length] = '\0';
        CHECK_TEXT(bytes + 8, header);
        float const expected[] = {(float)89.6 / 448.0f, 1, (float)179.2 / 448.0f, 1};
        for (int i = 0; i < 4; i++) CHECK(numbers[i] == expected[i], "%d: %g", i, numbers[i]);
    }
    kv_free(bytes), kv_text_free(&out);

    for (int l = 0; l < 4; l++) layers[l].key = layers[l].value = text("e4m3/tensor");
    layers[1].value = text("e4m3/tensor:unit");
    options.scales = "s.json", policy.error_kind = text("out_err"); /* of a capture */
    CHECK(kv_engine_export(&out, stream, &is_feasible, engine("sglang"), &policy, &options, &err) ==
              KV_OK,
          "%s", err.message);
    CHECK_TEXT(out.data, "--kv-cache-dtype fp8_e4m3 --quantization-param-path s.json\n");
    bytes = read_file("s.json", &size);
    CHECK_TEXT(bytes, "{\"kv_cache\": {\"dtype\": \"float8_e4m3fn\", \"scaling_factor\": {\"0\": "
                      "{\"0\": 0.10000000149011612, \"1\": 1, \"2\": 0.29999998211860657, \"3\": "
                      "1}}}}\n");
    kv_free(bytes), kv_text_free(&out);
    fflush(stream);
    CHECK(!strstr(notes, "s.json holds scales"), "%s", notes);

    layers[2].key_absmax = (double)NAN;
    kv_status status =
        kv_engine_export(&out, stream, &is_feasible, engine("vllm"), &policy, &options, &err);
    CHECK(status == KV_EREQUEST, "status %d", status);
    CHECK_TEXT(err.message, "layer 2: the policy does not say the largest |key| (key_absmax), so "
                            "that no static scale is known");
    for (int l = 0; l < 4; l++) layers[l].key = layers[l].value = text("int8/token");
    err = (kv_error){0};
    status = kv_engine_export(&out, stream, &is_feasible, engine("vllm"), &policy, &options, &err);
    CHECK(status == KV_EREQUEST, "status %d", status);
    CHECK_TEXT(err.message, "vllm: int8_per_token_head takes no scales");
    fclose(stream), free(notes);
    remove("s.json"), remove("s.safetensors");
}

/* ---- names, readers ---- */

static void test_names(void)
{
    const kv_engine *found = NULL;
    kv_error err = {0};
    CHECK(kv_engine_find(&found, "lama.cpp", &err) == KV_EREQUEST, "found");
    CHECK_TEXT(err.message,
               "unknown engine \"lama.cpp\", did you mean \"llama.cpp\"? engines: vllm, llama.cpp, "
               "ik_llama.cpp, transformers, kvtuner, lmdeploy, sglang, exllamav3, tensorrt-llm");
    for (size_t i = 0; kv_engine_at(i); i++) {
        const kv_engine *const e = kv_engine_at(i);
        CHECK(engine(e->name) == e, "%s", e->name);
        CHECK(e->n_types <= KV_ENGINE_MAX_TYPES, "%s has %zu types", e->name, e->n_types);
        CHECK(!e->write_scales == !!e->no_scales, "%s: scales or a reason", e->name);
        for (size_t t = 0; t < e->n_types; t++)
            CHECK(!e->types[t].refusal == !!e->types[t].key[0], "%s: %s: schemes or a reason",
                  e->name, e->types[t].words);
    }
}

static void test_readers(void)
{
    static const char *const bad[] = {
        "",
        "\n",
        "junk",
        "--kv-cache-dtype",
        "--kv-cache-dtype fp7\n",
        "--kv-cache-dtype fp8 --kv-cache-dtype-skip-layers\n",
        "--kv-cache-dtype fp8 --kv-cache-dtype-skip-layers 4\n",
        "--kv-cache-dtype fp8 --kv-cache-dtype-skip-layers 0-1\n",
        "llama-server -fa on -ctk q8_0\n",
        "llama-server -fa on -ctk q8_0 -ctv\n",
        "llama-server -fa off -ctk q8_0 -ctv q8_0\n",
        "llama-server -ctk q8_0\n",
        "llama-server -ctk q8_0 -ctv q8_0 -ctk-first q4_0\n",
        "llama-server -ctk q8_0 -ctv q8_0 -ctk-first q4_0,-1\n",
        "llama-server -ctk q8_0 -ctv q8_0 -ctk-middle q4_0,1\n",
        "cache_mode: \"9,4\"\n",
        "cache_mode: 6,4\n",
        "--quant-policy 3\n",
        "--quant-policy 16\n",
        "--backend pytorch --quant-policy 8\n",
        "0:\n  nbits_key: 4\n",
        "0:\n  nbits_key: 3\n  nbits_value: 4\n",
        ("from tensorrt_llm.llmapi import KvCacheConfig\n\nkv_cache_config = "
         "KvCacheConfig(dtype=\"int7\")\n"),
        "    return Cache(layers=[\n        DynamicLayer(),\n    ])\n",
    };
    for (size_t i = 0; kv_engine_at(i); i++)
        for (size_t b = 0; b < sizeof bad / sizeof bad[0]; b++) {
            int32_t key[4], value[4];
            kv_error err = {0};
            kv_status const status = kv_engine_at(i)->read(key, value, 4, NULL, bad[b], &err);
            CHECK(status == KV_EINPUT || status == KV_EREQUEST, "%s reads \"%s\"",
                  kv_engine_at(i)->name, bad[b]);
            CHECK(err.message[0], "%s says nothing", kv_engine_at(i)->name);
        }
}

/* ---- long models: first and last layers ---- */

static int64_t rows_cost(const int *rows, const int64_t *cost, int64_t layers)
{
    int64_t sum = 0;
    for (int64_t l = 0; l < layers; l++) sum += cost[l * 3 + rows[l]];
    return sum;
}

/* All sequences of first, base, last over three rows, with repetitions, the naive way. */
typedef struct {
    int64_t bytes, error;
} cost;

static int64_t all_sequences(cost *out, const int64_t *bytes, const int64_t *errors, int64_t layers)
{
    int64_t n = 0;
    int rows[MAX_LAYERS];
    for (int code = 0; code < 27; code++)
        for (int64_t first = 0; first <= layers; first++)
            for (int64_t last = 0; last <= layers; last++) {
                for (int64_t l = 0; l < layers; l++) {
                    rows[l] = code / 9;
                    if (l < first) rows[l] = code / 3 % 3;
                    if (l >= layers - last) rows[l] = code % 3;
                }
                out[n++] = (cost){rows_cost(rows, bytes, layers), rows_cost(rows, errors, layers)};
            }
    return n;
}

static void test_ends(void)
{
    enum { L = 9, MAX_SEQUENCES = 27 * 10 * 10 };
    static cost keys[MAX_SEQUENCES], values[MAX_SEQUENCES];
    char *schemes[] = {text("f16"), text("q8_0"), text("q4_0")};
    for (int round = 0; round < 6; round++) {
        int64_t bytes[2][L * 3], errors[2][L * 3], numbers[L];
        double exact[2][L * 3];
        for (int i = 0; i < 2 * L * 3; i++) {
            int const tensor = i / (L * 3), at = i % (L * 3);
            bytes[tensor][at] = draw(50), errors[tensor][at] = draw(100);
            exact[tensor][at] = (double)errors[tensor][at] / 64;
        }
        for (int64_t l = 0; l < L; l++) numbers[l] = l;
        kv_problem_side const k = {3, schemes, exact[0], bytes[0]};
        kv_problem_side const v = {3, schemes, exact[1], bytes[1]};
        kv_problem *p = NULL;
        kv_engine_fit fit = {0};
        kv_error err = {0};
        CHECK(kv_problem_create(&p, L, numbers, &k, &v, NULL, 0, &err) == KV_OK, "%s", err.message);
        int64_t const n = all_sequences(keys, bytes[0], errors[0], L);
        all_sequences(values, bytes[1], errors[1], L);
        int64_t const limit = 300 + draw(400);
        int64_t least = INT64_MAX;
        for (int64_t a = 0; a < n; a++)
            for (int64_t b = 0; b < n; b++)
                if (keys[a].error + values[b].error <= limit &&
                    keys[a].bytes + values[b].bytes < least)
                    least = keys[a].bytes + values[b].bytes;
        kv_engine_budget const budget = {.max_error = (double)limit / 64};
        CHECK(kv_engine_solve(&fit, engine("ik_llama.cpp"), p, NULL, &budget, &err) == KV_OK, "%s",
              err.message);
        if (fit.is_feasible) CHECK(fit.bytes == least, "%" PRId64 " %" PRId64, fit.bytes, least);
        CHECK(fit.is_feasible == (least < INT64_MAX) && fit.is_exact, "round %d", round);
        kv_engine_fit_free_contents(&fit), kv_problem_free(p);
    }
}

/* Choices that do not add up, of a model too long for all pairs of sequences: not called exact, at
 * least as good as every uniform pair. */
static void test_ends_in_turn(void)
{
    enum { L = 48, N = 5 };
    char *schemes[N] = {text("f16"), text("q8_0"), text("q4_0"), text("int8/token"), text("bf16")};
    double const error[N] = {0, 1, 4, 2, 0.5};
    int64_t const bytes[N] = {40, 20, 10, 24, 39};
    kv_problem *const p = make_problem(L, schemes, error, bytes, N, schemes, error, bytes, N);
    kv_engine_fit fit = {0};
    kv_error err = {0};
    int64_t least = INT64_MAX;
    int32_t choice[L];
    p->is_separable = false;
    for (int64_t l = 0; l < L; l++)
        for (int64_t c = 0; c < p->layers[l].n_choices; c++)
            p->layers[l].choices[c].error *= 1 + (double)draw(8) / 16;
    double const limit = 1500;
    for (int32_t c = 0; c < N * N; c++) {
        for (int64_t l = 0; l < L; l++) choice[l] = c;
        if (kv_problem_error(p, choice) > limit) continue;
        int64_t const stored = kv_problem_bytes(p, choice);
        least = stored < least ? stored : least;
    }
    CHECK(kv_engine_solve(&fit, engine("ik_llama.cpp"), p, NULL,
                          &(kv_engine_budget){.max_error = limit}, &err) == KV_OK,
          "%s", err.message);
    CHECK(fit.is_feasible && !fit.is_exact, "feasible %d, exact %d", fit.is_feasible, fit.is_exact);
    CHECK(fit.bytes <= least, "%" PRId64 " bytes, uniform %" PRId64, fit.bytes, least);
    CHECK(fit.error <= limit, "error %g", fit.error);

    kv_record *const record = record_of(p);
    kv_policy const policy = {.title = text("test"),
                              .budget_text = text("max_error 1500"),
                              .budget = limit,
                              .verified_error = (double)NAN,
                              .additive_error = (double)NAN};
    kv_text out = {0};
    char *notes = NULL;
    size_t size = 0;
    bool is_feasible;
    FILE *const stream = open_memstream(&notes, &size);
    CHECK(kv_store_write("turn.h5", record, &err) == KV_OK, "%s", err.message);
    CHECK(kv_engine_export(&out, stream, &is_feasible, engine("ik_llama.cpp"), &policy,
                           &(kv_engine_export_options){.table = "turn.h5"}, &err) == KV_OK,
          "%s", err.message);
    fclose(stream);
    CHECK(strstr(notes, "warning: keys and values were improved in turn; a better policy may "
                        "exist\n"),
          "%s", notes);
    remove("turn.h5");
    kv_record_free(record), kv_text_free(&out), free(notes);
    kv_engine_fit_free_contents(&fit), kv_problem_free(p);
}

/* The k-th allocation fails, for every k: an error each time, nothing lost, then the same text. */
static void test_memory(const char *table)
{
    kv_policy_layer layers[4];
    kv_policy const policy = make_policy(layers, "e4m3/tensor", "e4m3/tensor");
    static const char csv[] = "layer,key,value,error,bytes\n"
                              "0,e4m3/tensor,e4m3/tensor,0.25,100\n0,f16,f16,0,200\n"
                              "1,e4m3/tensor,e4m3/tensor,0.25,100\n1,f16,f16,0,200\n";
    kv_error err = {0};
    CHECK(kv_file_replace("table.csv", csv, strlen(csv), &err) == KV_OK, "%s", err.message);
    for (size_t i = 0; kv_engine_at(i); i++) {
        const kv_engine *const e = kv_engine_at(i);
        const char *const scales = e->write_scales ? "memory.scales" : NULL;
        kv_engine_export_options const options = {i ? "table.csv" : table, scales};
        kv_status status = KV_ENOMEM;
        long k = 0;
        for (; status == KV_ENOMEM && k < 5000; k++) {
            kv_text out = {0};
            char *notes = NULL;
            size_t size = 0;
            bool is_feasible;
            FILE *const stream = open_memstream(&notes, &size);
            err = (kv_error){0};
            kv_fail_allocation(k);
            status = kv_engine_export(&out, stream, &is_feasible, e, &policy, &options, &err);
            kv_fail_allocation(-1);
            fclose(stream), free(notes);
            CHECK((status == KV_OK) == (out.data != NULL), "%s: text and status %d", e->name,
                  status);
            kv_text_free(&out);
        }
        bool const has_type = strcmp(e->name, "kvtuner") && strcmp(e->name, "lmdeploy");
        CHECK(status == (has_type ? KV_OK : status) && status != KV_ENOMEM && k > 20,
              "%s: status %d after %ld", e->name, status, k);
        if (scales) remove(scales);
    }
    remove("table.csv");
}

static void test_gaps(void)
{
    kv_policy_layer layers[4];
    kv_policy const policy = make_policy(layers, "f16", "f16");
    layers[1].layer = 3, layers[2].layer = 4, layers[3].layer = 7;
    check_export("ik_llama.cpp", &policy, NULL, NULL, KV_EREQUEST, false,
                 "ik_llama.cpp: its output lists all layers of the model, which must be numbered "
                 "from 0 without gaps; layer 1 is missing");
    layers[0].key = layers[0].value = text("e4m3/token");
    check_export("vllm", &policy, NULL, NULL, KV_OK, true,
                 "--kv-cache-dtype fp8_per_token_head --kv-cache-dtype-skip-layers 3 4 7\n"
                 "vllm: the policy's own assignment; without a table (--table, or the policy's "
                 "result file) there is nothing to compare\n"
                 "warning: auto" HALF
                 "warning: fp8_per_token_head is not simulated exactly: vLLM keeps scales above "
                 "1e-6\n"
                 "warning: fp8_per_token_head needs the TRITON_ATTN backend\n" PAGES
                 "warning: layers that the policy does not list become fp8_per_token_head\n");
}

int main(void)
{
    char folder[] = "/tmp/kvant_export_XXXXXX", *at = mkdtemp(folder);
    kv_error err = {0};
    CHECK(at && chdir(folder) == 0, "no temporary folder");
    kv_problem *const p = make_vllm_problem();
    kv_record *const record = record_of(p);
    CHECK(kv_store_write("table.h5", record, &err) == KV_OK, "%s", err.message);
    kv_record_free(record), kv_problem_free(p);
    test_record();
    test_bad_records();
    test_exports("table.h5");
    test_scales();
    test_gaps();
    test_memory("table.h5");
    test_names();
    test_readers();
    test_ends();
    test_ends_in_turn();
    remove("table.h5");
    CHECK(chdir("/") == 0 && rmdir(folder) == 0, "%s is not empty", folder);
    return check_done();
}
