/* The phases of one block of query rows: see work.h.
 *
 * Each phase is one parallel loop of the head's team over independent results, so their number
 * changes nothing: token tiles of keys, groups of 16 rows, value schemes (and slices of their
 * channels). */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "kernels/cpu/work.h"

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

float *kv_cpu_slot(const kv_cpu_work *w, int64_t slot, int64_t lane0)
{
    return w->logits + (slot * w->plan->width + lane0) * w->plan->span;
}

static int64_t tile_count(const kv_cpu_work *w, int64_t tile)
{
    return smaller(KV_TOKEN_TILE, w->plan->layer->tokens - tile * KV_TOKEN_TILE);
}

static bool is_visible(const kv_cpu_work *w, int64_t tile)
{
    int64_t const first = tile * KV_TOKEN_TILE;
    return first + KV_TOKEN_TILE > w->block_first && first < w->block_end;
}

/* Logits of one tile into a slot, with what a row does not see hidden. key [tile][D]. */
static void tile_logits(kv_cpu_work *w, int64_t slot, int64_t tile, const float *key)
{
    const kv_cpu_plan *const plan = w->plan;
    int64_t const width = plan->width, count = tile_count(w, tile);
    int64_t const padded = (count + KV_ROW_STEP - 1) / KV_ROW_STEP * KV_ROW_STEP;
    int64_t const from = tile * KV_TOKEN_TILE - w->block_first, to = from + count;
    plan->kernels->logits_apart(kv_cpu_slot(w, slot, 0) + from * KV_LANES, plan->span * KV_LANES,
                                key, padded, plan->layer->head_dim, w->panels, width / KV_LANES,
                                (float)plan->layer->softmax_scale);
    int64_t const common_first = w->common_first - w->block_first;
    int64_t const common_end = w->common_end - w->block_first;
    if (from >= common_first && to <= common_end) return;
    for (int64_t lane = 0; lane < width; lane += KV_LANES)
        plan->kernels->row_hide(kv_cpu_slot(w, slot, lane), KV_LANES, from, to, w->first + lane,
                                w->end + lane);
}

void kv_cpu_exact_keys(kv_cpu_work *w)
{
#pragma omp parallel for num_threads(w->team) schedule(dynamic)
    for (int64_t tile = 0; tile < w->plan->tiles; tile++)
        if (is_visible(w, tile))
            tile_logits(w, KV_SLOT_EXACT, tile,
                        w->key + tile * KV_TOKEN_TILE * w->plan->layer->head_dim);
}

/* A tile of a key scheme as attention uses it, into decoded [tile][D]. */
static void decode_key(kv_cpu_work *w, kv_cpu_space *space, int64_t scheme, int64_t tile)
{
    const kv_cpu_plan *const plan = w->plan;
    const kv_source *const source = &plan->layer->source;
    bool const is_pre_rope = plan->keys.quantizers[scheme].is_pre_rope;
    int64_t const first = tile * KV_TOKEN_TILE, count = tile_count(w, tile);
    kv_fit_decode(kv_cpu_key_fit(w, scheme), kv_cpu_fit_head(w, plan->layer_keys[scheme] != NULL),
                  is_pre_rope ? w->key_pre_rope : w->key, first, count, space->decoded,
                  space->scratch);
    if (is_pre_rope) kv_rope_apply(source->rope, first, count, space->decoded);
}

void kv_cpu_group_keys(kv_cpu_work *w)
{
    const kv_cpu_plan *const plan = w->plan;
    int64_t const head_dim = plan->layer->head_dim;
    bool const is_first_block = w->row == 0; /* measures the error of every tile, seen or not */
#pragma omp parallel for num_threads(w->team) schedule(dynamic)
    for (int64_t tile = 0; tile < plan->tiles; tile++) {
        kv_cpu_space *const space = &w->spaces[omp_get_thread_num()];
        if (!is_first_block && !is_visible(w, tile)) continue;
        for (int64_t j = 0; j < w->group_count; j++) {
            int64_t const scheme = w->group_first + j;
            decode_key(w, space, scheme, tile);
            if (is_first_block)
                w->key_errors[scheme * plan->tiles + tile] = plan->kernels->sum_square_difference(
                    space->decoded, w->key + tile * KV_TOKEN_TILE * head_dim,
                    tile_count(w, tile) * head_dim);
            if (is_visible(w, tile)) tile_logits(w, KV_SLOTS + j, tile, space->decoded);
        }
    }
}

