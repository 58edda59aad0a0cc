/* The decode stack in plain double precision, one run at a time, with dense matrices: the reference
 * of test_stack.c, written from the definitions in sim/stack.h. Keys and values come dequantized
 * from kv_fit, which test_quantize.c has checked; the pull of the queries from kv_heads_pull. */
#ifndef KVANT_TESTS_STACK_PLAIN_H
#define KVANT_TESTS_STACK_PLAIN_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/quantize.h"
#include "kernels/random.h"
#include "sim/stack_state.h"
#include "tests/check.h"

/* What is common to the runs of a stack. */
typedef struct {
    const kv_config *config;
    int64_t index[KV_CONFIG_MAX_AXES]; /* of the sweep point */
    const int64_t *numbers;            /* [L] of the layers */
    int64_t layers, streams, seed, N;
} plain_stack;

static inline void plain_must(kv_status status, const kv_error *err)
{
    if (status == KV_OK) return;
    printf("%s\n", err->message);
    exit(1);
}

static inline double *plain_doubles(int64_t n)
{
    return calloc((size_t)n, sizeof(double));
}

/* ---- tensors ---- */

/* All heads of a layer as a quantizer leaves them, [G][T][D]; NULL is exact. */
static inline float *plain_tensor(const kv_layer *l, const kv_quantizer *q, bool is_key)
{
    kv_error err = {0};
    int64_t const G = l->kv_heads, size = l->tokens * l->head_dim;
    bool const is_pre = is_key && q && q->is_pre_rope;
    kv_tensor const tensor = !is_key ? KV_VALUE : is_pre ? KV_KEY_PRE_ROPE : KV_KEY;
    float *const x = calloc((size_t)(G * size), sizeof *x), *const y = calloc((size_t)(G * size),
                                                                              sizeof *x);
    for (int64_t g = 0; g < G; g++)
        plain_must(l->source.load(l->source.context, tensor, g, 0, x + g * size, &err), &err);
    memcpy(y, x, (size_t)(G * size) * sizeof *x);
    bool const is_wide = q && kv_quantizer_is_layer_wide(q);
    for (int64_t first = 0; q && first < G; first += is_wide ? G : 1) {
        int64_t const heads = is_wide ? G : 1;
        kv_fit *fit = NULL;
        kv_tensor_shape const shape = {.heads = heads,
                                       .tokens = l->tokens,
                                       .head_dim = l->head_dim,
                                       .rotary_dim = tensor == KV_KEY ? l->rotary_dim : 0,
                                       .is_rope_interleaved = l->is_rope_interleaved};
        plain_must(kv_fit_create(&fit, q, &shape, &err), &err);
        while (kv_fit_next(fit) != KV_FIT_READY) {
            for (int64_t h = 0; h < heads; h++)
                plain_must(kv_fit_absorb(fit, h, x + (first + h) * size, &err), &err);
            plain_must(kv_fit_end_pass(fit, &err), &err);
        }
        float *const scratch =
            calloc((size_t)kv_fit_scratch_floats(fit, l->tokens) + 1, sizeof *scratch);
        for (int64_t h = 0; h < heads; h++)
            kv_fit_decode(fit, h, x + (first + h) * size, 0, l->tokens, y + (first + h) * size,
                          scratch);
        free(scratch);
        kv_fit_free(fit);
    }
    for (int64_t g = 0; is_pre && g < G; g++)
        kv_rope_apply(l->source.rope, 0, l->tokens, y + g * size);
    free(x);
    return y;
}

/* ---- matrices ---- */

/* Element (i, j) of matrix `which` of a layer: signs * (I - 2/m 11^T) x Hadamard * signs. */
static inline double *plain_matrix(int64_t N, int which, int64_t layer, int64_t seed)
{
    int64_t size = 1;
    while (N % (2 * size) == 0) size *= 2;
    double const m = (double)(N / size);
    double *const P = plain_doubles(N * N);
    uint32_t *const word = calloc((size_t)(2 * N), sizeof *word);
    kv_philox_words(word, (uint64_t)seed, kv_stream_id((uint64_t)layer, 0, 0, KV_STACK_STREAM_SIGN),
                    (uint64_t)(2 * which * N), (size_t)(2 * N));
    for (int64_t i = 0; i < N; i++)
        for (int64_t j = 0; j < N; j++) {
            int parity = 0;
            for (int64_t bits = (i % size) & (j % size); bits; bits >>= 1)
                parity ^= (int)(bits & 1);
            double const across = (i / size == j / size ? 1 : 0) - 2 / m;
            double const sign = ((word[i] >> 31) ^ (word[N + j] >> 31)) ? -1 : 1;
            P[i * N + j] = sign * across * (parity ? -1 : 1) / sqrt((double)size);
        }
    free(word);
    return P;
}

