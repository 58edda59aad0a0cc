/* Kernels that end in sums, of outputs and of squares, against plain C, bit by bit:
 * test_finish_kernels MODULE. */
#include <stdio.h>

#include "kernels/real.h"
#include "tests/gpu/kernels.h"
#include "tests/gpu/sums.h"

/* ---- finish ---- */

enum { HEADS = 2, OUTS = 5 };

static void check_finish(emulated *e, int64_t head_dim, int64_t splits, bool wants_attention,
                         bool wants_square)
{
    static const int32_t out_row[OUTS] = {3, 0, 4, 9, 0}, out_exact[OUTS] = {-1, 0, -1, 0, 2};
    enum { ALL = 10 };
    size_t const size = (size_t)(HEADS * OUTS * head_dim);
    float *const partial = malloc(size * (size_t)splits * sizeof *partial);
    float *const attention = malloc(size * sizeof *attention);
    float *const product = malloc(size * sizeof *product);
    kv_cuda_row row[HEADS][ALL] = {0};
    double square[HEADS][OUTS];
    for (size_t i = 0; i < size * (size_t)splits; i++) partial[i] = random_float() * random_float();
    for (int64_t h = 0; h < HEADS; h++)
        for (int r = 0; r < ALL; r++) row[h][r].sum = 1.5 + (double)random_float();
    for (int64_t h = 0; h < HEADS; h++)
        for (int64_t i = 0; i < OUTS * head_dim; i++) {
            float sum = 0;
            for (int64_t s = 0; s < splits; s++)
                sum += partial[(h * splits + s) * OUTS * head_dim + i];
            product[h * OUTS * head_dim + i] = sum;
        }
    /* the first channel's quotient, rounded to double, is half way between two floats */
    for (int64_t h = 0; h < HEADS; h++)
        for (int o = 0; o < OUTS; o++) {
            double const x = (double)product[(h * OUTS + o) * head_dim];
            float const near = (float)(x / row[h][out_row[o]].sum);
            row[h][out_row[o]].sum = x / (((double)near + (double)nextafterf(near, 2 * near)) / 2);
        }
    float *const to = wants_attention ? room(e, size * sizeof *attention) : NULL;
    double *const squares = wants_square ? room(e, sizeof square) : NULL;
    DO(e, finish,
       &(kv_cuda_finish){.attention = to,
                         .square = squares,
                         .partial = to_device(e, partial, size * (size_t)splits * sizeof *partial),
                         .row = to_device(e, row, sizeof row),
                         .out_row = to_device(e, out_row, sizeof out_row),
                         .out_exact =
                             wants_square ? to_device(e, out_exact, sizeof out_exact) : NULL,
                         .heads = HEADS,
                         .rows = ALL,
                         .outs = OUTS,
                         .splits = splits,
                         .head_dim = head_dim});
    if (to) to_host(e, attention, to, size * sizeof *attention);
    if (squares) to_host(e, square, squares, sizeof square);
    for (int64_t h = 0; h < HEADS; h++)
        for (int64_t o = 0; o < OUTS; o++) {
            const float *const x = product + (h * OUTS + o) * head_dim;
            const float *const y =
                product + (h * OUTS + (out_exact[o] < 0 ? 0 : out_exact[o])) * head_dim;
            double const sum = row[h][out_row[o]].sum;
            double const other = out_exact[o] < 0 ? 0 : 1 / row[h][out_row[out_exact[o]]].sum;
            double term[300];
            for (int64_t c = 0; c < head_dim; c++) {
                double const d = (double)x[c] * (1 / sum) - (double)y[c] * other;
                float const a = (float)((double)x[c] / sum);
                term[c] = d * d;
                float const f = to ? attention[(h * OUTS + o) * head_dim + c] : a;
                CHECK(kv_float_bits(f) == kv_float_bits(a), "%a, not %a", (double)f, (double)a);
            }
            double const expected = block_sum(term, head_dim, 128);
            CHECK(!squares || is_same(square[h][o], expected), "%.17g, not %.17g", square[h][o],
                  expected);
        }
    free(partial), free(attention), free(product);
    give_back(e);
}

/* ---- squares ---- */

/* The largest number of head h is at place 2^h - 1, 2^h or n - 1: what threads that meet add up.
 * One head has zeros only. */
static void check_squares(emulated *e, int64_t n)
{
    enum { MANY = 24 };
    size_t const bytes = (size_t)(MANY * n) * sizeof(float);
    float *const x = malloc(bytes + 1);
    double sum[MANY];
    uint32_t absmax[MANY];
    for (int64_t i = 0; i < MANY * n; i++)
        x[i] = ldexpf(random_float(), -(int)(random_word() % 30));
    for (int64_t h = 0; h < MANY && n > 0; h++) {
        int64_t const place = h == MANY - 1 ? n : (1 << h / 2) - h % 2;
        x[h * n + (place < n ? place : n - 1)] = h == 5  ? -INFINITY
                                                 : h % 3 ? 0x1.800002p0f
                                                         : -0x1.800002p0f;
    }
    for (int64_t i = 0; i < n; i++) x[7 * n + i] = i % 2 ? -0.0f : 0.0f;
    double *const term = malloc((size_t)n * sizeof *term + 1);
    double *const sums = room(e, sizeof sum);
    uint32_t *const largest = room(e, sizeof absmax);
    DO(e, squares, &(kv_cuda_squares){sums, largest, to_device(e, x, bytes), MANY, n});
    to_host(e, sum, sums, sizeof sum);
    to_host(e, absmax, largest, sizeof absmax);
    for (int64_t h = 0; h < MANY; h++) {
        uint32_t most = 0;
        for (int64_t i = 0; i < n; i++) {
            float const v = x[h * n + i];
            term[i] = (double)v * (double)v;
            most = kv_float_bits(fabsf(v)) > most ? kv_float_bits(fabsf(v)) : most;
        }
        double const expected = block_sum(term, n, 1024);
        CHECK(is_same(sum[h], expected), "n %d: %.17g, not %.17g", (int)n, sum[h], expected);
        CHECK(absmax[h] == most, "n %d: %08x, not %08x", (int)n, absmax[h], most);
    }
    free(x), free(term);
    give_back(e);
}

static void check_nothing(emulated *e)
{
    DO(e, finish, &(kv_cuda_finish){.heads = 1});
    DO(e, finish, &(kv_cuda_finish){.outs = 1});
    DO(e, squares, &(kv_cuda_squares){.n = 1});
}

int main(int argc, char **argv)
{
    emulated e = emulated_open(argc, argv);
    check_nothing(&e);
    for (uint64_t seed = 0; seed < 2; seed++) {
        e.set_seed(seed);
        static const int64_t head_dims[] = {1, 3, 20, 127, 128, 129, 300};
        for (size_t i = 0; i < sizeof head_dims / sizeof *head_dims; i++)
            for (int64_t splits = 1; splits <= 3; splits += 2)
                check_finish(&e, head_dims[i], splits, true, true);
        check_finish(&e, 20, 2, false, true);
        check_finish(&e, 20, 2, true, false);
        static const int64_t sizes[] = {0, 1, 2, 1023, 1024, 1025, 3500, 9000};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) check_squares(&e, sizes[i]);
    }
    emulated_close(&e);
    return check_done();
}
