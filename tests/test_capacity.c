/* Capacity: known sizes of models and of engines' formats, windows against a formula, the longest
 * sequence against a search that tries every length, pages against worked examples, every message,
 * both forms of output to the letter, and no leak when memory runs out anywhere. */
#include <stdlib.h>
#include <unistd.h>

#include "kernels/memory.h"
#include "tests/check.h"
#include "tuner/capacity.h"

static const char *const data_dirs[] = {KVANT_SOURCE_DIR "/configs"};

static kv_capacity_request request_of(const char *model, const char *scheme, int64_t context)
{
    return (kv_capacity_request){.model = model,
                                 .scheme = scheme,
                                 .context = context,
                                 .data_dirs = data_dirs,
                                 .n_data_dirs = 1};
}

static kv_capacity find(const kv_capacity_request *request)
{
    kv_capacity capacity = {0};
    kv_error err = {0};
    kv_status const status = kv_capacity_find(&capacity, request, &err);
    CHECK(status == KV_OK, "%s", err.message);
    return capacity;
}

/* ---- sizes ---- */

/* Llama-3.1-70B: 80 layers of 8 heads of 128 channels: 320 KiB a token, 40 GiB at 131072. */
static void known_model(void)
{
    kv_capacity_request r = request_of("llama-3.1-70b", "f16", 131072);
    r.memory_gib = 141, r.weights_gib = 15.5;
    kv_capacity c = find(&r);
    CHECK(c.n_layers == 80 && c.layers && c.layers[7].bytes == INT64_C(4096) * 131072, "layers");
    CHECK(c.scheme_side.bytes == INT64_C(327680) * 131072, "%lld", (long long)c.scheme_side.bytes);
    CHECK(c.scheme_side.bytes == INT64_C(40) << 30, "40 GiB");
    CHECK(c.scheme_side.sequences == 3 && c.f16_side.sequences == 3, "of 125.5 GiB");
    CHECK(c.scheme_side.longest == 411238, "%lld", (long long)c.scheme_side.longest);
    CHECK(c.scheme_side.longest == (INT64_C(251) << 29) / 327680, "by division");
    kv_capacity_free_contents(&c);

    r.scheme = "e4m3/tensor:unit";
    c = find(&r);
    CHECK(c.scheme_side.bytes * 2 == c.f16_side.bytes, "FP8 halves it");
    CHECK(c.scheme_side.sequences == 6 && c.scheme_side.longest == 822476, "%lld",
          (long long)c.scheme_side.longest);
    kv_capacity_free_contents(&c);

    r = request_of("llama-3.1-70b", "f16", 1);
    r.memory_gib = 1e-6; /* 1073 bytes: not one token */
    c = find(&r);
    CHECK(c.scheme_side.sequences == 0 && c.scheme_side.longest == 0, "nothing fits");
    kv_capacity_free_contents(&c);
}

/* Bytes a token and layer that engines' own allocators give for 8 heads of 128 channels: vLLM
 * (vllm/v1/kv_cache_interface.py, turboquant/config.py), SGLang, LMDeploy (QuantPolicy), ggml
 * blocks, exllamav3, quanto. `once` is what a tensor stores besides (an f32 over e4m3 scales). */
