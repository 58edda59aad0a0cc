/* Heads: numpy's numbers bit for bit, moments, planted channels, RoPE, query classes at their
 * targets, recipes, independence of call order and threads, calibration draws, refusals. */
#include "sim/heads.h"

#include <pthread.h>
#include <stdlib.h>

#include "kernels/memory.h"
#include "kernels/random.h"
#include "tests/check.h"

static const double pi = 3.14159265358979323846;

/* A valid small configuration. */
static kv_heads_config small(void)
{
    return (kv_heads_config){.tokens = 256,
                             .head_dim = 32,
                             .queries = 16,
                             .kv_heads = 2,
                             .query_heads = 4,
                             .query_gain = 1,
                             .sink_key_gain = 1,
                             .sink_value_gain = 1,
                             .outliers = {.scale = 1},
                             .value_outliers = {.scale = 1}};
}

static kv_heads *make(const kv_heads_config *config, int64_t layer, int64_t seed)
{
    kv_error err = {0};
    kv_heads *heads = NULL;
    if (kv_heads_create(&heads, config, layer, seed, &err) != KV_OK) {
        printf("%s\n", err.message);
        exit(1);
    }
    return heads;
}

/* One head [T][D] or group of queries [group * Q][D]; the caller frees. */
static float *load(const kv_heads *heads, kv_tensor tensor, int64_t head, int64_t calibration)
{
    kv_error err = {0};
    const kv_layer *const l = kv_heads_layer(heads);
    float *const x = malloc((size_t)(l->tokens * l->head_dim) * sizeof *x);
    if (l->source.load(l->source.context, tensor, head, calibration, x, &err) != KV_OK) {
        printf("%s\n", err.message);
        exit(1);
    }
    return x;
}

static float *queries(const kv_heads *heads, int64_t head)
{
    kv_error err = {0};
    const kv_layer *const l = kv_heads_layer(heads);
    int64_t const rows = l->query_heads / l->kv_heads * l->queries;
    float *const x = malloc((size_t)(rows * l->head_dim) * sizeof *x);
    if (l->source.query(l->source.context, head, x, &err) != KV_OK) {
        printf("%s\n", err.message);
        exit(1);
    }
    return x;
}

static bool is_equal(const float *a, const float *b, int64_t count)
{
    return memcmp(a, b, (size_t)count * sizeof *a) == 0;
}

/* ---- numpy ---- */

/* FNV-1a over the numbers' bits. */
static uint64_t hash(uint64_t h, const float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        h = (h ^ bits) * 0x100000001b3u;
    }
    return h;
}

