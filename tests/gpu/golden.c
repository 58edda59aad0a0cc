/* Golden hashes: what a GPU makes of Philox heads under quantizers of every kind, as SHA-256 of
 * codes, of scales with minima, and of dequantized values, beside the CPU's. Lines of two GPUs must
 * be equal to the letter; the last one, of all that was hashed, says it in short.
 *
 *     golden_cuda [TOKENS [KV_HEADS]]     KVANT_CUDA_MODULE names the module as for kvant
 *
 * Exit code 1 where the device's bytes are not the CPU's. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/fits.h"
#include "kernels/cuda/fit.h"
#include "kernels/cuda/load.h"
#include "kernels/shorthand.h"
#include "results/sha256.h"
#include "sim/heads.h"

enum { CHANNELS = 128, PARTS = 3, HEX = 65 };
static const char *const part_names[PARTS] = {"codes", "scales", "values"};

static const char *const keys[] = {"f16",
                                   "int8/tensor",
                                   "int8/head",
                                   "int8/channel",
                                   "int8/token:zero",
                                   "int4/channel:zero",
                                   "int4/channel:zero:pre-rope",
                                   "int4/32x1:zero:scale=f16",
                                   "int4/1x16:scale=e4m3",
                                   "int4/token:zero:mse:scale=bf16",
                                   "int3/channel:zero:outliers=1",
                                   "int2/32x1:zero:scale=f16:flush=128:sinks=2",
                                   "int4/tensor:percentile=99.5",
                                   "int4/head:static=seed:2",
                                   "int4/token:zero:hadamard",
                                   "int4/channel:smooth=0.5",
                                   "e4m3/tensor",
                                   "e4m3/channel:static=512",
                                   "e4m3fnuz/token",
                                   "e5m2/head:unit",
                                   "q8_0",
                                   "q4_0:hadamard=64",
                                   "q5_1",
                                   "iq4_nl"};
static const char *const values[] = {
    "int8/token", "int4/1x32:zero:scale=f16", "int2/1x32:zero:window=128", "int4/token:center",
    "q4_1",       "e2m1/1x32:scale=e8m0",     "exl4:hadamard=32"};

static kv_error err;

static void must(kv_status status, const char *what)
{
    if (status != KV_OK) fprintf(stderr, "golden_cuda: %s: %s\n", what, err.message), exit(1);
}

static void *room(int64_t n, size_t size)
{
    void *const p = calloc((size_t)n + 1, size);
    if (!p) fprintf(stderr, "golden_cuda: no memory\n"), exit(1);
    return p;
}

/* What one quantizer made of a tensor: codes, scales and minima, values. */
typedef struct {
    void *bytes[PARTS];
    size_t size[PARTS];
} made;

typedef struct {
    const char *text;
    kv_quantizer q;
    kv_tensor tensor;
    const kv_layer *layer;
    int64_t all; /* elements of all heads */
} subject;

static made start(const subject *s, int64_t scales)
{
    made m = {.size = {(size_t)s->all * sizeof(uint32_t), (size_t)scales * sizeof(float),
                       (size_t)s->all * sizeof(float)}};
    for (int i = 0; i < PARTS; i++) m.bytes[i] = room((int64_t)m.size[i], 1);
    return m;
}

static void free_made(made *m)
{
    for (int i = 0; i < PARTS; i++) free(m->bytes[i]);
}

/* ---- the device ---- */

static int64_t tiles_of(const kv_cuda_scheme *scheme, int64_t heads)
{
    int64_t const rows = (scheme->span + scheme->tile_tokens - 1) / scheme->tile_tokens;
    if (!scheme->scale) return 0;
    return scheme->head_tiles > 0 ? heads * scheme->head_tiles : rows * scheme->tile_columns;
}

