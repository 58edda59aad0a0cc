/* Measurements by content: see cache.h.
 *
 * The file is a mark of 8 bytes and records {how many numbers (8 bytes), key, numbers, the first 8
 * bytes of the SHA-256 of all that}, in the order in which they were made; numbers as the machine
 * has them. A record whose checksum does not match is not there; what follows the last good record
 * is cut off before the next one is appended. A single append makes a measurement safe from the
 * death of the process; the disk is synced at most once a second. */
#include "tuner/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kernels/file.h"
#include "kernels/memory.h"
#include "results/sha256.h"

#define MARK "kvtune1\n"
enum { MARK_SIZE = 8, CHECK_SIZE = 8, SYNC_INTERVAL_S = 1, MOST_NUMBERS = 1 << 20 };

typedef struct {
    uint8_t key[KV_CACHE_KEY];
    int64_t n; /* 0: an empty slot */
    size_t at; /* first number in kv_cache.numbers */
} slot;

struct kv_cache {
    char *path; /* NULL: in memory only */
    int fd;
    int64_t end; /* where the next record goes */
    double next_sync_s;
    slot *slots; /* [n_slots], a power of two, open addressing */
    size_t n_slots, n_used;
    double *numbers;
    size_t n_numbers, room;
    uint8_t *record; /* one record */
    size_t record_room;
};

static kv_status failed(const kv_cache *cache, const char *doing, int number, kv_error *err)
{
    return KV_FAIL(err, KV_EIO, "%s %s: %s", doing, cache->path, strerror(number));
}

/* ---- in memory ---- */

/* Where the key is, or the empty slot where it would go. */
static slot *find(const kv_cache *cache, const uint8_t *key)
{
    uint64_t hash;
    memcpy(&hash, key, sizeof hash);
    size_t i = (size_t)hash & (cache->n_slots - 1);
    while (cache->slots[i].n && memcmp(cache->slots[i].key, key, KV_CACHE_KEY) != 0)
        i = (i + 1) & (cache->n_slots - 1);
    return &cache->slots[i];
}

static kv_status make_room(kv_cache *cache, kv_error *err)
{
    slot *const old = cache->slots;
    size_t const n_old = cache->n_slots;
    void *memory = NULL;
    if (cache->slots && 2 * (cache->n_used + 1) <= n_old) return KV_OK;
    size_t const n_new = n_old ? 2 * n_old : 256;
    kv_status const status = kv_allocate(&memory, n_new, sizeof *cache->slots, err);
    if (status != KV_OK) return status;
    cache->slots = memory, cache->n_slots = n_new;
    for (size_t i = 0; i < n_old; i++)
        if (old[i].n) *find(cache, old[i].key) = old[i];
    kv_free(old);
    return KV_OK;
}

static kv_status insert(kv_cache *cache, const uint8_t *key, const void *values, int64_t n,
                        kv_error *err)
{
    kv_status status = KV_OK;
    KV_TRY(make_room(cache, err));
    KV_TRY(kv_grow((void **)&cache->numbers, &cache->room, cache->n_numbers,
                   cache->n_numbers + (size_t)n, sizeof *cache->numbers, err));
    slot *const place = find(cache, key);
    cache->n_used += !place->n;
    memcpy(place->key, key, KV_CACHE_KEY);
    place->n = n, place->at = cache->n_numbers;
    memcpy(cache->numbers + cache->n_numbers, values, (size_t)n * sizeof(double));
    cache->n_numbers += (size_t)n;
done:
    return status;
}

bool kv_cache_get(double *values, const kv_cache *cache, const uint8_t key[KV_CACHE_KEY], int64_t n)
{
    if (!cache->slots) return false;
    const slot *const place = find(cache, key);
    if (n < 1 || place->n != n) return false;
    memcpy(values, cache->numbers + place->at, (size_t)n * sizeof *values);
    return true;
}

int64_t kv_cache_count(const kv_cache *cache)
{
    return (int64_t)cache->n_used;
}

void kv_cache_key(uint8_t key[KV_CACHE_KEY], const char *text)
{
    kv_sha256(key, text, strlen(text));
}

/* ---- the file ---- */

static size_t record_size(int64_t n)
{
    return sizeof(uint64_t) + KV_CACHE_KEY + (size_t)n * sizeof(double) + CHECK_SIZE;
}

static kv_status record_room(kv_cache *cache, int64_t n, kv_error *err)
{
    return kv_grow((void **)&cache->record, &cache->record_room, 0, record_size(n), 1, err);
}

/* The record at `offset` of a file of `size` bytes: its size, 0 where nothing there can be one.
 * *is_good tells whether its checksum matches; it is then in cache->record. */
static kv_status read_record(size_t *length, bool *is_good, kv_cache *cache, int64_t offset,
                             int64_t size, kv_error *err)
{
    kv_status status = KV_OK;
    uint64_t n;
    uint8_t digest[32];
    *length = 0, *is_good = false;
    if (kv_file_read_at(cache->fd, &n, sizeof n, offset) < sizeof n || n < 1 || n > MOST_NUMBERS)
        return KV_OK;
    size_t const whole = record_size((int64_t)n);
    if ((int64_t)whole > size - offset) return KV_OK;
    KV_TRY(record_room(cache, (int64_t)n, err));
    if (kv_file_read_at(cache->fd, cache->record, whole, offset) < whole) return KV_OK;
    kv_sha256(digest, cache->record, whole - CHECK_SIZE);
    *length = whole;
    *is_good = memcmp(cache->record + whole - CHECK_SIZE, digest, CHECK_SIZE) == 0;
done:
    return status;
}

