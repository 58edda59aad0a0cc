/* The decode stack's matrices: P = signs * mixing * signs, orthogonal, without stored weights.
 *
 * mixing = (I - 2/m 11^T) x Hadamard(2^k) / 2^(k/2) for N = m 2^k: a Sylvester-Hadamard matrix in
 * each block of 2^k, and a Householder reflection across the m blocks. N log N operations. */
#include <math.h>

#include "kernels/memory.h"
#include "kernels/random.h"
#include "sim/stack_state.h"

kv_status kv_mix_create(kv_mix *out, int64_t width, int64_t layer, int64_t seed, kv_error *err)
{
    kv_status status = KV_OK;
    kv_mix mix = {.width = width, .size = width & -width};
    void *words = NULL, *signs = NULL;
    uint64_t const stream = kv_stream_id((uint64_t)layer, 0, 0, KV_STACK_STREAM_SIGN);
    int64_t const count = 2 * KV_MIX_COUNT;
    mix.blocks = width / mix.size;
    KV_TRY(kv_allocate(&words, (size_t)width, sizeof(uint32_t), err));
    KV_TRY(kv_allocate3_unset(&signs, (size_t)count, (size_t)width, 1, sizeof *mix.signs, err));
    mix.signs = signs;
    for (int64_t i = 0; i < count; i++) {
        kv_philox_words(words, (uint64_t)seed, stream, (uint64_t)(i * width), (size_t)width);
        for (int64_t c = 0; c < width; c++)
            mix.signs[i * width + c] = ((const uint32_t *)words)[c] >> 31 ? -1.0f : 1.0f;
    }
    *out = mix, signs = NULL;
done:
    kv_free(words);
    kv_free(signs);
    return status;
}

void kv_mix_free_contents(kv_mix *mix)
{
    kv_free(mix->signs);
    *mix = (kv_mix){0};
}

/* Sylvester-Hadamard of size n, a power of two, in place. */
static void hadamard(float *x, int64_t n)
{
    for (int64_t half = 1; half < n; half *= 2)
        for (int64_t i = 0; i < n; i += 2 * half)
            for (int64_t j = i; j < i + half; j++) {
                float const a = x[j], b = x[j + half];
                x[j] = a + b, x[j + half] = a - b;
            }
}

/* x [blocks][size] minus 2 / blocks times its sum over blocks. */
static void reflect(float *x, int64_t blocks, int64_t size)
{
    float const weight = 2 / (float)blocks;
    for (int64_t j = 0; j < size; j++) {
        float sum = 0;
        for (int64_t b = 0; b < blocks; b++) sum += x[b * size + j];
        for (int64_t b = 0; b < blocks; b++) x[b * size + j] -= weight * sum;
    }
}

void kv_mix_apply(float *y, const kv_mix *mix, kv_mix_which which, const float *x)
{
    int64_t const n = mix->width;
    const float *const after = mix->signs + 2 * which * n, *const before = after + n;
    float const scale = (float)(1 / sqrt((double)mix->size));
    for (int64_t c = 0; c < n; c++) y[c] = before[c] * x[c];
    for (int64_t b = 0; b < mix->blocks; b++) hadamard(y + b * mix->size, mix->size);
    reflect(y, mix->blocks, mix->size);
    for (int64_t c = 0; c < n; c++) y[c] *= scale * after[c];
}