static int by_float(const void *a, const void *b)
{
    float const x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* From numpy: default_rng(seed).standard_normal, layer after layer, outlier channels times 20,
 * float32, then the hash above over [G][T][D], [G][T][D], [H][Q][D]. */
static const struct {
    int64_t seed, layer, tokens, head_dim, kv_heads, query_heads, queries;
    uint64_t key, value, query;
} numpy[] = {
    {0, 0, 4096, 128, 1, 1, 1, 0x88f89dca2519a3c6u, 0x77f7ca6280cd0c7fu, 0xb82db964a895277cu},
    {0, 0, 60, 16, 2, 4, 8, 0xd77d8aad7170a2cbu, 0x15272868f2e1f7b6u, 0xacb181be6fd110a8u},
    {7, 0, 60, 16, 2, 4, 8, 0x657b19ef2660af0au, 0xe55d536fcae75fa5u, 0x70609dda05e7cfdcu},
    {7, 2, 60, 16, 2, 4, 8, 0xc75bcb8c927eda6fu, 0xb614c67265218894u, 0xb79b092b52209bf0u},
    {1099511627781, 1, 33, 8, 3, 3, 5, 0xc57bd1d46b10a7b9u, 0x54ba88326cfa7427u,
     0x1c52131931411783u},
};
static int64_t const large_channels[] = {7, 23, 88}, small_channels[] = {3, 11};

static void check_numpy(void)
{
    uint64_t const start = 0xcbf29ce484222325u;
    for (size_t i = 0; i < sizeof numpy / sizeof *numpy; i++) {
        bool const is_large = numpy[i].head_dim == 128;
        kv_heads_config config = small();
        config.generator = KV_GENERATOR_NUMPY;
        config.tokens = numpy[i].tokens, config.head_dim = numpy[i].head_dim;
        config.kv_heads = numpy[i].kv_heads, config.query_heads = numpy[i].query_heads;
        config.queries = numpy[i].queries;
        config.outliers.scale = 20;
        config.outliers.channels.count = is_large ? 3 : numpy[i].head_dim == 16 ? 2 : 0;
        config.outliers.channels.items = (int64_t *)(is_large ? large_channels : small_channels);
        kv_heads *const heads = make(&config, numpy[i].layer, numpy[i].seed);
        int64_t const size = config.tokens * config.head_dim;
        int64_t const rows = config.query_heads / config.kv_heads * config.queries;
        uint64_t key = start, value = start, query = start;
        for (int64_t g = 0; g < config.kv_heads; g++) { /* heads and tensors mixed: order is free */
            float *const q = queries(heads, g), *const v = load(heads, KV_VALUE, g, 0);
            float *const k = load(heads, KV_KEY, g, 0);
            key = hash(key, k, size), value = hash(value, v, size);
            query = hash(query, q, rows * config.head_dim);
            if (is_large) {
                for (int64_t e = 0; e < size; e++) k[e] = fabsf(k[e]);
                qsort(k, (size_t)size, sizeof *k, by_float);
                double const median = ((double)k[size / 2 - 1] + (double)k[size / 2]) / 2;
                double const ratio = (double)k[size - 1] / median;
                CHECK(fabs(ratio - 129.65) < 0.005, "absmax / median %.4f, published 129.65",
                      ratio);
            }
            free(q);
            free(v);
            free(k);
        }
        CHECK(key == numpy[i].key, "row %zu: keys", i);
        CHECK(value == numpy[i].value, "row %zu: values", i);
        CHECK(query == numpy[i].query, "row %zu: queries", i);
        kv_heads_free(heads);
    }
}

/* ---- moments and plan ---- */

/* Mean and standard deviation of one channel. */
static void moments(double *mean, double *spread, const float *x, int64_t tokens, int64_t width,
                    int64_t channel)
{
    double sum = 0, square = 0;
    for (int64_t t = 0; t < tokens; t++) {
        double const v = x[t * width + channel];
        sum += v, square += v * v;
    }
    *mean = sum / (double)tokens;
    *spread = sqrt(square / (double)tokens - *mean * *mean);
}

static void check_moments(void)
{
    static const struct {
        int64_t generator, distribution;
        double fourth; /* E z^4 */
    } rows[] = {{KV_GENERATOR_PHILOX, KV_NORMAL, 3},
                {KV_GENERATOR_PHILOX, KV_UNIFORM, 1.8},
                {KV_GENERATOR_PHILOX, KV_LAPLACE, 6},
                {KV_GENERATOR_NUMPY, KV_NORMAL, 3},
                {KV_GENERATOR_TORCH, KV_NORMAL, 3}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kv_heads_config config = small();
        config.generator = rows[i].generator, config.distribution = rows[i].distribution;
        config.tokens = 4096;
        kv_heads *const heads = make(&config, 0, 3);
        float *const k = load(heads, KV_KEY, 1, 0);
        int64_t const n = config.tokens * config.head_dim;
        double sum[5] = {0};
        for (int64_t e = 0; e < n; e++)
            for (int p = 1; p <= 4; p++) sum[p] += pow((double)k[e], p) / (double)n;
        /* 5 standard errors: of the mean 1/sqrt(n), of z^2 at most sqrt(5/n), of z^4 (laplace:
         * E z^8 = 2520) sqrt(2484/n) */
        double const s = 5 / sqrt((double)n);
        CHECK(fabs(sum[1]) < s, "row %zu: mean %g", i, sum[1]);
        CHECK(fabs(sum[2] - 1) < s * sqrt(5), "row %zu: variance %g", i, sum[2]);
        CHECK(fabs(sum[4] - rows[i].fourth) < s * sqrt(2484), "row %zu: z^4 %g", i, sum[4]);
        free(k);
        kv_heads_free(heads);
    }
}

/* Channels whose mean is beyond 5 or whose spread is beyond 2; their count. */
static int find_planted(int64_t *planted, const float *x, int64_t tokens, int64_t width)
{
    int count = 0;
    for (int64_t c = 0; c < width; c++) {
        double mean, spread;
        moments(&mean, &spread, x, tokens, width, c);
        if (fabs(mean) > 5 || spread > 2) planted[count++] = c;
    }
    return count;
}

static void check_outliers(void)
{
    int64_t planted[32], other[32];
    kv_heads_config config = small();
    config.outliers = (kv_outliers){.count = 4, .scale = 6};
    config.value_outliers = (kv_outliers){.count = 2, .scale = 1, .bias = 8};
    config.value_mean = 0.5;
    bool is_same_everywhere = true;
    int negative = 0;
    for (int64_t seed = 0; seed < 8; seed++) {
        kv_heads *const heads = make(&config, 0, seed);
        for (int64_t g = 0; g < 2; g++) {
            float *const k = load(heads, KV_KEY, g, 0), *const v = load(heads, KV_VALUE, g, 0);
            CHECK(find_planted(planted, k, 256, 32) == 4, "four key channels");
            is_same_everywhere =
                is_same_everywhere &&
                (seed + g == 0 || memcmp(planted, other, 4 * sizeof *planted) == 0);
            memcpy(other, planted, sizeof other);
            CHECK(find_planted(planted, v, 256, 32) == 2, "two value channels");
            double mean, spread;
            moments(&mean, &spread, v, 256, 32, planted[0]);
            CHECK(fabs(spread - 1) < 0.25, "a bias leaves the spread: %g", spread);
            negative += mean < 0;
            double means = 0;
            for (int64_t c = 0; c < 32; c++) {
                moments(&mean, &spread, v, 256, 32, c);
                if (c != planted[0] && c != planted[1]) means += mean * mean / 30;
            }
            CHECK(means > 0.05 && means < 0.7, "value means of spread 0.5: variance %g", means);
            free(k);
            free(v);
        }
        kv_heads_free(heads);
    }
    CHECK(!is_same_everywhere, "every seed and head has the same outliers");
    CHECK(negative > 0 && negative < 16, "signs are random: %d of 16 negative", negative);
}

/* rope-low takes one coordinate of each of the first pairs that never turn once. */
static void check_low_pairs(void)
{
    static const int64_t layouts[] = {KV_ROPE_HALF, KV_ROPE_INTERLEAVED};
    for (int i = 0; i < 2; i++) {
        kv_heads_config config = small();
        config.rope = (kv_rope_settings){.layout = layouts[i], .training_length = 300};
        config.outliers =
            (kv_outliers){.count = 3, .placement = KV_PLACEMENT_ROPE_LOW, .scale = 1, .bias = 12};
        int64_t first = 0; /* wavelength 2 pi 10000^(2 i / 32) > 300 */
        while (2 * pi * pow(10000, (double)first / 16) <= 300) first++;
        int seconds = 0;
        for (int64_t seed = 0; seed < 12; seed++) {
            int64_t planted[32];
            kv_heads *const heads = make(&config, 0, seed);
            float *const k = load(heads, KV_KEY_PRE_ROPE, 0, 0);
            int const n = find_planted(planted, k, 256, 32);
            bool is_there[3] = {false};
            CHECK(n == 3, "%d channels planted", n);
            for (int j = 0; j < n; j++) {
                int64_t const pair = i == 0 ? planted[j] % 16 : planted[j] / 2;
                bool const is_second = i == 0 ? planted[j] >= 16 : planted[j] % 2 == 1;
                CHECK(pair >= first && pair < first + 3, "pair %d", (int)pair);
                if (pair >= first && pair < first + 3) is_there[pair - first] = true;
                seconds += is_second;
            }
            CHECK(is_there[0] && is_there[1] && is_there[2], "one of each pair");
            free(k);
            kv_heads_free(heads);
        }
        CHECK(seconds > 5 && seconds < 31, "coordinates are random: %d of 36 second", seconds);
    }
}

static void check_gains(void)
{
    kv_heads_config config = small();
    kv_heads *const plain = make(&config, 0, 0);
    config.sink_count = 2, config.sink_key_gain = 0.25, config.sink_value_gain = 0.5;
    config.drift = KV_DRIFT_LINEAR, config.drift_rate = 0.25; /* exact in binary */
    kv_heads *const shaped = make(&config, 0, 0);
    float *const a = load(plain, KV_KEY, 0, 0), *const b = load(shaped, KV_KEY, 0, 0);
    float *const v = load(plain, KV_VALUE, 0, 0), *const w = load(shaped, KV_VALUE, 0, 0);
    for (int64_t e = 0; e < 256 * 32; e++) {
        int64_t const t = e / 32;
        double const gain = (1 + 0.25 * (double)t) * (t < 2 ? 0.25 : 1);
        CHECK(b[e] == (float)(gain * (double)a[e]), "key gain at token %d", (int)t);
        CHECK(w[e] == (float)((t < 2 ? 0.5 : 1) * (double)v[e]), "value gain at token %d", (int)t);
    }
    free(a);
    free(b);
    free(v);
    free(w);
    kv_heads_free(plain);
    kv_heads_free(shaped);
}

/* Keys after RoPE are those before, rotated at 0, 1, ...; queries at their own positions. */
static void check_rope(void)
{
    kv_error err = {0};
    kv_rope *rope = NULL;
    kv_heads_config config = small();
    kv_heads *const plain = make(&config, 0, 0);
    config.rope.layout = KV_ROPE_HALF;
    int64_t positions[16];
    for (int64_t i = 0; i < 16; i++) positions[i] = (i * 37) % 256;
    config.query_position = (kv_int_list){16, positions};
    kv_heads *const heads = make(&config, 0, 0);
    kv_rope_create(&rope, &config.rope, 32, &err);
    float *const pre = load(heads, KV_KEY_PRE_ROPE, 1, 0), *const post = load(heads, KV_KEY, 1, 0);
    float *const q = queries(plain, 1), *const p = queries(heads, 1);
    float *const before = load(plain, KV_KEY, 1, 0);
    CHECK(is_equal(pre, before, 256 * 32), "RoPE changes nothing before it");
    kv_rope_apply(rope, 0, 256, pre);
    CHECK(is_equal(pre, post, 256 * 32), "keys");
    for (int64_t row = 0; row < 32; row++) {
        kv_rope_apply(rope, positions[row % 16], 1, q + row * 32);
        CHECK(is_equal(q + row * 32, p + row * 32, 32), "query row %d", (int)row);
    }
    const kv_layer *const l = kv_heads_layer(heads);
    kv_rope_apply(l->source.rope, 0, 256, before);
    CHECK(is_equal(before, post, 256 * 32), "rotate");
    CHECK(l->rotary_dim == 32 && kv_heads_layer(plain)->rotary_dim == 0, "rotary_dim");
    free(pre);
    free(post);
    free(q);
    free(p);
    free(before);
    kv_rope_free(rope);
    kv_heads_free(plain);
    kv_heads_free(heads);
}

/* ---- recipes ---- */

/* One head by its recipe alone, before RoPE. */
static void follow(float *x, const kv_layer *l, int tensor, int64_t head, int64_t calibration)
{
    const kv_recipe *const r = l->source.recipe;
    uint64_t const stream =
        kv_stream_id(r->layer, (uint64_t)calibration, (uint64_t)head, (uint64_t)tensor);
    const double *const mean = r->mean[tensor] + head * l->head_dim;
    const double *const spread = r->spread[tensor] + head * l->head_dim;
    for (int64_t e = 0; e < l->tokens * l->head_dim; e++) {
        int64_t const t = e / l->head_dim, c = e % l->head_dim;
        float normal;
        double z;
        kv_philox_normals(&normal, r->seed, stream, (uint64_t)e, 1);
        kv_philox_uniforms(&z, r->seed, stream, (uint64_t)e, 1);
        z = r->is_uniform ? sqrt(3) * (2 * z - 1) : (double)normal;
        x[e] = (float)(r->gain(l->source.context, tensor, t) * (mean[c] + spread[c] * z));
    }
}

/* What a recipe makes is what is loaded, bit for bit; who cannot be remade has none. */
static void check_recipes(void)
{
    static const struct {
        int64_t generator, distribution;
        bool has_recipe;
    } rows[] = {{KV_GENERATOR_PHILOX, KV_NORMAL, true},
                {KV_GENERATOR_PHILOX, KV_UNIFORM, true},
                {KV_GENERATOR_PHILOX, KV_LAPLACE, false},
                {KV_GENERATOR_NUMPY, KV_NORMAL, false},
                {KV_GENERATOR_TORCH, KV_NORMAL, false}};
    float *const x = malloc(63 * 20 * sizeof *x);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kv_heads_config config = small();
        config.generator = rows[i].generator, config.distribution = rows[i].distribution;
        config.tokens = 63, config.head_dim = 20, config.rope.layout = KV_ROPE_HALF;
        config.outliers = (kv_outliers){.count = 3, .scale = 7, .bias = 2};
        config.value_mean = 0.5, config.value_outliers.count = 1, config.value_outliers.scale = 4;
        config.drift = KV_DRIFT_LOG, config.drift_rate = 0.1;
        config.sink_count = 2, config.sink_key_gain = 0.3, config.sink_value_gain = 0.1;
        kv_heads *const heads = make(&config, 3, 11);
        const kv_layer *const l = kv_heads_layer(heads);
        CHECK((l->source.recipe != NULL) == rows[i].has_recipe, "row %zu", i);
        for (int64_t g = 0; rows[i].has_recipe && g < 2; g++)
            for (int64_t calibration = 0; calibration < 3; calibration += 2) {
                float *const key = load(heads, KV_KEY, g, calibration);
                float *const before = load(heads, KV_KEY_PRE_ROPE, g, calibration);
                float *const value = load(heads, KV_VALUE, g, calibration);
                follow(x, l, KV_RECIPE_VALUE, g, calibration);
                CHECK(is_equal(x, value, 63 * 20), "row %zu: values of head %d", i, (int)g);
                follow(x, l, KV_RECIPE_KEY, g, calibration);
                CHECK(is_equal(x, before, 63 * 20), "row %zu: keys of head %d", i, (int)g);
                kv_rope_apply(l->source.rope, 0, 63, x);
                CHECK(is_equal(x, key, 63 * 20), "row %zu: rotated keys of head %d", i, (int)g);
                free(key);
                free(before);
                free(value);
            }
        kv_heads_free(heads);
    }
    free(x);
}

