/* Backends: who does the arithmetic. One table, one interface, one test suite for all.
 *
 * The unit of work is a layer: its kv heads, the schemes to try on it, and the numbers to bring
 * back. A backend reads tensors through the layer's source (a generator or a capture) and fills raw
 * measurements; what they mean as metrics is sim/'s business.
 *
 * How an evaluation is organised (and why it is not an online softmax): for a block of queries and
 * a group of key schemes, keys are dequantized once per key scheme and multiplied with the queries,
 * which leaves whole logits, [1 + group][T][Q]; whole rows then give the exact distribution, its
 * quantized counterpart and every row metric (total variation and top-k need whole distributions,
 * which an online softmax never has); values are dequantized once per value scheme and multiplied
 * with the weights of every key scheme of the group paired with it. N_k + N_k * N_v small products,
 * never N_k * N_v quantizations; what is dequantized again is, per block, N_k key tensors and, per
 * block and group, N_v value tensors.
 *
 * The CPU does so head by head, in token tiles that fit in cache (cpu/work.h); CUDA for as many
 * heads at a time as fit into the device's memory, with whole dequantized tensors (cuda/plan.h).
 *
 * Exact reference: p = softmax(q.k / sqrt(D)) over visible tokens, o = sum p v, on unquantized
 * float keys and values. */
#ifndef KVANT_KERNELS_BACKEND_H
#define KVANT_KERNELS_BACKEND_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "kernels/error.h"
#include "kernels/pull.h"
#include "kernels/quantize.h"
#include "kernels/rope.h"

KV_EXTERN_C_BEGIN

typedef enum { KV_KEY, KV_KEY_PRE_ROPE, KV_VALUE } kv_tensor;

/* How a backend can make a layer's tensors itself, with the bits that `load` and `query` (or
 * kv_pulling's draw) give.
 * Before the source's RoPE, keys and values are
 *     x[t][c] = (float)(gain(context, tensor, t) * (mean[c] + spread[c] * z))
 * in double, each operation rounded by itself. z is element t * D + c of the Philox stream
 * kv_stream_id(layer, calibration, kv head, tensor): kv_philox_normals's number, or with is_uniform
 * sqrt(3) * (2 * u - 1) of kv_philox_uniforms's u. tensor is 0 for keys and 1 for values. A
 * calibration beyond KV_RECIPE_CALIBRATIONS is load's to refuse. Queries are query_gain * z, with
 * element i * D + c of stream (layer, 0, query head, 2), turned by RoPE at their positions, which
 * are tokens. */
enum {
    KV_RECIPE_KEY,
    KV_RECIPE_VALUE,
    KV_RECIPE_TENSORS,
    KV_RECIPE_QUERY = KV_RECIPE_TENSORS,
    KV_RECIPE_CALIBRATIONS = 4095
};
typedef struct {
    uint64_t seed, layer;
    bool is_uniform;
    const double *mean[KV_RECIPE_TENSORS], *spread[KV_RECIPE_TENSORS]; /* [G][D] each */
    double (*gain)(const void *context, int tensor, int64_t token);    /* context: the source's */
    double query_gain;
} kv_recipe;

/* How queries come about that are drawn and then pulled (pull.h), for a backend that pulls them
 * itself to what `query` gives: `draw` writes a kv head's rows [R][D] as they are before, `list`
 * what each is pulled to, [R][KV_PULLS]. Both are called from several threads. */
typedef struct {
    kv_status (*draw)(void *context, int64_t kv_head, float *out, kv_error *err);
    void (*list)(const void *context, int64_t kv_head, kv_pull (*pulls)[KV_PULLS]);
} kv_pulling;

/* Where a layer's numbers come from. `load` writes one kv head, out [T][D]; KV_KEY is the key as
 * attention uses it (after RoPE), KV_KEY_PRE_ROPE the one before. calibration 0 is the layer
 * itself, 1 ... static_seeds are other draws for static scales. `query` writes the rows of one kv
 * head's group, out [query_heads / kv_heads * Q][D], after RoPE. Both are called from several
 * threads. */
typedef struct {
    void *context;
    kv_status (*load)(void *context, kv_tensor tensor, int64_t kv_head, int64_t calibration,
                      float *out, kv_error *err);
    kv_status (*query)(void *context, int64_t kv_head, float *out, kv_error *err);
    const kv_rope *rope;       /* of the keys; NULL for none */
    const kv_recipe *recipe;   /* NULL: tensors must be loaded */
    const kv_pulling *pulling; /* NULL: queries are not pulled */
} kv_source;

/* One layer. query_position [Q]: query i sees tokens t <= position and, with a window W > 0,
 * t > position - W. needle [query_heads][Q]: the token that should win, or -1; NULL for none. */
typedef struct {
    int64_t kv_heads, query_heads, tokens, head_dim, queries;
    int64_t window;
    double softmax_scale; /* 1 / sqrt(head_dim) unless the model says otherwise */
    int64_t rotary_dim;   /* for quantizers that pair channels; 0 without RoPE */
    bool is_rope_interleaved;
    const int64_t *query_position;
    const int64_t *needle;
    kv_source source;
} kv_layer;

