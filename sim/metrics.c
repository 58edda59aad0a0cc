/* Metrics: each a function of the raw measurements; the table beneath them. See metrics.h. */
#include "sim/metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what the functions read ---------------------------------------------------------------- */

static const kv_key_row *key_row(const kv_metric_view *v, int64_t i)
{
    const kv_measurements *m = v->measured;
    return &m->key_rows[(v->head * m->n_keys + v->key) * m->rows + v->rows[i]];
}

static double out_square(const kv_metric_view *v, int64_t i)
{
    return v->measured->out_square[v->head * v->measured->rows + v->rows[i]];
}

static double out_err_square(const kv_metric_view *v, int64_t i)
{
    const kv_measurements *m = v->measured;
    return m->out_err_square[(v->head * m->n_pairs + v->pair) * m->rows + v->rows[i]];
}

static int by_value(const void *a, const void *b)
{
    double const x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The p-th percentile of each query's own output error, by linear interpolation. */
static double out_err_percentile(const kv_metric_view *v, double p)
{
    if (v->n_rows == 0) return NAN;
    for (int64_t i = 0; i < v->n_rows; i++)
        v->scratch[i] = sqrt(out_err_square(v, i) / out_square(v, i));
    qsort(v->scratch, (size_t)v->n_rows, sizeof *v->scratch, by_value);
    double const place = p / 100 * (double)(v->n_rows - 1), lower = floor(place);
    double const here = v->scratch[(int64_t)lower];
    if (lower == place) return here;
    return here + (place - lower) * (v->scratch[(int64_t)lower + 1] - here);
}

typedef double (*row_field)(const kv_key_row *row);

static double mean_of(const kv_metric_view *v, row_field field)
{
    if (v->n_rows == 0) return NAN;
    double sum = 0;
    for (int64_t i = 0; i < v->n_rows; i++) sum += field(key_row(v, i));
    return sum / (double)v->n_rows;
}

static double max_of(const kv_metric_view *v, row_field field)
{
    double largest = v->n_rows ? 0 : NAN;
    for (int64_t i = 0; i < v->n_rows; i++) largest = fmax(largest, field(key_row(v, i)));
    return largest;
}

static double kl(const kv_key_row *row)
{
    return row->kl;
}
static double tv(const kv_key_row *row)
{
    return row->tv;
}
static double logit_err(const kv_key_row *row)
{
    return row->logit_err_max;
}
static double top1(const kv_key_row *row)
{
    return row->top_agree[0];
}
static double top8(const kv_key_row *row)
{
    return row->top_agree[1];
}
static double top64(const kv_key_row *row)
{
    return row->top_agree[2];
}

/* ---- the metrics ---------------------------------------------------------------------------- */

static double out_err(const kv_metric_view *v)
{
    if (v->n_rows == 0) return NAN;
    double error = 0, square = 0;
    for (int64_t i = 0; i < v->n_rows; i++) {
        error += out_err_square(v, i);
        square += out_square(v, i);
    }
    return sqrt(error / square);
}

static double out_err_median(const kv_metric_view *v)
{
    return out_err_percentile(v, 50);
}
static double out_err_p95(const kv_metric_view *v)
{
    return out_err_percentile(v, 95);
}
static double out_err_max(const kv_metric_view *v)
{
    return out_err_percentile(v, 100);
}
static double logit_err_max(const kv_metric_view *v)
{
    return max_of(v, logit_err);
}
static double weight_factor(const kv_metric_view *v)
{
    return exp(max_of(v, logit_err));
}
static double attn_kl(const kv_metric_view *v)
{
    return mean_of(v, kl);
}
static double attn_kl_max(const kv_metric_view *v)
{
    return max_of(v, kl);
}
static double attn_tv(const kv_metric_view *v)
{
    return mean_of(v, tv);
}
static double attn_tv_max(const kv_metric_view *v)
{
    return max_of(v, tv);
}
static double top1_agree(const kv_metric_view *v)
{
    return mean_of(v, top1);
}
static double top8_agree(const kv_metric_view *v)
{
    return mean_of(v, top8);
}
static double top64_agree(const kv_metric_view *v)
{
    return mean_of(v, top64);
}

static double logit_err_rms(const kv_metric_view *v)
{
    double square = 0, count = 0;
    for (int64_t i = 0; i < v->n_rows; i++) {
        square += key_row(v, i)->logit_err_square;
        count += (double)v->measured->visible[v->rows[i]];
    }
    return count > 0 ? sqrt(square / count) : NAN;
}

/* Whether row i of the view has a needle. */
static bool has_needle(const kv_metric_view *v, int64_t i)
{
    const kv_layer *layer = v->layer;
    return layer->needle && layer->needle[v->head * v->measured->rows + v->rows[i]] >= 0;
}

static double needle_recall(const kv_metric_view *v)
{
    double found = 0, count = 0;
    for (int64_t i = 0; i < v->n_rows; i++)
        if (has_needle(v, i)) found += key_row(v, i)->needle_margin > 0, count++;
    return count > 0 ? found / count : NAN;
}

static double needle_margin(const kv_metric_view *v)
{
    double smallest = INFINITY;
    for (int64_t i = 0; i < v->n_rows; i++)
        if (has_needle(v, i)) smallest = fmin(smallest, key_row(v, i)->needle_margin);
    return isinf(smallest) ? NAN : smallest;
}

static double key_err(const kv_metric_view *v)
{
    const kv_measurements *m = v->measured;
    return sqrt(m->key_err_square[v->head * m->n_keys + v->key] / m->key_square[v->head]);
}

static double value_err(const kv_metric_view *v)
{
    const kv_measurements *m = v->measured;
    return sqrt(m->value_err_square[v->head * m->n_values + v->value] / m->value_square[v->head]);
}

static double key_absmax_over_median(const kv_metric_view *v)
{
    return v->measured->key_absmax[v->head] / v->measured->key_absmedian[v->head];
}

static double key_levels(const kv_metric_view *v)
{
    return v->measured->key_levels[v->head * v->measured->n_keys + v->key];
}

static double elements(const kv_metric_view *v)
{
    return (double)v->layer->kv_heads * (double)v->layer->tokens * (double)v->layer->head_dim;
}

static double bits_key(const kv_metric_view *v)
{
    return v->measured->key_bits[v->key] / elements(v);
}

static double bits_value(const kv_metric_view *v)
{
    return v->measured->value_bits[v->value] / elements(v);
}

static double bits(const kv_metric_view *v)
{
    return (bits_key(v) + bits_value(v)) / 2;
}

static double bytes_per_token(const kv_metric_view *v)
{
    double const stored = v->measured->key_bits[v->key] + v->measured->value_bits[v->value];
    return stored / 8 / (double)v->layer->tokens;
}

static double stack_err(const kv_metric_view *v)
{
    const kv_stack_measured *m = v->stack;
    return sqrt(m->err_square[v->run * m->layers + v->stack_layer] / m->square[v->stack_layer]);
}

/* ---- the table ------------------------------------------------------------------------------- */

static const kv_metric metrics[] = {
    {"out_err", "1",
     "relative error of the attention output: sqrt(sum |o^-o|^2 / sum |o|^2) over queries",
     KV_SCOPE_QUERIES, "mean", false, false, out_err},
    {"out_err_median", "1", "median over queries of |o^-o| / |o|", KV_SCOPE_QUERIES, "mean", false,
     false, out_err_median},
    {"out_err_p95", "1", "95th percentile over queries of |o^-o| / |o|", KV_SCOPE_QUERIES, "mean",
     false, false, out_err_p95},
    {"out_err_max", "1", "largest |o^-o| / |o| of a query", KV_SCOPE_QUERIES, "max", false, false,
     out_err_max},
    {"logit_err_max", "nat", "largest |l^-l| over queries and visible tokens", KV_SCOPE_QUERIES,
     "max", false, false, logit_err_max},
    {"logit_err_rms", "nat", "root mean square of l^-l over queries and visible tokens",
     KV_SCOPE_QUERIES, "mean", false, false, logit_err_rms},
    {"weight_factor", "1", "exp(logit_err_max): how far one token's attention weight can be off",
     KV_SCOPE_QUERIES, "max", false, false, weight_factor},
    {"attn_kl", "nat", "KL(p || p^) of the attention weights, mean over queries", KV_SCOPE_QUERIES,
     "mean", true, false, attn_kl},
    {"attn_kl_max", "nat", "largest KL(p || p^) of a query", KV_SCOPE_QUERIES, "max", true, false,
     attn_kl_max},
    {"attn_tv", "1", "total variation sum |p-p^| / 2 of the attention weights, mean over queries",
     KV_SCOPE_QUERIES, "mean", true, false, attn_tv},
    {"attn_tv_max", "1", "largest total variation of a query", KV_SCOPE_QUERIES, "max", true, false,
     attn_tv_max},
    {"top1_agree", "1", "share of queries whose largest weight is on the same token",
     KV_SCOPE_QUERIES, "mean", true, false, top1_agree},
    {"top8_agree", "1", "|top-8(p) & top-8(p^)| / 8, mean over queries", KV_SCOPE_QUERIES, "mean",
     true, false, top8_agree},
    {"top64_agree", "1", "|top-64(p) & top-64(p^)| / 64, mean over queries", KV_SCOPE_QUERIES,
     "mean", true, false, top64_agree},
    {"needle_recall", "1", "share of needle queries whose largest logit is still the needle",
     KV_SCOPE_QUERIES, "mean", true, false, needle_recall},
    {"needle_margin", "nat", "smallest lead of the needle's logit over the others",
     KV_SCOPE_QUERIES, "min", true, false, needle_margin},
    {"key_err", "1", "|k^-k| / |k|, Frobenius norms of the keys attention uses (after RoPE)",
     KV_SCOPE_TENSOR, "mean", false, false, key_err},
    {"value_err", "1", "|v^-v| / |v|, Frobenius norms", KV_SCOPE_TENSOR, "mean", false, false,
     value_err},
    {"key_absmax_over_median", "1", "max |k| / median |k| of the exact keys", KV_SCOPE_HEAD, "mean",
     false, false, key_absmax_over_median},
    {"key_levels", "1", "median over channels of the number of distinct codes used",
     KV_SCOPE_TENSOR, "mean", false, true, key_levels},
    {"bits_key", "bit",
     "stored bits per key element, everything counted: scales, zero points, windows",
     KV_SCOPE_LAYER, "mean", false, false, bits_key},
    {"bits_value", "bit", "stored bits per value element, everything counted", KV_SCOPE_LAYER,
     "mean", false, false, bits_value},
    {"bits", "bit", "mean of bits_key and bits_value", KV_SCOPE_LAYER, "mean", false, false, bits},
    {"bytes_per_token", "byte",
     "stored bytes per token of the whole layer: all kv heads, keys and values", KV_SCOPE_LAYER,
     "mean", false, false, bytes_per_token},
    {"stack_err", "1",
     "|x^-x| / |x| of the residual stream after the last layer, all layers quantized "
     "(heads.stack)",
     KV_SCOPE_STACK, "mean", false, false, stack_err},
    {"stack_err_layer", "1",
     "|x^-x| / |x| of the residual stream after each layer: how the error grows",
     KV_SCOPE_STACK_LAYER, "mean", false, false, stack_err},
};

enum { N_METRICS = sizeof metrics / sizeof metrics[0] };
_Static_assert((size_t)N_METRICS <= (size_t)KV_MAX_METRICS, "room for every metric");

bool kv_scope_is_stack(kv_metric_scope scope)
{
    return scope == KV_SCOPE_STACK || scope == KV_SCOPE_STACK_LAYER;
}

const kv_metric *kv_metric_at(size_t id)
{
    return id < N_METRICS ? &metrics[id] : NULL;
}

const kv_metric *kv_metric_find(const char *name)
{
    for (size_t i = 0; i < N_METRICS; i++)
        if (strcmp(metrics[i].name, name) == 0) return &metrics[i];
    return NULL;
}

void kv_metric_list(FILE *out)
{
    for (size_t i = 0; i < N_METRICS; i++)
        fprintf(out, "%-24s %-5s %s\n", metrics[i].name, metrics[i].units, metrics[i].about);
}
