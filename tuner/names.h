/* Scheme texts as numbers: inside tuner/ only. */
#ifndef KVANT_TUNER_NAMES_H
#define KVANT_TUNER_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/error.h"

/* Numbers texts [n] by their first appearance: *ids [n] in 0 ... *n_distinct - 1, *first
 * [n_distinct] the index of each one's first appearance. NULL texts get -1. Caller frees both. */
kv_status kv_number_texts(int32_t **ids, int64_t **first, int64_t *n_distinct,
                          const char *const *texts, int64_t n, kv_error *err);

#endif
