/* Attention of one kv head in plain double precision, without blocks, vectors or threads: the
 * reference of test_attention.c, written from the definitions in kernels/backend.h. */
#ifndef KVANT_TESTS_ATTENTION_PLAIN_H
#define KVANT_TESTS_ATTENTION_PLAIN_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"

/* One query over tokens [first, end) of key [T][D] and value [T][D]. Arrays of [T]. */
typedef struct {
    double *logit, *weight; /* weight is normalised */
    double *out;            /* [D] */
    double magnitude;       /* max over visible tokens of scale * sum |q_c k_c| */
} plain_row;

static inline void plain_attend(plain_row *row, const float *query, const float *key,
                                const float *value, int64_t first, int64_t end, int64_t D,
                                double scale)
{
    double max = -INFINITY, sum = 0;
    row->magnitude = 0;
    for (int64_t t = first; t < end; t++) {
        double l = 0, magnitude = 0;
        for (int64_t c = 0; c < D; c++) {
            double const product = (double)query[c] * (double)key[t * D + c];
            l += product, magnitude += fabs(product);
        }
        row->logit[t] = l * scale;
        max = fmax(max, row->logit[t]);
        row->magnitude = fmax(row->magnitude, magnitude * scale);
    }
    for (int64_t t = first; t < end; t++) sum += row->weight[t] = exp(row->logit[t] - max);
    for (int64_t c = 0; c < D; c++) row->out[c] = 0;
    for (int64_t t = first; t < end; t++) {
        row->weight[t] /= sum;
        for (int64_t c = 0; value && c < D; c++)
            row->out[c] += row->weight[t] * (double)value[t * D + c];
    }
}

/* How many visible tokens rank before t: larger logits, and equal ones of lower tokens. */
static inline int64_t plain_rank(const double *logit, int64_t t, int64_t first, int64_t end)
{
    int64_t before = 0;
    for (int64_t u = first; u < end; u++)
        before += logit[u] > logit[t] || (logit[u] == logit[t] && u < t);
    return before;
}

/* The metrics of one quantized row against the exact one. needle < 0: none. */
static inline kv_key_row plain_compare(const plain_row *exact, const plain_row *quantized,
                                       int64_t first, int64_t end, int64_t needle, int64_t *ranks)
{
    kv_key_row r = {.needle_margin = NAN};
    double other = -INFINITY;
    int64_t *const exact_rank = ranks, *const rank = ranks + end;
    for (int64_t t = first; t < end; t++) {
        double const d = quantized->logit[t] - exact->logit[t];
        double const p = exact->weight[t], q = quantized->weight[t];
        r.logit_err_max = fmax(r.logit_err_max, fabs(d));
        r.logit_err_square += d * d;
        if (p > 0) r.kl += p * log(p / q);
        r.tv += fabs(p - q) / 2;
        if (t != needle) other = fmax(other, quantized->logit[t]);
        exact_rank[t] = plain_rank(exact->logit, t, first, end);
        rank[t] = plain_rank(quantized->logit, t, first, end);
    }
    if (needle >= first && needle < end) r.needle_margin = quantized->logit[needle] - other;
    for (int i = 0; i < KV_TOP_COUNT; i++) {
        int64_t const k = kv_top_k[i];
        for (int64_t t = first; t < end; t++) r.top_agree[i] += exact_rank[t] < k && rank[t] < k;
        r.top_agree[i] /= (double)(k < end - first ? k : end - first);
    }
    return r;
}

/* Smallest distance between the logits of ranks k - 1 and k, over k = 1, 8, 64. */
static inline double plain_gap(const double *logit, int64_t first, int64_t end)
{
    double gap = INFINITY;
    for (int i = 0; i < KV_TOP_COUNT; i++) {
        double in = NAN, out = NAN;
        for (int64_t t = first; t < end; t++) {
            int64_t const rank = plain_rank(logit, t, first, end);
            if (rank == kv_top_k[i] - 1) in = logit[t];
            if (rank == kv_top_k[i]) out = logit[t];
        }
        if (in - out < gap) gap = in - out;
    }
    return gap;
}

#endif
