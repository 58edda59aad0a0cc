/* Settings of heads that contradict each other; ranges of single keys are the key table's. */
#include <inttypes.h>
#include <stddef.h>

#include "sim/heads.h"

#define REFUSE(...) KV_FAIL(err, KV_EREQUEST, __VA_ARGS__)

static kv_status check_outliers(const kv_outliers *o, const char *name, const kv_heads_config *c,
                                kv_error *err)
{
    if (o->channels.count && o->count)
        return REFUSE("heads.%s: channels and count are both given; give one", name);
    for (int64_t i = 0; i < o->channels.count; i++)
        if (o->channels.items[i] >= c->head_dim)
            return REFUSE("heads.%s.channels: %" PRId64 " is not below heads.head_dim = %" PRId64,
                          name, o->channels.items[i], c->head_dim);
    if (o->count > c->head_dim)
        return REFUSE("heads.%s.count: %" PRId64 " is more than heads.head_dim = %" PRId64, name,
                      o->count, c->head_dim);
    if (o->count && o->placement == KV_PLACEMENT_ROPE_LOW && c->rope.layout == KV_ROPE_NONE)
        return REFUSE("heads.%s.placement: rope-low needs heads.rope", name);
    return KV_OK;
}

static kv_status check_rope(const kv_heads_config *c, kv_error *err)
{
    const kv_rope_settings *const r = &c->rope;
    int64_t const rotary_dim = kv_heads_config_shape(c).rotary_dim;
    bool const has_original =
        r->scaling == KV_ROPE_SCALING_YARN || r->scaling == KV_ROPE_SCALING_LLAMA3;
    if (r->layout == KV_ROPE_NONE) return KV_OK;
    if (!(r->base > 1)) return REFUSE("heads.rope.base: must be above 1");
    if (r->scaling == KV_ROPE_SCALING_NTK && rotary_dim < 4)
        return REFUSE("heads.rope.rotary_dim: %" PRId64 ": scaling ntk needs 4 or more",
                      rotary_dim);
    if (rotary_dim % 2 || rotary_dim > c->head_dim)
        return REFUSE("heads.rope.rotary_dim: %" PRId64
                      " must be even and at most heads.head_dim = %" PRId64,
                      rotary_dim, c->head_dim);
    if (has_original && !r->original_length)
        return REFUSE("heads.rope.scaling.original_length: must be given for yarn and llama3");
    if (r->scaling == KV_ROPE_SCALING_LLAMA3 && r->low_freq_factor >= r->high_freq_factor)
        return REFUSE("heads.rope.scaling.low_freq_factor: %g must be below high_freq_factor = %g",
                      r->low_freq_factor, r->high_freq_factor);
    return KV_OK;
}

static kv_status check_queries(const kv_heads_config *c, kv_error *err)
{
    const double *const share = c->class_share;
    if (c->query_heads % c->kv_heads)
        return REFUSE("heads.query_heads: %" PRId64
                      " is not a multiple of heads.kv_heads = %" PRId64,
                      c->query_heads, c->kv_heads);
    if (c->query_position.count && c->query_position.count != c->queries)
        return REFUSE("heads.query.position: %" PRId64 " positions for heads.queries = %" PRId64,
                      c->query_position.count, c->queries);
    for (int64_t i = 0; i < c->query_position.count; i++)
        if (c->query_position.items[i] >= c->tokens)
            return REFUSE("heads.query.position: %" PRId64 " is not below heads.tokens = %" PRId64,
                          c->query_position.items[i], c->tokens);
    if (!c->query_position.count && c->queries > c->tokens)
        return REFUSE("heads.queries: %" PRId64
                      " queries at the last positions need as many tokens, "
                      "heads.tokens = %" PRId64,
                      c->queries, c->tokens);
    if (share[KV_CLASS_ISOTROPIC] + share[KV_CLASS_LOCAL] + share[KV_CLASS_NEEDLE] <= 0)
        return REFUSE("heads.query.classes: one share must be above 0");
    if (share[KV_CLASS_LOCAL] > 0 && (c->local_mass <= 0 || c->local_mass >= 1))
        return REFUSE("heads.local.mass: %g must lie between 0 and 1 for local queries",
                      c->local_mass);
    if (share[KV_CLASS_NEEDLE] > 0 && c->tokens < 2)
        return REFUSE("heads.query.classes.needle: a needle needs heads.tokens of at least 2");
    return KV_OK;
}

static kv_status check_sinks(const kv_heads_config *c, kv_error *err)
{
    if (c->sink_count > c->tokens)
        return REFUSE("heads.sinks.count: %" PRId64 " is more than heads.tokens = %" PRId64,
                      c->sink_count, c->tokens);
    if (c->sink_mass > 0 && !c->sink_count)
        return REFUSE("heads.sinks.mass: %g needs heads.sinks.count", c->sink_mass);
    if (c->drift_rate != 0 && c->drift == KV_DRIFT_NONE)
        return REFUSE("heads.drift.rate: %g needs heads.drift.kind", c->drift_rate);
    return KV_OK;
}

static kv_status check_generator(const kv_heads_config *c, kv_error *err)
{
    bool const has_capture = (c->capture && *c->capture) || c->capture_map.count;
    if (c->generator == KV_GENERATOR_CAPTURE && !has_capture)
        return REFUSE("heads.capture: must be given with generator capture");
    if (c->generator != KV_GENERATOR_CAPTURE && has_capture)
        return REFUSE("heads.capture: needs heads.generator: capture");
    if (c->generator != KV_GENERATOR_CAPTURE && c->capture_layers.count)
        return REFUSE("heads.layers: a list picks layers of a capture; here give how many");
    return KV_OK;
}

kv_tensor_shape kv_heads_config_shape(const kv_heads_config *c)
{
    const kv_rope_settings *const r = &c->rope;
    kv_tensor_shape shape = {.heads = c->kv_heads, .tokens = c->tokens, .head_dim = c->head_dim};
    if (r->layout != KV_ROPE_NONE) shape.rotary_dim = r->rotary_dim ? r->rotary_dim : c->head_dim;
    shape.is_rope_interleaved = r->layout == KV_ROPE_INTERLEAVED;
    return shape;
}

kv_status kv_heads_config_check(const kv_heads_config *c, kv_error *err)
{
    kv_status status = KV_OK;
    KV_TRY(check_generator(c, err));
    if (c->generator == KV_GENERATOR_CAPTURE) return KV_OK; /* the file says the shapes */
    KV_TRY(check_outliers(&c->outliers, "outliers", c, err));
    KV_TRY(check_outliers(&c->value_outliers, "value_outliers", c, err));
    KV_TRY(check_rope(c, err));
    KV_TRY(check_queries(c, err));
    KV_TRY(check_sinks(c, err));
done:
    return status;
}
