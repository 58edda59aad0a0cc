/* One block of rows: whole logits, key tile by key tile, then weights and products, value tile by
 * value tile. See attend.h. */
#include "kernels/cpu/attend.h"

#include <math.h>
#include <string.h>

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

const kv_fit *kv_attend_fit(const kv_attend_side *side, kv_fit *const *own, int32_t scheme)
{
    return own[scheme] ? own[scheme] : side->layer_fits[scheme];
}

const float *kv_attend_queries(const kv_attend_plan *p, int64_t kv_head)
{
    return p->attention->query + kv_head * p->rows * p->layer->head_dim;
}

/* Tokens [from, to) of a tile, of which the rows see those from `seen` on. */
typedef struct {
    int64_t from, seen, to;
} tile;

static tile tile_at(const kv_attend_plan *p, int64_t index)
{
    int64_t const first = index * KV_ATTEND_TILE;
    return (tile){larger(first, p->origin), larger(first, p->first),
                  smaller(first + KV_ATTEND_TILE, p->end)};
}

static int64_t first_tile(const kv_attend_plan *p)
{
    return p->first / KV_ATTEND_TILE;
}

static int64_t end_tile(const kv_attend_plan *p)
{
    return (p->end + KV_ATTEND_TILE - 1) / KV_ATTEND_TILE;
}

static void gather_queries(const kv_attend_plan *p, kv_attend_space *s, const kv_attend_head *h,
                           const kv_row_block *block)
{
    int64_t const head_dim = p->layer->head_dim;
    const float *const query = kv_attend_queries(p, h->number);
    for (int64_t g = 0; g < block->n_groups; g++)
        for (int64_t i = 0; i < KV_LANES; i++) {
            int64_t const row = p->gathering.row[block->group + g][i];
            float *const to = s->queries + g * head_dim * KV_LANES + i;
            for (int64_t c = 0; c < head_dim; c++)
                to[c * KV_LANES] = row < 0 ? 0 : query[row * head_dim + c];
        }
}

/* Keys of a tile as the block's rows read them, [tokens][D], readable to a multiple of KV_ROW_STEP.
 */
static const float *tile_keys(const kv_attend_plan *p, kv_attend_space *s, const kv_attend_head *h,
                              int32_t key, const tile *t)
{
    const kv_source *const source = &p->layer->source;
    if (key < 0) return h->key + t->from * p->layer->head_dim;
    bool const is_pre_rope = p->keys.quantizers[key].is_pre_rope;
    kv_fit_decode(kv_attend_fit(&p->keys, h->key_fits, key), h->key_fits[key] ? 0 : h->number,
                  is_pre_rope ? h->key_pre_rope : h->key, t->from, t->to - t->from, s->decoded,
                  s->scratch);
    if (is_pre_rope) kv_rope_apply(source->rope, t->from, t->to - t->from, s->decoded);
    return s->decoded;
}

/* Values of the tokens that rows see. */
static const float *tile_values(const kv_attend_plan *p, kv_attend_space *s,
                                const kv_attend_head *h, int32_t value, const tile *t)
{
    if (value < 0) return h->value + t->seen * p->layer->head_dim;
    kv_fit_decode(kv_attend_fit(&p->values, h->value_fits, value),
                  h->value_fits[value] ? 0 : h->number, h->value, t->seen, t->to - t->seen,
                  s->decoded, s->scratch);
    return s->decoded;
}

/* Logits of a group's 16 lanes from token `token` on, [tokens][16]. */
static float *logits_at(const kv_attend_plan *p, const kv_attend_space *s, int64_t group,
                        int64_t token)
{
    return s->logits + (group * p->span + token - p->origin) * KV_LANES;
}

static void block_logits(const kv_attend_plan *p, kv_attend_space *s, const kv_attend_head *h,
                         const kv_row_block *block)
{
    int64_t const stride = p->span * KV_LANES;
    for (int64_t i = 0; i < block->n_groups * KV_LANES; i++) s->max[i] = KV_HIDDEN_LOGIT;
    for (int64_t i = first_tile(p); i < end_tile(p); i++) {
        tile const t = tile_at(p, i);
        int64_t const padded = (t.to - t.from + KV_ROW_STEP - 1) / KV_ROW_STEP * KV_ROW_STEP;
        p->kernels->logits_apart(logits_at(p, s, 0, t.from), stride,
                                 tile_keys(p, s, h, block->key, &t), padded, p->layer->head_dim,
                                 s->queries, block->n_groups, (float)p->layer->softmax_scale);
        for (int64_t g = 0; g < block->n_groups; g++) {
            float max[KV_LANES], *const most = s->max + g * KV_LANES;
            p->kernels->row_max(max, logits_at(p, s, g, t.seen), KV_LANES, t.to - t.seen);
            for (int j = 0; j < KV_LANES; j++) most[j] = max[j] > most[j] ? max[j] : most[j];
        }
    }
}

