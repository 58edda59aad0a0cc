/* Numbers about the tensors of a wave: see statistics.h. */
#include "kernels/cuda/statistics.h"

#include <math.h>

#include "kernels/levels.h"
#include "kernels/memory.h"
#include "kernels/quantize_fit.h"

/* Equal parts of n numbers, each for a block: as many as halving gives, but none is small. */
static int64_t parts_of(int64_t n)
{
    enum { LEAST = 8192, MOST = 1024 };
    int64_t parts = 1;
    while (parts < MOST && n % (2 * parts) == 0 && n / (2 * parts) >= LEAST) parts *= 2;
    return parts;
}

kv_status kv_cuda_squares_of(double *sum, float *absmax, kv_cuda_wave *w, const float *x,
                             kv_error *err)
{
    kv_status status = KV_OK;
    size_t const mark = w->memory.n;
    int64_t const n = w->layer->tokens * w->layer->head_dim, parts = parts_of(n);
    int64_t const all = w->heads * parts;
    double *sums = NULL;
    uint32_t *bits = NULL;
    kv_cuda_squares a = {.x = x, .heads = all, .n = n / parts};
    KV_TRY(kv_allocate((void **)&sums, (size_t)all, sizeof *sums, err));
    KV_TRY(kv_allocate((void **)&bits, (size_t)all, sizeof *bits, err));
    KV_TRY(kv_cuda_take((void **)&a.sum, &w->memory, all, sizeof *a.sum, err));
    KV_TRY(kv_cuda_take((void **)&a.absmax, &w->memory, all, sizeof *a.absmax, err));
    KV_TRY(w->cuda->squares(&a, err));
    KV_TRY(w->cuda->download(sums, a.sum, all * (int64_t)sizeof *sums, err));
    KV_TRY(w->cuda->download(bits, a.absmax, all * (int64_t)sizeof *bits, err));
    for (int64_t h = 0; h < w->heads; h++) {
        uint32_t largest = 0;
        sum[h] = 0;
        for (int64_t i = h * parts; i < (h + 1) * parts; i++) {
            sum[h] += sums[i];
            if (bits[i] > largest) largest = bits[i];
        }
        absmax[h] = largest < kv_float_bits(INFINITY) ? kv_bits_float(largest) : INFINITY;
    }
done:
    kv_cuda_give_back(&w->memory, mark);
    kv_free(sums);
    kv_free(bits);
    return status;
}

/* Blocks of a large tile: none has few elements, or threads without any, and few tiles
 * still fill a device. */
static int32_t select_parts(const kv_cuda_tiles *t)
{
    enum { LEAST = 1 << 16, MOST = 256, WARP = 32, THREADS = 1024 };
    int64_t const tokens = kv_minimum_size(t->tile_tokens, t->tokens);
    int64_t const of_head = tokens * kv_minimum_size(t->tile_channels, WARP) / THREADS;
    int64_t const parts = kv_minimum_size(kv_cuda_tile_elements(t) / LEAST, of_head);
    return (int32_t)(parts < 1 ? 1 : kv_minimum_size(parts, MOST));
}

kv_status kv_cuda_start_select(kv_cuda_select *a, kv_cuda_wave *w, kv_error *err)
{
    kv_status status = KV_OK;
    kv_cuda_memory *const memory = &w->memory;
    const kv_cuda_tiles *const t = &a->tiles;
    int64_t const tiles = kv_cuda_tile_count(t);
    a->parts = select_parts(t);
    KV_TRY(kv_cuda_take((void **)&a->statistics, memory, tiles * 2 * a->n, sizeof *a->statistics,
                        err));
    KV_TRY(kv_cuda_take((void **)&a->elements, memory, tiles, sizeof *a->elements, err));
    if (a->parts > 1)
        KV_TRY(kv_cuda_take_zeros((void **)&a->work, memory, tiles, sizeof *a->work, err));
    KV_TRY(w->cuda->select(a, err));
done:
    return status;
}

kv_status kv_cuda_medians(double *median, kv_cuda_wave *w, const float *x, kv_error *err)
{
    kv_status status = KV_OK;
    kv_cuda_memory *const memory = &w->memory;
    size_t const mark = memory->n;
    int64_t const heads = w->heads, T = w->layer->tokens, D = w->layer->head_dim;
    float(*found)[2] = NULL;
    kv_cuda_select a = {.tiles = {.z = x,
                                  .heads = heads,
                                  .draws = 1,
                                  .tokens = T,
                                  .head_dim = D,
                                  .head_stride = T * D,
                                  .tile_tokens = T,
                                  .tile_channels = D,
                                  .rows = 1,
                                  .columns = 1},
                        .is_absolute = 1,
                        .n = 1,
                        .p = {50}};
    KV_TRY(kv_allocate((void **)&found, (size_t)heads, sizeof *found, err));
    KV_TRY(kv_cuda_start_select(&a, w, err));
    KV_TRY(w->cuda->download(found, a.statistics, heads * (int64_t)sizeof *found, err));
    for (int64_t h = 0; h < heads; h++) {
        double const low = (double)found[h][0], high = (double)found[h][1];
        median[h] = T * D % 2 ? low : (low + high) / 2;
    }
done:
    kv_cuda_give_back(memory, mark);
    kv_free(found);
    return status;
}

kv_status kv_cuda_levels(double *levels, kv_cuda_wave *w, const kv_cuda_scheme *scheme,
                         kv_error *err)
{
    kv_status status = KV_OK;
    kv_cuda_memory *const memory = &w->memory;
    size_t const mark = memory->n;
    int const bits = kv_format_at((size_t)scheme->format)->bits;
    int64_t const heads = w->heads, D = w->layer->head_dim, words = kv_levels_words(bits);
    uint64_t *used = NULL;
    kv_cuda_codes a = {.words = 2 * words,
                       .x = scheme->is_pre_rope ? w->key_pre_rope : w->key,
                       .heads = heads,
                       .tokens = w->layer->tokens,
                       .head_dim = D,
                       .scheme = *scheme};
    KV_TRY(
        kv_allocate3((void **)&used, (size_t)heads, (size_t)D, (size_t)words, sizeof *used, err));
    KV_TRY(kv_cuda_take_zeros((void **)&a.used, memory, heads * D * words, sizeof *used, err));
    KV_TRY(w->cuda->codes(&a, err));
    KV_TRY(w->cuda->download(used, a.used, heads * D * words * (int64_t)sizeof *used, err));
    for (int64_t h = 0; h < heads; h++)
        KV_TRY(kv_levels_median(&levels[h], used + h * D * words, D, words, err));
done:
    kv_cuda_give_back(memory, mark);
    kv_free(used);
    return status;
}
