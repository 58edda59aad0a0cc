/* Percentiles of every tile of a tensor without a copy of it: radix selection over several passes.
 *
 * A float's bits, made monotone, are found digit by digit from the top: each pass counts the next
 * digit among the elements that share the digits found so far. Counting is exact, so the result
 * does not depend on the order of anything. The digit's width follows from how many counters fit
 * in a fixed budget.
 * Keys, and percentiles between two neighbours: order.h. */
#ifndef KVANT_KERNELS_QUANTIZE_SELECT_H
#define KVANT_KERNELS_QUANTIZE_SELECT_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/error.h"
#include "kernels/order.h"

/* Tiles of `tokens` x `channels` over [span][head_dim]: rows x columns of them per head; heads is
 * 1 where a tile spans all heads. */
typedef struct {
    int64_t heads, tokens, channels, rows, columns;
} kv_tile_grid;

typedef struct kv_select kv_select;

/* Percentiles p[n] (n 1 or 2) of x, or of |x|, in each tile of `grid`; data comes from `heads`. */
kv_status kv_select_create(kv_select **out, const kv_tile_grid *grid, int64_t heads,
                           int64_t head_dim, bool is_absolute, int n, const double *p,
                           kv_error *err);
void kv_select_free(kv_select *select);

/* Counts z [count][head_dim], tokens u ...; NaN elements are left out. One thread per head. */
void kv_select_count(kv_select *select, int64_t head, int64_t u, int64_t count, const float *z);

/* Ends a pass; true when the percentiles are known. */
bool kv_select_end_pass(kv_select *select);

/* Percentile `which` of a tile (of grid.heads * rows * columns); false for one without elements. */
bool kv_select_result(const kv_select *select, int64_t tile, int which, double *value);

#endif
