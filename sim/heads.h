/* Attention heads: synthetic ones with the statistics real KV caches show, or captured ones.
 *
 * A head instance is (layer, kv head, replicate seed). Before RoPE
 *
 *     key[t][c]   = gain_k(t) * (mean_c + sigma_c * z)          z ~ N(0, 1) unless configured
 *     value[t][c] = gain_v(t) * (vmean_c + vsigma_c * z)
 *     query[i][c] = query.gain * z, then shaped by the query's class
 *
 * gain_k(t) is the drift, 1 + rate t or 1 + rate ln(1 + t), times the sinks' gain on the first
 * tokens. Queries have their classes in contiguous blocks (isotropic, local, needle; the same for
 * all heads), and are pulled until targets on unquantized keys hold: first sinks.mass on the sinks,
 * for every query, then the class's own: local.mass on the last local.span visible tokens, or the
 * needle's logit needle.margin above the largest other. Where the two conflict the class keeps its
 * target. A target that keys cannot meet is an error (sim/heads_queries.c says how it is done).
 *
 * kv_heads_config holds every setting under `heads:` of a configuration, flat; sim/heads_keys.c
 * holds the one key table that reads, prints and documents them. Zero-initialised and passed
 * through the table's defaults it is valid. A sweep point or a layer of a profile is a copy with a
 * few keys set again. */
#ifndef KVANT_SIM_HEADS_H
#define KVANT_SIM_HEADS_H

#include "kernels/backend.h"
#include "kernels/rope.h"
#include "sim/keys.h"

typedef enum {
    KV_GENERATOR_PHILOX,
    KV_GENERATOR_NUMPY,
    KV_GENERATOR_TORCH,
    KV_GENERATOR_CAPTURE
} kv_generator;

typedef enum { KV_NORMAL, KV_UNIFORM, KV_LAPLACE } kv_distribution;
typedef enum { KV_PLACEMENT_RANDOM, KV_PLACEMENT_ROPE_LOW } kv_placement;
typedef enum { KV_DRIFT_NONE, KV_DRIFT_LINEAR, KV_DRIFT_LOG } kv_drift;
typedef enum { KV_CLASS_ISOTROPIC, KV_CLASS_LOCAL, KV_CLASS_NEEDLE, KV_CLASS_COUNT } kv_query_class;

/* Captured tensors that lie in separate .npy or .safetensors files: "k.npy", "m.safetensors:name".
 * key [G][T][D] (or [T][D]), value alike, query [H][Q][D]; query may be NULL. */
typedef struct {
    int64_t layer;
    char *key, *value, *query;
} kv_capture_files;

/* RoPE and query positions of such files are the configuration's `rope` and `query.position`. */
typedef struct {
    bool is_pre_rope; /* key_position: pre-rope or post-rope (default) */
    int64_t window;   /* sliding window of these layers, 0 = full */
    int64_t count;
    kv_capture_files *files; /* [count] by rising layer; paths are resolved */
} kv_capture_map;

/* Planted outlier channels: `channels` lists them, or `count` places them. */
typedef struct {
    kv_int_list channels;
    int64_t count;
    int64_t placement; /* kv_placement */
    double scale;      /* multiplies the spread sigma_c; 1 = not planted */
    double bias;       /* mean_c in units of sigma (the plain channels' spread), random sign */
} kv_outliers;

typedef struct {
    int64_t generator; /* kv_generator */
    int64_t distribution;
    kv_int_list seeds;
    int64_t tokens, head_dim, queries;
    int64_t layers, kv_heads, query_heads; /* query_heads 0 = kv_heads */
    int64_t window;                        /* sliding window W, 0 = full */
    char *capture;                         /* path (resolved) with generator capture; "" none */
    kv_capture_map capture_map;            /* or count > 0: separate files */
    kv_int_list capture_layers;            /* empty = all of the file */
    kv_outliers outliers, value_outliers;
    double value_mean; /* per-channel value mean: spread of N(0, value_mean) */
    kv_rope_settings rope;
    double query_gain;
    kv_int_list query_position;         /* empty = the last Q positions */
    double class_share[KV_CLASS_COUNT]; /* shares of the queries, isotropic first */
    double local_mass;
    int64_t local_span;
    double needle_depth;  /* 0 = first token, 1 = last; */
    double needle_margin; /* nats over the rest, before quantization */
    int64_t sink_count;
    double sink_key_gain, sink_value_gain, sink_mass;
    int64_t drift;
    double drift_rate;
    double stack_gain;     /* of the decode stack (sim/stack.h) */
    int64_t stack_streams; /* S of the metrics that run it */
} kv_heads_config;

/* The shape of a layer's keys after RoPE, all kv heads, as its settings have it (no capture's). */
kv_tensor_shape kv_heads_config_shape(const kv_heads_config *config);

/* Copy and release of everything a configuration owns. */
kv_status kv_heads_config_copy(kv_heads_config *out, const kv_heads_config *config, kv_error *err);
void kv_heads_config_free_contents(kv_heads_config *config);

/* Settings that contradict each other: KV_EREQUEST with a sentence that names the keys. */
kv_status kv_heads_config_check(const kv_heads_config *config, kv_error *err);

/* A layer that is ready to be evaluated: `layer.source` reads from it. Owned by the caller. */
typedef struct kv_heads kv_heads;

/* One instance of one layer. `config` has had the layer's profile applied; seed and layer name the
 * random streams. */
kv_status kv_heads_create(kv_heads **out, const kv_heads_config *config, int64_t layer,
                          int64_t seed, kv_error *err);
void kv_heads_free(kv_heads *heads);

const kv_layer *kv_heads_layer(const kv_heads *heads);

/* Class of each query row, [query_heads][Q]. */
const uint8_t *kv_heads_classes(const kv_heads *heads);

/* The numbers of the layers that a configuration asks for: 0 ... layers - 1, or those of its
 * capture. The caller frees *out [*count]. */
kv_status kv_heads_layer_numbers(int64_t **out, int64_t *count, const kv_heads_config *config,
                                 kv_error *err);

/* Heads for decoding, whose queries the caller makes: `queries` rows of each query head, all at the
 * last token, of the classes that the configuration shares out. Keys and values are those of
 * kv_heads_create. source.query is NULL. */
kv_status kv_heads_create_decoding(kv_heads **out, const kv_heads_config *config, int64_t layer,
                                   int64_t seed, int64_t queries, kv_error *err);

/* Pulls such queries of one kv head's group, [group * Q][D] after RoPE, until the targets hold;
 * leaves them alone where nothing is asked. Different kv heads may be pulled at once. */
kv_status kv_heads_pull(kv_heads *heads, int64_t kv_head, float *query, kv_error *err);

/* Heads draw from kv_stream_id's tensors below this one, and from no others. */
enum { KV_HEADS_STREAMS = 11 };

#endif
