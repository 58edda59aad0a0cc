/* Heads for decoding: the caller makes the queries, all at the last token. And which layers a
 * configuration has, for those that go through them. */
#include "kernels/memory.h"
#include "sim/heads_state.h"

/* ---- layers ---- */

/* Those asked for, those with files, or all of the file. */
static kv_status capture_layers(int64_t **out, int64_t *count, const kv_heads_config *config,
                                kv_error *err)
{
    kv_status status = KV_OK;
    kv_capture *capture = NULL;
    void *numbers = NULL;
    bool const is_chosen = config->capture_layers.count > 0, is_map = config->capture_map.count > 0;
    if (!is_map) KV_TRY(kv_capture_probe(config->capture, err));
    if (!is_chosen && !is_map) KV_TRY(kv_capture_open(&capture, config->capture, err));
    int64_t const n = is_chosen ? config->capture_layers.count
                      : is_map  ? config->capture_map.count
                                : kv_capture_layers(capture);
    KV_TRY(kv_allocate(&numbers, (size_t)n, sizeof **out, err));
    for (int64_t l = 0; l < n; l++)
        ((int64_t *)numbers)[l] = is_chosen ? config->capture_layers.items[l]
                                  : is_map  ? config->capture_map.files[l].layer
                                            : kv_capture_layer_at(capture, l)->layer;
    *out = numbers, *count = n;
done:
    kv_capture_close(capture);
    return status;
}

kv_status kv_heads_layer_numbers(int64_t **out, int64_t *count, const kv_heads_config *config,
                                 kv_error *err)
{
    if (config->generator == KV_GENERATOR_CAPTURE) return capture_layers(out, count, config, err);
    void *numbers = NULL;
    kv_status const status = kv_allocate(&numbers, (size_t)config->layers, sizeof **out, err);
    if (status != KV_OK) return status;
    for (int64_t l = 0; l < config->layers; l++) ((int64_t *)numbers)[l] = l;
    *out = numbers, *count = config->layers;
    return KV_OK;
}

/* ---- queries ---- */

/* Plans the queries again: `queries` of them at the last token. */
static kv_status plan_again(kv_heads *heads, const kv_heads_config *config, int64_t queries,
                            kv_error *err)
{
    kv_status status = KV_OK;
    kv_layer *const layer = &heads->layer;
    kv_heads_config decode = *config;
    void *position = NULL;
    KV_TRY(kv_allocate(&position, (size_t)queries, sizeof(int64_t), err));
    for (int64_t i = 0; i < queries; i++) ((int64_t *)position)[i] = layer->tokens - 1;
    decode.tokens = layer->tokens, decode.queries = queries;
    decode.query_position = (kv_int_list){.count = queries, .items = position};
    kv_free(heads->query_position), heads->query_position = NULL;
    kv_free(heads->needle), heads->needle = NULL;
    kv_free(heads->classes), heads->classes = NULL;
    layer->query_position = layer->needle = NULL;
    layer->queries = queries;
    layer->source.query = NULL, layer->source.pulling = NULL;
    KV_TRY(kv_heads_plan_queries(heads, &decode, err));
done:
    kv_free(position);
    return status;
}

kv_status kv_heads_create_decoding(kv_heads **out, const kv_heads_config *config, int64_t layer,
                                   int64_t seed, int64_t queries, kv_error *err)
{
    kv_status status = KV_OK;
    kv_heads *heads = NULL;
    KV_TRY(kv_heads_create(&heads, config, layer, seed, err));
    KV_TRY(plan_again(heads, config, queries, err));
    *out = heads, heads = NULL;
done:
    kv_heads_free(heads);
    return status;
}

kv_status kv_heads_pull(kv_heads *heads, int64_t kv_head, float *query, kv_error *err)
{
    return kv_heads_is_shaped(heads) ? kv_heads_shape_queries(heads, kv_head, query, err) : KV_OK;
}
