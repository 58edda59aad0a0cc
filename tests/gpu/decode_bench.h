/* Fitted quantizers on the device: a tensor, its schemes, and what decode.cu and codes.cu make of
 * them beside kv_fit_decode and kv_fit_codes. For test_decode.c. */
#ifndef KVANT_TESTS_GPU_DECODE_BENCH_H
#define KVANT_TESTS_GPU_DECODE_BENCH_H

#include "kernels/rope.h"
#include "kernels/shorthand.h"
#include "tests/gpu/scheme_of_fit.h"

enum { MOST = 16 }; /* schemes of one launch */

static uint64_t state = 1;

static double draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) * 0x1p-53;
}

/* Channels of all kinds: zeros of both signs, halves (ties of a unit scale), subnormals, constants,
 * an outlier channel, a mean, and normals. And runs of 32 channels of one kind, which blocks tell
 * apart: zeros, subnormals, one number, ties, one sign, hundreds. */
static float number(int64_t t, int64_t c)
{
    float const z = (float)(sqrt(-2 * log(1 - draw())) * cos(6.283185307179586 * draw()));
    switch ((t + c / 32 * 5) % 14) {
    case 1: return c % 2 ? 0.0f : -0.0f;
    case 2: return z * 1e-41f;
    case 3: return -0.75f;
    case 4: return (float)(c % 32 - 16) * 0.5f;
    case 5: return fabsf(z);
    case 6: return -300 * fabsf(z);
    case 7: return z * 1e-30f;
    default: break;
    }
    switch (c % 16) {
    case 0: return t % 3 ? 0.0f : -0.0f;
    case 2: return floorf(8 * z) / 2;
    case 5: return 40 * z;
    case 7: return z * 1e-40f;
    case 9: return 1.25f;
    case 11: return z + 6;
    default: return z;
    }
}

typedef struct {
    int64_t heads, tokens, head_dim;
    kv_rope_settings rope;
} shape;

typedef struct {
    emulated *e;
    shape s;
    kv_rope *rope;
    kv_cuda_rope tables;
    float *x, *pre_rope; /* [heads][T][D] */
    const float *device_x, *device_pre_rope;
    int64_t size; /* of a head */
    kv_fit *fits[MOST];
    char text[MOST][128];
    kv_cuda_scheme schemes[MOST];
    int64_t n;
} bench;

static void make_rope(bench *b)
{
    kv_error err = {0};
    CHECK(kv_rope_create(&b->rope, &b->s.rope, b->s.head_dim, &err) == KV_OK, "%s", err.message);
    kv_rope_tables const t = kv_rope_tables_of(b->rope);
    int64_t const blocks = (b->s.tokens + KV_ROPE_OFFSETS - 1) / KV_ROPE_OFFSETS;
    size_t const n = (size_t)(blocks * t.pairs), bytes = sizeof(double);
    double *const cosine = calloc(n + 1, bytes), *const sine = calloc(n + 1, bytes);
    kv_rope_blocks(b->rope, blocks, cosine, sine);
    size_t const offsets = (size_t)(KV_ROPE_OFFSETS * t.pairs);
    b->tables = (kv_cuda_rope){.pairs = t.pairs,
                               .is_interleaved = t.is_interleaved,
                               .magnitude = t.magnitude,
                               .cosine = to_device(b->e, t.cosine, offsets * bytes),
                               .sine = to_device(b->e, t.sine, offsets * bytes),
                               .block_cosine = to_device(b->e, cosine, n * bytes),
                               .block_sine = to_device(b->e, sine, n * bytes)};
    free(cosine), free(sine);
}

static void make_bench(bench *b, emulated *e, const shape *s)
{
    *b = (bench){.e = e, .s = *s, .size = s->tokens * s->head_dim};
    int64_t const n = s->heads * b->size;
    b->x = calloc((size_t)n, sizeof *b->x), b->pre_rope = calloc((size_t)n, sizeof *b->x);
    for (int64_t i = 0; i < n; i++)
        b->pre_rope[i] = number(i / s->head_dim % s->tokens, i % s->head_dim);
    memcpy(b->x, b->pre_rope, (size_t)n * sizeof *b->x);
    make_rope(b);
    for (int64_t h = 0; h < s->heads; h++) kv_rope_apply(b->rope, 0, s->tokens, b->x + h * b->size);
    b->device_x = to_device(e, b->x, (size_t)n * sizeof *b->x);
    b->device_pre_rope = to_device(e, b->pre_rope, (size_t)n * sizeof *b->x);
}

