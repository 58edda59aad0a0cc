/* Attention of the caller's queries: kv_cpu_attend against plain double arithmetic on tensors that
 * kv_fit_decode gave, and against itself: threads, blocks, instruction sets, other rows beside
 * (bit for bit). Then how rows are gathered, what is refused, and memory that runs out. */
#include <inttypes.h>
#include <stdlib.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gather.h"
#include "kernels/cpu/kernels.h"
#include "kernels/memory.h"
#include "kernels/shorthand.h"
#include "tests/attention_layer.h"
#include "tests/attention_plain.h"
#include "tests/check.h"

/* ---- schemes ---- */

static const char *const key_texts[] = {"int8/channel",
                                        "int4/channel:zero:pre-rope",
                                        "int4/token:zero",
                                        "int8/tensor",
                                        "int4/token-all",
                                        "int4/head:static=seed:2",
                                        "int2/32x1:zero:window=7:sinks=2",
                                        "int3/channel:zero:outliers=2",
                                        "e4m3/tensor:pre-rope",
                                        "int4/1x16:scale=e4m3",
                                        "f32"};
static const char *const value_texts[] = {"int8/token",     "int4/token:zero",      "e4m3/tensor",
                                          "int2/1x32:zero", "int3/head:scale=e4m3", "f32"};
enum {
    N_KEYS = sizeof key_texts / sizeof key_texts[0],
    N_VALUES = sizeof value_texts / sizeof value_texts[0],
    F32_KEY = N_KEYS - 1,
    F32_VALUE = N_VALUES - 1
};

typedef struct {
    kv_quantizer keys[N_KEYS], values[N_VALUES];
} schemes;

static void make_schemes(schemes *s)
{
    kv_error err = {0};
    for (int i = 0; i < N_KEYS; i++)
        CHECK(kv_quantizer_parse(&s->keys[i], key_texts[i], true, &err) == KV_OK, "%s",
              err.message);
    for (int i = 0; i < N_VALUES; i++)
        CHECK(kv_quantizer_parse(&s->values[i], value_texts[i], false, &err) == KV_OK, "%s",
              err.message);
}

/* ---- requests ---- */

typedef struct {
    memory_layer m;
    kv_attention attention;
    float *query;       /* [H][rows][D] */
    int32_t (*pair)[2]; /* [rows] */
    int64_t n_out;
} request;

typedef struct {
    shape layer;
    int64_t rows, position;
    int pairs; /* how many different pairs are drawn; 0: all rows name (-1, -1) */
} attend_shape;

static int32_t draw_scheme(int n)
{
    return (int32_t)(draw() * (n + 1)) - 1;
}

static void make_request(request *r, const schemes *s, const attend_shape *of)
{
    make_layer(&r->m, &of->layer);
    int64_t const D = of->layer.head_dim, H = r->m.layer.query_heads, rows = of->rows;
    int32_t drawn[64][2];
    r->n_out = H * rows * D;
    r->query = floats(r->n_out);
    r->pair = calloc((size_t)rows + 1, sizeof *r->pair);
    for (int64_t i = 0; i < r->n_out; i++) /* one row of zeros: all tokens alike */
        r->query[i] = i / D % rows == 1 ? 0 : 2 * draw_normal();
    for (int i = 0; i < of->pairs; i++) {
        drawn[i][0] = draw_scheme(N_KEYS);
        drawn[i][1] = draw_scheme(N_VALUES);
    }
    for (int64_t i = 0; i < rows; i++) {
        int const which = (int)(draw() * of->pairs);
        r->pair[i][0] = of->pairs ? drawn[which][0] : -1;
        r->pair[i][1] = of->pairs ? drawn[which][1] : -1;
    }
    r->attention = (kv_attention){.n_keys = N_KEYS,
                                  .n_values = N_VALUES,
                                  .keys = s->keys,
                                  .values = s->values,
                                  .rows = rows,
                                  .position = of->position,
                                  .query = r->query,
                                  .pair = (const int32_t(*)[2])r->pair};
}

static void free_request(request *r)
{
    free_layer(&r->m);
    free(r->query), free(r->pair);
}

