/* Kernels that pull queries, against kernels/pull.c, bit by bit: test_query_kernels MODULE.
 *
 * The search that both share (pull.h) is held by tests/test_heads.c, which checks that targets are
 * met; here the number to the last bit is, with all that led to it: directions, logits and slopes
 * are compared where they lie in scratch memory. */
#include <math.h>
#include <stdio.h>

#include "kernels/pull.h"
#include "kernels/random.h"
#include "tests/gpu/kernels.h"

static void compare(const char *what, const char *of, const double *found, const double *expected,
                    int64_t n)
{
    int64_t differ = 0, first = 0;
    for (int64_t i = n; i-- > 0;)
        if (kv_double_bits(found[i]) != kv_double_bits(expected[i])) differ++, first = i;
    CHECK(differ == 0, "%s, %s: %d of %d differ, number %d is %a, not %a", what, of, (int)differ,
          (int)n, (int)first, found[first], expected[first]);
}

static float normal(uint64_t stream, int64_t i)
{
    float z;
    kv_philox_normals(&z, 11, stream, (uint64_t)i, 1);
    return z;
}

/* Keys whose channels have means and differ in size. */
static void fill_keys(float *key, int64_t heads, int64_t tokens, int64_t d, double size)
{
    for (int64_t i = 0; i < heads * tokens * d; i++) {
        int64_t const c = i % d;
        double const gain = c % 7 == 2 ? 8 : 1, mean = c % 3 ? 0 : 2;
        key[i] = (float)(size * gain * (mean + (double)normal((uint64_t)d, i)));
    }
}

/* ---- covariance ---- */

static void check_covariance(emulated *e, int64_t heads, int64_t tokens, int64_t d)
{
    int64_t const n = heads * tokens * d, square = d * d;
    size_t const bytes = (size_t)(heads * square) * sizeof(double);
    float *const key = malloc((size_t)n * sizeof *key);
    double *const expected = malloc(bytes), *const found = malloc(bytes);
    double *const sum = calloc((size_t)(heads * d), sizeof *sum);
    double *const mean = malloc((size_t)d * sizeof *mean);
    char what[80];
    fill_keys(key, heads, tokens, d, 1);
    for (int64_t i = 0; i < n; i++) sum[i / (tokens * d) * d + i % d] += (double)key[i];
    double *const out = to_device(e, memset(found, 7, bytes), bytes);
    DO(e, covariance,
       &(kv_cuda_covariance){.covariance = out,
                             .key = to_device(e, key, (size_t)n * sizeof *key),
                             .sum = to_device(e, sum, (size_t)(heads * d) * sizeof *sum),
                             .heads = heads,
                             .tokens = tokens,
                             .head_dim = d});
    to_host(e, found, out, bytes);
    for (int64_t h = 0; h < heads; h++) {
        double *const triangle = expected + h * square;
        CHECK(kv_pull_moments(mean, triangle, key + h * tokens * d, tokens, d, &e->err) == KV_OK,
              "%s", e->err.message);
        for (int64_t i = 0; i < d; i++) /* above it nothing is written */
            memset(triangle + i * d + i + 1, 7, (size_t)(d - 1 - i) * sizeof *triangle);
    }
    snprintf(what, sizeof what, "%d heads, %d tokens, %d channels", (int)heads, (int)tokens,
             (int)d);
    compare(what, "covariance", found, expected, heads * square);
    free(key), free(expected), free(found), free(sum), free(mean);
    give_back(e);
}

/* ---- pulls ---- */

/* Rows of some heads, and what they are pulled to. */
typedef struct {
    const char *what;
    int64_t heads, rows, tokens, head_dim;
    float *key, *query;
    kv_pull (*pulls)[KV_PULLS]; /* [heads][rows] */
    bool expects_failure;
} pulls;

static pulls make_pulls(const char *what, int64_t heads, int64_t rows, int64_t tokens, int64_t d)
{
    pulls p = {.what = what,
               .heads = heads,
               .rows = rows,
               .tokens = tokens,
               .head_dim = d,
               .key = malloc((size_t)(heads * tokens * d) * sizeof(float)),
               .query = malloc((size_t)(heads * rows * d) * sizeof(float)),
               .pulls = calloc((size_t)(heads * rows), sizeof *p.pulls)};
    fill_keys(p.key, heads, tokens, d, 1);
    for (int64_t i = 0; i < heads * rows * d; i++) p.query[i] = normal(99, i);
    return p;
}

