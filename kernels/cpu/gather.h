/* Which rows of an attention call are worked on together.
 *
 * A row of a kv head names a key and a value quantizer. Rows lie in groups of KV_LANES lanes that
 * name one key; a block is several groups of one key, whose tokens are then decoded once per block.
 * A piece is the part of a group that names one value quantizer: most groups are one piece, what is
 * left over of the pairs shares groups, and every piece's product takes the whole group and keeps
 * its own lanes. Which rows meet changes no number. */
#ifndef KVANT_KERNELS_CPU_GATHER_H
#define KVANT_KERNELS_CPU_GATHER_H

#include <stdint.h>

#include "kernels/cpu/kernels.h"
#include "kernels/error.h"

typedef struct {
    int64_t group;    /* of all groups */
    int64_t from, to; /* its lanes */
    int32_t value;
} kv_piece;

typedef struct {
    int64_t group, n_groups, piece, n_pieces;
    int32_t key;
} kv_row_block;

typedef struct {
    int64_t (*row)[KV_LANES]; /* [n_groups] which row a lane is, -1 for an idle one */
    kv_piece *pieces;         /* a block's, by value */
    kv_row_block *blocks;     /* by key */
    int64_t n_groups, n_pieces, n_blocks;
    int64_t most_groups, most_pieces; /* of a block */
} kv_gathering;

/* Gathers `heads` times the rows [rows] that name pair [rows][2]: row h * rows + i names pair i.
 * A block has at most `width` groups. */
kv_status kv_gather_rows(kv_gathering *out, const int32_t (*pair)[2], int64_t rows, int64_t heads,
                         int64_t width, kv_error *err);
void kv_gathering_free_contents(kv_gathering *gathering);

#endif
