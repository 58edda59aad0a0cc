/* Inside of the CPU backend: the plan of an evaluation and the work space of one head.
 *
 * Query rows are taken in blocks of `width` (a multiple of 16 lanes). The block's logits stay
 * whole, in slots of [width / 16][span][16], so that what is read together lies together: slot 0
 * holds the exact logits, slot 1 their weights, slots 2 ... a group of key schemes at a time, first
 * logits, then weights. The exact rows come first, then group by group: keys, rows, values. Blocks
 * and groups are chosen so that all slots together stay within KV_CPU_ROOM or make four tensors
 * [T][D] with the head's own (keys, also those before RoPE where they are wanted, and values),
 * whichever is more, and the decoding repeated over them is least. */
#ifndef KVANT_KERNELS_CPU_WORK_H
#define KVANT_KERNELS_CPU_WORK_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/fits.h"
#include "kernels/cpu/kernels.h"

enum { KV_TOKEN_TILE = 256 }; /* tokens decoded and multiplied at a time; fits L2 */

/* Slots of a block's logits: exact ones, their weights, then the key schemes of the group. */
enum { KV_SLOT_EXACT, KV_SLOT_WEIGHTS, KV_SLOTS };

typedef struct {
    const kv_layer *layer;
    const kv_evaluation *evaluation;
    const kv_cpu_kernels *kernels;
    kv_measurements *out;
    kv_side keys, values;
    kv_fit **layer_keys, **layer_values; /* [N_k], [N_v] fits over all heads, NULL elsewhere */
    int64_t *key_bits, *value_bits;      /* [N_k], [N_v] summed over heads */
    bool *is_wanted;                     /* [N_k][N_v] pairs */
    bool wants_pre_rope;
    int64_t rows, tiles, panels; /* query rows of a head, token tiles, 16-channel panels */
    int64_t width, group;        /* rows of a block, key schemes of a group */
    int64_t span;                /* most tokens one block sees, a multiple of KV_TOKEN_TILE */
} kv_cpu_plan;

/* What one thread of a head's team needs to itself. */
typedef struct {
    float *decoded; /* [KV_TOKEN_TILE][D] */
    float *packed;  /* [panels][KV_TOKEN_TILE][16] */
    float *scratch; /* of kv_fit_decode */
    kv_lane_top *top;
} kv_cpu_space;

/* One query row of the current block. */
typedef struct {
    int64_t first, end; /* visible tokens */
    int64_t needle;     /* -1 for none */
    float max;
    double sum; /* of exp(l - max), exact */
    int top_count;
    uint32_t top[KV_TOP_KEPT]; /* tokens from block_first, for each kv_top_k its best first */
} kv_cpu_lane;

/* One head that is being worked on, by `team` threads. */
typedef struct {
    const kv_cpu_plan *plan;
    int team;
    kv_cpu_space *spaces;              /* [team] */
    float *key, *key_pre_rope, *value; /* [T padded to KV_ROW_STEP][D] */
    float *query, *panels;             /* [R][D]; [width / 16][D][16] */
    float *logits;                     /* [KV_SLOTS + group][width / 16][span][16] */
    float *exact_out;                  /* [width][panels * 16] */
    float *out;                        /* [N_v][group][width][panels * 16] */
    kv_cpu_lane *lanes;                /* [width] */
    float *first, *end;                /* [width] visible tokens relative to block_first */
    double *sums;                      /* [group][width] */
    double *key_errors, *value_errors; /* [N_k][tiles], [N_v][tiles] */
    kv_fit **own_keys, **own_values;   /* fits of this head; NULL where layer-wide */
    int64_t scratch_floats;

    int64_t head;
    int64_t row, n_rows;              /* first row of the block, rows in it */
    int64_t block_first, block_end;   /* tokens any row of the block sees; first tile-aligned */
    int64_t common_first, common_end; /* tokens every row of the block sees */
    int64_t group_first, group_count; /* key schemes of the current group */
} kv_cpu_work;

kv_status kv_cpu_plan_create(kv_cpu_plan *plan, const kv_cpu_options *options,
                             const kv_layer *layer, const kv_evaluation *evaluation,
                             kv_measurements *out, kv_error *err);
void kv_cpu_plan_free(kv_cpu_plan *plan);

kv_status kv_cpu_work_create(kv_cpu_work **out, const kv_cpu_plan *plan, int team, kv_error *err);
void kv_cpu_work_free(kv_cpu_work *work);

/* Everything of one head into plan->out. */
kv_status kv_cpu_head(kv_cpu_work *work, int64_t head, kv_error *err);

/* The fit of a key or value scheme for this head. */
const kv_fit *kv_cpu_key_fit(const kv_cpu_work *work, int64_t scheme);
const kv_fit *kv_cpu_value_fit(const kv_cpu_work *work, int64_t scheme);
int64_t kv_cpu_fit_head(const kv_cpu_work *work, bool is_layer_wide);

/* The phases of a block (phases.c). */
/* Logits or weights [span][16] of the 16 rows from lane0 on. */
float *kv_cpu_slot(const kv_cpu_work *work, int64_t slot, int64_t lane0);
void kv_cpu_exact_keys(kv_cpu_work *work);
void kv_cpu_exact_rows(kv_cpu_work *work);
void kv_cpu_exact_values(kv_cpu_work *work);
void kv_cpu_group_keys(kv_cpu_work *work);
void kv_cpu_group_rows(kv_cpu_work *work);
void kv_cpu_group_values(kv_cpu_work *work);
void kv_cpu_group_errors(kv_cpu_work *work);

/* key_levels of every key scheme of this head (levels.c). */
kv_status kv_cpu_levels(kv_cpu_work *work, kv_error *err);

#endif
