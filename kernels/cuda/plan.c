/* How an evaluation is cut: see plan.h. Sizes are sums of what evaluate.c, attend.c and queries.c
 * take; what is small beside a tensor is covered by the part kept free. */
#include "kernels/cuda/plan.h"

#include "kernels/cuda/fit.h"
#include "kernels/cuda/queries.h"
#include "kernels/memory.h"

/* Of the free memory, in hundredths; the rest is for allocations that come in pages. */
enum { USED_PERCENT = 90 };

/* Of a wave: kernels have a row of blocks for each query head, and a grid has no more rows. */
enum { MOST_HEADS = 65535 };

/* What a call, one head and one row of it take. */
typedef struct {
    const kv_layer *layer;
    int64_t fixed, head, tensor, row, out; /* bytes of all, of one head ... */
    bool needs_all_heads;
    int64_t n_keys, n_values, n_pairs, n_schemes;
} needs;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void add_fits(needs *n, const kv_quantizer *q, int64_t count, int64_t *working)
{
    int64_t const tiles = (n->layer->tokens + KV_CUDA_TOKENS - 1) / KV_CUDA_TOKENS;
    for (int64_t i = 0; i < count; i++) {
        kv_cuda_fit_bytes const bytes = kv_cuda_fit_size(n->layer, &q[i]);
        n->head += bytes.kept + 8 * tiles; /* and the errors of its tiles */
        *working = larger(*working, bytes.working);
        n->needs_all_heads |= kv_quantizer_is_layer_wide(&q[i]) && n->layer->kv_heads > 1;
    }
}

/* RoPE's tables, what a recipe needs, and a page for what is small. */
static int64_t fixed_bytes(const kv_layer *layer)
{
    int64_t const blocks = layer->tokens / KV_ROPE_OFFSETS + 1;
    int64_t const rope = (KV_ROPE_OFFSETS + blocks) * layer->rotary_dim;
    int64_t const recipe = 2 * (layer->tokens + 2 * layer->kv_heads * layer->head_dim);
    return (rope + (layer->source.recipe ? recipe : 0)) * (int64_t)sizeof(double) + 4096;
}

/* working: bytes of a head that are taken only before the fits. */
static needs needs_of(const kv_cuda_plan *plan, const kv_layer *layer, const kv_quantizer *keys,
                      int64_t n_keys, const kv_quantizer *values, int64_t n_values, int64_t working)
{
    int64_t const tensor = layer->tokens * layer->head_dim * (int64_t)sizeof(float);
    needs n = {.layer = layer,
               .head = 2 * tensor,
               .tensor = tensor,
               .n_keys = n_keys,
               .n_values = n_values,
               .n_schemes = n_keys + n_values};
    bool wants_pre_rope = false;
    for (int64_t i = 0; i < n_keys; i++) wants_pre_rope |= keys[i].is_pre_rope;
    if (wants_pre_rope) n.head += tensor;
    add_fits(&n, keys, n_keys, &working);
    add_fits(&n, values, n_values, &working);
    n.head += working;
    n.fixed = fixed_bytes(layer) + (n_keys + n_values) * 2 * (int64_t)sizeof(kv_cuda_scheme);
    n.row = plan->stride * (int64_t)sizeof(float) +
            (int64_t)(sizeof(kv_cuda_row) + sizeof(kv_cuda_comparison)) + 32;
    n.out = plan->splits * layer->head_dim * (int64_t)sizeof(float) +
            layer->head_dim * (int64_t)sizeof(float) + 24;
    return n;
}

/* Tokens that any of the queries sees, from a multiple of a sum on. */
static int64_t span_of(const kv_layer *layer, const int64_t *position, int64_t n)
{
    int64_t low = INT64_MAX, high = 0;
    for (int64_t i = 0; i < n; i++) {
        kv_visible const seen = kv_layer_visible(layer, position[i]);
        low = smaller(low, seen.begin), high = larger(high, seen.end);
    }
    return n > 0 ? high - low / KV_CUDA_SUM * KV_CUDA_SUM : 0;
}

static void cut_tokens(kv_cuda_plan *plan, const kv_cuda_options *options, int64_t span)
{
    plan->split_tokens = options->split_tokens > 0 ? options->split_tokens : KV_CUDA_SPLIT;
    plan->splits = (span + plan->split_tokens - 1) / plan->split_tokens;
    plan->stride = (span + KV_CUDA_TOKENS - 1) / KV_CUDA_TOKENS * KV_CUDA_TOKENS;
}

/* Out rows of a group of key schemes, for each query row; the exact one comes first. */
static int64_t outs_of(const needs *n, int64_t group)
{
    return 1 + smaller(group * n->n_values, n->n_pairs);
}

/* Tensors that are decoded at a time: a group's keys, and as many values. */
static int64_t slots_of(const needs *n, int64_t group)
{
    return n->n_schemes > 0 ? larger(group, 1) : 0;
}

