/* What the parts of the engines share, and nobody else: matching, the words of outputs. */
#ifndef KVANT_TUNER_ENGINE_STATE_H
#define KVANT_TUNER_ENGINE_STATE_H

#include "tuner/engine.h"

/* What a type needs that is the model's own, whatever that is. */
#define KV_NEEDS_F16  "a model in float16, as its 16-bit layers were simulated"
#define KV_NEEDS_BF16 "a model in bfloat16, as its 16-bit layers were simulated"

/* The table of engines, in the order of listings: tuner/engines/NAME.c defines kv_engine_NAME. To
 * add one, write the file and its row here. */
#define KV_ENGINES(ROW)                                                                            \
    ROW(vllm)                                                                                      \
    ROW(llama_cpp)                                                                                 \
    ROW(ik_llama_cpp)                                                                              \
    ROW(transformers)                                                                              \
    ROW(kvtuner)                                                                                   \
    ROW(lmdeploy)                                                                                  \
    ROW(sglang)                                                                                    \
    ROW(exllamav3)                                                                                 \
    ROW(tensorrt_llm)

#define KV_ROW(name) extern const kv_engine kv_engine_##name;
KV_ENGINES(KV_ROW)
#undef KV_ROW

/* ---- matching (engine_match.c) ---- */

/* Which rows of an engine's types each scheme of the problem is, layer by layer: bit i is row i. */
typedef struct {
    const kv_engine *engine;
    const kv_problem *problem;
    const kv_policy *policy;
    uint32_t *keys, *values;                   /* [L][problem->keys.n], [L][problem->values.n] */
    kv_quantizer *key_schemes, *value_schemes; /* [n] parsed; zero where it is no shorthand */
    bool *is_key_known, *is_value_known;       /* [n] whether it is shorthand */
} kv_engine_match;

kv_status kv_engine_match_create(kv_engine_match *out, const kv_engine *engine,
                                 const kv_problem *problem, const kv_policy *policy, kv_error *err);
void kv_engine_match_free_contents(kv_engine_match *match);

/* Whether these rows may stand in one layer for this choice. */
bool kv_engine_pair_fits(const kv_engine_match *match, const kv_choice *choice, int key, int value);

/* Adds "WORDS (SCHEME), ..." for each quantized type that no key or no value of the problem is. */
kv_status kv_engine_add_absent(kv_text *text, const kv_engine_match *match, kv_error *err);

/* A failure that says why nothing can be expressed. */
kv_status kv_engine_nothing_fits(const kv_engine_match *match, kv_error *err);

/* ---- search ---- */

/* An assignment of types and choices, [L] each, with its cost in the solver's integers. */
typedef struct {
    int32_t *key, *value, *choice;
    int64_t size, error;
    bool is_found, is_feasible, is_exact;
} kv_engine_pick;

/* Limits in the solver's integers: exactly one is given, the other is INT64_MAX. */
typedef struct {
    int64_t size, error;
} kv_engine_limit;

/* Whether (size, error) is better than what is held: within the limit before beyond it; within it
 * the quantity that is not limited decides, beyond it the one that is. */
bool kv_engine_is_better(const kv_engine_limit *limit, int64_t size, int64_t error,
                         const kv_engine_pick *held);

kv_status kv_engine_search_ends(kv_engine_pick *pick, const kv_engine_match *match,
                                const kv_problem_integers *integers, const kv_engine_limit *limit,
                                kv_error *err);

/* ---- words (engine_words.c) ---- */

/* The first row with these words; -1 for none. */
int32_t kv_engine_type_find(const kv_engine *engine, const char *words, size_t length);

/* Cuts text at white space, in place; at most `room` pieces. Returns how many, or -1 for more. */
int kv_engine_split(char *text, char **pieces, int room);

/* Layers 0 ... n-1 as the policy numbers them; i where there is none. */
int64_t kv_engine_number(const kv_policy *policy, int64_t i);

/* The window of a layer: -1 unknown, 0 none. */
int64_t kv_engine_window(const kv_policy *policy, int64_t number);
int64_t kv_engine_head_dim(const kv_policy *policy, int64_t number); /* 0 unknown */

/* One warning line. */
kv_status kv_engine_warn(kv_engine_fit *fit, kv_error *err, const char *format, ...)
    KV_PRINTF(3, 4);

/* The one type of all layers. */
kv_status kv_engine_fill(int32_t *key, int32_t *value, int64_t n_layers, int32_t key_type,
                         int32_t value_type);

/* The scale of a static type from the absmax of a tensor: as kvant computes it. KV_EREQUEST where
 * the policy does not know it. */
kv_status kv_engine_scale(float *out, const kv_policy *policy, const kv_engine_layer *layer,
                          bool is_key, kv_error *err);

#endif