static float *attend(const request *r, const kv_attention *a, kv_cpu_options options, int threads,
                     const char *where)
{
    kv_error err = {0};
    float *const out = floats(r->m.layer.query_heads * a->rows * r->m.layer.head_dim + 1);
    kv_status const status = kv_cpu_attend_with(&options, &r->m.layer, a, threads, out, &err);
    CHECK(status == KV_OK, "%s: %s", where, err.message);
    return out;
}

/* ---- against plain arithmetic ---- */

/* With u = 2^-24, M the largest sum of |q k| scale over a visible token, D channels: a float logit
 * is off by at most (D + 3) u M (a chain of D fmaf, the scale's rounding, the product's), less the
 * row's maximum by 2 u M more, and exp by 6 u relative, so a weight by delta = (D + 5) u M + 6 u.
 * Weights enter twice, above and below the fraction; the sum over a tile of 256 tokens, and the
 * tiles, rounds once per term. All of it times sum p |v|. */
static void check_row(const request *r, const float *found, const float *query, const float *key,
                      const float *value, plain_row *row, double *worst, const char *where)
{
    const kv_layer *const l = &r->m.layer;
    int64_t const T = l->tokens, D = l->head_dim, position = r->attention.position;
    int64_t const end = position < T ? position + 1 : T;
    int64_t const first = l->window > 0 && position + 1 > l->window ? position + 1 - l->window : 0;
    plain_attend(row, query, key, value, first, end, D, l->softmax_scale);
    double const u = 0x1p-24, delta = (double)(D + 5) * u * row->magnitude + 6 * u;
    double const relative = 2 * delta + (double)(256 + T / 256 + 4) * u;
    double err_square = 0, square = 0;
    for (int64_t c = 0; c < D; c++) {
        double around = 0;
        for (int64_t t = first; t < end; t++)
            around += row->weight[t] * fabs((double)value[t * D + c]);
        double const difference = (double)found[c] - row->out[c];
        CHECK(fabs(difference) <= relative * around,
              "%s: channel %d: %.9g, expected %.9g within %.2g", where, (int)c, (double)found[c],
              row->out[c], relative * around);
        err_square += difference * difference, square += row->out[c] * row->out[c];
    }
    *worst = fmax(*worst, sqrt(err_square / square));
}

static void check_reference(const request *r, const schemes *s, const float *found,
                            const char *where)
{
    const kv_layer *const l = &r->m.layer;
    int64_t const n = l->tokens * l->head_dim, D = l->head_dim, rows = r->attention.rows;
    int64_t const group = l->query_heads / l->kv_heads;
    float *keys[N_KEYS + 1] = {r->m.key}, *values[N_VALUES + 1] = {r->m.value};
    double bits, worst = 0;
    plain_row row;
    row.logit = calloc((size_t)(2 * l->tokens + D), sizeof(double));
    row.weight = row.logit + l->tokens, row.out = row.weight + l->tokens;
    for (int i = 0; i < N_KEYS; i++) keys[1 + i] = decode_all(&r->m, &s->keys[i], true, &bits);
    for (int i = 0; i < N_VALUES; i++)
        values[1 + i] = decode_all(&r->m, &s->values[i], false, &bits);
    for (int64_t h = 0; h < l->query_heads; h++)
        for (int64_t i = 0; i < rows; i++) {
            char text[320];
            int64_t const at = (h * rows + i) * D;
            snprintf(text, sizeof text, "%s, head %d row %d pair %d %d", where, (int)h, (int)i,
                     (int)r->pair[i][0], (int)r->pair[i][1]);
            check_row(r, found + at, r->query + at, keys[1 + r->pair[i][0]] + h / group * n,
                      values[1 + r->pair[i][1]] + h / group * n, &row, &worst, text);
        }
    CHECK(worst <= 1e-5, "%s: relative error %.2g of a row", where, worst);
    for (int i = 1; i <= N_KEYS; i++) free(keys[i]);
    for (int i = 1; i <= N_VALUES; i++) free(values[i]);
    free(row.logit);
}

/* ---- against itself ---- */

