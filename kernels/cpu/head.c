/* One head: load, fit, then block by block of query rows the phases of phases.c. */
#include <math.h>

#include "kernels/cpu/magnitudes.h"
#include "kernels/cpu/work.h"
#include "kernels/memory.h"

const kv_fit *kv_cpu_key_fit(const kv_cpu_work *w, int64_t scheme)
{
    return w->own_keys[scheme] ? w->own_keys[scheme] : w->plan->layer_keys[scheme];
}

const kv_fit *kv_cpu_value_fit(const kv_cpu_work *w, int64_t scheme)
{
    return w->own_values[scheme] ? w->own_values[scheme] : w->plan->layer_values[scheme];
}

int64_t kv_cpu_fit_head(const kv_cpu_work *w, bool is_layer_wide)
{
    return is_layer_wide ? w->head : 0;
}

static kv_status not_finite(const char *what, int64_t head, int64_t index, int64_t columns,
                            float found, kv_error *err)
{
    return KV_FAIL(err, KV_ENUMERIC, "kv head %lld: %s %lld, channel %lld is %g, not a number",
                   (long long)head, what, (long long)(index / columns),
                   (long long)(index % columns), (double)found);
}

/* The first NaN or Inf of x, or -1. A sum of x * 0 is not 0 where there is one. */
static int64_t find_not_finite(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return i;
    return -1;
}

static kv_status load(kv_cpu_work *w, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_layer *const layer = w->plan->layer;
    const kv_source *const source = &layer->source;
    kv_measurements *const out = w->plan->out;
    int64_t const head = w->head, head_dim = layer->head_dim, n = layer->tokens * head_dim;
    KV_TRY(source->query(source->context, head, w->query, err));
    KV_TRY(source->load(source->context, KV_KEY, head, 0, w->key, err));
    if (w->key_pre_rope)
        KV_TRY(source->load(source->context, KV_KEY_PRE_ROPE, head, 0, w->key_pre_rope, err));
    KV_TRY(source->load(source->context, KV_VALUE, head, 0, w->value, err));

    kv_magnitudes const magnitudes = kv_magnitudes_of(w->plan->kernels, w->key, n);
    if (magnitudes.not_finite >= 0)
        KV_TRY(not_finite("key of token", head, magnitudes.not_finite, head_dim,
                          w->key[magnitudes.not_finite], err));
    out->key_absmax[head] = magnitudes.largest, out->key_absmedian[head] = magnitudes.median;
    out->key_square[head] = w->plan->kernels->sum_square(w->key, n);
    out->value_square[head] = w->plan->kernels->sum_square(w->value, n);
    if (!isfinite(out->value_square[head])) {
        int64_t const i = find_not_finite(w->value, n);
        KV_TRY(not_finite("value of token", head, i, head_dim, w->value[i], err));
    }
    int64_t const i = find_not_finite(w->query, w->plan->rows * head_dim);
    if (i >= 0) KV_TRY(not_finite("query", head, i, head_dim, w->query[i], err));
done:
    return status;
}

static kv_status fit(kv_cpu_work *w, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_cpu_plan *const plan = w->plan;
    int64_t most = 1;
    KV_TRY(kv_fit_head(w->own_keys, &plan->keys, plan->layer, w->head, w->key, w->key_pre_rope,
                       w->team, err));
    KV_TRY(kv_fit_head(w->own_values, &plan->values, plan->layer, w->head, w->value, NULL, w->team,
                       err));
    for (int64_t i = 0; i < plan->keys.n; i++) {
        int64_t const floats = kv_fit_scratch_floats(kv_cpu_key_fit(w, i), KV_TOKEN_TILE);
        most = floats > most ? floats : most;
    }
    for (int64_t i = 0; i < plan->values.n; i++) {
        int64_t const floats = kv_fit_scratch_floats(kv_cpu_value_fit(w, i), KV_TOKEN_TILE);
        most = floats > most ? floats : most;
    }
    for (int i = 0; most > w->scratch_floats && i < w->team; i++) {
        kv_free(w->spaces[i].scratch);
        w->spaces[i].scratch = NULL;
        KV_TRY(kv_allocate((void **)&w->spaces[i].scratch, (size_t)most, sizeof(float), err));
    }
    if (most > w->scratch_floats) w->scratch_floats = most;
done:
    return status;
}

