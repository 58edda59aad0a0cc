/* What sweep.c and sweep_record.c share; not for other modules. */
#ifndef KVANT_SIM_SWEEP_STATE_H
#define KVANT_SIM_SWEEP_STATE_H

#include "sim/metrics.h"
#include "sim/sweep.h"

/* Classes of queries that metrics tell apart: 0 is all queries, 1 + k is kv_query_class k. */
enum { KV_SWEEP_CLASSES = 1 + KV_CLASS_COUNT };

/* Where one metric's values lie in a unit's vector: [scheme][head][class], extents 1 where the
 * metric does not have the dimension. */
typedef struct {
    const kv_metric *metric;
    int64_t offset, schemes, heads, classes;
} kv_metric_slot;

struct kv_sweep {
    const kv_config *config;
    int64_t n_points, n_layers, n_seeds, n_heads, n_classes;
    int64_t *layers; /* [n_layers] */
    kv_metric_slot slots[KV_MAX_METRICS];
    int n_slots;
    int64_t values_per_unit;
    kv_quantizer *keys, *values; /* distinct ones */
    int64_t n_keys, n_values;
    int64_t (*pairs)[2]; /* [n_schemes] */
    bool wants_rows, wants_levels;
    double flops;
    int64_t bytes_per_thread;
};

/* Which point, layer and seed a unit is: indices. */
typedef struct {
    int64_t point, layer, seed;
} kv_unit_place;
kv_unit_place kv_sweep_place(const kv_sweep *sweep, int64_t unit);

#endif