/* ---- query classes ---- */

/* Softmax mass on [from, to) and logit of `token` minus the largest other, over visible tokens. */
static void attend(double *mass, double *margin, const kv_layer *l, const float *q,
                   const float *key, int64_t i, int64_t from, int64_t to, int64_t token)
{
    int64_t const end = l->query_position[i] + 1;
    int64_t const begin = l->window > 0 && end > l->window ? end - l->window : 0;
    double inside = 0, all = 0, needle = 0, other = -HUGE_VAL;
    for (int64_t t = begin; t < end; t++) {
        double logit = 0;
        for (int64_t c = 0; c < l->head_dim; c++)
            logit += (double)q[c] * (double)key[t * l->head_dim + c];
        logit *= l->softmax_scale;
        all += exp(logit);
        if (t >= from && t < to) inside += exp(logit);
        if (t == token)
            needle = logit;
        else
            other = fmax(other, logit);
    }
    *mass = inside / all, *margin = needle - other;
}

/* Checks every row of a layer against the targets of its class. */
static void check_targets(const char *name, const kv_heads_config *config)
{
    kv_heads *const heads = make(config, 1, 5);
    const kv_layer *const l = kv_heads_layer(heads);
    const uint8_t *const classes = kv_heads_classes(heads);
    int64_t const rows = l->query_heads / l->kv_heads * l->queries;
    int64_t count[KV_CLASS_COUNT] = {0};
    for (int64_t g = 0; g < l->kv_heads; g++) {
        float *const key = load(heads, KV_KEY, g, 0), *const q = queries(heads, g);
        for (int64_t row = 0; row < rows; row++) {
            int64_t const i = row % l->queries, at = g * rows + row;
            int64_t const end = l->query_position[i] + 1;
            int64_t const begin = l->window > 0 && end > l->window ? end - l->window : 0;
            const float *const x = q + row * l->head_dim;
            double mass, margin;
            uint8_t const kind = classes[at];
            count[kind]++;
            CHECK(kind == classes[i], "%s: all heads have the same classes", name);
            if (kind == KV_CLASS_ISOTROPIC && config->sink_mass > 0 && begin == 0) {
                attend(&mass, &margin, l, x, key, i, 0, config->sink_count, -1);
                CHECK(fabs(mass - config->sink_mass) < 1e-4, "%s: sink mass %g", name, mass);
            }
            if (kind == KV_CLASS_LOCAL) {
                attend(&mass, &margin, l, x, key, i, end - config->local_span, end, -1);
                CHECK(fabs(mass - config->local_mass) < 1e-4, "%s: local mass %g", name, mass);
            }
            if (kind != KV_CLASS_NEEDLE) {
                CHECK(!l->needle || l->needle[at] == -1, "%s: no needle", name);
                continue;
            }
            double const last = (double)(end - begin - 1);
            int64_t const token = begin + (int64_t)rint(config->needle_depth * last);
            CHECK(l->needle[at] == token, "%s: needle at %d", name, (int)l->needle[at]);
            attend(&mass, &margin, l, x, key, i, 0, 0, token);
            CHECK(fabs(margin - config->needle_margin) < 1e-4, "%s: margin %.8g", name, margin);
        }
        free(key);
        free(q);
    }
    double sum = 0;
    for (int k = 0; k < KV_CLASS_COUNT; k++) sum += config->class_share[k];
    for (int k = 0; k < KV_CLASS_COUNT && sum > 0; k++)
        CHECK(fabs((double)count[k] -
                   config->class_share[k] / sum * (double)(l->query_heads * l->queries)) <
                  (double)l->query_heads,
              "%s: %d queries of class %d", name, (int)count[k], k);
    kv_heads_free(heads);
}

