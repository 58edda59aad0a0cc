/* The decode stack: how an error in the cached keys and values of some layers grows through the
 * layers that follow, as it does in decoding after an exact prefill.
 *
 * L layers with hidden width N = query_heads * head_dim. The prefix (keys and values of every
 * layer) comes from the simulator: synthetic heads with the layer's profile, or a capture. S
 * streams decode one token each at the prefix's last position; stream s starts from a random hidden
 * state x [N] ~ N(0, 1) of (seed, s). Per layer, in float:
 *
 *     q = rope(gain_q * (P1 rms_norm(x)) + pull)       per query head
 *     o = attention(q, quantized cache)
 *     x = x + gain / rho * (P2 o)                      rho: RMS of all exact streams' o
 *     h = P3 rms_norm(x);   g = silu(h[0 : N/2]) * h[N/2 : N], scaled like o to RMS gain
 *     x = x + P4 [g, 0]
 *
 * P1 ... P4 are pseudo-random orthogonal N x N matrices of (seed, layer), signs * mixing * signs,
 * so that no weight is stored; N = m 2^k (even, k as large as it goes) mixes by a Hadamard matrix
 * of size 2^k in each of m blocks and I - 2/m 11^T across them. `gain` is heads.stack.gain. `pull`
 * is what turns the exact stream's queries towards sinks, recent tokens and needles
 * (heads.sinks.mass, heads.query.classes): found on the exact streams, added to all runs alike. rho
 * and the scale of g (its RMS is over its N/2 numbers) are those of the exact streams, too:
 * constants of (seed, layer).
 *
 * A run is one assignment: for each layer a key and a value quantizer, or none. Runs share what
 * they have in common: two runs that agree on the first l layers are computed once up to there. All
 * runs of a call see the same prefix and streams, so differences between schemes are paired. A
 * run's numbers depend neither on the other runs of the call nor on threads. Memory: three times
 * S N floats for each state that differs, so at most 12 S N bytes a run.
 *
 *     kv_stack_create(&stack, &config, index, streams, &err);
 *     kv_stack_run(&measured, stack, seed, &runs, &environment, &err);
 *     sqrt(measured.err_square[run * L + L - 1] / measured.square[L - 1])       stack_err */
#ifndef KVANT_SIM_STACK_H
#define KVANT_SIM_STACK_H

#include "kernels/backend.h"
#include "sim/config.h"

typedef struct kv_stack kv_stack;

/* The stack of one sweep point: layers, widths and windows from `config` (which must outlive it) at
 * axis indices `index` [n_axes]. KV_EREQUEST where layers differ in query_heads * head_dim, or it
 * is odd. */
kv_status kv_stack_create(kv_stack **out, const kv_config *config, const int64_t *index,
                          int64_t streams, kv_error *err);
void kv_stack_free(kv_stack *stack);

int64_t kv_stack_layers(const kv_stack *stack);

/* What a layer stores: for sizes. `number` is the layer's number in the model or capture. */
typedef struct {
    int64_t number, kv_heads, query_heads, tokens, head_dim, window;
} kv_stack_layer;
kv_stack_layer kv_stack_layer_at(const kv_stack *stack, int64_t layer);

typedef struct {
    int64_t n_keys, n_values;
    const kv_quantizer *keys, *values;
    int64_t n_runs;
    const int32_t (*assignment)[2]; /* [n_runs][L] indices into keys and values, -1: exact */
    const int64_t *last; /* [n_runs] a run ends with this layer; NULL: all go to the end */
} kv_stack_runs;

/* Powers, summed over streams. A layer past a run's `last` is NaN. */
typedef struct {
    int64_t n_runs, layers;
    double *square;            /* [L] |x|^2 of the exact residual stream after each layer */
    double *err_square;        /* [n_runs][L] |x^ - x|^2 */
    double *output_square;     /* [L] |o|^2 of the exact attention output */
    double *output_err_square; /* [n_runs][L] |o^ - o|^2 */
} kv_stack_measured;
void kv_stack_measured_free_contents(kv_stack_measured *measured);

/* The pulls that runs of one stack have found, 4 S N bytes a layer and seed: a further run of the
 * same seed takes them from here, to the same numbers. For one run at a time. */
typedef struct kv_stack_pulls kv_stack_pulls;
kv_status kv_stack_pulls_create(kv_stack_pulls **out, kv_error *err);
void kv_stack_pulls_free(kv_stack_pulls *pulls);

typedef struct {
    const kv_backend *backend;
    int threads;
    bool (*is_cancelled)(void *context); /* polled before each layer; NULL: never */
    void (*on_layer)(void *context);     /* after each layer, for progress; NULL */
    void *context;
    kv_stack_pulls *pulls; /* NULL: nothing is kept */
} kv_stack_environment;

/* One replicate. KV_EINTERRUPTED when cancelled. The caller frees the contents of *out. */
kv_status kv_stack_run(kv_stack_measured *out, const kv_stack *stack, int64_t seed,
                       const kv_stack_runs *runs, const kv_stack_environment *environment,
                       kv_error *err);

/* Floating-point operations of the products of such a call, for estimates of time. */
double kv_stack_flops(const kv_stack *stack, const kv_stack_runs *runs);

#endif