static double bytes_of(const needs *n, int64_t heads, int64_t rows, int64_t group)
{
    double const row = (double)(1 + group) * (double)n->row;
    double const out = (double)outs_of(n, group) * (double)n->out;
    double const decoded = (double)slots_of(n, group) * (double)n->tensor;
    return (double)n->fixed +
           (double)heads * ((double)n->head + decoded + (double)rows * (row + out));
}

static kv_status refuse(const needs *n, double wanted, double room, const char *what, kv_error *err)
{
    const kv_layer *const l = n->layer;
    double const tokens = (double)l->tokens * room / wanted;
    return KV_FAIL(err, KV_EUNSUPPORTED,
                   "%s of %lld tokens and head_dim %lld need %.1f MiB of device memory, %.1f are "
                   "free: about %lld tokens would fit, or fewer schemes at a time",
                   what, (long long)l->tokens, (long long)l->head_dim, wanted / 0x1p20,
                   room / 0x1p20, (long long)tokens);
}

/* The least part that still makes as few parts of n as `most` does. */
static int64_t even_part(int64_t n, int64_t most)
{
    int64_t const parts = most > 0 ? (n + most - 1) / most : 0;
    return parts > 0 ? (n + parts - 1) / parts : 0;
}

/* The most of each that fits: heads, then rows, then key schemes. */
static kv_status fit_in(kv_cuda_plan *plan, const kv_cuda_options *options, const needs *n,
                        int64_t rows, int64_t free_bytes, kv_error *err)
{
    int64_t const given = options->free_bytes > 0 ? options->free_bytes : free_bytes;
    double const room = (double)given / 100 * USED_PERCENT;
    int64_t const least_rows = smaller(rows, KV_CUDA_ROWS), least_group = smaller(n->n_keys, 1);
    int64_t const all = n->layer->kv_heads;
    double const one = bytes_of(n, 1, least_rows, least_group), shared = (double)n->fixed;
    double const wide = shared + (one - shared) * (double)all;
    if (one > room) return refuse(n, one, room, "one kv head", err);
    if (n->needs_all_heads && wide > room)
        return refuse(n, wide, room, "a scale over all kv heads needs them together: they", err);
    int64_t heads = wide > room ? (int64_t)((room - shared) / (one - shared)) : all;
    if (!n->needs_all_heads)
        heads = smaller(heads, larger(MOST_HEADS / (n->layer->query_heads / all), 1));
    if (options->heads > 0 && !n->needs_all_heads) heads = smaller(options->heads, heads);
    plan->heads = heads, plan->rows = rows, plan->group = least_group;
    while (plan->rows > least_rows && bytes_of(n, heads, plan->rows, least_group) > room)
        plan->rows = larger(plan->rows / 2, least_rows);
    while (plan->group < n->n_keys && bytes_of(n, heads, plan->rows, plan->group + 1) <= room)
        plan->group++;
    if (options->rows > 0) plan->rows = smaller(options->rows, plan->rows);
    if (options->group > 0) plan->group = smaller(options->group, plan->group);
    plan->rows = even_part(rows, plan->rows), plan->group = even_part(n->n_keys, plan->group);
    plan->outs = plan->rows * outs_of(n, plan->group);
    plan->slots = slots_of(n, plan->group);
    return KV_OK;
}

kv_status kv_cuda_plan_evaluation(kv_cuda_plan *plan, const kv_cuda_options *options,
                                  const kv_layer *layer, const kv_evaluation *e, int64_t free_bytes,
                                  kv_error *err)
{
    int64_t const rows = layer->query_heads / layer->kv_heads * layer->queries;
    *plan = (kv_cuda_plan){0};
    cut_tokens(plan, options, span_of(layer, layer->query_position, layer->queries));
    needs n = needs_of(plan, layer, e->keys, e->n_keys, e->values, e->n_values,
                       kv_cuda_queries_size(layer));
    n.head += rows * layer->head_dim * (int64_t)sizeof(float); /* queries */
    n.n_pairs = e->n_pairs;
    return fit_in(plan, options, &n, rows, free_bytes, err);
}

kv_status kv_cuda_plan_attention(kv_cuda_plan *plan, const kv_cuda_options *options,
                                 const kv_layer *layer, const kv_attention *a, int64_t free_bytes,
                                 kv_error *err)
{
    int64_t const rows = layer->query_heads / layer->kv_heads * a->rows;
    *plan = (kv_cuda_plan){0};
    cut_tokens(plan, options, span_of(layer, &a->position, 1));
    needs n = needs_of(plan, layer, a->keys, a->n_keys, a->values, a->n_values, 0);
    n.head += rows * layer->head_dim * (int64_t)sizeof(float); /* queries */
    n.n_keys = n.n_values = n.n_pairs = 0;                     /* a row has one of each */
    return fit_in(plan, options, &n, rows, free_bytes, err);
}
