/* Measurements kept by content: a log of (key, numbers), where the key is a SHA-256 of everything
 * the numbers depend on (kvant's version, the configuration's heads, streams, seed, assignment), so
 * that a measurement found is the right one; of builds from uncommitted changes only the revision
 * they started from is known. Appended as they are made, checksummed; a torn
 * last record is dropped. One process at a time works on a file (locked).
 *
 *     kv_cache_open(&cache, "out.h5.cache", &err);
 *     if (!kv_cache_get(values, cache, key, n)) { measure; kv_cache_put(cache, key, values, n,
 * err); } */
#ifndef KVANT_TUNER_CACHE_H
#define KVANT_TUNER_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/error.h"

typedef struct kv_cache kv_cache;
enum { KV_CACHE_KEY = 32 };

/* path NULL: in memory only. KV_EIO, KV_EINPUT for a file that is no cache (never overwritten),
 * KV_EREQUEST where another process works on it. */
kv_status kv_cache_open(kv_cache **out, const char *path, kv_error *err);
void kv_cache_close(kv_cache *cache);

/* The key of a text (all that the measurement depends on). */
void kv_cache_key(uint8_t key[KV_CACHE_KEY], const char *text);

/* True, with values [n], where a measurement of this key and length is there. */
bool kv_cache_get(double *values, const kv_cache *cache, const uint8_t key[KV_CACHE_KEY],
                  int64_t n);

/* When it returns KV_OK the numbers survive the death of this process. */
kv_status kv_cache_put(kv_cache *cache, const uint8_t key[KV_CACHE_KEY], const double *values,
                       int64_t n, kv_error *err);

int64_t kv_cache_count(const kv_cache *cache);

#endif
