/* Fits of an evaluation's quantizers: see fits.h. */
#include "kernels/cpu/fits.h"

#include "kernels/memory.h"

void kv_first_error_keep(kv_first_error *first, int64_t index, const kv_error *error)
{
#pragma omp critical(kv_first_error)
    if (index < first->index) first->index = index, first->error = *error;
}

bool kv_first_error_before(kv_first_error *first, int64_t index)
{
    int64_t failed;
#pragma omp critical(kv_first_error)
    failed = first->index;
    return failed < index;
}

kv_status kv_first_error_end(const kv_first_error *first, kv_error *err)
{
    if (first->index == INT64_MAX) return KV_OK;
    if (err && err->status == KV_OK) *err = first->error;
    return first->error.status;
}

kv_tensor kv_side_tensor(const kv_side *side, int64_t scheme)
{
    if (!side->is_key) return KV_VALUE;
    return side->quantizers[scheme].is_pre_rope ? KV_KEY_PRE_ROPE : KV_KEY;
}

void kv_fits_free(kv_fit **fits, int64_t n)
{
    for (int64_t i = 0; i < n; i++) kv_fit_free(fits[i]), fits[i] = NULL;
}

/* A layer of one head is fitted with that head: its tensors are loaded once. */
static bool spans_heads(const kv_quantizer *q, const kv_layer *layer)
{
    return layer->kv_heads > 1 && kv_quantizer_is_layer_wide(q);
}

static kv_status create(kv_fit **fits, const kv_side *side, const kv_layer *layer,
                        bool is_layer_wide, kv_error *err)
{
    for (int64_t i = 0; i < side->n; i++) {
        const kv_quantizer *const q = &side->quantizers[i];
        if (spans_heads(q, layer) != is_layer_wide) continue;
        kv_tensor_shape const shape = {
            .heads = is_layer_wide ? layer->kv_heads : 1,
            .tokens = layer->tokens,
            .head_dim = layer->head_dim,
            .rotary_dim = kv_side_tensor(side, i) == KV_KEY ? layer->rotary_dim : 0,
            .is_rope_interleaved = layer->is_rope_interleaved,
        };
        kv_status const status = kv_fit_create(&fits[i], q, &shape, err);
        if (status != KV_OK) return status;
    }
    return KV_OK;
}

static bool any_wants(kv_fit *const *fits, const kv_side *side, kv_tensor tensor,
                      kv_fit_wants wants)
{
    for (int64_t i = 0; i < side->n; i++)
        if (fits[i] && kv_side_tensor(side, i) == tensor && kv_fit_next(fits[i]) == wants)
            return true;
    return false;
}

/* x of `head` goes to every fit of this tensor that wants it; index is the head within the fit. */
static kv_status absorb(kv_fit *const *fits, const kv_side *side, kv_tensor tensor,
                        kv_fit_wants wants, int64_t calibration, int64_t index, const float *x,
                        int threads, kv_error *err)
{
    kv_first_error first = {.index = INT64_MAX};
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (threads > 1)
    for (int64_t i = 0; i < side->n; i++) {
        if (!fits[i] || kv_side_tensor(side, i) != tensor || kv_fit_next(fits[i]) != wants)
            continue;
        if (calibration > side->quantizers[i].static_seeds) continue;
        kv_error error = {0};
        if (kv_fit_absorb(fits[i], index, x, &error) != KV_OK)
            kv_first_error_keep(&first, i, &error);
    }
    return kv_first_error_end(&first, err);
}

static int64_t calibrations(kv_fit *const *fits, const kv_side *side, kv_tensor tensor)
{
    int64_t most = 0;
    for (int64_t i = 0; i < side->n; i++)
        if (fits[i] && kv_side_tensor(side, i) == tensor &&
            kv_fit_next(fits[i]) == KV_FIT_CALIBRATION && side->quantizers[i].static_seeds > most)
            most = side->quantizers[i].static_seeds;
    return most;
}

