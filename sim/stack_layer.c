/* The decode stack, one layer: queries, attention, the gated half, and what they changed.
 *
 * A row is one stream of one state, row = state * S + stream, so rows 0 ... S - 1 are the exact
 * streams. Every row is computed alone, with sums in a fixed order, but for the constants that the
 * exact streams set: the pull of the queries and the two scales. Vectors are [N], N = H D. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "kernels/memory.h"
#include "kernels/real.h"
#include "sim/stack_state.h"

enum { VECTORS = 3 }; /* of scratch for a thread */

typedef struct {
    const kv_stack *stack;
    const kv_heads_config *settings;
    const kv_branches *branches;
    kv_heads *heads;
    const kv_layer *layer;
    kv_mix mix;
    int threads;
    int64_t rows;
    const float *before; /* [states before][S][N] */
    const float *pull;   /* [H][S][D] what is added to a stream's queries, after RoPE */
    float *own_pull;     /* where it is nobody else's */
    float *query;   /* [H][rows][D]; once they are used, the states after the layer [rows][N] */
    float *out;     /* [H][rows][D] */
    float *scratch; /* [threads][VECTORS][N] */
    kv_stack_powers *row_powers;     /* [rows] */
    double output_scale, gate_scale; /* gain / rho of o and of the gate's result */
} step;

/* ---- vectors ---- */

static double square_of(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t c = 0; c < n; c++) sum += (double)x[c] * (double)x[c];
    return sum;
}

static double distance_square(const float *x, const float *y, int64_t n)
{
    double sum = 0;
    for (int64_t c = 0; c < n; c++) {
        double const d = (double)x[c] - (double)y[c];
        sum += d * d;
    }
    return sum;
}

/* y = x / RMS of x, 0 where x is 0. */
static void rms_norm(float *y, const float *x, int64_t n)
{
    double const square = square_of(x, n);
    float const scale = square > 0 ? (float)sqrt((double)n / square) : 0;
    for (int64_t c = 0; c < n; c++) y[c] = x[c] * scale;
}

/* x / (1 + e^-x), with the exponential of kernels/real.h. */
static float silu(float x)
{
    float const e = kv_exp2f(-1.442695041f * fabsf(x));
    return (x >= 0 ? x : x * e) / (1 + e);
}

/* The factor that brings `count` numbers with this sum of squares to RMS gain; 0 for zeros. */
static double scale_to(double gain, double square, int64_t count)
{
    return square > 0 ? gain / sqrt(square / (double)count) : 0;
}

static float *scratch_of(const step *s)
{
    return s->scratch + omp_get_thread_num() * VECTORS * s->stack->width;
}

/* x [N] to or from row `row` of heads [H][rows][D]. */
static void scatter(float *heads, int64_t rows, int64_t row, const float *x, const kv_layer *l)
{
    for (int64_t h = 0; h < l->query_heads; h++)
        memcpy(heads + (h * rows + row) * l->head_dim, x + h * l->head_dim,
               (size_t)l->head_dim * sizeof *x);
}

static void gather(float *x, const float *heads, int64_t rows, int64_t row, const kv_layer *l)
{
    for (int64_t h = 0; h < l->query_heads; h++)
        memcpy(x + h * l->head_dim, heads + (h * rows + row) * l->head_dim,
               (size_t)l->head_dim * sizeof *x);
}

/* ---- queries ---- */

/* q [N] = rope(gain_q * P1 rms_norm(x)), all heads, without the pull. */
static void make_query(float *q, const step *s, int64_t state, int64_t stream)
{
    const kv_layer *const l = s->layer;
    int64_t const n = s->stack->width;
    float const gain = (float)s->settings->query_gain;
    rms_norm(q, s->before + (state * s->stack->streams + stream) * n, n);
    kv_mix_apply(q, &s->mix, KV_MIX_QUERY, q);
    for (int64_t c = 0; c < n; c++) q[c] *= gain;
    for (int64_t h = 0; h < l->query_heads; h++)
        kv_rope_apply(l->source.rope, l->tokens - 1, 1, q + h * l->head_dim);
}

