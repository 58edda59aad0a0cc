/* Kernels that make random tensors and rotate them, against the library's own functions, bit by
 * bit: test_generate_kernels MODULE. */
#include <stdio.h>

#include "kernels/random.h"
#include "kernels/real.h"
#include "kernels/rope.h"
#include "tests/gpu/rope_turns.h"

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

typedef struct {
    int64_t heads, tokens, head_dim;
    bool is_uniform;
    uint64_t stream;
    double *gain, *mean, *spread;
} tensor;

/* The second head's stream differs in the upper word, too. */
static const uint64_t seed = 0x123456789abcdefu, first_stream = UINT64_C(0x3fffffff7);
static const uint64_t stream_step = 16;

static tensor tensor_of(int64_t heads, int64_t tokens, int64_t head_dim, bool is_uniform)
{
    size_t const channels = (size_t)(heads * head_dim) * sizeof(double);
    return (tensor){heads,
                    tokens,
                    head_dim,
                    is_uniform,
                    first_stream,
                    malloc((size_t)tokens * sizeof(double)),
                    malloc(channels),
                    malloc(channels)};
}

static double random_number(const tensor *x, int64_t head, int64_t i)
{
    float normal;
    double u;
    uint64_t const s = x->stream + (uint64_t)head * stream_step;
    kv_philox_normals(&normal, seed, s, (uint64_t)i, 1);
    kv_philox_uniforms(&u, seed, s, (uint64_t)i, 1);
    return x->is_uniform ? sqrt(3) * (2 * u - 1) : (double)normal;
}

/* Frees the tensor. */
static void check_tensor(emulated *e, tensor x)
{
    int64_t const n = x.tokens * x.head_dim;
    size_t const bytes = (size_t)(x.heads * n) * sizeof(float);
    size_t const channels = (size_t)(x.heads * x.head_dim) * sizeof(double);
    float *const found = malloc(bytes), *const expected = malloc(bytes),
                 *const out = room(e, bytes);
    for (int64_t h = 0; h < x.heads; h++)
        for (int64_t i = 0; i < n; i++) {
            int64_t const c = h * x.head_dim + i % x.head_dim;
            expected[h * n + i] = (float)(x.gain[i / x.head_dim] *
                                          (x.mean[c] + x.spread[c] * random_number(&x, h, i)));
        }
    DO(e, generate,
       &(kv_cuda_generate){.x = out,
                           .heads = x.heads,
                           .tokens = x.tokens,
                           .head_dim = x.head_dim,
                           .seed = seed,
                           .stream = x.stream,
                           .stream_step = stream_step,
                           .gain = to_device(e, x.gain, (size_t)x.tokens * sizeof *x.gain),
                           .mean = to_device(e, x.mean, channels),
                           .spread = to_device(e, x.spread, channels),
                           .is_uniform = x.is_uniform});
    to_host(e, found, out, bytes);
    char what[80];
    snprintf(what, sizeof what, "%s, %d heads of %d x %d", x.is_uniform ? "uniform" : "normal",
             (int)x.heads, (int)x.tokens, (int)x.head_dim);
    compare(what, found, expected, (size_t)(x.heads * n));
    free(found), free(expected), free(x.gain), free(x.mean), free(x.spread);
    give_back(e);
}

static void check_generate(emulated *e, const int64_t shape[3], bool is_uniform)
{
    tensor const x = tensor_of(shape[0], shape[1], shape[2], is_uniform);
    fill(x.gain, x.tokens, 1);
    fill(x.mean, x.heads * x.head_dim, 2), fill(x.spread, x.heads * x.head_dim, 3);
    check_tensor(e, x);
}

/* The real number half way from the float nearest to z to the next larger one in magnitude. */
static double tie_beside(double z)
{
    float const near = (float)z;
    return ((double)near + (double)nextafterf(near, copysignf(INFINITY, near))) / 2;
}

/* One token whose rounding in double decides a bit of a float, by channel: the mean cancels the
 * rest; the sum is just below a tie of two floats; and so is the product with a gain of 3. */
static void check_rounding(emulated *e, double gain, bool is_uniform)
{
    tensor const x = tensor_of(1, 1, 400, is_uniform);
    x.gain[0] = gain;
    fill(x.spread, x.head_dim, 3);
    for (int64_t c = 0; c < x.head_dim; c++) {
        double const z = random_number(&x, 0, c), tie = tie_beside(z);
        int64_t const kind = c / 4 % 3;
        if (kind > 0) x.spread[c] = kind == 1;
        x.mean[c] = kind == 0   ? -(x.spread[c] * z)
                    : kind == 1 ? nextafter(tie - z, copysign(INFINITY, -z))
                                : tie / 3;
    }
    check_tensor(e, x);
}

