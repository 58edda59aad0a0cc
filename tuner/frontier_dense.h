/* What frontier_dense.c and frontier_dense_group.c share; not for other modules. */
#ifndef KVANT_TUNER_FRONTIER_DENSE_H
#define KVANT_TUNER_FRONTIER_DENSE_H

#include <stdint.h>

#include "kernels/cpu/isa.h"

enum { KV_DENSE_BLOCK = 256 };
#define KV_DENSE_NONE ((int64_t)1 << 62) /* no assignment has this sum */

typedef struct {
    int64_t size, error, rank; /* rank: position in the group */
} kv_dense_option;

/* after[s] = least before[s - size] + error over the options, of equal ones the first, whose rank
 * is choice[s]; KV_DENSE_NONE where there is none. For s in [0, n_sums), a multiple of
 * KV_DENSE_BLOCK; before is readable, and KV_DENSE_NONE, on both sides of its sums. */
typedef struct {
    int64_t *after;
    uint16_t *choice;
    const int64_t *before;
    const kv_dense_option *options;
    int64_t n_options, n_sums;
} kv_dense_group;

#define KV_ROW(isa) void kv_frontier_group_##isa(const kv_dense_group *group);
KV_ISA_TABLE(KV_ROW)
#undef KV_ROW

#endif
