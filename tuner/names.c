/* Scheme texts as numbers: see names.h. */
#include "tuner/names.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/memory.h"

typedef struct {
    const char *text;
    int64_t index;
} entry;

static int by_text(const void *a, const void *b)
{
    const entry *const x = a, *const y = b;
    int const order = strcmp(x->text, y->text);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

static int by_index(const void *a, const void *b)
{
    int64_t const x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Sorted by text, the first of each run is the first appearance; numbered in their order. */
kv_status kv_number_texts(int32_t **ids, int64_t **first, int64_t *n_distinct,
                          const char *const *texts, int64_t n, kv_error *err)
{
    kv_status status = KV_OK;
    entry *sorted = NULL;
    int32_t *numbers = NULL;
    int64_t *firsts = NULL, n_entries = 0, n_firsts = 0;
    KV_TRY(kv_allocate((void **)&sorted, (size_t)n, sizeof *sorted, err));
    KV_TRY(kv_allocate((void **)&numbers, (size_t)n, sizeof *numbers, err));
    KV_TRY(kv_allocate((void **)&firsts, (size_t)n, sizeof *firsts, err));
    for (int64_t i = 0; i < n; i++) {
        numbers[i] = -1;
        if (texts[i]) sorted[n_entries++] = (entry){texts[i], i};
    }
    if (n_entries) qsort(sorted, (size_t)n_entries, sizeof *sorted, by_text);
    for (int64_t i = 0; i < n_entries; i++)
        if (i == 0 || strcmp(sorted[i].text, sorted[i - 1].text) != 0)
            firsts[n_firsts++] = sorted[i].index;
    if (n_firsts) qsort(firsts, (size_t)n_firsts, sizeof *firsts, by_index);
    for (int64_t i = 0; i < n_firsts; i++) numbers[firsts[i]] = (int32_t)i;
    for (int64_t i = 1; i < n_entries; i++)
        if (strcmp(sorted[i].text, sorted[i - 1].text) == 0)
            numbers[sorted[i].index] = numbers[sorted[i - 1].index];
    *ids = numbers, numbers = NULL;
    *first = firsts, firsts = NULL;
    *n_distinct = n_firsts;
done:
    kv_free(sorted), kv_free(numbers), kv_free(firsts);
    return status;
}
