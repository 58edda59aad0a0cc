/* Rotary position embedding (Su et al. 2021, eq. 34): channel pairs are rotated by t * theta_i,
 * theta_i = base^(-2i / rotary_dim), i < rotary_dim / 2.
 *
 * Layout half pairs channel i with i + rotary_dim/2 (GPT-NeoX, Llama in transformers); interleaved
 * pairs 2i with 2i + 1 (GPT-J, Llama's original). Channels past rotary_dim are left alone. Angles
 * and the rotation are computed in double from the position and rounded to float once.
 *
 * Scalings change theta_i (and, for yarn, the magnitude):
 *   linear  theta / factor                                  (Chen et al. 2023, interpolation)
 *   ntk     base * factor^(rotary_dim / (rotary_dim - 2))   ("NTK-aware"; Peng et al. 2023, 3.1)
 *   yarn    ramp by wavelength, magnitude 0.1 ln(factor) + 1   (Peng et al. 2023, 3.2)
 *   llama3  ramp by wavelength, low and high frequency factors (Llama 3.1 model code) */
#ifndef KVANT_KERNELS_ROPE_H
#define KVANT_KERNELS_ROPE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/error.h"

KV_EXTERN_C_BEGIN

typedef enum { KV_ROPE_NONE, KV_ROPE_HALF, KV_ROPE_INTERLEAVED } kv_rope_layout;
typedef enum {
    KV_ROPE_SCALING_NONE,
    KV_ROPE_SCALING_LINEAR,
    KV_ROPE_SCALING_NTK,
    KV_ROPE_SCALING_YARN,
    KV_ROPE_SCALING_LLAMA3
} kv_rope_scaling;

/* Zero (layout none) is "no rotation". int64_t fields hold the enums so that key tables can set
 * them. */
typedef struct {
    int64_t layout;          /* kv_rope_layout */
    double base;             /* theta; 0 means 10000 */
    int64_t rotary_dim;      /* even, <= head_dim; 0 means head_dim */
    int64_t training_length; /* tokens the model was trained on; where "low frequency" begins */
    int64_t scaling;         /* kv_rope_scaling */
    double factor, low_freq_factor, high_freq_factor, beta_fast, beta_slow;
    int64_t original_length; /* original_max_position_embeddings of yarn and llama3 */
} kv_rope_settings;

typedef struct kv_rope kv_rope;

kv_status kv_rope_create(kv_rope **out, const kv_rope_settings *settings, int64_t head_dim,
                         kv_error *err);
void kv_rope_free(kv_rope *rope);

/* Rotates x [count][D] in place; row r is at position first + r. NULL rotates nothing. Thread-safe.
 */
void kv_rope_apply(const kv_rope *rope, int64_t first, int64_t count, float *x);
/* The inverse rotation. */
void kv_rope_remove(const kv_rope *rope, int64_t first, int64_t count, float *x);

/* What another backend needs for the bits of kv_rope_apply: position block * KV_ROPE_OFFSETS +
 * offset turns pair i by the sum of two angles, those of the offset and of the block's first
 * position. With o and b their cosines and sines, in double, each operation rounded by itself:
 *     c = (cos o * cos b - sin o * sin b) * magnitude
 *     s = (sin o * cos b + cos o * sin b) * magnitude
 * and (x, y) becomes (float(x * c - y * s), float(y * c + x * s)). */
enum { KV_ROPE_OFFSETS = 64 };
typedef struct {
    int64_t pairs; /* 0 for layout none */
    bool is_interleaved;
    double magnitude;
    const double *cosine, *sine; /* [KV_ROPE_OFFSETS][pairs] of the offsets; the rope's own */
} kv_rope_tables;
kv_rope_tables kv_rope_tables_of(const kv_rope *rope);
/* cosine and sine [blocks][pairs] of the first positions of blocks 0, 1, ... */
void kv_rope_blocks(const kv_rope *rope, int64_t blocks, double *cosine, double *sine);

/* Angular frequency of pair i in radians per token, after scaling; i < rotary_dim / 2. */
double kv_rope_frequency(const kv_rope *rope, int64_t pair);
int64_t kv_rope_rotary_dim(const kv_rope *rope); /* 0 for layout none */

KV_EXTERN_C_END

#endif
