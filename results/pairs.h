/* The schemes of a frame as a matrix: every key scheme with every value scheme; inside results/
 * only. The record's arrays key_scheme and value_scheme say which pair each scheme is. */
#ifndef KVANT_RESULTS_PAIRS_H
#define KVANT_RESULTS_PAIRS_H

#include "results/frame.h"

enum { KV_PART_KEY, KV_PART_VALUE, KV_N_PARTS };

typedef struct {
    int64_t n_schemes;             /* of the frame; 0 where they are no matrix */
    int64_t count[KV_N_PARTS];     /* distinct keys, values */
    int64_t *number[KV_N_PARTS];   /* [n_schemes] which of them each scheme has */
    const char **text[KV_N_PARTS]; /* [count] in the order in which they come; not owned */
} kv_pairs;

/* KV_PART_KEY for "key", KV_PART_VALUE for "value" where the record's schemes have such parts and
 * no dimension has that name; else (and for NULL) -1. */
int kv_pairs_part(const kv_record *record, const char *name);

/* A scheme's key or value as written; NULL where the record does not say. */
const char *kv_pairs_text(const kv_frame *frame, int part, int64_t row);

/* n_schemes is 0 unless every key stands with every value exactly once. */
kv_status kv_pairs_find(kv_pairs *out, const kv_frame *frame, kv_error *err);
void kv_pairs_free_contents(kv_pairs *pairs);

#endif
