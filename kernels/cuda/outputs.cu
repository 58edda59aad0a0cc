/* Outputs before they are divided: products of weights and values, split by split.
 *
 * A block takes one chunk's out rows over one split of the tokens and WIDTH channels, STEP tokens
 * at a time: values to shared memory as they are, weights made of logits on the way. A thread holds
 * 8 rows x 4 channels twice: the sum of KV_CUDA_SUM tokens, a chain of fmaf in token order, and the
 * sum of those sums, as the CPU's products.h. Tokens that no row sees weigh 0, which changes
 * nothing.
 *
 * Grid (chunks x slices of WIDTH channels x splits, heads), block 256, shared 26 KiB; registers: at
 * most 128. */
#include "kernels/cuda/launch.h"
#include "kernels/real.h"

enum {
    THREADS = 256,
    WIDTH = 128, /* channels */
    STEP = 32,   /* tokens at a time */
    WEIGHT_STRIDE = STEP + 4,
    ACROSS = WIDTH / 4, /* threads along the channels */
    DOWN = THREADS / ACROSS,
    ROWS_EACH = KV_CUDA_ROWS / DOWN
};

/* Which part of the products a block makes. */
typedef struct {
    kv_cuda_chunk chunk;
    int64_t channel, split, begin, end; /* first channel; tokens */
} part;

static __device__ part part_of(const kv_cuda_outputs &a)
{
    const unsigned slices = ((unsigned)a.head_dim + WIDTH - 1) / WIDTH;
    const unsigned rest = blockIdx.x / (unsigned)a.n_chunks;
    part p = {a.chunks[blockIdx.x % (unsigned)a.n_chunks], rest % slices * (int64_t)WIDTH,
              rest / slices, 0, 0};
    p.begin = a.first_token + p.split * a.split_tokens;
    p.end = min(p.begin + a.split_tokens, a.end_token);
    return p;
}

/* The weights of STEP tokens from `first` on, [KV_CUDA_ROWS][WEIGHT_STRIDE]; rows past the last
 * repeat it. */
static __device__ void load_weights(float *to, const kv_cuda_outputs &a, const part &p,
                                    int64_t first)
{
    const int64_t t = first + threadIdx.x % STEP;
    const float least = a.zeroes_small ? KV_LEAST_WEIGHT : 0.0f;
#pragma unroll 4
    for (int down = 0; down < KV_CUDA_ROWS; down += THREADS / STEP) {
        const int i = down + threadIdx.x / STEP;
        float weight = 0;
        const int64_t out = p.chunk.first + min(i, p.chunk.n - 1);
        const int64_t at = blockIdx.y * a.rows + a.out_row[out];
        if (t >= a.row_seen[2 * at] && t < a.row_seen[2 * at + 1])
            weight = kv_expf(a.logits[at * a.stride + t - a.first_token] - a.row[at].max);
        to[i * WEIGHT_STRIDE + threadIdx.x % STEP] = weight < least ? 0.0f : weight;
    }
}

/* The values of those tokens, [STEP][WIDTH]; what is past the last token or channel repeats it. */
static __device__ void load_values(float *to, const kv_cuda_outputs &a, const part &p,
                                   int64_t first)
{
    const float *const tensor =
        p.chunk.scheme < 0 ? a.value : a.decoded + p.chunk.scheme * a.heads * a.tokens * a.head_dim;
    const int64_t c = min(p.channel + threadIdx.x % WIDTH, a.head_dim - 1);
#pragma unroll 4
    for (int down = 0; down < STEP; down += THREADS / WIDTH) {
        const int64_t token = min(first + down + threadIdx.x / WIDTH, a.end_token - 1);
        const int64_t at = blockIdx.y * a.tokens + token;
        to[down * WIDTH + threadIdx.x] = tensor[at * a.head_dim + c];
    }
}

/* sum += weight * value over STEP tokens in order. */
static __device__ __forceinline__ void multiply(float4 sum[ROWS_EACH], const float *weight,
                                                const float *value)
{
    for (int t = 0; t < STEP; t++) {
        const float4 v = *(const float4 *)(value + t * WIDTH);
#pragma unroll
        for (int i = 0; i < ROWS_EACH; i++) {
            const float w = weight[i * DOWN * WEIGHT_STRIDE + t];
            sum[i].x = fmaf(w, v.x, sum[i].x);
            sum[i].y = fmaf(w, v.y, sum[i].y);
            sum[i].z = fmaf(w, v.z, sum[i].z);
            sum[i].w = fmaf(w, v.w, sum[i].w);
        }
    }
}

static __device__ __forceinline__ void add(float4 to[ROWS_EACH], float4 sum[ROWS_EACH])
{
#pragma unroll
    for (int i = 0; i < ROWS_EACH; i++) {
        to[i].x += sum[i].x, to[i].y += sum[i].y, to[i].z += sum[i].z, to[i].w += sum[i].w;
        sum[i] = make_float4(0, 0, 0, 0);
    }
}

static __device__ __forceinline__ void store(const kv_cuda_outputs &a, const part &p,
                                             const float4 out[ROWS_EACH])
{
    const int row = threadIdx.x / ACROSS;
    const int64_t c = p.channel + threadIdx.x % ACROSS * 4, left = a.head_dim - c;
#pragma unroll
    for (int i = 0; i < ROWS_EACH; i++) {
        const int r = row + i * DOWN;
        if (r >= p.chunk.n) continue;
        const int64_t to = (blockIdx.y * a.splits + p.split) * a.outs + p.chunk.first + r;
        float *const x = a.partial + to * a.head_dim + c;
        if (left > 0) x[0] = out[i].x;
        if (left > 1) x[1] = out[i].y;
        if (left > 2) x[2] = out[i].z;
        if (left > 3) x[3] = out[i].w;
    }
}

__global__ void __launch_bounds__(THREADS) outputs(const kv_cuda_outputs a)
{
    __shared__ __align__(16) float weights[KV_CUDA_ROWS * WEIGHT_STRIDE], values[STEP * WIDTH];
    const part p = part_of(a);
    const float *const weight = weights + threadIdx.x / ACROSS * WEIGHT_STRIDE;
    const float *const value = values + threadIdx.x % ACROSS * 4;
    float4 sum[ROWS_EACH] = {}, out[ROWS_EACH] = {};
    int64_t first = p.begin;
    do {
        load_weights(weights, a, p, first);
        load_values(values, a, p, first);
        __syncthreads();
        multiply(sum, weight, value);
        __syncthreads();
        first += STEP;
        if (first % KV_CUDA_SUM == 0) add(out, sum);
    } while (first < p.end);
    add(out, sum);
    store(a, p, out);
}

kv_status kv_cuda_launch_outputs(const kv_cuda_outputs *a, kv_error *err)
{
    const int64_t slices = kv_cuda_blocks(a->head_dim, WIDTH);
    if (a->heads < 1 || a->n_chunks < 1) return KV_OK;
    const dim3 grid((unsigned)(a->n_chunks * slices * a->splits), (unsigned)a->heads);
    outputs<<<grid, THREADS>>>(*a);
    return kv_cuda_launched("outputs", err);
}
