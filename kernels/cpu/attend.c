/* Attention of the caller's queries on the CPU: see kv_attention in kernels/backend.h.
 *
 * Heads are taken in waves of as many as there are threads: first each is loaded and the quantizers
 * that rows name are fitted, by heads or, with fewer heads than threads, by quantizers; then the
 * blocks of rows (gather.h) of all its heads are worked on, each by one thread. A block's logits
 * stay whole and in cache. Keys and values pass in tiles of KV_TOKEN_TILE tokens at fixed places,
 * and every sum runs in token order within a tile and then tile by tile, so that a row's bits
 * depend on nothing but the row. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/fits.h"
#include "kernels/cpu/gather.h"
#include "kernels/cpu/kernels.h"
#include "kernels/memory.h"

enum { TOKEN_TILE = 256, LOGIT_BYTES = 1 << 21, MOST_LANES = 192 };

/* The quantizers of one side that rows name, and where each of the caller's is among them. */
typedef struct {
    kv_quantizer *quantizers;
    int32_t *place; /* [n of the caller], -1 where no row names it */
    kv_side side;
    kv_fit **layer_fits; /* [side.n], NULL where not layer-wide */
} named;

typedef struct {
    const kv_layer *layer;
    const kv_attention *attention;
    const kv_cpu_kernels *kernels;
    float *out;
    int threads;
    named keys, values;
    bool wants_pre_rope;
    int32_t (*pair)[2];   /* [rows] among the named ones */
    int64_t rows, panels; /* rows of one kv head, 16-channel panels */
    int64_t first, end;   /* tokens that every row sees */
    int64_t origin, span; /* token of the logits' first row (first, rounded down), their rows */
    kv_gathering gathering;
} plan;

typedef struct {
    int64_t number;
    float *key, *key_pre_rope, *value; /* [T padded][D] */
    kv_fit **key_fits, **value_fits;   /* own ones, NULL where layer-wide */
} head;

/* Of one thread. */
typedef struct {
    float *decoded, *packed;     /* [TOKEN_TILE][D]; [panels][TOKEN_TILE][16] */
    float *scratch;              /* of kv_fit_decode */
    float *panels;               /* [width / 16][D][16] queries */
    float *logits, *weights;     /* [span] or [TOKEN_TILE] rows of each slab */
    float *max;                  /* [width] */
    double *sum;                 /* [width] */
    float *out;                  /* [out_width][panels * 16] */
    int64_t width, scratch_size; /* floats */
} space;

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

static kv_status check(const plan *p, kv_error *err)
{
    const kv_layer *const l = p->layer;
    const kv_attention *const a = p->attention;
    if (l->tokens < 1 || l->head_dim < 1 || l->kv_heads < 1 || l->query_heads < 1 ||
        l->query_heads % l->kv_heads != 0 || a->rows < 0)
        return KV_FAIL(err, KV_EREQUEST,
                       "attention of %lld query heads, %lld kv heads, %lld tokens, %lld channels, "
                       "%lld rows",
                       (long long)l->query_heads, (long long)l->kv_heads, (long long)l->tokens,
                       (long long)l->head_dim, (long long)a->rows);
    if (p->first >= p->end)
        return KV_FAIL(err, KV_EREQUEST, "position %lld sees none of %lld tokens (window %lld)",
                       (long long)a->position, (long long)l->tokens, (long long)l->window);
    for (int64_t i = 0; i < a->rows; i++) {
        const int32_t *const pair = a->pair[i];
        if (pair[0] < -1 || pair[0] >= a->n_keys || pair[1] < -1 || pair[1] >= a->n_values)
            return KV_FAIL(err, KV_EREQUEST,
                           "row %lld names key %d of %lld, value %d of %lld (-1 is unquantized)",
                           (long long)i, (int)pair[0], (long long)a->n_keys, (int)pair[1],
                           (long long)a->n_values);
    }
    return KV_OK;
}

/* The quantizers that some row names; `column` 0 of a pair is the key, 1 the value. */
static kv_status find_named(named *n, const kv_attention *a, int column, kv_error *err)
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

static void free_named(named *n)
{
    if (n->layer_fits) kv_fits_free(n->layer_fits, n->side.n);
    kv_free(n->layer_fits);
    kv_free(n->quantizers);
    kv_free(n->place);
}

/* Lanes of a block: their logits stay in cache, and every thread finds a few blocks. */
static int64_t block_width(const plan *p, const kv_cpu_options *options)
{
    int64_t const waves_heads = smaller(p->layer->kv_heads, p->threads);
    int64_t const share = p->rows * waves_heads / (4 * p->threads);
    int64_t const fitting = LOGIT_BYTES / (p->span * (int64_t)sizeof(float));
    int64_t const wanted = smaller(smaller(fitting, share), MOST_LANES) / KV_LANES * KV_LANES;
    if (options->block_rows > 0) return round_up(options->block_rows, KV_LANES);
    return larger(wanted, KV_LANES);
}