/* Sums and factors of the heads' keys. */
static void find_moments(double *sum, double *factor, double *mean, const pulls *p, emulated *e)
{
    int64_t const d = p->head_dim, size = p->tokens * d;
    for (int64_t i = 0; i < p->heads * d; i++) sum[i] = 0;
    for (int64_t i = 0; i < p->heads * size; i++) sum[i / size * d + i % d] += (double)p->key[i];
    for (int64_t h = 0; h < p->heads; h++) {
        CHECK(kv_pull_moments(mean + h * d, factor + h * d * d, p->key + h * size, p->tokens, d,
                              &e->err) == KV_OK,
              "%s", e->err.message);
        kv_pull_factorize(factor + h * d * d, d);
    }
}

/* What a row was found to be; whether its pulls are reached. */
static bool check_row(const pulls *p, const kv_pull_keys *keys, int64_t row, const double *found,
                      const kv_pull_result result[KV_PULLS], const float *query)
{
    int64_t const d = p->head_dim, each = kv_pull_scratch(p->tokens, d);
    double *const expected = malloc((size_t)each * sizeof *expected);
    kv_pull_result wanted[KV_PULLS];
    char what[120];
    snprintf(what, sizeof what, "%s, row %d", p->what, (int)row);
    memset(expected, 0x77, (size_t)each * sizeof *expected);
    bool const is_reached = kv_pull_row(p->query + row * d, wanted, expected, keys, p->pulls[row]);
    compare(what, "scratch", found, expected, each);
    for (int k = 0; k < KV_PULLS; k++) {
        compare(what, "factor", &result[k].factor, &wanted[k].factor, 1);
        compare(what, "distance", &result[k].away, &wanted[k].away, 1);
        CHECK(result[k].is_reached == wanted[k].is_reached, "%s: reached", what);
    }
    for (int64_t c = 0; c < d; c++)
        CHECK(kv_float_bits(query[c]) == kv_float_bits(p->query[row * d + c]), "%s: channel %d",
              what, (int)c);
    free(expected);
    return is_reached;
}

/* Frees p. A launch has `step` rows. */
static void check_pulls(emulated *e, pulls p, int64_t step)
{
    int64_t const d = p.head_dim, all = p.heads * p.rows, each = kv_pull_scratch(p.tokens, d);
    size_t const query_bytes = (size_t)(all * d) * sizeof(float);
    size_t const result_bytes = (size_t)all * sizeof(kv_pull_result[KV_PULLS]);
    size_t const scratch_bytes = (size_t)(p.heads * step * each) * sizeof(double);
    size_t const of_channels = (size_t)(p.heads * d) * sizeof(double);
    double *const sum = malloc(of_channels), *const mean = malloc(of_channels);
    double *const factor = malloc(of_channels * (size_t)d);
    double *const found = malloc(scratch_bytes);
    float *const query = malloc(query_bytes);
    kv_pull_result(*const result)[KV_PULLS] = malloc(result_bytes);
    bool are_reached = true;
    find_moments(sum, factor, mean, &p, e);
    kv_cuda_pull a = {.query = to_device(e, p.query, query_bytes),
                      .result = room(e, result_bytes),
                      .scratch = room(e, scratch_bytes),
                      .pulls = to_device(e, p.pulls, (size_t)all * sizeof *p.pulls),
                      .key = to_device(e, p.key, (size_t)(p.heads * p.tokens * d) * sizeof(float)),
                      .sum = to_device(e, sum, of_channels),
                      .factor = to_device(e, factor, of_channels * (size_t)d),
                      .heads = p.heads,
                      .rows = p.rows,
                      .tokens = p.tokens,
                      .head_dim = d,
                      .softmax_scale = 1 / sqrt((double)d)};
    for (; a.first_row < p.rows; a.first_row += step) {
        a.n = p.rows - a.first_row < step ? p.rows - a.first_row : step;
        memset(found, 0x77, scratch_bytes);
        CHECK(e->cuda->upload(a.scratch, found, (int64_t)scratch_bytes, &e->err) == KV_OK, "%s",
              e->err.message);
        DO(e, pull, &a);
        to_host(e, found, a.scratch, scratch_bytes);
        to_host(e, query, a.query, query_bytes);
        to_host(e, result, a.result, result_bytes);
        for (int64_t i = 0; i < p.heads * a.n; i++) {
            int64_t const head = i / a.n, row = head * p.rows + a.first_row + i % a.n;
            const kv_pull_keys keys = {
                p.key + head * p.tokens * d, p.tokens, d, a.softmax_scale, mean + head * d,
                factor + head * d * d};
            are_reached &=
                check_row(&p, &keys, row, found + i * each, result[row], query + row * d);
        }
    }
    CHECK(!p.expects_failure || !are_reached, "%s: all are reached", p.what);
    free(sum), free(mean), free(factor), free(found), free(query), free(result);
    free(p.key), free(p.query), free(p.pulls);
    give_back(e);
}

