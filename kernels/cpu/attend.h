/* Inside of attention of the caller's queries: what a call and its heads hold, and the work space
 * of a block of rows (gather.h). */
#ifndef KVANT_KERNELS_CPU_ATTEND_H
#define KVANT_KERNELS_CPU_ATTEND_H

#include "kernels/cpu/fits.h"
#include "kernels/cpu/gather.h"
#include "kernels/cpu/kernels.h"

enum { KV_ATTEND_TILE = 256 }; /* tokens decoded and multiplied at a time; fits L2 */

/* The quantizers of one side that rows name, and where each of the caller's is among them. */
typedef struct {
    kv_quantizer *quantizers;
    int32_t *place; /* [n of the caller], -1 where no row names it */
    kv_side side;
    kv_fit **layer_fits; /* [side.n], NULL where heads have their own */
} kv_attend_side;

typedef struct {
    const kv_layer *layer;
    const kv_attention *attention;
    const kv_cpu_kernels *kernels;
    float *out;
    int threads;
    kv_attend_side keys, values;
    bool wants_pre_rope;
    int32_t (*pair)[2];   /* [rows] among the named ones */
    int64_t rows, panels; /* rows of one kv head, 16-channel panels */
    int64_t first, end;   /* tokens that every row sees */
    int64_t origin, span; /* token of the logits' first row (first, rounded down), their rows */
    kv_gathering gathering;
} kv_attend_plan;

typedef struct {
    int64_t number;
    float *key, *key_pre_rope, *value; /* [T padded to KV_ROW_STEP][D] */
    kv_fit **key_fits, **value_fits;   /* own ones, NULL where they span heads */
} kv_attend_head;

/* What one thread needs to itself, for the largest block. */
typedef struct {
    float *decoded, *packed; /* [KV_ATTEND_TILE][D]; [panels][KV_ATTEND_TILE][16] */
    float *scratch;          /* of kv_fit_decode */
    int64_t scratch_floats;
    float *queries;          /* [groups][D][16] */
    float *logits, *weights; /* [groups][span][16]; [groups][KV_ATTEND_TILE][16] */
    float *max;              /* [groups][16] */
    double *sum;             /* [groups][16] of exp(l - max) */
    float *out;              /* [pieces][16][panels * 16] */
} kv_attend_space;

/* A block of rows of one head, all of it, into plan->out. Returns -1, or the first row (of the
 * head's) whose numbers are beyond float. */
int64_t kv_attend_block(const kv_attend_plan *plan, kv_attend_space *space,
                        const kv_attend_head *head, const kv_row_block *block);

/* The fit of a named quantizer; own are the head's. */
const kv_fit *kv_attend_fit(const kv_attend_side *side, kv_fit *const *own, int32_t scheme);
const float *kv_attend_queries(const kv_attend_plan *plan, int64_t kv_head);

#endif
