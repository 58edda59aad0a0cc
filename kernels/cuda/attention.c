/* Rows of attention on the device: see attention.h. */
#include "kernels/cuda/attention.h"

#include "kernels/cuda/fit.h"
#include "kernels/memory.h"

/* ---- memory ---- */

static int64_t at_least_one(int64_t x)
{
    return x > 1 ? x : 1;
}

static kv_status take(void *out, kv_cuda_attention *a, int64_t rows, int64_t columns, size_t size,
                      kv_error *err)
{
    return kv_cuda_take(out, &a->wave.memory, at_least_one(rows) * at_least_one(columns), size,
                        err);
}

static kv_status make_side(kv_cuda_side *s, kv_cuda_attention *a, kv_error *err)
{
    kv_status status = KV_OK;
    KV_TRY(kv_allocate((void **)&s->schemes, (size_t)s->n, sizeof *s->schemes, err));
    KV_TRY(kv_allocate((void **)&s->bits, (size_t)s->n, sizeof *s->bits, err));
    KV_TRY(take(&s->on_device, a, s->n, 1, sizeof *s->on_device, err));
    KV_TRY(take(&s->error, a, a->plan.heads * s->n, a->tiles, sizeof *s->error, err));
done:
    return status;
}

/* Most chunks of a launch: every scheme, and the exact tensor, may have one that is not full. */
static int64_t most_chunks(const kv_cuda_attention *a)
{
    return (a->rows + a->outs) / KV_CUDA_ROWS + a->keys.n + a->values.n + 2;
}

static kv_status make_host_lists(kv_cuda_attention *a, kv_error *err)
{
    kv_status status = KV_OK;
    kv_cuda_lists *const h = &a->host;
    size_t const heads = (size_t)a->plan.heads, rows = (size_t)a->rows, outs = (size_t)a->outs;
    KV_TRY(kv_allocate((void **)&h->chunks, (size_t)most_chunks(a), sizeof *h->chunks, err));
    KV_TRY(kv_allocate((void **)&h->row_query, rows, sizeof *h->row_query, err));
    KV_TRY(kv_allocate((void **)&h->row_exact, rows, sizeof *h->row_exact, err));
    KV_TRY(kv_allocate3((void **)&h->row_seen, heads, rows, 2, sizeof *h->row_seen, err));
    KV_TRY(kv_allocate3((void **)&h->row_needle, heads, rows, 1, sizeof *h->row_needle, err));
    KV_TRY(kv_allocate((void **)&h->out_row, outs, sizeof *h->out_row, err));
    KV_TRY(kv_allocate((void **)&h->out_exact, outs, sizeof *h->out_exact, err));
done:
    return status;
}

static kv_status make_device_lists(kv_cuda_attention *a, kv_error *err)
{
    kv_status status = KV_OK;
    kv_cuda_lists *const d = &a->device;
    int64_t const heads = a->plan.heads, rows = a->rows, outs = a->outs;
    KV_TRY(take(&d->chunks, a, most_chunks(a), 1, sizeof *d->chunks, err));
    KV_TRY(take(&d->row_query, a, rows, 1, sizeof *d->row_query, err));
    KV_TRY(take(&d->row_exact, a, rows, 1, sizeof *d->row_exact, err));
    KV_TRY(take(&d->row_seen, a, heads * rows, 2, sizeof *d->row_seen, err));
    KV_TRY(take(&d->row_needle, a, heads, rows, sizeof *d->row_needle, err));
    KV_TRY(take(&d->out_row, a, outs, 1, sizeof *d->out_row, err));
    KV_TRY(take(&d->out_exact, a, outs, 1, sizeof *d->out_exact, err));
done:
    return status;
}

