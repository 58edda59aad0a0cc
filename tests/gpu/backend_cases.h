/* Layers and quantizers for tests of the backend: layers in memory whose numbers are awkward, lists
 * of quantizers given as text, and quantizers drawn from all settings there are. */
#ifndef KVANT_TESTS_GPU_BACKEND_CASES_H
#define KVANT_TESTS_GPU_BACKEND_CASES_H

#include "kernels/memory.h"
#include "kernels/shorthand.h"
#include "tests/attention_layer.h"

/* ---- layers ---- */

typedef enum { NORMAL, TIES, ZEROS, SMALL, LARGE, CONSTANT, NUMBER_KINDS } numbers;

static inline float awkward(numbers kind, float z, int64_t i)
{
    switch (kind) {
    case TIES: return rintf(2 * z) / 2;
    case ZEROS: return i % 3 ? (i % 2 ? -0.0f : 0.0f) : z;
    case SMALL: return z * 0x1p-128f;
    case LARGE: return z * 3000;
    case CONSTANT: return 1.5f;
    default: return z;
    }
}

/* Rotates the keys anew, as `rope` says. */
static inline void turn(memory_layer *m, const kv_rope_settings *rope)
{
    kv_layer *const l = &m->layer;
    int64_t const n = l->tokens * l->head_dim, draws = (1 + CALIBRATIONS) * l->kv_heads;
    kv_error err = {0};
    kv_rope_free(m->rope);
    CHECK(kv_rope_create(&m->rope, rope, l->head_dim, &err) == KV_OK, "%s", err.message);
    l->source.rope = m->rope;
    l->rotary_dim = kv_rope_rotary_dim(m->rope);
    l->is_rope_interleaved = rope->layout == KV_ROPE_INTERLEAVED;
    memcpy(m->key, m->pre_rope, (size_t)(draws * n) * sizeof *m->key);
    for (int64_t i = 0; i < draws; i++) kv_rope_apply(m->rope, 0, l->tokens, m->key + i * n);
}

static inline void fill(memory_layer *m, numbers kind)
{
    kv_layer *const l = &m->layer;
    int64_t const n = (1 + CALIBRATIONS) * l->kv_heads * l->tokens * l->head_dim;
    for (int64_t i = 0; i < n; i++) {
        m->pre_rope[i] = awkward(kind, m->pre_rope[i], i);
        m->value[i] = awkward(kind, m->value[i], i + 1);
    }
}

/* A layer of that shape, drawn anew, with numbers of that kind and turned in one of four ways. */
static inline void make_case(memory_layer *m, const shape *s, numbers kind, int rope)
{
    int64_t const D = s->head_dim;
    make_layer(m, s);
    fill(m, kind);
    const kv_rope_settings ways[] = {
        {.layout = D > 1 ? KV_ROPE_HALF : KV_ROPE_NONE, .rotary_dim = D / 2 * 2},
        {.layout = KV_ROPE_NONE},
        {.layout = D > 3 ? KV_ROPE_INTERLEAVED : KV_ROPE_NONE, .rotary_dim = D / 4 * 2},
        {.layout = D > 1 ? KV_ROPE_INTERLEAVED : KV_ROPE_NONE,
         .rotary_dim = D / 2 * 2,
         .scaling = KV_ROPE_SCALING_YARN,
         .factor = 4,
         .original_length = 32},
    };
    turn(m, &ways[rope]);
}

/* ---- quantizers ---- */

enum { MOST_QUANTIZERS = 24 };
typedef struct {
    kv_quantizer keys[MOST_QUANTIZERS], values[MOST_QUANTIZERS];
    int64_t pairs[MOST_QUANTIZERS * MOST_QUANTIZERS][2];
    kv_evaluation evaluation;
} quantizers;

/* All pairs but, where there are many, a few. */
static inline void make_pairs(quantizers *q, int n_keys, int n_values)
{
    int n = 0;
    for (int i = 0; i < n_keys; i++)
        for (int j = 0; j < n_values; j++)
            if ((i + 2 * j) % 5 != 4) q->pairs[n][0] = i, q->pairs[n++][1] = j;
    q->evaluation = (kv_evaluation){.n_keys = n_keys,
                                    .n_values = n_values,
                                    .n_pairs = n,
                                    .keys = q->keys,
                                    .values = q->values,
                                    .pairs = (const int64_t(*)[2])q->pairs,
                                    .want_levels = true,
                                    .want_rows = true};
}

