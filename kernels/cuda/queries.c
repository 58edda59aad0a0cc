/* Queries of a wave's heads: see queries.h. What is pulled to what is the source's to say; how is
 * in kernels/pull.h. */
#include "kernels/cuda/queries.h"

#include "kernels/memory.h"
#include "kernels/random.h"

static int64_t group_of(const kv_layer *l)
{
    return l->query_heads / l->kv_heads;
}

/* ---- drawn ---- */

/* From the recipe: query_gain * z, turned at the queries' positions. */
static kv_status generate(float *query, kv_cuda_wave *w, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_layer *const l = w->layer;
    const kv_recipe *const recipe = l->source.recipe;
    int64_t const group = group_of(l), heads = w->heads * group, channels = heads * l->head_dim;
    int64_t const n = l->queries > channels ? l->queries : channels;
    double *numbers = NULL;
    void *gain, *mean, *spread, *position;
    KV_TRY(kv_allocate((void **)&numbers, (size_t)n, sizeof *numbers, err));
    for (int64_t i = 0; i < l->queries; i++) numbers[i] = recipe->query_gain;
    KV_TRY(kv_cuda_take_copy(&gain, &w->memory, numbers, l->queries, sizeof *numbers, err));
    for (int64_t i = 0; i < channels; i++) numbers[i] = -0.0; /* what leaves any z as it is */
    KV_TRY(kv_cuda_take_copy(&mean, &w->memory, numbers, channels, sizeof *numbers, err));
    for (int64_t i = 0; i < channels; i++) numbers[i] = 1;
    KV_TRY(kv_cuda_take_copy(&spread, &w->memory, numbers, channels, sizeof *numbers, err));
    KV_TRY(kv_cuda_take_copy(&position, &w->memory, l->query_position, l->queries,
                             sizeof *l->query_position, err));
    kv_cuda_generate const draw = {
        .x = query,
        .heads = heads,
        .tokens = l->queries,
        .head_dim = l->head_dim,
        .seed = recipe->seed,
        .stream = kv_stream_id(recipe->layer, 0, (uint64_t)(w->first * group), KV_RECIPE_QUERY),
        .stream_step = kv_stream_id(0, 0, 1, 0),
        .gain = gain,
        .mean = mean,
        .spread = spread,
        .is_uniform = recipe->is_uniform};
    kv_cuda_rotate const turn = {.y = query,
                                 .x = query,
                                 .position = position,
                                 .heads = heads,
                                 .tokens = l->queries,
                                 .head_dim = l->head_dim,
                                 .rope = w->rope};
    KV_TRY(w->cuda->generate(&draw, err));
    if (w->rope.pairs > 0) KV_TRY(w->cuda->rotate(&turn, err));
done:
    kv_free(numbers);
    return status;
}

/* Head by head through the host. */
static kv_status load(float *query, kv_cuda_wave *w, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_layer *const l = w->layer;
    const kv_source *const source = &l->source;
    int64_t const size = group_of(l) * l->queries * l->head_dim;
    float *rows = NULL;
    KV_TRY(kv_allocate((void **)&rows, (size_t)size, sizeof *rows, err));
    for (int64_t h = 0; h < w->heads; h++) {
        KV_TRY((source->pulling ? source->pulling->draw : source->query)(source->context,
                                                                         w->first + h, rows, err));
        KV_TRY(w->cuda->upload(query + h * size, rows, size * (int64_t)sizeof *rows, err));
    }
done:
    kv_free(rows);
    return status;
}

/* ---- pulled ---- */

/* The Cholesky factors of the heads' covariances, in place; the host makes them. */
static kv_status factorize(double *covariance, const kv_cuda_wave *w, int threads, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t const d = w->layer->head_dim, size = d * d;
    int64_t const bytes = w->heads * size * (int64_t)sizeof(double);
    double *host = NULL;
    KV_TRY(kv_allocate3((void **)&host, (size_t)w->heads, (size_t)size, 1, sizeof *host, err));
    KV_TRY(w->cuda->download(host, covariance, bytes, err));
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t h = 0; h < w->heads; h++) kv_pull_factorize(host + h * size, d);
    KV_TRY(w->cuda->upload(covariance, host, bytes, err));
done:
    kv_free(host);
    return status;
}