static const struct {
    const char *scheme;
    int64_t bytes, once;
} engine_rows[] = {
    {"f16", 4096, 0},
    {"bf16", 4096, 0},
    {"e4m3/tensor:unit", 2048, 0},
    {"int8/token", 2112, 0},
    {"e4m3/token", 2112, 0},
    {"int4/token", 1088, 0},
    {"e2m1/1x16:scale=e4m3", 1152, 8},
    {"e4m3/1x32:scale=e8m0", 2112, 0},
    {"e4m3/tensor:unit | int4/token:zero:scale=f16", 1568, 0},
    {"int4/token:scale=f16 | int4/token:zero:scale=f16", 1072, 0},
    {"int3/token:scale=f16 | int4/token:zero:scale=f16", 944, 0},
    {"int3/token:scale=f16 | int3/token:zero:scale=f16", 816, 0},
    {"q8_0", 2176, 0},
    {"q8_0 | q4_0", 1664, 0},
    {"q4_0", 1152, 0},
    {"iq4_nl", 1152, 0},
    {"q4_1", 1280, 0},
    {"q5_0", 1408, 0},
    {"q5_1", 1536, 0},
    {"exl4:hadamard=32", 1152, 0},
    {"exl6:hadamard=32 | exl5:hadamard=32", 1536, 0},
    {"int8/token:zero:scale=f16", 2112, 0},
    {"int4/token:zero:scale=f16", 1088, 0},
    {"int4/token:zero:scale=f16 | int2/token:scale=f16", 816, 0},
    {"int4/1x32:scale=f16", 1152, 0},
    {"int6/1x32:scale=f16 | int5/1x32:scale=f16", 1536, 0},
    {"int4/1x64:zero:scale=f16", 1152, 0},
    {"vllm-int4-per-token-head", 1152, 0}, /* 1088 in vLLM, which hides zero points in scales */
    {"llama.cpp-q8_0-q4_0", 1664, 0},
    {"llama.cpp-q5_1-rotated", 1536, 0},
    {"exllamav3-k6v5", 1536, 0},
};

static void engine_sizes(void)
{
    for (size_t i = 0; i < sizeof engine_rows / sizeof engine_rows[0]; i++) {
        kv_capacity_request const r = request_of("llama-3.1-8b", engine_rows[i].scheme, 4096);
        kv_capacity c = find(&r);
        if (!c.n_layers) continue;
        CHECK(c.layers[0].bytes == engine_rows[i].bytes * 4096 + engine_rows[i].once,
              "%s: %.4f bytes a token, expected %d", engine_rows[i].scheme,
              (double)c.layers[0].bytes / 4096, (int)engine_rows[i].bytes);
        CHECK(c.scheme_side.bytes == 32 * c.layers[0].bytes, "%s", engine_rows[i].scheme);
        kv_capacity_free_contents(&c);
    }
}

/* Gemma-3-1B: 22 layers of 26 hold 512 tokens at most; 1 head of 256 channels. */
static void windows(void)
{
    static const int64_t contexts[] = {1, 511, 512, 513, 131072};
    for (size_t i = 0; i < sizeof contexts / sizeof contexts[0]; i++) {
        int64_t const n = contexts[i], seen = n < 512 ? n : 512;
        kv_capacity_request const r = request_of("gemma-3-1b", "f16", n);
        kv_capacity c = find(&r);
        CHECK(c.scheme_side.bytes == 1024 * (22 * seen + 4 * n), "%lld: %lld", (long long)n,
              (long long)c.scheme_side.bytes);
        CHECK(c.scheme_side.sequences == -1 && c.scheme_side.longest == -1, "no memory is given");
        kv_capacity_free_contents(&c);
    }
}

/* Of a scheme whose size falls whenever it flushes, so that lengths that fit are not all below
 * those that do not. */
static void longest_by_trying(void)
{
    static const char *const schemes[] = {"kivi-2", "int2/32x1:zero:flush=96 | int4/token",
                                          "int2/token:window=50:sinks=3",
                                          "int2/8x1:flush=24 | int4/token:zero:flush=16"};
    for (size_t s = 0; s < sizeof schemes / sizeof schemes[0]; s++) {
        kv_capacity_request r = request_of("llama-3.1-8b", schemes[s], 64);
        r.memory_gib = 0.011; /* 90 tokens at f16 */
        kv_capacity c = find(&r);
        int64_t last = 0;
        r.memory_gib = 0;
        for (r.context = 1; r.context <= c.scheme_side.longest + 200; r.context++) {
            kv_capacity one = find(&r);
            if (one.scheme_side.bytes <= c.cache_bytes) last = r.context;
            kv_capacity_free_contents(&one);
        }
        CHECK(c.scheme_side.longest == last && last > 80, "%s: %lld, by trying %lld", schemes[s],
              (long long)c.scheme_side.longest, (long long)last);
        kv_capacity_free_contents(&c);
    }
}

/* ---- files of our own ---- */

static char folder[] = "/tmp/kvant_test_capacity_XXXXXX";

static const char *write_file(const char *name, const char *text)
{
    static char path[8][256];
    static int turn;
    char *const out = path[turn++ % 8];
    snprintf(out, sizeof path[0], "%s/%s", folder, name);
    FILE *const file = fopen(out, "wb");
    if (file) fputs(text, file), fclose(file);
    return out;
}

