/* What the files of sim/heads*.c share; not for other modules.
 *
 * heads.c          assembles a layer and answers its callbacks
 * heads_streams.c  the random numbers of each tensor and head, by generator
 * heads_plan.c     what is planted where: channel means and spreads, gains, query classes
 * heads_queries.c  pulls queries towards sinks, recent tokens and needles
 * heads_capture.c  the same callbacks on captured tensors
 * heads_decode.c   heads whose queries the caller makes, and which layers there are */
#ifndef KVANT_SIM_HEADS_STATE_H
#define KVANT_SIM_HEADS_STATE_H

#include "sim/capture.h"
#include "sim/heads.h"

/* ---- random numbers ---- */

typedef enum { KV_STREAM_KEY, KV_STREAM_VALUE, KV_STREAM_QUERY, KV_STREAM_COUNT } kv_stream_tensor;
typedef struct kv_streams kv_streams;
typedef struct kv_cursor kv_cursor;

kv_status kv_streams_create(kv_streams **out, const kv_heads_config *config, int64_t layer,
                            int64_t seed, kv_error *err);
void kv_streams_free(kv_streams *streams);

/* Opens the numbers of one head (a kv head, or for queries a query head) from its first element on.
 * Closing a cursor whose numbers were all read lets the next head start without skipping. Cursors
 * of several threads may be open at once. */
kv_status kv_cursor_open(kv_cursor **out, kv_streams *streams, kv_stream_tensor tensor,
                         int64_t head, int64_t calibration, kv_error *err);
void kv_cursor_next(kv_cursor *cursor, double *z, int64_t count);
void kv_cursor_close(kv_cursor *cursor);

/* Fills z [count] with N(0, 1) numbers for choices: a function of (seed, layer, head, purpose). */
typedef enum { KV_CHOICE_KEY = 8, KV_CHOICE_VALUE, KV_CHOICE_VALUE_MEAN } kv_choice;
void kv_choice_normals(double *z, int64_t count, int64_t seed, int64_t layer, int64_t head,
                       kv_choice purpose);
/* The same with numbers from [0, 1). */
void kv_choice_uniforms(double *u, int64_t count, int64_t seed, int64_t layer, int64_t head,
                        kv_choice purpose);

/* ---- the plan ---- */

struct kv_heads {
    kv_heads_config config; /* its lists and texts are not kept: NULL here */
    int64_t index, seed;    /* layer */
    kv_layer layer;
    kv_recipe recipe;        /* what layer.source.recipe points to */
    int64_t *query_position; /* [Q] */
    int64_t *needle;         /* [H][Q], or NULL */
    uint8_t *classes;        /* [H][Q] */
    kv_rope *rope;
    double *key_mean, *key_spread, *value_mean, *value_spread; /* [G][D] each */
    kv_streams *streams;
    kv_capture *capture; /* NULL for synthetic heads */
    int64_t capture_layer;
};

kv_status kv_heads_plan_channels(kv_heads *heads, const kv_heads_config *config, kv_error *err);
kv_status kv_heads_plan_queries(kv_heads *heads, const kv_heads_config *config, kv_error *err);
double kv_heads_key_gain(const kv_heads_config *config, int64_t token);
double kv_heads_value_gain(const kv_heads_config *config, int64_t token);

/* Whether any query of these heads is pulled anywhere. */
bool kv_heads_is_shaped(const kv_heads *heads);
/* Shapes the rows of one kv head's group, query [group * Q][D] after RoPE, in place. */
kv_status kv_heads_shape_queries(kv_heads *heads, int64_t kv_head, float *query, kv_error *err);

/* What they are pulled to: kv_pulling's list. */
void kv_heads_list_pulls(const void *heads, int64_t kv_head, kv_pull (*pulls)[KV_PULLS]);

/* Says how queries are made: what a source says of them, for captures, too. */
void kv_heads_describe_queries(kv_heads *heads);

/* ---- captures ---- */

kv_status kv_heads_use_capture(kv_heads *heads, const kv_heads_config *config, int64_t layer,
                               kv_error *err);

#endif