static kv_pull mass(int64_t seen_begin, int64_t seen_end, int64_t begin, int64_t end, double share)
{
    return (kv_pull){seen_begin, seen_end, begin, end, log(share / (1 - share)), 0};
}

static kv_pull margin(int64_t seen_begin, int64_t seen_end, int64_t token, double nats)
{
    return (kv_pull){seen_begin, seen_end, token, token + 1, nats, 1};
}

/* Rows of every kind: a sink and a needle, sinks and recent tokens, much and little, nothing. */
static void check_kinds(emulated *e, int64_t heads, int64_t tokens, int64_t d, int64_t step)
{
    enum { ROWS = 8 };
    int64_t const T = tokens;
    pulls const p = make_pulls("kinds", heads, ROWS, T, d);
    const kv_pull rows[ROWS][KV_PULLS] = {
        {mass(0, T, 0, 1, 0.3), margin(0, T, T / 2, 2)},
        {mass(0, T - 1, 0, 4, 0.4), mass(0, T - 1, T - 4, T - 1, 0.5)},
        {mass(0, T, 2, 3, 0.001)},
        {{.seen_end = T}, margin(0, T, T - 1, -3)},
        {mass(T / 3, T - 2, T / 3, T / 3 + 2, 0.9), margin(T / 3, T - 2, T / 3, 0.25)},
        {{.seen_end = T}, {0, T, T / 5, T / 5 + T / 2 + 1, 0.5, 1}},
        {mass(1, T, T - 2, T, 0.02), mass(1, T, 1, 3, 0.02)},
        {{.seen_end = T}, {.seen_end = T}}};
    for (int64_t i = 0; i < heads * ROWS; i++) memcpy(p.pulls[i], rows[i % ROWS], sizeof rows[0]);
    check_pulls(e, p, step);
}

/* One token in the first, the second or the last of lanes that meet in a reduction. */
static void check_lanes(emulated *e)
{
    enum { T = 259, FIRST = 3, D = 16, LANES = 8 };
    pulls const p = make_pulls("lanes", 1, 2 * LANES, T, D);
    for (int i = 0; i < 2 * LANES; i++) {
        int64_t const lane = (1 << i / 2) - (i + 1) % 2, token = FIRST + (i == 0 ? 255 : lane);
        p.pulls[i][0] = mass(FIRST, T, token, token + 1, 0.3);
        p.pulls[i][1] = margin(FIRST, T, token, 1);
    }
    check_pulls(e, p, 2 * LANES);
}

/* Half of all tokens, the first or the last: of those without a direction in common fewer do. */
static void check_halves(emulated *e)
{
    enum { T = 14, D = 2, ROWS = 8, HEADS = 3 };
    pulls const p = make_pulls("halves", HEADS, ROWS, T, D);
    for (int i = 0; i < HEADS * ROWS; i++)
        p.pulls[i][i % 2] = i % 2 ? mass(0, T, T - 7, T, 0.9) : mass(0, T, 0, 7, 0.9);
    check_pulls(e, p, ROWS);
}

/* Targets that lie among tokens like them. */
static void check_unreachable(emulated *e)
{
    enum { T = 40, D = 6, ROWS = 4 };
    pulls p = make_pulls("unreachable", 1, ROWS, T, D);
    for (int t = 20; t < 24; t++) memcpy(p.key + t * D, p.key + 5 * D, D * sizeof *p.key);
    p.pulls[0][0] = margin(0, T, 5, 1);
    p.pulls[1][0] = mass(0, T, 20, 24, 0.9), p.pulls[1][1] = margin(0, T, 9, 1);
    p.pulls[2][1] = margin(0, T, 3, 0.5);
    p.pulls[3][0] = mass(0, T, 0, 4, 0.01), p.pulls[3][1] = margin(0, T, 22, 3);
    p.expects_failure = true;
    check_pulls(e, p, 3);
}