static const char small_model[] = "about: two layers\n"
                                  "source: made up\n"
                                  "heads:\n"
                                  "  layers: 3\n"
                                  "  kv_heads: 8\n"
                                  "  head_dim: 128\n"
                                  "  profile: [{layers: [2], window: 100}]\n";

static char *policy_of(const char *first, const char *second, const char *third)
{
    static char text[1024];
    snprintf(text, sizeof text,
             "kvant_policy: 1\n"
             "title: mine\n"
             "layers:\n"
             "  - {layer: 0, key: %s, value: %s}\n"
             "  - {layer: 1, key: %s, value: %s}\n"
             "  - {layer: 2, key: %s, value: %s}\n",
             first, first, second, second, third, third);
    return text;
}

/* ---- pages ---- */

static void pages(void)
{
    static const struct {
        const char *quantized;
        int64_t block, page;
        double waste;
    } rows[] = {{"e2m1/1x16:scale=e4m3", 64, 73728, 0.125}, {"e4m3/tensor:unit", 32, 65536, 0}};
    const char *const model = write_file("model.yaml", small_model);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        kv_capacity_request r = request_of(model, NULL, 1000);
        kv_error err = {0};
        r.policy = write_file("p.yaml", policy_of("f16", rows[i].quantized, rows[i].quantized));
        CHECK(kv_capacity_parse_pages(&r, "vllm=16,32", &err) == KV_OK, "%s", err.message);
        kv_capacity c = find(&r);
        kv_capacity_side const *const s = &c.scheme_side;
        CHECK(s->block == rows[i].block && s->page_bytes == rows[i].page && s->padded == 16 &&
                  s->waste == rows[i].waste,
              "%s: block %d, page %d, %d, %g", rows[i].quantized, (int)s->block, (int)s->page_bytes,
              (int)s->padded, s->waste);
        /* skipped layer: 63 pages of 16; a full one; one of which 99 + 32 tokens are held */
        int64_t const full = (1000 + s->block - 1) / s->block;
        int64_t const held = (131 + s->block - 1) / s->block + 1;
        CHECK(s->bytes == (63 + full + held) * s->page_bytes, "%s: %lld", rows[i].quantized,
              (long long)s->bytes);
        CHECK(c.f16_side.page_bytes == 65536 && !c.f16_side.padded && c.f16_side.block == 16,
              "f16");
        CHECK(c.f16_side.bytes == (63 + 63 + 10) * INT64_C(65536), "%lld",
              (long long)c.f16_side.bytes);
        kv_capacity_free_contents(&c);
    }
    kv_capacity_request r = request_of(model, "f16", 40); /* shorter than the window's bound */
    kv_error err = {0};
    CHECK(kv_capacity_parse_pages(&r, "vllm", &err) == KV_OK && !r.block, "%s", err.message);
    r.memory_gib = 0x1p-14; /* 64 KiB: one page, three are needed */
    kv_capacity c = find(&r);
    CHECK(c.f16_side.bytes == 9 * 65536 && c.f16_side.sequences == 0 && c.f16_side.longest == 0 &&
              c.in_flight == 2048,
          "%lld", (long long)c.f16_side.bytes);
    kv_capacity_free_contents(&c);
    r.memory_gib = 9 * 0x1p-14;
    c = find(&r);
    CHECK(c.f16_side.sequences == 1 && c.f16_side.longest == 48, "%lld",
          (long long)c.f16_side.longest);
    kv_capacity_free_contents(&c);

    r.block = 64; /* a larger block of the user's: the skipped layers hold two kernel blocks */
    r.scheme = NULL;
    r.policy = write_file("p.yaml", policy_of("f16", "e4m3/tensor:unit", "f16"));
    c = find(&r);
    CHECK(c.scheme_side.block == 64 && c.scheme_side.page_bytes == 131072 &&
              c.scheme_side.padded == 32 && c.scheme_side.waste == 0,
          "%d %d", (int)c.scheme_side.block, (int)c.scheme_side.padded);
    kv_capacity_free_contents(&c);
}