static kv_status read_all(kv_cache *cache, int64_t size, kv_error *err)
{
    kv_status status = KV_OK;
    size_t length;
    bool is_good;
    cache->end = MARK_SIZE;
    for (int64_t at = MARK_SIZE;; at += (int64_t)length) {
        KV_TRY(read_record(&length, &is_good, cache, at, size, err));
        if (!length) break;
        if (!is_good) continue;
        const uint8_t *const key = cache->record + sizeof(uint64_t);
        int64_t const n = (int64_t)((length - record_size(0)) / sizeof(double));
        KV_TRY(insert(cache, key, key + KV_CACHE_KEY, n, err));
        cache->end = at + (int64_t)length;
    }
done:
    return status;
}

/* Where standard output was closed the file opened next takes its number, and what is printed
 * would be written into the measurements. */
static kv_status leave_standard_streams(kv_cache *cache, kv_error *err)
{
    int const fd = fcntl(cache->fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (fd < 0) return failed(cache, "opening", errno, err);
    close(cache->fd);
    cache->fd = fd;
    return KV_OK;
}

static kv_status open_file(kv_cache *cache, kv_error *err)
{
    kv_status status = KV_OK;
    struct stat info;
    char mark[MARK_SIZE];
    cache->fd = open(cache->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (cache->fd >= 0 && cache->fd <= STDERR_FILENO) KV_TRY(leave_standard_streams(cache, err));
    if (cache->fd < 0) return failed(cache, "opening", errno, err);
    if (flock(cache->fd, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK
                   ? KV_FAIL(err, KV_EREQUEST, "%s: another process is working on this tuning",
                             cache->path)
                   : failed(cache, "locking", errno, err);
    if (fstat(cache->fd, &info) != 0) return failed(cache, "reading", errno, err);
    size_t const there = S_ISREG(info.st_mode) ? kv_file_read_at(cache->fd, mark, MARK_SIZE, 0) : 0;
    if (!S_ISREG(info.st_mode) || memcmp(mark, MARK, there) != 0)
        return KV_FAIL(err, KV_EINPUT, "%s is in the way: not the measurements of a tuning",
                       cache->path);
    if (there == MARK_SIZE) {
        KV_TRY(read_all(cache, (int64_t)info.st_size, err));
        if (cache->end < info.st_size && ftruncate(cache->fd, (off_t)cache->end) != 0)
            KV_TRY(failed(cache, "repairing", errno, err));
        goto done;
    }
    int const number = kv_file_write_at(cache->fd, MARK, MARK_SIZE, 0);
    if (number) KV_TRY(failed(cache, "writing", number, err));
    cache->end = MARK_SIZE;
done:
    return status;
}

kv_status kv_cache_open(kv_cache **out, const char *path, kv_error *err)
{
    kv_status status = KV_OK;
    void *memory = NULL;
    KV_TRY(kv_allocate(&memory, 1, sizeof(kv_cache), err));
    kv_cache *const cache = memory;
    cache->fd = -1;
    if (path) {
        KV_TRY(kv_duplicate(&cache->path, path, err));
        KV_TRY(open_file(cache, err));
    }
    *out = cache, memory = NULL;
done:
    kv_cache_close(memory);
    return status;
}

void kv_cache_close(kv_cache *cache)
{
    if (!cache) return;
    if (cache->fd >= 0) {
        (void)fdatasync(cache->fd); /* a failure loses at most the last second */
        close(cache->fd);           /* lets go of the lock */
    }
    kv_free(cache->path), kv_free(cache->slots), kv_free(cache->numbers), kv_free(cache->record);
    kv_free(cache);
}

static double seconds_now(void)
{
    struct timespec t = {0};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static kv_status append(kv_cache *cache, const uint8_t *key, const double *values, int64_t n,
                        kv_error *err)
{
    kv_status status = KV_OK;
    uint8_t digest[32];
    uint64_t const count = (uint64_t)n;
    size_t const whole = record_size(n);
    KV_TRY(record_room(cache, n, err));
    memcpy(cache->record, &count, sizeof count);
    memcpy(cache->record + sizeof count, key, KV_CACHE_KEY);
    memcpy(cache->record + sizeof count + KV_CACHE_KEY, values, (size_t)n * sizeof *values);
    kv_sha256(digest, cache->record, whole - CHECK_SIZE);
    memcpy(cache->record + whole - CHECK_SIZE, digest, CHECK_SIZE);
    int const number = kv_file_write_at(cache->fd, cache->record, whole, cache->end);
    if (number) KV_TRY(failed(cache, "writing", number, err));
    cache->end += (int64_t)whole;
    if (seconds_now() < cache->next_sync_s) goto done;
    if (fdatasync(cache->fd) != 0) KV_TRY(failed(cache, "syncing", errno, err));
    cache->next_sync_s = seconds_now() + SYNC_INTERVAL_S;
done:
    return status;
}

kv_status kv_cache_put(kv_cache *cache, const uint8_t key[KV_CACHE_KEY], const double *values,
                       int64_t n, kv_error *err)
{
    kv_status status = KV_OK;
    if (n < 1 || n > MOST_NUMBERS)
        return KV_FAIL(err, KV_EREQUEST, "%lld numbers cannot be kept", (long long)n);
    if (cache->path) KV_TRY(append(cache, key, values, n, err));
    KV_TRY(insert(cache, key, values, n, err));
done:
    return status;
}
