/* Metrics: what the raw measurements of a layer, or of a decode stack, mean. One table; a metric is
 * one function and one row. Definitions with their formulas are in the `about` of each row (`kvant
 * list metrics`).
 *
 * Per kv head, over the query rows of one class. Ratios are ratios of norms, never means of
 * elementwise ratios, which diverge near zero. */
#ifndef KVANT_SIM_METRICS_H
#define KVANT_SIM_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "kernels/backend.h"
#include "sim/stack.h"

/* Which dimensions a metric has, apart from the swept ones, layer and seed. */
typedef enum {
    KV_SCOPE_QUERIES,    /* scheme, head, class */
    KV_SCOPE_TENSOR,     /* scheme, head */
    KV_SCOPE_LAYER,      /* scheme */
    KV_SCOPE_HEAD,       /* head: a property of the exact tensors */
    KV_SCOPE_STACK,      /* scheme, but no layer: of the decode stack's end */
    KV_SCOPE_STACK_LAYER /* scheme: of the decode stack after each layer */
} kv_metric_scope;

/* Where to look: one kv head, one scheme, the rows of one query class; or in a decode stack. */
typedef struct {
    const kv_layer *layer;
    const kv_measurements *measured;
    int64_t head, key, value, pair;
    const int64_t *rows; /* [n_rows] indices into the head's rows */
    int64_t n_rows;
    double *scratch;                /* [n_rows] */
    const kv_stack_measured *stack; /* of the stack's metrics, which see nothing but these: */
    int64_t run, stack_layer;
} kv_metric_view;

typedef struct {
    const char *name, *units, *about;
    kv_metric_scope scope;
    const char *combine; /* how values of several heads and layers become one, as in record.h */
    bool needs_rows, needs_levels;
    double (*value)(const kv_metric_view *view); /* NaN where it does not apply */
} kv_metric;

/* Room for all rows of the table. */
enum { KV_MAX_METRICS = 64 };

/* Whether a metric is of the decode stack: `metrics: all` leaves these out, they are asked for by
 * name. */
bool kv_scope_is_stack(kv_metric_scope scope);

/* NULL past the end, or for an unknown name. */
const kv_metric *kv_metric_at(size_t id);
const kv_metric *kv_metric_find(const char *name);

/* The table, a line a metric. */
void kv_metric_list(FILE *out);

#endif