/* A policy that gives its layers' heads needs no model. */
static void geometry(void)
{
    static char policy[1024];
    kv_capacity_request r = request_of(NULL, NULL, 1000), with_model = r;
    r.memory_gib = 1, with_model.memory_gib = 1;
    snprintf(policy, sizeof policy,
             "kvant_policy: 1\n"
             "title: mine\n"
             "layers:\n"
             "  - {layer: 0, key: f16, value: f16, kv_heads: 8, head_dim: 128, window: 0}\n"
             "  - {layer: 1, key: q8_0, value: q8_0, kv_heads: 8, head_dim: 128, window: 0}\n"
             "  - {layer: 2, key: q8_0, value: q8_0, kv_heads: 8, head_dim: 128, window: 100}\n");
    r.policy = write_file("g.yaml", policy);
    with_model.model = write_file("model.yaml", small_model);
    with_model.policy = write_file("p.yaml", policy_of("f16", "q8_0", "q8_0"));
    kv_capacity a = find(&r), b = find(&with_model);
    CHECK(!a.model && b.model && a.n_layers == 3 && b.n_layers == 3, "layers");
    CHECK(a.scheme_side.bytes == b.scheme_side.bytes && a.f16_side.bytes == b.f16_side.bytes &&
              a.scheme_side.longest == b.scheme_side.longest,
          "%lld and %lld bytes", (long long)a.scheme_side.bytes, (long long)b.scheme_side.bytes);
    CHECK(a.scheme_side.bytes == 4096000 + 2176000 + 217600, "%lld",
          (long long)a.scheme_side.bytes);
    kv_capacity_free_contents(&a), kv_capacity_free_contents(&b);
}

/* Only windowed layers: any length fits. */
static void endless(void)
{
    kv_capacity_request r = request_of(
        write_file("w.yaml",
                   "about: a\nsource: b\nheads: {layers: 2, head_dim: 64, window: 128}\n"),
        "f16", 1000);
    r.memory_gib = 0.0001;
    kv_capacity c = find(&r);
    CHECK(c.scheme_side.bytes == 2 * 128 * 64 * 4 && c.scheme_side.sequences == 1, "%lld",
          (long long)c.scheme_side.bytes);
    CHECK(c.scheme_side.longest == KV_CAPACITY_ENDLESS, "endless");
    kv_capacity_free_contents(&c);
}

/* ---- messages ---- */

/* The message, without the folder, which differs from run to run. */
static void expect(const kv_capacity_request *r, const char *expected)
{
    kv_capacity capacity = {0};
    kv_error err = {0};
    CHECK(kv_capacity_find(&capacity, r, &err) == KV_EREQUEST, "%s", expected);
    size_t const length = strlen(folder) + 1;
    for (char *at; (at = strstr(err.message, folder));)
        memmove(at, at + length, strlen(at + length) + 1);
    CHECK_TEXT(err.message, expected);
    kv_capacity_free_contents(&capacity);
}

