/* Heads: assembles one layer and answers its callbacks. See heads.h for what a head is.
 *
 * No head is kept: a generator makes any head again from its own random stream, a capture reads it
 * from the file. So memory is the plan (a few numbers per channel) whatever the layer's size. */
#include <math.h>

#include "kernels/memory.h"
#include "sim/heads_state.h"

_Static_assert((int)KV_STREAM_KEY == (int)KV_RECIPE_KEY &&
                   (int)KV_STREAM_VALUE == (int)KV_RECIPE_VALUE &&
                   (int)KV_STREAM_QUERY == (int)KV_RECIPE_QUERY,
               "a recipe's streams are these");

static double gain_of(const void *context, int tensor, int64_t token)
{
    const kv_heads *const heads = context;
    return tensor == KV_RECIPE_KEY ? kv_heads_key_gain(&heads->config, token)
                                   : kv_heads_value_gain(&heads->config, token);
}

/* One tensor of one head before RoPE, out [T][D]:
 * gain(t) * (mean_c + spread_c * z), in double, rounded to float once. */
static kv_status generate(kv_heads *heads, kv_stream_tensor tensor, int64_t head,
                          int64_t calibration, float *out, kv_error *err)
{
    kv_status status = KV_OK;
    kv_cursor *cursor = NULL;
    double *z = NULL;
    int64_t const width = heads->layer.head_dim;
    bool const is_key = tensor == KV_STREAM_KEY;
    const double *const mean = (is_key ? heads->key_mean : heads->value_mean) + head * width;
    const double *const spread = (is_key ? heads->key_spread : heads->value_spread) + head * width;
    KV_TRY(kv_allocate((void **)&z, (size_t)width, sizeof *z, err));
    KV_TRY(kv_cursor_open(&cursor, heads->streams, tensor, head, calibration, err));
    for (int64_t t = 0; t < heads->layer.tokens; t++) {
        double const gain = gain_of(heads, (int)tensor, t);
        float *const row = out + t * width;
        kv_cursor_next(cursor, z, width);
        for (int64_t c = 0; c < width; c++) row[c] = (float)(gain * (mean[c] + spread[c] * z[c]));
    }
done:
    kv_cursor_close(cursor);
    kv_free(z);
    return status;
}

static kv_status load(void *context, kv_tensor tensor, int64_t kv_head, int64_t calibration,
                      float *out, kv_error *err)
{
    kv_heads *const heads = context;
    kv_stream_tensor const stream = tensor == KV_VALUE ? KV_STREAM_VALUE : KV_STREAM_KEY;
    kv_status const status = generate(heads, stream, kv_head, calibration, out, err);
    if (status == KV_OK && tensor == KV_KEY)
        kv_rope_apply(heads->rope, 0, heads->layer.tokens, out);
    return status;
}

static kv_status draw_queries(void *context, int64_t kv_head, float *out, kv_error *err)
{
    kv_status status = KV_OK;
    kv_heads *const heads = context;
    const kv_layer *const layer = &heads->layer;
    kv_cursor *cursor = NULL;
    double *z = NULL;
    int64_t const width = layer->head_dim, group = layer->query_heads / layer->kv_heads;
    KV_TRY(kv_allocate((void **)&z, (size_t)width, sizeof *z, err));
    for (int64_t h = 0; h < group; h++) {
        KV_TRY(
            kv_cursor_open(&cursor, heads->streams, KV_STREAM_QUERY, kv_head * group + h, 0, err));
        for (int64_t i = 0; i < layer->queries; i++) {
            float *const row = out + (h * layer->queries + i) * width;
            kv_cursor_next(cursor, z, width);
            for (int64_t c = 0; c < width; c++) row[c] = (float)(heads->config.query_gain * z[c]);
            kv_rope_apply(heads->rope, layer->query_position[i], 1, row);
        }
        kv_cursor_close(cursor), cursor = NULL;
    }
done:
    kv_cursor_close(cursor);
    kv_free(z);
    return status;
}

static kv_status make_queries(void *context, int64_t kv_head, float *out, kv_error *err)
{
    kv_heads *const heads = context;
    kv_status const status = draw_queries(heads, kv_head, out, err);
    return status == KV_OK && heads->layer.source.pulling
               ? kv_heads_shape_queries(heads, kv_head, out, err)
               : status;
}

void kv_heads_describe_queries(kv_heads *heads)
{
    static const kv_pulling pulling = {draw_queries, kv_heads_list_pulls};
    heads->layer.source.query = make_queries;
    heads->layer.source.pulling = kv_heads_is_shaped(heads) ? &pulling : NULL;
}