static made make_on_device(kv_cuda_wave *w, const subject *s)
{
    kv_cuda_scheme scheme;
    int64_t bits = 0;
    uint32_t flags = 0;
    size_t const mark = w->memory.n;
    must(kv_cuda_fit(&scheme, &bits, w, &s->q, s->tensor, &err), s->text);
    int64_t const tiles = tiles_of(&scheme, w->heads), bytes = tiles * (int64_t)sizeof(float);
    made m = start(s, tiles * (scheme.minimum ? 2 : 1));
    float *const scales = m.bytes[1];
    if (tiles > 0) must(w->cuda->download(scales, scheme.scale, bytes, &err), s->text);
    if (tiles > 0 && scheme.minimum)
        must(w->cuda->download(scales + tiles, scheme.minimum, bytes, &err), s->text);
    float *const x = s->tensor == KV_VALUE ? w->value : w->key;
    kv_cuda_codes c = {.x = s->tensor == KV_KEY_PRE_ROPE ? w->key_pre_rope : x,
                       .heads = w->heads,
                       .tokens = s->layer->tokens,
                       .head_dim = s->layer->head_dim,
                       .scheme = scheme};
    kv_cuda_decode d = {.x = x,
                        .x_pre_rope = w->key_pre_rope,
                        .n = 1,
                        .heads = w->heads,
                        .tokens = s->layer->tokens,
                        .head_dim = s->layer->head_dim,
                        .rope = w->rope,
                        .flags = w->flags};
    must(kv_cuda_take((void **)&c.codes, &w->memory, s->all, sizeof *c.codes, &err), s->text);
    must(kv_cuda_take((void **)&d.values, &w->memory, s->all, sizeof *d.values, &err), s->text);
    must(kv_cuda_take_copy((void **)&d.schemes, &w->memory, &scheme, 1, sizeof scheme, &err),
         s->text);
    must(w->cuda->codes(&c, &err), s->text);
    must(w->cuda->decode(&d, &err), s->text);
    must(w->cuda->download(m.bytes[0], c.codes, (int64_t)m.size[0], &err), s->text);
    must(w->cuda->download(m.bytes[2], d.values, (int64_t)m.size[2], &err), s->text);
    must(kv_cuda_wave_flags(&flags, w, &err), s->text);
    if (flags) fprintf(stderr, "golden_cuda: %s: flags %" PRIu32 "\n", s->text, flags), exit(1);
    kv_cuda_give_back(&w->memory, mark);
    return m;
}

/* ---- the CPU ---- */

/* Scales of a fit behind the `done` ones of all `tiles`; minima behind all scales. */
static int64_t copy_scales(made *m, const kv_fit *fit, int64_t done)
{
    kv_fit_scales const s = kv_fit_scales_of(fit);
    int64_t const n = s.scale ? s.heads * s.rows * s.columns : 0;
    int64_t const tiles = (int64_t)(m->size[1] / sizeof(float)) / (s.minimum ? 2 : 1);
    float *const to = m->bytes[1];
    if (done + n > tiles) return -1;
    if (n > 0) memcpy(to + done, s.scale, (size_t)n * sizeof *to);
    if (n > 0 && s.minimum) memcpy(to + tiles + done, s.minimum, (size_t)n * sizeof *to);
    return done + n;
}

/* One head with its fit; `index` is the head within the fit. */
static void make_head(made *m, const subject *s, const kv_fit *fit, int64_t head, int64_t index,
                      const float *x)
{
    int64_t const n = s->layer->tokens * s->layer->head_dim, at = head * n;
    float *const scratch = room(kv_fit_scratch_floats(fit, s->layer->tokens), sizeof *scratch);
    float *const y = (float *)m->bytes[2] + at;
    kv_fit_codes(fit, index, x, 0, s->layer->tokens, (uint32_t *)m->bytes[0] + at, scratch);
    kv_fit_decode(fit, index, x, 0, s->layer->tokens, y, scratch);
    if (s->tensor == KV_KEY_PRE_ROPE) kv_rope_apply(s->layer->source.rope, 0, s->layer->tokens, y);
    free(scratch);
}

