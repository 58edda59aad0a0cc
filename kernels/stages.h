/* The stages of a quantizer whose values are open lists: transforms, range rules, scale storages.
 *
 * To add a stage value: its file (transforms/NAME.c, ranges/NAME.c, formats/NAME.h) and one row
 * here. The shorthand parser, `kvant list`, the quantizer and the tests all walk these tables. On a
 * GPU a scale storage needs nothing more; for the others the CUDA backend stops compiling until it
 * has its own version: of a transform kv_row_apply_NAME and kv_row_undo_NAME (cuda/transform.cuh),
 * what they read (cuda/scheme.h) and learn_NAME (cuda/fit.c); of a range rule its kernel and its
 * case in find_range (cuda/fit.c).
 *
 * Row: X(name, NAME, value, minimum, maximum, preset, about). `name` is the shorthand option;
 * `value` says whether it takes =number: KV_VALUE_NONE, KV_VALUE_OPTIONAL (then `preset` stands in)
 * or KV_VALUE_REQUIRED. Transforms are applied in the order of their rows and undone in reverse. */
#ifndef KVANT_KERNELS_STAGES_H
#define KVANT_KERNELS_STAGES_H

#include <stddef.h>
#include <stdio.h>

#include "kernels/platform.h"

KV_EXTERN_C_BEGIN

/*    name      NAME      value              minimum maximum preset about */
#define KV_TRANSFORM_TABLE(X)                                                                      \
    X(center, CENTER, KV_VALUE_NONE, 0, 0, 0,                                                      \
      "subtract the channel mean over tokens (f16, 16 bits a channel), add it back after")         \
    X(smooth, SMOOTH, KV_VALUE_OPTIONAL, 0, 1, 0.5,                                                \
      "divide channel c by (max_t |x_tc|)^a, multiply back after (SmoothAttention, QServe 4.2)")   \
    X(hadamard, HADAMARD, KV_VALUE_OPTIONAL, 2, 65536, 0,                                          \
      "rotate blocks of n channels by an orthonormal Sylvester-Hadamard matrix; default "          \
      "head_dim; n+signs puts seeded +-1 first (QuaRot 4)")

#define KV_RANGE_TABLE(X)                                                                          \
    X(extremes, EXTREMES, KV_VALUE_NONE, 0, 0, 0, "absmax, or min and max with zero: the default") \
    X(mse, MSE, KV_VALUE_NONE, 0, 0, 0,                                                            \
      "clip factor 1.00, 0.99 ... 0.50 with the least squared error of the tile")                  \
    X(percentile, PERCENTILE, KV_VALUE_REQUIRED, 50, 100, 0,                                       \
      "p-th percentile of |x|, with zero the (100-p)-th and p-th of x; the rest saturates")        \
    X(unit, UNIT, KV_VALUE_NONE, 0, 0, 0, "scale 1, saturating")

/* Of formats/NAME.h: kv_NAME_round and KV_NAME_MAXIMUM. */
/*    name  NAME  bits about */
#define KV_SCALE_TABLE(X)                                                                          \
    X(f32, F32, 32, "IEEE binary32: the default")                                                  \
    X(f16, F16, 16, "IEEE binary16")                                                               \
    X(bf16, BF16, 16, "bfloat16")                                                                  \
    X(e8m0, E8M0, 8, "a power of two, exponent rounded up (OCP MX scale type)")                    \
    X(e4m3, E4M3, 8, "e4m3 under one f32 scale per tensor (NVFP4's two levels)")

#define KV_ROW(name, NAME, ...) KV_TRANSFORM_##NAME,
typedef enum { KV_TRANSFORM_TABLE(KV_ROW) KV_TRANSFORM_COUNT } kv_transform_id;
#undef KV_ROW
#define KV_ROW(name, NAME, ...) KV_RANGE_##NAME,
typedef enum { KV_RANGE_TABLE(KV_ROW) KV_RANGE_COUNT } kv_range;
#undef KV_ROW
#define KV_ROW(name, NAME, ...) KV_SCALE_##NAME,
typedef enum { KV_SCALE_TABLE(KV_ROW) KV_SCALE_COUNT } kv_scale_storage;
#undef KV_ROW

typedef enum { KV_VALUE_NONE, KV_VALUE_OPTIONAL, KV_VALUE_REQUIRED } kv_value_rule;

/* One row as data. For scale storages only name, bits and about are set. */
typedef struct {
    const char *name, *about;
    kv_value_rule value;
    double minimum, maximum, preset;
    int bits;
} kv_stage_row;

/* NULL past the end. */
const kv_stage_row *kv_transform_at(size_t id);
const kv_stage_row *kv_range_at(size_t id);
const kv_stage_row *kv_scale_at(size_t id);

/* The three tables as options of the shorthand. */
void kv_stages_list(FILE *out);

KV_EXTERN_C_END

#endif
