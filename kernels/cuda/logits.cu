/* Logits: products of queries and keys.
 *
 * A block forms the logits of one chunk's rows over TOKENS tokens; keys and queries pass through
 * shared memory STEP channels at a time. A thread holds 4 rows x 8 tokens, each a chain of fmaf
 * over the channels in order, as the CPU's products.h. Channels past the last are padded with
 * products that change nothing: 0 * -0 = -0, and x + -0 = x; rows and tokens past the last repeat
 * the last one and are not stored.
 *
 * Grid (chunks x tiles of TOKENS tokens, heads), block 128, shared 18 KiB; registers: at most 72.
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
    const int64_t row = chunk.first + min(i, chunk.n - 1);
    return a.query + (blockIdx.y * a.queries + a.row_query[row]) * a.head_dim;
}

static __device__ const float *key_row(const kv_cuda_logits &a, const kv_cuda_chunk &chunk,
                                       int64_t token)
{
    const float *const tensor =
        chunk.scheme < 0 ? a.key : a.decoded + chunk.scheme * a.heads * a.tokens * a.head_dim;
    const int64_t inside = min(token, a.end_token - 1);
    return tensor + (blockIdx.y * a.tokens + inside) * a.head_dim;
}

/* sum += key . query over n channels, a multiple of 4. */
static __device__ __forceinline__ void multiply(float sum[ROWS_EACH][TOKENS_EACH],
                                                const float *query, const float *key, int n)
{
    int c = 0;
#pragma unroll 1
    do {
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
    } while ((c += 4) < n);
}

__global__ void __launch_bounds__(THREADS) logits(const kv_cuda_logits a)
{
    __shared__ __align__(16) float query[KV_CUDA_ROWS * STRIDE], key[TOKENS * STRIDE];
    const kv_cuda_chunk chunk = a.chunks[blockIdx.x % (unsigned)a.n_chunks];
    const int64_t first = a.first_token + blockIdx.x / (unsigned)a.n_chunks * (int64_t)TOKENS;
    const int row = threadIdx.x / ACROSS, token = threadIdx.x % ACROSS;
    const int lane = threadIdx.x % STEP, head_dim = (int)a.head_dim;
    float sum[ROWS_EACH][TOKENS_EACH] = {};
    int c = 0;
    do {
        const int left = head_dim - c;
        const bool is_inside = lane < left;
#pragma unroll 4
        for (int at = 0; at < KV_CUDA_ROWS; at += THREADS / STEP) {
            const int i = at + threadIdx.x / STEP;
            query[i * STRIDE + lane] = is_inside ? query_row(a, chunk, i)[c + lane] : 0.0f;
            key[i * STRIDE + lane] = is_inside ? key_row(a, chunk, first + i)[c + lane] : -0.0f;
        }
        __syncthreads();
        multiply(sum, query + row * STRIDE, key + token * STRIDE, (min(left, (int)STEP) + 3) & ~3);
        __syncthreads();
    } while ((c += STEP) < head_dim);
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