/* How far a needle's logit is above the largest other one; infinite where it is alone. */
static double margin_over(float needle, float other)
{
    return other > KV_HIDDEN_LOGIT ? (double)needle - (double)other : INFINITY;
}

/* Largest logit of 16 rows, and the needle's margin (NaN without a needle). */
static void lane_maxima(const kv_cpu_work *w, float *logits, int64_t lane0, float max[KV_LANES],
                        double margin[KV_LANES])
{
    int64_t const n = w->block_end - w->block_first;
    float needle[KV_LANES];
    for (int64_t i = 0; i < KV_LANES; i++) {
        int64_t const token = w->lanes[lane0 + i].needle;
        if (token < 0) continue;
        float *const l = &logits[(token - w->block_first) * KV_LANES + i];
        needle[i] = *l, *l = KV_HIDDEN_LOGIT;
    }
    w->plan->kernels->row_max(max, logits, KV_LANES, n);
    for (int64_t i = 0; i < KV_LANES; i++) {
        int64_t const token = w->lanes[lane0 + i].needle;
        margin[i] = NAN;
        if (token < 0) continue;
        logits[(token - w->block_first) * KV_LANES + i] = needle[i];
        margin[i] = margin_over(needle[i], max[i]);
        max[i] = needle[i] > max[i] ? needle[i] : max[i];
    }
}

/* The same from the best tokens of the rows, of which the first is the best. */
static void top_maxima(const kv_cpu_work *w, const kv_lane_top *top, const float *logits,
                       int64_t lane0, float max[KV_LANES], double margin[KV_LANES])
{
    for (int64_t i = 0; i < KV_LANES; i++) {
        const uint64_t *const entry = top->entry[i];
        int64_t const needle = w->lanes[lane0 + i].needle - w->block_first;
        uint64_t other = 0;
        max[i] = top->count[i] > 0 ? kv_top_logit(entry[0]) : KV_HIDDEN_LOGIT;
        margin[i] = NAN;
        if (w->lanes[lane0 + i].needle < 0) continue;
        for (int e = 0; e < top->count[i]; e++)
            if (entry[e] > other && kv_top_token(entry[e]) != needle) other = entry[e];
        margin[i] = margin_over(logits[needle * KV_LANES + i],
                                other > 0 ? kv_top_logit(other) : KV_HIDDEN_LOGIT);
    }
}

/* Either, and the best tokens where they are wanted. */
static void start_rows(const kv_cpu_work *w, kv_lane_top *top, float *logits, int64_t lane0,
                       float max[KV_LANES], double margin[KV_LANES])
{
    if (!w->plan->evaluation->want_rows) {
        lane_maxima(w, logits, lane0, max, margin);
        return;
    }
    w->plan->kernels->row_top(top, logits, KV_LANES, w->block_end - w->block_first);
    top_maxima(w, top, logits, lane0, max, margin);
}

