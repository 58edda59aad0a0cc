/* extremes: a tile's range is its largest |x|, or its min and max for asymmetric grids. One pass.
 */
#include "kernels/quantize_fit.h"

static kv_status begin(kv_fit *fit, bool *is_done, kv_error *err)
{
    (void)is_done;
    return kv_fit_start_extremes(fit, err);
}

static kv_status chunk(kv_fit *fit, kv_job *job, int64_t u, int64_t count, const float *z,
                       kv_error *err)
{
    (void)err;
    kv_fit_chunk_extremes(fit, job, u, count, z);
    return KV_OK;
}

static kv_status end(kv_fit *fit, bool *is_done, kv_error *err)
{
    (void)is_done;
    kv_fit_combine_ranges(fit);
    return kv_fit_set_scales(fit, err);
}

const kv_step kv_range_extremes_step = {begin, chunk, end};
