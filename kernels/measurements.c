/* What every backend asks of an evaluation, and the memory of its raw measurements. See backend.h.
 */
#include "kernels/backend.h"

#include <math.h>

#include "kernels/memory.h"

static kv_status doubles(double **out, int64_t a, int64_t b, int64_t c, kv_error *err)
{
    return kv_allocate3((void **)out, (size_t)a, (size_t)b, (size_t)c, sizeof(double), err);
}

static void fill_nan(double *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++) x[i] = NAN;
}

kv_visible kv_layer_visible(const kv_layer *layer, int64_t position)
{
    int64_t const end = position < layer->tokens ? position + 1 : layer->tokens;
    bool const is_cut = layer->window > 0 && position >= layer->window;
    return (kv_visible){is_cut ? position - layer->window + 1 : 0, end};
}

kv_status kv_evaluation_check(const kv_layer *layer, const kv_evaluation *evaluation, kv_error *err)
{
    if (layer->tokens < 1 || layer->head_dim < 1)
        return KV_FAIL(err, KV_EREQUEST, "a layer of %lld tokens and %lld channels",
                       (long long)layer->tokens, (long long)layer->head_dim);
    if (layer->tokens > 1 << 24) /* token numbers are compared as floats */
        return KV_FAIL(err, KV_EREQUEST, "%lld tokens: at most 16777216 are supported",
                       (long long)layer->tokens);
    for (int64_t i = 0; i < layer->queries; i++) {
        kv_visible const seen = kv_layer_visible(layer, layer->query_position[i]);
        if (seen.begin >= seen.end)
            return KV_FAIL(err, KV_EREQUEST,
                           "query %lld at position %lld sees none of %lld tokens (window %lld)",
                           (long long)i, (long long)layer->query_position[i],
                           (long long)layer->tokens, (long long)layer->window);
    }
    for (int64_t p = 0; p < evaluation->n_pairs; p++) {
        const int64_t *const pair = evaluation->pairs[p];
        if (pair[0] < 0 || pair[0] >= evaluation->n_keys || pair[1] < 0 ||
            pair[1] >= evaluation->n_values)
            return KV_FAIL(err, KV_EREQUEST, "pair %lld names key %lld of %lld, value %lld of %lld",
                           (long long)p, (long long)pair[0], (long long)evaluation->n_keys,
                           (long long)pair[1], (long long)evaluation->n_values);
    }
    return KV_OK;
}

kv_status kv_attention_check(const kv_layer *l, const kv_attention *a, kv_error *err)
{
    kv_visible const seen = kv_layer_visible(l, a->position);
    if (l->tokens < 1 || l->head_dim < 1 || l->kv_heads < 1 || l->query_heads < 1 ||
        l->query_heads % l->kv_heads != 0 || a->rows < 0)
        return KV_FAIL(err, KV_EREQUEST,
                       "attention of %lld query heads, %lld kv heads, %lld tokens, %lld channels, "
                       "%lld rows",
                       (long long)l->query_heads, (long long)l->kv_heads, (long long)l->tokens,
                       (long long)l->head_dim, (long long)a->rows);
    if (seen.begin >= seen.end)
        return KV_FAIL(err, KV_EREQUEST, "position %lld sees none of %lld tokens (window %lld)",
                       (long long)a->position, (long long)l->tokens, (long long)l->window);
    for (int64_t i = 0; i < a->rows; i++) {
        const int32_t *const pair = a->pair[i];
        if (pair[0] < -1 || pair[0] >= a->n_keys || pair[1] < -1 || pair[1] >= a->n_values)
            return KV_FAIL(err, KV_EREQUEST,
                           "row %lld names key %d of %lld, value %d of %lld (-1 is unquantized)",
                           (long long)i, (int)pair[0], (long long)a->n_keys, (int)pair[1],
                           (long long)a->n_values);
    }
    return KV_OK;
}

kv_status kv_measurements_create(kv_measurements **out, const kv_layer *layer,
                                 const kv_evaluation *evaluation, kv_error *err)
{
    kv_status status = KV_OK;
    kv_measurements *m = NULL;
    int64_t const heads = layer->kv_heads;
    int64_t const n_k = evaluation->n_keys, n_v = evaluation->n_values, n_p = evaluation->n_pairs;
    int64_t rows;
    if (heads < 1 || layer->query_heads % heads != 0 || layer->queries < 1)
        return KV_FAIL(err, KV_EREQUEST,
                       "a layer of %lld query heads, %lld kv heads and %lld queries",
                       (long long)layer->query_heads, (long long)heads, (long long)layer->queries);
    if (!kv_multiply_sizes(layer->query_heads / heads, layer->queries, &rows))
        return KV_FAIL(err, KV_ENOMEM, "out of memory: rows of a layer");

    KV_TRY(kv_allocate((void **)&m, 1, sizeof *m, err));
    m->heads = heads, m->rows = rows;
    m->n_keys = n_k, m->n_values = n_v, m->n_pairs = n_p;
    KV_TRY(kv_allocate((void **)&m->visible, (size_t)rows, sizeof *m->visible, err));
    KV_TRY(doubles(&m->out_square, heads, rows, 1, err));
    KV_TRY(doubles(&m->out_err_square, heads, n_p, rows, err));
    KV_TRY(kv_allocate3((void **)&m->key_rows, (size_t)heads, (size_t)n_k, (size_t)rows,
                        sizeof *m->key_rows, err));
    KV_TRY(doubles(&m->exact_needle_margin, heads, rows, 1, err));
    KV_TRY(doubles(&m->key_square, heads, 1, 1, err));
    KV_TRY(doubles(&m->value_square, heads, 1, 1, err));
    KV_TRY(doubles(&m->key_err_square, heads, n_k, 1, err));
    KV_TRY(doubles(&m->value_err_square, heads, n_v, 1, err));
    KV_TRY(doubles(&m->key_absmax, heads, 1, 1, err));
    KV_TRY(doubles(&m->key_absmedian, heads, 1, 1, err));
    KV_TRY(doubles(&m->key_levels, heads, n_k, 1, err));
    KV_TRY(doubles(&m->key_bits, n_k, 1, 1, err));
    KV_TRY(doubles(&m->value_bits, n_v, 1, 1, err));
    fill_nan(m->key_levels, heads * n_k);
    *out = m, m = NULL;
done:
    kv_measurements_free(m);
    return status;
}

void kv_measurements_free(kv_measurements *m)
{
    if (!m) return;
    kv_free(m->visible);
    kv_free(m->out_square);
    kv_free(m->out_err_square);
    kv_free(m->key_rows);
    kv_free(m->exact_needle_margin);
    kv_free(m->key_square);
    kv_free(m->value_square);
    kv_free(m->key_err_square);
    kv_free(m->value_err_square);
    kv_free(m->key_absmax);
    kv_free(m->key_absmedian);
    kv_free(m->key_levels);
    kv_free(m->key_bits);
    kv_free(m->value_bits);
    kv_free(m);
}
