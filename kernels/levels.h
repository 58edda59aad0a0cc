/* How many of a format's codes a key scheme really uses: per channel the number of distinct codes,
 * then the median over channels (numpy's: the mean of the two middle ones of an even count).
 * Elements kept at 16 bit have no code. Formats of more than KV_LEVELS_MOST_BITS bits have no
 * levels (NaN). */
#ifndef KVANT_KERNELS_LEVELS_H
#define KVANT_KERNELS_LEVELS_H

#include <stdint.h>

#include "kernels/error.h"

enum { KV_LEVELS_MOST_BITS = 16 };

/* Words of 64 bits that hold a bit for each code of `bits` bits. */
int64_t kv_levels_words(int bits);

/* used [D][words]: bit `code` is set where a channel uses the code. */
kv_status kv_levels_median(double *out, const uint64_t *used, int64_t head_dim, int64_t words,
                           kv_error *err);

#endif
