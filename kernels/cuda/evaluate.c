/* kv_backend.evaluate on the device.
 *
 * A wave of heads is loaded and fitted; then, block by block of query rows, the exact rows come
 * first, then group by group of key schemes: logits, what is known of each row, the comparison with
 * the exact row, outputs under every value scheme, their distance from the exact output. Blocks and
 * groups are of one size: the last one begins early enough, and what it does again gives the same
 * numbers.
 *
 * Work rows of a block: the exact ones, then those of the group's key schemes. Out rows: the exact
 * ones, then pair by pair, by value scheme. Where a kernel flags a number that must not be, or a
 * query's target is out of reach, the CPU backend says what and where. */
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/load.h"
#include "kernels/cuda/queries.h"
#include "kernels/cuda/statistics.h"
#include "kernels/levels.h"
#include "kernels/memory.h"

typedef struct {
    const kv_layer *layer;
    const kv_evaluation *evaluation;
    kv_measurements *measured;
    kv_cuda_attention a;
    uint32_t flags;
    bool is_infinite;             /* a row of logits is beyond float */
    bool are_reached;             /* the queries' targets */
    int threads;                  /* of the host */
    int64_t first_row, first_key; /* of the block, of the group */
    int64_t *out_pair;            /* [outs] pair of each out row's scheme, -1 for exact ones */
    int64_t *first_out;           /* [n_values + 1] out rows of each value scheme */

    kv_cuda_comparison *comparison; /* [heads][rows] */
    double *square;                 /* [heads][outs] */
    kv_cuda_row *host_row;
    kv_cuda_comparison *host_comparison;
    double *host_square;
} evaluating;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- memory ---- */

static kv_status create(evaluating *e, const kv_cuda_options *options, const kv_cuda_module *cuda,
                        kv_error *err)
{
    kv_status status = KV_OK;
    const kv_evaluation *const what = e->evaluation;
    kv_cuda_plan plan;
    int64_t free_bytes = 0;
    KV_TRY(cuda->free_bytes(&free_bytes, err));
    KV_TRY(kv_cuda_plan_evaluation(&plan, options, e->layer, what, free_bytes, err));
    int64_t const heads = plan.heads, rows = plan.rows * (1 + plan.group), outs = plan.outs;
    kv_cuda_request const request = {.layer = e->layer,
                                     .keys = what->keys,
                                     .values = what->values,
                                     .n_keys = what->n_keys,
                                     .n_values = what->n_values,
                                     .rows = rows,
                                     .outs = outs,
                                     .queries = e->measured->rows};
    KV_TRY(kv_cuda_attention_create(&e->a, cuda, &plan, &request, err));
    KV_TRY(kv_cuda_take((void **)&e->comparison, &e->a.wave.memory, heads * rows,
                        sizeof *e->comparison, err));
    KV_TRY(
        kv_cuda_take((void **)&e->square, &e->a.wave.memory, heads * outs, sizeof *e->square, err));
    KV_TRY(
        kv_allocate((void **)&e->first_out, (size_t)what->n_values + 1, sizeof *e->first_out, err));
    KV_TRY(kv_allocate((void **)&e->out_pair, (size_t)outs, sizeof *e->out_pair, err));
    KV_TRY(kv_allocate3((void **)&e->host_row, (size_t)heads, (size_t)rows, 1, sizeof *e->host_row,
                        err));
    KV_TRY(kv_allocate3((void **)&e->host_comparison, (size_t)heads, (size_t)rows, 1,
                        sizeof *e->host_comparison, err));
    KV_TRY(kv_allocate3((void **)&e->host_square, (size_t)heads, (size_t)outs, 1,
                        sizeof *e->host_square, err));
done:
    return status;
}

static void free_all(evaluating *e)
{
    kv_cuda_attention_free(&e->a);
    kv_free(e->out_pair);
    kv_free(e->first_out);
    kv_free(e->host_row);
    kv_free(e->host_comparison);
    kv_free(e->host_square);
}

/* ---- the exact tensors of a wave ---- */

