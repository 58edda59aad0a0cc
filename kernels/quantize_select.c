/* Radix selection of percentiles: see quantize_select.h. */
#include "kernels/quantize_select.h"

#include <math.h>
#include <string.h>

#include "kernels/memory.h"

/* Two neighbouring order statistics for each of two percentiles. */
enum { MAX_TARGETS = 4, KEY_BITS = 32, MAX_DIGIT = 16, COUNTER_BUDGET = 1 << 21 };

/* One order statistic of one tile while it is being found. */
typedef struct {
    int64_t rank;    /* among the elements that share `prefix` */
    uint32_t prefix; /* the key's leading digits */
} target;

struct kv_select {
    kv_tile_grid grid;
    int64_t heads, head_dim, tiles; /* tiles of one head */
    bool is_absolute;
    int n_percentiles, n_targets;
    double p[2];
    int digit, left;   /* bits of this pass's digit, bits still unknown below it */
    bool is_first;     /* nothing known yet: one histogram serves all targets */
    target *targets;   /* [grid.heads][tiles][n_targets] */
    int64_t *elements; /* [grid.heads][tiles] */
    int64_t *counters; /* [heads][tiles][n_targets][1 << widest digit] */
    int widest;
};

static void next_digit(kv_select *s)
{
    s->digit = s->left < s->widest ? s->left : s->widest;
    s->left -= s->digit;
}

kv_status kv_select_create(kv_select **out, const kv_tile_grid *grid, int64_t heads,
                           int64_t head_dim, bool is_absolute, int n, const double *p,
                           kv_error *err)
{
    kv_status status = KV_OK;
    kv_select *s = NULL;
    KV_TRY(kv_allocate((void **)&s, 1, sizeof *s, err));
    s->grid = *grid, s->heads = heads, s->head_dim = head_dim;
    s->tiles = grid->rows * grid->columns;
    s->is_absolute = is_absolute, s->is_first = true;
    s->n_percentiles = n, s->n_targets = 2 * n;
    memcpy(s->p, p, (size_t)n * sizeof *p);
    int64_t const histograms = heads * s->tiles * s->n_targets;
    s->widest = 1;
    while (s->widest < MAX_DIGIT && histograms << (s->widest + 1) <= COUNTER_BUDGET) s->widest++;
    s->left = KEY_BITS;
    next_digit(s);
    size_t const results = (size_t)(grid->heads * s->tiles);
    KV_TRY(kv_allocate3((void **)&s->targets, results, (size_t)s->n_targets, 1, sizeof *s->targets,
                        err));
    KV_TRY(kv_allocate((void **)&s->elements, results, sizeof *s->elements, err));
    KV_TRY(kv_allocate((void **)&s->counters, (size_t)histograms << s->widest, sizeof *s->counters,
                       err));
    *out = s, s = NULL;
done:
    kv_select_free(s);
    return status;
}

void kv_select_free(kv_select *s)
{
    if (!s) return;
    kv_free(s->targets);
    kv_free(s->elements);
    kv_free(s->counters);
    kv_free(s);
}

static int64_t *histogram(const kv_select *s, int64_t head, int64_t tile, int which)
{
    return s->counters + (((head * s->tiles + tile) * s->n_targets + which) << s->widest);
}

void kv_select_count(kv_select *s, int64_t head, int64_t u, int64_t count, const float *z)
{
    int64_t const result_head = s->grid.heads == 1 ? 0 : head;
    int const used = s->digit + s->left;
    int const live = s->is_first ? 1 : s->n_targets;
    uint32_t const mask = (1u << s->digit) - 1u;
    for (int64_t t = 0; t < count; t++) {
        int64_t const row = (u + t) / s->grid.tokens;
        for (int64_t c = 0; c < s->head_dim; c++) {
            float const x = z[t * s->head_dim + c];
            if (x != x) continue;
            uint32_t const key = kv_order_key(x, s->is_absolute);
            int64_t const tile = row * s->grid.columns + c / s->grid.channels;
            const target *const targets =
                s->targets + (result_head * s->tiles + tile) * s->n_targets;
            for (int k = 0; k < live; k++)
                if ((uint32_t)((uint64_t)key >> used) == targets[k].prefix)
                    histogram(s, head, tile, k)[key >> s->left & mask]++;
        }
    }
}

/* Element count and ranks, once the first histogram is there. */
static void set_ranks(const kv_select *s, int64_t tile, target *targets, const int64_t *counts)
{
    int64_t n = 0;
    for (int64_t d = 0; d < (int64_t)1 << s->digit; d++) n += counts[d];
    s->elements[tile] = n;
    for (int k = 0; k < s->n_targets && n > 0; k++) {
        int64_t const below = (int64_t)floor(kv_percentile_place(s->p[k / 2], n));
        int64_t const rank = below + k % 2;
        targets[k].rank = rank < n ? rank : n - 1;
    }
}

static void advance(const kv_select *s, target *t, const int64_t *counts)
{
    uint32_t d = 0;
    while (t->rank >= counts[d]) t->rank -= counts[d++];
    t->prefix = t->prefix << s->digit | d;
}

/* One head's counters lie together. */
static int64_t counters_per_head(const kv_select *s)
{
    return (s->tiles * s->n_targets) << s->widest;
}

static void merge_heads(kv_select *s)
{
    int64_t const n = counters_per_head(s);
    for (int64_t head = 1; s->grid.heads == 1 && head < s->heads; head++)
        for (int64_t i = 0; i < n; i++) s->counters[i] += s->counters[head * n + i];
}

bool kv_select_end_pass(kv_select *s)
{
    merge_heads(s);
    for (int64_t result = 0; result < s->grid.heads * s->tiles; result++) {
        target *const targets = s->targets + result * s->n_targets;
        if (s->is_first) set_ranks(s, result, targets, histogram(s, 0, result, 0));
        for (int k = 0; k < s->n_targets && s->elements[result] > 0; k++)
            advance(s, &targets[k], histogram(s, 0, result, s->is_first ? 0 : k));
    }
    s->is_first = false;
    if (s->left == 0) return true;
    memset(s->counters, 0, (size_t)(s->heads * counters_per_head(s)) * sizeof *s->counters);
    next_digit(s);
    return false;
}

bool kv_select_result(const kv_select *s, int64_t tile, int which, double *value)
{
    int64_t const n = s->elements[tile];
    if (n == 0) return false;
    const target *const t = s->targets + tile * s->n_targets + 2 * which;
    *value = kv_percentile_between(kv_percentile_place(s->p[which], n),
                                   kv_order_value(t[0].prefix, s->is_absolute),
                                   kv_order_value(t[1].prefix, s->is_absolute));
    return true;
}
