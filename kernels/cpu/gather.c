/* Rows of one key quantizer together, by value quantizer: see gather.h. */
#include "kernels/cpu/gather.h"

#include <stdlib.h>

#include "kernels/memory.h"

typedef struct {
    int32_t key, value;
    int64_t row;
} named_row;

/* Rows of the sorted list that name one pair. */
typedef struct {
    int64_t first, n;
} run;

/* What is being gathered. */
typedef struct {
    kv_gathering *to;
    const named_row *sorted;
    int64_t rows, heads, width;
} gatherer;

static int ascending(const void *a, const void *b)
{
    const named_row *const x = a, *const y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    if (x->value != y->value) return x->value < y->value ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

/* How many of a run's n lanes get groups of their own; up to half a group may share one. */
static int64_t own_lanes(int64_t n)
{
    return n % KV_LANES > KV_LANES / 2 ? n : n / KV_LANES * KV_LANES;
}

static kv_row_block *open_block(gatherer *g, int32_t key)
{
    kv_gathering *const to = g->to;
    kv_row_block *const block = &to->blocks[to->n_blocks++];
    *block = (kv_row_block){.group = to->n_groups, .piece = to->n_pieces, .key = key};
    return block;
}

/* A group of idle lanes in the last block, or in a new one where that is full. */
static void open_group(gatherer *g)
{
    kv_gathering *const to = g->to;
    kv_row_block *block = &to->blocks[to->n_blocks - 1];
    if (block->n_groups >= g->width) block = open_block(g, block->key);
    for (int i = 0; i < KV_LANES; i++) to->row[to->n_groups][i] = -1;
    to->n_groups++, block->n_groups++;
    if (block->n_groups > to->most_groups) to->most_groups = block->n_groups;
}

/* Lanes [skipped, skipped + n) of a run become lanes from ... of the last group. */
static void add_piece(gatherer *g, const run *r, int64_t skipped, int64_t n, int64_t from)
{
    kv_gathering *const to = g->to;
    kv_row_block *const block = &to->blocks[to->n_blocks - 1];
    int64_t const group = to->n_groups - 1;
    kv_piece const piece = {group, from, from + n, g->sorted[r->first].value};
    int64_t at = to->n_pieces++; /* sorted by value as it comes in */
    for (; at > block->piece && to->pieces[at - 1].value > piece.value; at--)
        to->pieces[at] = to->pieces[at - 1];
    to->pieces[at] = piece;
    block->n_pieces++;
    if (block->n_pieces > to->most_pieces) to->most_pieces = block->n_pieces;
    for (int64_t i = 0; i < n; i++) {
        int64_t const lane = skipped + i; /* query heads one after the other */
        to->row[group][from + i] = lane / r->n * g->rows + g->sorted[r->first + lane % r->n].row;
    }
}

static void add_own(gatherer *g, const run *r)
{
    int64_t const n = own_lanes(r->n * g->heads);
    for (int64_t done = 0; done < n; done += KV_LANES) {
        open_group(g);
        add_piece(g, r, done, n - done < KV_LANES ? n - done : KV_LANES, 0);
    }
}

/* What is left of the runs of one key shares groups, each run whole. */
static void add_shared(gatherer *g, const run *runs, int64_t n)
{
    int64_t used = KV_LANES;
    for (int64_t i = 0; i < n; i++) {
        int64_t const all = runs[i].n * g->heads, own = own_lanes(all), left = all - own;
        if (left <= 0) continue;
        if (used + left > KV_LANES) {
            open_group(g);
            used = 0;
        }
        add_piece(g, &runs[i], own, left, used);
        used += left;
    }
}

static int64_t find_runs(run *runs, const named_row *sorted, int64_t rows)
{
    int64_t n = 0;
    for (int64_t i = 0; i < rows; i++) {
        bool const is_same =
            i > 0 && sorted[i].key == sorted[i - 1].key && sorted[i].value == sorted[i - 1].value;
        if (!is_same) runs[n++] = (run){i, 0};
        runs[n - 1].n++;
    }
    return n;
}

/* Each run opens at most one group that is not full, and one more to share. */
static kv_status allocate(kv_gathering *to, int64_t lanes, int64_t runs, kv_error *err)
{
    kv_status status = KV_OK;
    size_t const groups = (size_t)(lanes / KV_LANES + 2 * runs), pieces = groups + (size_t)runs;
    KV_TRY(kv_allocate((void **)&to->row, groups, sizeof *to->row, err));
    KV_TRY(kv_allocate((void **)&to->pieces, pieces, sizeof *to->pieces, err));
    KV_TRY(kv_allocate((void **)&to->blocks, groups, sizeof *to->blocks, err));
done:
    return status;
}

kv_status kv_gather_rows(kv_gathering *out, const int32_t (*pair)[2], int64_t rows, int64_t heads,
                         int64_t width, kv_error *err)
{
    kv_status status = KV_OK;
    kv_gathering made = {0};
    named_row *sorted = NULL;
    run *runs = NULL;
    gatherer g = {.to = &made, .rows = rows, .heads = heads, .width = width};
    KV_TRY(kv_allocate((void **)&sorted, (size_t)rows, sizeof *sorted, err));
    KV_TRY(kv_allocate((void **)&runs, (size_t)rows, sizeof *runs, err));
    for (int64_t i = 0; i < rows; i++) sorted[i] = (named_row){pair[i][0], pair[i][1], i};
    qsort(sorted, (size_t)rows, sizeof *sorted, ascending);
    g.sorted = sorted;
    int64_t const n = find_runs(runs, sorted, rows);
    KV_TRY(allocate(&made, rows * heads, n, err));
    for (int64_t first = 0, end; first < n; first = end) {
        int32_t const key = sorted[runs[first].first].key;
        for (end = first; end < n && sorted[runs[end].first].key == key;) end++;
        open_block(&g, key);
        for (int64_t i = first; i < end; i++) add_own(&g, &runs[i]);
        add_shared(&g, runs + first, end - first);
    }
    *out = made, made = (kv_gathering){0};
done:
    kv_free(sorted);
    kv_free(runs);
    kv_gathering_free_contents(&made);
    return status;
}

void kv_gathering_free_contents(kv_gathering *gathering)
{
    kv_free(gathering->row);
    kv_free(gathering->pieces);
    kv_free(gathering->blocks);
    *gathering = (kv_gathering){0};
}