static kv_status describe(evaluating *e, kv_error *err)
{
    kv_status status = KV_OK;
    kv_measurements *const m = e->measured;
    kv_cuda_wave *const w = &e->a.wave;
    float *absmax = NULL;
    KV_TRY(kv_allocate((void **)&absmax, 2 * (size_t)w->heads, sizeof *absmax, err));
    KV_TRY(kv_cuda_squares_of(m->value_square + w->first, absmax + w->heads, w, w->value, err));
    KV_TRY(kv_cuda_squares_of(m->key_square + w->first, absmax, w, w->key, err));
    for (int64_t h = 0; h < w->heads; h++) m->key_absmax[w->first + h] = (double)absmax[h];
    for (int64_t i = 0; i < 2 * w->heads; i++)
        if (isinf(absmax[i])) e->flags |= KV_CUDA_NOT_FINITE;
    if (!e->flags) KV_TRY(kv_cuda_medians(m->key_absmedian + w->first, w, w->key, err));
done:
    kv_free(absmax);
    return status;
}

/* How many codes each key scheme uses. */
static kv_status count_levels(evaluating *e, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_evaluation *const what = e->evaluation;
    double *levels = NULL;
    KV_TRY(kv_allocate((void **)&levels, (size_t)e->a.wave.heads, sizeof *levels, err));
    for (int64_t key = 0; what->want_levels && key < what->n_keys; key++) {
        if (kv_format_at(what->keys[key].format)->bits > KV_LEVELS_MOST_BITS) continue;
        KV_TRY(kv_cuda_levels(levels, &e->a.wave, &e->a.keys.schemes[key], err));
        for (int64_t h = 0; h < e->a.wave.heads; h++)
            e->measured->key_levels[(e->a.wave.first + h) * what->n_keys + key] = levels[h];
    }
done:
    kv_free(levels);
    return status;
}

/* ---- lists of a block and of a group ---- */

/* What the block's rows see, and where their needles are. */
static void see_rows(evaluating *e)
{
    const kv_layer *const l = e->layer;
    kv_cuda_attention *const a = &e->a;
    int64_t const group = l->query_heads / l->kv_heads;
    int64_t low = INT64_MAX, high = 0;
    for (int64_t i = 0; i < a->wave.heads * a->rows; i++) {
        int64_t const head = a->wave.first + i / a->rows;
        int64_t const row = e->first_row + i % a->rows % a->plan.rows, query = row % l->queries;
        int64_t const query_head = head * group + row / l->queries;
        kv_visible const seen = kv_layer_visible(l, l->query_position[query]);
        a->host.row_seen[2 * i] = seen.begin, a->host.row_seen[2 * i + 1] = seen.end;
        a->host.row_needle[i] = l->needle ? l->needle[query_head * l->queries + query] : -1;
        low = smaller(low, seen.begin), high = larger(high, seen.end);
    }
    a->first_token = low / KV_CUDA_SUM * KV_CUDA_SUM, a->end_token = high;
}

static kv_status start_block(evaluating *e, kv_error *err)
{
    kv_cuda_attention *const a = &e->a;
    see_rows(e);
    for (int64_t i = 0; i < a->rows; i++) {
        a->host.row_query[i] = (int32_t)(e->first_row + i % a->plan.rows);
        a->host.row_exact[i] = (int32_t)(i % a->plan.rows);
    }
    return kv_cuda_send_rows(a, err);
}

/* The exact out rows, then those of the pairs whose key is in the group, by value scheme, whose
 * first out row goes to first_out [n_values + 1]. Idle out rows are finished like exact ones, and
 * not looked at. */