static void check_variants(const request *r, const float *expected, const char *where)
{
    static const struct {
        int threads;
        int64_t rows;
    } variants[] = {{1, 0}, {2, 0}, {5, 0}, {1, 16}, {2, 48}, {5, 96}, {3, 1000}};
    kv_isa const best = kv_isa_best();
    size_t const bytes = (size_t)r->n_out * sizeof *expected;
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        float *const out = attend(r, &r->attention, (kv_cpu_options){best, variants[i].rows, 0},
                                  variants[i].threads, where);
        CHECK(memcmp(out, expected, bytes) == 0, "%s: %d threads, blocks of %d", where,
              variants[i].threads, (int)variants[i].rows);
        free(out);
    }
    bool const is_small = r->n_out * r->m.layer.tokens < 3000000; /* the baseline is slow */
    for (int isa = is_small ? 0 : 1; isa < (int)best; isa++) {
        float *const out = attend(r, &r->attention, (kv_cpu_options){.isa = (kv_isa)isa}, 2, where);
        CHECK(memcmp(out, expected, bytes) == 0, "%s: %s", where, kv_isa_text((kv_isa)isa));
        free(out);
    }
}

/* The rows [n] of a request in another order or fewer of them: each gives the same bits. */
static void check_selection(const request *r, const float *expected, const int64_t *rows, int64_t n,
                            const char *where)
{
    int64_t const D = r->m.layer.head_dim, H = r->m.layer.query_heads, all = r->attention.rows;
    float *const query = floats(H * n * D + 1);
    int32_t(*const pair)[2] = calloc((size_t)n + 1, sizeof *pair);
    kv_attention a = r->attention;
    size_t const bytes = (size_t)D * sizeof *query;
    a.rows = n, a.query = query, a.pair = (const int32_t(*)[2])pair;
    for (int64_t i = 0; i < n; i++) {
        memcpy(pair[i], r->pair[rows[i]], sizeof pair[i]);
        for (int64_t h = 0; h < H; h++)
            memcpy(query + (h * n + i) * D, r->query + (h * all + rows[i]) * D, bytes);
    }
    float *const out = attend(r, &a, (kv_cpu_options){.isa = kv_isa_best()}, 2, where);
    for (int64_t h = 0; h < H; h++)
        for (int64_t i = 0; i < n; i++)
            CHECK(memcmp(out + (h * n + i) * D, expected + (h * all + rows[i]) * D, bytes) == 0,
                  "%s: head %d row %d among %d rows", where, (int)h, (int)rows[i], (int)n);
    free(out), free(query), free(pair);
}

static void check_selections(const request *r, const float *expected, const char *where)
{
    int64_t const n = r->attention.rows;
    int64_t *const rows = calloc((size_t)n + 1, sizeof *rows);
    for (int64_t i = 0; i < n; i++) rows[i] = i;
    for (int64_t i = n; i-- > 1;) {
        int64_t const j = (int64_t)(draw() * (double)(i + 1)), row = rows[i];
        rows[i] = rows[j], rows[j] = row;
    }
    check_selection(r, expected, rows, n, where);
    int64_t const cut = (int64_t)(draw() * (double)(n + 1));
    check_selection(r, expected, rows, cut, where);
    check_selection(r, expected, rows + cut, n - cut, where);
    check_selection(r, expected, rows, n < 1 ? n : 1, where);
    free(rows);
}

static void check_shape(const schemes *s, const attend_shape *of)
{
    const shape *const l = &of->layer;
    char where[256];
    request r;
    snprintf(where, sizeof where, "T %d D %d G %d group %d window %d position %d rows %d pairs %d",
             (int)l->tokens, (int)l->head_dim, (int)l->kv_heads, (int)l->group, (int)l->window,
             (int)of->position, (int)of->rows, of->pairs);
    make_request(&r, s, of);
    float *const out = attend(&r, &r.attention, (kv_cpu_options){.isa = kv_isa_best()}, 1, where);
    check_reference(&r, s, out, where);
    check_variants(&r, out, where);
    check_selections(&r, out, where);
    free(out);
    free_request(&r);
}

