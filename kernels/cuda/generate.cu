/* Random tensors before RoPE: see kv_cuda_generate and sim/heads.c, whose numbers these are.
 *
 * A number is a function of its place, so any thread can make any of them: each makes the four of
 * one Philox block, cuRAND's words and then our own normals (philox.h).
 * Grid (blocks of 256 fours, heads), block 256, no shared memory; registers: at most 40. */
#include <curand_kernel.h>

#include "kernels/cuda/launch.h"
#include "kernels/philox.h"

enum { THREADS = 256, WORDS = 4 };

static __device__ double uniform(uint32_t word)
{
    return 1.7320508075688772 * (2 * (word * 0x1p-32) - 1); /* sqrt(3): variance 1 */
}

__global__ void __launch_bounds__(THREADS) generate(const kv_cuda_generate a)
{
    const int64_t n = a.tokens * a.head_dim, four = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int64_t head = blockIdx.y, first = four * WORDS;
    if (first >= n) return;
    curandStatePhilox4_32_10_t state;
    curand_init(a.seed, a.stream + head * a.stream_step, first, &state);
    const uint4 words = curand4(&state);
    float normal[WORDS];
    kv_philox_normal_pair(&normal[0], &normal[1], words.x, words.y);
    kv_philox_normal_pair(&normal[2], &normal[3], words.z, words.w);
    const uint32_t word[WORDS] = {words.x, words.y, words.z, words.w};
    int64_t t = first / a.head_dim, c = first % a.head_dim;
    for (int i = 0; i < WORDS; i++) {
        if (first + i >= n) return;
        const double z = a.is_uniform ? uniform(word[i]) : (double)normal[i];
        const double mean = a.mean[head * a.head_dim + c], spread = a.spread[head * a.head_dim + c];
        a.x[head * n + first + i] = (float)(a.gain[t] * (mean + spread * z));
        if (++c == a.head_dim) c = 0, t++;
    }
}

kv_status kv_cuda_launch_generate(const kv_cuda_generate *a, kv_error *err)
{
    const int64_t n = a->tokens * a->head_dim;
    if (a->heads < 1 || n < 1) return KV_OK;
    const dim3 grid(kv_cuda_blocks(n, (int64_t)WORDS * THREADS), (unsigned)a->heads);
    generate<<<grid, THREADS>>>(*a);
    return kv_cuda_launched("generate", err);
}
