/* What two backends give for one request, and whether it is the same: statuses, messages, and every
 * field of kv_measurements, each by its own rule.
 *
 * Codes, scales, values, logits and weights of backends are equal to the bit; only sums in double
 * may run in another order, and outputs beyond SPLIT tokens are sums of float sums. So maxima,
 * ranks, margins, levels and bits are equal, and with T tokens of 2^-53 each:
 *  - sums of squares and tv within 1e-12 of themselves;
 *  - kl, which is a difference of logarithms and logit errors, within 1e-13 (1 + logit_err_max);
 *  - |o^ - o|^2, whose parts each move by at most e |o| with e = 1e-13 (1e-6 where sums are split),
 *    by what that makes, and 1e-12. */
#ifndef KVANT_TESTS_GPU_BACKEND_COMPARE_H
#define KVANT_TESTS_GPU_BACKEND_COMPARE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"
#include "kernels/memory.h"
#include "tests/check.h"

enum { SPLIT = 2048 };

typedef enum { SAME, SUM, DIVERGENCE, DIFFERENCE } agreement;

/* One field: numbers at x, x + step, ...; of out_err_square, `of` is |o|^2 of the same row. */
typedef struct {
    const char *name;
    agreement rule;
    const double *x;
    int64_t n, step;
} field;

enum { MOST_FIELDS = 24 };
static inline int list_fields(field *out, const kv_measurements *m)
{
    int64_t const G = m->heads, R = m->rows, rows = G * m->n_keys * R;
    int64_t const step = (int64_t)(sizeof(kv_key_row) / sizeof(double));
    const kv_key_row *const r = m->key_rows;
    const field fields[] = {
        {"out_square", SUM, m->out_square, G * R, 1},
        {"out_err_square", DIFFERENCE, m->out_err_square, G * m->n_pairs * R, 1},
        {"logit_err_max", SAME, &r->logit_err_max, rows, step},
        {"logit_err_square", SUM, &r->logit_err_square, rows, step},
        {"kl", DIVERGENCE, &r->kl, rows, step},
        {"tv", SUM, &r->tv, rows, step},
        {"top_agree of 1", SAME, &r->top_agree[0], rows, step},
        {"top_agree of 8", SAME, &r->top_agree[1], rows, step},
        {"top_agree of 64", SAME, &r->top_agree[2], rows, step},
        {"needle_margin", SAME, &r->needle_margin, rows, step},
        {"exact_needle_margin", SAME, m->exact_needle_margin, G * R, 1},
        {"key_square", SUM, m->key_square, G, 1},
        {"value_square", SUM, m->value_square, G, 1},
        {"key_err_square", SUM, m->key_err_square, G * m->n_keys, 1},
        {"value_err_square", SUM, m->value_err_square, G * m->n_values, 1},
        {"key_absmax", SAME, m->key_absmax, G, 1},
        {"key_absmedian", SAME, m->key_absmedian, G, 1},
        {"key_levels", SAME, m->key_levels, G * m->n_keys, 1},
        {"key_bits", SAME, m->key_bits, m->n_keys, 1},
        {"value_bits", SAME, m->value_bits, m->n_values, 1},
    };
    memcpy(out, fields, sizeof fields);
    return (int)(sizeof fields / sizeof *fields);
}

static inline bool same_bits(double x, double y)
{
    return memcmp(&x, &y, sizeof x) == 0 || (isnan(x) && isnan(y));
}

/* Number i of a field; outputs are float sums of float sums where is_split. */
static inline bool agrees(const kv_measurements *m, const field *f, int64_t i, double found,
                          double expected, bool is_split)
{
    double const off = fabs(found - expected), relative = is_split ? 1e-6 : 1e-12;
    if (same_bits(found, expected)) return true;
    switch (f->rule) {
    case SUM: return off <= (f->x == m->out_square ? relative : 1e-12) * fabs(expected);
    case DIVERGENCE: return off <= 1e-13 * (1 + m->key_rows[i].logit_err_max);
    case DIFFERENCE: {
        int64_t const head = i / (m->n_pairs * m->rows), row = i % m->rows;
        double const moved = (is_split ? 1e-6 : 1e-13) * sqrt(m->out_square[head * m->rows + row]);
        return off <= relative * expected + 2 * moved * sqrt(expected) + moved * moved;
    }
    case SAME: break;
    }
    return false;
}

