/* What is known of every row of logits: maximum, sum of weights, the needle's margin, and the
 * entries (order.h) of the 1st, 8th and 64th best visible token.
 *
 * A row is read for the best token of each thread, then for the sum, and then for a radix
 * selection, digit by digit, until of each k only one entry can be meant, which a last reading
 * finds. Most tokens take no part in it: threads form 64 groups, and as many tokens are not below
 * the least of the groups' best ones, so that no token below it is among the 64 best. Grid (rows,
 * heads), block 256, shared 7.3 KiB; registers: at most 32. */
#include "kernels/cuda/launch.h"
#include "kernels/order.h"

enum { THREADS = 256, GROUPS = 64, DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS, PART = 16 };
static_assert(THREADS == DIGITS, "a thread for every digit");

typedef struct {
    const float *logits; /* of token 0 */
    int64_t begin, end;
} row_tokens;

/* The entry of each k begins with `prefix`, and among those `count` that do it is number `rank`
 * from above. Digits are counted by value, and PART values at a time. */
typedef struct {
    uint64_t prefix[KV_CUDA_TOPS];
    uint32_t rank[KV_CUDA_TOPS], count[KV_CUDA_TOPS];
    uint32_t digits[KV_CUDA_TOPS][DIGITS], parts[KV_CUDA_TOPS][DIGITS / PART];
} selection;

static __device__ void count_digits(selection *s, const row_tokens &row, uint32_t threshold,
                                    uint64_t mask, int shift)
{
    for (int k = 0; k < KV_CUDA_TOPS; k++) s->digits[k][threadIdx.x] = 0;
    __syncthreads();
#pragma unroll 1
    for (int64_t t = row.begin + threadIdx.x; t < row.end; t += THREADS) {
        const uint64_t entry = kv_top_entry(row.logits[t], t);
        if (entry >> 32 < threshold) continue;
        for (int k = 0; k < KV_CUDA_TOPS; k++)
            if ((entry & mask) == s->prefix[k])
                atomicAdd(&s->digits[k][entry >> shift & (DIGITS - 1)], 1u);
    }
    __syncthreads();
    const int k = threadIdx.x / (DIGITS / PART), part = threadIdx.x % (DIGITS / PART);
    if (k >= KV_CUDA_TOPS) return;
    uint32_t sum = 0;
    for (int i = 0; i < PART; i++) sum += s->digits[k][part * PART + i];
    s->parts[k][part] = sum;
}

static __device__ void choose_digit(selection *s, int k, int shift)
{
    uint32_t rank = s->rank[k];
    int part = DIGITS / PART - 1;
    for (; rank > s->parts[k][part]; part--) rank -= s->parts[k][part];
    int digit = part * PART + PART - 1;
    for (; rank > s->digits[k][digit]; digit--) rank -= s->digits[k][digit];
    s->rank[k] = rank;
    s->count[k] = s->digits[k][digit];
    s->prefix[k] |= (uint64_t)digit << shift;
}

/* Entries differ in their tokens, so that one is left at the last digit at the latest. */
static __device__ void select_best(uint64_t out[KV_CUDA_TOPS], selection *s, const row_tokens &row,
                                   uint32_t threshold)
{
    const int64_t n = row.end - row.begin;
    uint64_t mask = 0;
    if (threadIdx.x < KV_CUDA_TOPS) {
        const uint32_t k = 1u << 3 * threadIdx.x; /* 1, 8, 64 */
        s->prefix[threadIdx.x] = 0;
        s->rank[threadIdx.x] = (uint32_t)min((int64_t)k, n);
    }
    for (int shift = 64 - DIGIT_BITS;; shift -= DIGIT_BITS) {
        count_digits(s, row, threshold, mask, shift);
        __syncthreads();
        if (threadIdx.x < KV_CUDA_TOPS) choose_digit(s, (int)threadIdx.x, shift);
        __syncthreads();
        mask |= (uint64_t)(DIGITS - 1) << shift;
        if (s->count[0] == 1 && s->count[1] == 1 && s->count[2] == 1) break;
    }
#pragma unroll 1
    for (int64_t t = row.begin + threadIdx.x; t < row.end; t += THREADS) {
        const uint64_t entry = kv_top_entry(row.logits[t], t);
        if (entry >> 32 < threshold) continue;
        for (int e = 0; e < KV_CUDA_TOPS; e++)
            if ((entry & mask) == s->prefix[e]) out[e] = entry;
    }
}

/* The least of the groups' best keys; a group without tokens has 0. shared, groups [THREADS]. */
static __device__ uint32_t least_of_groups(uint32_t best, uint32_t *shared, uint32_t *groups)
{
    groups[threadIdx.x] = best;
    __syncthreads();
    if (threadIdx.x < GROUPS)
        for (int i = GROUPS; i < THREADS; i += GROUPS) best = max(best, groups[threadIdx.x + i]);
    return ~kv_block_max<GROUPS>(~best, shared); /* of the first GROUPS threads */
}

__global__ void __launch_bounds__(THREADS) rows(const kv_cuda_rows a)
{
    __shared__ double sums[THREADS];
    __shared__ uint32_t keys[THREADS], groups[THREADS];
    __shared__ selection selected;
    const int64_t at = blockIdx.y * a.rows + blockIdx.x;
    const row_tokens row = {a.logits + at * a.stride - a.first_token, a.row_seen[2 * at],
                            a.row_seen[2 * at + 1]};
    const int64_t needle = a.row_needle ? a.row_needle[at] : row.end;

    uint32_t best = 0;
#pragma unroll 1
    for (int64_t t = row.begin + threadIdx.x; t < row.end; t += THREADS) {
        const uint32_t key = kv_order_key(row.logits[t] + 0.0f, false); /* -0 and 0 are equal */
        best = max(best, t == needle ? 0 : key);
    }
    const uint32_t other = kv_block_max<THREADS>(best, keys);
    float largest = kv_order_value(other, false);
    double margin = NAN;
    if (needle >= row.begin && needle < row.end) {
        const float l = row.logits[needle];
        margin = other > 0 ? (double)l - (double)largest : INFINITY;
        largest = fmaxf(largest, l + 0.0f);
    }
    double sum = 0;
#pragma unroll 1
    for (int64_t t = row.begin + threadIdx.x; t < row.end; t += THREADS)
        sum += (double)kv_expf(row.logits[t] - largest);
    sum = kv_block_sum<THREADS>(sum, sums);

    kv_cuda_row *const out = a.out + at;
    if (threadIdx.x == 0) {
        out->max = largest;
        out->is_finite = sum == sum; /* weights are at most 1, and NaN beside infinity or NaN */
        out->sum = sum;
        out->needle_margin = margin;
    }
    if (!a.want_top) return;
    select_best(out->least, &selected, row, least_of_groups(best, keys, groups));
}

kv_status kv_cuda_launch_rows(const kv_cuda_rows *a, kv_error *err)
{
    if (a->heads < 1 || a->rows < 1) return KV_OK;
    const dim3 grid((unsigned)a->rows, (unsigned)a->heads);
    rows<<<grid, THREADS>>>(*a);
    return kv_cuda_launched("rows", err);
}
