/* The CPU backend: see kernels/backend.h for what it computes. */
#ifndef KVANT_KERNELS_CPU_CPU_H
#define KVANT_KERNELS_CPU_CPU_H

#include "kernels/backend.h"
#include "kernels/cpu/isa.h"

KV_EXTERN_C_BEGIN

/* Bytes that the logits of an evaluation may take beside a head's tensors, however small they are.
 */
enum { KV_CPU_ROOM = 8 << 20 };

/* kv_backend.evaluate with the widest instruction set of this processor. */
kv_status kv_cpu_evaluate(const kv_layer *layer, const kv_evaluation *evaluation, int threads,
                          kv_measurements *out, kv_error *err);

/* The same with a chosen one, which the processor must have: for tests and benchmarks. block_rows
 * and block_keys > 0 fix how many queries and key schemes are worked on at a time; 0 lets the
 * backend choose. Neither changes a bit of the results. */
typedef struct {
    kv_isa isa;
    int64_t block_rows, block_keys;
} kv_cpu_options;
kv_status kv_cpu_evaluate_with(const kv_cpu_options *options, const kv_layer *layer,
                               const kv_evaluation *evaluation, int threads, kv_measurements *out,
                               kv_error *err);

/* kv_backend.attend; and with a chosen instruction set and block_rows (block_keys is not used). */
kv_status kv_cpu_attend(const kv_layer *layer, const kv_attention *attention, int threads,
                        float *out, kv_error *err);
kv_status kv_cpu_attend_with(const kv_cpu_options *options, const kv_layer *layer,
                             const kv_attention *attention, int threads, float *out, kv_error *err);

KV_EXTERN_C_END

#endif