static void check_classes(void)
{
    kv_heads_config config = small();
    config.rope.layout = KV_ROPE_HALF;
    config.local_mass = 0.7, config.local_span = 16;
    config.needle_depth = 0.4, config.needle_margin = 3;
    config.class_share[0] = 1, config.class_share[1] = 1, config.class_share[2] = 2;
    check_targets("three classes", &config);
    config.outliers = (kv_outliers){.count = 3, .scale = 20};
    check_targets("loud channels", &config);
    config.outliers =
        (kv_outliers){.count = 2, .placement = KV_PLACEMENT_ROPE_LOW, .scale = 1, .bias = 10};
    config.rope.training_length = 2048; /* the bias must not turn around within the tokens */
    config.sink_count = 1, config.sink_key_gain = 0.2, config.sink_mass = 0.5;
    check_targets("a quiet sink", &config);
    config.class_share[0] = 1, config.class_share[1] = config.class_share[2] = 0;
    check_targets("a quiet sink alone", &config);
    config.sink_count = 4, config.sink_key_gain = 3, config.sink_mass = 0.7;
    config.outliers.count = 0;
    check_targets("outsized sinks", &config);
    config = small();
    config.window = 40, config.sink_count = 2, config.sink_mass = 0.3;
    config.local_mass = 0.5, config.local_span = 8;
    config.needle_depth = 0, config.needle_margin = -1;
    config.class_share[0] = 0.2, config.class_share[1] = 0.4, config.class_share[2] = 0.4;
    check_targets("a window", &config);
    config.generator = KV_GENERATOR_NUMPY, config.needle_depth = 1, config.needle_margin = 10;
    check_targets("numpy", &config);
}