void kv_cpu_exact_rows(kv_cpu_work *w)
{
    const kv_cpu_plan *const plan = w->plan;
    const kv_cpu_kernels *const k = plan->kernels;
    int64_t const width = plan->width, n = w->block_end - w->block_first;
#pragma omp parallel for num_threads(w->team) schedule(dynamic)
    for (int64_t lane0 = 0; lane0 < width; lane0 += KV_LANES) {
        kv_lane_top *const top = w->spaces[omp_get_thread_num()].top;
        float *const logits = kv_cpu_slot(w, KV_SLOT_EXACT, lane0);
        float max[KV_LANES];
        double margin[KV_LANES], sum[KV_LANES];
        start_rows(w, top, logits, lane0, max, margin);
        k->row_weights(kv_cpu_slot(w, KV_SLOT_WEIGHTS, lane0), sum, logits, max, KV_LANES, n);
        for (int64_t i = 0; i < KV_LANES; i++) {
            kv_cpu_lane *const lane = &w->lanes[lane0 + i];
            lane->max = max[i], lane->sum = sum[i];
            lane->top_count = plan->evaluation->want_rows ? top->count[i] : 0;
            for (int e = 0; e < lane->top_count; e++) lane->top[e] = kv_top_token(top->entry[i][e]);
            if (lane0 + i >= w->n_rows) continue;
            plan->out->exact_needle_margin[w->head * plan->rows + w->row + lane0 + i] = margin[i];
        }
    }
}

/* |top-k(p) & top-k(p^)| / min(k, visible) for each k of row i: of the exact k best, those that do
 * not rank behind the k-th quantized one. quantized are the 16 rows' logits. */
static void top_agreement(double agree[KV_TOP_COUNT], const kv_cpu_lane *exact,
                          const kv_lane_top *top, const float *quantized, int64_t i)
{
    int common[KV_TOP_COUNT] = {0};
    for (int a = 0; a < exact->top_count; a++) {
        int64_t const token = exact->top[a];
        uint64_t const entry = kv_top_entry(quantized[token * KV_LANES + i], token);
        for (int e = 0; e < KV_TOP_COUNT; e++)
            common[e] += a < kv_top_k[e] && entry >= top->least[e][i];
    }
    for (int e = 0; e < KV_TOP_COUNT; e++)
        agree[e] = common[e] / (double)smaller(kv_top_k[e], exact->end - exact->first);
}

/* 16 rows of the key scheme in slot KV_SLOTS + j; its logits become weights. */
static void compare_rows(kv_cpu_work *w, kv_lane_top *top, int64_t j, int64_t lane0)
{
    const kv_cpu_plan *const plan = w->plan;
    const kv_cpu_kernels *const k = plan->kernels;
    int64_t const width = plan->width, n = w->block_end - w->block_first;
    const float *const exact = kv_cpu_slot(w, KV_SLOT_EXACT, lane0);
    const float *const exact_weights = kv_cpu_slot(w, KV_SLOT_WEIGHTS, lane0);
    float *const quantized = kv_cpu_slot(w, KV_SLOTS + j, lane0);
    bool const want_rows = plan->evaluation->want_rows;
    kv_lane_sums sums;
    double margin[KV_LANES], variation[KV_LANES];
    float exact_inverse[KV_LANES], inverse[KV_LANES];
    double agree[KV_LANES][KV_TOP_COUNT];
    start_rows(w, top, quantized, lane0, sums.max, margin);
    for (int64_t i = 0; i < KV_LANES; i++) {
        for (int e = 0; e < KV_TOP_COUNT; e++) agree[i][e] = NAN;
        if (want_rows) top_agreement(agree[i], &w->lanes[lane0 + i], top, quantized, i);
    }
    k->row_compare(&sums, quantized, exact, exact_weights, KV_LANES, n);
    for (int64_t i = 0; i < KV_LANES; i++) {
        w->sums[j * width + lane0 + i] = sums.sum[i];
        exact_inverse[i] = (float)(1 / w->lanes[lane0 + i].sum);
        inverse[i] = (float)(1 / sums.sum[i]);
    }
    k->row_finish(variation, quantized, exact_weights, exact_inverse, inverse, KV_LANES, n);
    for (int64_t i = 0; i < KV_LANES && lane0 + i < w->n_rows; i++) {
        const kv_cpu_lane *const lane = &w->lanes[lane0 + i];
        int64_t const scheme = w->head * plan->keys.n + w->group_first + j;
        kv_key_row *const row = &plan->out->key_rows[scheme * plan->rows + w->row + lane0 + i];
        /* KL = sum p (l - l^) - (lse - lse^); at least 0, which rounding may miss */
        double const kl = ((double)sums.max[i] - (double)lane->max) + log(sums.sum[i] / lane->sum) -
                          sums.cross[i] / lane->sum;
        row->logit_err_max = (double)sums.err_max[i];
        row->logit_err_square = sums.err_square[i];
        row->kl = kl < 0 ? 0 : kl;
        row->tv = want_rows ? variation[i] / 2 : NAN;
        row->needle_margin = margin[i];
        memcpy(row->top_agree, agree[i], sizeof row->top_agree);
    }
}