/* What the CPU makes, laid out as the device's; false where their counts of scales differ. */
static bool make_on_cpu(made *out, const subject *s, const made *device)
{
    const kv_layer *const l = s->layer;
    kv_side const side = {.quantizers = &s->q, .n = 1, .is_key = s->tensor != KV_VALUE};
    kv_fit *wide = NULL;
    float *const x = room(l->tokens * l->head_dim, sizeof *x);
    int64_t done = 0;
    *out = start(s, (int64_t)(device->size[1] / sizeof(float)));
    must(kv_fit_layer(&wide, &side, l, 1, &err), s->text);
    if (wide) done = copy_scales(out, wide, 0);
    for (int64_t h = 0; h < l->kv_heads && done >= 0; h++) {
        kv_fit *fit = NULL;
        must(l->source.load(l->source.context, s->tensor, h, 0, x, &err), s->text);
        if (!wide) must(kv_fit_head(&fit, &side, l, h, x, x, 1, &err), s->text);
        make_head(out, s, wide ? wide : fit, h, wide ? h : 0, x);
        if (!wide) done = copy_scales(out, fit, done);
        kv_fit_free(fit);
    }
    kv_fit_free(wide);
    free(x);
    return done >= 0;
}

/* ---- all ---- */

/* Hashes of a quantizer, which go to text; prints them. Whether the CPU's are the same. */
static bool check(char text[PARTS][HEX], kv_cuda_wave *w, const subject *s)
{
    made device = make_on_device(w, s), cpu;
    bool const has_all = make_on_cpu(&cpu, s, &device);
    bool is_same = has_all;
    printf("%-44s %-5s", s->text, s->tensor == KV_VALUE ? "value" : "key");
    for (int i = 0; i < PARTS; i++) {
        kv_sha256_hex(text[i], device.bytes[i], device.size[i]);
        printf("  %s %.16s", part_names[i], text[i]);
        is_same &= memcmp(device.bytes[i], cpu.bytes[i], device.size[i]) == 0;
    }
    printf("%s\n", is_same ? "" : "  NOT THE CPU'S");
    free_made(&device), free_made(&cpu);
    return is_same;
}

static const kv_heads_config config = {.generator = KV_GENERATOR_PHILOX,
                                       .rope = {.layout = KV_ROPE_HALF},
                                       .head_dim = CHANNELS,
                                       .queries = 1,
                                       .query_gain = 1,
                                       .class_share = {1},
                                       .value_mean = 0.5,
                                       .outliers = {.count = 3, .scale = 4, .bias = 10},
                                       .value_outliers = {.scale = 1},
                                       .sink_count = 1,
                                       .sink_key_gain = 0.2,
                                       .sink_value_gain = 0.1};

int main(int argc, char **argv)
{
    enum { KEYS = sizeof keys / sizeof *keys, ALL = KEYS + sizeof values / sizeof *values };
    static char text[ALL][PARTS][HEX];
    char total[HEX];
    kv_heads_config c = config;
    kv_heads *heads = NULL;
    const kv_cuda_module *cuda = NULL;
    kv_cuda_wave wave = {0};
    int different = 0;
    c.tokens = argc > 1 ? atoll(argv[1]) : 2048;
    c.kv_heads = c.query_heads = argc > 2 ? atoll(argv[2]) : 4;
    must(kv_heads_create(&heads, &c, 0, 0, &err), "heads");
    const kv_layer *const layer = kv_heads_layer(heads);
    must(kv_cuda_begin(&cuda, &err), "module");
    must(kv_cuda_wave_create(&wave, cuda, layer, layer->kv_heads, true, &err), "wave");
    must(kv_cuda_wave_load(&wave, 0, layer->kv_heads, &err), "tensors");
    for (int i = 0; i < ALL; i++) {
        bool const is_key = i < KEYS;
        subject s = {.text = is_key ? keys[i] : values[i - KEYS],
                     .tensor = KV_VALUE,
                     .layer = layer,
                     .all = layer->kv_heads * layer->tokens * layer->head_dim};
        must(kv_quantizer_parse(&s.q, s.text, is_key, &err), s.text);
        if (is_key) s.tensor = s.q.is_pre_rope ? KV_KEY_PRE_ROPE : KV_KEY;
        different += !check(text[i], &wave, &s);
    }
    kv_cuda_wave_free(&wave);
    kv_cuda_end();
    kv_heads_free(heads);
    kv_sha256_hex(total, text, sizeof text);
    printf("%" PRId64 " tokens, %" PRId64 " kv heads: %d of %d differ from the CPU\nSHA-256 %s\n",
           c.tokens, c.kv_heads, different, (int)ALL, total);
    return different != 0;
}
