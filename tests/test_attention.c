/* The CPU backend against plain double arithmetic, and against itself: heads of many shapes, all
 * block sizes, thread counts and instruction sets (bit for bit), exact schemes (exactly zero),
 * windows, needles, ties, calibration, layer-wide tiles, and memory that runs out. */
#include "tests/attention_plain.h"

#include <inttypes.h>
#include <stdlib.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/magnitudes.h"
#include "kernels/memory.h"
#include "kernels/shorthand.h"
#include "tests/attention_layer.h"
#include "tests/check.h"

/* ---- schemes ---- */

static const char *const key_texts[] = {"f32",
                                        "int8/channel",
                                        "int4/channel:zero:pre-rope",
                                        "int4/token:zero",
                                        "int8/tensor",
                                        "int4/head:static=seed:2",
                                        "int2/32x1:zero:window=7:sinks=2",
                                        "e4m3/tensor:static=seed:1",
                                        "int3/channel:zero:outliers=2"};
static const char *const value_texts[] = {"int8/token", "f32", "int4/token:zero", "e4m3/tensor",
                                          "int2/1x32:zero"};
enum {
    N_KEYS = sizeof key_texts / sizeof key_texts[0],
    N_VALUES = sizeof value_texts / sizeof value_texts[0],
    N_PAIRS = N_KEYS * N_VALUES - 1
};

typedef struct {
    kv_quantizer keys[N_KEYS], values[N_VALUES];
    int64_t pairs[N_PAIRS][2];
    kv_evaluation evaluation;
} schemes;

/* All pairs but one, so that "not wanted" is met. */
static void make_schemes(schemes *s)
{
    kv_error err = {0};
    int n = 0;
    for (int i = 0; i < N_KEYS; i++)
        CHECK(kv_quantizer_parse(&s->keys[i], key_texts[i], true, &err) == KV_OK, "%s",
              err.message);
    for (int i = 0; i < N_VALUES; i++)
        CHECK(kv_quantizer_parse(&s->values[i], value_texts[i], false, &err) == KV_OK, "%s",
              err.message);
    for (int i = 0; i < N_KEYS; i++)
        for (int j = 0; j < N_VALUES; j++)
            if (i != 2 || j != 3) s->pairs[n][0] = i, s->pairs[n++][1] = j;
    s->evaluation = (kv_evaluation){.n_keys = N_KEYS,
                                    .n_values = N_VALUES,
                                    .n_pairs = N_PAIRS,
                                    .keys = s->keys,
                                    .values = s->values,
                                    .pairs = (const int64_t(*)[2])s->pairs,
                                    .want_levels = true,
                                    .want_rows = true};
}

/* ---- comparison with the reference ---- */

static bool close_to(double found, double expected, double tolerance)
{
    if (isnan(expected)) return isnan(found);
    if (isinf(expected)) return found == expected;
    return fabs(found - expected) <= tolerance;
}

#define CLOSE(found, expected, tolerance, what)                                                    \
    CHECK(close_to(found, expected, tolerance), "%s: %.9g, expected %.9g within %.2g (%s)", what,  \
          (double)(found), (double)(expected), (double)(tolerance), where)

static double square_of(const float *x, const float *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double const d = (double)x[i] - (y ? (double)y[i] : 0);
        sum += d * d;
    }
    return sum;
}

static double distance(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (x[i] - (y ? y[i] : 0)) * (x[i] - (y ? y[i] : 0));
    return sqrt(sum);
}

static void make_row(plain_row *r, int64_t T, int64_t D)
{
    r->logit = calloc((size_t)(2 * T + D), sizeof(double));
    r->weight = r->logit + T, r->out = r->weight + T;
}

/* Rounding of one float logit: (D + 1) roundings, each at most 2^-24 of sum |q k|. A weight's
 * relative error is then at most twice that plus exp's few 2^-24, an output's the same plus the
 * sum's (a tile of 128, and the tiles) times the largest |v|. */