/* Sums of the heads' channels [heads][D] and the factors, with zeros above their diagonals. */
static kv_status take_moments(double **sum, double **factor, kv_cuda_wave *w, int threads,
                              kv_error *err)
{
    kv_status status = KV_OK;
    const kv_layer *const l = w->layer;
    int64_t const d = l->head_dim, heads = w->heads;
    KV_TRY(kv_cuda_take((void **)sum, &w->memory, heads * d, sizeof **sum, err));
    KV_TRY(kv_cuda_take_zeros((void **)factor, &w->memory, heads * d * d, sizeof **factor, err));
    kv_cuda_channels const add = {.sum = *sum,
                                  .z = w->key,
                                  .heads = heads,
                                  .tokens = l->tokens,
                                  .head_dim = d,
                                  .head_stride = l->tokens * d};
    kv_cuda_covariance const multiply = {.covariance = *factor,
                                         .key = w->key,
                                         .sum = *sum,
                                         .heads = heads,
                                         .tokens = l->tokens,
                                         .head_dim = d};
    KV_TRY(w->cuda->channels(&add, err));
    KV_TRY(w->cuda->covariance(&multiply, err));
    KV_TRY(factorize(*factor, w, threads, err));
done:
    return status;
}

static kv_status take_pulls(kv_pull **pulls, kv_cuda_wave *w, int64_t rows, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_source *const source = &w->layer->source;
    kv_pull(*host)[KV_PULLS] = NULL;
    KV_TRY(kv_allocate3((void **)&host, (size_t)w->heads, (size_t)rows, 1, sizeof *host, err));
    for (int64_t h = 0; h < w->heads; h++)
        source->pulling->list(source->context, w->first + h, host + h * rows);
    KV_TRY(kv_cuda_take_copy((void **)pulls, &w->memory, host, w->heads * rows, sizeof *host, err));
done:
    kv_free(host);
    return status;
}

/* Rows of a head at a time: their scratch memory is about as large as its keys. */
static int64_t rows_at_once(const kv_layer *l)
{
    int64_t const rows = group_of(l) * l->queries, some = l->head_dim / 4 + 1;
    return rows < some ? rows : some;
}

static kv_status pull(float *query, bool *are_reached, kv_cuda_wave *w, int threads, kv_error *err)
{
    kv_status status = KV_OK;
    kv_pull_result *result = NULL;
    const kv_layer *const l = w->layer;
    int64_t const rows = group_of(l) * l->queries, step = rows_at_once(l);
    double *sum, *factor;
    kv_pull *pulls;
    kv_cuda_pull a = {.query = query,
                      .key = w->key,
                      .heads = w->heads,
                      .rows = rows,
                      .tokens = l->tokens,
                      .head_dim = l->head_dim,
                      .softmax_scale = l->softmax_scale};
    int64_t const results = w->heads * rows * KV_PULLS;
    KV_TRY(kv_allocate((void **)&result, (size_t)results, sizeof *result, err));
    KV_TRY(take_moments(&sum, &factor, w, threads, err));
    KV_TRY(take_pulls(&pulls, w, rows, err));
    KV_TRY(kv_cuda_take((void **)&a.result, &w->memory, results, sizeof *a.result, err));
    KV_TRY(kv_cuda_take((void **)&a.scratch, &w->memory,
                        w->heads * step * kv_pull_scratch(l->tokens, l->head_dim),
                        sizeof *a.scratch, err));
    a.sum = sum, a.factor = factor, a.pulls = pulls;
    for (; a.first_row < rows; a.first_row += step) {
        a.n = rows - a.first_row < step ? rows - a.first_row : step;
        KV_TRY(w->cuda->pull(&a, err));
    }
    KV_TRY(w->cuda->download(result, a.result, results * (int64_t)sizeof *result, err));
    for (int64_t i = 0; i < results; i++) *are_reached = *are_reached && result[i].is_reached;
done:
    kv_free(result);
    return status;
}

/* ---- both ---- */

kv_status kv_cuda_queries(float *query, bool *are_reached, kv_cuda_wave *w, int threads,
                          kv_error *err)
{
    kv_status status = KV_OK;
    size_t const mark = w->memory.n;
    KV_TRY(w->layer->source.recipe ? generate(query, w, err) : load(query, w, err));
    *are_reached = true;
    if (w->layer->source.pulling) KV_TRY(pull(query, are_reached, w, threads, err));
done:
    kv_cuda_give_back(&w->memory, mark);
    return status;
}

int64_t kv_cuda_queries_size(const kv_layer *l)
{
    int64_t const d = l->head_dim, group = group_of(l), rows = group * l->queries;
    int64_t const drawn = 2 * (l->queries + group * d) * (int64_t)sizeof(double);
    int64_t const scratch = rows_at_once(l) * kv_pull_scratch(l->tokens, d);
    int64_t const of_rows = rows * KV_PULLS * (int64_t)(sizeof(kv_pull) + sizeof(kv_pull_result));
    if (!l->source.pulling) return drawn;
    return drawn + of_rows + (d + d * d + scratch) * (int64_t)sizeof(double);
}