/* Nothing but the random numbers themselves. */
static void check_normals_of(emulated *e, uint64_t stream, int64_t tokens, int64_t head_dim)
{
    tensor x = tensor_of(1, tokens, head_dim, false);
    x.stream = stream;
    for (int64_t t = 0; t < tokens; t++) x.gain[t] = 1;
    for (int64_t c = 0; c < head_dim; c++) x.mean[c] = 0, x.spread[c] = 1;
    check_tensor(e, x);
}

/* Streams among whose first four normals is one that another last bit of a constant of logarithm,
 * sine or cosine (real.h), or another rounding, would change: found by trying. */
static void check_normals(emulated *e)
{
    static const uint64_t streams[] = {2371,    10626,   31089,   58170,   64137,   105685,
                                       142535,  175691,  367534,  434871,  1039742, 1117411,
                                       1510130, 1774607, 6076966, 32586174};
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++)
        check_normals_of(e, streams[i], 1, 4);
    check_normals_of(e, first_stream, 800, 256);
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
    DO(e, rotate, &(kv_cuda_rotate){y, x, NULL, HEADS, tokens, head_dim, upload(e, rope, tokens)});
    to_host(e, found, y, bytes);
    char what[80];
    snprintf(what, sizeof what, "layout %d, %d of %d channels, %d tokens", (int)settings->layout,
             (int)settings->rotary_dim, (int)head_dim, (int)tokens);
    compare(what, found, expected, n);
    free(expected), free(found);
    kv_rope_free(rope);
    give_back(e);
}

/* Rows that stand on any positions, each on its own, as queries do. */
static void check_positions(emulated *e)
{
    enum { HEADS = 3, ROWS = 11, D = 20, LAST = 200 };
    float expected[HEADS][ROWS][D], found[HEADS][ROWS][D];
    int64_t position[ROWS];
    kv_rope *rope = NULL;
    kv_error err;
    const kv_rope_settings settings = {.layout = KV_ROPE_HALF, .rotary_dim = 14};
    CHECK(kv_rope_create(&rope, &settings, D, &err) == KV_OK, "%s", err.message);
    kv_philox_normals(expected[0][0], 9, 77, 0, HEADS * ROWS * D);
    for (int i = 0; i < ROWS; i++) position[i] = i == 4 ? LAST : i * 53 % LAST;
    float *const x = to_device(e, expected, sizeof expected);
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < ROWS; i++) kv_rope_apply(rope, position[i], 1, expected[h][i]);
    DO(e, rotate,
       &(kv_cuda_rotate){x, x, to_device(e, position, sizeof position), HEADS, ROWS, D,
                         upload(e, rope, LAST + 1)});
    to_host(e, found, x, sizeof found);
    compare("rows at positions", found[0][0], expected[0][0], HEADS * ROWS * D);
    kv_rope_free(rope);
    give_back(e);
}

/* RoPE by tables of any content. */
static void check_turns(emulated *e, const char *what, void (*make)(turns *))
{
    static turns a;
    static float found[TURN_TOKENS][TURN_DIM], expected[TURN_TOKENS][TURN_DIM];
    make(&a);
    turns_expected(&a, expected);
    float *const y = to_device(e, a.x, sizeof a.x);
    DO(e, rotate,
       &(kv_cuda_rotate){y, y, NULL, 1, TURN_TOKENS, TURN_DIM, .rope = turns_tables(e, &a)});
    to_host(e, found, y, sizeof found);
    compare(what, found[0], expected[0], TURN_TOKENS * TURN_DIM);
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
    static const int64_t shapes[][3] = {{1, 1, 1},    {2, 3, 5},   {1, 7, 3},  {3, 9, 2},
                                        {2, 1030, 1}, {2, 65, 33}, {1, 3, 64}, {1, 64, 5}};
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
    for (uint64_t schedule = 0; schedule < 2; schedule++) {
        e.set_seed(schedule);
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            for (int is_uniform = 0; is_uniform < 2; is_uniform++)
                check_generate(&e, shapes[i], is_uniform);
        for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
            check_rotate(&e, &settings[i], 1, 8, true);
            check_rotate(&e, &settings[i], 63 + (int64_t)i, 8, false);
            check_rotate(&e, &settings[i], 150, 10, i % 2);
            check_rotate(&e, &settings[i], 9, 134, true);
        }
    }
    for (int is_uniform = 0; is_uniform < 2; is_uniform++)
        check_rounding(&e, 1, is_uniform), check_rounding(&e, 3, is_uniform);
    check_positions(&e);
    check_turns(&e, "cancellation", turns_cancel);
    check_turns(&e, "sums", turns_sum);
    check_normals(&e);
    emulated_close(&e);
    return check_done();
}