static void messages(void)
{
    const char *const model = write_file("model.yaml", small_model);
    kv_capacity_request r = request_of(NULL, "f16", 1000);
    expect(&r, "capacity needs --model");
    r.model = "lama-3.1-8b";
    expect(&r, "no such model \"lama-3.1-8b\", did you mean \"llama-3.1-8b\"?; see `kvant list "
               "models`, or give a path with a /");
    r.model = "zzz";
    expect(&r, "no such model \"zzz\"; see `kvant list models`, or give a path with a /");
    r.model = model, r.policy = "p.yaml";
    expect(&r, "capacity needs --policy or --scheme, not both");
    r.policy = r.scheme = NULL;
    expect(&r, "capacity needs --policy or --scheme");
    r.scheme = "f16", r.context = 0;
    expect(&r, "capacity needs --context, 1 to 1000000000 tokens");
    r.context = 1000000001;
    expect(&r, "capacity needs --context, 1 to 1000000000 tokens");
    r.context = 10, r.weights_gib = 1;
    expect(&r, "--weights goes with --memory");
    r.memory_gib = 1;
    expect(&r, "--weights 1 GiB leave nothing of --memory 1 GiB");
    r.weights_gib = 0, r.scheme = "int8/tokne";
    expect(&r, "\"int8/tokne\": unknown tile \"tokne\", did you mean \"token\"? tiles: tensor, "
               "head, channel, token, token-all, or TOKENSxCHANNELS like 32x1, with \"all\" "
               "allowed");
    r.scheme = NULL, r.policy = write_file("p.yaml", policy_of("f16", "theirs", "int8/token"));
    expect(&r, "p.yaml: \"mine\", layer 1, key: \"theirs\": unknown format \"theirs\"; formats: "
               "f32, f16, bf16, e4m3, e4m3fnuz, e5m2, e5m2fnuz, e2m1, int8, int7, int6, int5, "
               "int4, int3, int2, q8_0, q5_1, q5_0, q4_1, q4_0, iq4_nl, exl8, exl7, exl6, exl5, "
               "exl4, exl3, exl2\n"
               "p.yaml: \"mine\", layer 1, value: \"theirs\": unknown format \"theirs\"; formats: "
               "f32, f16, bf16, e4m3, e4m3fnuz, e5m2, e5m2fnuz, e2m1, int8, int7, int6, int5, "
               "int4, int3, int2, q8_0, q5_1, q5_0, q4_1, q4_0, iq4_nl, exl8, exl7, exl6, exl5, "
               "exl4, exl3, exl2");
    r.policy = write_file("p.yaml", "kvant_policy: 1\nlayers: [{layer: 1, key: f16, value: f16}]");
    r.model = NULL;
    expect(&r, "capacity needs --model: the policy names none and says nothing of layer 0");
    r.policy = write_file("p.yaml", "kvant_policy: 1\nlayers: [{layer: 0, key: f16, value: f16, "
                                    "kv_heads: 8, head_dim: 128}]");
    expect(&r, "capacity needs --model: the policy names none, nor kv_heads, head_dim and window "
               "of layer 0");
    r.policy = write_file("p.yaml", "kvant_policy: 1\nlayers: [{layer: 1, key: f16, value: f16}]");
    r.model = model;
    expect(&r, "\"p.yaml\" says nothing of layers 0, 2");
    r.policy = write_file("p.yaml", policy_of("f16", "f16", "f16"));
    const char *const odd =
        write_file("w.yaml", "about: a\nsource: b\nheads: {layers: 2, head_dim: 30}\n");
    r.model = odd;
    expect(&r, "\"mine\" names layer 2, but w.yaml has the layers 0 to 1");
    r.policy = NULL, r.scheme = "q4_0";
    expect(&r, "layer 0: q4_0: head_dim 30 is not a multiple of 32");

    r = request_of(model, "kivi-2", 10);
    r.has_pages = true;
    expect(&r, "--pages: int2/32x1:zero:scale=f16:flush=128 keeps some tokens at 16 bits, a page "
               "holds tokens of one size");
    r.model = odd, r.scheme = "int3/1x7";
    expect(&r, "--pages: int3/1x7 | int3/1x7 takes no whole number of bytes a token");
    r.scheme = NULL, r.model = write_file("model.yaml", small_model);
    r.policy = write_file("p.yaml", policy_of("f16", "e4m3/tensor:unit", "int4/token"));
    expect(&r, "--pages: layers store 1088, 2048 and 4096 bytes a token; vLLM has one quantized "
               "type and the model's own");

    static const char *const bad[] = {"",       "vlm",      "vllm=",      "vllm=0",
                                      "vllm=x", "vllm=16,", "vllm=16,0",  "vllm=4097",
                                      "vllm16", "vllm=1,x", "vllm=16,1,2"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        kv_error err = {0};
        char expected[256];
        snprintf(expected, sizeof expected,
                 "--pages: expected vllm, vllm=BLOCK or vllm=BLOCK,STEP (tokens of a page, up "
                 "to 4096, and of a step), found \"%s\"",
                 bad[i]);
        CHECK(kv_capacity_parse_pages(&r, bad[i], &err) == KV_EREQUEST, "%s", bad[i]);
        CHECK_TEXT(err.message, expected);
    }
}

/* ---- output ---- */

