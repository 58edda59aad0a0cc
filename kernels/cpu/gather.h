/* Which rows of an attention call are worked on together.
 *
 * A row of a kv head names a key and a value quantizer. Rows of one key quantizer make blocks of at
 * most `width` lanes, so that its keys are decoded once per block. A block's lanes lie in slabs,
 * whose logits are whole matrices [tokens][slab width]; a slab's width is a multiple of KV_LANES. A
 * piece is the part of a slab that names one value quantizer: a pair of many rows fills slabs of
 * its own, while what is left of the small ones shares slabs of KV_LANES lanes, of which every
 * piece's product takes all and keeps its own. Which rows meet changes no number. */
#ifndef KVANT_KERNELS_CPU_GATHER_H
#define KVANT_KERNELS_CPU_GATHER_H

#include <stdint.h>

#include "kernels/error.h"

typedef struct {
    int64_t lane, width; /* lanes lane ... lane + width - 1 */
} kv_slab;

typedef struct {
    int64_t slab;     /* of all slabs */
    int64_t from, to; /* lanes of the slab */
    int64_t out_lane; /* where its products begin within the block's */
    int32_t value;
} kv_piece;

typedef struct {
    int64_t lane, width; /* its first lane, all lanes of its slabs */
    int64_t slab, n_slabs, piece, n_pieces;
    int64_t out_width; /* lanes of all products */
    int32_t key;
} kv_row_block;

typedef struct {
    int64_t *row; /* [lanes] which row a lane is, -1 for an idle one */
    kv_slab *slabs;
    kv_piece *pieces; /* a block's, by value */
    kv_row_block *blocks;
    int64_t n_lanes, n_slabs, n_pieces, n_blocks;
    int64_t most_width, most_out_width; /* of a block */
} kv_gathering;

/* Gathers `group` times the rows [rows] that name pair [rows][2]: row h * rows + i names pair i.
 * Blocks are ordered by key. width is a multiple of KV_LANES. */
kv_status kv_gather_rows(kv_gathering *out, const int32_t (*pair)[2], int64_t rows, int64_t group,
                         int64_t width, kv_error *err);
void kv_gathering_free_contents(kv_gathering *gathering);

#endif