kv_status kv_cuda_attention_create(kv_cuda_attention *a, const kv_cuda_module *cuda,
                                   const kv_cuda_plan *plan, const kv_cuda_request *r,
                                   kv_error *err)
{
    kv_status status = KV_OK;
    const kv_layer *const layer = r->layer;
    int64_t const heads = plan->heads, head_dim = layer->head_dim;
    bool wants_pre_rope = false;
    *a = (kv_cuda_attention){.layer = layer,
                             .plan = *plan,
                             .keys = {.quantizers = r->keys, .is_key = true, .n = r->n_keys},
                             .values = {.quantizers = r->values, .n = r->n_values},
                             .tiles = (layer->tokens + KV_CUDA_TOKENS - 1) / KV_CUDA_TOKENS,
                             .rows = r->rows,
                             .outs = r->outs,
                             .queries = r->queries};
    for (int64_t i = 0; i < r->n_keys; i++) wants_pre_rope |= r->keys[i].is_pre_rope;
    KV_TRY(kv_cuda_wave_create(&a->wave, cuda, layer, heads, wants_pre_rope, err));
    KV_TRY(make_side(&a->keys, a, err));
    KV_TRY(make_side(&a->values, a, err));
    KV_TRY(make_host_lists(a, err));
    KV_TRY(make_device_lists(a, err));
    KV_TRY(take(&a->query, a, heads * r->queries, head_dim, sizeof *a->query, err));
    KV_TRY(take(&a->logits, a, heads * r->rows, plan->stride, sizeof *a->logits, err));
    KV_TRY(take(&a->row, a, heads, r->rows, sizeof *a->row, err));
    KV_TRY(take(&a->decoded, a, heads * plan->slots, layer->tokens * head_dim, sizeof *a->decoded,
                err));
    KV_TRY(take(&a->partial, a, heads * r->outs * plan->splits, head_dim, sizeof *a->partial, err));
done:
    return status;
}

void kv_cuda_attention_free(kv_cuda_attention *a)
{
    const kv_cuda_lists *const h = &a->host;
    kv_cuda_wave_free(&a->wave);
    void *const arrays[] = {h->chunks,     h->row_query,      h->row_exact,  h->row_seen,
                            h->row_needle, h->out_row,        h->out_exact,  a->keys.schemes,
                            a->keys.bits,  a->values.schemes, a->values.bits};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) kv_free(arrays[i]);
}

/* ---- heads and fits ---- */

static kv_status send(const kv_cuda_attention *a, void *to, const void *from, int64_t n,
                      size_t size, kv_error *err)
{
    return a->wave.cuda->upload(to, from, n * (int64_t)size, err);
}

kv_status kv_cuda_attention_load(kv_cuda_attention *a, int64_t first, kv_error *err)
{
    int64_t const left = a->layer->kv_heads - first;
    return kv_cuda_wave_load(&a->wave, first, left < a->plan.heads ? left : a->plan.heads, err);
}

static kv_status fit_side(kv_cuda_side *s, kv_cuda_attention *a, kv_error *err)
{
    kv_status status = KV_OK;
    for (int64_t i = 0; i < s->n; i++) {
        int64_t bits = 0;
        const kv_quantizer *const q = &s->quantizers[i];
        kv_tensor const tensor = !s->is_key ? KV_VALUE : q->is_pre_rope ? KV_KEY_PRE_ROPE : KV_KEY;
        KV_TRY(kv_cuda_fit(&s->schemes[i], &bits, &a->wave, q, tensor, err));
        s->bits[i] += bits;
    }
    KV_TRY(send(a, s->on_device, s->schemes, s->n, sizeof *s->schemes, err));
done:
    return status;
}

kv_status kv_cuda_attention_fit(kv_cuda_attention *a, kv_error *err)
{
    kv_status const status = fit_side(&a->keys, a, err);
    return status == KV_OK ? fit_side(&a->values, a, err) : status;
}

kv_status kv_cuda_start_decode(const kv_cuda_attention *a, const kv_cuda_side *side, int64_t first,
                               int64_t n, bool is_measured, kv_error *err)
{
    const kv_cuda_wave *const w = &a->wave;
    kv_cuda_decode const arguments = {
        .values = a->decoded,
        .error = is_measured ? side->error + first * w->heads * a->tiles : NULL,
        .x = side->is_key ? w->key : w->value,
        .x_pre_rope = w->key_pre_rope,
        .schemes = side->on_device + first,
        .n = n,
        .heads = w->heads,
        .tokens = a->layer->tokens,
        .head_dim = a->layer->head_dim,
        .rope = w->rope,
        .flags = w->flags};
    return w->cuda->decode(&arguments, err);
}

/* ---- rows ---- */

void kv_cuda_add_chunks(kv_cuda_attention *a, int64_t scheme, int64_t first, int64_t n)
{
    for (int64_t done = 0; done < n; done += KV_CUDA_ROWS) {
        int64_t const left = n - done;
        a->host.chunks[a->n_chunks++] =
            (kv_cuda_chunk){.scheme = (int32_t)scheme,
                            .n = (int32_t)(left < KV_CUDA_ROWS ? left : KV_CUDA_ROWS),
                            .first = first + done};
    }
}

