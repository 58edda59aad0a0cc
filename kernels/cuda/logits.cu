/* Logits: products of queries and keys.
 *
 * A block forms the logits of one chunk's rows over TOKENS tokens; keys and queries pass through
 * shared memory STEP channels at a time. A thread holds 4 rows x 8 tokens, each a chain of fmaf
 * over the channels in order, as the CPU's products.h. Channels past the last are padded with
 * products that change nothing: 0 * -0 = -0, and x + -0 = x; rows and tokens past the last repeat
 * the last one and are not stored.
 *
 * Grid (chunks x tiles of TOKENS tokens, heads), block 128, shared 18 KiB; registers: at most 96.
 */
#include "kernels/cuda/launch.h"

enum {
    THREADS = 128,
    TOKENS = 64,
    STEP = 32,         /* channels at a time */
    STRIDE = STEP + 4, /* an odd number of float4: eight neighbouring rows lie in different banks */
    ACROSS = 8,        /* threads along the tokens */
    DOWN = THREADS / ACROSS,
    ROWS_EACH = KV_CUDA_ROWS / DOWN,
    TOKENS_EACH = TOKENS / ACROSS
};

/* Where row i of a piece of shared memory comes from: its first channel. */
static __device__ const float *query_row(const kv_cuda_logits &a, const kv_cuda_chunk &chunk, int i)
{
    const int64_t row = chunk.first + (i < chunk.n ? i : chunk.n - 1);
    return a.query + (blockIdx.y * a.queries + a.row_query[row]) * a.head_dim;
}

static __device__ const float *key_row(const kv_cuda_logits &a, const kv_cuda_chunk &chunk,
                                       int64_t token)
{
    const float *const tensor =
        chunk.scheme < 0 ? a.key : a.decoded + chunk.scheme * a.heads * a.tokens * a.head_dim;
    const int64_t inside = token < a.end_token ? token : a.end_token - 1;
    return tensor + (blockIdx.y * a.tokens + inside) * a.head_dim;
}

/* sum += key . query over n channels, a multiple of 4. */
static __device__ __forceinline__ void multiply(float sum[ROWS_EACH][TOKENS_EACH],
                                                const float *query, const float *key, int n)
{
    for (int c = 0; c < n; c += 4) {
        float4 q[ROWS_EACH];
#pragma unroll
        for (int i = 0; i < ROWS_EACH; i++) q[i] = *(const float4 *)(query + i * DOWN * STRIDE + c);
#pragma unroll
        for (int j = 0; j < TOKENS_EACH; j++) {
            const float4 k = *(const float4 *)(key + j * ACROSS * STRIDE + c);
#pragma unroll
            for (int i = 0; i < ROWS_EACH; i++) {
                sum[i][j] = fmaf(k.x, q[i].x, sum[i][j]);
                sum[i][j] = fmaf(k.y, q[i].y, sum[i][j]);
                sum[i][j] = fmaf(k.z, q[i].z, sum[i][j]);
                sum[i][j] = fmaf(k.w, q[i].w, sum[i][j]);
            }
        }
    }
}

__global__ void __launch_bounds__(THREADS) logits(const kv_cuda_logits a)
{
    __shared__ __align__(16) float query[KV_CUDA_ROWS * STRIDE], key[TOKENS * STRIDE];
    const kv_cuda_chunk chunk = a.chunks[blockIdx.x % (unsigned)a.n_chunks];
    const int64_t first = a.first_token + blockIdx.x / (unsigned)a.n_chunks * (int64_t)TOKENS;
    const int row = threadIdx.x / ACROSS, token = threadIdx.x % ACROSS;
    const int lane = threadIdx.x % STEP;
    float sum[ROWS_EACH][TOKENS_EACH] = {};
    for (int64_t c = 0; c < a.head_dim; c += STEP) {
        const int n = a.head_dim - c < STEP ? (int)(a.head_dim - c) : STEP;
        for (int i = threadIdx.x / STEP; i < KV_CUDA_ROWS; i += THREADS / STEP) {
            query[i * STRIDE + lane] = lane < n ? query_row(a, chunk, i)[c + lane] : 0.0f;
            key[i * STRIDE + lane] = lane < n ? key_row(a, chunk, first + i)[c + lane] : -0.0f;
        }
        __syncthreads();
        multiply(sum, query + row * STRIDE, key + token * STRIDE, (n + 3) / 4 * 4);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < ROWS_EACH; i++)
#pragma unroll
        for (int j = 0; j < TOKENS_EACH; j++) {
            const int r = row + i * DOWN;
            const int64_t t = first + token + j * ACROSS;
            if (r < chunk.n && t < a.end_token)
                a.logits[(blockIdx.y * a.rows + chunk.first + r) * a.stride + t - a.first_token] =
                    sum[i][j] * a.softmax_scale;
        }
}

kv_status kv_cuda_launch_logits(const kv_cuda_logits *a, kv_error *err)
{
    static_assert((int)KV_CUDA_ROWS == (int)TOKENS, "one loop loads rows and tokens");
    const int64_t tiles = kv_cuda_blocks(a->end_token - a->first_token, TOKENS);
    if (a->heads < 1 || a->n_chunks < 1) return KV_OK;
    const dim3 grid((unsigned)(tiles * a->n_chunks), (unsigned)a->heads);
    logits<<<grid, THREADS>>>(*a);
    return kv_cuda_launched("logits", err);
}
