/* Attention of the caller's queries on the CPU: see kv_attention in kernels/backend.h.
 *
 * Heads are taken in waves of as many as there are threads: first each is loaded and the quantizers
 * that rows name are fitted, by heads or, with fewer heads than threads, by quantizers; then the
 * blocks of rows (gather.h) of all its heads are worked on, each by one thread. A block's logits
 * stay whole and in cache. Keys and values pass in tiles of KV_ATTEND_TILE tokens at fixed
 * places, and every sum runs in token order within a tile and then tile by tile, so that a row's
 * bits depend on nothing but the row. */
#include <math.h>
#include <omp.h>

#include "kernels/cpu/attend.h"
#include "kernels/cpu/cpu.h"
#include "kernels/memory.h"

enum { LOGIT_BYTES = 1 << 21, MOST_GROUPS = 12 }; /* of a block */

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t round_up(int64_t x, int64_t step)
{
    return (x + step - 1) / step * step;
}

/* ---- the request ---- */

/* The quantizers that some row names; `column` 0 of a pair is the key, 1 the value. */
static kv_status find_named(kv_attend_side *n, const kv_attention *a, int column, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t const count = column == 0 ? a->n_keys : a->n_values;
    const kv_quantizer *const all = column == 0 ? a->keys : a->values;
    KV_TRY(kv_allocate((void **)&n->quantizers, (size_t)count, sizeof *n->quantizers, err));
    KV_TRY(kv_allocate((void **)&n->place, (size_t)count, sizeof *n->place, err));
    KV_TRY(kv_allocate((void **)&n->layer_fits, (size_t)count, sizeof *n->layer_fits, err));
    for (int64_t i = 0; i < count; i++) n->place[i] = -1;
    for (int64_t i = 0; i < a->rows; i++)
        if (a->pair[i][column] >= 0) n->place[a->pair[i][column]] = 0;
    for (int64_t i = 0; i < count; i++) {
        if (n->place[i] < 0) continue;
        n->place[i] = (int32_t)n->side.n;
        n->quantizers[n->side.n++] = all[i];
    }
    n->side.quantizers = n->quantizers, n->side.is_key = column == 0;
done:
    return status;
}

static void free_named(kv_attend_side *n)
{
    if (n->layer_fits) kv_fits_free(n->layer_fits, n->side.n);
    kv_free(n->layer_fits);
    kv_free(n->quantizers);
    kv_free(n->place);
}

/* Groups of a block: their logits stay in cache, and every thread finds a few blocks. */
static int64_t block_groups(const kv_attend_plan *p, const kv_cpu_options *options)
{
    int64_t const at_once = smaller(p->layer->kv_heads, p->threads);
    int64_t const share = p->rows * at_once / (4 * p->threads) / KV_LANES;
    int64_t const fitting = LOGIT_BYTES / (p->span * KV_LANES * (int64_t)sizeof(float));
    if (options->block_rows > 0) return (options->block_rows + KV_LANES - 1) / KV_LANES;
    return larger(smaller(smaller(fitting, share), MOST_GROUPS), 1);
}

static void see(kv_attend_plan *p)
{
    const kv_layer *const l = p->layer;
    kv_visible const seen = kv_layer_visible(l, p->attention->position);
    p->first = seen.begin, p->end = seen.end;
    p->origin = p->first / KV_ROW_STEP * KV_ROW_STEP;
    p->span = round_up(p->end, KV_ROW_STEP) - p->origin;
}

static kv_status make_plan(kv_attend_plan *p, const kv_cpu_options *options, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_layer *const l = p->layer;
    const kv_attention *const a = p->attention;
    see(p);
    KV_TRY(kv_attention_check(l, a, err));
    int64_t const group = l->query_heads / l->kv_heads;
    p->rows = group * a->rows, p->panels = (l->head_dim + KV_LANES - 1) / KV_LANES;
    KV_TRY(find_named(&p->keys, a, 0, err));
    KV_TRY(find_named(&p->values, a, 1, err));
    for (int64_t i = 0; i < p->keys.side.n; i++)
        p->wants_pre_rope |= p->keys.quantizers[i].is_pre_rope;
    KV_TRY(kv_allocate((void **)&p->pair, (size_t)a->rows, sizeof *p->pair, err));
    for (int64_t i = 0; i < a->rows; i++) {
        const int32_t *const pair = a->pair[i];
        p->pair[i][0] = pair[0] < 0 ? -1 : p->keys.place[pair[0]];
        p->pair[i][1] = pair[1] < 0 ? -1 : p->values.place[pair[1]];
    }
    KV_TRY(kv_gather_rows(&p->gathering, (const int32_t(*)[2])p->pair, a->rows, group,
                          block_groups(p, options), err));
done:
    return status;
}

static void free_plan(kv_attend_plan *p)
{
    free_named(&p->keys);
    free_named(&p->values);
    kv_free(p->pair);
    kv_gathering_free_contents(&p->gathering);
}

/* ---- memory of heads and threads ---- */

