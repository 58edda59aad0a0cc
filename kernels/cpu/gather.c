/* Rows of one key quantizer together, by value quantizer: see gather.h. */
#include "kernels/cpu/gather.h"

#include <stdlib.h>

#include "kernels/cpu/kernels.h"
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
    int64_t rows, group, width;
} gatherer;

static int ascending(const void *a, const void *b)
{
    const named_row *const x = a, *const y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    if (x->value != y->value) return x->value < y->value ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

static int64_t round_up(int64_t x)
{
    return (x + KV_LANES - 1) / KV_LANES * KV_LANES;
}

/* How many of a run's n lanes get slabs of their own; up to half a slab may share one. */
static int64_t own_lanes(int64_t n)
{
    return n % KV_LANES > KV_LANES / 2 ? n : n / KV_LANES * KV_LANES;
}

static void open_block(gatherer *g, int32_t key)
{
    kv_gathering *const to = g->to;
    to->blocks[to->n_blocks++] =
        (kv_row_block){.lane = to->n_lanes, .slab = to->n_slabs, .piece = to->n_pieces, .key = key};
}

static kv_row_block *last_block(const gatherer *g)
{
    return &g->to->blocks[g->to->n_blocks - 1];
}

/* A slab of idle lanes in the last block. */
static void open_slab(gatherer *g, int64_t width)
{
    kv_gathering *const to = g->to;
    kv_row_block *const block = last_block(g);
    for (int64_t i = 0; i < width; i++) to->row[to->n_lanes + i] = -1;
    to->slabs[to->n_slabs++] = (kv_slab){to->n_lanes, width};
    to->n_lanes += width, block->width += width, block->n_slabs++;
    if (block->width > to->most_width) to->most_width = block->width;
}

/* Lanes [skipped, skipped + n) of a run become lanes from ... of the last slab. */
static void add_piece(gatherer *g, const run *r, int64_t skipped, int64_t n, int64_t from)
{
    kv_gathering *const to = g->to;
    kv_row_block *const block = last_block(g);
    const kv_slab *const slab = &to->slabs[to->n_slabs - 1];
    kv_piece const piece = {.slab = to->n_slabs - 1,
                            .from = from,
                            .to = from + n,
                            .out_lane = block->out_width,
                            .value = g->sorted[r->first].value};
    int64_t at = to->n_pieces++; /* sorted by value as it comes in */
    for (; at > block->piece && to->pieces[at - 1].value > piece.value; at--)
        to->pieces[at] = to->pieces[at - 1];
    to->pieces[at] = piece;
    block->n_pieces++, block->out_width += slab->width;
    if (block->out_width > to->most_out_width) to->most_out_width = block->out_width;
    for (int64_t i = 0; i < n; i++) {
        int64_t const lane = skipped + i; /* query heads one after the other */
        to->row[slab->lane + from + i] =
            lane / r->n * g->rows + g->sorted[r->first + lane % r->n].row;
    }
}

static void add_own(gatherer *g, const run *r)
{
    int64_t const n = own_lanes(r->n * g->group);
    for (int64_t done = 0, take; done < n; done += take) {
        if (last_block(g)->width >= g->width) open_block(g, last_block(g)->key);
        int64_t const room = g->width - last_block(g)->width;
        take = n - done < room ? n - done : room;
        open_slab(g, round_up(take));
        add_piece(g, r, done, take, 0);
    }
}

/* What is left of the runs of one key shares slabs of KV_LANES lanes, each run whole. */
static void add_shared(gatherer *g, const run *runs, int64_t n)
{
    int64_t used = KV_LANES;
    for (int64_t i = 0; i < n; i++) {
        int64_t const all = runs[i].n * g->group, own = own_lanes(all), left = all - own;
        if (left <= 0) continue;
        if (used + left > KV_LANES) {
            if (last_block(g)->width >= g->width) open_block(g, last_block(g)->key);
            open_slab(g, KV_LANES);
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

static kv_status allocate(kv_gathering *to, int64_t rows, int64_t runs, kv_error *err)
{
    kv_status status = KV_OK;
    size_t const slabs = (size_t)(rows / KV_LANES + 2 * runs), pieces = slabs + (size_t)runs;
    KV_TRY(kv_allocate3((void **)&to->row, slabs, KV_LANES, 1, sizeof *to->row, err));
    KV_TRY(kv_allocate((void **)&to->slabs, slabs, sizeof *to->slabs, err));
    KV_TRY(kv_allocate((void **)&to->pieces, pieces, sizeof *to->pieces, err));
    KV_TRY(kv_allocate((void **)&to->blocks, slabs, sizeof *to->blocks, err));
done:
    return status;
}

kv_status kv_gather_rows(kv_gathering *out, const int32_t (*pair)[2], int64_t rows, int64_t group,
                         int64_t width, kv_error *err)
{
    kv_status status = KV_OK;
    kv_gathering made = {0};
    named_row *sorted = NULL;
    run *runs = NULL;
    gatherer g = {.to = &made, .rows = rows, .group = group, .width = width};
    KV_TRY(kv_allocate((void **)&sorted, (size_t)rows, sizeof *sorted, err));
    KV_TRY(kv_allocate((void **)&runs, (size_t)rows, sizeof *runs, err));
    for (int64_t i = 0; i < rows; i++) sorted[i] = (named_row){pair[i][0], pair[i][1], i};
    qsort(sorted, (size_t)rows, sizeof *sorted, ascending);
    g.sorted = sorted;
    int64_t const n = find_runs(runs, sorted, rows);
    KV_TRY(allocate(&made, rows * group, n, err));
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
    kv_free(gathering->slabs);
    kv_free(gathering->pieces);
    kv_free(gathering->blocks);
    *gathering = (kv_gathering){0};
}