/* ---- independence ---- */

typedef struct {
    const kv_heads *heads;
    float *key[8], *query[8];
    int64_t first;
} job;

static void *read_all(void *argument)
{
    job *const j = argument;
    for (int64_t i = 0; i < 8; i++) {
        int64_t const g = (j->first + i * 3) % 8;
        j->query[g] = queries(j->heads, g);
        j->key[g] = load(j->heads, KV_KEY, g, 0);
    }
    return NULL;
}

/* Four threads, each in its own order, read what one thread reads in rising order. */
static void check_independence(void)
{
    static const int64_t generators[] = {KV_GENERATOR_PHILOX, KV_GENERATOR_NUMPY,
                                         KV_GENERATOR_TORCH};
    for (int i = 0; i < 3; i++) {
        kv_heads_config config = small();
        config.generator = generators[i];
        config.kv_heads = config.query_heads = 8;
        kv_heads *const alone = make(&config, 1, 4), *const heads = make(&config, 1, 4);
        kv_heads *const other = make(&config, 2, 4), *const reseeded = make(&config, 1, 5);
        pthread_t threads[4];
        job jobs[4];
        for (int t = 0; t < 4; t++) {
            jobs[t] = (job){.heads = heads, .first = t * 2};
            pthread_create(&threads[t], NULL, read_all, &jobs[t]);
        }
        for (int t = 0; t < 4; t++) pthread_join(threads[t], NULL);
        float *previous = NULL;
        for (int64_t g = 0; g < 8; g++) {
            float *const k = load(alone, KV_KEY, g, 0), *const q = queries(alone, g);
            float *const o = load(other, KV_KEY, g, 0), *const r = load(reseeded, KV_KEY, g, 0);
            float *const c = load(alone, KV_KEY, g, 1), *const d = load(alone, KV_KEY, g, 2);
            float *const again = load(alone, KV_KEY, g, 1);
            for (int t = 0; t < 4; t++) {
                CHECK(is_equal(k, jobs[t].key[g], 256 * 32), "generator %d, head %d", i, (int)g);
                CHECK(is_equal(q, jobs[t].query[g], 16 * 32), "generator %d, head %d", i, (int)g);
                free(jobs[t].key[g]);
                free(jobs[t].query[g]);
            }
            CHECK(k[0] != o[0] && k[0] != r[0] && k[0] != c[0] && c[0] != d[0], "draws differ");
            CHECK(!previous || previous[0] != k[0], "heads differ");
            CHECK(is_equal(c, again, 256 * 32), "a calibration is one draw");
            free(previous);
            previous = k;
            float *const all[] = {q, o, r, c, d, again};
            for (size_t f = 0; f < sizeof all / sizeof *all; f++) free(all[f]);
        }
        free(previous);
        kv_heads_free(alone);
        kv_heads_free(heads);
        kv_heads_free(other);
        kv_heads_free(reseeded);
    }
}

