/* What capacity*.c share; not for other modules. */
#ifndef KVANT_TUNER_CAPACITY_PARTS_H
#define KVANT_TUNER_CAPACITY_PARTS_H

#include "kernels/quantize.h"
#include "tuner/capacity.h"

/* Layers that are alike. Texts and quantizers belong to their scheme. */
typedef struct {
    int64_t count, kv_heads, head_dim, window, rotary_dim;
    bool is_rope_interleaved;
    const kv_quantizer *key, *value;
    const char *key_text, *value_text;
    int64_t token_bytes; /* with pages */
} kv_capacity_class;

enum { KV_CAPACITY_BLOCK = 16, KV_CAPACITY_IN_FLIGHT = 2048 };

/* The one page size, and how many tokens it holds of the layers with the smaller and (padded; 0
 * where all are alike) with the larger token_bytes. */
typedef struct {
    int64_t page_bytes, block, padded_block, token_bytes, padded_bytes, in_flight;
} kv_capacity_pages;

/* A model under one scheme. */
typedef struct {
    int64_t n_classes;
    kv_capacity_class *classes;
    int64_t period; /* of the tokens at which its layers flush */
    bool has_pages;
    kv_capacity_pages pages;
} kv_capacity_model;

/* Of one layer that stores so many tokens, whatever its window. */
kv_status kv_capacity_class_bytes(int64_t *out, const kv_capacity_class *class, int64_t tokens,
                                  kv_error *err);

/* KV_EREQUEST for layers that cannot be paged so. */
kv_status kv_capacity_plan_pages(kv_capacity_model *model, int64_t block, int64_t in_flight,
                                 kv_error *err);

/* Pages that one layer takes for a sequence. */
int64_t kv_capacity_pages_of(const kv_capacity_pages *pages, const kv_capacity_class *class,
                             int64_t tokens);

void kv_capacity_describe_pages(kv_capacity_side *side, const kv_capacity_pages *pages);

#endif
