/* One group of the dense program; compiled once per instruction set (kernels/cpu/isa.h). A block of
 * sums stays in the first cache while the options pass. */
#include "tuner/frontier_dense.h"

void KV_ISA_NAME(kv_frontier_group)(const kv_dense_group *group)
{
    for (int64_t s = 0; s < group->n_sums; s += KV_DENSE_BLOCK) {
        int64_t *restrict const least = group->after + s;
        int64_t rank[KV_DENSE_BLOCK];
        for (int i = 0; i < KV_DENSE_BLOCK; i++) least[i] = KV_DENSE_NONE, rank[i] = 0;
        for (int64_t j = 0; j < group->n_options; j++) {
            kv_dense_option const o = group->options[j];
            const int64_t *restrict const before = group->before + s - o.size;
            for (int i = 0; i < KV_DENSE_BLOCK; i++) {
                int64_t const error = before[i] + o.error, so_far = least[i];
                rank[i] = error < so_far ? o.rank : rank[i];
                least[i] = error < so_far ? error : so_far;
            }
        }
        for (int i = 0; i < KV_DENSE_BLOCK; i++) group->choice[s + i] = (uint16_t)rank[i];
    }
}