/* Calibration k of numpy is the stream of the largest configured seed plus k. */
static void check_calibration(void)
{
    kv_heads_config config = small();
    int64_t seeds[] = {2, 9, 4};
    config.generator = KV_GENERATOR_NUMPY;
    config.seeds = (kv_int_list){3, seeds};
    kv_heads *const a = make(&config, 1, 4), *const b = make(&config, 1, 11);
    float *const x = load(a, KV_VALUE, 1, 2), *const y = load(b, KV_VALUE, 1, 0);
    CHECK(is_equal(x, y, 256 * 32), "calibration 2 of seeds up to 9 is seed 11");
    free(x);
    free(y);
    kv_heads_free(a);
    kv_heads_free(b);
}

/* ---- refusals ---- */

static void check_refused(void)
{
    int64_t bad_channel[] = {32}, bad_position[] = {256}, two[] = {1, 2};
    kv_heads_config rows[16];
    const char *const messages[] = {
        "heads.tokens: 0: must be 1 or more",
        "heads.query_heads: 3: must be a multiple of kv_heads = 2",
        "heads.outliers.channels: 32: must be 0 to head_dim - 1 = 31",
        "heads.outliers.count: 33: must be 0 to head_dim = 32",
        "heads.outliers.count: 40: must be 0 to head_dim = 32",
        "heads.outliers.count: 20: placement rope-low finds only 9 RoPE pairs with a wavelength "
        "above 256 tokens",
        "heads.query.position: 2 positions for queries = 16",
        "heads.query.position: 256: must be 0 to tokens - 1 = 255",
        "heads.queries: 300: more than tokens = 256; give heads.query.position",
        "heads.distribution: only normal with this generator; uniform and laplace need generator "
        "philox",
        "heads.local.mass: 1: must be between 0 and 1",
        "heads.sinks.mass: 0.5: needs heads.sinks.count",
        "heads.query.classes.needle: query 0 sees only one token",
        "rope.rotary_dim: 31: must be even, at least 2 and at most head_dim = 32",
    };
    enum { N = sizeof messages / sizeof *messages };
    for (int i = 0; i < N; i++) rows[i] = small();
    rows[0].tokens = 0;
    rows[1].query_heads = 3;
    rows[2].outliers.channels = (kv_int_list){1, bad_channel};
    rows[3].outliers.count = 33;
    rows[4].outliers.count = 40;
    rows[5].outliers = (kv_outliers){.count = 20, .placement = KV_PLACEMENT_ROPE_LOW};
    rows[5].rope.layout = KV_ROPE_HALF;
    rows[6].query_position = (kv_int_list){2, two};
    rows[7].query_position = (kv_int_list){1, bad_position};
    rows[7].queries = 1;
    rows[8].queries = 300;
    rows[9].generator = KV_GENERATOR_NUMPY, rows[9].distribution = KV_LAPLACE;
    rows[10].class_share[1] = 1, rows[10].local_mass = 1, rows[10].local_span = 4;
    rows[11].sink_mass = 0.5;
    rows[12].class_share[2] = 1, rows[12].queries = 256;
    rows[13].rope = (kv_rope_settings){.layout = KV_ROPE_HALF, .rotary_dim = 31};
    for (int i = 0; i < N; i++) {
        kv_error err = {0};
        kv_heads *heads = NULL;
        CHECK(kv_heads_create(&heads, &rows[i], 0, 0, &err) == KV_EREQUEST, "row %d", i);
        CHECK_TEXT(err.message, messages[i]);
    }
    /* a quiet sink that nothing sets apart cannot have the mass */
    kv_error err = {0};
    kv_heads_config config = small();
    config.sink_count = 1, config.sink_key_gain = 0.1, config.sink_mass = 0.9;
    kv_heads *const heads = make(&config, 0, 0);
    const kv_layer *const l = kv_heads_layer(heads);
    float q[32 * 32];
    CHECK(l->source.query(l->source.context, 0, q, &err) == KV_EREQUEST, "a sink out of reach");
    CHECK(strstr(err.message, "heads: layer 0, kv head 0, query row 0: sink mass 0.9 cannot be "
                              "reached, only "),
          "%s", err.message);
    kv_heads_free(heads);
}

