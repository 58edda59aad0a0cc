/* Quantization of one tensor: a short pipeline of independent stages, all settings, no methods.
 *
 *     position -> transform -> outliers -> tile / range / grid / scale storage       (and window)
 *
 * A kv_quantizer holds the settings of all stages; zero is the default of each. A kv_fit is what a
 * quantizer learns from a tensor (transform statistics, scales, zero points, outlier thresholds),
 * and with it any range of tokens is turned into codes or dequantized values. Numbers come back as
 * float; the storage they would take is counted exactly by kv_fit_bits.
 *
 *     kv_fit *fit;
 *     kv_fit_create(&fit, &quantizer, &shape, &err);
 *     for (kv_fit_wants wants; (wants = kv_fit_next(fit)) != KV_FIT_READY;) {
 *         for (int64_t h = 0; h < shape.heads; h++) kv_fit_absorb(fit, h, x + h * T * D, &err);
 *         kv_fit_end_pass(fit, &err);
 *     }
 *     kv_fit_decode(fit, head, x, first, count, y, scratch, &err);      // y [count][D]
 *
 * Shapes: x [T][D] is one kv head in the quantizer's position (pre- or post-RoPE), row-major float.
 * Determinism: the result does not depend on thread count, on the order of absorb calls within a
 * pass, or on how the tokens are split over decode calls. Codes, scales and values are
 * bit-identical on every backend. Every rule is stated beside the function that implements it, with
 * its source. */
#ifndef KVANT_KERNELS_QUANTIZE_H
#define KVANT_KERNELS_QUANTIZE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/error.h"
#include "kernels/format.h"
#include "kernels/stages.h"

KV_EXTERN_C_BEGIN

/* What shares one scale. Rows of the tile table in quantize.c give names and meaning; the tiles
 * before KV_TILE_BLOCK are known by their names alone. */
typedef enum {
    KV_TILE_TENSOR,    /* the layer's whole tensor: all kv heads, tokens, channels */
    KV_TILE_HEAD,      /* one kv head */
    KV_TILE_CHANNEL,   /* one channel of one kv head, all tokens */
    KV_TILE_TOKEN,     /* one token of one kv head, all channels */
    KV_TILE_TOKEN_ALL, /* one token, all kv heads */
    KV_TILE_BLOCK      /* tile_tokens x tile_channels of one kv head; 0 means all */
} kv_tile;

/* One row of the tile table; tokens and channels 0 mean all. NULL past the end. */
typedef struct {
    const char *name, *about;
    bool is_layer_wide; /* one tile spans all kv heads */
    int64_t tokens, channels;
} kv_tile_row;
const kv_tile_row *kv_tile_at(size_t id);

/* A transform's setting: off, or on with the value its row of KV_TRANSFORM_TABLE describes. */
typedef struct {
    bool is_on, has_signs;
    double value; /* 0 = the row's preset (hadamard: head_dim) */
} kv_transform_setting;

typedef struct {
    /* position */
    bool is_pre_rope; /* keys only */
    kv_transform_setting transforms[KV_TRANSFORM_COUNT];
    double outliers_percent; /* kept at f16 with a 16-bit index; 0 none */
    /* tile, range, grid, scale storage */
    kv_tile tile;
    int64_t tile_tokens, tile_channels; /* KV_TILE_BLOCK */
    kv_range range;
    double range_value;    /* percentile p */
    int64_t static_tokens; /* ranges from the first N quantized tokens only; 0 off */
    int64_t static_seeds;  /* ranges from K other seeds; 0 off */
    kv_format_id format;
    bool is_asymmetric;
    kv_scale_storage scale_storage;
    /* window: these tokens stay at f16 and take no part in anything above */
    int64_t sinks, window, flush;
} kv_quantizer;

/* heads: 1 for a fit of a single kv head, the layer's kv heads where kv_quantizer_is_layer_wide.
 * rotary_dim and is_rope_interleaved say which channels RoPE pairs (c, c + rotary_dim / 2 or 2i,
 * 2i + 1), for transforms that must treat a pair alike; rotary_dim 0 where nothing is paired:
 * values, and keys in pre-RoPE position. seed names the stream of seeded signs. */
typedef struct {
    int64_t heads, tokens, head_dim;
    int64_t rotary_dim; /* 0: channels are not paired */
    bool is_rope_interleaved;
    uint64_t seed;
} kv_tensor_shape;