static kv_status floats(float **out, int64_t a, int64_t b, kv_error *err)
{
    return kv_allocate3((void **)out, (size_t)a, (size_t)b, 1, sizeof(float), err);
}

static kv_status create_head(kv_attend_head *h, const kv_attend_plan *p, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t const padded = round_up(p->layer->tokens, KV_ROW_STEP), head_dim = p->layer->head_dim;
    KV_TRY(floats(&h->key, padded, head_dim, err));
    if (p->wants_pre_rope) KV_TRY(floats(&h->key_pre_rope, padded, head_dim, err));
    KV_TRY(floats(&h->value, padded, head_dim, err));
    KV_TRY(kv_allocate((void **)&h->key_fits, (size_t)p->keys.side.n, sizeof *h->key_fits, err));
    KV_TRY(
        kv_allocate((void **)&h->value_fits, (size_t)p->values.side.n, sizeof *h->value_fits, err));
done:
    return status;
}

static void free_fits(kv_attend_head *h, const kv_attend_plan *p)
{
    if (h->key_fits) kv_fits_free(h->key_fits, p->keys.side.n);
    if (h->value_fits) kv_fits_free(h->value_fits, p->values.side.n);
}

static void free_head(kv_attend_head *h, const kv_attend_plan *p)
{
    free_fits(h, p);
    kv_free(h->key);
    kv_free(h->key_pre_rope);
    kv_free(h->value);
    kv_free(h->key_fits);
    kv_free(h->value_fits);
}

static kv_status create_space(kv_attend_space *s, const kv_attend_plan *p, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t const head_dim = p->layer->head_dim, columns = p->panels * KV_LANES;
    int64_t const lanes = p->gathering.most_groups * KV_LANES;
    KV_TRY(floats(&s->decoded, KV_ATTEND_TILE, head_dim, err));
    if (head_dim != columns) KV_TRY(floats(&s->packed, KV_ATTEND_TILE, columns, err));
    KV_TRY(floats(&s->queries, lanes, head_dim, err));
    KV_TRY(floats(&s->logits, lanes, p->span, err));
    KV_TRY(floats(&s->weights, lanes, KV_ATTEND_TILE, err));
    KV_TRY(floats(&s->max, lanes, 1, err));
    KV_TRY(kv_allocate((void **)&s->sum, (size_t)lanes, sizeof *s->sum, err));
    KV_TRY(floats(&s->out, p->gathering.most_pieces * KV_LANES, columns, err));
done:
    return status;
}

static void free_space(kv_attend_space *s)
{
    kv_free(s->decoded);
    kv_free(s->packed);
    kv_free(s->scratch);
    kv_free(s->queries);
    kv_free(s->logits);
    kv_free(s->weights);
    kv_free(s->max);
    kv_free(s->sum);
    kv_free(s->out);
}

/* ---- loading and fitting ---- */

static kv_status check_finite(const kv_attend_plan *p, const char *what, int64_t kv_head,
                              const float *x, int64_t n, kv_error *err)
{
    int64_t const head_dim = p->layer->head_dim;
    if (isfinite(p->kernels->largest_magnitude(x, n))) return KV_OK;
    int64_t i = 0;
    while (isfinite(x[i])) i++;
    return KV_FAIL(err, KV_ENUMERIC, "kv head %lld: %s %lld, channel %lld is %g, not a number",
                   (long long)kv_head, what, (long long)(i / head_dim), (long long)(i % head_dim),
                   (double)x[i]);
}

static kv_status load(kv_attend_head *h, const kv_attend_plan *p, int team, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_layer *const layer = p->layer;
    const kv_source *const source = &layer->source;
    int64_t const g = h->number, n = layer->tokens * layer->head_dim;
    KV_TRY(check_finite(p, "query", g, kv_attend_queries(p, g), p->rows * layer->head_dim, err));
    KV_TRY(source->load(source->context, KV_KEY, g, 0, h->key, err));
    KV_TRY(check_finite(p, "key of token", g, h->key, n, err));
    if (p->wants_pre_rope)
        KV_TRY(source->load(source->context, KV_KEY_PRE_ROPE, g, 0, h->key_pre_rope, err));
    KV_TRY(kv_fit_head(h->key_fits, &p->keys.side, layer, g, h->key, h->key_pre_rope, team, err));
    KV_TRY(source->load(source->context, KV_VALUE, g, 0, h->value, err));
    KV_TRY(check_finite(p, "value of token", g, h->value, n, err));
    KV_TRY(kv_fit_head(h->value_fits, &p->values.side, layer, g, h->value, NULL, team, err));
done:
    return status;
}

static kv_status load_wave(kv_attend_head *heads, const kv_attend_plan *p, int64_t first, int64_t n,
                           kv_error *err)
{
    kv_first_error failed = {.index = INT64_MAX};
    int const workers = n >= p->threads ? p->threads : 1, team = n >= p->threads ? 1 : p->threads;
#pragma omp parallel for num_threads(workers) schedule(dynamic) if (workers > 1)
    for (int64_t i = 0; i < n; i++) {
        kv_error error = {0};
        heads[i].number = first + i;
        if (kv_first_error_before(&failed, i)) continue;
        if (load(&heads[i], p, team, &error) != KV_OK) kv_first_error_keep(&failed, i, &error);
    }
    return kv_first_error_end(&failed, err);
}

