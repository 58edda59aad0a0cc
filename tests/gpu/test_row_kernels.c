/* Kernels of rows of logits against plain C: test_row_kernels MODULE. All numbers are compared bit
 * by bit, sums added up in the order that the kernels document. */
#include <stdio.h>

#include "kernels/backend.h"
#include "kernels/order.h"
#include "tests/gpu/exp_arguments.h"
#include "tests/gpu/kernels.h"
#include "tests/gpu/sums.h"

static int by_entry(const void *a, const void *b)
{
    uint64_t const x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* ---- rows and compare ---- */

enum { HEADS = 2, ROWS = 28, SPAN = 1500, STRIDE = 1537 };
static int64_t first_token = 32; /* of tensors */

typedef enum {
    NORMAL,
    FEW_VALUES,
    ZEROS,
    ONE_THREAD,
    WIDE,
    BEYOND,
    EXPONENTS,
    ONE_A_GROUP,
    N_KINDS,
    NOT_A_NUMBER /* of compare */
} kind;

/* Logits of a kind for token t: values that tie, zeros of both signs, all best tokens in a few
 * threads, differences beyond float, infinities and NaN. */
static float logit(kind k, int64_t t)
{
    float const x = random_float();
    switch (k) {
    case NOT_A_NUMBER:
    case NORMAL: return 9 * x;
    case FEW_VALUES: return 0.5f * (float)(int)(4 * x);
    case ZEROS: return x < 0 ? -0.0f : 0.0f;
    case ONE_THREAD: return t % 256 < 3 ? 20 + x : x;
    case WIDE: return x * x * x > 0.5f ? 3e38f * x : x < -0.7f ? -3e38f : ldexpf(x, (int)(60 * x));
    default: return x > 0.998f ? INFINITY : x < -0.998f ? -INFINITY : x > 0.997f ? NAN : x;
    }
}

/* Of ONE_A_GROUP: the best 64 are one of each group of threads (place % 64), in every way by which
 * one of two neighbouring groups may have the least of them. */
static float one_a_group(int64_t number, int64_t place)
{
    int64_t const group = place % 64, least = number / 16 % 2 ? 63 : 0;
    int64_t const turn = group == 0 ? number % 4 : group == 63 ? number / 4 % 4 : 0;
    if (place / 64 != turn) return random_float();
    return group == least ? 9 : 11 + random_float();
}

/* Of EXPONENTS: an argument of exp, or one whose exp is 0, in turn. */
static float exponent(int64_t head, int64_t row, int64_t t)
{
    return t % 2 ? -200 : exp_arguments[(row + 11 * head) % EXP_ARGUMENTS];
}

typedef struct {
    float logits[HEADS][ROWS][STRIDE];
    int64_t seen[HEADS][ROWS][2], needle[HEADS][ROWS];
    kv_cuda_row row[HEADS][ROWS];
} row_case;

static int64_t between(int64_t low, int64_t high)
{
    return low + (int64_t)(random_word() % (uint32_t)(high - low));
}

/* What rows see: one token, as many as the largest k, one block of threads, all, any. */
static void set_rows(row_case *c, kind k)
{
    static const int64_t counts[] = {1, 2, 7, 8, 9, 63, 64, 65, 66, 255, 256, 257, 1100, SPAN};
    int64_t const end = first_token + SPAN;
    for (int64_t h = 0; h < HEADS; h++)
        for (int64_t r = 0; r < ROWS; r++) {
            int64_t const count = counts[(size_t)(5 * r + h) % (sizeof counts / sizeof *counts)];
            int64_t const n = k == ONE_A_GROUP && count < 256 ? 256 : count;
            int64_t const begin = n == SPAN ? first_token : between(first_token, end - n + 1);
            int64_t const needles[] = {
                -1, begin - 1, begin, begin + n - 1, begin + n, between(begin, begin + n)};
            c->seen[h][r][0] = begin, c->seen[h][r][1] = begin + n;
            c->needle[h][r] = k == ONE_A_GROUP ? -1 : needles[random_word() % 6];
            for (int64_t i = 0; i < STRIDE; i++) c->logits[h][r][i] = 1e6f; /* not visible */
            for (int64_t t = begin; t < begin + n; t++)
                c->logits[h][r][t - first_token] = k == EXPONENTS ? exponent(h, r, t)
                                                   : k == ONE_A_GROUP
                                                       ? one_a_group(r + h * ROWS, t - begin)
                                                       : logit(k, t);
            /* the best one is the first of a reading by all threads */
            int64_t const peak = begin + 256 * between(0, (n + 255) / 256);
            if (k == NORMAL) c->logits[h][r][begin + n - 1 - first_token] = 23.5f;
            if (k == NORMAL) c->logits[h][r][peak - first_token] = 24;
            if (k == EXPONENTS) c->logits[h][r][peak - first_token] = 0;
            int64_t const needle = c->needle[h][r];
            if (needle >= begin && needle < begin + n && random_word() % 2)
                c->logits[h][r][needle - first_token] = k == ZEROS       ? -0.0f
                                                        : k == EXPONENTS ? 0.0f
                                                                         : 25.0f;
        }
}

static kv_cuda_row plain_row(const float *logits, const int64_t seen[2], int64_t needle)
{
    static uint64_t entry[SPAN];
    static double weight[SPAN];
    int64_t const n = seen[1] - seen[0];
    kv_cuda_row row = {.max = -INFINITY, .is_finite = 1, .needle_margin = NAN};
    float other = -INFINITY;
    for (int64_t t = seen[0]; t < seen[1]; t++) {
        float const l = logits[t - first_token];
        entry[t - seen[0]] = kv_top_entry(l, t);
        row.is_finite &= !isnan(l) && l < INFINITY;
        if (l > row.max) row.max = l;
        if (l > other && t != needle) other = l;
    }
    row.max += 0.0f; /* never -0 */
    for (int64_t t = seen[0]; t < seen[1]; t++)
        weight[t - seen[0]] = (double)kv_expf(logits[t - first_token] - row.max);
    row.sum = block_sum(weight, n, 256);
    if (needle >= seen[0] && needle < seen[1])
        row.needle_margin =
            n == 1 ? INFINITY : (double)logits[needle - first_token] - (double)(other + 0.0f);
    qsort(entry, (size_t)n, sizeof *entry, by_entry);
    for (int k = 0; k < KV_CUDA_TOPS; k++)
        row.least[k] = entry[(kv_top_k[k] < n ? kv_top_k[k] : n) - 1];
    return row;
}

static void check_row(const char *what, const kv_cuda_row *found, const kv_cuda_row *expected,
                      bool want_top)
{
    CHECK(found->is_finite == expected->is_finite, "%s", what);
    for (int k = 0; k < KV_CUDA_TOPS; k++)
        CHECK(found->least[k] == (want_top ? expected->least[k] : UINT64_MAX) ||
                  (!expected->is_finite && want_top),
              "%s: k %d: %016llx, not %016llx", what, k, (unsigned long long)found->least[k],
              (unsigned long long)expected->least[k]);
    if (!expected->is_finite) {
        CHECK(isnan(found->sum), "%s: %g", what, found->sum);
        return;
    }
    CHECK(kv_float_bits(found->max) == kv_float_bits(expected->max), "%s: %a, not %a", what,
          (double)found->max, (double)expected->max);
    CHECK(is_same(found->sum, expected->sum), "%s: %.17g, not %.17g", what, found->sum,
          expected->sum);
    CHECK(memcmp(&found->needle_margin, &expected->needle_margin, sizeof(double)) == 0,
          "%s: margin %g, not %g", what, found->needle_margin, expected->needle_margin);
}

/* What the kernel counts while it selects: in passes digit by digit, until each k has one entry
 * left, the entries that share the digits so far, once for each k; but only those not below the
 * least of the best ones of 64 groups, a needle apart. */
static uint64_t atomics_of(const float *logits, const int64_t seen[2], int64_t needle,
                           const uint64_t least[KV_CUDA_TOPS])
{
    static uint64_t entry[SPAN];
    int64_t n = 0;
    uint64_t best[64] = {0}, bound = UINT64_MAX, done = 0, all = 0, mask = 0;
    for (int64_t t = seen[0]; t < seen[1]; t++) {
        uint64_t *const of_group = &best[(t - seen[0]) % 64];
        uint64_t const key = kv_top_entry(logits[t - first_token], t) >> 32;
        if (t != needle && key > *of_group) *of_group = key;
    }
    for (int i = 0; i < 64; i++) bound = best[i] < bound ? best[i] : bound;
    for (int64_t t = seen[0]; t < seen[1]; t++) {
        entry[n] = kv_top_entry(logits[t - first_token], t);
        n += entry[n] >> 32 >= bound;
    }
    for (int shift = 56; done < KV_CUDA_TOPS; shift -= 8) {
        uint64_t const longer = mask | UINT64_C(255) << shift;
        done = 0;
        for (int k = 0; k < KV_CUDA_TOPS; k++) {
            int64_t left = 0;
            for (int64_t i = 0; i < n; i++) {
                all += ((entry[i] ^ least[k]) & mask) == 0;
                left += ((entry[i] ^ least[k]) & longer) == 0;
            }
            done += left == 1;
        }
        mask = longer;
    }
    return all;
}

/* want_top; with needles. */
static void check_rows(emulated *e, row_case *c, kind k, bool want_top, bool has_needles)
{
    static kv_cuda_row found[HEADS][ROWS];
    kv_cuda_row *const out = room(e, sizeof found);
    uint64_t expected = e->atomics ? e->atomics() : 0;
    set_rows(c, k);
    for (int64_t h = 0; h < HEADS; h++)
        for (int64_t r = 0; r < ROWS; r++) {
            int64_t const needle = has_needles ? c->needle[h][r] : -1, *const seen = c->seen[h][r];
            c->row[h][r] = plain_row(c->logits[h][r], seen, needle);
            if (want_top) expected += atomics_of(c->logits[h][r], seen, needle, c->row[h][r].least);
        }
    DO(e, rows,
       &(kv_cuda_rows){.out = out,
                       .logits = to_device(e, c->logits, sizeof c->logits),
                       .row_seen = to_device(e, c->seen, sizeof c->seen),
                       .row_needle = has_needles ? to_device(e, c->needle, sizeof c->needle) : NULL,
                       .heads = HEADS,
                       .rows = ROWS,
                       .first_token = first_token,
                       .stride = STRIDE,
                       .want_top = want_top});
    to_host(e, found, out, sizeof found);
    CHECK(!e->atomics || k == BEYOND || e->atomics() == expected, "kind %d: %d more atomics",
          (int)k, (int)(e->atomics() - expected));
    for (int64_t h = 0; h < HEADS; h++)
        for (int64_t r = 0; r < ROWS; r++) {
            char what[80];
            snprintf(what, sizeof what, "kind %d, head %d, row %d of %d tokens", (int)k, (int)h,
                     (int)r, (int)(c->seen[h][r][1] - c->seen[h][r][0]));
            check_row(what, &found[h][r], &c->row[h][r], want_top);
        }
    give_back(e);
}

static void check_no_rows(emulated *e)
{
    DO(e, rows, &(kv_cuda_rows){.heads = 1});
    DO(e, rows, &(kv_cuda_rows){.rows = 1});
    DO(e, compare, &(kv_cuda_compare){.heads = 1, .rows = 4, .first_row = 4});
    DO(e, compare, &(kv_cuda_compare){.rows = 4});
}

static kv_cuda_comparison plain_comparison(const row_case *c, int64_t h, int64_t r, int64_t exact,
                                           bool want_rows)
{
    static double square[SPAN], cross[SPAN], variation[SPAN];
    int64_t const begin = c->seen[h][r][0], n = c->seen[h][r][1] - begin;
    const kv_cuda_row *const row = &c->row[h][r], *const of = &c->row[h][exact];
    float const inverse = (float)(1 / row->sum), exact_inverse = (float)(1 / of->sum);
    kv_cuda_comparison sum = {0};
    float largest = 0;
    for (int64_t t = begin; t < begin + n; t++) {
        float const l = c->logits[h][exact][t - first_token], q = c->logits[h][r][t - first_token];
        float const d = q - l, weight = kv_expf(l - of->max);
        float const p = weight * exact_inverse, p_quantized = kv_expf(q - row->max) * inverse;
        largest = fabsf(d) > largest ? fabsf(d) : largest;
        square[t - begin] = (double)d * (double)d;
        cross[t - begin] = (double)(weight * d);
        variation[t - begin] = (double)fabsf(p - p_quantized);
        for (int k = 0; k < KV_CUDA_TOPS && want_rows; k++)
            sum.common[k] +=
                kv_top_entry(l, t) >= of->least[k] && kv_top_entry(q, t) >= row->least[k];
    }
    sum.logit_err_max = (double)largest;
    sum.logit_err_square = block_sum(square, n, 256);
    sum.cross = block_sum(cross, n, 256);
    if (want_rows) sum.variation = block_sum(variation, n, 256);
    return sum;
}

enum { FIRST_ROW = 11 };

/* A sum whose inverse is less than the middle of two floats, but in double that middle, which is
 * rounded up. */
static double sum_beside_tie(void)
{
    for (;;) {
        float const odd = kv_bits_float(kv_float_bits(0.75f + 0.2f * random_float()) | 1);
        double const middle = ((double)odd + (double)nextafterf(odd, 2)) / 2, sum = 1 / middle;
        if (1 / sum == middle && fma(sum, middle, -1) > 0) return sum;
    }
}

/* Rows from FIRST_ROW on are the exact rows with noise. With EXPONENTS a weight is that of the row
 * or of its exact row, and a maximum 0, which no token has. With ONE_A_GROUP each thread whose
 * number decides a step of a maximum has the largest error of a row. With NOT_A_NUMBER some exact
 * and some other rows have one. */
static void set_compared(row_case *c, kind k, const int32_t exact[ROWS])
{
    set_rows(c, k);
    for (int64_t h = 0; h < HEADS; h++)
        for (int64_t r = 0; r < ROWS; r++) {
            bool const is_exact = r < FIRST_ROW;
            if (!is_exact) memcpy(c->seen[h][r], c->seen[h][exact[r]], sizeof c->seen[h][r]);
            for (int64_t t = 0; !is_exact && t < STRIDE; t++) {
                float const l = c->logits[h][exact[r]][t];
                float const far = l + (random_word() % 2 ? 0.1f : 2) * random_float();
                c->logits[h][r][t] = k == FEW_VALUES && random_word() % 3 ? l : far;
                if (k == FEW_VALUES && random_word() % 6 == 0) c->logits[h][r][t] = 0;
            }
            int64_t const i = r + h * ROWS, place = (1 << i % 8) - i / 8 % 2;
            if (k == ONE_A_GROUP && !is_exact)
                c->logits[h][r][c->seen[h][r][0] + place - first_token] += 50;
            for (int64_t t = 0; k == EXPONENTS && t < STRIDE; t++)
                c->logits[h][r][t] = exponent(h, is_exact ? r : exact[r], t + !is_exact);
            if (k == NOT_A_NUMBER && r % 3 == 1)
                c->logits[h][r][c->seen[h][r][1] - 1 - first_token] = NAN;
            c->row[h][r] = plain_row(c->logits[h][r], c->seen[h][r], -1);
            if (k == EXPONENTS) c->row[h][r].max = 0;
            if (k == FEW_VALUES || k == NOT_A_NUMBER) c->row[h][r].sum = sum_beside_tie();
        }
}

static void check_compare(emulated *e, row_case *c, kind k, bool want_rows)
{
    static kv_cuda_comparison found[HEADS][ROWS];
    int32_t exact[ROWS];
    kv_cuda_comparison *const out = room(e, sizeof found);
    for (int32_t r = 0; r < ROWS; r++) exact[r] = r < FIRST_ROW ? -1 : (7 * r) % FIRST_ROW;
    set_compared(c, k, exact);
    DO(e, compare,
       &(kv_cuda_compare){.out = out,
                          .logits = to_device(e, c->logits, sizeof c->logits),
                          .row = to_device(e, c->row, sizeof c->row),
                          .row_seen = to_device(e, c->seen, sizeof c->seen),
                          .row_exact = to_device(e, exact, sizeof exact),
                          .heads = HEADS,
                          .rows = ROWS,
                          .first_row = FIRST_ROW,
                          .first_token = first_token,
                          .stride = STRIDE,
                          .want_rows = want_rows});
    to_host(e, found, out, sizeof found);
    for (int64_t h = 0; h < HEADS; h++)
        for (int64_t r = FIRST_ROW; r < ROWS; r++) {
            const kv_cuda_comparison *const f = &found[h][r];
            kv_cuda_comparison const x = plain_comparison(c, h, r, exact[r], want_rows);
            CHECK(f->logit_err_max == x.logit_err_max, "%a, not %a", f->logit_err_max,
                  x.logit_err_max);
            CHECK(is_same(f->logit_err_square, x.logit_err_square), "%.17g, not %.17g",
                  f->logit_err_square, x.logit_err_square);
            CHECK(is_same(f->cross, x.cross), "%.17g, not %.17g", f->cross, x.cross);
            CHECK(is_same(f->variation, x.variation), "%.17g, not %.17g", f->variation,
                  x.variation);
            for (int i = 0; i < KV_CUDA_TOPS; i++)
                CHECK(f->common[i] == x.common[i], "row %d, k %d: %d, not %d", (int)r, i,
                      (int)f->common[i], (int)x.common[i]);
        }
    unsigned char before[sizeof found[0][0] * FIRST_ROW];
    memset(before, 0xff, sizeof before);
    CHECK(memcmp(found[1], before, sizeof before) == 0, "exact rows have no comparison");
    give_back(e);
}

int main(int argc, char **argv)
{
    static row_case c;
    emulated e = emulated_open(argc, argv);
    check_no_rows(&e);
    for (uint64_t seed = 0; seed < 2; seed++) {
        e.set_seed(seed);
        check_compare(&e, &c, NORMAL, true);
        check_compare(&e, &c, FEW_VALUES, true);
        check_compare(&e, &c, EXPONENTS, true);
        check_compare(&e, &c, ONE_A_GROUP, true);
        check_compare(&e, &c, NOT_A_NUMBER, true);
        check_compare(&e, &c, NORMAL, false);
        check_compare(&e, &c, EXPONENTS, false);
        for (int k = 0; k < N_KINDS; k++) check_rows(&e, &c, (kind)k, true, true);
        check_rows(&e, &c, NORMAL, false, true);
        first_token = 0; /* which is no row's needle where rows have none */
        check_rows(&e, &c, NORMAL, true, false);
        first_token = 32;
    }
    emulated_close(&e);
    return check_done();
}
