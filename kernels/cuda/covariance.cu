/* Covariance of a head's channels, for the directions of pulls (pull.h).
 *
 * The order of the sums leaves one thread an element. A block has a square of SIDE x SIDE elements
 * of the lower triangle; BATCH tokens of its channels are centred in shared memory at a time, and
 * those past the last one count as the mean.
 * Grid (squares of the triangle, heads), block (16, 16), shared 8 KiB; registers: at most 40. */
#include "kernels/cuda/launch.h"

enum { SIDE = 16, BATCH = 32 };

/* A channel, and its mean; threads past the last one repeat it. */
typedef struct {
    const float *key;
    double mean;
} channel;

static __device__ __forceinline__ channel channel_of(const kv_cuda_covariance &a, int64_t c)
{
    const int64_t d = a.head_dim, head = blockIdx.y, at = c < d ? c : d - 1;
    return {a.key + head * a.tokens * d + at, a.sum[head * d + at] / (double)a.tokens};
}

__global__ void __launch_bounds__(SIDE *SIDE) find_covariance(const kv_cuda_covariance a)
{
    __shared__ double below[BATCH][SIDE], beside[BATCH][SIDE];
    int64_t row = 0, column = blockIdx.x; /* of the square; rows have 1, 2, ... */
    while (column > row) column -= ++row;
    const int64_t d = a.head_dim, i = row * SIDE + threadIdx.y, j = column * SIDE + threadIdx.x;
    const channel left = channel_of(a, row * SIDE + threadIdx.x), right = channel_of(a, j);
    double sum = 0;
    int64_t first = 0;
    do {
        for (int part = 0; part < BATCH / SIDE; part++) {
            const int k = part * SIDE + threadIdx.y;
            const int64_t t = first + k;
            below[k][threadIdx.x] = t < a.tokens ? (double)left.key[t * d] - left.mean : 0;
            beside[k][threadIdx.x] = t < a.tokens ? (double)right.key[t * d] - right.mean : 0;
        }
        __syncthreads();
#pragma unroll 8
        for (int k = 0; k < BATCH; k++) sum += below[k][threadIdx.y] * beside[k][threadIdx.x];
        __syncthreads();
    } while ((first += BATCH) < a.tokens);
    if (j <= i && i < d) a.covariance[(blockIdx.y * d + i) * d + j] = sum;
}

kv_status kv_cuda_launch_covariance(const kv_cuda_covariance *a, kv_error *err)
{
    if (a->heads < 1 || a->tokens < 1) return KV_OK;
    const unsigned side = kv_cuda_blocks(a->head_dim, SIDE);
    find_covariance<<<dim3(side * (side + 1) / 2, (unsigned)a->heads), dim3(SIDE, SIDE)>>>(*a);
    return kv_cuda_launched("covariance", err);
}
