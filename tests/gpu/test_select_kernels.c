/* Order statistics of tiles against sorted keys, and percentiles between them against order.h, bit
 * by bit: test_select_kernels MODULE. Keys are made of few digits, so that statistics share them or
 * part at any one, in tiles of every shape, over heads and draws, with NaN, which does not count,
 * and ties. */
#include <float.h>
#include <stdio.h>

#include "kernels/order.h"
#include "tests/gpu/draws.h"
#include "tests/gpu/kernels.h"

/* ---- order statistics ---- */

/* What tiles have much of: any digits, two keys that differ in the last or in the first digit,
 * nothing that counts. */
typedef enum { DIGITS, LAST, FIRST, NOTHING, KINDS } kind;

static float draw_value(kind k)
{
    static const uint32_t digits[] = {0, 1, 7, 8, 9, 63, 127, 128, 191, 248, 254, 255};
    enum { N = sizeof digits / sizeof *digits };
    uint32_t key = 0xbf800000u;
    if (k == NOTHING || (k != DIGITS && draw(12) == 0)) return NAN;
    for (int i = 0; k == DIGITS && i < 4; i++)
        key = key << 8 | (draw(3) ? digits[draw(N)] : draw(256));
    if (k == LAST) key += draw(2) ? 0 : 1 + draw(2) * 254;
    if (k == FIRST) key -= draw(2) << 31;
    return kv_order_value(key, false);
}

typedef struct {
    int64_t heads, draws, tokens, d, tile_tokens, tile_channels;
    bool spans_heads;
} shape;

enum { MOST = 9000, STRIDE = 4 }; /* of any tile; floats behind every head */

