/* The plan of an evaluation and the memory of its workers: see work.h. */
#include "kernels/cpu/work.h"

#include <math.h>

#include "kernels/memory.h"

static int64_t round_up(int64_t x, int64_t step)
{
    return (x + step - 1) / step * step;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The most tokens a block of `width` rows sees, rounded to tiles. */
static int64_t widest_span(const kv_layer *layer, int64_t rows, int64_t width)
{
    int64_t widest = 0;
    for (int64_t row = 0; row < rows; row += width) {
        int64_t low = INT64_MAX, high = 0;
        for (int64_t r = row; r < smaller(row + width, rows); r++) {
            int64_t const position = layer->query_position[r % layer->queries];
            kv_visible const seen = kv_layer_visible(layer, position);
            low = smaller(low, seen.begin), high = seen.end > high ? seen.end : high;
        }
        int64_t const span = round_up(high, KV_TOKEN_TILE) - low / KV_TOKEN_TILE * KV_TOKEN_TILE;
        widest = span > widest ? span : widest;
    }
    return widest;
}

/* Rows of a block and key schemes of a group. What repeats is the decoding: keys once per block,
 * values once per block and group; decoding a number is taken as DECODE_ROWS multiply-adds. */
static void choose_block(kv_cpu_plan *plan, const kv_cpu_options *options)
{
    enum { DECODE_ROWS = 12 };
    int64_t const n_k = plan->keys.n, n_v = plan->values.n, head_dim = plan->layer->head_dim;
    int64_t const share = head_dim * (plan->wants_pre_rope ? 1 : 2);
    int64_t const room = KV_CPU_ROOM / (int64_t)sizeof(float) / plan->layer->tokens;
    int64_t const budget = share > room ? share : room;
    double least = INFINITY;
    for (int64_t width = KV_LANES;; width += KV_LANES) {
        int64_t const affordable = budget / width - KV_SLOTS;
        if (width > KV_LANES && affordable < 1) break;
        int64_t const most = n_k < 1 ? 1 : smaller(affordable > 1 ? affordable : 1, n_k);
        int64_t const groups = (n_k + most - 1) / most;
        int64_t const group = groups > 1 ? (n_k + groups - 1) / groups : most;
        int64_t const blocks = (plan->rows + width - 1) / width;
        double const decoded = (double)(n_k + groups * n_v) * DECODE_ROWS;
        double const products = (double)((n_k + 2 + plan->evaluation->n_pairs) * width);
        double const lone_lanes = width % (2 * KV_LANES) ? 1.15 : 1; /* half a register tile */
        double const cost = (double)blocks * (decoded + products * lone_lanes);
        if (cost < least) least = cost, plan->width = width, plan->group = group;
        if (width >= plan->rows) break;
    }
    if (options->block_rows > 0) plan->width = round_up(options->block_rows, KV_LANES);
    if (options->block_keys > 0) plan->group = options->block_keys;
    if (plan->group > n_k && n_k > 0) plan->group = n_k;
    plan->span = widest_span(plan->layer, plan->rows, plan->width);
}

kv_status kv_cpu_plan_create(kv_cpu_plan *plan, const kv_cpu_options *options,
                             const kv_layer *layer, const kv_evaluation *evaluation,
                             kv_measurements *out, kv_error *err)
{
    kv_status status = KV_OK;
    size_t const n_k = (size_t)evaluation->n_keys, n_v = (size_t)evaluation->n_values;
    *plan = (kv_cpu_plan){.layer = layer,
                          .evaluation = evaluation,
                          .kernels = kv_cpu_kernels_of(options->isa),
                          .out = out,
                          .keys = {evaluation->keys, evaluation->n_keys, true},
                          .values = {evaluation->values, evaluation->n_values, false},
                          .rows = out->rows};
    KV_TRY(kv_evaluation_check(layer, evaluation, err));
    plan->tiles = (layer->tokens + KV_TOKEN_TILE - 1) / KV_TOKEN_TILE;
    plan->panels = (layer->head_dim + KV_LANES - 1) / KV_LANES;
    for (int64_t i = 0; i < evaluation->n_keys; i++)
        plan->wants_pre_rope |= evaluation->keys[i].is_pre_rope;
    choose_block(plan, options);
    KV_TRY(kv_allocate((void **)&plan->layer_keys, n_k, sizeof *plan->layer_keys, err));
    KV_TRY(kv_allocate((void **)&plan->layer_values, n_v, sizeof *plan->layer_values, err));
    KV_TRY(kv_allocate((void **)&plan->key_bits, n_k, sizeof *plan->key_bits, err));
    KV_TRY(kv_allocate((void **)&plan->value_bits, n_v, sizeof *plan->value_bits, err));
    KV_TRY(kv_allocate3((void **)&plan->is_wanted, n_k, n_v, 1, sizeof *plan->is_wanted, err));
    for (int64_t p = 0; p < evaluation->n_pairs; p++)
        plan->is_wanted[evaluation->pairs[p][0] * evaluation->n_values + evaluation->pairs[p][1]] =
            true;
done:
    return status;
}

void kv_cpu_plan_free(kv_cpu_plan *plan)
{
    if (plan->layer_keys) kv_fits_free(plan->layer_keys, plan->keys.n);
    if (plan->layer_values) kv_fits_free(plan->layer_values, plan->values.n);
    kv_free(plan->layer_keys);
    kv_free(plan->layer_values);
    kv_free(plan->key_bits);
    kv_free(plan->value_bits);
    kv_free(plan->is_wanted);
}

static kv_status floats(float **out, int64_t a, int64_t b, int64_t c, kv_error *err)
{
    return kv_allocate3((void **)out, (size_t)a, (size_t)b, (size_t)c, sizeof(float), err);
}

/* Large, and written before it is read. */
static kv_status unset_floats(float **out, int64_t a, int64_t b, int64_t c, kv_error *err)
{
    return kv_allocate3_unset((void **)out, (size_t)a, (size_t)b, (size_t)c, sizeof(float), err);
}

/* A head's tensor [T padded to KV_ROW_STEP][D]: the padding is zero. */
static kv_status tensor(float **out, const kv_layer *layer, kv_error *err)
{
    int64_t const tokens = round_up(layer->tokens, KV_ROW_STEP), head_dim = layer->head_dim;
    kv_status const status = unset_floats(out, tokens, head_dim, 1, err);
    for (int64_t i = layer->tokens * head_dim; status == KV_OK && i < tokens * head_dim; i++)
        (*out)[i] = 0;
    return status;
}

static kv_status doubles(double **out, int64_t a, int64_t b, kv_error *err)
{
    return kv_allocate3((void **)out, (size_t)a, (size_t)b, 1, sizeof(double), err);
}

kv_status kv_cpu_work_create(kv_cpu_work **out, const kv_cpu_plan *plan, int team, kv_error *err)
{
    kv_status status = KV_OK;
    kv_cpu_work *w = NULL;
    int64_t const head_dim = plan->layer->head_dim, columns = plan->panels * KV_LANES;
    size_t const n_k = (size_t)plan->keys.n, n_v = (size_t)plan->values.n;
    KV_TRY(kv_allocate((void **)&w, 1, sizeof *w, err));
    w->plan = plan, w->team = team;
    KV_TRY(kv_allocate((void **)&w->spaces, (size_t)team, sizeof *w->spaces, err));
    for (int i = 0; i < team; i++) {
        kv_cpu_space *const s = &w->spaces[i];
        KV_TRY(floats(&s->decoded, KV_TOKEN_TILE, head_dim, 1, err));
        KV_TRY(floats(&s->packed, KV_TOKEN_TILE, columns, 1, err));
        KV_TRY(kv_allocate((void **)&s->top, 1, sizeof *s->top, err));
    }
    KV_TRY(tensor(&w->key, plan->layer, err));
    if (plan->wants_pre_rope) KV_TRY(tensor(&w->key_pre_rope, plan->layer, err));
    KV_TRY(tensor(&w->value, plan->layer, err));
    KV_TRY(floats(&w->query, plan->rows, head_dim, 1, err));
    KV_TRY(floats(&w->panels, plan->width, head_dim, 1, err));
    KV_TRY(unset_floats(&w->logits, KV_SLOTS + plan->group, plan->span, plan->width, err));
    KV_TRY(floats(&w->exact_out, plan->width, columns, 1, err));
    KV_TRY(unset_floats(&w->out, plan->values.n * plan->group, plan->width, columns, err));
    KV_TRY(kv_allocate((void **)&w->lanes, (size_t)plan->width, sizeof *w->lanes, err));
    KV_TRY(floats(&w->first, plan->width, 1, 1, err));
    KV_TRY(floats(&w->end, plan->width, 1, 1, err));
    KV_TRY(doubles(&w->sums, plan->group, plan->width, err));
    KV_TRY(doubles(&w->key_errors, plan->keys.n, plan->tiles, err));
    KV_TRY(doubles(&w->value_errors, plan->values.n, plan->tiles, err));
    KV_TRY(kv_allocate((void **)&w->own_keys, n_k, sizeof *w->own_keys, err));
    KV_TRY(kv_allocate((void **)&w->own_values, n_v, sizeof *w->own_values, err));
    *out = w, w = NULL;
done:
    kv_cpu_work_free(w);
    return status;
}

void kv_cpu_work_free(kv_cpu_work *w)
{
    if (!w) return;
    for (int i = 0; w->spaces && i < w->team; i++) {
        kv_free(w->spaces[i].decoded);
        kv_free(w->spaces[i].packed);
        kv_free(w->spaces[i].scratch);
        kv_free(w->spaces[i].top);
    }
    kv_free(w->spaces);
    kv_free(w->key);
    kv_free(w->key_pre_rope);
    kv_free(w->value);
    kv_free(w->query);
    kv_free(w->panels);
    kv_free(w->logits);
    kv_free(w->exact_out);
    kv_free(w->out);
    kv_free(w->lanes);
    kv_free(w->first);
    kv_free(w->end);
    kv_free(w->sums);
    kv_free(w->key_errors);
    kv_free(w->value_errors);
    if (w->own_keys) kv_fits_free(w->own_keys, w->plan->keys.n);
    if (w->own_values) kv_fits_free(w->own_values, w->plan->values.n);
    kv_free(w->own_keys);
    kv_free(w->own_values);
    kv_free(w);
}
