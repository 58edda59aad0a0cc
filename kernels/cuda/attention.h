/* Rows of attention on the device, as kv_evaluation and kv_attention both need them: schemes of
 * both sides, lists of rows and chunks, and the launches of logits and outputs.
 *
 * A block has work rows, each a query under a key scheme, whose logits are kept whole, and out
 * rows, each a work row under a value scheme. Chunks are up to KV_CUDA_ROWS rows of one scheme. */
#ifndef KVANT_KERNELS_CUDA_ATTENTION_H
#define KVANT_KERNELS_CUDA_ATTENTION_H

#include "kernels/cuda/plan.h"
#include "kernels/cuda/wave.h"

/* Schemes of one side on the host and on the device. */
typedef struct {
    const kv_quantizer *quantizers; /* [n] */
    bool is_key;
    int64_t n;
    kv_cuda_scheme *schemes, *on_device;
    double *error; /* [n][heads][tiles] on the device */
    int64_t *bits; /* [n] of all heads */
} kv_cuda_side;

/* Lists of a block, on the host or on the device. */
typedef struct {
    kv_cuda_chunk *chunks;
    int32_t *row_query;             /* [rows] */
    int64_t *row_seen, *row_needle; /* [heads][rows][2], [heads][rows] */
    int32_t *row_exact;             /* [rows] */
    int32_t *out_row, *out_exact;   /* [outs] */
} kv_cuda_lists;

typedef struct {
    const kv_layer *layer;
    kv_cuda_plan plan;
    kv_cuda_wave wave;
    kv_cuda_side keys, values;
    int64_t tiles, rows, outs, queries; /* of a head; rows and outs of a block */
    int64_t n_chunks;
    kv_cuda_lists host, device;
    float *query, *logits, *partial, *decoded; /* [heads][queries][D] ... as in device.h */
    kv_cuda_row *row;
    /* What the block's rows see, from a multiple of KV_CUDA_SUM on. */
    int64_t first_token, end_token;
} kv_cuda_attention;

/* What attention is asked for: rows and outs of a block, queries of a kv head. */
typedef struct {
    const kv_layer *layer;
    const kv_quantizer *keys, *values;
    int64_t n_keys, n_values, rows, outs, queries;
} kv_cuda_request;

/* Everything for a plan, with the lists empty. Free with kv_cuda_attention_free after success or
 * failure. */
kv_status kv_cuda_attention_create(kv_cuda_attention *a, const kv_cuda_module *cuda,
                                   const kv_cuda_plan *plan, const kv_cuda_request *request,
                                   kv_error *err);
void kv_cuda_attention_free(kv_cuda_attention *a);

/* Moves to the heads from `first` on. Their queries are the caller's to write into a->query. */
kv_status kv_cuda_attention_load(kv_cuda_attention *a, int64_t first, kv_error *err);

/* Fits the schemes of both sides and sends them. */
kv_status kv_cuda_attention_fit(kv_cuda_attention *a, kv_error *err);

/* Decodes n schemes of a side from `first` on (at most plan.slots), and measures their errors where
 * asked. Their numbers in chunks begin at 0. */
kv_status kv_cuda_start_decode(const kv_cuda_attention *a, const kv_cuda_side *side, int64_t first,
                               int64_t n, bool is_measured, kv_error *err);

/* Lists rows [first, first + n) of a decoded scheme, or of KV_CUDA_EXACT. */
void kv_cuda_add_chunks(kv_cuda_attention *a, int64_t scheme, int64_t first, int64_t n);

/* Sends the lists of work rows, or of out rows. */
kv_status kv_cuda_send_rows(const kv_cuda_attention *a, kv_error *err);
kv_status kv_cuda_send_outs(const kv_cuda_attention *a, kv_error *err);

/* Sends the chunks that were added since the last launch and starts the kernel; zeroes_small as in
 * device.h. */
kv_status kv_cuda_start_logits(kv_cuda_attention *a, kv_error *err);
kv_status kv_cuda_start_outputs(kv_cuda_attention *a, bool zeroes_small, kv_error *err);

/* kv_cuda_rows of all work rows. */
kv_status kv_cuda_start_rows(const kv_cuda_attention *a, bool want_top, kv_error *err);

/* kv_cuda_finish of all out rows: attention and square as there, either NULL. */
kv_status kv_cuda_start_finish(const kv_cuda_attention *a, float *attention, double *square,
                               kv_error *err);

#endif