/* Philox numbers can be made anywhere; those of laplace need this machine's log. */
static void describe(kv_heads *heads)
{
    if (heads->config.generator != KV_GENERATOR_PHILOX || heads->config.distribution == KV_LAPLACE)
        return;
    heads->recipe = (kv_recipe){.seed = (uint64_t)heads->seed,
                                .layer = (uint64_t)heads->index,
                                .is_uniform = heads->config.distribution == KV_UNIFORM,
                                .mean = {heads->key_mean, heads->value_mean},
                                .spread = {heads->key_spread, heads->value_spread},
                                .gain = gain_of,
                                .query_gain = heads->config.query_gain};
    heads->layer.source.recipe = &heads->recipe;
}

static kv_status check_extents(const kv_heads_config *config, kv_error *err)
{
    const struct {
        const char *name;
        int64_t value;
    } extents[] = {{"tokens", config->tokens},
                   {"head_dim", config->head_dim},
                   {"queries", config->queries},
                   {"kv_heads", config->kv_heads}};
    for (size_t i = 0; i < sizeof extents / sizeof *extents; i++)
        if (extents[i].value < 1)
            return KV_FAIL(err, KV_EREQUEST, "heads.%s: %lld: must be 1 or more", extents[i].name,
                           (long long)extents[i].value);
    if (config->query_heads < 0 || config->query_heads % config->kv_heads != 0)
        return KV_FAIL(err, KV_EREQUEST,
                       "heads.query_heads: %lld: must be a multiple of kv_heads = %lld",
                       (long long)config->query_heads, (long long)config->kv_heads);
    if (config->window < 0)
        return KV_FAIL(err, KV_EREQUEST, "heads.window: %lld: must be 0 (all tokens) or more",
                       (long long)config->window);
    int64_t size;
    if (!kv_multiply_sizes(config->tokens, config->head_dim, &size) ||
        !kv_multiply_sizes(size, config->kv_heads, &size))
        return KV_FAIL(err, KV_EREQUEST, "heads: kv_heads x tokens x head_dim is too large");
    return KV_OK;
}

static kv_status synthesize(kv_heads *heads, const kv_heads_config *config, kv_error *err)
{
    kv_status status = KV_OK;
    KV_TRY(check_extents(config, err));
    heads->layer = (kv_layer){
        .kv_heads = config->kv_heads,
        .query_heads = config->query_heads ? config->query_heads : config->kv_heads,
        .tokens = config->tokens,
        .head_dim = config->head_dim,
        .queries = config->queries,
        .window = config->window,
        .softmax_scale = 1 / sqrt((double)config->head_dim),
        .is_rope_interleaved = config->rope.layout == KV_ROPE_INTERLEAVED,
        .source = {.context = heads, .load = load},
    };
    KV_TRY(kv_rope_create(&heads->rope, &config->rope, config->head_dim, err));
    heads->layer.source.rope = heads->rope;
    heads->layer.rotary_dim = kv_rope_rotary_dim(heads->rope);
    KV_TRY(kv_heads_plan_channels(heads, config, err));
    KV_TRY(kv_heads_plan_queries(heads, config, err));
    KV_TRY(kv_streams_create(&heads->streams, config, heads->index, heads->seed, err));
    kv_heads_describe_queries(heads);
    describe(heads);
done:
    return status;
}

kv_status kv_heads_create(kv_heads **out, const kv_heads_config *config, int64_t layer,
                          int64_t seed, kv_error *err)
{
    kv_status status = KV_OK;
    kv_heads *heads = NULL;
    KV_TRY(kv_allocate((void **)&heads, 1, sizeof *heads, err));
    heads->config = *config;
    heads->config.seeds = heads->config.capture_layers = (kv_int_list){0};
    heads->config.query_position = (kv_int_list){0};
    heads->config.outliers.channels = heads->config.value_outliers.channels = (kv_int_list){0};
    heads->config.capture = NULL, heads->config.capture_map = (kv_capture_map){0};
    heads->index = layer, heads->seed = seed;
    KV_TRY(config->generator == KV_GENERATOR_CAPTURE
               ? kv_heads_use_capture(heads, config, layer, err)
               : synthesize(heads, config, err));
    *out = heads, heads = NULL;
done:
    kv_heads_free(heads);
    return status;
}

void kv_heads_free(kv_heads *heads)
{
    if (!heads) return;
    kv_free(heads->query_position);
    kv_free(heads->needle);
    kv_free(heads->classes);
    kv_rope_free(heads->rope);
    kv_free(heads->key_mean);
    kv_free(heads->key_spread);
    kv_free(heads->value_mean);
    kv_free(heads->value_spread);
    kv_streams_free(heads->streams);
    kv_capture_close(heads->capture);
    kv_free(heads);
}

const kv_layer *kv_heads_layer(const kv_heads *heads)
{
    return &heads->layer;
}

const uint8_t *kv_heads_classes(const kv_heads *heads)
{
    return heads->classes;
}