static float *weights_of(const kv_attend_space *s, int64_t group)
{
    return s->weights + group * KV_ATTEND_TILE * KV_LANES;
}

static void tile_weights(const kv_attend_plan *p, kv_attend_space *s, int64_t group, const tile *t)
{
    double sum[KV_LANES];
    p->kernels->row_weights(weights_of(s, group), sum, logits_at(p, s, group, t->seen),
                            s->max + group * KV_LANES, KV_LANES, t->to - t->seen);
    for (int i = 0; i < KV_LANES; i++) s->sum[group * KV_LANES + i] += sum[i];
}

/* All panels of values [n][D]: where they lie, or packed where the last one is not whole. */
static kv_panels panels_of(const kv_attend_plan *p, kv_attend_space *s, const float *values,
                           int64_t n)
{
    int64_t const head_dim = p->layer->head_dim;
    if (!s->packed) return (kv_panels){values, p->panels, KV_LANES, head_dim};
    p->kernels->pack(s->packed, p->panels, values, n, head_dim, 0);
    return (kv_panels){s->packed, p->panels, n * KV_LANES, KV_LANES};
}

static void block_outputs(const kv_attend_plan *p, kv_attend_space *s, const kv_attend_head *h,
                          const kv_row_block *block)
{
    int64_t const columns = p->panels * KV_LANES;
    memset(s->out, 0, (size_t)(block->n_pieces * KV_LANES * columns) * sizeof *s->out);
    memset(s->sum, 0, (size_t)(block->n_groups * KV_LANES) * sizeof *s->sum);
    for (int64_t i = first_tile(p); i < end_tile(p); i++) {
        tile const t = tile_at(p, i);
        int64_t const n = t.to - t.seen;
        kv_panels panels = {0};
        for (int64_t g = 0; g < block->n_groups; g++) tile_weights(p, s, g, &t);
        for (int64_t j = 0; j < block->n_pieces; j++) {
            const kv_piece *const piece = &p->gathering.pieces[block->piece + j];
            if (j == 0 || piece->value != piece[-1].value)
                panels = panels_of(p, s, tile_values(p, s, h, piece->value, &t), n);
            p->kernels->outputs(s->out + j * KV_LANES * columns, columns,
                                weights_of(s, piece->group - block->group), n, KV_LANES, &panels);
        }
    }
}

/* One lane's products over its sum into the caller's array; whether all are finite. */
static bool store_row(const kv_attend_plan *p, int64_t row_of_all, const float *products,
                      double sum)
{
    int64_t const head_dim = p->layer->head_dim;
    float *const to = p->out + row_of_all * head_dim;
    bool is_finite = true;
    for (int64_t c = 0; c < head_dim; c++) {
        to[c] = (float)((double)products[c] / sum);
        is_finite &= isfinite(to[c]) != 0;
    }
    return is_finite;
}

static int64_t store(const kv_attend_plan *p, const kv_attend_space *s, const kv_attend_head *h,
                     const kv_row_block *block)
{
    int64_t const columns = p->panels * KV_LANES;
    int64_t failed = -1;
    for (int64_t j = 0; j < block->n_pieces; j++) {
        const kv_piece *const piece = &p->gathering.pieces[block->piece + j];
        for (int64_t i = piece->from; i < piece->to; i++) {
            int64_t const row = p->gathering.row[piece->group][i];
            double const sum = s->sum[(piece->group - block->group) * KV_LANES + i];
            bool const is_finite =
                store_row(p, h->number * p->rows + row, s->out + (j * KV_LANES + i) * columns, sum);
            if (!is_finite && (failed < 0 || row < failed)) failed = row;
        }
    }
    return failed;
}

int64_t kv_attend_block(const kv_attend_plan *p, kv_attend_space *s, const kv_attend_head *h,
                        const kv_row_block *block)
{
    gather_queries(p, s, h, block);
    block_logits(p, s, h, block);
    block_outputs(p, s, h, block);
    return store(p, s, h, block);
}
