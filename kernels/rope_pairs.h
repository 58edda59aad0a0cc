/* The inner loop of rotary embedding, compiled once per instruction set (cpu/isa.h). Every variant
 * gives the same bits: products and sums in double, each rounded by itself. */
#ifndef KVANT_KERNELS_ROPE_PAIRS_H
#define KVANT_KERNELS_ROPE_PAIRS_H

#include <stdint.h>

#include "kernels/cpu/isa.h"

/* Angles of `count` pairs as cosines and sines: those of a row and those of its block are added;
 * `sign` -1 turns back. */
typedef struct {
    int64_t count;
    const double *cosine, *sine, *block_cosine, *block_sine;
    double sign, magnitude;
} kv_rope_angles;

/* Multiplies the pairs (a[i * stride], b[i * stride]) by magnitude * exp(i angle); stride is 1, or
 * 2 with b = a + 1. */
#define KV_ROW(isa)                                                                                \
    void kv_rope_pairs_##isa(float *a, float *b, int64_t stride, const kv_rope_angles *angles);
KV_ISA_TABLE(KV_ROW)
#undef KV_ROW

#endif
