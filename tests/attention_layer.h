/* A random layer in memory for tests of backends (evaluate, attend): keys with an outlier channel
 * and channel means, rotated, with calibration draws; queries, windows and needles; and its tensors
 * as schemes decode them. */
#ifndef KVANT_TESTS_ATTENTION_LAYER_H
#define KVANT_TESTS_ATTENTION_LAYER_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"
#include "kernels/rope.h"
#include "tests/check.h"

enum { CALIBRATIONS = 2 };

typedef struct {
    kv_layer layer;
    kv_rope *rope;
    float *key, *pre_rope, *value; /* [1 + CALIBRATIONS][G][T][D] */
    float *query;                  /* [H][Q][D] */
    int64_t *position, *needle;
    int64_t failing_head; /* load fails from this kv head on; -1 never */
} memory_layer;

static uint64_t state = 1;

static inline double draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) * 0x1p-53;
}

static inline float draw_normal(void)
{
    return (float)(sqrt(-2 * log(1 - draw())) * cos(6.283185307179586 * draw()));
}

static inline kv_status load(void *context, kv_tensor tensor, int64_t head, int64_t calibration,
                             float *out, kv_error *err)
{
    const memory_layer *const m = context;
    const kv_layer *const l = &m->layer;
    const float *const all[] = {m->key, m->pre_rope, m->value};
    if (m->failing_head >= 0 && head >= m->failing_head)
        return KV_FAIL(err, KV_EIO, "head %d cannot be read", (int)head);
    memcpy(out, all[tensor] + (calibration * l->kv_heads + head) * l->tokens * l->head_dim,
           (size_t)(l->tokens * l->head_dim) * sizeof *out);
    return KV_OK;
}

static inline kv_status load_query(void *context, int64_t head, float *out, kv_error *err)
{
    const memory_layer *const m = context;
    int64_t const n =
        m->layer.query_heads / m->layer.kv_heads * m->layer.queries * m->layer.head_dim;
    (void)err;
    memcpy(out, m->query + head * n, (size_t)n * sizeof *out);
    return KV_OK;
}

static inline float *floats(int64_t n)
{
    return calloc((size_t)n, sizeof(float));
}

typedef struct {
    int64_t tokens, head_dim, kv_heads, group, queries, window;
    bool ends; /* queries sit at the end, else anywhere */
} shape;

/* Keys with an outlier channel and channel means, rotated; queries with some spread of logits. */
static inline void make_layer(memory_layer *m, const shape *s)
{
    int64_t const T = s->tokens, D = s->head_dim, G = s->kv_heads, Q = s->queries;
    int64_t const H = G * s->group, n = (1 + CALIBRATIONS) * G * T * D;
    kv_error err = {0};
    *m = (memory_layer){.failing_head = -1};
    kv_rope_settings const turned = {.layout = D > 1 ? KV_ROPE_HALF : KV_ROPE_NONE,
                                     .rotary_dim = D / 2 * 2};
    kv_rope_create(&m->rope, &turned, D, &err);
    m->key = floats(n), m->pre_rope = floats(n), m->value = floats(n), m->query = floats(H * Q * D);
    m->position = calloc((size_t)Q, sizeof *m->position);
    m->needle = calloc((size_t)(H * Q), sizeof *m->needle);
    for (int64_t i = 0; i < n; i++) {
        float const z = draw_normal();
        m->pre_rope[i] = i % D == 3 ? 8 * z : i % D == 5 ? z + 6 : z;
        m->value[i] = draw_normal();
    }
    memcpy(m->key, m->pre_rope, (size_t)n * sizeof *m->key);
    for (int64_t h = 0; h < (1 + CALIBRATIONS) * G; h++)
        kv_rope_apply(m->rope, 0, T, m->key + h * T * D);
    for (int64_t i = 0; i < H * Q * D; i++) m->query[i] = draw_normal();
    for (int64_t i = 0; i < Q; i++)
        m->position[i] = s->ends ? (T - Q + i > 0 ? T - Q + i : 0) : (int64_t)(draw() * (double)T);
    for (int64_t i = 0; i < H * Q; i++)
        m->needle[i] = i % 3 ? -1 : (int64_t)(draw() * (double)(m->position[i % Q] + 1));
    m->layer =
        (kv_layer){.kv_heads = G,
                   .query_heads = H,
                   .tokens = T,
                   .head_dim = D,
                   .queries = Q,
                   .window = s->window,
                   .softmax_scale = 1 / sqrt((double)D),
                   .rotary_dim = D / 2 * 2,
                   .query_position = m->position,
                   .needle = m->needle,
                   .source = {.context = m, .load = load, .query = load_query, .rope = m->rope}};
}

static inline void free_layer(memory_layer *m)
{
    kv_rope_free(m->rope);
    free(m->key), free(m->pre_rope), free(m->value), free(m->query);
    free(m->position), free(m->needle);
}

/* Decoded tensor of one scheme, all kv heads, as attention uses it: [G][T][D]. Also its bits. */
static inline float *decode_all(const memory_layer *m, const kv_quantizer *q, bool is_key,
                                double *bits)
{
    const kv_layer *const l = &m->layer;
    int64_t const n = l->tokens * l->head_dim, G = l->kv_heads;
    const float *const x = !is_key ? m->value : q->is_pre_rope ? m->pre_rope : m->key;
    bool const is_wide = kv_quantizer_is_layer_wide(q);
    kv_tensor_shape const fitted = {.heads = is_wide ? G : 1,
                                    .tokens = l->tokens,
                                    .head_dim = l->head_dim,
                                    .rotary_dim = is_key && !q->is_pre_rope ? l->rotary_dim : 0};
    float *const y = floats(G * n);
    kv_error err = {0};
    *bits = 0;
    for (int64_t first = 0; first < G; first += fitted.heads) {
        kv_fit *fit = NULL;
        CHECK(kv_fit_create(&fit, q, &fitted, &err) == KV_OK, "%s", err.message);
        for (kv_fit_wants wants; (wants = kv_fit_next(fit)) != KV_FIT_READY;) {
            int64_t const from = wants == KV_FIT_TENSOR ? 0 : 1;
            int64_t const to = wants == KV_FIT_TENSOR ? 0 : q->static_seeds;
            for (int64_t c = from; c <= to; c++)
                for (int64_t h = 0; h < fitted.heads; h++)
                    kv_fit_absorb(fit, h, x + (c * G + first + h) * n, &err);
            kv_fit_end_pass(fit, &err);
        }
        float *const scratch = floats(kv_fit_scratch_floats(fit, l->tokens));
        for (int64_t h = 0; h < fitted.heads; h++)
            kv_fit_decode(fit, h, x + (first + h) * n, 0, l->tokens, y + (first + h) * n, scratch);
        *bits += (double)kv_fit_bits(fit);
        free(scratch);
        kv_fit_free(fit);
    }
    for (int64_t h = 0; is_key && q->is_pre_rope && h < G; h++)
        kv_rope_apply(m->rope, 0, l->tokens, y + h * n);
    return y;
}

#endif
