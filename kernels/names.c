/* The did-you-mean of every name a user types. Distance: Levenshtein with two rows. */
#include <string.h>

#include "kernels/shorthand.h"

enum { LONGEST = 80, FARTHEST = 3 };

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t distance(const char *a, const char *b)
{
    size_t row[LONGEST + 1];
    size_t const n = strlen(b);
    if (n > LONGEST || strlen(a) > LONGEST) return LONGEST;
    for (size_t j = 0; j <= n; j++) row[j] = j;
    for (size_t i = 1; *a; a++, i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t const above = row[j];
            row[j] = smaller(smaller(row[j - 1], above) + 1, diagonal + (*a != b[j - 1]));
            diagonal = above;
        }
    }
    return row[n];
}

const char *kv_closest_name(const char *text, const char *const *candidates, size_t count)
{
    const char *closest = NULL;
    size_t best = smaller(FARTHEST, strlen(text) / 2) + 1;
    for (size_t i = 0; i < count; i++) {
        size_t const d = distance(text, candidates[i]);
        if (d < best) best = d, closest = candidates[i];
    }
    return closest;
}
