/* Stored bits: one rule, with the outliers that a fit counted or those that its percentiles keep
 * when no two numbers of a vector are alike. */
#include <inttypes.h>

#include "kernels/memory.h"
#include "kernels/quantize_fit.h"

/* A sum of products that does not overflow unnoticed. */
typedef struct {
    int64_t sum;
    bool fits;
} tally;

static void add(tally *t, int64_t a, int64_t b, int64_t c, int64_t d)
{
    t->fits = t->fits && kv_multiply_sizes(a, b, &a) && kv_multiply_sizes(a, c, &a) &&
              kv_multiply_sizes(a, d, &a) && a <= INT64_MAX - t->sum;
    if (t->fits) t->sum += a;
}

/* unit and static scales are not stored with the cache. */
static void add_scales(tally *t, const kv_quantizer *q, const kv_tensor_shape *shape, int64_t span)
{
    bool const is_static = q->static_tokens > 0 || q->static_seeds > 0;
    if (!kv_format_has_scale(kv_format_at(q->format)) || q->range == KV_RANGE_UNIT || is_static)
        return;
    kv_tile_grid const g = kv_quantizer_grid(q, shape, span);
    int64_t const bits = kv_scale_at(q->scale_storage)->bits;
    add(t, g.heads, g.rows, g.columns, bits * (q->is_asymmetric ? 2 : 1));
    if (q->scale_storage == KV_SCALE_E4M3 && span > 0) add(t, 32, 1, 1, 1);
}

static void add_means(tally *t, const kv_quantizer *q, const kv_tensor_shape *shape, int64_t span)
{
    for (size_t i = 0; span > 0 && i < KV_TRANSFORM_COUNT; i++)
        if (q->transforms[i].is_on)
            add(t, shape->heads, shape->head_dim, 1, kv_transform_ops(i)->bits_per_channel);
}

/* Of kept elements in all heads: a block has room for them all the same. */
static tally stored(const kv_quantizer *q, const kv_tensor_shape *shape, int64_t kept)
{
    const kv_format *const f = kv_format_at(q->format);
    int64_t const heads = shape->heads, d = shape->head_dim;
    tally bits = {.fits = true}, coded = {.fits = true};
    int64_t first, end;
    kv_quantizer_span(q, shape->tokens, &first, &end);
    add(&bits, heads, shape->tokens - (end - first), d, 16);
    add(&coded, heads, end - first, d, 1);
    if (f->kind == KV_KIND_BLOCK)
        add(&bits, heads, end - first, d / f->block_elements, f->block_bits);
    else
        add(&bits, coded.sum - kept, f->bits, 1, 1);
    add(&bits, kept, 32, 1, 1);
    add_scales(&bits, q, shape, end - first);
    add_means(&bits, q, shape, end - first);
    bits.fits = bits.fits && coded.fits;
    return bits;
}

/* A tensor in memory is far from 2^63 bits. */
int64_t kv_quantizer_bits_kept(const kv_quantizer *q, const kv_tensor_shape *shape, int64_t kept)
{
    return stored(q, shape, kept).sum;
}

int64_t kv_fit_bits(const kv_fit *fit)
{
    int64_t kept = 0;
    for (int64_t head = 0; fit->kept && head < fit->shape.heads; head++) kept += fit->kept[head];
    return kv_quantizer_bits_kept(&fit->q, &fit->shape, kept);
}

static tally outliers(const kv_quantizer *q, const kv_tensor_shape *shape)
{
    tally kept = {.fits = true};
    int64_t first, end;
    kv_quantizer_span(q, shape->tokens, &first, &end);
    if (q->outliers_percent <= 0 || end <= first) return kept;
    kv_tile_grid const v = kv_outlier_vectors(q, shape, end - first);
    add(&kept, v.heads, v.rows, v.columns,
        kv_outliers_of(q, v.channels == 1 ? v.tokens : v.channels));
    return kept;
}

kv_status kv_quantizer_bits(int64_t *out, const kv_quantizer *q, const kv_tensor_shape *shape,
                            kv_error *err)
{
    kv_status status = KV_OK;
    KV_TRY(kv_quantizer_check(q, shape, err));
    tally const kept = outliers(q, shape), bits = stored(q, shape, kept.sum);
    if (!kept.fits || !bits.fits)
        KV_TRY(KV_FAIL(err, KV_EREQUEST,
                       "a tensor of %" PRId64 " kv heads, %" PRId64 " tokens and head_dim %" PRId64
                       ": its bits do not fit into a 64-bit number",
                       shape->heads, shape->tokens, shape->head_dim));
    *out = bits.sum;
done:
    return status;
}

kv_tensor_shape kv_quantizer_fit_shape(const kv_quantizer *q, const kv_tensor_shape *layer)
{
    kv_tensor_shape shape = *layer;
    if (!kv_quantizer_is_layer_wide(q)) shape.heads = 1;
    if (q->is_pre_rope) shape.rotary_dim = 0;
    return shape;
}

kv_status kv_quantizer_layer_bytes(int64_t *out, const kv_quantizer *q,
                                   const kv_tensor_shape *layer, kv_error *err)
{
    kv_tensor_shape const shape = kv_quantizer_fit_shape(q, layer);
    int64_t bits;
    kv_status const status = kv_quantizer_bits(&bits, q, &shape, err);
    if (status == KV_OK && !kv_multiply_sizes(bits, layer->heads / shape.heads, &bits))
        return KV_FAIL(err, KV_EREQUEST, "the stored bits of a layer do not fit 64 bits");
    if (status == KV_OK) *out = bits / 8 + (bits % 8 > 0);
    return status;
}
