/* What the files of sim/sweep*.c share; not for other modules. */
#ifndef KVANT_SIM_SWEEP_STATE_H
#define KVANT_SIM_SWEEP_STATE_H

#include "sim/metrics.h"
#include "sim/sweep.h"

/* Classes of queries that metrics tell apart: 0 is all queries, 1 + k is kv_query_class k. */
enum { KV_SWEEP_CLASSES = 1 + KV_CLASS_COUNT };

/* Where one metric's values lie in a unit's vector: [scheme][layer][head][class], extents 1 where
 * the metric does not have the dimension or, of layers, the unit has one. */
typedef struct {
    const kv_metric *metric;
    int64_t offset, schemes, layers, heads, classes;
} kv_metric_slot;

/* What is evaluated at one layer: the quantizers that schemes use there, their pairs, and the pair
 * of each scheme. */
typedef struct {
    int64_t n_keys, n_values, n_pairs;
    kv_quantizer *keys, *values;
    int64_t (*pairs)[2]; /* [n_pairs] indices into keys and values */
    int64_t *pair_of;    /* [n_schemes] */
} kv_sweep_plan;

struct kv_sweep {
    const kv_config *config;
    int64_t n_points, n_layers, n_seeds, n_heads, n_classes;
    int64_t *layers; /* [n_layers] */
    kv_metric_slot slots[KV_MAX_METRICS];
    int n_slots;
    int64_t n_layer_units, n_stack_units; /* either may be 0; those of layers come first */
    int64_t values_per_unit;
    kv_quantizer *keys, *values; /* distinct ones of all layers */
    int64_t n_keys, n_values;
    int64_t n_plans;      /* 1, or one for each layer where a scheme differs between layers */
    int64_t (*pairs)[2];  /* [n_plans][n_schemes] indices into keys and values */
    kv_sweep_plan *plans; /* [n_plans] */
    bool wants_rows, wants_levels;
    double flops;
    int64_t bytes_per_thread;
};

/* Which point, layer and seed a unit is: indices. layer -1: all of them, a decode stack. */
typedef struct {
    int64_t point, layer, seed;
} kv_unit_place;
kv_unit_place kv_sweep_place(const kv_sweep *sweep, int64_t unit);

/* ---- decode stacks: sweep_stack.c ---- */

/* Adds the work of all stack units and looks after the memory of one. KV_EREQUEST where layers
 * cannot be stacked. */
kv_status kv_sweep_plan_stacks(kv_sweep *sweep, kv_error *err);

/* The values of the stack's metrics; the others stay as they are. */
kv_status kv_sweep_run_stack(double *values, const kv_sweep *sweep, const kv_unit_place *place,
                             const kv_backend *backend, int threads, const kv_sweep_sink *sink,
                             kv_error *err);

/* ---- plans: sweep_plan.c ---- */

/* Fills in keys, values, pairs and plans, once layers are known. KV_EREQUEST for a scheme that does
 * not name a layer. */
kv_status kv_sweep_make_plans(kv_sweep *sweep, kv_error *err);
void kv_sweep_free_plans(kv_sweep *sweep);

/* Of a layer by its index (not its number). */
const kv_sweep_plan *kv_sweep_plan_of(const kv_sweep *sweep, int64_t layer);

/* What a scheme does there: [2] indices into sweep->keys and sweep->values. */
const int64_t *kv_sweep_pair(const kv_sweep *sweep, int64_t layer, int64_t scheme);

#endif
