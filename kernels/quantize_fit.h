/* Inside of a fit: what the stages of quantization share. Not part of the interface (quantize.h).
 *
 * Fitting is a list of steps; each step takes one or more passes over the heads. In a pass every
 * head is walked in chunks of KV_CHUNK tokens, each chunk transformed as far as the step needs, so
 * that no second copy of a tensor exists. A pass writes only what belongs to its head; the step's
 * `end` combines heads in head order, which makes results independent of threads.
 *
 * Tokens are counted from the first quantized one: u = t - first, u < span. */
#ifndef KVANT_KERNELS_QUANTIZE_FIT_H
#define KVANT_KERNELS_QUANTIZE_FIT_H

#include "kernels/quantize.h"
#include "kernels/quantize_rows.h"
#include "kernels/quantize_select.h"
#include "kernels/scale.h"

enum { KV_CHUNK = 64, KV_JOB_ROWS = KV_CHUNK + 6, KV_MAX_STEPS = KV_TRANSFORM_COUNT + 4 };

/* From how many channels on a one-token tile is handled as a run with one scale (8 floats are
 * an AVX2 vector); narrower ones as channels with a scale each. Speed only: values are the same. */
enum { KV_WIDE = 8 };

/* Work space of one call: KV_JOB_ROWS rows of [D]. */
typedef struct {
    int64_t head;
    float *z;                                /* [KV_CHUNK][D] the transformed chunk */
    float *swap, *scale, *inverse, *minimum; /* [D] */
    float *low, *high;                       /* [D] */
    double *sums;                            /* [fit->job_doubles], zero at first */
} kv_job;

kv_job kv_job_of(int64_t head, float *rows, double *sums, int64_t d);

typedef struct {
    /* Before the first pass; *is_done = true where no pass is needed. May be NULL. */
    kv_status (*begin)(kv_fit *fit, bool *is_done, kv_error *err);
    /* Tokens u ... u + count - 1 of job->head, z [count][D]. */
    kv_status (*chunk)(kv_fit *fit, kv_job *job, int64_t u, int64_t count, const float *z,
                       kv_error *err);
    /* After all heads; *is_done is true unless the step asks for another pass. May be NULL. */
    kv_status (*end)(kv_fit *fit, bool *is_done, kv_error *err);
} kv_step;

/* A transform: transforms/NAME.c defines kv_transform_NAME for its row of KV_TRANSFORM_TABLE. */
typedef struct {
    kv_status (*check)(const kv_transform_setting *s, const kv_tensor_shape *shape, kv_error *err);
    kv_status (*create)(kv_fit *fit, kv_error *err);
    const kv_step *learn; /* NULL: nothing to learn from the tensor */
    /* z [count][D] in place, swap [D]. */
    void (*apply)(const kv_fit *fit, int64_t head, int64_t count, float *z, float *swap);
    void (*undo)(const kv_fit *fit, int64_t head, int64_t count, float *z, float *swap);
    int bits_per_channel; /* stored, per kv head */
} kv_transform;

#define KV_ROW(name, ...) extern const kv_transform kv_transform_##name;
KV_TRANSFORM_TABLE(KV_ROW)
#undef KV_ROW

/* A range rule: ranges/NAME.c defines kv_range_NAME_step for its row of KV_RANGE_TABLE; it ends
 * with fit->scale and fit->minimum set, or leaves both NULL for scale 1. */
#define KV_ROW(name, ...) extern const kv_step kv_range_##name##_step;
KV_RANGE_TABLE(KV_ROW)
#undef KV_ROW

/* Channels of one block of transforms/hadamard.c. */
int64_t kv_hadamard_size(const kv_transform_setting *s, const kv_tensor_shape *shape);

/* What a transform learnt: [heads][D] each. */
typedef struct {
    float *channel;
    double *statistic;
} kv_transform_state;

struct kv_fit {
    kv_quantizer q;
    kv_tensor_shape shape;
    const kv_format *format;
    const kv_rows *rows;
    int64_t first, span; /* quantized tokens */
    kv_tile_grid grid;
    float limit;    /* largest code of an integer grid */
    bool has_range; /* the format has a scale that a range rule finds */

    struct {
        const kv_step *step;
        int transforms; /* how many leading transforms are applied to what it sees */
        bool marks;     /* kept outliers are NaN */
        bool is_range;  /* obeys static_tokens and static_seeds */
    } steps[KV_MAX_STEPS];
    int n_steps, step;
    int64_t job_doubles;

    kv_transform_state transforms[KV_TRANSFORM_COUNT];
    kv_tile_grid vectors;        /* outlier vectors */
    float *keep_low, *keep_high; /* [heads][vectors]: kept are x <= low and x >= high */
    int64_t *kept;               /* [heads] elements kept */
    kv_select *select;           /* of the step that runs */

    float *low, *high;      /* [heads][tiles] what each head found; the first tiles after `end` */
    float *scale, *minimum; /* [grid.heads][tiles] as stored */
    float global_scale;     /* e4m3 scales: the f32 above them */