/* The tokens [begin, end) that a query at `position` sees; none where begin >= end. */
typedef struct {
    int64_t begin, end;
} kv_visible;
kv_visible kv_layer_visible(const kv_layer *layer, int64_t position);

/* What to evaluate: distinct key and value quantizers, and the pairs wanted of them. */
typedef struct {
    int64_t n_keys, n_values, n_pairs;
    const kv_quantizer *keys, *values;
    const int64_t (*pairs)[2]; /* [n_pairs]: index into keys, index into values */
    bool want_levels;          /* count distinct codes (costs a second encoding) */
    bool want_rows;            /* tv and top-k (cost a pass over each row) */
} kv_evaluation;

/* What every backend refuses first: KV_EREQUEST for sizes, queries that see no token, pairs of
 * schemes that are not there. */
kv_status kv_evaluation_check(const kv_layer *layer, const kv_evaluation *evaluation,
                              kv_error *err);

enum { KV_TOP_COUNT = 3 };
extern const int64_t kv_top_k[KV_TOP_COUNT]; /* 1, 8, 64 */

/* One key scheme, one query row. */
typedef struct {
    double logit_err_max;           /* max |l^ - l| over visible tokens, nats */
    double logit_err_square;        /* sum of (l^ - l)^2 over visible tokens, nats^2 */
    double kl;                      /* KL(p || p^), nats */
    double tv;                      /* 1/2 sum |p - p^| */
    double top_agree[KV_TOP_COUNT]; /* |top-k(p) & top-k(p^)| / min(k, visible);
                                       the CPU ranks no logit below -1e30 */
    double needle_margin; /* quantized logit of the needle minus the largest other, nats */
} kv_key_row;

/* Raw numbers of one layer. R = query_heads / kv_heads * Q rows per kv head, row = h_in_group * Q +
 * i. */
typedef struct {
    int64_t heads, rows, n_keys, n_values, n_pairs;
    int64_t *visible;                          /* [R] visible tokens of each row */
    double *out_square;                        /* [G][R]          |o|^2 */
    double *out_err_square;                    /* [G][P][R]       |o^ - o|^2 */
    kv_key_row *key_rows;                      /* [G][N_k][R] */
    double *exact_needle_margin;               /* [G][R] margin with exact keys */
    double *key_square, *value_square;         /* [G]       |x|^2 */
    double *key_err_square, *value_err_square; /* [G][N_k], [G][N_v]   |x^ - x|^2, in the space
                                                  attention uses (keys after RoPE) */
    double *key_absmax, *key_absmedian;        /* [G] of the exact key after RoPE */
    double *key_levels;                        /* [G][N_k], NaN where not wanted */
    double *key_bits, *value_bits; /* [N_k], [N_v] stored bits of the layer, all kv heads */
} kv_measurements;

kv_status kv_measurements_create(kv_measurements **out, const kv_layer *layer,
                                 const kv_evaluation *evaluation, kv_error *err);
void kv_measurements_free(kv_measurements *m);

/* Attention of queries that the caller makes, as in decoding: every query head has the same number
 * of rows, every row sees the cache from `position` (clamped by the layer's window), and each row
 * names the key and the value quantizer of the cache it reads; -1 is the unquantized one. The
 * layer's own queries, positions and needles are not used. */
typedef struct {
    int64_t n_keys, n_values;
    const kv_quantizer *keys, *values;
    int64_t rows;
    int64_t position;         /* the token the rows stand on */
    const float *query;       /* [H][rows][D] after RoPE */
    const int32_t (*pair)[2]; /* [rows] key and value quantizer, -1 for none */
} kv_attention;

/* What every backend refuses first, as kv_evaluation_check. */
kv_status kv_attention_check(const kv_layer *layer, const kv_attention *attention, kv_error *err);

typedef struct {
    const char *name;
    const char *about;
    /* NULL where it can run here, else the reason in words. */
    const char *(*unavailable)(void);
    /* What computes, for provenance: a GPU's name. Only where it can run. */
    const char *(*device)(void);
    /* Takes one of several devices, before anything is computed; NULL where there is no choice.
     * KV_EREQUEST, with how many there are, for one that is not there. */
    kv_status (*choose)(int device, kv_error *err);
    /* Evaluates one layer with up to `threads` threads. The numbers do not depend on `threads`. */
    kv_status (*evaluate)(const kv_layer *layer, const kv_evaluation *evaluation, int threads,
                          kv_measurements *out, kv_error *err);
    /* out [H][rows][D] = softmax(q.k^ softmax_scale) v^. A row's numbers depend neither on
     * `threads` nor on the other rows. */
    kv_status (*attend)(const kv_layer *layer, const kv_attention *attention, int threads,
                        float *out, kv_error *err);
} kv_backend;

const kv_backend *kv_backend_at(size_t index); /* NULL past the end */

/* "auto" takes the first that can run, in table order. KV_EREQUEST for an unknown name,
 * KV_EUNSUPPORTED with the reason for one that cannot run here. */
kv_status kv_backend_find(const kv_backend **out, const char *name, kv_error *err);

/* Why "auto" took it: why not those before it ("not cuda: no device"), or else its device. */
void kv_backend_why(char *text, size_t size, const kv_backend *taken);

/* The table, with the reason where one cannot run here. */
void kv_backend_list(FILE *out);

KV_EXTERN_C_END

#endif