static inline void plain_apply(double *y, const double *P, const double *x, int64_t N)
{
    for (int64_t i = 0; i < N; i++) {
        y[i] = 0;
        for (int64_t j = 0; j < N; j++) y[i] += P[i * N + j] * x[j];
    }
}

/* ---- a layer ---- */

static inline double plain_square(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sum;
}

static inline void plain_norm(double *y, const double *x, int64_t N)
{
    double const rms = sqrt(plain_square(x, N) / (double)N);
    for (int64_t i = 0; i < N; i++) y[i] = x[i] / rms;
}

/* One head's query against key and value [T][D]; returns the weight on the first `sinks` tokens. */
static inline double plain_attention(double *o, const double *q, const float *key,
                                     const float *value, const kv_layer *l, int64_t sinks)
{
    int64_t const T = l->tokens, D = l->head_dim;
    int64_t const first = l->window > 0 && l->window < T ? T - l->window : 0;
    double *const w = plain_doubles(T);
    double top = -INFINITY, sum = 0, on_sinks = 0;
    for (int64_t t = first; t < T; t++) {
        for (int64_t c = 0; c < D; c++) w[t] += q[c] * (double)key[t * D + c];
        w[t] *= l->softmax_scale;
        top = fmax(top, w[t]);
    }
    for (int64_t t = first; t < T; t++) sum += w[t] = exp(w[t] - top);
    for (int64_t c = 0; c < D; c++) o[c] = 0;
    for (int64_t t = first; t < T; t++) {
        for (int64_t c = 0; c < D; c++) o[c] += w[t] / sum * (double)value[t * D + c];
        if (t < sinks) on_sinks += w[t] / sum;
    }
    free(w);
    return on_sinks;
}

/* Constants that the exact streams leave for the runs, of one layer. */
typedef struct {
    double *pull; /* [S][N] */
    double output_scale, gate_scale;
    double *x, *o;    /* [S][N] exact, after the layer */
    double sink_mass; /* smallest over heads and streams */
} plain_layer;

/* q [S][N] = rope(gain_q P1 norm(x)), rotated in float like keys are. */
static inline void plain_queries(double *q, const plain_stack *s, const kv_layer *l, double gain,
                                 const double *P, const double *x)
{
    int64_t const N = s->N, D = l->head_dim;
    double *const y = plain_doubles(N), *const z = plain_doubles(N);
    float *const row = calloc((size_t)D, sizeof *row);
    for (int64_t i = 0; i < s->streams; i++) {
        plain_norm(y, x + i * N, N);
        plain_apply(z, P, y, N);
        for (int64_t h = 0; h < N / D; h++) {
            for (int64_t c = 0; c < D; c++) row[c] = (float)(gain * z[h * D + c]);
            kv_rope_apply(l->source.rope, l->tokens - 1, 1, row);
            for (int64_t c = 0; c < D; c++) q[i * N + h * D + c] = (double)row[c];
        }
    }
    free(y), free(z), free(row);
}

static inline void plain_find_pull(double *pull, const plain_stack *s, kv_heads *heads,
                                   const double *q)
{
    kv_error err = {0};
    const kv_layer *const l = kv_heads_layer(heads);
    int64_t const N = s->N, S = s->streams, D = l->head_dim, group = l->query_heads / l->kv_heads;
    float *const rows = calloc((size_t)(group * S * D), sizeof *rows);
    for (int64_t g = 0; g < l->kv_heads; g++) {
        for (int64_t r = 0; r < group * S * D; r++)
            rows[r] = (float)q[r / D % S * N + (g * group + r / D / S) * D + r % D];
        plain_must(kv_heads_pull(heads, g, rows, &err), &err);
        for (int64_t r = 0; r < group * S * D; r++) {
            int64_t const at = r / D % S * N + (g * group + r / D / S) * D + r % D;
            pull[at] = (double)rows[r] - (double)(float)q[at];
        }
    }
    free(rows);
}

/* Takes x [S][N] through layer number l; is_exact: the exact streams, which set the constants. o
 * [S][N] is the attention's output. */
