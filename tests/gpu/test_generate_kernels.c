/* Kernels that make random tensors and rotate them, against the library's own functions, bit by
 * bit: test_generate_kernels MODULE. */
#include <stdio.h>

#include "kernels/random.h"
#include "kernels/real.h"
#include "kernels/rope.h"
#include "tests/gpu/kernels.h"

static void compare(const char *what, const float *found, const float *expected, size_t n)
{
    size_t differ = 0, first = 0;
    for (size_t i = n; i-- > 0;)
        if (kv_float_bits(found[i]) != kv_float_bits(expected[i])) differ++, first = i;
    CHECK(differ == 0, "%s: %zu of %zu differ, element %zu is %a, not %a", what, differ, n, first,
          (double)found[first], (double)expected[first]);
}

static void fill(double *x, int64_t n, uint64_t stream)
{
    kv_philox_uniforms(x, 5, stream, 0, (size_t)n);
    for (int64_t i = 0; i < n; i++) x[i] = 4 * x[i] - 2;
}

static void check_generate(emulated *e, int64_t heads, int64_t tokens, int64_t head_dim,
                           bool is_uniform)
{
    int64_t const n = tokens * head_dim;
    uint64_t const seed = 0x123456789abcdefu, stream = UINT64_C(3) << 32 | 7, step = 16;
    size_t const bytes = (size_t)(heads * n) * sizeof(float);
    size_t const channels = (size_t)(heads * head_dim) * sizeof(double);
    float *const found = malloc(bytes), *const expected = malloc(bytes);
    double *const gain = malloc((size_t)tokens * sizeof *gain);
    double *const mean = malloc(channels), *const spread = malloc(channels);
    float *const out = room(e, bytes);
    fill(gain, tokens, 1), fill(mean, heads * head_dim, 2), fill(spread, heads * head_dim, 3);
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < n; i++) {
            uint64_t const s = stream + (uint64_t)h * step;
            int64_t const c = h * head_dim + i % head_dim;
            float normal;
            double z;
            kv_philox_normals(&normal, seed, s, (uint64_t)i, 1);
            kv_philox_uniforms(&z, seed, s, (uint64_t)i, 1);
            z = is_uniform ? sqrt(3) * (2 * z - 1) : (double)normal;
            expected[h * n + i] = (float)(gain[i / head_dim] * (mean[c] + spread[c] * z));
        }
    DO(e, generate,
       &(kv_cuda_generate){.x = out,
                           .heads = heads,
                           .tokens = tokens,
                           .head_dim = head_dim,
                           .seed = seed,
                           .stream = stream,
                           .stream_step = step,
                           .gain = to_device(e, gain, (size_t)tokens * sizeof *gain),
                           .mean = to_device(e, mean, channels),
                           .spread = to_device(e, spread, channels),
                           .is_uniform = is_uniform});
    to_host(e, found, out, bytes);
    char what[80];
    snprintf(what, sizeof what, "%s, %d heads of %d x %d", is_uniform ? "uniform" : "normal",
             (int)heads, (int)tokens, (int)head_dim);
    compare(what, found, expected, (size_t)(heads * n));
    free(found), free(expected), free(gain), free(mean), free(spread);
    give_back(e);
}

/* The rope's tables on the device, for tokens 0 ... tokens - 1. */
static kv_cuda_rope upload(emulated *e, const kv_rope *rope, int64_t tokens)
{
    kv_rope_tables const tables = kv_rope_tables_of(rope);
    int64_t const blocks = (tokens + KV_ROPE_OFFSETS - 1) / KV_ROPE_OFFSETS;
    size_t const offset_bytes = (size_t)(KV_ROPE_OFFSETS * tables.pairs) * sizeof(double);
    size_t const block_bytes = (size_t)(blocks * tables.pairs) * sizeof(double);
    double *const cosine = malloc(block_bytes + 1), *const sine = malloc(block_bytes + 1);
    kv_rope_blocks(rope, blocks, cosine, sine);
    kv_cuda_rope const on_device = {tables.pairs,
                                    tables.is_interleaved,
                                    tables.magnitude,
                                    to_device(e, tables.cosine, offset_bytes),
                                    to_device(e, tables.sine, offset_bytes),
                                    to_device(e, cosine, block_bytes),
                                    to_device(e, sine, block_bytes)};
    free(cosine), free(sine);
    return on_device;
}

static void check_rotate(emulated *e, const kv_rope_settings *settings, int64_t tokens,
                         int64_t head_dim, bool is_in_place)
{
    enum { HEADS = 2 };
    size_t const n = (size_t)(HEADS * tokens * head_dim), bytes = n * sizeof(float);
    float *const expected = malloc(bytes), *const found = malloc(bytes);
    kv_rope *rope = NULL;
    kv_error err;
    CHECK(kv_rope_create(&rope, settings, head_dim, &err) == KV_OK, "%s", err.message);
    kv_philox_normals(expected, 9, (uint64_t)head_dim, 0, n);
    float *const x = to_device(e, expected, bytes), *const y = is_in_place ? x : room(e, bytes);
    for (int64_t h = 0; h < HEADS; h++)
        kv_rope_apply(rope, 0, tokens, expected + h * tokens * head_dim);
    DO(e, rotate, &(kv_cuda_rotate){y, x, HEADS, tokens, head_dim, upload(e, rope, tokens)});
    to_host(e, found, y, bytes);
    char what[80];
    snprintf(what, sizeof what, "layout %d, %d of %d channels, %d tokens", (int)settings->layout,
             (int)settings->rotary_dim, (int)head_dim, (int)tokens);
    compare(what, found, expected, n);
    free(expected), free(found);
    kv_rope_free(rope);
    give_back(e);
}

static void check_nothing(emulated *e)
{
    DO(e, generate, &(kv_cuda_generate){.tokens = 4, .head_dim = 4});
    DO(e, generate, &(kv_cuda_generate){.heads = 1, .head_dim = 4});
    DO(e, rotate, &(kv_cuda_rotate){.tokens = 4, .head_dim = 4});
    DO(e, rotate, &(kv_cuda_rotate){.heads = 1, .head_dim = 4});
}

int main(int argc, char **argv)
{
    static const int64_t shapes[][3] = {{1, 1, 1},    {2, 3, 5},   {1, 7, 3}, {3, 9, 2},
                                        {2, 1030, 1}, {2, 65, 33}, {1, 3, 64}};
    static const kv_rope_settings settings[] = {
        {.layout = KV_ROPE_NONE},
        {.layout = KV_ROPE_HALF},
        {.layout = KV_ROPE_INTERLEAVED},
        {.layout = KV_ROPE_HALF, .rotary_dim = 6},
        {.layout = KV_ROPE_INTERLEAVED, .rotary_dim = 2},
        {.layout = KV_ROPE_HALF,
         .rotary_dim = 4,
         .scaling = KV_ROPE_SCALING_YARN,
         .factor = 4,
         .original_length = 4096},
    };
    emulated e = emulated_open(argc, argv);
    check_nothing(&e);
    for (uint64_t seed = 0; seed < 2; seed++) {
        e.set_seed(seed);
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            for (int is_uniform = 0; is_uniform < 2; is_uniform++)
                check_generate(&e, shapes[i][0], shapes[i][1], shapes[i][2], is_uniform);
        for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
            check_rotate(&e, &settings[i], 1, 8, true);
            check_rotate(&e, &settings[i], 63 + (int64_t)i, 8, false);
            check_rotate(&e, &settings[i], 150, 10, i % 2);
        }
    }
    check_generate(&e, 1, 300, 128, false); /* many words: normals near every bound */
    emulated_close(&e);
    return check_done();
}