static void test_shapes(void)
{
    static const attend_shape shapes[] = {
        /* tokens, head_dim, kv_heads, group, queries, window */
        {{1, 16, 1, 1, 1, 0, true}, 1, 0, 1},
        {{7, 32, 2, 2, 1, 0, true}, 5, 6, 4},
        {{255, 20, 1, 3, 1, 0, true}, 40, 254, 12},
        {{256, 64, 2, 1, 1, 0, true}, 33, 300, 0},
        {{257, 64, 3, 4, 1, 100, true}, 17, 256, 6},
        {{300, 128, 2, 4, 1, 37, true}, 60, 200, 3},
        {{513, 80, 1, 7, 1, 257, true}, 20, 512, 20},
        {{700, 34, 5, 2, 1, 0, true}, 9, 650, 9},
        {{1030, 128, 1, 4, 1, 0, true}, 90, 1029, 2},
        {{40, 16, 2, 2, 1, 8, true}, 6, 44, 5}, /* the window hangs over the end */
        {{40, 16, 2, 2, 1, 8, true}, 6, 8, 5},  /* and does not see token 0 */
        {{60, 16, 3, 1, 1, 0, true}, 60, 59, 60},
    };
    static schemes s;
    make_schemes(&s);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) check_shape(&s, &shapes[i]);
    for (int i = 0; i < 25; i++) {
        attend_shape of = {.layer = {.tokens = 1 + (int64_t)(draw() * 400),
                                     .head_dim = 2 + 2 * (int64_t)(draw() * 40),
                                     .kv_heads = 1 + (int64_t)(draw() * 3),
                                     .group = 1 + (int64_t)(draw() * 4),
                                     .queries = 1},
                           .rows = 1 + (int64_t)(draw() * 50),
                           .pairs = (int)(draw() * 20)};
        of.position = (int64_t)(draw() * (double)of.layer.tokens);
        if (draw() < 0.5) of.layer.window = 1 + (int64_t)(draw() * (double)of.layer.tokens);
        check_shape(&s, &of);
    }
}

/* ---- exactness ---- */

/* f32 schemes are the unquantized cache, bit for bit, and so is a window over everything seen. */
static void test_exact(void)
{
    static schemes s;
    request r;
    make_schemes(&s);
    make_request(&r, &s, &(attend_shape){{300, 64, 2, 2, 1, 0, true}, 20, 299, 0});
    float *const exact = attend(&r, &r.attention, (kv_cpu_options){.isa = kv_isa_best()}, 1, "-1");
    for (int64_t i = 0; i < r.attention.rows; i++)
        r.pair[i][0] = i % 2 ? F32_KEY : -1, r.pair[i][1] = i % 3 ? F32_VALUE : -1;
    float *const out = attend(&r, &r.attention, (kv_cpu_options){.isa = kv_isa_best()}, 2, "f32");
    CHECK(memcmp(out, exact, (size_t)r.n_out * sizeof *out) == 0, "f32 is not exact");
    r.m.layer.window = 300;
    float *const wide = attend(&r, &r.attention, (kv_cpu_options){.isa = kv_isa_best()}, 2, "wide");
    CHECK(memcmp(wide, exact, (size_t)r.n_out * sizeof *out) == 0, "a window over everything");
    free(exact), free(out), free(wide);
    free_request(&r);
}

/* A quantizer that no row names is not fitted: this one does not fit 20 channels. */
static void test_unnamed(void)
{
    static schemes s;
    request r;
    kv_error err = {0};
    make_schemes(&s);
    CHECK(kv_quantizer_parse(&s.keys[0], "q8_0", true, &err) == KV_OK, "%s", err.message);
    make_request(&r, &s, &(attend_shape){{30, 20, 1, 1, 1, 0, true}, 3, 29, 0});
    float *const out = floats(r.n_out);
    CHECK(kv_cpu_attend(&r.m.layer, &r.attention, 1, out, &err) == KV_OK, "%s", err.message);
    r.pair[2][0] = 0;
    CHECK(kv_cpu_attend(&r.m.layer, &r.attention, 1, out, &err) == KV_EREQUEST, " ");
    CHECK_TEXT(err.message, "q8_0: head_dim 20 is not a multiple of 32");
    free(out);
    free_request(&r);
}

/* ---- gathering ---- */

