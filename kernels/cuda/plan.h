/* How an evaluation is cut so that it fits into the device's memory: heads of a wave, query rows of
 * a block, key schemes of a group. No result depends on it; splits of tokens, on which outputs
 * depend, are always KV_CUDA_SPLIT long (but for tests). */
#ifndef KVANT_KERNELS_CUDA_PLAN_H
#define KVANT_KERNELS_CUDA_PLAN_H

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.h"

/* Tokens of one split of an output; up to so many the sums are the CPU's, bit for bit. */
enum { KV_CUDA_SPLIT = 2048 };

typedef struct {
    int64_t heads, rows, group;           /* of a wave, of a block, of a group */
    int64_t slots;                        /* tensors of each head that are decoded at a time */
    int64_t splits, split_tokens, stride; /* splits of a block, tokens of a row of logits */
    int64_t outs;                         /* most out rows of a group */
} kv_cuda_plan;

/* KV_EUNSUPPORTED where not even one head fits, with what would. free_bytes is the device's. */
kv_status kv_cuda_plan_evaluation(kv_cuda_plan *out, const kv_cuda_options *options,
                                  const kv_layer *layer, const kv_evaluation *evaluation,
                                  int64_t free_bytes, kv_error *err);
/* The same for kv_attention; every quantizer is named by a row. rows is of the sorted rows of one
 * head, group is not used. */
kv_status kv_cuda_plan_attention(kv_cuda_plan *out, const kv_cuda_options *options,
                                 const kv_layer *layer, const kv_attention *attention,
                                 int64_t free_bytes, kv_error *err);

#endif
