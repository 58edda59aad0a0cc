/* center: x - mean_c, mean_c the mean of channel c over the quantized tokens of one kv head, summed
 * in double in token order, divided in double, rounded to float and then to f16, in which it is
 * stored (16 bits a channel). Undone by adding it. */
#include "kernels/memory.h"
#include "kernels/quantize_fit.h"

static kv_status create(kv_fit *fit, kv_error *err)
{
    kv_transform_state *const state = &fit->transforms[KV_TRANSFORM_CENTER];
    size_t const n = (size_t)fit->shape.heads, d = (size_t)fit->shape.head_dim;
    kv_status const status =
        kv_allocate3((void **)&state->channel, n, d, 1, sizeof *state->channel, err);
    if (status != KV_OK) return status;
    return kv_allocate3((void **)&state->statistic, n, d, 1, sizeof *state->statistic, err);
}

static kv_status chunk(kv_fit *fit, kv_job *job, int64_t u, int64_t count, const float *z,
                       kv_error *err)
{
    (void)u, (void)err;
    int64_t const d = fit->shape.head_dim;
    double *const sum = fit->transforms[KV_TRANSFORM_CENTER].statistic + job->head * d;
    fit->rows->sum_channels(sum, z, count, d);
    return KV_OK;
}

static kv_status end(kv_fit *fit, bool *is_done, kv_error *err)
{
    (void)is_done, (void)err;
    kv_transform_state *const state = &fit->transforms[KV_TRANSFORM_CENTER];
    for (int64_t i = 0; i < fit->shape.heads * fit->shape.head_dim && fit->span > 0; i++) {
        float const mean = (float)(state->statistic[i] / (double)fit->span);
        state->channel[i] = kv_scale_round(mean, KV_SCALE_F16);
    }
    return KV_OK;
}

static void apply(const kv_fit *fit, int64_t head, int64_t count, float *z, float *swap)
{
    (void)swap;
    int64_t const d = fit->shape.head_dim;
    fit->rows->subtract(z, fit->transforms[KV_TRANSFORM_CENTER].channel + head * d, count, d);
}

static void undo(const kv_fit *fit, int64_t head, int64_t count, float *z, float *swap)
{
    (void)swap;
    int64_t const d = fit->shape.head_dim;
    fit->rows->add(z, fit->transforms[KV_TRANSFORM_CENTER].channel + head * d, count, d);
}

static const kv_step learn = {.chunk = chunk, .end = end};
const kv_transform kv_transform_center = {
    .create = create, .learn = &learn, .apply = apply, .undo = undo, .bits_per_channel = 16};