static void check_gathering(const kv_gathering *g, const int32_t (*pair)[2], int64_t rows,
                            int64_t heads, int64_t width)
{
    int *const met = calloc((size_t)(rows * heads) + 1, sizeof *met);
    int64_t groups = 0, pieces = 0, lanes = 0;
    for (int64_t b = 0; b < g->n_blocks; b++) {
        const kv_row_block *const block = &g->blocks[b];
        CHECK(block->group == groups && block->piece == pieces, " ");
        CHECK(block->n_groups > 0 && block->n_groups <= width, " ");
        CHECK(block->n_groups <= g->most_groups && block->n_pieces <= g->most_pieces, " ");
        CHECK(b == 0 || g->blocks[b - 1].key <= block->key, " ");
        groups += block->n_groups;
        for (int64_t i = 0; i < block->n_pieces; i++, pieces++) {
            const kv_piece *const p = &g->pieces[pieces];
            CHECK(i == 0 || p[-1].value <= p->value, " ");
            CHECK(p->group >= block->group && p->group < groups, " ");
            CHECK(p->from >= 0 && p->from < p->to && p->to <= KV_LANES, " ");
            for (int64_t j = p->from; j < p->to; j++) {
                int64_t const row = g->row[p->group][j];
                CHECK(row >= 0 && row < rows * heads, " ");
                met[row]++;
                CHECK(pair[row % rows][0] == block->key && pair[row % rows][1] == p->value, " ");
            }
        }
    }
    CHECK(groups == g->n_groups && pieces == g->n_pieces, " ");
    for (int64_t i = 0; i < groups * KV_LANES; i++)
        lanes += g->row[i / KV_LANES][i % KV_LANES] >= 0;
    CHECK(lanes == rows * heads, "%d lanes", (int)lanes);
    for (int64_t i = 0; i < rows * heads; i++) CHECK(met[i] == 1, "row %d: %d", (int)i, met[i]);
    free(met);
}

static void test_gathering(void)
{
    for (int trial = 0; trial < 300; trial++) {
        int32_t pair[200][2];
        kv_gathering g = {0};
        kv_error err = {0};
        int64_t const rows = (int64_t)(draw() * 200), heads = 1 + (int64_t)(draw() * 8);
        int64_t const width = 1 + (int64_t)(draw() * 6);
        double const kinds = 1 + draw() * 9;
        for (int64_t i = 0; i < rows; i++)
            for (int j = 0; j < 2; j++)
                pair[i][j] = draw() < 0.3 ? -1 : (int32_t)(draw() * kinds) - 1;
        kv_status const status =
            kv_gather_rows(&g, (const int32_t(*)[2])pair, rows, heads, width, &err);
        CHECK(status == KV_OK, "%s", err.message);
        check_gathering(&g, (const int32_t(*)[2])pair, rows, heads, width);
        kv_gathering_free_contents(&g);
    }
}

static void expect_gathering(const int32_t (*pair)[2], int64_t rows, int64_t heads, int64_t width,
                             int64_t blocks, int64_t groups, int64_t pieces)
{
    kv_gathering g = {0};
    kv_error err = {0};
    CHECK(kv_gather_rows(&g, pair, rows, heads, width, &err) == KV_OK, "%s", err.message);
    CHECK(g.n_blocks == blocks && g.n_groups == groups && g.n_pieces == pieces,
          "%d blocks, %d groups, %d pieces", (int)g.n_blocks, (int)g.n_groups, (int)g.n_pieces);
    kv_gathering_free_contents(&g);
}

/* Pairs of 16 lanes each fill them, small pairs share them. */
static void test_full_lanes(void)
{
    enum { KINDS = 37 };
    int32_t pair[4 * KINDS][2];
    for (int i = 0; i < 4 * KINDS; i++) { /* exact, 18 keys, 18 values; interleaved */
        int const which = i % KINDS;
        pair[i][0] = which > 0 && which <= 18 ? which - 1 : -1;
        pair[i][1] = which > 18 ? which - 19 : -1;
    }
    /* the exact key's 19 groups in blocks of 4, then a block of each key */
    expect_gathering((const int32_t(*)[2])pair, 4 * KINDS, 4, 4, 5 + 18, KINDS, KINDS);
    /* 4 lanes each: 19 values of the exact key in 5 groups, the keys alone in theirs */
    expect_gathering((const int32_t(*)[2])pair, 4 * KINDS, 1, 4, 2 + 18, 5 + 18, KINDS);
    /* 36 lanes: two groups of their own and 4 lanes that share */
    expect_gathering((const int32_t(*)[2])pair, 4 * KINDS, 9, 64, 1 + 18, 38 + 5 + 18 * 3,
                     19 * 3 + 18 * 3);
    expect_gathering((const int32_t(*)[2])pair, 0, 9, 64, 0, 0, 0);
}

/* ---- what is refused ---- */

