/* percentile=p: the range is the p-th percentile of |x|, or the (100-p)-th and p-th of x for
 * asymmetric grids; values beyond saturate. Interpolation and method: quantize_select.h; the result
 * is rounded to float. */
#include "kernels/quantize_fit.h"

static kv_status begin(kv_fit *fit, bool *is_done, kv_error *err)
{
    (void)is_done;
    double const p = fit->q.range_value;
    double const one[] = {p}, two[] = {100.0 - p, p};
    kv_status const status = kv_fit_start_extremes(fit, err);
    if (status != KV_OK) return status;
    bool const is_pair = fit->q.is_asymmetric;
    return kv_select_create(&fit->select, &fit->grid, fit->shape.heads, fit->shape.head_dim,
                            !is_pair, is_pair ? 2 : 1, is_pair ? two : one, err);
}

static kv_status chunk(kv_fit *fit, kv_job *job, int64_t u, int64_t count, const float *z,
                       kv_error *err)
{
    (void)err;
    kv_select_count(fit->select, job->head, u, count, z);
    return KV_OK;
}

static kv_status end(kv_fit *fit, bool *is_done, kv_error *err)
{
    *is_done = kv_select_end_pass(fit->select);
    if (!*is_done) return KV_OK;
    int64_t const tiles = fit->grid.heads * kv_grid_tiles(&fit->grid);
    for (int64_t i = 0; i < tiles; i++) {
        double value;
        if (fit->q.is_asymmetric && kv_select_result(fit->select, i, 0, &value))
            fit->low[i] = (float)value;
        if (kv_select_result(fit->select, i, fit->q.is_asymmetric, &value))
            fit->high[i] = (float)value;
    }
    kv_select_free(fit->select);
    fit->select = NULL;
    return kv_fit_set_scales(fit, err);
}

const kv_step kv_range_percentile_step = {begin, chunk, end};
