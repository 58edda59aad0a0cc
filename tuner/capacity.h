/* How much memory a model's cache takes under a policy or a scheme, and what fits into a given one.
 *
 * Stored bytes are those that tunings count (kv_quantizer_layer_bytes), of each layer's keys and of
 * its values with all their scales; a layer with a sliding window stores min(window, context)
 * tokens. The same model with everything at f16 stands beside each figure. GiB = 2^30 bytes
 * throughout.
 *
 * With pages, memory is handed out as vLLM does: a page holds a block of tokens of one layer, and
 * all pages have one size. Where layers are of two sizes (a quantized type, and the model's own in
 * skipped layers), the smaller one's block grows until its page holds 16 tokens of the larger
 * (platforms/interface.py: _align_heterogeneous_kv_block_size), whose pages are padded. A layer
 * with a window keeps at most ceil((window - 1 + in_flight) / block) + 1 pages. Not counted: the
 * padding of groups of layers to equal numbers of layers.
 *
 *     kv_capacity_request request = {.model = "llama-3.1-70b", .scheme = "f16", .context = 131072,
 *                                    .memory_gib = 80};
 *     kv_capacity_find(&capacity, &request, &err);
 *     kv_capacity_print(stdout, &capacity, false, &err);
 *     kv_capacity_free_contents(&capacity); */
#ifndef KVANT_TUNER_CAPACITY_H
#define KVANT_TUNER_CAPACITY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "kernels/error.h"

typedef struct {
    const char *model; /* name of a model file, or a path with a slash; NULL: the policy's, or where
                          it names none the heads its layers have; those say nothing of RoPE, so
                          that the two factors of a `smooth` pair are counted apart */
    const char *policy, *scheme;    /* path; preset, "KEY | VALUE" or shorthand: one of them */
    int64_t context;                /* tokens of a sequence */
    double memory_gib, weights_gib; /* 0: not given */
    bool has_pages;
    int64_t block, in_flight; /* of pages, in tokens; 0: 16, and 2048 */
    const char *const *data_dirs;
    size_t n_data_dirs;
} kv_capacity_request;

/* vllm, vllm=BLOCK or vllm=BLOCK,STEP into the request. */
kv_status kv_capacity_parse_pages(kv_capacity_request *request, const char *text, kv_error *err);

typedef struct {
    int64_t kv_heads, head_dim, window;
    char *key, *value;        /* canonical shorthand */
    int64_t bytes, f16_bytes; /* at the context; without pages */
} kv_capacity_layer;

/* One side of the comparison. */
typedef struct {
    int64_t bytes;                     /* of one sequence at the context */
    int64_t sequences;                 /* of that length that fit; -1 without a memory */
    int64_t longest;                   /* tokens of the longest sequence that fits; -1 without a
                                          memory, KV_CAPACITY_ENDLESS where it does not matter */
    int64_t page_bytes, block, padded; /* with pages: tokens in a page, and in a padded one (0: no
                                          layer is padded) */
    double waste; /* what a padded page has beyond its tokens, as a share of them */
} kv_capacity_side;

enum { KV_CAPACITY_MAX_CONTEXT = 1000000000 };
#define KV_CAPACITY_ENDLESS INT64_MAX

typedef struct {
    char *model, *scheme;         /* model NULL: the policy's layers */
    int64_t context, cache_bytes; /* memory less weights; -1 not given */
    bool has_pages;
    int64_t in_flight;
    int64_t n_layers;
    kv_capacity_layer *layers; /* by number */
    kv_capacity_side scheme_side, f16_side;
} kv_capacity;

/* KV_EREQUEST for a model, scheme or policy that is not there or does not fit the model. */
kv_status kv_capacity_find(kv_capacity *out, const kv_capacity_request *request, kv_error *err);
void kv_capacity_free_contents(kv_capacity *capacity);

kv_status kv_capacity_print(FILE *out, const kv_capacity *capacity, bool is_json, kv_error *err);

#endif