static void expect(const request *r, const kv_attention *a, kv_status status, const char *message)
{
    for (int threads = 1; threads <= 8; threads += 3) {
        kv_error err = {0};
        float *const out = floats(r->n_out);
        kv_status const found = kv_cpu_attend(&r->m.layer, a, threads, out, &err);
        CHECK(found == status, "status %d, expected %d", (int)found, (int)status);
        CHECK_TEXT(err.message, message);
        free(out);
    }
}

static void test_errors(void)
{
    static schemes s;
    request r;
    make_schemes(&s);
    make_request(&r, &s, &(attend_shape){{70, 32, 6, 2, 1, 0, true}, 5, 69, 0});
    kv_attention a = r.attention;
    r.pair[3][1] = N_VALUES;
    expect(&r, &a, KV_EREQUEST, "row 3 names key -1 of 11, value 6 of 6 (-1 is unquantized)");
    r.pair[3][1] = -2;
    expect(&r, &a, KV_EREQUEST, "row 3 names key -1 of 11, value -2 of 6 (-1 is unquantized)");
    r.pair[3][0] = N_KEYS, r.pair[3][1] = 0;
    expect(&r, &a, KV_EREQUEST, "row 3 names key 11 of 11, value 0 of 6 (-1 is unquantized)");
    r.pair[3][0] = 0;
    a.position = -1;
    expect(&r, &a, KV_EREQUEST, "position -1 sees none of 70 tokens (window 0)");
    r.m.layer.window = 8, a.position = 78;
    expect(&r, &a, KV_EREQUEST, "position 78 sees none of 70 tokens (window 8)");
    r.m.layer.window = 0, a.position = 69;
    r.m.layer.query_heads = 7;
    expect(&r, &a, KV_EREQUEST,
           "attention of 7 query heads, 6 kv heads, 70 tokens, 32 channels, 5 rows");
    r.m.layer.query_heads = 12;
    r.m.failing_head = 2;
    expect(&r, &a, KV_EIO, "head 2 cannot be read");
    r.m.failing_head = -1;
    r.query[(9 * 5 + 3) * 32 + 4] = NAN; /* the second query head of kv head 4 */
    expect(&r, &a, KV_ENUMERIC, "kv head 4: query 8, channel 4 is nan, not a number");
    r.m.value[(3 * 70 + 3) * 32 + 7] = INFINITY;
    expect(&r, &a, KV_ENUMERIC, "kv head 3: value of token 3, channel 7 is inf, not a number");
    r.m.key[(1 * 70 + 69) * 32 + 31] = -INFINITY;
    expect(&r, &a, KV_ENUMERIC, "kv head 1: key of token 69, channel 31 is -inf, not a number");
    free_request(&r);
}

/* Products that float cannot hold, at the lowest row that has them. */
static void test_overflow(void)
{
    static schemes s;
    request r;
    make_schemes(&s);
    make_request(&r, &s, &(attend_shape){{70, 32, 2, 2, 1, 0, true}, 40, 69, 3});
    for (int64_t i = 0; i < 32; i++)
        for (int64_t row = 31; row < 40; row += 4) r.query[(3 * 40 + row) * 32 + i] = 3e38f;
    expect(&r, &r.attention, KV_ENUMERIC,
           "kv head 1, query head 3, row 31: logits or outputs beyond the range of float");
    free_request(&r);
}

static void test_memory(void)
{
    static schemes s;
    request r;
    kv_error err = {0};
    make_schemes(&s);
    make_request(&r, &s, &(attend_shape){{40, 20, 2, 2, 1, 0, true}, 12, 39, 30});
    float *const out = floats(r.n_out);
    kv_fail_allocation(-1);
    CHECK(kv_cpu_attend(&r.m.layer, &r.attention, 1, out, &err) == KV_OK, "%s", err.message);
    long const made = kv_fail_allocation(-1);
    CHECK(made > 50, "%ld", made);
    for (long k = 0; k < made; k++) {
        err = (kv_error){0};
        kv_fail_allocation(k);
        kv_status const status = kv_cpu_attend(&r.m.layer, &r.attention, 1, out, &err);
        CHECK(status == KV_ENOMEM, "allocation %ld of %ld: %d", k, made, (int)status);
    }
    kv_fail_allocation(-1);
    free(out);
    free_request(&r);
}

int main(void)
{
    test_gathering();
    test_full_lanes();
    test_shapes();
    test_exact();
    test_unnamed();
    test_errors();
    test_overflow();
    test_memory();
    return check_done();
}
