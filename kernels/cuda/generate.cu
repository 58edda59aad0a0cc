/* Random tensors before RoPE: see kv_cuda_generate and sim/heads.c, whose numbers these are.
 *
 * A number is a function of its place, so any thread can make any of them: each makes the four of
 * one Philox block, cuRAND's words and then our own normals (philox.h). A block of threads has
 * whole tokens and, since 64 tokens of any width are a multiple of four numbers, whole fours. Grid
 * (blocks of 64 tokens, heads), block 256, no shared memory; registers: at most 40. */
#include <curand_kernel.h>

#include "kernels/cuda/launch.h"
#include "kernels/philox.h"

enum { THREADS = 256, TOKENS = 64, WORDS = 4 };

static __device__ double uniform(uint32_t word)
{
    return 1.7320508075688772 * (2 * (word * 0x1p-32) - 1); /* sqrt(3): variance 1 */
}

/* Elements [first, first + 4) of a head's stream, as many as are below n; t and c are the token and
 * the channel of the first. */
static __device__ void make_four(const kv_cuda_generate &a, int64_t first, int64_t n, int64_t t,
                                 int64_t c)
{
    const int64_t head = blockIdx.y;
    curandStatePhilox4_32_10_t state;
    curand_init(a.seed, a.stream + head * a.stream_step, first, &state);
    const uint4 words = curand4(&state);
    const uint32_t word[WORDS] = {words.x, words.y, words.z, words.w};
    float normal[WORDS];
    kv_philox_normal_pair(&normal[0], &normal[1], words.x, words.y);
    kv_philox_normal_pair(&normal[2], &normal[3], words.z, words.w);
    for (int i = 0; i < WORDS && first + i < n; i++) {
        const double z = a.is_uniform ? uniform(word[i]) : (double)normal[i];
        const double mean = a.mean[head * a.head_dim + c], spread = a.spread[head * a.head_dim + c];
        a.x[head * n + first + i] = (float)(a.gain[t] * (mean + spread * z));
        if (++c == a.head_dim) c = 0, t++;
    }
}

__global__ void __launch_bounds__(THREADS) generate(const kv_cuda_generate a)
{
    const int64_t token = (int64_t)blockIdx.x * TOKENS, left = a.tokens - token;
    const uint32_t head_dim = (uint32_t)a.head_dim;
    const uint32_t n = (uint32_t)(left < TOKENS ? left : TOKENS) * head_dim; /* of this block */
    for (uint32_t i = threadIdx.x * WORDS; i < n; i += THREADS * WORDS)
        make_four(a, token * head_dim + i, a.tokens * head_dim, token + i / head_dim, i % head_dim);
}

kv_status kv_cuda_launch_generate(const kv_cuda_generate *a, kv_error *err)
{
    if (a->heads < 1 || a->tokens < 1) return KV_OK;
    const dim3 grid(kv_cuda_blocks(a->tokens, TOKENS), (unsigned)a->heads);
    generate<<<grid, THREADS>>>(*a);
    return kv_cuda_launched("generate", err);
}
