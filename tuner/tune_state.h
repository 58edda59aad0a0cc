/* What the files of tuner/tune*.c share; not for other modules.
 *
 * tune.c          creates a tuning and takes it through its steps
 * tune_layers.c   what there is: layers, candidates, bytes
 * tune_measure.c  stack runs, batched into passes and kept in the cache
 * tune_table.c    the table: errors of every scheme in every layer
 * tune_capture.c  the table of a capture
 * tune_verify.c   end to end: the chosen points, recalibration
 * tune_repair.c   single steps away from what was verified
 * tune_compare.c  baselines */
#ifndef KVANT_TUNER_TUNE_STATE_H
#define KVANT_TUNER_TUNE_STATE_H

#include "sim/stack.h"
#include "tuner/cache.h"
#include "tuner/solution.h"
#include "tuner/strategies.h"
#include "tuner/tune.h"

/* Where an error of the table comes from. */
typedef enum {
    KV_TABLE_UNKNOWN,
    KV_TABLE_ESTIMATED, /* local power times the layer's gain */
    KV_TABLE_MEASURED   /* run to the end of the stack */
} kv_table_state;

/* One tensor's candidates. Those from n_choices on (the scheme to match) are only run. */
typedef struct {
    int64_t n_choices, n;
    kv_quantizer *quantizers; /* [n] */
    char **texts;             /* [n] canonical shorthand */
    int64_t *bytes;           /* [L][n] */
    double *local, *error;    /* [L][n] powers: at the layer's own output, at the end */
    uint8_t *state;           /* [L][n] kv_table_state */
} kv_tune_side;

/* How long a pass takes: seconds = fixed + flops * each, least squares over those made. */
typedef struct {
    double n, flops, seconds, flops_square, flops_seconds;
} kv_tune_pace;

struct kv_tuning {
    const kv_config *config;
    const kv_tune_settings *settings;
    kv_tune_environment environment;
    kv_budget budget;
    double deadline_s; /* on the monotonic clock; 0 none */
    kv_cache *cache;
    char *identity; /* what all measurements depend on */
    bool is_capture, is_table;

    /* tune_layers.c */
    kv_stack *stack; /* NULL with a capture or a table */
    kv_stack_pulls *pulls;
    int64_t layers, context;
    kv_stack_layer *geometry;                /* [L] */
    int64_t *kv_heads, *head_dims, *windows; /* [L] for the outcome */
    double *key_absmax, *value_absmax;       /* [L] */
    kv_tune_side keys, values;
    int64_t n_pairs; /* 0: all */
    int32_t (*pairs)[2];
    int32_t match[2]; /* indices of the scheme to match, or -1 */
    int64_t n_search, n_held_out;
    int64_t n_further;                      /* search seeds that the effort exhaustive adds */
    int64_t *search_seeds, *held_out_seeds; /* [n_search + n_further], [n_held_out] */
    kv_text notes;

    /* tune_measure.c */
    kv_tune_pace pace;
    const char *task;
    double task_flops, done_flops, pass_flops, pass_start_s;
    int64_t pass_layer;
    kv_cache *asked; /* keys of the runs asked for: each counts once, found in the cache or not */
    int64_t runs;    /* single-replicate runs asked for */
    double
        equivalents; /* of full runs: a run that leaves the exact one at layer l counts (L-l)/L */

    kv_problem *problem;
    kv_solution *solution;
    /* tune_verify.c */
    double limit;           /* power allowed on the search seeds; NAN with a budget on bytes */
    double *match_held_out; /* [n_held_out] powers of the scheme to match, or NULL */
    double policy_power;    /* of the policy on the search seeds */
    double policy_upper;    /* upper end of its held-out interval; NAN not known */
};

/* ---- tune_layers.c ---- */

kv_status kv_tune_layers_create(kv_tuning *t, kv_error *err);
void kv_tune_layers_free(kv_tuning *t);
/* The absolute maxima of every layer's exact tensors, first search seed. */
kv_status kv_tune_find_absmax(kv_tuning *t, kv_error *err);
/* One layer of the configuration, as the stack has it; the caller frees. */
kv_status kv_tune_layer_heads(kv_heads **out, const kv_tuning *t, int64_t layer, int64_t seed,
                              kv_error *err);