static void list_outs(evaluating *e)
{
    const kv_evaluation *const what = e->evaluation;
    kv_cuda_attention *const a = &e->a;
    int64_t const n = a->plan.rows;
    int64_t outs = n;
    for (int64_t i = 0; i < a->outs; i++) {
        a->host.out_row[i] = (int32_t)(i % n), a->host.out_exact[i] = -1;
        e->out_pair[i] = -1;
    }
    for (int64_t value = 0; value < what->n_values; value++) {
        e->first_out[value] = outs;
        for (int64_t p = 0; p < what->n_pairs; p++) {
            int64_t const slot = what->pairs[p][0] - e->first_key;
            if (what->pairs[p][1] != value || slot < 0 || slot >= a->plan.group) continue;
            for (int64_t i = 0; i < n; i++, outs++) {
                a->host.out_row[outs] = (int32_t)((1 + slot) * n + i);
                a->host.out_exact[outs] = (int32_t)i, e->out_pair[outs] = p;
            }
        }
    }
    e->first_out[what->n_values] = outs;
}

/* ---- kernels ---- */

static kv_status compare(const evaluating *e, kv_error *err)
{
    const kv_cuda_attention *const a = &e->a;
    kv_cuda_compare const arguments = {.out = e->comparison,
                                       .logits = a->logits,
                                       .row = a->row,
                                       .row_seen = a->device.row_seen,
                                       .row_exact = a->device.row_exact,
                                       .heads = a->wave.heads,
                                       .rows = a->rows,
                                       .first_row = a->plan.rows,
                                       .first_token = a->first_token,
                                       .stride = a->plan.stride,
                                       .want_rows = e->evaluation->want_rows};
    return a->wave.cuda->compare(&arguments, err);
}

static kv_status receive(const evaluating *e, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_cuda_module *const cuda = e->a.wave.cuda;
    int64_t const rows = e->a.wave.heads * e->a.rows, outs = e->a.wave.heads * e->a.outs;
    KV_TRY(cuda->download(e->host_row, e->a.row, rows * (int64_t)sizeof *e->host_row, err));
    KV_TRY(cuda->download(e->host_comparison, e->comparison, rows * (int64_t)sizeof *e->comparison,
                          err));
    KV_TRY(cuda->download(e->host_square, e->square, outs * (int64_t)sizeof *e->square, err));
done:
    return status;
}

/* Logits of the group's key schemes (and first of the exact keys), and what follows from them. */
static kv_status run_keys(evaluating *e, bool is_first_group, bool is_measured, kv_error *err)
{
    kv_status status = KV_OK;
    kv_cuda_attention *const a = &e->a;
    int64_t const n = a->plan.rows;
    KV_TRY(kv_cuda_start_decode(a, &a->keys, e->first_key, a->plan.group, is_measured, err));
    if (is_first_group) kv_cuda_add_chunks(a, KV_CUDA_EXACT, 0, n);
    for (int64_t j = 0; j < a->plan.group; j++) kv_cuda_add_chunks(a, j, (1 + j) * n, n);
    KV_TRY(kv_cuda_start_logits(a, err));
    KV_TRY(kv_cuda_start_rows(a, e->evaluation->want_rows, err));
    KV_TRY(compare(e, err));
done:
    return status;
}

/* Outputs of the group's pairs (and first exact ones), a few value schemes at a time. */
static kv_status run_values(evaluating *e, bool is_first_group, bool is_measured, kv_error *err)
{
    kv_status status = KV_OK;
    kv_cuda_attention *const a = &e->a;
    int64_t const n_values = e->evaluation->n_values, step = larger(a->plan.slots, 1);
    list_outs(e);
    KV_TRY(kv_cuda_send_outs(a, err));
    if (is_first_group) kv_cuda_add_chunks(a, KV_CUDA_EXACT, 0, a->plan.rows);
    for (int64_t value = 0; value == 0 || value < n_values; value += step) {
        int64_t const n = smaller(step, n_values - value);
        KV_TRY(kv_cuda_start_decode(a, &a->values, value, n, is_measured, err));
        for (int64_t j = 0; j < n; j++) {
            int64_t const first = e->first_out[value + j];
            kv_cuda_add_chunks(a, j, first, e->first_out[value + j + 1] - first);
        }
        KV_TRY(kv_cuda_start_outputs(a, true, err));
    }
    KV_TRY(kv_cuda_start_finish(a, NULL, e->square, err));
done:
    return status;
}