/* The pull is what kv_heads_pull adds to the exact streams' queries. */
static kv_status find_pull(step *s, kv_error *err)
{
    kv_status status = KV_OK, failed = KV_OK;
    const kv_layer *const l = s->layer;
    int64_t const streams = s->stack->streams, n = s->stack->width, heads = l->kv_heads;
    int64_t failed_head = heads;
    kv_error first = {0};
    float *plain = NULL;
    KV_TRY(kv_allocate3((void **)&s->own_pull, (size_t)streams, (size_t)n, 1, sizeof *s->own_pull,
                        err));
    KV_TRY(kv_allocate3((void **)&plain, (size_t)streams, (size_t)n, 1, sizeof *plain, err));
    for (int64_t i = 0; i < streams; i++) {
        make_query(s->scratch, s, 0, i);
        scatter(plain, streams, i, s->scratch, l);
    }
    memcpy(s->own_pull, plain, (size_t)(streams * n) * sizeof *plain);
#pragma omp parallel for schedule(dynamic) num_threads(s->threads) if (heads > 1)
    for (int64_t g = 0; g < heads; g++) {
        kv_error own = {0};
        kv_status const result =
            kv_heads_pull(s->heads, g, s->own_pull + g * (streams * n / heads), &own);
#pragma omp critical(kv_stack_pull)
        if (result != KV_OK && g < failed_head) failed_head = g, first = own, failed = result;
    }
    if (failed != KV_OK) {
        if (err && err->status == KV_OK) *err = first;
        KV_TRY(failed);
    }
    for (int64_t i = 0; i < streams * n; i++) s->own_pull[i] -= plain[i];
done:
    kv_free(plain);
    return status;
}

/* Queries of all rows. The branches of one state, neighbours, have the same. */
static void make_queries(step *s)
{
    const kv_layer *const l = s->layer;
    const kv_branch *const branch = s->branches->branches;
    int64_t const streams = s->stack->streams, n = s->stack->width, D = l->head_dim;
#pragma omp parallel for schedule(dynamic) num_threads(s->threads)
    for (int64_t row = 0; row < s->rows; row++) {
        int64_t const first = row / streams, stream = row % streams, from = branch[first].from;
        if (first > 0 && branch[first - 1].from == from) continue;
        float *const q = scratch_of(s);
        make_query(q, s, from, stream);
        for (int64_t c = 0; c < n; c++) q[c] += s->pull[(c / D * streams + stream) * D + c % D];
        for (int64_t b = first; b < s->branches->n_states && branch[b].from == from; b++)
            scatter(s->query, s->rows, b * streams + stream, q, l);
    }
}

static kv_status attend(step *s, const kv_backend *backend, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_stack_runs *const runs = s->branches->runs;
    void *pairs = NULL;
    KV_TRY(kv_allocate(&pairs, (size_t)s->rows, 2 * sizeof(int32_t), err));
    int32_t(*const pair)[2] = pairs;
    for (int64_t row = 0; row < s->rows; row++) {
        const kv_branch *const b = &s->branches->branches[row / s->stack->streams];
        pair[row][0] = b->key, pair[row][1] = b->value;
    }
    kv_attention const what = {.n_keys = runs->n_keys,
                               .n_values = runs->n_values,
                               .keys = runs->keys,
                               .values = runs->values,
                               .rows = s->rows,
                               .position = s->layer->tokens - 1,
                               .query = s->query,
                               .pair = (const int32_t(*)[2])pair};
    KV_TRY(backend->attend(s->layer, &what, s->threads, s->out, err));
done:
    kv_free(pairs);
    return status;
}

/* ---- the two halves ---- */

/* The row up to the gate: x becomes the state after the attention, gate [N] the gate's result in
 * its first half and 0 in the second, both of scratch. */
static void to_gate(float *x, float *gate, const step *s, int64_t row)
{
    int64_t const n = s->stack->width, streams = s->stack->streams;
    int64_t const from = s->branches->branches[row / streams].from;
    float const scale = (float)s->output_scale;
    memcpy(x, s->before + (from * streams + row % streams) * n, (size_t)n * sizeof *x);
    gather(gate, s->out, s->rows, row, s->layer);
    kv_mix_apply(gate, &s->mix, KV_MIX_OUTPUT, gate);
    for (int64_t c = 0; c < n; c++) x[c] += scale * gate[c];
    rms_norm(gate, x, n);
    kv_mix_apply(gate, &s->mix, KV_MIX_UP, gate);
    for (int64_t c = 0; c < n / 2; c++) {
        gate[c] = silu(gate[c]) * gate[n / 2 + c];
        gate[n / 2 + c] = 0;
    }
}