/* ---- tune_measure.c ---- */

double kv_tune_now_s(void);
/* The user's, or the time limit. */
bool kv_tune_is_cancelled(void *tuning);
kv_status kv_tune_check_cancelled(kv_tuning *t, kv_error *err);

/* Error powers of assignments, a row each: end to end, err_square / square after the last layer; or
 * is_local: of the attention output of the layer `last`, where the run ends. */
typedef struct {
    int64_t n;
    const int32_t (*assignment)[2]; /* [n][L] */
    const int64_t *last;            /* [n] of local ones */
    bool is_local;
    int64_t n_seeds;
    const int64_t *seeds;
} kv_tune_batch;
/* power [n][n_seeds]. What is not in the cache is run, in passes of about 20 s. */
kv_status kv_tune_measure(double *power, kv_tuning *t, const kv_tune_batch *batch, kv_error *err);
/* power [n]: means over the search seeds. */
kv_status kv_tune_measure_search(double *power, kv_tuning *t, int64_t n,
                                 const int32_t (*assignment)[2], kv_error *err);
/* Sets what progress says from now on. */
void kv_tune_set_task(kv_tuning *t, const char *task);

/* ---- tune_table.c, tune_capture.c ---- */

/* Fills local, error and state of both sides and makes t->problem. */
kv_status kv_tune_table(kv_tuning *t, kv_error *err);
kv_status kv_tune_capture_table(kv_tuning *t, kv_error *err);
/* t->problem from what is in both sides. */
kv_status kv_tune_make_problem(kv_tuning *t, kv_error *err);

/* Pairs that no other beats, run as pairs (effort exhaustive), after restrictions. */
kv_status kv_tune_pairs(kv_tuning *t, kv_error *err);

/* ---- tune_verify.c ---- */

/* assignments [n][L] of choices -> [n][L][2] of candidates. */
void kv_tune_expand(int32_t (*out)[2], const kv_tuning *t, const int32_t *choices, int64_t n);
/* power [n]: of assignments [n][L] of choices, means over the search seeds. */
kv_status kv_tune_measure_choices(double *power, kv_tuning *t, const int32_t *choices, int64_t n,
                                  kv_error *err);
/* power [n][n_held_out]; also measures the scheme to match where there is one. */
kv_status kv_tune_measure_held_out(double *power, kv_tuning *t, const int32_t *choices, int64_t n,
                                   kv_error *err);
/* The upper end of what held-out powers [n_held_out] say, and the power it must not exceed. With a
 * scheme to match both are paired with it. */
double kv_tune_upper(const kv_tuning *t, const double *power);
double kv_tune_held_out_limit(const kv_tuning *t);
void kv_tune_set_held_out(kv_candidate *candidate, const kv_tuning *t, const double *power);

/* The scheme to match on the search seeds: its error is the budget's limit. */
kv_status kv_tune_find_limit(kv_tuning *t, kv_error *err);
kv_status kv_tune_verify(kv_tuning *t, kv_error *err);

/* Makes an assignment [L] of choices the policy, with the power it has on the search seeds and
 * those on the held-out seeds [n_held_out]. */
kv_status kv_tune_set_policy(kv_tuning *t, const int32_t *choices, double search_power,
                             const double *held_out, kv_error *err);
/* Runs an assignment [L] that was found otherwise and makes it the policy where it is better on the
 * held-out seeds: within the budget at fewer bytes, or with less error. */
kv_status kv_tune_consider(kv_tuning *t, const int32_t *choices, kv_error *err);

/* ---- tune_repair.c ---- */

kv_status kv_tune_repair(kv_tuning *t, kv_error *err);

/* ---- tune_compare.c ---- */

kv_status kv_tune_compare(kv_tuning *t, kv_error *err);

#endif