/* One pass of one tensor for one head. x may be NULL: then it is loaded into `space` [T][D]. */
static kv_status feed(kv_fit *const *fits, const kv_side *side, const kv_layer *layer,
                      kv_tensor tensor, int64_t head, int64_t index, const float *x, float *space,
                      int threads, kv_error *err)
{
    const kv_source *const source = &layer->source;
    kv_status status = KV_OK;
    if (any_wants(fits, side, tensor, KV_FIT_TENSOR)) {
        if (!x) KV_TRY(source->load(source->context, tensor, head, 0, space, err));
        KV_TRY(absorb(fits, side, tensor, KV_FIT_TENSOR, 0, index, x ? x : space, threads, err));
    }
    int64_t const most = calibrations(fits, side, tensor);
    for (int64_t c = 1; c <= most; c++) {
        KV_TRY(source->load(source->context, tensor, head, c, space, err));
        KV_TRY(absorb(fits, side, tensor, KV_FIT_CALIBRATION, c, index, space, threads, err));
    }
done:
    return status;
}

static kv_status end_pass(kv_fit *const *fits, const kv_side *side, bool *is_ready, kv_error *err)
{
    *is_ready = true;
    for (int64_t i = 0; i < side->n; i++) {
        if (!fits[i] || kv_fit_next(fits[i]) == KV_FIT_READY) continue;
        kv_status const status = kv_fit_end_pass(fits[i], err);
        if (status != KV_OK) return status;
        if (kv_fit_next(fits[i]) != KV_FIT_READY) *is_ready = false;
    }
    return KV_OK;
}

static bool all_ready(kv_fit *const *fits, const kv_side *side)
{
    for (int64_t i = 0; i < side->n; i++)
        if (fits[i] && kv_fit_next(fits[i]) != KV_FIT_READY) return false;
    return true;
}

static kv_status allocate_space(float **out, const kv_layer *layer, kv_error *err)
{
    return kv_allocate3((void **)out, (size_t)layer->tokens, (size_t)layer->head_dim, 1,
                        sizeof(float), err);
}

static const kv_tensor tensors[] = {KV_KEY, KV_KEY_PRE_ROPE, KV_VALUE};
enum { N_TENSORS = sizeof tensors / sizeof tensors[0] };

static kv_status feed_layer_head(kv_fit *const *fits, const kv_side *side, const kv_layer *layer,
                                 int64_t head, kv_error *err)
{
    kv_status status = KV_OK;
    float *space = NULL;
    KV_TRY(allocate_space(&space, layer, err));
    for (int i = 0; i < N_TENSORS; i++)
        KV_TRY(feed(fits, side, layer, tensors[i], head, head, NULL, space, 1, err));
done:
    kv_free(space);
    return status;
}

kv_status kv_fit_layer(kv_fit **fits, const kv_side *side, const kv_layer *layer, int threads,
                       kv_error *err)
{
    kv_status status = KV_OK;
    KV_TRY(create(fits, side, layer, true, err));
    for (bool is_ready = all_ready(fits, side); !is_ready;) {
        kv_first_error first = {.index = INT64_MAX};
#pragma omp parallel for num_threads(threads) schedule(dynamic)
        for (int64_t head = 0; head < layer->kv_heads; head++) {
            if (kv_first_error_before(&first, head)) continue;
            kv_error error = {0};
            if (feed_layer_head(fits, side, layer, head, &error) != KV_OK)
                kv_first_error_keep(&first, head, &error);
        }
        KV_TRY(kv_first_error_end(&first, err));
        KV_TRY(end_pass(fits, side, &is_ready, err));
    }
done:
    return status;
}

kv_status kv_fit_head(kv_fit **fits, const kv_side *side, const kv_layer *layer, int64_t head,
                      const float *x, const float *x_pre_rope, int threads, kv_error *err)
{
    kv_status status = KV_OK;
    float *space = NULL;
    KV_TRY(create(fits, side, layer, false, err));
    for (bool is_ready = all_ready(fits, side); !is_ready;) {
        for (int i = 0; i < N_TENSORS; i++) {
            if (!space && calibrations(fits, side, tensors[i]) > 0)
                KV_TRY(allocate_space(&space, layer, err));
            const float *const given = tensors[i] == KV_KEY_PRE_ROPE ? x_pre_rope : x;
            KV_TRY(feed(fits, side, layer, tensors[i], head, 0, given, space, threads, err));
        }
        KV_TRY(end_pass(fits, side, &is_ready, err));
    }
done:
    kv_free(space);
    return status;
}