kv_status kv_cuda_send_outs(const kv_cuda_attention *a, kv_error *err)
{
    const kv_cuda_lists *const h = &a->host, *const d = &a->device;
    kv_status const status = send(a, d->out_row, h->out_row, a->outs, sizeof *h->out_row, err);
    if (status != KV_OK) return status;
    return send(a, d->out_exact, h->out_exact, a->outs, sizeof *h->out_exact, err);
}

kv_status kv_cuda_send_rows(const kv_cuda_attention *a, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_cuda_lists *const h = &a->host, *const d = &a->device;
    int64_t const rows = a->rows, all = a->wave.heads * rows;
    KV_TRY(send(a, d->row_query, h->row_query, rows, sizeof *h->row_query, err));
    KV_TRY(send(a, d->row_exact, h->row_exact, rows, sizeof *h->row_exact, err));
    KV_TRY(send(a, d->row_seen, h->row_seen, 2 * all, sizeof *h->row_seen, err));
    KV_TRY(send(a, d->row_needle, h->row_needle, all, sizeof *h->row_needle, err));
done:
    return status;
}

static kv_status send_chunks(kv_cuda_attention *a, int64_t *n, kv_error *err)
{
    *n = a->n_chunks, a->n_chunks = 0;
    return send(a, a->device.chunks, a->host.chunks, *n, sizeof *a->host.chunks, err);
}

kv_status kv_cuda_start_logits(kv_cuda_attention *a, kv_error *err)
{
    int64_t n;
    kv_status const status = send_chunks(a, &n, err);
    kv_cuda_logits const arguments = {.logits = a->logits,
                                      .key = a->wave.key,
                                      .decoded = a->decoded,
                                      .query = a->query,
                                      .row_query = a->device.row_query,
                                      .chunks = a->device.chunks,
                                      .n_chunks = n,
                                      .rows = a->rows,
                                      .queries = a->queries,
                                      .heads = a->wave.heads,
                                      .tokens = a->layer->tokens,
                                      .head_dim = a->layer->head_dim,
                                      .first_token = a->first_token,
                                      .end_token = a->end_token,
                                      .stride = a->plan.stride,
                                      .softmax_scale = (float)a->layer->softmax_scale};
    return status == KV_OK ? a->wave.cuda->logits(&arguments, err) : status;
}

kv_status kv_cuda_start_outputs(kv_cuda_attention *a, bool zeroes_small, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t n;
    KV_TRY(send_chunks(a, &n, err));
    kv_cuda_outputs const arguments = {.partial = a->partial,
                                       .value = a->wave.value,
                                       .decoded = a->decoded,
                                       .logits = a->logits,
                                       .row = a->row,
                                       .row_seen = a->device.row_seen,
                                       .out_row = a->device.out_row,
                                       .chunks = a->device.chunks,
                                       .n_chunks = n,
                                       .rows = a->rows,
                                       .outs = a->outs,
                                       .heads = a->wave.heads,
                                       .tokens = a->layer->tokens,
                                       .head_dim = a->layer->head_dim,
                                       .first_token = a->first_token,
                                       .end_token = a->end_token,
                                       .stride = a->plan.stride,
                                       .splits = a->plan.splits,
                                       .split_tokens = a->plan.split_tokens,
                                       .zeroes_small = zeroes_small};
    KV_TRY(a->wave.cuda->outputs(&arguments, err));
done:
    return status;
}

kv_status kv_cuda_start_rows(const kv_cuda_attention *a, bool want_top, kv_error *err)
{
    kv_cuda_rows const arguments = {.out = a->row,
                                    .logits = a->logits,
                                    .row_seen = a->device.row_seen,
                                    .row_needle = a->device.row_needle,
                                    .heads = a->wave.heads,
                                    .rows = a->rows,
                                    .first_token = a->first_token,
                                    .stride = a->plan.stride,
                                    .want_top = want_top};
    return a->wave.cuda->rows(&arguments, err);
}

kv_status kv_cuda_start_finish(const kv_cuda_attention *a, float *attention, double *square,
                               kv_error *err)
{
    kv_cuda_finish const arguments = {.attention = attention,
                                      .square = square,
                                      .partial = a->partial,
                                      .row = a->row,
                                      .out_row = a->device.out_row,
                                      .out_exact = a->device.out_exact,
                                      .heads = a->wave.heads,
                                      .rows = a->rows,
                                      .outs = a->outs,
                                      .splits = a->plan.splits,
                                      .head_dim = a->layer->head_dim};
    return a->wave.cuda->finish(&arguments, err);
}
