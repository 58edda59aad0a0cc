/* From ranges to scales as they are stored (scale.h), and the scale above all e4m3 scales.
 *
 * One thread a tile. The largest plain scale is found as an integer, which orders like the floats
 * since none is negative, by an atomic maximum; a last kernel of one thread divides it. Ranges and
 * values beyond float set a flag.
 * Grid (tiles / 256), block 256; registers: at most 32. */
#include <float.h>

#include "kernels/cuda/launch.h"

enum { THREADS = 256 };

__global__ void __launch_bounds__(THREADS) find_largest(const kv_cuda_global a)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.tiles) return;
    const float plain = kv_scale_plain(&a.rule, a.low[i], a.high[i]);
    if (!(plain <= FLT_MAX)) atomicOr(a.flags, KV_CUDA_OVERFLOW);
    if (a.rule.storage == KV_SCALE_E4M3) atomicMax((uint32_t *)a.global, kv_float_bits(plain));
}

__global__ void divide_largest(float *global)
{
    *global /= KV_E4M3_MAXIMUM;
}

kv_status kv_cuda_launch_global(const kv_cuda_global *a, kv_error *err)
{
    const bool is_wanted = a->rule.storage == KV_SCALE_E4M3;
    if (is_wanted) cudaMemsetAsync(a->global, 0, sizeof *a->global);
    if (a->tiles > 0) find_largest<<<kv_cuda_blocks(a->tiles, THREADS), THREADS>>>(*a);
    if (a->tiles > 0 && is_wanted) divide_largest<<<1, 1>>>(a->global);
    return kv_cuda_launched("global", err);
}

__global__ void __launch_bounds__(THREADS) store_scales(const kv_cuda_scales a)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.tiles) return;
    kv_scale_rule rule = a.rule;
    if (rule.storage == KV_SCALE_E4M3) rule.global = *a.global;
    float scale, minimum;
    kv_scale_store(&scale, &minimum, &rule, a.low[i], a.high[i]);
    a.scale[i] = scale, a.minimum[i] = minimum;
    if (!(fmaf(rule.limit, scale, minimum) <= FLT_MAX)) atomicOr(a.flags, KV_CUDA_OVERFLOW);
}

kv_status kv_cuda_launch_scales(const kv_cuda_scales *a, kv_error *err)
{
    if (a->tiles < 1) return KV_OK;
    store_scales<<<kv_cuda_blocks(a->tiles, THREADS), THREADS>>>(*a);
    return kv_cuda_launched("scales", err);
}