typedef struct kv_fit kv_fit;

/* What the next pass must absorb. */
typedef enum {
    KV_FIT_READY,      /* nothing more: decode may be called */
    KV_FIT_TENSOR,     /* every head of the tensor itself */
    KV_FIT_CALIBRATION /* every head, once per calibration seed (static_seeds of them) */
} kv_fit_wants;

/* Whether a fit needs all heads of the layer: one tile spans several kv heads, or scales are e4m3
 * under the tensor's one f32 scale. */
bool kv_quantizer_is_layer_wide(const kv_quantizer *q);

/* The shape of one fit of a layer's tensor: of one kv head, or of all where the quantizer is
 * layer-wide; nothing is paired in pre-RoPE position. `layer`: all kv heads, paired as keys are
 * after RoPE. */
kv_tensor_shape kv_quantizer_fit_shape(const kv_quantizer *q, const kv_tensor_shape *layer);

/* KV_EREQUEST with a sentence where settings contradict each other or do not fit the shape. */
kv_status kv_quantizer_check(const kv_quantizer *q, const kv_tensor_shape *shape, kv_error *err);

/* The tokens that are quantized: [*first, *end). */
void kv_quantizer_span(const kv_quantizer *q, int64_t tokens, int64_t *first, int64_t *end);

kv_status kv_fit_create(kv_fit **out, const kv_quantizer *q, const kv_tensor_shape *shape,
                        kv_error *err);
void kv_fit_free(kv_fit *fit);

kv_fit_wants kv_fit_next(const kv_fit *fit);

/* x [T][D] of kv head `head`. NaN or Inf is KV_ENUMERIC naming head, token and channel, and so are
 * numbers that f16 (or bf16, a block's scale) cannot hold where they are stored so. Different heads
 * may be absorbed by different threads at once; a head's calibration draws one after another, in
 * the same order every time. After an error the fit can only be freed. */
kv_status kv_fit_absorb(kv_fit *fit, int64_t head, const float *x, kv_error *err);
kv_status kv_fit_end_pass(kv_fit *fit, kv_error *err);

/* Dequantized values of tokens [first, first + count): x is the whole head [T][D], y [count][D].
 * Thread-safe; scratch holds at least kv_fit_scratch_floats(fit, count) floats of this thread. */
int64_t kv_fit_scratch_floats(const kv_fit *fit, int64_t count);
void kv_fit_decode(const kv_fit *fit, int64_t head, const float *x, int64_t first, int64_t count,
                   float *y, float *scratch);

/* Codes of the same tokens, [count][D]; KV_CODE_KEPT where an element is kept at 16 bit. */
#define KV_CODE_KEPT UINT32_MAX
void kv_fit_codes(const kv_fit *fit, int64_t head, const float *x, int64_t first, int64_t count,
                  uint32_t *codes, float *scratch);

/* Scales and zero points (min; NULL unless asymmetric) as they are stored, in tile order: head,
 * then tile row, then tile column. */
typedef struct {
    int64_t heads, rows, columns;
    const float *scale, *minimum;
} kv_fit_scales;
kv_fit_scales kv_fit_scales_of(const kv_fit *fit);

/* Stored bits of the fitted heads, known once the fit is ready: codes of coded elements, one scale
 * (and min) per tile in its storage, 32 for the f32 above e4m3 scales, 32 per kept outlier, 16 per
 * channel mean, 16 per element outside the span. unit and static store no scale; blocks their
 * block. */
int64_t kv_fit_bits(const kv_fit *fit);

/* The same without a tensor, for a cache of shape->tokens tokens: equal to kv_fit_bits but for
 * outliers, where ties in the data may keep more elements than the percentile asks for.
 * KV_EREQUEST as kv_quantizer_check, and where it does not fit int64_t. */
kv_status kv_quantizer_bits(int64_t *out, const kv_quantizer *q, const kv_tensor_shape *shape,
                            kv_error *err);

/* The bytes of all fits of a layer's tensor, their bits rounded up; `layer` as in
 * kv_quantizer_fit_shape. */
kv_status kv_quantizer_layer_bytes(int64_t *out, const kv_quantizer *q,
                                   const kv_tensor_shape *layer, kv_error *err);

KV_EXTERN_C_END

#endif