static void check_row(const memory_layer *m, const schemes *s, const kv_measurements *found,
                      float *const *keys, float *const *values, int64_t head, int64_t row,
                      plain_row *exact, plain_row *quantized, int64_t *ranks, const char *where)
{
    const kv_layer *const l = &m->layer;
    int64_t const T = l->tokens, D = l->head_dim, R = found->rows, n = T * D;
    int64_t const i = row % l->queries, position = l->query_position[i];
    int64_t const end = position + 1;
    int64_t const first = l->window > 0 && end > l->window ? end - l->window : 0;
    const float *const query = m->query + (head * R + row) * D;
    int64_t needle = m->needle[head * R + row];
    double largest = 0;
    if (needle < first) needle = -1;
    for (int64_t t = 0; t < T; t++)
        largest = fmax(largest, sqrt(square_of(m->value + head * n + t * D, NULL, D)));
    plain_attend(exact, query, m->key + head * n, m->value + head * n, first, end, D,
                 l->softmax_scale);
    double const u = 0x1p-24;
    double const logit_tolerance = (double)(D + 2) * u * exact->magnitude * 2;
    double const sums = (double)(128 + T / 128 + 16) * u;
    double const out_tolerance = 2 * (2 * logit_tolerance + sums) * largest;
    CHECK(found->visible[row] == end - first, "%s", where);
    double const out = distance(exact->out, NULL, D);
    CLOSE(sqrt(found->out_square[head * R + row]), out, out_tolerance, "|o|");
    for (int64_t k = 0; k < N_KEYS; k++) {
        const kv_key_row *const r = &found->key_rows[(head * N_KEYS + k) * R + row];
        plain_attend(quantized, query, keys[k] + head * n, NULL, first, end, D, l->softmax_scale);
        kv_key_row const e = plain_compare(exact, quantized, first, end, needle, ranks);
        double const lt = 2 * logit_tolerance, wt = 4 * logit_tolerance + sums;
        CLOSE(r->logit_err_max, e.logit_err_max, lt, "logit_err_max");
        CLOSE(sqrt(r->logit_err_square), sqrt(e.logit_err_square), lt * sqrt((double)(end - first)),
              "logit_err");
        CLOSE(r->kl, e.kl, wt * (1 + e.logit_err_max), "kl");
        CLOSE(r->tv, e.tv, wt, "tv");
        CLOSE(r->needle_margin, e.needle_margin, lt, "needle_margin");
        double const gap =
            fmin(plain_gap(exact->logit, first, end), plain_gap(quantized->logit, first, end));
        for (int a = 0; a < KV_TOP_COUNT && gap > 2 * lt; a++)
            CLOSE(r->top_agree[a], e.top_agree[a], 1e-12, "top_agree");
        for (int64_t p = 0; p < N_PAIRS; p++) {
            if (s->pairs[p][0] != k) continue;
            plain_attend(quantized, query, keys[k] + head * n, values[s->pairs[p][1]] + head * n,
                         first, end, D, l->softmax_scale);
            double const square = found->out_err_square[(head * N_PAIRS + p) * R + row];
            CLOSE(sqrt(square), distance(quantized->out, exact->out, D), 4 * out_tolerance,
                  "|o^ - o|");
        }
    }
}

static int ascending(const void *a, const void *b)
{
    float const x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void check_head_statistics(const memory_layer *m, const kv_measurements *found, int64_t head,
                                  float *const *keys, float *const *values, const char *where)
{
    int64_t const n = m->layer.tokens * m->layer.head_dim;
    const float *const key = m->key + head * n, *const value = m->value + head * n;
    float *const sorted = floats(n);
    for (int64_t i = 0; i < n; i++) sorted[i] = fabsf(key[i]);
    qsort(sorted, (size_t)n, sizeof *sorted, ascending);
    double const median = ((double)sorted[(n - 1) / 2] + (double)sorted[n / 2]) / 2;
    CLOSE(found->key_absmax[head], (double)sorted[n - 1], 0, "absmax");
    CLOSE(found->key_absmedian[head], median, 0, "absmedian");
    free(sorted);
    double const key_square = square_of(key, NULL, n), value_square = square_of(value, NULL, n);
    CLOSE(found->key_square[head], key_square, 1e-12 * key_square, "key_square");
    CLOSE(found->value_square[head], value_square, 1e-12 * value_square, "value_square");
    for (int k = 0; k < N_KEYS; k++) { /* float differences: each rounds by 2^-24 */
        double const square = square_of(keys[k] + head * n, key, n);
        CLOSE(found->key_err_square[head * N_KEYS + k], square, 1e-6 * square, key_texts[k]);
    }
    for (int k = 0; k < N_VALUES; k++) {
        double const square = square_of(values[k] + head * n, value, n);
        CLOSE(found->value_err_square[head * N_VALUES + k], square, 1e-6 * square, value_texts[k]);
    }
}

static void check_reference(const memory_layer *m, const schemes *s, const kv_measurements *found,
                            const char *where)
{
    int64_t const T = m->layer.tokens, D = m->layer.head_dim;
    float *keys[N_KEYS], *values[N_VALUES];
    plain_row exact, quantized;
    int64_t *const ranks = calloc((size_t)(2 * T), sizeof *ranks);
    double bits;
    make_row(&exact, T, D), make_row(&quantized, T, D);
    for (int i = 0; i < N_KEYS; i++) {
        keys[i] = decode_all(m, &s->keys[i], true, &bits);
        CLOSE(found->key_bits[i], bits, 0, key_texts[i]);
    }
    for (int i = 0; i < N_VALUES; i++) {
        values[i] = decode_all(m, &s->values[i], false, &bits);
        CLOSE(found->value_bits[i], bits, 0, value_texts[i]);
    }
    for (int64_t head = 0; head < m->layer.kv_heads; head++) {
        check_head_statistics(m, found, head, keys, values, where);
        int64_t const step = T > 200 ? 7 : 1; /* the plain ranks are slow */
        for (int64_t row = 0; row < found->rows; row += step)
            check_row(m, s, found, keys, values, head, row, &exact, &quantized, ranks, where);
    }
    for (int i = 0; i < N_KEYS; i++) free(keys[i]);
    for (int i = 0; i < N_VALUES; i++) free(values[i]);
    free(exact.logit), free(quantized.logit), free(ranks);
}

/* ---- the backend against itself ---- */

/* Two doubles with the same bits; all NaNs are one. */
static bool same(const double *x, const double *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&x[i], &y[i], sizeof x[i]) != 0 && !(isnan(x[i]) && isnan(y[i]))) return false;
    return true;
}