/* Scales that bring the exact streams' o and gate to RMS gain. */
static void find_scales(step *s)
{
    int64_t const n = s->stack->width, streams = s->stack->streams;
    double const gain = s->settings->stack_gain;
    float *const x = s->scratch, *const y = x + n;
    double square = 0;
    for (int64_t i = 0; i < streams; i++) {
        gather(x, s->out, s->rows, i, s->layer);
        square += square_of(x, n);
    }
    s->output_scale = scale_to(gain, square, streams * n);
    square = 0;
    for (int64_t i = 0; i < streams; i++) {
        to_gate(x, y, s, i);
        square += square_of(y, n / 2);
    }
    s->gate_scale = scale_to(gain, square, streams * (n / 2));
}

/* Rows first ... end - 1 become states after the layer. */
static void finish(step *s, int64_t first, int64_t end)
{
    int64_t const n = s->stack->width, streams = s->stack->streams;
    float const scale = (float)s->gate_scale;
#pragma omp parallel for schedule(static) num_threads(s->threads)
    for (int64_t row = first; row < end; row++) {
        float *const x = scratch_of(s), *const y = x + n, *const z = y + n;
        float *const after = s->query + row * n;
        int64_t const exact = row % streams;
        to_gate(x, y, s, row);
        for (int64_t c = 0; c < n / 2; c++) y[c] *= scale;
        kv_mix_apply(y, &s->mix, KV_MIX_DOWN, y);
        for (int64_t c = 0; c < n; c++) after[c] = x[c] + y[c];
        gather(y, s->out, s->rows, row, s->layer);
        gather(z, s->out, s->rows, exact, s->layer);
        kv_stack_powers *const powers = &s->row_powers[row];
        if (row == exact)
            *powers = (kv_stack_powers){square_of(after, n), square_of(y, n)};
        else
            *powers = (kv_stack_powers){distance_square(after, s->query + exact * n, n),
                                        distance_square(y, z, n)};
    }
}

static kv_status allocate(step *s, kv_error *err)
{
    kv_status status = KV_OK;
    size_t const rows = (size_t)s->rows, n = (size_t)s->stack->width;
    KV_TRY(kv_allocate3_unset((void **)&s->query, rows, n, 1, sizeof(float), err));
    KV_TRY(kv_allocate3_unset((void **)&s->out, rows, n, 1, sizeof(float), err));
    KV_TRY(kv_allocate3_unset((void **)&s->scratch, (size_t)s->threads, VECTORS, n, sizeof(float),
                              err));
    KV_TRY(kv_allocate((void **)&s->row_powers, rows, sizeof *s->row_powers, err));
done:
    return status;
}

kv_status kv_stack_step(float **states, kv_stack_powers *powers, const kv_stack *stack,
                        const kv_branches *branches, int64_t layer, int64_t seed,
                        const kv_stack_environment *environment, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t const number = stack->numbers[layer];
    step s = {.stack = stack,
              .settings = &stack->settings[layer],
              .branches = branches,
              .threads = environment->threads > 1 ? environment->threads : 1,
              .rows = branches->n_states * stack->streams,
              .before = *states};
    KV_TRY(kv_heads_create_decoding(&s.heads, s.settings, number, seed, stack->streams, err));
    s.layer = kv_heads_layer(s.heads);
    KV_TRY(kv_mix_create(&s.mix, stack->width, number, seed, err));
    KV_TRY(allocate(&s, err));
    s.pull = kv_stack_pulls_find(environment->pulls, seed, number);
    if (!s.pull) {
        KV_TRY(find_pull(&s, err));
        s.pull = s.own_pull;
        KV_TRY(kv_stack_pulls_add(environment->pulls, seed, number, &s.own_pull, err));
    }
    make_queries(&s);
    KV_TRY(attend(&s, environment->backend, err));
    find_scales(&s);
    finish(&s, 0, stack->streams);
    finish(&s, stack->streams, s.rows);
    for (int64_t i = 0; i < branches->n_states; i++) {
        powers[i] = (kv_stack_powers){0};
        for (int64_t stream = 0; stream < stack->streams; stream++) {
            powers[i].state += s.row_powers[i * stack->streams + stream].state;
            powers[i].output += s.row_powers[i * stack->streams + stream].output;
        }
    }
    kv_free(*states);
    *states = s.query, s.query = NULL;
done:
    kv_free(s.own_pull), kv_free(s.query), kv_free(s.out), kv_free(s.scratch),
        kv_free(s.row_powers);
    kv_mix_free_contents(&s.mix);
    kv_heads_free(s.heads);
    return status;
}