void kv_cpu_group_rows(kv_cpu_work *w)
{
    int64_t const lane_groups = w->plan->width / KV_LANES;
#pragma omp parallel for num_threads(w->team) schedule(dynamic)
    for (int64_t item = 0; item < w->group_count * lane_groups; item++)
        compare_rows(w, w->spaces[omp_get_thread_num()].top, item / lane_groups,
                     item % lane_groups * KV_LANES);
}

/* Panels [*from, *to) of slice `slice`: pairs of panels are spread over the slices. */
static void slice_panels(const kv_cpu_plan *plan, int64_t slice, int64_t slices, int64_t *from,
                         int64_t *to)
{
    int64_t const pairs = (plan->panels + 1) / 2;
    *from = smaller(pairs * slice / slices * 2, plan->panels);
    *to = smaller(pairs * (slice + 1) / slices * 2, plan->panels);
}

/* How many tokens of a tile the block sees the end of. */
static int64_t tile_end(const kv_cpu_work *w, int64_t tile)
{
    return smaller(tile_count(w, tile), w->block_end - tile * KV_TOKEN_TILE);
}

/* out [width][columns] += the weights of a slot, over the first n tokens of a tile, times panels.
 */
static void add_outputs(const kv_cpu_work *w, float *out, int64_t slot, int64_t tile, int64_t n,
                        const kv_panels *panels)
{
    int64_t const columns = w->plan->panels * KV_LANES;
    int64_t const from = tile * KV_TOKEN_TILE - w->block_first;
    for (int64_t lane = 0; lane < w->plan->width; lane += KV_LANES)
        w->plan->kernels->outputs(out + lane * columns, columns,
                                  kv_cpu_slot(w, slot, lane) + from * KV_LANES, n, KV_LANES,
                                  panels);
}

/* Panels [from, to) of x [n][D]: where they lie, or packed where the last one is not whole. */
static kv_panels panels_of(const kv_cpu_work *w, kv_cpu_space *space, const float *x, int64_t n,
                           int64_t from, int64_t to)
{
    int64_t const head_dim = w->plan->layer->head_dim;
    if (head_dim % KV_LANES == 0)
        return (kv_panels){x + from * KV_LANES, to - from, KV_LANES, head_dim};
    w->plan->kernels->pack(space->packed, to - from, x, n, head_dim, from * KV_LANES);
    return (kv_panels){space->packed, to - from, n * KV_LANES, KV_LANES};
}

static void clear(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = 0;
}

void kv_cpu_exact_values(kv_cpu_work *w)
{
    const kv_cpu_plan *const plan = w->plan;
    int64_t const head_dim = plan->layer->head_dim, columns = plan->panels * KV_LANES;
    int64_t const slices = w->team;
    clear(w->exact_out, plan->width * columns);
#pragma omp parallel for num_threads(w->team) schedule(static)
    for (int64_t slice = 0; slice < slices; slice++) {
        kv_cpu_space *const space = &w->spaces[omp_get_thread_num()];
        int64_t from, to;
        slice_panels(plan, slice, slices, &from, &to);
        for (int64_t tile = 0; from < to && tile < plan->tiles; tile++) {
            if (!is_visible(w, tile)) continue;
            int64_t const n = tile_end(w, tile);
            kv_panels const panels =
                panels_of(w, space, w->value + tile * KV_TOKEN_TILE * head_dim, n, from, to);
            add_outputs(w, w->exact_out + from * KV_LANES, KV_SLOT_WEIGHTS, tile, n, &panels);
        }
    }
}

