/* kv_backend.attend on the device.
 *
 * The rows of a kv head's query heads are sorted by key scheme and taken block by block: logits,
 * maxima and sums, then, sorted by value scheme, outputs. The order changes no number. Where a
 * kernel flags a number that must not be, the CPU backend says what and where. */
#include <math.h>
#include <stdlib.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/load.h"
#include "kernels/cuda/statistics.h"
#include "kernels/memory.h"

/* A row of a kv head, and the schemes it names: of those that are named, or KV_CUDA_EXACT. */
typedef struct {
    int32_t key, value, row;
} named_row;

/* The quantizers that rows name, and where each of the caller's is among them. */
typedef struct {
    kv_quantizer *quantizers;
    int64_t n;
    int32_t *place;
} named;

typedef struct {
    const kv_layer *layer;
    const kv_attention *attention;
    kv_cuda_attention a;
    int64_t n_rows; /* of a kv head */
    named keys, values;
    named_row *sorted;           /* [n_rows] by key */
    named_row *block;            /* [rows] of a block, by value; row is of the block */
    float *on_device, *received; /* [heads][rows][D] */
    kv_cuda_row *host_row;       /* [heads][rows] */
    bool is_infinite;
    uint32_t flags;
} attending;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- the request ---- */

static int by_key(const void *a, const void *b)
{
    const named_row *const x = a, *const y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    if (x->value != y->value) return x->value < y->value ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

static int by_value(const void *a, const void *b)
{
    const named_row *const x = a, *const y = b;
    if (x->value != y->value) return x->value < y->value ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

/* `column` 0 of a pair is the key, 1 the value. */
static kv_status find_named(named *found, const kv_attention *a, int column, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t const n = column == 0 ? a->n_keys : a->n_values;
    const kv_quantizer *const all = column == 0 ? a->keys : a->values;
    KV_TRY(kv_allocate((void **)&found->quantizers, (size_t)n, sizeof *all, err));
    KV_TRY(kv_allocate((void **)&found->place, (size_t)n, sizeof *found->place, err));
    for (int64_t i = 0; i < n; i++) found->place[i] = KV_CUDA_EXACT;
    for (int64_t i = 0; i < a->rows; i++) {
        int32_t const number = a->pair[i][column];
        if (number < 0 || found->place[number] >= 0) continue;
        found->place[number] = (int32_t)found->n;
        found->quantizers[found->n++] = all[number];
    }
done:
    return status;
}

static kv_status sort_rows(attending *d, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_attention *const what = d->attention;
    KV_TRY(find_named(&d->keys, what, 0, err));
    KV_TRY(find_named(&d->values, what, 1, err));
    KV_TRY(kv_allocate((void **)&d->sorted, (size_t)d->n_rows, sizeof *d->sorted, err));
    for (int64_t r = 0; r < d->n_rows; r++) {
        const int32_t *const pair = what->pair[r % what->rows];
        d->sorted[r].key = pair[0] < 0 ? KV_CUDA_EXACT : d->keys.place[pair[0]];
        d->sorted[r].value = pair[1] < 0 ? KV_CUDA_EXACT : d->values.place[pair[1]];
        d->sorted[r].row = (int32_t)r;
    }
    qsort(d->sorted, (size_t)d->n_rows, sizeof *d->sorted, by_key);
done:
    return status;
}

static void check_queries(attending *d)
{
    const kv_layer *const l = d->layer;
    int64_t const n = l->query_heads * d->attention->rows * l->head_dim;
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(d->attention->query[i])) d->flags |= KV_CUDA_NOT_FINITE;
}

static kv_status check_tensors(attending *d, kv_error *err)
{
    kv_status status = KV_OK;
    kv_cuda_wave *const w = &d->a.wave;
    double *sum = NULL;
    float *absmax = NULL;
    KV_TRY(kv_allocate((void **)&sum, (size_t)w->heads, sizeof *sum, err));
    KV_TRY(kv_allocate((void **)&absmax, 2 * (size_t)w->heads, sizeof *absmax, err));
    KV_TRY(kv_cuda_squares_of(sum, absmax, w, w->key, err));
    KV_TRY(kv_cuda_squares_of(sum, absmax + w->heads, w, w->value, err));
    for (int64_t i = 0; i < 2 * w->heads; i++)
        if (isinf(absmax[i])) d->flags |= KV_CUDA_NOT_FINITE;
done:
    kv_free(sum);
    kv_free(absmax);
    return status;
}

/* ---- memory ---- */

static kv_status create(attending *d, const kv_cuda_options *options, const kv_cuda_module *cuda,
                        kv_error *err)
{
    kv_status status = KV_OK;
    const kv_attention *const what = d->attention;
    int64_t const head_dim = d->layer->head_dim;
    kv_cuda_plan plan;
    int64_t free_bytes = 0;
    KV_TRY(cuda->free_bytes(&free_bytes, err));
    kv_attention named_ones = *what;
    named_ones.keys = d->keys.quantizers, named_ones.n_keys = d->keys.n;
    named_ones.values = d->values.quantizers, named_ones.n_values = d->values.n;
    KV_TRY(kv_cuda_plan_attention(&plan, options, d->layer, &named_ones, free_bytes, err));
    kv_cuda_request const request = {.layer = d->layer,
                                     .keys = d->keys.quantizers,
                                     .values = d->values.quantizers,
                                     .n_keys = d->keys.n,
                                     .n_values = d->values.n,
                                     .rows = plan.rows,
                                     .outs = plan.rows,
                                     .queries = d->n_rows};
    KV_TRY(kv_cuda_attention_create(&d->a, cuda, &plan, &request, err));
    size_t const heads = (size_t)plan.heads, rows = (size_t)plan.rows;
    KV_TRY(kv_cuda_take((void **)&d->on_device, &d->a.wave.memory,
                        plan.heads * plan.rows * head_dim, sizeof *d->on_device, err));
    KV_TRY(kv_allocate((void **)&d->block, rows, sizeof *d->block, err));
    KV_TRY(kv_allocate3((void **)&d->received, heads, rows, (size_t)head_dim, sizeof *d->received,
                        err));
    KV_TRY(kv_allocate3((void **)&d->host_row, heads, rows, 1, sizeof *d->host_row, err));
done:
    return status;
}

static void free_all(attending *d)
{
    kv_cuda_attention_free(&d->a);
    kv_free(d->sorted);
    kv_free(d->block);
    kv_free(d->keys.quantizers);
    kv_free(d->keys.place);
    kv_free(d->values.quantizers);
    kv_free(d->values.place);
    kv_free(d->received);
    kv_free(d->host_row);
}

/* ---- a block ---- */

/* Runs of rows that name one scheme of [first, first + n), or the exact tensor with is_exact. */
static void add_runs(kv_cuda_attention *a, const named_row *rows, bool is_key, int64_t first,
                     int64_t n, bool is_exact)
{
    for (int64_t from = 0, to; from < a->rows; from = to) {
        int32_t const scheme = is_key ? rows[from].key : rows[from].value;
        for (to = from; to < a->rows && (is_key ? rows[to].key : rows[to].value) == scheme;) to++;
        if (scheme < 0 ? is_exact : scheme >= first && scheme < first + n)
            kv_cuda_add_chunks(a, scheme < 0 ? KV_CUDA_EXACT : scheme - first, from, to - from);
    }
}

/* All rows of the block, a few schemes at a time. */
static kv_status run_side(attending *d, const kv_cuda_side *side, const named_row *rows,
                          kv_error *err)
{
    kv_status status = KV_OK;
    kv_cuda_attention *const a = &d->a;
    for (int64_t first = 0; first == 0 || first < side->n; first += a->plan.slots) {
        int64_t const n = smaller(a->plan.slots, side->n - first);
        KV_TRY(kv_cuda_start_decode(a, side, first, n, false, err));
        add_runs(a, rows, side->is_key, first, n, first == 0);
        KV_TRY(side->is_key ? kv_cuda_start_logits(a, err) : kv_cuda_start_outputs(a, false, err));
        if (side->n == 0) break;
    }
done:
    return status;
}

static void list_rows(attending *d, const named_row *sorted)
{
    kv_cuda_attention *const a = &d->a;
    kv_visible const seen = kv_layer_visible(d->layer, d->attention->position);
    for (int64_t i = 0; i < a->wave.heads * a->rows; i++) {
        a->host.row_seen[2 * i] = seen.begin, a->host.row_seen[2 * i + 1] = seen.end;
        a->host.row_needle[i] = -1;
    }
    for (int64_t i = 0; i < a->rows; i++) {
        a->host.row_query[i] = sorted[i].row;
        d->block[i] = (named_row){sorted[i].key, sorted[i].value, (int32_t)i};
    }
    qsort(d->block, (size_t)a->rows, sizeof *d->block, by_value);
    for (int64_t i = 0; i < a->rows; i++)
        a->host.out_row[i] = d->block[i].row, a->host.out_exact[i] = -1;
    a->first_token = seen.begin / KV_CUDA_SUM * KV_CUDA_SUM, a->end_token = seen.end;
}

/* Rows of the block, received [heads][outs][D], to where the caller has them. */
static void scatter(float *out, attending *d, const named_row *sorted)
{
    const kv_cuda_attention *const a = &d->a;
    int64_t const D = d->layer->head_dim;
    for (int64_t i = 0; i < a->wave.heads * a->outs; i++) {
        int64_t const head = a->wave.first + i / a->outs;
        int64_t const row = sorted[a->host.out_row[i % a->outs]].row;
        const float *const from = d->received + i * D;
        float *const to = out + (head * d->n_rows + row) * D;
        d->is_infinite |= !d->host_row[i].is_finite;
        for (int64_t c = 0; c < D; c++) {
            to[c] = from[c];
            d->is_infinite |= !isfinite(from[c]);
        }
    }
}

static kv_status run_block(float *out, attending *d, const named_row *sorted, kv_error *err)
{
    kv_status status = KV_OK;
    kv_cuda_attention *const a = &d->a;
    const kv_cuda_module *const cuda = a->wave.cuda;
    int64_t const n = a->wave.heads * a->rows, D = d->layer->head_dim;
    list_rows(d, sorted);
    KV_TRY(kv_cuda_send_rows(a, err));
    KV_TRY(kv_cuda_send_outs(a, err));
    KV_TRY(run_side(d, &a->keys, sorted, err));
    KV_TRY(kv_cuda_start_rows(a, false, err));
    KV_TRY(run_side(d, &a->values, d->block, err));
    KV_TRY(kv_cuda_start_finish(a, d->on_device, NULL, err));
    KV_TRY(cuda->download(d->host_row, a->row, n * (int64_t)sizeof *d->host_row, err));
    KV_TRY(cuda->download(d->received, d->on_device, n * D * (int64_t)sizeof *d->received, err));
    scatter(out, d, sorted);
done:
    return status;
}

/* ---- all ---- */

static kv_status run_wave(float *out, attending *d, int64_t first, kv_error *err)
{
    kv_status status = KV_OK;
    kv_cuda_attention *const a = &d->a;
    size_t const mark = a->wave.memory.n;
    int64_t const step = a->rows, size = d->n_rows * d->layer->head_dim;
    uint32_t flags = 0;
    KV_TRY(kv_cuda_attention_load(a, first, err));
    KV_TRY(a->wave.cuda->upload(a->query, d->attention->query + first * size,
                                a->wave.heads * size * (int64_t)sizeof *a->query, err));
    KV_TRY(kv_cuda_attention_fit(a, err));
    KV_TRY(check_tensors(d, err));
    KV_TRY(kv_cuda_wave_flags(&flags, &a->wave, err));
    d->flags |= flags;
    for (int64_t row = 0; row < d->n_rows && !d->flags; row += step)
        KV_TRY(run_block(out, d, d->sorted + smaller(row, d->n_rows - step), err));
done:
    kv_cuda_give_back(&a->wave.memory, mark);
    return status;
}

/* Numbers that must not be: the CPU finds them, too, and names them. */
static kv_status ask_cpu(const attending *d, int threads, float *out, kv_error *err)
{
    kv_status const status = kv_cpu_attend(d->layer, d->attention, threads, out, err);
    return status != KV_OK ? status
                           : KV_FAIL(err, KV_ENUMERIC,
                                     "the CUDA device met numbers beyond float where the CPU meets "
                                     "none");
}

kv_status kv_cuda_attend_with(const kv_cuda_options *options, const kv_layer *layer,
                              const kv_attention *attention, int threads, float *out, kv_error *err)
{
    kv_status status = KV_OK;
    attending d = {.layer = layer, .attention = attention};
    const kv_cuda_module *cuda = NULL;
    bool is_begun = false;
    KV_TRY(kv_attention_check(layer, attention, err));
    d.n_rows = layer->query_heads / layer->kv_heads * attention->rows;
    if (d.n_rows == 0) return KV_OK;
    check_queries(&d);
    KV_TRY(sort_rows(&d, err));
    KV_TRY(kv_cuda_begin(&cuda, err));
    is_begun = true;
    KV_TRY(create(&d, options, cuda, err));
    for (int64_t first = 0; first < layer->kv_heads && !d.flags && !d.is_infinite;
         first += d.a.plan.heads)
        KV_TRY(run_wave(out, &d, first, err));
done:
    free_all(&d);
    if (is_begun) kv_cuda_end();
    if (status == KV_OK && (d.flags || d.is_infinite)) status = ask_cpu(&d, threads, out, err);
    return status;
}

kv_status kv_cuda_attend(const kv_layer *layer, const kv_attention *attention, int threads,
                         float *out, kv_error *err)
{
    return kv_cuda_attend_with(&(kv_cuda_options){0}, layer, attention, threads, out, err);
}
