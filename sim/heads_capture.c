/* Heads from captures: the callbacks of heads.c on tensors read from files.
 *
 * Keys are rotated or un-rotated where they are wanted in the other position. Queries are taken as
 * they are; where none were captured they are drawn like those of synthetic heads, and shaped
 * against the captured keys. A capture has one draw: no calibration from other seeds. */
#include <math.h>

#include "kernels/memory.h"
#include "sim/heads_state.h"

static const kv_capture_layer *captured(const kv_heads *heads)
{
    return kv_capture_layer_at(heads->capture, heads->capture_layer);
}

static kv_status load(void *context, kv_tensor tensor, int64_t kv_head, int64_t calibration,
                      float *out, kv_error *err)
{
    const kv_heads *const heads = context;
    if (calibration != 0)
        return KV_FAIL(
            err, KV_EREQUEST,
            "static scales from other seeds: a capture has no other seeds; use static=N, "
            "the first N tokens");
    kv_capture_tensor const stored = tensor == KV_VALUE ? KV_CAPTURE_VALUE : KV_CAPTURE_KEY;
    kv_status const status =
        kv_capture_load(out, heads->capture, heads->capture_layer, stored, kv_head, err);
    if (status != KV_OK || tensor == KV_VALUE) return status;
    bool const is_pre = captured(heads)->is_key_pre_rope, want_pre = tensor == KV_KEY_PRE_ROPE;
    if (is_pre && !want_pre) kv_rope_apply(heads->rope, 0, heads->layer.tokens, out);
    if (!is_pre && want_pre) kv_rope_remove(heads->rope, 0, heads->layer.tokens, out);
    return KV_OK;
}

static kv_status query(void *context, int64_t kv_head, float *out, kv_error *err)
{
    const kv_heads *const heads = context;
    const kv_layer *const layer = &heads->layer;
    int64_t const group = layer->query_heads / layer->kv_heads;
    for (int64_t h = 0; h < group; h++) {
        kv_status const status =
            kv_capture_load(out + h * layer->queries * layer->head_dim, heads->capture,
                            heads->capture_layer, KV_CAPTURE_QUERY, kv_head * group + h, err);
        if (status != KV_OK) return status;
    }
    return KV_OK;
}

/* The files of the layer that `map` names, with what the configuration says about them. */
static kv_status open_map(kv_capture **out, const kv_heads_config *config, int64_t layer,
                          kv_error *err)
{
    const kv_capture_map *const map = &config->capture_map;
    for (int64_t i = 0; i < map->count; i++) {
        const kv_capture_files *const files = &map->files[i];
        if (files->layer != layer) continue;
        kv_capture_spec const spec = {
            .tensor = {files->key, files->value, files->query},
            .about = {.layer = layer,
                      .window = map->window,
                      .is_key_pre_rope = map->is_pre_rope,
                      .rope = config->rope,
                      .queries = config->query_position.count,
                      .query_position =
                          config->query_position.count > 0 ? config->query_position.items : NULL},
        };
        return kv_capture_open_tensors(out, &spec, 1, err);
    }
    return KV_FAIL(err, KV_EREQUEST, "heads.capture: names no files for layer %lld",
                   (long long)layer);
}

/* Queries for a capture without any, as heads.c draws them. */
static kv_status make_up_queries(kv_heads *heads, const kv_heads_config *config, kv_error *err)
{
    kv_status status = KV_OK;
    kv_layer *const layer = &heads->layer;
    kv_heads_config drawn = *config;
    drawn.generator = KV_GENERATOR_PHILOX;
    drawn.tokens = layer->tokens, drawn.head_dim = layer->head_dim;
    drawn.kv_heads = layer->kv_heads;
    layer->queries = config->queries;
    layer->query_heads = config->query_heads ? config->query_heads : layer->kv_heads;
    drawn.query_heads = layer->query_heads;
    if (layer->queries < 1)
        KV_TRY(KV_FAIL(err, KV_EREQUEST, "heads.queries: %lld: must be 1 or more",
                       (long long)layer->queries));
    if (layer->query_heads % layer->kv_heads != 0)
        KV_TRY(KV_FAIL(err, KV_EREQUEST,
                       "heads.query_heads: %lld: must be a multiple of the "
                       "capture's %lld kv heads",
                       (long long)layer->query_heads, (long long)layer->kv_heads));
    KV_TRY(kv_heads_plan_queries(heads, &drawn, err));
    kv_heads_describe_queries(heads);
    KV_TRY(kv_streams_create(&heads->streams, &drawn, heads->index, heads->seed, err));
done:
    return status;
}

kv_status kv_heads_use_capture(kv_heads *heads, const kv_heads_config *config, int64_t layer,
                               kv_error *err)
{
    kv_status status = KV_OK;
    KV_TRY(config->capture_map.count > 0 ? open_map(&heads->capture, config, layer, err)
                                         : kv_capture_open(&heads->capture, config->capture, err));
    heads->capture_layer = kv_capture_find(heads->capture, layer);
    if (heads->capture_layer < 0)
        KV_TRY(
            KV_FAIL(err, KV_EREQUEST, "%s: has no layer %lld", config->capture, (long long)layer));
    const kv_capture_layer *const about = captured(heads);
    KV_TRY(kv_rope_create(&heads->rope, &about->rope, about->head_dim, err));
    heads->layer = (kv_layer){
        .kv_heads = about->kv_heads,
        .query_heads = about->query_heads,
        .tokens = about->tokens,
        .head_dim = about->head_dim,
        .queries = about->queries,
        .window = about->window,
        .softmax_scale =
            about->softmax_scale > 0 ? about->softmax_scale : 1 / sqrt((double)about->head_dim),
        .rotary_dim = kv_rope_rotary_dim(heads->rope),
        .is_rope_interleaved = about->rope.layout == KV_ROPE_INTERLEAVED,
        .query_position = about->query_position,
        .source = {.context = heads, .load = load, .query = query, .rope = heads->rope},
    };
    if (about->query_heads == 0)
        KV_TRY(make_up_queries(heads, config, err));
    else /* all isotropic: nobody has classified them */
        KV_TRY(kv_allocate3((void **)&heads->classes, (size_t)about->query_heads,
                            (size_t)about->queries, 1, 1, err));
done:
    return status;
}
