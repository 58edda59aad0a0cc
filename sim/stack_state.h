/* What the files of sim/stack*.c share; not for other modules.
 *
 * stack.c         creates a stack and runs it, layer by layer
 * stack_layer.c   takes all states through one layer
 * stack_branch.c  which runs are still the same, so that each state is computed once
 * stack_pulls.c   pulls kept between runs
 * stack_mix.c     the orthogonal matrices between which the nonlinear parts lie */
#ifndef KVANT_SIM_STACK_STATE_H
#define KVANT_SIM_STACK_STATE_H

#include "sim/stack.h"

struct kv_stack {
    int64_t n_layers, width, streams;
    int64_t *numbers;          /* [L] */
    kv_heads_config *settings; /* [L] with the profile applied */
    kv_stack_layer *layers;    /* [L] */
};

/* kv_stream_id's tensors of the stack, beyond those of the heads. */
enum { KV_STACK_STREAM_STATE = KV_HEADS_STREAMS, KV_STACK_STREAM_SIGN };

/* ---- matrices ---- */

typedef enum { KV_MIX_QUERY, KV_MIX_OUTPUT, KV_MIX_UP, KV_MIX_DOWN, KV_MIX_COUNT } kv_mix_which;

/* P1 ... P4 of one (seed, layer). N = blocks * size, size the largest power of two. */
typedef struct {
    int64_t width, blocks, size;
    float *signs; /* [KV_MIX_COUNT][2][N] of +-1: those after the mixing, those before it */
} kv_mix;

kv_status kv_mix_create(kv_mix *out, int64_t width, int64_t layer, int64_t seed, kv_error *err);
void kv_mix_free_contents(kv_mix *mix);

/* y [N] = P x [N], which may be the same array. In float, sums in fixed order. */
void kv_mix_apply(float *y, const kv_mix *mix, kv_mix_which which, const float *x);

/* ---- branches ---- */

/* What becomes of a state in one layer under a key and a value quantizer, -1 for none. */
typedef struct {
    int64_t from;
    int32_t key, value;
    int64_t run; /* -1: the exact streams */
} kv_branch;

/* Runs that went through the same quantizers so far are in the same state; state 0 is exact. */
typedef struct {
    int64_t n_runs, layers;
    const kv_stack_runs *runs;
    int64_t n_states;
    int64_t *state;      /* [n_runs] where each run is; -1 where it has ended */
    kv_branch *branches; /* [n_runs + 1] */
} kv_branches;

kv_status kv_branches_create(kv_branches *out, const kv_stack_runs *runs, int64_t layers,
                             kv_error *err);
void kv_branches_free_contents(kv_branches *b);

/* Goes through one layer: branches [n_states] are the new states, distinct, by rising `from`. */
void kv_branches_step(kv_branches *b, int64_t layer);

/* ---- pulls ---- */

/* [H][S][D], or NULL where it is not there; `pulls` may be NULL. */
const float *kv_stack_pulls_find(const kv_stack_pulls *pulls, int64_t seed, int64_t layer);
/* Takes *pull over, unless `pulls` is NULL. */
kv_status kv_stack_pulls_add(kv_stack_pulls *pulls, int64_t seed, int64_t layer, float **pull,
                             kv_error *err);

/* ---- a layer ---- */

/* Of a state, summed over streams: of state 0 |x|^2 and |o|^2, of the others |x^ - x|^2 and |o^ -
 * o|^2. */
typedef struct {
    double state, output;
} kv_stack_powers;

/* Takes the states before the layer, *states [states][S][N], through it: they are freed, and the
 * new ones, of `branches`, take their place. powers [n_states]. */
kv_status kv_stack_step(float **states, kv_stack_powers *powers, const kv_stack *stack,
                        const kv_branches *branches, int64_t layer, int64_t seed,
                        const kv_stack_environment *environment, kv_error *err);

#endif