/* One key all over: no direction at all, and targets that hold before anything is done. */
static void check_constant(emulated *e)
{
    enum { T = 9, D = 3, ROWS = 3 };
    pulls p = make_pulls("constant", 1, ROWS, T, D);
    for (int i = 0; i < T * D; i++) p.key[i] = p.key[i % D];
    p.pulls[0][0] = margin(0, T, 5, 1);
    p.pulls[1][0] = margin(0, T, 5, 0);
    p.pulls[2][1] = mass(0, T, 2, 3, 0.5);
    p.expects_failure = true;
    check_pulls(e, p, ROWS);
}

/* Targets that come nearer as long as the search goes on, which a loud token decides that is not
 * its thread's last, whatever its sign. */
static void check_limit(emulated *e, int64_t d)
{
    enum { T = 300, LOUD = 40, ROWS = 2 };
    pulls p = make_pulls("limit", 1, ROWS, T, d);
    for (int64_t i = 0; i < T * d; i++) p.key[i] = 0.01f * normal(5, i);
    for (int64_t t = 5; t < 8; t++) {
        for (int64_t c = 0; c < d; c++) p.key[t * d + c] = 0;
        p.key[t * d] = t < 7 ? 1 : 0.999f;
    }
    p.key[LOUD * d + 1] = 50;
    for (int row = 0; row < ROWS; row++) {
        p.query[row * d] = 0.1f, p.query[row * d + 1] = row ? -3 : 3;
        p.pulls[row][1] = mass(0, T, 5, 6, 0.9);
    }
    p.expects_failure = true;
    check_pulls(e, p, ROWS);
}

/* Two tokens or three: what the distance is made of is rounded last. */
static void check_few(emulated *e, int64_t tokens)
{
    enum { ROWS = 60 };
    pulls p = make_pulls("few", 1, ROWS, tokens, 1);
    for (int i = 0; i < ROWS; i++) {
        double const odds = 2 * (double)normal(8, i);
        int64_t const token = p.key[0] > p.key[tokens - 1] ? 0 : tokens - 1;
        p.pulls[i][i % 2] = mass(0, tokens, token, token + 1, 1 / (1 + exp(odds)));
    }
    check_pulls(e, p, ROWS);
}

/* Logits so large that their rounding is more than the tolerance: the search ends all the same. */
static void check_loud(emulated *e)
{
    enum { T = 30, D = 8, ROWS = 2 };
    pulls p = make_pulls("loud", 1, ROWS, T, D);
    fill_keys(p.key, 1, T, D, 3e8);
    p.pulls[0][0] = margin(0, T, 5, 1e3);
    p.pulls[1][0] = mass(0, T, 0, 3, 0.5), p.pulls[1][1] = margin(0, T, 5, 1e3);
    check_pulls(e, p, ROWS);
}

int main(int argc, char **argv)
{
    static const int64_t shapes[][3] = {{1, 1, 1},   {2, 3, 2},   {1, 31, 16}, {2, 32, 17},
                                        {1, 33, 33}, {3, 70, 20}, {1, 65, 50}, {1, 5, 130}};
    emulated e = emulated_open(argc, argv);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_covariance(&e, shapes[i][0], shapes[i][1], shapes[i][2]);
    for (uint64_t seed = 0; seed < 3; seed++) {
        e.set_seed(seed);
        check_kinds(&e, 2, 24, 4 + (int64_t)seed, 7);
    }
    check_constant(&e);
    check_unreachable(&e);
    check_halves(&e);
    check_kinds(&e, 1, 20, 33, 5);
    check_limit(&e, 2);
    check_limit(&e, 5);
    check_few(&e, 2);
    check_few(&e, 3);
    check_loud(&e);
    check_kinds(&e, 1, 15, 300, 7);
    check_lanes(&e);
    check_kinds(&e, 1, 530, 1, 4);
    emulated_close(&e);
    return check_done();
}