static int by_key(const void *a, const void *b)
{
    uint32_t const x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* The keys of a tile in order; returns how many. */
static int64_t keys_of(uint32_t *key, const kv_cuda_tiles *t, const float *z, int64_t tile,
                       bool is_absolute)
{
    int64_t const first = t->spans_heads ? 0 : tile / (t->rows * t->columns);
    int64_t const row = tile / t->columns % t->rows, column = tile % t->columns;
    int64_t n = 0;
    for (int64_t h = first; h < (t->spans_heads ? t->heads : first + 1); h++)
        for (int64_t k = 0; k < t->draws; k++)
            for (int64_t i = 0; i < t->tokens * t->head_dim; i++) {
                float const x = z[h * t->head_stride + k * t->draw_stride + i];
                bool const is_inside = i / t->head_dim / t->tile_tokens == row &&
                                       i % t->head_dim / t->tile_channels == column;
                if (is_inside && !isnan(x)) key[n++] = kv_order_key(x, is_absolute);
            }
    qsort(key, (size_t)n, sizeof *key, by_key);
    return n;
}

static void check_tile(const kv_cuda_select *a, const float *z, int64_t tile, int64_t elements,
                       const float *statistics)
{
    static uint32_t key[MOST];
    int64_t const n = keys_of(key, &a->tiles, z, tile, a->is_absolute);
    CHECK(elements == n, "tile %d: %d elements, not %d", (int)tile, (int)elements, (int)n);
    for (int i = 0; i < 2 * a->n && n > 0; i++) {
        int64_t const rank = (int64_t)floor(kv_percentile_place(a->p[i / 2], n)) + i % 2;
        float const expected = kv_order_value(key[rank < n ? rank : n - 1], a->is_absolute);
        CHECK(kv_float_bits(statistics[i]) == kv_float_bits(expected),
              "tile %d, %d of %d at %g %%: %a, not %a", (int)tile, (int)rank, (int)n, a->p[i / 2],
              (double)statistics[i], (double)expected);
    }
}

/* p1 < 0: one percentile, of magnitudes. */
static void run_in(emulated *e, const shape *s, int parts, kind k, double p0, double p1)
{
    int64_t const rows = (s->tokens + s->tile_tokens - 1) / s->tile_tokens;
    int64_t const columns = (s->d + s->tile_channels - 1) / s->tile_channels;
    int64_t const tiles = (s->spans_heads ? 1 : s->heads) * rows * columns;
    int64_t const head = s->tokens * s->d + STRIDE, all = s->heads * s->draws * head;
    size_t const bytes = (size_t)all * sizeof(float);
    size_t const statistic_bytes = (size_t)tiles * 4 * sizeof(float);
    float *const z = malloc(bytes), *const statistics = malloc(statistic_bytes);
    int64_t *const elements = malloc((size_t)tiles * sizeof *elements);
    size_t const work_bytes = (size_t)tiles * sizeof(kv_cuda_select_work);
    kv_cuda_select_work *const work = calloc((size_t)tiles, sizeof *work);
    for (int64_t i = 0; i < all; i++) z[i] = draw_value(k);
    kv_cuda_select const a = {room(e, statistic_bytes),
                              room(e, (size_t)tiles * sizeof *elements),
                              parts > 1 ? to_device(e, work, work_bytes) : NULL,
                              {.z = to_device(e, z, bytes),
                               .heads = s->heads,
                               .draws = s->draws,
                               .tokens = s->tokens,
                               .head_dim = s->d,
                               .head_stride = head,
                               .draw_stride = s->heads * head,
                               .tile_tokens = s->tile_tokens,
                               .tile_channels = s->tile_channels,
                               .rows = rows,
                               .columns = columns,
                               .spans_heads = s->spans_heads},
                              p1 < 0,
                              p1 < 0 ? 1 : 2,
                              parts,
                              {p0, p1}};
    DO(e, select, &a);
    to_host(e, statistics, a.statistics, (size_t)(tiles * 2 * a.n) * sizeof *statistics);
    to_host(e, elements, a.elements, (size_t)tiles * sizeof *elements);
    for (int64_t i = 0; i < tiles; i++) check_tile(&a, z, i, elements[i], statistics + 2 * a.n * i);
    free(z), free(statistics), free(elements), free(work);
    give_back(e);
}

/* By one block a tile, and by several. */
static void run(emulated *e, const shape *s, kind k, double p0, double p1)
{
    run_in(e, s, 1, k, p0, p1);
    run_in(e, s, 3, k, p0, p1);
}

/* ---- percentiles ---- */

enum { PERCENTILE_TILES = 600 };
typedef struct {
    float statistics[PERCENTILE_TILES][2][2]; /* [i][n]: those of p[n] */
    int64_t elements[PERCENTILE_TILES];
    double p[2];
} percentiles;

static void check_percentiles(emulated *e, const percentiles *x, int n, bool is_outliers)
{
    enum { TILES = PERCENTILE_TILES };
    float packed[TILES * 4], low[TILES], high[TILES], expected[2];
    for (int i = 0; i < TILES; i++)
        memcpy(packed + 2 * n * i, x->statistics[i], (size_t)n * sizeof x->statistics[i][0]);
    kv_cuda_percentiles const a = {room(e, sizeof low),
                                   room(e, sizeof low),
                                   to_device(e, packed, sizeof packed),
                                   to_device(e, x->elements, sizeof x->elements),
                                   TILES,
                                   n,
                                   is_outliers,
                                   {x->p[0], x->p[1]}};
    DO(e, percentiles, &a);
    to_host(e, low, a.low, sizeof low);
    to_host(e, high, a.high, sizeof high);
    for (int i = 0; i < TILES; i++) {
        int64_t const elements = x->elements[i];
        double found[2] = {0};
        for (int k = 0; k < n; k++)
            found[k] = kv_percentile_between(kv_percentile_place(x->p[k], elements),
                                             x->statistics[i][k][0], x->statistics[i][k][1]);
        expected[0] = n == 1 ? 0 : elements ? (float)found[0] : INFINITY;
        expected[1] = elements ? (float)found[n - 1] : n == 1 ? 0 : -INFINITY;
        if (is_outliers)
            expected[0] = kv_float_below(found[0]), expected[1] = kv_float_above(found[1]);
        CHECK(same(low[i], expected[0]) && same(high[i], expected[1]),
              "%d %d %g %g, tile %d: %.9g %.9g, expected %.9g %.9g", n, is_outliers, x->p[0],
              x->p[1], i, low[i], high[i], expected[0], expected[1]);
    }
    give_back(e);
}

static void run_percentiles(emulated *e, int n, bool is_outliers, double p0, double p1)
{
    static const float ends[] = {-FLT_MAX, -1,      -FLT_MIN, -1e-45f,         -0.0f,  0.0f,
                                 1e-45f,   FLT_MIN, 1,        1 + FLT_EPSILON, FLT_MAX};
    enum { ENDS = sizeof ends / sizeof *ends };
    percentiles x = {.p = {p0, p1}};
    for (int i = 0; i < PERCENTILE_TILES; i++) {
        float(*const s)[2] = x.statistics[i];
        x.elements[i] = i % 9 == 3 && !is_outliers ? 0 : 1 + draw(draw(2) ? 20 : 1000000);
        if (i % 4 == 1) x.elements[i] = 1 + 70 * draw(100); /* whole places */
        for (int k = 0; k < 4; k++) {
            float const from = k % 2 ? s[k / 2][0] : -FLT_MAX;
            float const y = draw(3) ? draw_edge() : ends[draw(ENDS)];
            s[k / 2][k % 2] = k % 2 && draw(4) == 0 ? from : fmaxf(from, y);
        }
    }
    check_percentiles(e, &x, n, is_outliers);
}

/* Three quarters of the way from nearly 0 to a number of which three quarters lie in the middle of
 * two floats: the difference's rounding in double decides. */
static void run_percentile_ties(emulated *e)
{
    percentiles x = {.p = {75, 75}};
    for (int i = 0; i < PERCENTILE_TILES; i++) {
        x.elements[i] = 2;
        for (int k = 0; k < 2; k++) {
            x.statistics[i][k][0] = draw(2) ? -0x1.8p-53f : 0x1.8p-53f;
            x.statistics[i][k][1] = 0x1.8p0f + (float)(4 * draw(1 << 20) + 2) * 0x1p-23f;
        }
    }
    check_percentiles(e, &x, 2, false);
}

int main(int argc, char **argv)
{
    static const shape shapes[] = {
        {1, 1, 1, 1, 1, 1, false},       {2, 1, 9, 40, 1, 40, false}, {3, 1, 70, 5, 70, 1, false},
        {2, 2, 20, 11, 7, 3, false},     {2, 3, 30, 9, 30, 9, true},  {3, 1, 12, 20, 5, 8, true},
        {1, 2, 200, 12, 200, 12, false}, /* 1024 threads */
        {2, 1, 300, 10, 300, 7, true},   {1, 1, 2, 70, 1, 66, false}, {3, 1, 130, 2, 130, 1, false},
    };
    static const double pairs[][2] = {{99.3, -1},  {100, -1},    {0, 100}, {2.5, 97.5},
                                      {0.5, 99.5}, {49.9, 50.1}, {99, -1}, {1, 99},
                                      {75, -1},    {97.1, 97.2}, {70, -1}, {12.5, 87.5}};
    emulated e = emulated_open(argc, argv);
    run_percentile_ties(&e);
    run_percentiles(&e, 1, false, 99.3, 0);
    run_percentiles(&e, 2, false, 2.5, 97.5);
    run_percentiles(&e, 2, false, 45, 55); /* whole places, of what is rounded up */
    run_percentiles(&e, 2, true, 0.5, 99.5);
    run_percentiles(&e, 2, true, 30.0 / 7, 100 - 30.0 / 7);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t j = 0; j < sizeof pairs / sizeof *pairs; j++) {
            e.set_seed(i + j);
            run(&e, &shapes[i], (kind)((i + j) % 7 % KINDS), pairs[j][0], pairs[j][1]);
        }
    /* of 101 elements: 0.55, rounded up, times 100, 0.58, which gives less than 58, and 0.99 */
    for (size_t i = 0; i < 3; i++)
        run(&e, &(shape){1, 1, 101, 1, 101, 1, false}, DIGITS, (double[]){55, 58, 99}[i], -1);
    emulated_close(&e);
    return check_done();
}