/* One tile of a value scheme: decoded once, multiplied with every key scheme of the group that is
 * paired with it. */
static void value_tile(kv_cpu_work *w, kv_cpu_space *space, int64_t scheme, int64_t tile,
                       int64_t from, int64_t to, bool is_measured)
{
    const kv_cpu_plan *const plan = w->plan;
    int64_t const head_dim = plan->layer->head_dim, columns = plan->panels * KV_LANES;
    int64_t const count = tile_count(w, tile), width = plan->width;
    kv_fit_decode(kv_cpu_value_fit(w, scheme),
                  kv_cpu_fit_head(w, plan->layer_values[scheme] != NULL), w->value,
                  tile * KV_TOKEN_TILE, count, space->decoded, space->scratch);
    if (is_measured)
        w->value_errors[scheme * plan->tiles + tile] = plan->kernels->sum_square_difference(
            space->decoded, w->value + tile * KV_TOKEN_TILE * head_dim, count * head_dim);
    if (!is_visible(w, tile) || from == to) return;
    int64_t const n = tile_end(w, tile);
    kv_panels const panels = panels_of(w, space, space->decoded, n, from, to);
    for (int64_t j = 0; j < w->group_count; j++) {
        if (!plan->is_wanted[(w->group_first + j) * plan->values.n + scheme]) continue;
        float *const out = w->out + (scheme * plan->group + j) * width * columns;
        add_outputs(w, out + from * KV_LANES, KV_SLOTS + j, tile, n, &panels);
    }
}

static bool is_paired(const kv_cpu_work *w, int64_t value_scheme)
{
    for (int64_t j = 0; j < w->group_count; j++)
        if (w->plan->is_wanted[(w->group_first + j) * w->plan->values.n + value_scheme])
            return true;
    return false;
}

void kv_cpu_group_values(kv_cpu_work *w)
{
    const kv_cpu_plan *const plan = w->plan;
    int64_t const columns = plan->panels * KV_LANES, n_v = plan->values.n;
    int64_t const slices = n_v > 0 ? (w->team + n_v - 1) / n_v : 1;
    /* the first block's first group measures the error of every tile of every value scheme */
    bool const is_measured = w->row == 0 && w->group_first == 0;
    clear(w->out, n_v * plan->group * plan->width * columns);
#pragma omp parallel num_threads(w->team)
    {
        int const thread = omp_get_thread_num(), threads = omp_get_num_threads();
        for (int64_t tile = 0; tile < plan->tiles; tile++) {
            if (!is_measured && !is_visible(w, tile)) continue;
            for (int64_t item = omp_get_thread_num(); item < n_v * slices; item += threads) {
                int64_t const scheme = item / slices, slice = item % slices;
                int64_t from, to;
                if (!is_measured && !is_paired(w, scheme)) continue;
                slice_panels(plan, slice, slices, &from, &to);
                value_tile(w, &w->spaces[thread], scheme, tile, from, to,
                           is_measured && slice == 0);
            }
        }
    }
}

void kv_cpu_group_errors(kv_cpu_work *w)
{
    const kv_cpu_plan *const plan = w->plan;
    int64_t const columns = plan->panels * KV_LANES, width = plan->width;
    const kv_evaluation *const evaluation = plan->evaluation;
#pragma omp parallel for num_threads(w->team) schedule(static)
    for (int64_t p = 0; p < evaluation->n_pairs; p++) {
        int64_t const j = evaluation->pairs[p][0] - w->group_first;
        if (j < 0 || j >= w->group_count) continue;
        const float *const out =
            w->out + (evaluation->pairs[p][1] * plan->group + j) * width * columns;
        double *const to =
            plan->out->out_err_square + (w->head * evaluation->n_pairs + p) * plan->rows + w->row;
        for (int64_t i = 0; i < w->n_rows; i++)
            to[i] = plan->kernels->sum_square_scaled_difference(
                out + i * columns, 1 / w->sums[j * width + i], w->exact_out + i * columns,
                1 / w->lanes[i].sum, columns);
    }
}