static void free_bench(bench *b)
{
    for (int64_t i = 0; i < b->n; i++) kv_fit_free(b->fits[i]);
    kv_rope_free(b->rope);
    free(b->x), free(b->pre_rope);
    give_back(b->e);
}

static const float *tensor_of(const bench *b, int64_t i)
{
    return b->schemes[i].is_pre_rope ? b->pre_rope : b->x;
}

/* Adds a fitted quantizer; false where it does not go with the shape. A text is a shorthand, and
 * " outliers=p" behind it where the shorthand refuses what the quantizer itself can do. */
static bool add(bench *b, const char *text)
{
    kv_error err = {0};
    kv_quantizer q;
    kv_fit *fit = NULL;
    char shorthand[128];
    const char *const outliers = strstr(text, " outliers=");
    snprintf(shorthand, sizeof shorthand, "%.*s", (int)strcspn(text, " "), text);
    CHECK(kv_quantizer_parse(&q, shorthand, true, &err) == KV_OK, "%s: %s", text, err.message);
    if (outliers) q.outliers_percent = atof(strchr(outliers, '=') + 1);
    kv_tensor_shape const of = {.heads = b->s.heads,
                                .tokens = b->s.tokens,
                                .head_dim = b->s.head_dim,
                                .rotary_dim = q.is_pre_rope ? 0 : 2 * b->tables.pairs,
                                .is_rope_interleaved = b->tables.is_interleaved,
                                .seed = 5};
    if (kv_fit_create(&fit, &q, &of, &err) != KV_OK) return false;
    while (kv_fit_next(fit) != KV_FIT_READY) {
        for (int64_t h = 0; h < b->s.heads; h++)
            CHECK(kv_fit_absorb(fit, h, (q.is_pre_rope ? b->pre_rope : b->x) + h * b->size, &err) ==
                      KV_OK,
                  "%s: %s", text, err.message);
        CHECK(kv_fit_end_pass(fit, &err) == KV_OK, "%s: %s", text, err.message);
    }
    snprintf(b->text[b->n], sizeof b->text[0], "%s of %dx%dx%d", text, (int)b->s.heads,
             (int)b->s.tokens, (int)b->s.head_dim);
    b->fits[b->n] = fit, b->schemes[b->n] = scheme_of_fit(b->e, fit);
    b->n++;
    return true;
}

/* Words as numbers, both of n. */
static void check_words(const char *text, const char *what, const void *found, const void *expected,
                        int64_t n)
{
    const uint32_t *const a = found, *const b = expected;
    int64_t bad = 0, first = 0;
    for (int64_t i = 0; i < n; i++)
        if (a[i] != b[i] && bad++ == 0) first = i;
    CHECK(bad == 0, "%s: %d of %d %s differ, first %d: %08x, CPU %08x", text, (int)bad, (int)n,
          what, (int)first, a[first], b[first]);
}

/* Squared differences of a tile of n tokens, added up as a block of 128 threads does: a thread's
 * own in order, then pairs of threads 64, 32 ... apart. */
static double tile_error(const float *values, const float *x, int64_t n, int64_t d)
{
    double sums[128] = {0};
    for (int64_t t = 0; t < n; t++)
        for (int64_t c = 0; c < d; c++) {
            double const off = (double)(values[t * d + c] - x[t * d + c]);
            sums[t % 4 * 32 + c % 32] += off * off;
        }
    for (int half = 64; half > 0; half /= 2)
        for (int i = 0; i < half; i++) sums[i] += sums[i + half];
    return sums[0];
}

/* What the CPU makes of scheme i: values [heads][T][D], and errors [heads][tiles]. */
static void expected_values(const bench *b, int64_t i, float *values, double *errors)
{
    int64_t const T = b->s.tokens, d = b->s.head_dim;
    float *const scratch = malloc((size_t)(KV_JOB_ROWS * d) * sizeof *scratch);
    for (int64_t h = 0; h < b->s.heads; h++) {
        float *const y = values + h * b->size;
        kv_fit_decode(b->fits[i], h, tensor_of(b, i) + h * b->size, 0, T, y, scratch);
        if (b->schemes[i].is_pre_rope) kv_rope_apply(b->rope, 0, T, y);
        for (int64_t t = 0; t < T; t += KV_CUDA_TOKENS)
            *errors++ = tile_error(y + t * d, b->x + h * b->size + t * d,
                                   kv_minimum_size(KV_CUDA_TOKENS, T - t), d);
    }
    free(scratch);
}