    float *best_factor;  /* mse: [grid.heads][tiles] */
    double *best_error;  /* mse: [grid.heads][tiles] */
    double *errors;      /* mse: [heads][tiles][factors of this pass] */
    int factor, factors; /* mse: first of this pass, how many */
    bool is_searching;   /* mse */
};

static inline int64_t kv_minimum_size(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Tiles of one head, and where a head's tiles begin in scale, minimum. */
static inline int64_t kv_grid_tiles(const kv_tile_grid *g)
{
    return g->rows * g->columns;
}
static inline int64_t kv_fit_tile_base(const kv_fit *fit, int64_t head)
{
    return fit->grid.heads == 1 ? 0 : head * kv_grid_tiles(&fit->grid);
}

/* How many of `count` tokens from u lie in u's tile row. */
static inline int64_t kv_grid_segment(const kv_tile_grid *g, int64_t u, int64_t count)
{
    return kv_minimum_size(count, (u / g->tokens + 1) * g->tokens - u);
}

kv_tile_grid kv_tile_grid_of(int64_t heads, int64_t span, int64_t head_dim, int64_t tokens,
                             int64_t channels);
/* The tiles of a quantizer that quantizes `span` tokens. */
kv_tile_grid kv_quantizer_grid(const kv_quantizer *q, const kv_tensor_shape *shape, int64_t span);

/* Applies the first n transforms of the table (those that are on), and undoes all. */
void kv_fit_apply(const kv_fit *fit, int n, int64_t head, int64_t count, float *z, float *swap);
void kv_fit_undo(const kv_fit *fit, int64_t head, int64_t count, float *z, float *swap);
const kv_transform *kv_transform_ops(size_t id);

/* How many of the span's tokens the running step sees. */
int64_t kv_fit_range_tokens(const kv_fit *fit);

/* Stored bits of the fitted heads where `kept` outliers are kept (quantize_bits.c). */
int64_t kv_quantizer_bits_kept(const kv_quantizer *q, const kv_tensor_shape *shape, int64_t kept);

/* Outliers (quantize_outliers.c): the steps find thresholds and count what is kept. */
extern const kv_step kv_outlier_step, kv_outlier_count_step;
kv_status kv_fit_create_outliers(kv_fit *fit, kv_error *err);
/* The vectors of which outliers are found, and how many a vector of n different numbers has. */
kv_tile_grid kv_outlier_vectors(const kv_quantizer *q, const kv_tensor_shape *shape, int64_t span);
int64_t kv_outliers_of(const kv_quantizer *q, int64_t n);
/* The percentiles between which numbers are not kept. */
typedef struct {
    double low, high;
} kv_outlier_percentiles;
kv_outlier_percentiles kv_outlier_percentiles_of(const kv_quantizer *q);
/* Whether vectors are channels; a head_dim of 1 can make vectors of one element. */
bool kv_outliers_by_channel(const kv_tile_grid *vectors);
/* Kept elements of z become NaN; or y = f16(z) there. */
void kv_fit_mark(const kv_fit *fit, int64_t head, int64_t u, int64_t count, float *z);
void kv_fit_keep(const kv_fit *fit, int64_t head, int64_t u, int64_t count, float *y,
                 const float *z);
/* Whether element (u, c) with value z is kept. */
bool kv_fit_is_kept(const kv_fit *fit, int64_t head, int64_t u, int64_t c, float z);

/* Ranges and scales (quantize_scale.c). */
/* low and high for a pass over extremes, and the pass's loop. */
kv_status kv_fit_start_extremes(kv_fit *fit, kv_error *err);
void kv_fit_chunk_extremes(kv_fit *fit, kv_job *job, int64_t u, int64_t count, const float *z);
/* Folds what the heads found into the first tiles where one tile spans all heads. */
void kv_fit_combine_ranges(kv_fit *fit);
/* How one range is stored (under fit->global_scale). */
kv_scale_rule kv_fit_scale_rule(const kv_fit *fit);
/* The e4m3 storage's global scale from low and high of all tiles; KV_ENUMERIC where max - min
 * overflows. Then scale and minimum of all tiles; KV_ENUMERIC where a value would overflow. */
kv_status kv_fit_set_global(kv_fit *fit, kv_error *err);
kv_status kv_fit_store_scales(kv_fit *fit, kv_error *err);
kv_status kv_fit_set_scales(kv_fit *fit, kv_error *err); /* both */
/* scale, inverse, minimum [D] of a tile row; and the part of one tile column. */
void kv_fit_expand(const kv_fit *fit, int64_t head, int64_t row, float *scale, float *inverse,
                   float *minimum);
void kv_fit_fill(const kv_fit *fit, int64_t column, float s, float m, float *scale, float *inverse,
                 float *minimum);

/* Decoding of a transformed chunk, in the transformed space (quantize_decode.c). */
void kv_fit_decode_chunk(const kv_fit *fit, const kv_job *job, int64_t u, int64_t count, float *y,
                         const float *z);

#endif
