/* smooth=a: x / lambda_c, lambda_c = (max over the quantized tokens of |x_c|)^a per kv head, the
 * maximum over both channels of a RoPE pair where channels are paired, lambda_c = 1 where it is 0.
 * The power is taken in double and rounded to float. Undone by multiplying. Engines fold lambda
 * into weights, so it is not counted. (SmoothAttention: Lin et al. 2024, QServe, section 4.2.) */
#include <math.h>

#include "kernels/memory.h"
#include "kernels/quantize_fit.h"

static kv_status create(kv_fit *fit, kv_error *err)
{
    return kv_allocate3((void **)&fit->transforms[KV_TRANSFORM_SMOOTH].channel,
                        (size_t)fit->shape.heads, (size_t)fit->shape.head_dim, 1, sizeof(float),
                        err);
}

static kv_status chunk(kv_fit *fit, kv_job *job, int64_t u, int64_t count, const float *z,
                       kv_error *err)
{
    (void)u, (void)err;
    int64_t const d = fit->shape.head_dim;
    float *const high = fit->transforms[KV_TRANSFORM_SMOOTH].channel + job->head * d;
    fit->rows->absmax_channels(high, z, count, d);
    return KV_OK;
}

/* The channel RoPE rotates together with c; c itself where there is none. */
static int64_t partner(const kv_tensor_shape *shape, int64_t c)
{
    if (c >= shape->rotary_dim) return c;
    if (shape->is_rope_interleaved) return c ^ 1;
    int64_t const half = shape->rotary_dim / 2;
    return c < half ? c + half : c - half;
}

static kv_status end(kv_fit *fit, bool *is_done, kv_error *err)
{
    (void)is_done, (void)err;
    double const setting = fit->q.transforms[KV_TRANSFORM_SMOOTH].value;
    double const a = setting != 0 ? setting : kv_transform_at(KV_TRANSFORM_SMOOTH)->preset;
    int64_t const d = fit->shape.head_dim;
    for (int64_t head = 0; head < fit->shape.heads; head++) {
        float *const lambda = fit->transforms[KV_TRANSFORM_SMOOTH].channel + head * d;
        for (int64_t c = 0; c < d; c++) {
            int64_t const other = partner(&fit->shape, c);
            if (other < c) continue;
            float const most = fmaxf(lambda[c], lambda[other]);
            lambda[c] = lambda[other] = most > 0 ? (float)pow((double)most, a) : 1.0f;
        }
    }
    return KV_OK;
}

static void apply(const kv_fit *fit, int64_t head, int64_t count, float *z, float *swap)
{
    (void)swap;
    int64_t const d = fit->shape.head_dim;
    fit->rows->divide(z, fit->transforms[KV_TRANSFORM_SMOOTH].channel + head * d, count, d);
}

static void undo(const kv_fit *fit, int64_t head, int64_t count, float *z, float *swap)
{
    (void)swap;
    int64_t const d = fit->shape.head_dim;
    fit->rows->multiply(z, fit->transforms[KV_TRANSFORM_SMOOTH].channel + head * d, count, d);
}

static const kv_step learn = {.chunk = chunk, .end = end};
const kv_transform kv_transform_smooth = {
    .create = create, .learn = &learn, .apply = apply, .undo = undo};
