/* unit: scale 1, saturating; nothing to find and nothing to store. */
#include "kernels/quantize_fit.h"

static kv_status begin(kv_fit *fit, bool *is_done, kv_error *err)
{
    (void)fit, (void)err;
    *is_done = true;
    return KV_OK;
}

const kv_step kv_range_unit_step = {.begin = begin};