static void check_output(const kv_capacity *c, int is_json, const char *expected)
{
    static char found[8192];
    kv_error err = {0};
    FILE *const file = tmpfile();
    CHECK(file, "no file");
    if (!file) return;
    CHECK(kv_capacity_print(file, c, is_json, &err) == KV_OK, "%s", err.message);
    rewind(file);
    found[fread(found, 1, sizeof found - 1, file)] = 0;
    fclose(file);
    CHECK_TEXT(found, expected);
}

#define JSON_LAYERS                                                                                \
    "  \"layers\": [\n"                                                                            \
    "    {\"layer\": 0, \"kv_heads\": 8, \"head_dim\": 128, \"window\": 0, \"key\": \"f16\", "     \
    "\"value\": \"f16\", \"bytes\": 4096000, \"f16_bytes\": 4096000},\n"                           \
    "    {\"layer\": 1, \"kv_heads\": 8, \"head_dim\": 128, \"window\": 0, \"key\": "              \
    "\"e2m1/1x16:scale=e4m3\", \"value\": \"e2m1/1x16:scale=e4m3\", \"bytes\": 1152008, "          \
    "\"f16_bytes\": 4096000},\n"                                                                   \
    "    {\"layer\": 2, \"kv_heads\": 8, \"head_dim\": 128, \"window\": 100, \"key\": "            \
    "\"e2m1/1x16:scale=e4m3\", \"value\": \"e2m1/1x16:scale=e4m3\", \"bytes\": 115208, "           \
    "\"f16_bytes\": 409600}\n"                                                                     \
    "  ]\n"                                                                                        \
    "}\n"