static void check_values(bench *b)
{
    int64_t const n = b->s.heads * b->size;
    int64_t const tiles = b->s.heads * ((b->s.tokens + KV_CUDA_TOKENS - 1) / KV_CUDA_TOKENS);
    size_t const bytes = (size_t)(b->n * n) * sizeof(float);
    size_t const error_bytes = (size_t)(b->n * tiles) * sizeof(double);
    float *const values = malloc(bytes), *const found = malloc(bytes);
    double *const errors = malloc(error_bytes), *const found_errors = malloc(error_bytes);
    uint32_t flags = 0;
    kv_cuda_decode a = {.values = room(b->e, bytes),
                        .error = room(b->e, error_bytes),
                        .x = b->device_x,
                        .x_pre_rope = b->device_pre_rope,
                        .schemes = to_device(b->e, b->schemes, (size_t)b->n * sizeof *b->schemes),
                        .n = b->n,
                        .heads = b->s.heads,
                        .tokens = b->s.tokens,
                        .head_dim = b->s.head_dim,
                        .rope = b->tables,
                        .flags = to_device(b->e, &flags, sizeof flags)};
    DO(b->e, decode, &a);
    to_host(b->e, found, a.values, bytes);
    to_host(b->e, found_errors, a.error, error_bytes);
    for (int64_t i = 0; i < b->n; i++) {
        expected_values(b, i, values + i * n, errors + i * tiles);
        check_words(b->text[i], "values", found + i * n, values + i * n, n);
        check_words(b->text[i], "words of errors", found_errors + i * tiles, errors + i * tiles,
                    2 * tiles);
    }
    a.values = NULL, a.error = room(b->e, error_bytes); /* the errors alone */
    DO(b->e, decode, &a);
    to_host(b->e, found_errors, a.error, error_bytes);
    check_words("errors alone", "words", found_errors, errors, 2 * b->n * tiles);
    to_host(b->e, &flags, a.flags, sizeof flags);
    CHECK(flags == 0, "flags %u", flags);
    free(values), free(found), free(errors), free(found_errors);
}

static void check_codes(bench *b, int64_t i)
{
    int64_t const heads = b->s.heads, n = heads * b->size, d = b->s.head_dim;
    int const bits = b->fits[i]->format->bits;
    int64_t const words = bits > 16 ? 0 : bits > 5 ? INT64_C(1) << (bits - 5) : 1;
    size_t const set = (size_t)(heads * d * words) * sizeof(uint32_t);
    uint32_t *const expected = malloc((size_t)n * sizeof *expected);
    uint32_t *const found = malloc((size_t)n * sizeof *found);
    uint32_t *const used = calloc(set + 1, 1), *const found_used = malloc(set + 1);
    float *const scratch = malloc((size_t)(KV_JOB_ROWS * d) * sizeof *scratch);
    kv_cuda_codes a = {.codes = room(b->e, (size_t)n * sizeof *found),
                       .used = words > 0 ? to_device(b->e, used, set) : NULL,
                       .words = words,
                       .x = b->schemes[i].is_pre_rope ? b->device_pre_rope : b->device_x,
                       .heads = heads,
                       .tokens = b->s.tokens,
                       .head_dim = d,
                       .scheme = b->schemes[i]};
    for (int64_t h = 0; h < heads; h++)
        kv_fit_codes(b->fits[i], h, tensor_of(b, i) + h * b->size, 0, b->s.tokens,
                     expected + h * b->size, scratch);
    for (int64_t k = 0; k < n; k++)
        if (expected[k] != KV_CODE_KEPT && words > 0)
            used[(k / b->size * d + k % d) * words + expected[k] / 32] |= 1u << expected[k] % 32;
    DO(b->e, codes, &a);
    to_host(b->e, found, a.codes, (size_t)n * sizeof *found);
    check_words(b->text[i], "codes", found, expected, n);
    if (words > 0) {
        to_host(b->e, found_used, a.used, set);
        check_words(b->text[i], "words of used codes", found_used, used, heads * d * words);
    }
    free(expected), free(found), free(used), free(found_used), free(scratch);
}

/* All of them that go with the shape, MOST at a time. Returns how many. */
static int check_list(emulated *e, const shape *s, const char *const *texts)
{
    int done = 0;
    while (*texts) {
        bench b;
        make_bench(&b, e, s);
        for (; *texts && b.n < MOST; texts++) add(&b, *texts);
        if (b.n > 0) check_values(&b);
        for (int64_t i = 0; i < b.n; i++) check_codes(&b, i);
        done += (int)b.n;
        free_bench(&b);
    }
    return done;
}

#endif
