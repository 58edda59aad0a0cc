/* Attention of the caller's queries on the device. */
#include "kernels/cuda/cuda.h"

kv_status kv_cuda_attend(const kv_layer *layer, const kv_attention *attention, int threads,
                         float *out, kv_error *err)
{
    (void)layer, (void)attention, (void)threads, (void)out;
    return KV_FAIL(err, KV_EUNSUPPORTED, "backend cuda: cannot attend yet");
}