static void check_memory(void)
{
    static const int64_t generators[] = {KV_GENERATOR_PHILOX, KV_GENERATOR_NUMPY,
                                         KV_GENERATOR_TORCH};
    for (int i = 0; i < 3; i++) {
        kv_heads_config config = small();
        config.generator = generators[i];
        config.rope.layout = KV_ROPE_HALF;
        config.class_share[2] = 1, config.needle_depth = 0.5, config.needle_margin = 2;
        float *const x = malloc(256 * 32 * sizeof *x);
        bool is_done = false;
        for (long k = 0; !is_done && k < 1000; k++) {
            kv_error err = {0};
            kv_heads *heads = NULL;
            kv_fail_allocation(k);
            kv_status status = kv_heads_create(&heads, &config, 1, 0, &err);
            if (status == KV_OK) {
                const kv_layer *const l = kv_heads_layer(heads);
                status = l->source.load(l->source.context, KV_KEY, 1, 1, x, &err);
                if (status == KV_OK) status = l->source.query(l->source.context, 1, x, &err);
            }
            kv_fail_allocation(-1);
            is_done = status == KV_OK;
            CHECK(is_done || status == KV_ENOMEM, "allocation %ld: %s", k, err.message);
            kv_heads_free(heads);
        }
        CHECK(is_done, "never enough memory");
        free(x);
    }
}

int main(void)
{
    check_numpy();
    check_moments();
    check_outliers();
    check_low_pairs();
    check_gains();
    check_rope();
    check_recipes();
    check_classes();
    check_independence();
    check_calibration();
    check_refused();
    check_memory();
    return check_done();
}
