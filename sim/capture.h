/* Captures: keys, values and queries recorded from a running model.
 *
 * An HDF5 capture has the root attributes kvant_capture = 1, model and source, and one group
 * layer_NNN per layer with the datasets key [G][T][D], value [G][T][D], query [H][Q][D] (f16 or
 * f32; queries as the model used them, after RoPE), query_position [Q], and the attributes layer,
 * key_position (pre-rope or post-rope), rope_layout (half, interleaved, none), rope_theta, window
 * (0 = full), and optionally rotary_dim, rope_scaling (linear, ntk, yarn, llama3) with rope_factor,
 * rope_low_freq_factor, rope_high_freq_factor, rope_beta_fast, rope_beta_slow,
 * rope_original_length, training_length, and softmax_scale. Tensors may also come from .npy and
 * .safetensors files ([G][T][D], [1][G][T][D] or, for one head, [T][D]); what the attributes say
 * then comes from the caller.
 *
 *     kv_capture *capture = NULL;
 *     KV_TRY(kv_capture_open(&capture, "gemma3.h5", err));
 *     for (int64_t i = 0; i < kv_capture_layers(capture); i++)
 *         printf("%lld\n", (long long)kv_capture_layer_at(capture, i)->layer);
 *     kv_capture_close(capture);
 *
 * Everything is checked on opening except the numbers themselves, which are checked when read: NaN
 * and Inf are errors. One capture may be read from several threads. */
#ifndef KVANT_SIM_CAPTURE_H
#define KVANT_SIM_CAPTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/error.h"
#include "kernels/record.h"
#include "kernels/rope.h"

typedef enum {
    KV_CAPTURE_KEY,
    KV_CAPTURE_VALUE,
    KV_CAPTURE_QUERY,
    KV_CAPTURE_TENSORS
} kv_capture_tensor;

typedef struct {
    int64_t layer; /* number of the layer in its model */
    int64_t kv_heads, tokens, head_dim;
    int64_t query_heads, queries; /* 0 where no queries were captured */
    int64_t window;
    bool is_key_pre_rope; /* as stored */
    kv_rope_settings rope;
    double softmax_scale;          /* 0 where the file does not say: 1 / sqrt(head_dim) */
    const int64_t *query_position; /* [queries], owned by the capture */
} kv_capture_layer;

/* Where one layer's tensors are when they are not in an HDF5 capture: "FILE.npy" or
 * "FILE.safetensors:NAME"; query may be NULL or "". What such files do not say is given along.
 * Extents in `about` are ignored, but `queries` positions are at query_position; NULL is the last
 * positions.
 */
typedef struct {
    const char *tensor[KV_CAPTURE_TENSORS]; /* key, value, query */
    kv_capture_layer about;
} kv_capture_spec;

typedef struct kv_capture kv_capture;

/* KV_EIO where a file cannot be read, KV_EINPUT where it is not what a capture must be. Messages
 * name the file, the layer and the tensor or attribute. */
kv_status kv_capture_open(kv_capture **out, const char *path, kv_error *err);
kv_status kv_capture_open_tensors(kv_capture **out, const kv_capture_spec *specs, int64_t count,
                                  kv_error *err);
/* Reads an HDF5 capture once in a child process: KV_EINPUT where the file is damaged so that the
 * HDF5 library itself crashes or does not end. Any other fault is left to kv_capture_open. For
 * files of unknown origin, before they are opened for the first time. */
kv_status kv_capture_probe(const char *path, kv_error *err);

void kv_capture_close(kv_capture *capture);

int64_t kv_capture_layers(const kv_capture *capture);
/* In the order of their layer numbers; index < kv_capture_layers. */
const kv_capture_layer *kv_capture_layer_at(const kv_capture *capture, int64_t index);
/* Index of the layer with this number, or -1. */
int64_t kv_capture_find(const kv_capture *capture, int64_t layer);
/* "" where the file does not say. */
const char *kv_capture_model(const kv_capture *capture);
const char *kv_capture_source(const kv_capture *capture);

/* Reads one head as it is stored: out [tokens][head_dim], or [queries][head_dim] for a query head.
 */
kv_status kv_capture_load(float *out, const kv_capture *capture, int64_t index,
                          kv_capture_tensor tensor, int64_t head, kv_error *err);

/* What the outliers of each layer look like: a record with the dimensions layer and kv_head. */
kv_status kv_capture_statistics(kv_record **out, const kv_capture *capture, kv_error *err);

#endif