/* Sets the block of rows that begins at `row`: what each sees, and the queries as panels. */
static void start_block(kv_cpu_work *w, int64_t row)
{
    const kv_cpu_plan *const plan = w->plan;
    const kv_layer *const layer = plan->layer;
    int64_t const group = layer->query_heads / layer->kv_heads, head_dim = layer->head_dim;
    int64_t low = INT64_MAX, high = 0;
    w->row = row, w->n_rows = plan->rows - row < plan->width ? plan->rows - row : plan->width;
    w->common_first = 0, w->common_end = INT64_MAX;
    for (int64_t i = 0; i < plan->width; i++) {
        kv_cpu_lane *const lane = &w->lanes[i];
        int64_t const r = i < w->n_rows ? row + i : row; /* idle lanes see what the first sees */
        int64_t const query_head = w->head * group + r / layer->queries;
        int64_t const query = r % layer->queries;
        kv_visible const seen = kv_layer_visible(layer, layer->query_position[query]);
        lane->first = seen.begin, lane->end = seen.end;
        lane->needle = layer->needle && i < w->n_rows
                           ? layer->needle[query_head * layer->queries + query]
                           : -1;
        if (lane->needle < lane->first || lane->needle >= lane->end) lane->needle = -1;
        low = lane->first < low ? lane->first : low, high = lane->end > high ? lane->end : high;
        if (lane->first > w->common_first) w->common_first = lane->first;
        if (lane->end < w->common_end) w->common_end = lane->end;
        for (int64_t c = 0; c < head_dim; c++)
            w->panels[(i / KV_LANES * head_dim + c) * KV_LANES + i % KV_LANES] =
                i < w->n_rows ? w->query[r * head_dim + c] : 0;
    }
    w->block_first = low / KV_TOKEN_TILE * KV_TOKEN_TILE, w->block_end = high;
    for (int64_t i = 0; i < plan->width; i++) {
        w->first[i] = (float)(w->lanes[i].first - w->block_first);
        w->end[i] = (float)(w->lanes[i].end - w->block_first);
    }
}

static kv_status check_block(const kv_cpu_work *w, kv_error *err)
{
    for (int64_t i = 0; i < w->n_rows; i++) {
        bool is_finite = isfinite(w->lanes[i].sum);
        for (int64_t j = 0; j < w->group_count; j++)
            is_finite &= isfinite(w->sums[j * w->plan->width + i]);
        if (!is_finite)
            return KV_FAIL(err, KV_ENUMERIC,
                           "kv head %lld, query row %lld: logits beyond the range of float",
                           (long long)w->head, (long long)(w->row + i));
    }
    return KV_OK;
}

static kv_status block(kv_cpu_work *w, int64_t row, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_cpu_plan *const plan = w->plan;
    int64_t const columns = plan->panels * KV_LANES;
    start_block(w, row);
    kv_cpu_exact_keys(w);
    kv_cpu_exact_rows(w);
    w->group_count = 0;
    KV_TRY(check_block(w, err));
    kv_cpu_exact_values(w);
    for (int64_t i = 0; i < w->n_rows; i++)
        plan->out->out_square[w->head * plan->rows + row + i] =
            plan->kernels->sum_square_scaled_difference(w->exact_out + i * columns,
                                                        1 / w->lanes[i].sum,
                                                        w->exact_out + i * columns, 0, columns);
    for (int64_t scheme = 0; scheme < plan->keys.n || scheme == 0; scheme += plan->group) {
        int64_t const left = plan->keys.n - scheme;
        w->group_first = scheme, w->group_count = left < plan->group ? left : plan->group;
        kv_cpu_group_keys(w);
        kv_cpu_group_rows(w);
        KV_TRY(check_block(w, err));
        kv_cpu_group_values(w);
        kv_cpu_group_errors(w);
    }
done:
    return status;
}

static void add_up(double *out, const double *tiles, int64_t n, int64_t n_tiles)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] = 0;
        for (int64_t t = 0; t < n_tiles; t++) out[i] += tiles[i * n_tiles + t];
    }
}

static void count_bits(int64_t *bits, kv_fit *const *fits, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (!fits[i]) continue;
        int64_t const own = kv_fit_bits(fits[i]);
#pragma omp atomic
        bits[i] += own;
    }
}

kv_status kv_cpu_head(kv_cpu_work *w, int64_t head, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_cpu_plan *const plan = w->plan;
    int64_t const n_k = plan->keys.n, n_v = plan->values.n;
    w->head = head;
    KV_TRY(load(w, err));
    KV_TRY(fit(w, err));
    for (int64_t row = 0; row < plan->rows; row += plan->width) KV_TRY(block(w, row, err));
    add_up(plan->out->key_err_square + head * n_k, w->key_errors, n_k, plan->tiles);
    add_up(plan->out->value_err_square + head * n_v, w->value_errors, n_v, plan->tiles);
    if (plan->evaluation->want_levels) KV_TRY(kv_cpu_levels(w, err));
    count_bits(plan->key_bits, w->own_keys, n_k);
    count_bits(plan->value_bits, w->own_values, n_v);
done:
    kv_fits_free(w->own_keys, n_k);
    kv_fits_free(w->own_values, n_v);
    return status;
}