static int64_t scratch_floats(const kv_attend_side *side, kv_fit *const *own)
{
    int64_t most = 0;
    for (int32_t i = 0; i < side->side.n; i++)
        most = larger(most, kv_fit_scratch_floats(kv_attend_fit(side, own, i), KV_ATTEND_TILE));
    return most;
}

static kv_status grow_scratch(kv_attend_space *spaces, const kv_attend_plan *p,
                              const kv_attend_head *h, kv_error *err)
{
    int64_t const wanted =
        larger(scratch_floats(&p->keys, h->key_fits), scratch_floats(&p->values, h->value_fits));
    for (int i = 0; i < p->threads; i++) {
        if (spaces[i].scratch_floats >= wanted) continue;
        kv_free(spaces[i].scratch);
        spaces[i].scratch = NULL;
        kv_status const status = floats(&spaces[i].scratch, wanted, 1, err);
        if (status != KV_OK) return status;
        spaces[i].scratch_floats = wanted;
    }
    return KV_OK;
}

/* ---- all ---- */

static kv_status run_wave(const kv_attend_plan *p, kv_attend_space *spaces,
                          const kv_attend_head *heads, int64_t n, kv_error *err)
{
    int64_t const blocks = p->gathering.n_blocks, rows = p->attention->rows;
    kv_first_error failed = {.index = INT64_MAX};
#pragma omp parallel for num_threads(p->threads) schedule(dynamic)
    for (int64_t i = 0; i < n * blocks; i++) {
        const kv_attend_head *const h = &heads[i / blocks];
        int64_t const row =
            kv_attend_block(p, &spaces[omp_get_thread_num()], h, &p->gathering.blocks[i % blocks]);
        kv_error error = {0};
        if (row < 0) continue;
        KV_FAIL(&error, KV_ENUMERIC,
                "kv head %lld, query head %lld, row %lld: logits or outputs beyond the range of "
                "float",
                (long long)h->number, (long long)((h->number * p->rows + row) / rows),
                (long long)(row % rows));
        kv_first_error_keep(&failed, h->number * p->rows + row, &error);
    }
    return kv_first_error_end(&failed, err);
}

static kv_status run_plan(kv_attend_plan *p, kv_error *err)
{
    kv_status status = KV_OK;
    kv_attend_head *heads = NULL;
    kv_attend_space *spaces = NULL;
    int64_t const all = p->layer->kv_heads, wave = smaller(all, p->threads);
    KV_TRY(kv_allocate((void **)&heads, (size_t)wave, sizeof *heads, err));
    KV_TRY(kv_allocate((void **)&spaces, (size_t)p->threads, sizeof *spaces, err));
    for (int64_t i = 0; i < wave; i++) KV_TRY(create_head(&heads[i], p, err));
    for (int i = 0; i < p->threads; i++) KV_TRY(create_space(&spaces[i], p, err));
    KV_TRY(kv_fit_layer(p->keys.layer_fits, &p->keys.side, p->layer, p->threads, err));
    KV_TRY(kv_fit_layer(p->values.layer_fits, &p->values.side, p->layer, p->threads, err));
    for (int64_t first = 0; first < all; first += wave) {
        int64_t const n = smaller(wave, all - first);
        KV_TRY(load_wave(heads, p, first, n, err));
        KV_TRY(grow_scratch(spaces, p, &heads[0], err));
        KV_TRY(run_wave(p, spaces, heads, n, err));
        for (int64_t i = 0; i < n; i++) free_fits(&heads[i], p);
    }
done:
    for (int64_t i = 0; heads && i < wave; i++) free_head(&heads[i], p);
    for (int i = 0; spaces && i < p->threads; i++) free_space(&spaces[i]);
    kv_free(heads);
    kv_free(spaces);
    return status;
}

kv_status kv_cpu_attend_with(const kv_cpu_options *options, const kv_layer *layer,
                             const kv_attention *attention, int threads, float *out, kv_error *err)
{
    kv_status status = KV_OK;
    kv_attend_plan p = {.layer = layer,
                        .attention = attention,
                        .kernels = kv_cpu_kernels_of(options->isa),
                        .out = out,
                        .threads = threads < 1 ? 1 : threads};
    KV_TRY(make_plan(&p, options, err));
    if (attention->rows > 0) KV_TRY(run_plan(&p, err));
done:
    free_plan(&p);
    return status;
}

kv_status kv_cpu_attend(const kv_layer *layer, const kv_attention *attention, int threads,
                        float *out, kv_error *err)
{
    return kv_cpu_attend_with(&(kv_cpu_options){.isa = kv_isa_best()}, layer, attention, threads,
                              out, err);
}