static void see(plan *p)
{
    const kv_layer *const l = p->layer;
    int64_t const position = p->attention->position, window = l->window;
    p->end = position < l->tokens ? position + 1 : l->tokens;
    p->first = window > 0 && position >= window ? position - window + 1 : 0;
    p->origin = p->first / KV_ROW_STEP * KV_ROW_STEP;
    p->span = round_up(p->end, KV_ROW_STEP) - p->origin;
}

static kv_status make_plan(plan *p, const kv_cpu_options *options, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_layer *const l = p->layer;
    const kv_attention *const a = p->attention;
    see(p);
    KV_TRY(check(p, err));
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
                          block_width(p, options), err));
done:
    return status;
}

static void free_plan(plan *p)
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

static kv_status create_head(head *h, const plan *p, kv_error *err)
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

static void free_fits(head *h, const plan *p)
{
    if (h->key_fits) kv_fits_free(h->key_fits, p->keys.side.n);
    if (h->value_fits) kv_fits_free(h->value_fits, p->values.side.n);
}

static void free_head(head *h, const plan *p)
{
    free_fits(h, p);
    kv_free(h->key);
    kv_free(h->key_pre_rope);
    kv_free(h->value);
    kv_free(h->key_fits);
    kv_free(h->value_fits);
}

static kv_status create_space(space *s, const plan *p, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t const head_dim = p->layer->head_dim, columns = p->panels * KV_LANES;
    int64_t const width = p->gathering.most_width;
    KV_TRY(floats(&s->decoded, TOKEN_TILE, head_dim, err));
    if (head_dim != columns) KV_TRY(floats(&s->packed, TOKEN_TILE, columns, err));
    KV_TRY(floats(&s->panels, width, head_dim, err));
    KV_TRY(floats(&s->logits, width, p->span, err));
    KV_TRY(floats(&s->weights, width, TOKEN_TILE, err));
    KV_TRY(floats(&s->max, width, 1, err));
    KV_TRY(kv_allocate((void **)&s->sum, (size_t)width, sizeof *s->sum, err));
    KV_TRY(floats(&s->out, p->gathering.most_out_width, columns, err));
done:
    return status;
}

static void free_space(space *s)
{
    kv_free(s->decoded);
    kv_free(s->packed);
    kv_free(s->scratch);
    kv_free(s->panels);
    kv_free(s->logits);
    kv_free(s->weights);
    kv_free(s->max);
    kv_free(s->sum);
    kv_free(s->out);
}

/* ---- loading and fitting ---- */

static kv_status check_finite(const plan *p, const char *what, int64_t kv_head, const float *x,
                              int64_t n, kv_error *err)
{
    int64_t const head_dim = p->layer->head_dim;
    if (isfinite(p->kernels->largest_magnitude(x, n))) return KV_OK;
    int64_t i = 0;
    while (isfinite(x[i])) i++;
    return KV_FAIL(err, KV_ENUMERIC, "kv head %lld: %s %lld, channel %lld is %g, not a number",
                   (long long)kv_head, what, (long long)(i / head_dim), (long long)(i % head_dim),
                   (double)x[i]);
}

static const float *queries_of(const plan *p, int64_t kv_head)
{
    return p->attention->query + kv_head * p->rows * p->layer->head_dim;
}