static void output(void)
{
    kv_error err = {0};
    kv_capacity_request r = request_of(write_file("model.yaml", small_model), NULL, 1000);
    r.policy =
        write_file("p.yaml", policy_of("f16", "e2m1/1x16:scale=e4m3", "e2m1/1x16:scale=e4m3"));
    r.memory_gib = 0.5, r.weights_gib = 0.25;
    kv_capacity c = find(&r);
    kv_free(c.model), c.model = NULL;
    CHECK(kv_duplicate(&c.model, "m\"1", &err) == KV_OK, "%s", err.message);
    check_output(&c, 0,
                 "m\"1, mine, 1000 tokens; GiB = 2^30 bytes\n"
                 "\n"
                 "layers    kv heads head_dim   window  key                   value                "
                 "bytes per token\n"
                 "0                8      128        -  f16                   f16                  "
                 "           4096\n"
                 "1                8      128        -  e2m1/1x16:scale=e4m3  e2m1/1x16:scale=e4m3 "
                 "       1152.008\n"
                 "2                8      128      100  e2m1/1x16:scale=e4m3  e2m1/1x16:scale=e4m3 "
                 "        115.208\n"
                 "\n"
                 "                                             this              f16\n"
                 "bytes per token, all layers              5363.216           8601.6\n"
                 "cache of one sequence, GiB                 0.0050           0.0080\n"
                 "memory for caches, GiB                     0.2500\n"
                 "sequences that fit                             50               31\n"
                 "longest one sequence, tokens                51128            32718\n");
    check_output(&c, 1,
                 "{\n"
                 "  \"model\": \"m\\\"1\",\n"
                 "  \"scheme\": \"mine\",\n"
                 "  \"context\": 1000,\n"
                 "  \"cache_bytes\": 268435456,\n"
                 "  \"cache\": {\"bytes\": 5363216, \"bytes_per_token\": 5363.216, \"sequences\": "
                 "50, \"longest\": 51128},\n"
                 "  \"f16\": {\"bytes\": 8601600, \"bytes_per_token\": 8601.6, \"sequences\": 31, "
                 "\"longest\": 32718},\n" JSON_LAYERS);
    kv_capacity_free_contents(&c);
    CHECK(kv_capacity_parse_pages(&r, "vllm=16,32", &err) == KV_OK, "%s", err.message);
    r.memory_gib = r.weights_gib = 0;
    c = find(&r);
    kv_free(c.model), c.model = NULL;
    CHECK(kv_duplicate(&c.model, "m", &err) == KV_OK, "%s", err.message);
    check_output(&c, 0,
                 "m, mine, 1000 tokens; GiB = 2^30 bytes\n"
                 "\n"
                 "layers    kv heads head_dim   window  key                   value                "
                 "bytes per token\n"
                 "0                8      128        -  f16                   f16                  "
                 "           4096\n"
                 "1                8      128        -  e2m1/1x16:scale=e4m3  e2m1/1x16:scale=e4m3 "
                 "       1152.008\n"
                 "2                8      128      100  e2m1/1x16:scale=e4m3  e2m1/1x16:scale=e4m3 "
                 "        115.208\n"
                 "\n"
                 "                                             this              f16\n"
                 "bytes per token, all layers              6119.424         8912.896\n"
                 "cache of one sequence, GiB                 0.0057           0.0083\n"
                 "\n"
                 "vLLM's pages, 32 tokens of a step in flight\n"
                 "this: pages of 73728 bytes hold 64 tokens, of larger layers 16: 4608 bytes a "
                 "token, 12.5 % more than they take\n"
                 "f16: pages of 65536 bytes hold 16 tokens\n");
    check_output(&c, 1,
                 "{\n"
                 "  \"model\": \"m\",\n"
                 "  \"scheme\": \"mine\",\n"
                 "  \"context\": 1000,\n"
                 "  \"in_flight\": 32,\n"
                 "  \"cache\": {\"bytes\": 6119424, \"bytes_per_token\": 6119.424, \"page_bytes\": "
                 "73728, \"block\": 64, \"padded_block\": 16, \"padding\": 0.125},\n"
                 "  \"f16\": {\"bytes\": 8912896, \"bytes_per_token\": 8912.896, \"page_bytes\": "
                 "65536, \"block\": 16},\n" JSON_LAYERS);
    kv_capacity_free_contents(&c);
    r = request_of(NULL, NULL, 100); /* no model */
    r.policy = write_file("p.yaml", "kvant_policy: 1\ntitle: mine\nlayers: [{layer: 0, key: f16, "
                                    "value: f16, kv_heads: 1, head_dim: 64, window: 0}]");
    c = find(&r);
    check_output(&c, 0,
                 "mine, 100 tokens; GiB = 2^30 bytes\n"
                 "\n"
                 "layers    kv heads head_dim   window  key    value bytes per token\n"
                 "0                1       64        -  f16    f16               256\n"
                 "\n"
                 "                                             this              f16\n"
                 "bytes per token, all layers                   256              256\n"
                 "cache of one sequence, GiB                 0.0000           0.0000\n");
    check_output(&c, 1,
                 "{\n"
                 "  \"model\": null,\n"
                 "  \"scheme\": \"mine\",\n"
                 "  \"context\": 100,\n"
                 "  \"cache\": {\"bytes\": 25600, \"bytes_per_token\": 256},\n"
                 "  \"f16\": {\"bytes\": 25600, \"bytes_per_token\": 256},\n"
                 "  \"layers\": [\n"
                 "    {\"layer\": 0, \"kv_heads\": 1, \"head_dim\": 64, \"window\": 0, \"key\": "
                 "\"f16\", \"value\": \"f16\", \"bytes\": 25600, \"f16_bytes\": 25600}\n"
                 "  ]\n"
                 "}\n");
    kv_capacity_free_contents(&c);
}

/* ---- out of memory ---- */

static void memory(void)
{
    kv_capacity_request r = request_of(write_file("model.yaml", small_model), NULL, 1000);
    r.policy = write_file("p.yaml", policy_of("f16", "int8/token", "f16"));
    r.memory_gib = 1;
    long k = 0;
    for (; k < 100000; k++) {
        kv_error err = {0};
        kv_capacity c = {0};
        kv_fail_allocation(k);
        kv_status const status = kv_capacity_find(&c, &r, &err);
        kv_fail_allocation(-1);
        CHECK(status == KV_OK || status == KV_ENOMEM, "%d: %s", (int)status, err.message);
        kv_capacity_free_contents(&c);
        if (status == KV_OK) break;
    }
    CHECK(k > 100 && k < 100000, "%ld failures", k);
}

int main(void)
{
    CHECK(mkdtemp(folder), "no folder");
    known_model();
    engine_sizes();
    windows();
    longest_by_trying();
    pages();
    geometry();
    endless();
    messages();
    output();
    memory();
    static const char *const names[] = {"model.yaml", "w.yaml", "p.yaml"};
    for (size_t i = 0; i < 3; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
    return check_done();
}