static void check_same(const kv_measurements *a, const kv_measurements *b, const char *where)
{
    int64_t const G = a->heads, R = a->rows;
    int64_t const row_doubles = (int64_t)(sizeof(kv_key_row) / sizeof(double));
    CHECK(same(a->out_square, b->out_square, G * R), "%s", where);
    CHECK(same(a->out_err_square, b->out_err_square, G * a->n_pairs * R), "%s", where);
    CHECK(same((const double *)a->key_rows, (const double *)b->key_rows,
               G * a->n_keys * R * row_doubles),
          "%s", where);
    CHECK(same(a->exact_needle_margin, b->exact_needle_margin, G * R), "%s", where);
    CHECK(same(a->key_err_square, b->key_err_square, G * a->n_keys), "%s", where);
    CHECK(same(a->value_err_square, b->value_err_square, G * a->n_values), "%s", where);
    CHECK(same(a->key_square, b->key_square, G), "%s", where);
    CHECK(same(a->key_levels, b->key_levels, G * a->n_keys), "%s", where);
    CHECK(same(a->key_bits, b->key_bits, a->n_keys), "%s", where);
}

static kv_measurements *measure(const memory_layer *m, const kv_evaluation *e, kv_cpu_options o,
                                int threads, const char *where)
{
    kv_measurements *found = NULL;
    kv_error err = {0};
    CHECK(kv_measurements_create(&found, &m->layer, e, &err) == KV_OK, "%s", err.message);
    kv_status const status = kv_cpu_evaluate_with(&o, &m->layer, e, threads, found, &err);
    CHECK(status == KV_OK, "%s: %s", where, err.message);
    return found;
}

/* Every instruction set this processor has, thread counts, rows and keys of a block. */
static void check_variants(const memory_layer *m, const kv_evaluation *e,
                           const kv_measurements *expected, bool is_small, const char *where)
{
    kv_isa const best = kv_isa_best();
    static const struct {
        int threads;
        int64_t rows, keys;
    } variants[] = {{1, 0, 0}, {2, 0, 0}, {5, 0, 0}, {1, 16, 1}, {2, 32, 4}, {5, 48, 99}};
    char text[256];
    for (size_t i = 1; i < sizeof variants / sizeof variants[0]; i++) {
        snprintf(text, sizeof text, "%s, %d threads, blocks of %d rows, %d keys", where,
                 variants[i].threads, (int)variants[i].rows, (int)variants[i].keys);
        kv_measurements *const found =
            measure(m, e, (kv_cpu_options){best, variants[i].rows, variants[i].keys},
                    variants[i].threads, text);
        check_same(found, expected, text);
        kv_measurements_free(found);
    }
    for (int isa = is_small ? 0 : 1; isa < (int)best; isa++) {
        snprintf(text, sizeof text, "%s, %s", where, kv_isa_text((kv_isa)isa));
        kv_measurements *const found = measure(m, e, (kv_cpu_options){.isa = (kv_isa)isa}, 2, text);
        check_same(found, expected, text);
        kv_measurements_free(found);
    }
}

