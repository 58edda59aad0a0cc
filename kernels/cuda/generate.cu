/* Random tensors before RoPE: see kv_cuda_generate and sim/heads.c, whose numbers these are.
 *
 * A number is a function of its place, so any thread can make any of them: each makes the four of
 * one Philox block, cuRAND's words and then our own normals (philox.h). A block of threads has
 * whole tokens and, since 64 tokens of any width are a multiple of four numbers, whole fours. Grid
 * (blocks of 64 tokens, heads), block 256, no shared memory; registers: at most 40, six blocks
 * a multiprocessor. */
#include <curand_kernel.h>

#include "kernels/cuda/launch.h"
#include "kernels/philox.h"

enum { THREADS = 256, TOKENS = 64, WORDS = 4 };

static __device__ double uniform(uint32_t word)
{
    return 1.7320508075688772 * (word * 0x1p-31 - 1); /* sqrt(3): variance 1 */
}

/* The numbers of block `four` of a head's stream that the head has; t and c are the token and the
 * channel of the first. A head has fewer than 2^34, 64 GiB. */
static __device__ void make_four(const kv_cuda_generate &a, uint32_t four, int64_t t, int64_t c)
{
    const int64_t head = blockIdx.y, n = a.tokens * a.head_dim, first = (int64_t)four * WORDS;
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

__global__ void __launch_bounds__(THREADS, 6) generate(const kv_cuda_generate a)
{
    const uint32_t head_dim = (uint32_t)a.head_dim, fours = TOKENS / WORDS * head_dim;
    const int64_t token = (int64_t)blockIdx.x * TOKENS;
    for (uint32_t i = threadIdx.x; i < fours; i += THREADS)
        make_four(a, blockIdx.x * fours + i, token + i * WORDS / head_dim, i * WORDS % head_dim);
}

kv_status kv_cuda_launch_generate(const kv_cuda_generate *a, kv_error *err)
{
    if (a->heads < 1 || a->tokens < 1) return KV_OK;
    const dim3 grid(kv_cuda_blocks(a->tokens, TOKENS), (unsigned)a->heads);
    generate<<<grid, THREADS>>>(*a);
    return kv_cuda_launched("generate", err);
}