static kv_status load(head *h, const plan *p, int team, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_layer *const layer = p->layer;
    const kv_source *const source = &layer->source;
    int64_t const g = h->number, n = layer->tokens * layer->head_dim;
    KV_TRY(check_finite(p, "query", g, queries_of(p, g), p->rows * layer->head_dim, err));
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

static kv_status load_wave(head *heads, const plan *p, int64_t first, int64_t n, kv_error *err)
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

static const kv_fit *fit_of(const named *side, kv_fit *const *own, int32_t scheme)
{
    return own[scheme] ? own[scheme] : side->layer_fits[scheme];
}

static int64_t scratch_floats(const named *side, kv_fit *const *own)
{
    int64_t most = 0;
    for (int32_t i = 0; i < side->side.n; i++)
        most = larger(most, kv_fit_scratch_floats(fit_of(side, own, i), TOKEN_TILE));
    return most;
}

static kv_status grow_scratch(space *spaces, const plan *p, const head *h, kv_error *err)
{
    int64_t const wanted =
        larger(scratch_floats(&p->keys, h->key_fits), scratch_floats(&p->values, h->value_fits));
    for (int i = 0; i < p->threads; i++) {
        if (spaces[i].scratch_size >= wanted) continue;
        kv_free(spaces[i].scratch);
        spaces[i].scratch = NULL;
        kv_status const status = floats(&spaces[i].scratch, wanted, 1, err);
        if (status != KV_OK) return status;
        spaces[i].scratch_size = wanted;
    }
    return KV_OK;
}

/* ---- one block ---- */

/* Tokens [from, to) of a tile, of which the rows see those from `seen` on. */
typedef struct {
    int64_t from, seen, to;
} tile;

static tile tile_at(const plan *p, int64_t index)
{
    int64_t const first = index * TOKEN_TILE;
    return (tile){larger(first, p->origin), larger(first, p->first),
                  smaller(first + TOKEN_TILE, p->end)};
}

static int64_t first_tile(const plan *p)
{
    return p->first / TOKEN_TILE;
}

static int64_t end_tile(const plan *p)
{
    return (p->end + TOKEN_TILE - 1) / TOKEN_TILE;
}

/* Lanes of a block before a slab. */
static int64_t lanes_before(const kv_row_block *block, const kv_slab *slab)
{
    return slab->lane - block->lane;
}

static void gather_queries(const plan *p, space *s, const head *h, const kv_row_block *block)
{
    int64_t const head_dim = p->layer->head_dim;
    const float *const query = queries_of(p, h->number);
    for (int64_t i = 0; i < block->width; i++) {
        int64_t const row = p->gathering.row[block->lane + i];
        float *const to = s->panels + i / KV_LANES * head_dim * KV_LANES + i % KV_LANES;
        for (int64_t c = 0; c < head_dim; c++)
            to[c * KV_LANES] = row < 0 ? 0 : query[row * head_dim + c];
    }
}

/* Keys of a tile as the block's rows read them, [tokens][D], readable to a multiple of KV_ROW_STEP.
 */
static const float *tile_keys(const plan *p, space *s, const head *h, int32_t key, const tile *t)
{
    const kv_source *const source = &p->layer->source;
    if (key < 0) return h->key + t->from * p->layer->head_dim;
    bool const is_pre_rope = p->keys.quantizers[key].is_pre_rope;
    kv_fit_decode(fit_of(&p->keys, h->key_fits, key), h->key_fits[key] ? 0 : h->number,
                  is_pre_rope ? h->key_pre_rope : h->key, t->from, t->to - t->from, s->decoded,
                  s->scratch);
    if (is_pre_rope) source->rotate(source->context, t->from, t->to - t->from, s->decoded);
    return s->decoded;
}

static const float *tile_values(const plan *p, space *s, const head *h, int32_t value,
                                const tile *t)
{
    if (value < 0) return h->value + t->seen * p->layer->head_dim;
    kv_fit_decode(fit_of(&p->values, h->value_fits, value), h->value_fits[value] ? 0 : h->number,
                  h->value, t->seen, t->to - t->seen, s->decoded, s->scratch);
    return s->decoded;
}

static void slab_logits(const plan *p, space *s, const kv_row_block *block, const kv_slab *slab,
                        const tile *t, const float *keys)
{
    const kv_cpu_kernels *const k = p->kernels;
    int64_t const width = slab->width, before = lanes_before(block, slab);
    int64_t const head_dim = p->layer->head_dim;
    float *const logits = s->logits + before * p->span + (t->from - p->origin) * width;
    k->logits(logits, keys, round_up(t->to - t->from, KV_ROW_STEP), head_dim,
              s->panels + before * head_dim, width, (float)p->layer->softmax_scale);
    for (int64_t lane = 0; lane < width; lane += KV_LANES) {
        float max[KV_LANES];
        float *const most = s->max + before + lane;
        k->row_max(max, logits + (t->seen - t->from) * width + lane, width, t->to - t->seen);
        for (int i = 0; i < KV_LANES; i++) most[i] = max[i] > most[i] ? max[i] : most[i];
    }
}

static void block_logits(const plan *p, space *s, const head *h, const kv_row_block *block)
{
    for (int64_t i = 0; i < block->width; i++) s->max[i] = KV_HIDDEN_LOGIT;
    for (int64_t i = first_tile(p); i < end_tile(p); i++) {
        tile const t = tile_at(p, i);
        const float *const keys = tile_keys(p, s, h, block->key, &t);
        for (int64_t j = 0; j < block->n_slabs; j++)
            slab_logits(p, s, block, &p->gathering.slabs[block->slab + j], &t, keys);
    }
}

static void slab_weights(const plan *p, space *s, const kv_row_block *block, const kv_slab *slab,
                         const tile *t)
{
    int64_t const width = slab->width, before = lanes_before(block, slab);
    const float *const logits = s->logits + before * p->span + (t->seen - p->origin) * width;
    float *const weights = s->weights + before * TOKEN_TILE;
    for (int64_t lane = 0; lane < width; lane += KV_LANES) {
        double sum[KV_LANES];
        p->kernels->row_weights(weights + lane, sum, logits + lane, s->max + before + lane, width,
                                t->to - t->seen);
        for (int i = 0; i < KV_LANES; i++) s->sum[before + lane + i] += sum[i];
    }
}

/* All panels of values [n][D]: where they lie, or packed where the last one is not whole. */
static kv_panels panels_of(const plan *p, space *s, const float *values, int64_t n)
{
    int64_t const head_dim = p->layer->head_dim;
    if (!s->packed) return (kv_panels){values, p->panels, KV_LANES, head_dim};
    p->kernels->pack(s->packed, p->panels, values, n, head_dim, 0);
    return (kv_panels){s->packed, p->panels, n * KV_LANES, KV_LANES};
}

static void block_outputs(const plan *p, space *s, const head *h, const kv_row_block *block)
{
    int64_t const columns = p->panels * KV_LANES;
    memset(s->out, 0, (size_t)(block->out_width * columns) * sizeof *s->out);
    memset(s->sum, 0, (size_t)block->width * sizeof *s->sum);
    for (int64_t i = first_tile(p); i < end_tile(p); i++) {
        tile const t = tile_at(p, i);
        int64_t const n = t.to - t.seen;
        kv_panels panels = {0};
        for (int64_t j = 0; j < block->n_slabs; j++)
            slab_weights(p, s, block, &p->gathering.slabs[block->slab + j], &t);
        for (int64_t j = 0; j < block->n_pieces; j++) {
            const kv_piece *const piece = &p->gathering.pieces[block->piece + j];
            const kv_slab *const slab = &p->gathering.slabs[piece->slab];
            if (j == 0 || piece->value != piece[-1].value)
                panels = panels_of(p, s, tile_values(p, s, h, piece->value, &t), n);
            p->kernels->outputs(s->out + piece->out_lane * columns, columns,
                                s->weights + lanes_before(block, slab) * TOKEN_TILE, n, slab->width,
                                &panels);
        }
    }
}

/* A piece's rows into the caller's array; the row that is not finite, or -1. */
static int64_t store(const plan *p, const space *s, const head *h, const kv_row_block *block,
                     const kv_piece *piece)
{
    int64_t const head_dim = p->layer->head_dim, columns = p->panels * KV_LANES;
    const kv_slab *const slab = &p->gathering.slabs[piece->slab];
    int64_t failed = -1;
    for (int64_t i = piece->from; i < piece->to; i++) {
        int64_t const row = p->gathering.row[slab->lane + i];
        const float *const from = s->out + (piece->out_lane + i) * columns;
        float *const to = p->out + (h->number * p->rows + row) * head_dim;
        double const inverse = 1 / s->sum[lanes_before(block, slab) + i];
        bool is_finite = true;
        for (int64_t c = 0; c < head_dim; c++) {
            to[c] = (float)((double)from[c] * inverse);
            is_finite &= isfinite(to[c]) != 0;
        }
        if (!is_finite && (failed < 0 || row < failed)) failed = row;
    }
    return failed;
}

static int64_t run_block(const plan *p, space *s, const head *h, const kv_row_block *block)
{
    int64_t failed = -1;
    gather_queries(p, s, h, block);
    block_logits(p, s, h, block);
    block_outputs(p, s, h, block);
    for (int64_t i = 0; i < block->n_pieces; i++) {
        int64_t const row = store(p, s, h, block, &p->gathering.pieces[block->piece + i]);
        if (row >= 0 && (failed < 0 || row < failed)) failed = row;
    }
    return failed;
}

/* ---- all ---- */

static kv_status run_wave(const plan *p, space *spaces, const head *heads, int64_t n, kv_error *err)
{
    int64_t const blocks = p->gathering.n_blocks, rows = p->attention->rows;
    kv_first_error failed = {.index = INT64_MAX};
#pragma omp parallel for num_threads(p->threads) schedule(dynamic)
    for (int64_t i = 0; i < n * blocks; i++) {
        const head *const h = &heads[i / blocks];
        int64_t const row =
            run_block(p, &spaces[omp_get_thread_num()], h, &p->gathering.blocks[i % blocks]);
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

static kv_status run_plan(plan *p, kv_error *err)
{
    kv_status status = KV_OK;
    head *heads = NULL;
    space *spaces = NULL;
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
    plan p = {.layer = layer,
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