/* Key scheme 0 and value scheme 1 are exact. */
static void check_exact_is_zero(const kv_measurements *found, const schemes *s, const char *where)
{
    for (int64_t h = 0; h < found->heads; h++) {
        for (int64_t r = 0; r < found->rows; r++) {
            const kv_key_row *const row = &found->key_rows[h * N_KEYS * found->rows + r];
            CHECK(row->logit_err_max == 0 && row->logit_err_square == 0 && row->kl == 0 &&
                      row->tv == 0,
                  "%s", where);
            for (int i = 0; i < KV_TOP_COUNT; i++) CHECK(row->top_agree[i] == 1, "%s", where);
            double const margin = found->exact_needle_margin[h * found->rows + r];
            CHECK(same(&row->needle_margin, &margin, 1), "%s", where);
        }
        for (int64_t p = 0; p < N_PAIRS; p++)
            for (int64_t r = 0; r < found->rows; r++)
                if (s->pairs[p][0] == 0 && s->pairs[p][1] == 1)
                    CHECK(found->out_err_square[(h * N_PAIRS + p) * found->rows + r] == 0, "%s",
                          where);
        CHECK(found->key_err_square[h * N_KEYS] == 0, "%s", where);
    }
}

static void test_shapes(void)
{
    static const shape shapes[] = {
        {1, 32, 1, 1, 1, 0, true},      {5, 64, 2, 2, 3, 0, true},
        {63, 64, 1, 4, 5, 0, false},    {64, 96, 2, 1, 17, 0, true},
        {65, 128, 3, 2, 8, 0, false},   {300, 128, 2, 3, 11, 40, false},
        {300, 32, 1, 1, 64, 129, true}, {1000, 128, 1, 1, 64, 0, true},
        {1000, 256, 2, 2, 9, 0, false},
    };
    static schemes s;
    make_schemes(&s);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        memory_layer m;
        char where[128];
        const shape *const h = &shapes[i];
        snprintf(where, sizeof where,
                 "T %" PRId64 " D %" PRId64 " G %" PRId64 " group %" PRId64 " Q %" PRId64
                 " window %" PRId64,
                 h->tokens, h->head_dim, h->kv_heads, h->group, h->queries, h->window);
        make_layer(&m, h);
        kv_measurements *const found =
            measure(&m, &s.evaluation, (kv_cpu_options){.isa = kv_isa_best()}, 1, where);
        check_reference(&m, &s, found, where);
        check_exact_is_zero(found, &s, where);
        check_variants(&m, &s.evaluation, found, h->tokens <= 65, where);
        kv_measurements_free(found);
        free_layer(&m);
    }
}

/* Tokens that are all alike: equal logits rank by lower token, so nothing changes but the needle.
 */
static void test_ties(void)
{
    static schemes s;
    memory_layer m;
    make_schemes(&s);
    make_layer(&m, &(shape){200, 64, 1, 1, 4, 0, true});
    for (int64_t i = 0; i < 200 * 64; i++) m.key[i] = m.pre_rope[i] = (float)(i % 64) / 64;
    kv_evaluation e = s.evaluation;
    e.n_keys = 2, e.n_pairs = 1;
    kv_measurements *const found =
        measure(&m, &e, (kv_cpu_options){.isa = kv_isa_best()}, 1, "ties");
    for (int64_t i = 0; i < 2 * found->rows; i++)
        for (int k = 0; k < KV_TOP_COUNT; k++)
            CHECK(found->key_rows[i].top_agree[k] == 1, "row %d: %g", (int)i,
                  found->key_rows[i].top_agree[k]);
    kv_measurements_free(found);
    free_layer(&m);
}

