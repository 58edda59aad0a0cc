/* Attention of the caller's queries on the CPU: see kv_attention in kernels/backend.h. */
#include "kernels/cpu/cpu.h"

kv_status kv_cpu_attend(const kv_layer *layer, const kv_attention *attention, int threads,
                        float *out, kv_error *err)
{
    (void)layer, (void)attention, (void)threads, (void)out;
    return KV_FAIL(err, KV_EUNSUPPORTED, "attend: not written yet");
}