static inline void plain_step(double *x, double *o, plain_layer *constants, const plain_stack *s,
                              int64_t l, const kv_quantizer *key, const kv_quantizer *value,
                              bool is_exact)
{
    kv_error err = {0};
    kv_heads_config settings = {0};
    kv_heads *heads = NULL;
    int64_t const N = s->N, S = s->streams;
    plain_must(kv_config_layer(&settings, s->config, s->index, s->numbers[l], &err), &err);
    plain_must(kv_heads_create_decoding(&heads, &settings, s->numbers[l], s->seed, S, &err), &err);
    const kv_layer *const layer = kv_heads_layer(heads);
    int64_t const D = layer->head_dim, group = layer->query_heads / layer->kv_heads;
    float *const k = plain_tensor(layer, key, true), *const v = plain_tensor(layer, value, false);
    double *P[4], *const q = plain_doubles(S * N), *const y = plain_doubles(N);
    double *const h = plain_doubles(N), *const gate = plain_doubles(S * N);
    double const gain = settings.stack_gain;
    for (int i = 0; i < 4; i++) P[i] = plain_matrix(N, i, s->numbers[l], s->seed);
    plain_queries(q, s, layer, settings.query_gain, P[0], x);
    if (is_exact) {
        constants->pull = plain_doubles(S * N);
        plain_find_pull(constants->pull, s, heads, q);
        constants->sink_mass = 1;
    }
    for (int64_t i = 0; i < S * N; i++) q[i] += constants->pull[i];
    for (int64_t i = 0; i < S * layer->query_heads; i++) {
        int64_t const head = i % layer->query_heads / group, size = layer->tokens * D;
        double const mass = plain_attention(o + i * D, q + i * D, k + head * size, v + head * size,
                                            layer, settings.sink_count);
        if (is_exact) constants->sink_mass = fmin(constants->sink_mass, mass);
    }
    if (is_exact) constants->output_scale = gain / sqrt(plain_square(o, S * N) / (double)(S * N));
    for (int64_t i = 0; i < S; i++) {
        plain_apply(y, P[1], o + i * N, N);
        for (int64_t c = 0; c < N; c++) x[i * N + c] += constants->output_scale * y[c];
        plain_norm(y, x + i * N, N);
        plain_apply(h, P[2], y, N);
        for (int64_t c = 0; c < N / 2; c++)
            gate[i * N + c] = h[c] / (1 + exp(-h[c])) * h[N / 2 + c];
    }
    if (is_exact)
        constants->gate_scale = gain / sqrt(plain_square(gate, S * N) / (double)(S * N / 2));
    for (int64_t i = 0; i < S; i++) {
        plain_apply(y, P[3], gate + i * N, N);
        for (int64_t c = 0; c < N; c++) x[i * N + c] += constants->gate_scale * y[c];
    }
    for (int i = 0; i < 4; i++) free(P[i]);
    free(k), free(v), free(q), free(y), free(h), free(gate);
    kv_heads_free(heads);
    kv_heads_config_free_contents(&settings);
}

/* ---- a run ---- */

/* One run, or with assignment NULL the exact streams, which fill `constants` [L]. err_square and
 * output_err_square [L] get powers: of the differences, or of the exact streams themselves. */
static inline void plain_run(double *err_square, double *output_err_square, plain_layer *constants,
                             const plain_stack *s, const kv_stack_runs *runs, int64_t run)
{
    int64_t const n = s->streams * s->N;
    double *const x = plain_doubles(n), *const o = plain_doubles(n);
    float *const z = calloc((size_t)n, sizeof *z);
    kv_philox_normals(z, (uint64_t)s->seed, kv_stream_id(0, 0, 0, KV_STACK_STREAM_STATE), 0,
                      (size_t)n);
    for (int64_t i = 0; i < n; i++) x[i] = (double)z[i];
    for (int64_t l = 0; l < s->layers; l++) {
        bool const is_exact = run < 0;
        const int32_t *const pair = is_exact ? NULL : runs->assignment[run * s->layers + l];
        plain_step(x, o, &constants[l], s, l, pair && pair[0] >= 0 ? &runs->keys[pair[0]] : NULL,
                   pair && pair[1] >= 0 ? &runs->values[pair[1]] : NULL, is_exact);
        if (is_exact) {
            constants[l].x = plain_doubles(n), constants[l].o = plain_doubles(n);
            memcpy(constants[l].x, x, (size_t)n * sizeof *x);
            memcpy(constants[l].o, o, (size_t)n * sizeof *o);
            err_square[l] = plain_square(x, n), output_err_square[l] = plain_square(o, n);
            continue;
        }
        err_square[l] = output_err_square[l] = 0;
        for (int64_t i = 0; i < n; i++) {
            err_square[l] += pow(x[i] - constants[l].x[i], 2);
            output_err_square[l] += pow(o[i] - constants[l].o[i], 2);
        }
    }
    free(x), free(o), free(z);
}

#endif