/* ---- what the numbers mean ---- */

static void store_key_row(kv_key_row *to, const evaluating *e, const kv_cuda_row *exact,
                          const kv_cuda_row *row, const kv_cuda_comparison *c, int64_t visible)
{
    /* KL = sum p (l - l^) - (lse - lse^); at least 0, which rounding may miss */
    double const kl = ((double)row->max - (double)exact->max) + log(row->sum / exact->sum) -
                      c->cross / exact->sum;
    bool const want_rows = e->evaluation->want_rows;
    to->logit_err_max = c->logit_err_max;
    to->logit_err_square = c->logit_err_square;
    to->kl = kl < 0 ? 0 : kl;
    to->tv = want_rows ? c->variation / 2 : NAN;
    to->needle_margin = row->needle_margin;
    for (int k = 0; k < KV_TOP_COUNT; k++)
        to->top_agree[k] =
            want_rows ? (double)c->common[k] / (double)smaller(kv_top_k[k], visible) : NAN;
}

static void store_rows(evaluating *e, int64_t h)
{
    kv_measurements *const m = e->measured;
    int64_t const n = e->a.plan.rows, head = e->a.wave.first + h;
    for (int64_t i = 0; i < e->a.rows; i++) {
        const kv_cuda_row *const row = &e->host_row[h * e->a.rows + i];
        int64_t const r = e->first_row + i % n, key = e->first_key + i / n - 1;
        const int64_t *const seen = e->a.host.row_seen + 2 * (h * e->a.rows + i);
        e->is_infinite |= !row->is_finite;
        if (i < n)
            m->exact_needle_margin[head * m->rows + r] = row->needle_margin;
        else
            store_key_row(&m->key_rows[(head * m->n_keys + key) * m->rows + r], e,
                          &e->host_row[h * e->a.rows + i % n], row,
                          &e->host_comparison[h * e->a.rows + i], seen[1] - seen[0]);
    }
}

static void store_outs(evaluating *e, int64_t h)
{
    kv_measurements *const m = e->measured;
    int64_t const n = e->a.plan.rows, head = e->a.wave.first + h;
    for (int64_t o = 0; o < e->a.outs; o++) {
        int64_t const r = e->first_row + o % n, pair = e->out_pair[o];
        double const square = e->host_square[h * e->a.outs + o];
        if (o < n) m->out_square[head * m->rows + r] = square;
        if (pair >= 0) m->out_err_square[(head * m->n_pairs + pair) * m->rows + r] = square;
    }
}

/* Errors of a side's tensors, tiles added in order. */
static kv_status store_errors(double *out, const evaluating *e, const kv_cuda_side *s,
                              kv_error *err)
{
    kv_status status = KV_OK;
    int64_t const heads = e->a.wave.heads, count = s->n * heads * e->a.tiles;
    double *error = NULL;
    if (s->n == 0) return KV_OK;
    KV_TRY(kv_allocate((void **)&error, (size_t)count, sizeof *error, err));
    KV_TRY(e->a.wave.cuda->download(error, s->error, count * (int64_t)sizeof *error, err));
    for (int64_t i = 0; i < s->n * heads; i++) {
        double *const to = &out[(e->a.wave.first + i % heads) * s->n + i / heads];
        *to = 0;
        for (int64_t t = 0; t < e->a.tiles; t++) *to += error[i * e->a.tiles + t];
    }
done:
    kv_free(error);
    return status;
}

/* ---- all ---- */

static kv_status run_blocks(evaluating *e, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t const R = e->measured->rows, n_keys = e->evaluation->n_keys;
    int64_t const step = e->a.plan.rows, group = e->a.plan.group;
    for (int64_t row = 0; row < R; row += step) {
        e->first_row = smaller(row, R - step);
        KV_TRY(start_block(e, err));
        for (int64_t key = 0; key == 0 || key < n_keys; key += larger(group, 1)) {
            e->first_key = smaller(key, n_keys - group);
            KV_TRY(run_keys(e, key == 0, row == 0, err));
            KV_TRY(run_values(e, key == 0, row == 0 && key == 0, err));
            KV_TRY(receive(e, err));
            for (int64_t h = 0; h < e->a.wave.heads; h++) store_rows(e, h), store_outs(e, h);
        }
    }
done:
    return status;
}