/* `is_exact`: every field to the bit. Prints the first number that disagrees of each field. */
static inline void compare(const kv_measurements *found, const kv_measurements *expected,
                           bool is_exact, bool is_split, const char *where)
{
    field a[MOST_FIELDS], b[MOST_FIELDS];
    int const n = list_fields(a, found);
    list_fields(b, expected);
    CHECK(memcmp(found->visible, expected->visible,
                 (size_t)expected->rows * sizeof *expected->visible) == 0,
          "%s: visible", where);
    for (int f = 0; f < n; f++)
        for (int64_t i = 0; i < a[f].n; i++) {
            double const x = a[f].x[i * a[f].step], y = b[f].x[i * b[f].step];
            bool const is_right =
                is_exact ? same_bits(x, y) : agrees(expected, &b[f], i, x, y, is_split);
            CHECK(is_right, "%s: %s of %d: %.17g, expected %.17g", where, a[f].name, (int)i, x, y);
            if (!is_right) break;
        }
}

/* ---- outcomes ---- */

typedef struct {
    kv_status status;
    kv_error err;
    kv_measurements *m; /* of an evaluation that worked */
    float *out;         /* of an attention [n] */
    int64_t n;
} outcome;

static inline void free_outcome(outcome *o)
{
    kv_measurements_free(o->m);
    free(o->out);
    *o = (outcome){0};
}

static inline outcome evaluate(const kv_backend *b, const kv_layer *layer, const kv_evaluation *e,
                               int threads)
{
    outcome o = {0};
    o.status = kv_measurements_create(&o.m, layer, e, &o.err);
    if (o.status == KV_OK) o.status = b->evaluate(layer, e, threads, o.m, &o.err);
    return o;
}

static inline outcome attend(const kv_backend *b, const kv_layer *layer, const kv_attention *a,
                             int threads)
{
    outcome o = {.n = layer->query_heads * a->rows * layer->head_dim};
    o.out = calloc((size_t)(o.n > 0 ? o.n : 1), sizeof *o.out);
    o.status = b->attend(layer, a, threads, o.out, &o.err);
    return o;
}

/* Outputs: to the bit, or within 1e-6 of their row where its sums are split. */
static inline void compare_outputs(const outcome *found, const outcome *expected, int64_t head_dim,
                                   bool is_split, const char *where)
{
    for (int64_t row = 0; row < expected->n; row += head_dim) {
        const float *const x = found->out + row, *const y = expected->out + row;
        double off = 0, size = 0;
        for (int64_t c = 0; c < head_dim; c++) {
            off += ((double)x[c] - (double)y[c]) * ((double)x[c] - (double)y[c]);
            size += (double)y[c] * (double)y[c];
        }
        bool const is_right = is_split ? sqrt(off) <= 1e-6 * sqrt(size)
                                       : memcmp(x, y, (size_t)head_dim * sizeof *x) == 0;
        CHECK(is_right, "%s: row %d of all: off by %g, size %g", where, (int)(row / head_dim),
              sqrt(off), sqrt(size));
        if (!is_right) break;
    }
}

/* The same status and message, and then the same numbers. */
static inline void compare_outcomes(const outcome *found, const outcome *expected,
                                    const kv_layer *layer, const char *where)
{
    bool const is_split = layer->tokens > SPLIT;
    CHECK(found->status == expected->status, "%s: status %d, expected %d", where,
          (int)found->status, (int)expected->status);
    CHECK(strcmp(found->err.message, expected->err.message) == 0,
          "%s:\n  found    %s\n  expected %s", where, found->err.message, expected->err.message);
    if (found->status != KV_OK || expected->status != KV_OK) return;
    if (expected->m) compare(found->m, expected->m, false, is_split, where);
    if (expected->out) compare_outputs(found, expected, layer->head_dim, is_split, where);
}

#endif