/* Small and large tensors: plain, few values, many zeros, sorted (so that a sample misleads). */
static void test_magnitudes(void)
{
    static const int64_t sizes[] = {1, 2, 3, 15, 16, 17, 33, 1000, 8192, 20001, 60000};
    enum { MOST = 60000, KINDS = 5 };
    float *const x = floats(MOST), *const sorted = floats(MOST);
    for (int isa = 0; isa <= (int)kv_isa_best(); isa++)
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
            for (int kind = 0; kind < KINDS; kind++) {
                const kv_cpu_kernels *const kernels = kv_cpu_kernels_of((kv_isa)isa);
                int64_t const n = sizes[s];
                for (int64_t i = 0; i < n; i++) {
                    float const z = draw_normal();
                    x[i] = kind == 1   ? rintf(z)
                           : kind == 2 ? (draw() < 0.5 ? -0.0f : z * 1e-40f)
                           : kind == 3 ? (float)(i / 64 * 64)
                                       : z;
                    if (kind == 4) x[i] = i % 64 ? z : 100 * z; /* where a sample looks */
                    sorted[i] = fabsf(x[i]);
                }
                qsort(sorted, (size_t)n, sizeof *sorted, ascending);
                kv_magnitudes const m = kv_magnitudes_of(kernels, x, n);
                double const median = ((double)sorted[(n - 1) / 2] + (double)sorted[n / 2]) / 2;
                CHECK(m.median == median && m.largest == (double)sorted[n - 1] &&
                          m.not_finite == -1,
                      "n %d kind %d: %g, not %g; %g", (int)n, kind, m.median, median, m.largest);
                x[n / 2] = n % 2 ? NAN : -INFINITY;
                CHECK(kv_magnitudes_of(kernels, x, n).not_finite == n / 2, "n %d", (int)n);
            }
    free(x), free(sorted);
}

static kv_status evaluate(const memory_layer *m, const kv_evaluation *e, int threads, kv_error *err)
{
    kv_measurements *found = NULL;
    kv_status status = kv_measurements_create(&found, &m->layer, e, err);
    if (status == KV_OK) status = kv_cpu_evaluate(&m->layer, e, threads, found, err);
    kv_measurements_free(found);
    return status;
}

/* The lowest head's error is told, whatever the threads; NaN is found and placed. */
static void test_errors(void)
{
    static schemes s;
    memory_layer m;
    make_schemes(&s);
    make_layer(&m, &(shape){70, 32, 6, 1, 2, 0, true});
    m.failing_head = 2;
    for (int threads = 1; threads <= 8; threads++) {
        kv_error err = {0};
        CHECK(evaluate(&m, &s.evaluation, threads, &err) == KV_EIO, "%d threads", threads);
        CHECK_TEXT(err.message, "head 2 cannot be read");
    }
    m.failing_head = -1;
    kv_evaluation e = s.evaluation;
    e.n_keys = 1, e.n_values = 1, e.n_pairs = 1;
    m.key[(4 * 70 + 9) * 32 + 5] = NAN;
    kv_error err = {0};
    CHECK(evaluate(&m, &e, 2, &err) == KV_ENUMERIC, " ");
    CHECK_TEXT(err.message, "kv head 4: key of token 9, channel 5 is nan, not a number");
    m.value[(1 * 70 + 3) * 32 + 7] = INFINITY;
    err = (kv_error){0};
    CHECK(evaluate(&m, &e, 2, &err) == KV_ENUMERIC, " ");
    CHECK_TEXT(err.message, "kv head 1: value of token 3, channel 7 is inf, not a number");
    m.position[1] = -1;
    err = (kv_error){0};
    CHECK(evaluate(&m, &e, 2, &err) == KV_EREQUEST, "%s", err.message);
    free_layer(&m);
}

static void test_memory(void)
{
    static schemes s;
    memory_layer m;
    make_schemes(&s);
    make_layer(&m, &(shape){40, 32, 2, 1, 2, 0, true});
    kv_fail_allocation(-1);
    kv_error err = {0};
    CHECK(evaluate(&m, &s.evaluation, 1, &err) == KV_OK, "%s", err.message);
    long const made = kv_fail_allocation(-1);
    CHECK(made > 50, "%ld", made);
    for (long k = 0; k < made; k++) {
        err = (kv_error){0};
        kv_fail_allocation(k);
        kv_status const status = evaluate(&m, &s.evaluation, 1, &err);
        CHECK(status == KV_ENOMEM, "allocation %ld of %ld: %d", k, made, (int)status);
    }
    kv_fail_allocation(-1);
    free_layer(&m);
}

static void test_table(void)
{
    const kv_backend *b = NULL;
    kv_error err = {0};
    CHECK(kv_backend_find(&b, "auto", &err) == KV_OK && !b->unavailable(), " ");
    CHECK(kv_backend_find(&b, "cpu", &err) == KV_OK, " ");
    CHECK(kv_backend_find(&b, "abacus", &err) == KV_EREQUEST, " ");
    CHECK_TEXT(err.message, "backend abacus: not known; there are: auto, cuda, cpu");
}

int main(void)
{
    test_table();
    test_magnitudes();
    test_ties();
    test_shapes();
    test_errors();
    test_memory();
    return check_done();
}