/* Texts in lists that end with NULL. */
static inline void parse_lists(quantizers *q, const char *const *keys, const char *const *values)
{
    kv_error err = {0};
    int n_keys = 0, n_values = 0;
    for (; keys[n_keys]; n_keys++)
        CHECK(kv_quantizer_parse(&q->keys[n_keys], keys[n_keys], true, &err) == KV_OK, "%s",
              err.message);
    for (; values[n_values]; n_values++)
        CHECK(kv_quantizer_parse(&q->values[n_values], values[n_values], false, &err) == KV_OK,
              "%s", err.message);
    make_pairs(q, n_keys, n_values);
}

static inline bool chance(double p)
{
    return draw() < p;
}

static inline int64_t one_of(const int64_t *choices, size_t n)
{
    return choices[(size_t)(draw() * (double)n)];
}
#define ONE_OF(...)                                                                                \
    one_of((const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static inline void draw_scaling(kv_quantizer *q)
{
    q->tile = (kv_tile)(draw() * (KV_TILE_BLOCK + 1));
    if (q->tile == KV_TILE_BLOCK) {
        q->tile_tokens = ONE_OF(0, 1, 2, 5, 16, 32, 100);
        q->tile_channels = ONE_OF(0, 1, 3, 8, 16, 32);
    }
    q->range = (kv_range)(draw() * KV_RANGE_COUNT);
    if (q->range == KV_RANGE_PERCENTILE)
        q->range_value = (double)ONE_OF(50, 73, 90, 99, 100) + (chance(0.3) ? -0.001 : 0);
    if (q->range_value < 50) q->range_value = 50;
    if (chance(0.15)) q->static_tokens = ONE_OF(1, 7, 64, 1000);
    if (chance(0.15)) q->static_seeds = 1 + (int64_t)(draw() * CALIBRATIONS);
    q->is_asymmetric = chance(0.4);
    if (chance(0.5)) q->scale_storage = (kv_scale_storage)(draw() * KV_SCALE_COUNT);
    if (chance(0.25)) q->outliers_percent = (double)ONE_OF(1, 5, 20, 60) + (chance(0.3) ? 0.5 : 0);
}

/* Any settings that go together on this layer. */
static inline kv_quantizer draw_quantizer(const kv_layer *l, bool is_key)
{
    kv_quantizer q;
    kv_tensor_shape const all = {.heads = l->kv_heads,
                                 .tokens = l->tokens,
                                 .head_dim = l->head_dim,
                                 .rotary_dim = is_key ? l->rotary_dim : 0,
                                 .is_rope_interleaved = l->is_rope_interleaved};
    for (;;) {
        kv_error err = {0};
        q = (kv_quantizer){.format = (kv_format_id)(draw() * KV_FORMAT_COUNT)};
        if (kv_format_has_scale(kv_format_at(q.format))) draw_scaling(&q);
        for (int i = 0; i < KV_TRANSFORM_COUNT; i++) q.transforms[i].is_on = chance(0.25);
        if (chance(0.5)) q.transforms[KV_TRANSFORM_SMOOTH].value = (double)ONE_OF(1, 3, 10) / 10;
        q.transforms[KV_TRANSFORM_HADAMARD].value = (double)ONE_OF(0, 2, 4, 8, 32, 64);
        q.transforms[KV_TRANSFORM_HADAMARD].has_signs = chance(0.5);
        q.is_pre_rope = is_key && chance(0.3);
        if (chance(0.25)) q.sinks = ONE_OF(1, 3, 40);
        if (chance(0.25)) q.window = ONE_OF(1, 7, 70);
        if (chance(0.25)) q.flush = ONE_OF(2, 16, 50);
        kv_tensor_shape const fitted = kv_quantizer_fit_shape(&q, &all);
        if (kv_quantizer_check(&q, &fitted, &err) == KV_OK) return q;
    }
}

static inline void draw_quantizers(quantizers *q, const kv_layer *l, int n_keys, int n_values)
{
    for (int i = 0; i < n_keys; i++) q->keys[i] = draw_quantizer(l, true);
    for (int i = 0; i < n_values; i++) q->values[i] = draw_quantizer(l, false);
    make_pairs(q, n_keys, n_values);
}

/* The names of all quantizers of an evaluation, for messages. */
static inline void name_all(char *out, size_t size, const kv_evaluation *e)
{
    size_t used = 0;
    *out = '\0';
    for (int64_t i = 0; i < e->n_keys + e->n_values && used < size; i++) {
        char *text = NULL;
        kv_error err = {0};
        bool const is_key = i < e->n_keys;
        kv_quantizer_text(&text, is_key ? &e->keys[i] : &e->values[i - e->n_keys], &err);
        used +=
            (size_t)snprintf(out + used, size - used, "\n    %s %d: %s", is_key ? "key" : "value",
                             (int)(is_key ? i : i - e->n_keys), text ? text : err.message);
        kv_free(text);
    }
}

#endif
