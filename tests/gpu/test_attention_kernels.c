/* logits.cu and outputs.cu against plain loops, bit for bit, on odd shapes: what lies beside the
 * results must not change either. argv[1] is the emulated module. */
#include <math.h>

#include "kernels/real.h"
#include "tests/gpu/exp_arguments.h"
#include "tests/gpu/kernels.h"

static uint64_t state = 1;

static double draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) * 0x1p-53;
}

static float *draws(int64_t n, double spread)
{
    float *const x = calloc((size_t)n, sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = (float)((draw() - 0.5) * spread);
    return x;
}

/* Words of both, from tensors whose rows have `width` numbers. */
static void check_words(const char *what, const float *found, const float *expected, int64_t n,
                        int64_t width)
{
    int64_t bad = 0, first = 0;
    for (int64_t i = 0; i < n; i++)
        if (kv_float_bits(found[i]) != kv_float_bits(expected[i]) && bad++ == 0) first = i;
    CHECK(bad == 0, "%s: %d of %d differ, first row %d, column %d: %.9g, expected %.9g", what,
          (int)bad, (int)n, (int)(first / width), (int)(first % width), (double)found[first],
          (double)expected[first]);
}

static float *unwritten(int64_t n)
{
    float *const x = malloc((size_t)n * sizeof *x);
    memset(x, 0xff, (size_t)n * sizeof *x); /* as room() gives it */
    return x;
}

/* ---- logits ---- */

typedef struct {
    int64_t heads, tokens, head_dim, rows, queries, schemes, first_token, end_token, stride;
} logits_case;

/* Rows in pieces that end in each of a thread's rows, under schemes -1, 0, 1 ...; the last row is
 * in no chunk. */
static int64_t list_chunks(kv_cuda_chunk *chunks, int64_t rows, int64_t schemes)
{
    static const int32_t sizes[] = {23, KV_CUDA_ROWS, 40, 1, 55, 7};
    int64_t n = 0;
    for (int64_t first = 0; first < rows - 1; first += chunks[n++].n) {
        int64_t const left = rows - 1 - first, size = sizes[n % 6];
        chunks[n] = (kv_cuda_chunk){.scheme = (int32_t)(n % (schemes + 1) - 1),
                                    .n = (int32_t)(size < left ? size : left),
                                    .first = first};
    }
    return n;
}

static const float *tensor_of(const float *exact, const float *decoded, int32_t scheme,
                              int64_t size)
{
    return scheme < 0 ? exact : decoded + scheme * size;
}

static void plain_logits(float *out, const kv_cuda_logits *a)
{
    for (int64_t h = 0; h < a->heads; h++)
        for (int64_t i = 0; i < a->n_chunks; i++)
            for (int64_t r = a->chunks[i].first; r < a->chunks[i].first + a->chunks[i].n; r++)
                for (int64_t t = a->first_token; t < a->end_token; t++) {
                    const float *const key = tensor_of(a->key, a->decoded, a->chunks[i].scheme,
                                                       a->heads * a->tokens * a->head_dim) +
                                             (h * a->tokens + t) * a->head_dim;
                    const float *const query =
                        a->query + (h * a->queries + a->row_query[r]) * a->head_dim;
                    float sum = 0;
                    for (int64_t c = 0; c < a->head_dim; c++) sum = fmaf(key[c], query[c], sum);
                    out[(h * a->rows + r) * a->stride + t - a->first_token] =
                        sum * a->softmax_scale;
                }
}

static void check_logits(emulated *e, const logits_case *s)
{
    int64_t const size = s->heads * s->tokens * s->head_dim;
    int64_t const n = s->heads * s->rows * s->stride,
                  of_queries = s->heads * s->queries * s->head_dim;
    float *const key = draws(size, 4), *const decoded = draws(s->schemes * size, 4);
    float *const query = draws(of_queries, 4), *const expected = unwritten(n);
    float *const found = malloc((size_t)n * sizeof *found);
    int32_t row_query[256];
    kv_cuda_chunk chunks[64];
    /* A last product that underflows leaves -0, which padding must keep. */
    for (int64_t c = 0; c < s->head_dim; c++) {
        bool const is_last = c == s->head_dim - 1;
        key[s->first_token * s->head_dim + c] = is_last ? 1e-30f : 0;
        query[c] = is_last ? -1e-30f : 0;
    }
    for (int64_t r = 0; r < s->rows; r++) row_query[r] = (int32_t)(r * 3 % s->queries);
    kv_cuda_logits a = {.key = key,
                        .decoded = decoded,
                        .query = query,
                        .row_query = row_query,
                        .chunks = chunks,
                        .n_chunks = list_chunks(chunks, s->rows, s->schemes),
                        .rows = s->rows,
                        .queries = s->queries,
                        .heads = s->heads,
                        .tokens = s->tokens,
                        .head_dim = s->head_dim,
                        .first_token = s->first_token,
                        .end_token = s->end_token,
                        .stride = s->stride,
                        .softmax_scale = 0.7f};
    plain_logits(expected, &a);
    a.logits = room(e, (size_t)n * sizeof *found);
    a.key = to_device(e, key, (size_t)size * sizeof *key);
    a.decoded = to_device(e, decoded, (size_t)(s->schemes * size) * sizeof *decoded);
    a.query = to_device(e, query, (size_t)of_queries * sizeof *query);
    a.row_query = to_device(e, row_query, (size_t)(s->rows - 1) * sizeof *row_query);
    a.chunks = to_device(e, chunks, (size_t)a.n_chunks * sizeof *chunks);
    DO(e, logits, &a);
    to_host(e, found, a.logits, (size_t)n * sizeof *found);
    check_words("logits", found, expected, n, s->stride);
    free(key), free(decoded), free(query), free(expected), free(found);
    give_back(e);
}

/* ---- outputs ---- */

typedef struct {
    int64_t heads, tokens, head_dim, rows, outs, schemes, first_token, end_token, stride, splits;
    int64_t split_tokens;
    int32_t zeroes_small;
    bool shows_weights;
} outputs_case;

static float weight_of(const kv_cuda_outputs *a, int64_t row, int64_t t)
{
    if (t < a->row_seen[2 * row] || t >= a->row_seen[2 * row + 1]) return 0;
    float const w = kv_expf(a->logits[row * a->stride + t - a->first_token] - a->row[row].max);
    return a->zeroes_small && w < KV_LEAST_WEIGHT ? 0 : w;
}

static float plain_output(const kv_cuda_outputs *a, const float *value, int64_t row, int64_t split)
{
    int64_t const begin = a->first_token + split * a->split_tokens;
    float out = 0, sum = 0;
    for (int64_t t = begin; t < begin + a->split_tokens && t < a->end_token; t++) {
        if (t % KV_CUDA_SUM == 0) out += sum, sum = 0;
        sum = fmaf(weight_of(a, row, t), value[t * a->head_dim], sum);
    }
    return out + sum;
}

static void plain_outputs(float *out, const kv_cuda_outputs *a)
{
    for (int64_t h = 0; h < a->heads; h++)
        for (int64_t i = 0; i < a->n_chunks; i++)
            for (int64_t o = a->chunks[i].first; o < a->chunks[i].first + a->chunks[i].n; o++)
                for (int64_t split = 0; split < a->splits; split++)
                    for (int64_t c = 0; c < a->head_dim; c++) {
                        const float *const value =
                            tensor_of(a->value, a->decoded, a->chunks[i].scheme,
                                      a->heads * a->tokens * a->head_dim) +
                            h * a->tokens * a->head_dim + c;
                        out[((h * a->splits + split) * a->outs + o) * a->head_dim + c] =
                            plain_output(a, value, h * a->rows + a->out_row[o], split);
                    }
}

/* The least x whose weight is used; the one below it weighs less than KV_LEAST_WEIGHT. */
static float least_logit(void)
{
    float x = -59.7f;
    while (kv_expf(x) < KV_LEAST_WEIGHT) x = nextafterf(x, 0);
    return x;
}

/* Values that make each token's weight an output of its own, of many arguments of exp. */
static void show_weights(const outputs_case *s, kv_cuda_row *row, float *logits, float *value)
{
    for (int64_t i = 0; i < s->tokens * s->head_dim; i++)
        value[i] = i / s->head_dim == i % s->head_dim;
    for (int64_t r = 0; r < s->rows; r++) {
        row[r].max = 0;
        for (int64_t t = 0; t < s->end_token; t++)
            logits[r * s->stride + t] =
                t < EXP_ARGUMENTS ? exp_arguments[t] : -(float)(draw() * (t % 2 ? 88 : 20));
        logits[r * s->stride + EXP_ARGUMENTS] = least_logit();
        logits[r * s->stride + EXP_ARGUMENTS + 1] = nextafterf(least_logit(), -INFINITY);
    }
}

/* Rows see all, a part that begins or ends inside a step, or nothing. Logits reach below the least
 * weight, which is none's own. */
static void fill_rows(const outputs_case *s, kv_cuda_row *row, int64_t *seen, float *logits)
{
    float const least = least_logit();
    for (int64_t r = 0; r < s->heads * s->rows; r++) {
        int64_t const n = s->end_token - s->first_token;
        int64_t const from = r % 3 == 1 ? (int64_t)(draw() * (double)n) : 0;
        int64_t const to = r % 3 == 2 ? (int64_t)(draw() * (double)n) : n;
        seen[2 * r] = s->first_token + from, seen[2 * r + 1] = s->first_token + to;
        row[r] = (kv_cuda_row){.max = r % 2 ? 0 : 1.5f};
        for (int64_t t = 0; t < s->stride; t++) {
            float const below = row[r].max - (float)(draw() * (t % 5 ? 3 : 95));
            logits[r * s->stride + t] = t % 3 ? below : (float)draw() / 64; /* minus max: rounded */
        }
        if (r % 2 == 0) continue;
        logits[r * s->stride] = least;
        if (n > 1) logits[r * s->stride + 1] = nextafterf(least, -INFINITY);
    }
}

static void check_outputs(emulated *e, const outputs_case *s)
{
    int64_t const size = s->heads * s->tokens * s->head_dim, of_rows = s->heads * s->rows;
    int64_t const n = s->heads * s->splits * s->outs * s->head_dim;
    float *const value = draws(size, 4), *const decoded = draws(s->schemes * size, 4);
    float *const logits = draws(of_rows * s->stride, 1), *const expected = unwritten(n);
    float *const found = malloc((size_t)n * sizeof *found);
    int64_t *const seen = calloc((size_t)(2 * of_rows), sizeof *seen);
    kv_cuda_row *const row = calloc((size_t)of_rows, sizeof *row);
    int32_t out_row[256];
    kv_cuda_chunk chunks[64];
    fill_rows(s, row, seen, logits);
    if (s->shows_weights) show_weights(s, row, logits, value);
    for (int64_t o = 0; o < s->outs; o++) out_row[o] = (int32_t)(o * 5 % s->rows);
    kv_cuda_outputs a = {.value = value,
                         .decoded = decoded,
                         .logits = logits,
                         .row = row,
                         .row_seen = seen,
                         .out_row = out_row,
                         .chunks = chunks,
                         .n_chunks = list_chunks(chunks, s->outs, s->schemes),
                         .rows = s->rows,
                         .outs = s->outs,
                         .heads = s->heads,
                         .tokens = s->tokens,
                         .head_dim = s->head_dim,
                         .first_token = s->first_token,
                         .end_token = s->end_token,
                         .stride = s->stride,
                         .splits = s->splits,
                         .split_tokens = s->split_tokens,
                         .zeroes_small = s->zeroes_small};
    plain_outputs(expected, &a);
    a.partial = room(e, (size_t)n * sizeof *found);
    a.value = to_device(e, value, (size_t)size * sizeof *value);
    a.decoded = to_device(e, decoded, (size_t)(s->schemes * size) * sizeof *decoded);
    a.logits = to_device(e, logits, (size_t)(of_rows * s->stride) * sizeof *logits);
    a.row = to_device(e, row, (size_t)of_rows * sizeof *row);
    a.row_seen = to_device(e, seen, (size_t)(2 * of_rows) * sizeof *seen);
    a.out_row = to_device(e, out_row, (size_t)(s->outs - 1) * sizeof *out_row);
    a.chunks = to_device(e, chunks, (size_t)a.n_chunks * sizeof *chunks);
    DO(e, outputs, &a);
    to_host(e, found, a.partial, (size_t)n * sizeof *found);
    check_words("outputs", found, expected, n, s->head_dim);
    free(value), free(decoded), free(logits), free(expected), free(found), free(seen), free(row);
    give_back(e);
}

static void check_nothing(emulated *e)
{
    e->fail(GPU_LAUNCH, 0);
    for (int i = 0; i < 2; i++) {
        kv_cuda_logits const l = {.heads = i, .n_chunks = !i, .head_dim = 4, .end_token = 5};
        kv_cuda_outputs const o = {.heads = i, .n_chunks = !i, .head_dim = 4, .splits = 1};
        DO(e, logits, &l);
        DO(e, outputs, &o);
    }
    CHECK(e->calls(GPU_LAUNCH) == 0, "%d launches", e->calls(GPU_LAUNCH));
}

int main(int argc, char **argv)
{
    /* heads, tokens, head_dim, rows, queries, schemes, first, end, stride */
    static const logits_case of_logits[] = {
        {2, 103, 64, 200, 50, 2, 3, 103, 100}, {1, 90, 33, 68, 68, 1, 3, 70, 80},
        {3, 66, 3, 5, 2, 2, 1, 66, 65},        {1, 1, 130, 2, 1, 0, 0, 1, 7},
        {1, 70, 5, 3, 3, 0, 64, 69, 5},        {1, 12, 3, 66, 5, 0, 0, 12, 15},
        {1, 20, 1, 66, 5, 0, 0, 20, 22},       {1, 28, 3, 66, 5, 0, 0, 28, 29},
        {1, 45, 2, 66, 5, 0, 0, 44, 48},       {1, 52, 3, 66, 5, 0, 0, 52, 53},
        {1, 60, 1, 66, 5, 0, 0, 60, 64},
    };
    /* heads, tokens, head_dim, rows, outs, schemes, first, end, stride, splits, split_tokens */
    static const outputs_case of_outputs[] = {
        {1, 60, 60, 65, 65, 0, 0, 60, 60, 1, 256, 0, 1},
        {1, 60, 60, 65, 65, 0, 0, 60, 60, 1, 256, 1, 1},
        {2, 270, 131, 9, 92, 2, 0, 270, 270, 2, 256, 1, 0},
        {1, 560, 20, 9, 90, 0, 0, 560, 560, 1, 768, 1, 0},
        {1, 300, 20, 30, 200, 2, 0, 300, 301, 1, 512, 1, 0},
        {1, 810, 130, 4, 6, 1, 256, 801, 560, 1, 768, 0, 0},
        {2, 600, 3, 9, 12, 2, 0, 520, 520, 3, 512, 1, 0},
        {1, 1, 257, 1, 2, 0, 0, 1, 1, 1, 256, 1, 0},
        {1, 257, 128, 3, 4, 0, 0, 257, 257, 2, 256, 0, 0},
        {1, 40, 7, 4, 90, 1, 0, 40, 40, 1, 256, 0, 0},
        {2, 9, 6, 4, 90, 1, 0, 9, 9, 1, 256, 0, 0},
        {1, 33, 5, 4, 90, 1, 0, 33, 33, 1, 256, 1, 0},
        {1, 300, 3, 9, 90, 0, 256, 290, 40, 1, 256, 0, 0},
    };
    emulated e = emulated_open(argc, argv);
    for (size_t i = 0; i < sizeof of_logits / sizeof *of_logits; i++)
        e.set_seed(i), check_logits(&e, &of_logits[i]);
    for (size_t i = 0; i < sizeof of_outputs / sizeof *of_outputs; i++)
        e.set_seed(i), check_outputs(&e, &of_outputs[i]);
    check_nothing(&e);
    emulated_close(&e);
    return check_done();
}