static kv_status run_wave(evaluating *e, int64_t first, kv_error *err)
{
    kv_status status = KV_OK;
    size_t const mark = e->a.wave.memory.n;
    uint32_t flags = 0;
    KV_TRY(kv_cuda_attention_load(&e->a, first, err));
    KV_TRY(kv_cuda_queries(e->a.query, &e->are_reached, &e->a.wave, e->threads, err));
    if (!e->are_reached) goto done;
    KV_TRY(describe(e, err));
    KV_TRY(kv_cuda_attention_fit(&e->a, err));
    KV_TRY(kv_cuda_wave_flags(&flags, &e->a.wave, err));
    e->flags |= flags;
    if (e->flags) goto done;
    KV_TRY(count_levels(e, err));
    KV_TRY(run_blocks(e, err));
    KV_TRY(store_errors(e->measured->key_err_square, e, &e->a.keys, err));
    KV_TRY(store_errors(e->measured->value_err_square, e, &e->a.values, err));
done:
    kv_cuda_give_back(&e->a.wave.memory, mark);
    return status;
}

/* Numbers that must not be, or targets out of reach: the CPU meets them, too, and names the first.
 */
static kv_status ask_cpu(const evaluating *e, kv_error *err)
{
    kv_status status = KV_OK;
    kv_measurements *again = NULL;
    KV_TRY(kv_measurements_create(&again, e->layer, e->evaluation, err));
    KV_TRY(kv_cpu_evaluate(e->layer, e->evaluation, e->threads, again, err));
    KV_TRY(KV_FAIL(err, KV_ENUMERIC,
                   "the CUDA device met numbers beyond float, or targets out of reach, where the "
                   "CPU meets none"));
done:
    kv_measurements_free(again);
    return status;
}

static void set_totals(const evaluating *e)
{
    kv_measurements *const m = e->measured;
    const kv_layer *const l = e->layer;
    for (int64_t i = 0; i < m->rows; i++) {
        kv_visible const seen = kv_layer_visible(l, l->query_position[i % l->queries]);
        m->visible[i] = seen.end - seen.begin;
    }
    for (int64_t i = 0; i < m->n_keys; i++) m->key_bits[i] = (double)e->a.keys.bits[i];
    for (int64_t i = 0; i < m->n_values; i++) m->value_bits[i] = (double)e->a.values.bits[i];
}

kv_status kv_cuda_evaluate_with(const kv_cuda_options *options, const kv_layer *layer,
                                const kv_evaluation *evaluation, int threads, kv_measurements *out,
                                kv_error *err)
{
    kv_status status = KV_OK;
    evaluating e = {.layer = layer,
                    .evaluation = evaluation,
                    .measured = out,
                    .are_reached = true,
                    .threads = threads};
    const kv_cuda_module *cuda = NULL;
    bool is_begun = false;
    KV_TRY(kv_evaluation_check(layer, evaluation, err));
    KV_TRY(kv_cuda_begin(&cuda, err));
    is_begun = true;
    KV_TRY(create(&e, options, cuda, err));
    for (int64_t first = 0; first < layer->kv_heads && e.are_reached && !e.flags && !e.is_infinite;
         first += e.a.plan.heads)
        KV_TRY(run_wave(&e, first, err));
    set_totals(&e);
done:
    free_all(&e);
    if (is_begun) kv_cuda_end();
    if (status == KV_OK && (e.flags || e.is_infinite || !e.are_reached)) status = ask_cpu(&e, err);
    return status;
}

kv_status kv_cuda_evaluate(const kv_layer *layer, const kv_evaluation *evaluation, int threads,
                           kv_measurements *out, kv_error *err)
{
    return kv_cuda_evaluate_with(&(kv_cuda_options){0}, layer, evaluation, threads, out, err);
}
