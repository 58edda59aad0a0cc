/* The log of a run: see run.h.
 *
 * FINAL.run is a header {mark, n_units, values_per_unit, size of the identity, identity, SHA-256 of
 * all that} and then records of one size {unit, values, first 8 bytes of their SHA-256} in the
 * order in which units finished; numbers as the machine has them. A record that does not match its
 * checksum is a unit that is not done. One file rather than a folder of shards: a single append
 * makes a unit safe from the death of the process, and there is nothing to merge. The disk is
 * synced at most once a second, so that cheap units stay cheap. */
#include "results/run.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kernels/file.h"
#include "kernels/memory.h"
#include "results/provenance.h"
#include "results/sha256.h"

#define MARK "kvrun-1\n"
enum { FIXED_SIZE = 32, DIGEST_SIZE = 32, CHECK_SIZE = 8, SYNC_INTERVAL_S = 1 };

struct kv_run {
    char *path;
    char *header; /* all of it, as it is in the file */
    size_t header_size, record_size;
    int64_t n_units, values_per_unit;
    int fd;

    pthread_mutex_t lock;       /* guards everything below */
    char *record;               /* one record, being read or written */
    int64_t *place;             /* [n_units] where its record is, 0 where there is none */
    uint8_t *is_done;           /* [n_units] its record is written */
    int64_t n_done, end;        /* end: where the next record goes */
    double next_sync_s;         /* on the monotonic clock */
    int is_syncing, sync_errno; /* after a failed sync nothing is known: sync_errno stays set */
};

static kv_status failed(const kv_run *run, const char *doing, int number, kv_error *err)
{
    if (number == ENOSPC || number == EDQUOT || number == EFBIG)
        return KV_FAIL(err, KV_EIO,
                       "%s %s: %s; the %lld finished units are kept, make room and use --resume",
                       doing, run->path, strerror(number), (long long)run->n_done);
    return KV_FAIL(err, KV_EIO, "%s %s: %s", doing, run->path, strerror(number));
}

static kv_status make_header(kv_run *run, const char *identity, kv_error *err)
{
    kv_status status = KV_OK;
    void *memory = NULL;
    const kv_build *const b = &kv_this_build;
    size_t const room = FIXED_SIZE + 256 + strlen(identity) + DIGEST_SIZE;
    KV_TRY(kv_allocate(&memory, room, 1, err));
    run->header = memory;
    char *const text = run->header + FIXED_SIZE;
    int const n = snprintf(text, room - FIXED_SIZE - DIGEST_SIZE, "kvant %s, revision %s\n%s",
                           b->version, b->git_revision, identity);
    uint64_t const numbers[3] = {(uint64_t)run->n_units, (uint64_t)run->values_per_unit,
                                 (uint64_t)n};
    memcpy(run->header, MARK, 8);
    memcpy(run->header + 8, numbers, sizeof numbers);
    run->header_size = FIXED_SIZE + (size_t)n + DIGEST_SIZE;
    kv_sha256((uint8_t *)text + n, run->header, FIXED_SIZE + (size_t)n);
done:
    return status;
}

/* The first line in which two texts differ, as a failure. */
static kv_status fail_difference(const kv_run *run, const char *was, const char *is, kv_error *err)
{
    int line = 0; /* line 0 is the version */
    for (;;) {
        int const n = (int)strcspn(was, "\n"), m = (int)strcspn(is, "\n");
        if (n != m || strncmp(was, is, (size_t)n) != 0)
            return KV_FAIL(err, KV_EREQUEST,
                           "%s was made by another %s: \"%.*s\" there, \"%.*s\" now; "
                           "delete it to start over",
                           run->path, line ? "configuration" : "version of kvant", n, was, m, is);
        if (!was[n] || !is[m]) break;
        was += n + 1, is += m + 1, line++;
    }
    return KV_FAIL(err, KV_EREQUEST,
                   "%s was made by a longer or shorter configuration; "
                   "delete it to start over",
                   run->path);
}

static kv_status damaged(const kv_run *run, kv_error *err)
{
    return KV_FAIL(err, KV_EREQUEST, "%s is damaged; delete it to start over", run->path);
}

/* Looks at the header that is there: *exists 0 where there is none or not all of it, else it must
 * be this run's (`must_match`) or anyone's. *size is its whole size. */
static kv_status read_header(int *exists, size_t *size, const kv_run *run, int must_match,
                             kv_error *err)
{
    kv_status status = KV_OK;
    char fixed[FIXED_SIZE];
    uint64_t numbers[3];
    void *memory = NULL;
    uint8_t digest[DIGEST_SIZE];
    *exists = 0, *size = 0;
    size_t const n = kv_file_read_at(run->fd, fixed, sizeof fixed, 0);
    if (memcmp(fixed, MARK, n < 8 ? n : 8) != 0)
        return KV_FAIL(err, KV_EREQUEST, "%s is in the way: not the progress of a run", run->path);
    if (n < sizeof fixed) return KV_OK;
    memcpy(numbers, fixed + 8, sizeof numbers);
    struct stat info;
    if (fstat(run->fd, &info) != 0) return failed(run, "reading", errno, err);
    if (numbers[2] > (uint64_t)info.st_size) /* died while writing it, or */
        return (size_t)info.st_size < run->header_size ? KV_OK : damaged(run, err);
    size_t const text_size = (size_t)numbers[2];
    KV_TRY(kv_allocate(&memory, FIXED_SIZE + text_size + DIGEST_SIZE + 1, 1, err));
    char *const header = memory, *const seal = header + FIXED_SIZE + text_size;
    *size = FIXED_SIZE + text_size + DIGEST_SIZE;
    if (kv_file_read_at(run->fd, header, *size, 0) < *size) goto done; /* died while writing it */
    kv_sha256(digest, header, FIXED_SIZE + text_size);
    if (memcmp(seal, digest, sizeof digest) != 0) KV_TRY(damaged(run, err));
    *exists = 1;
    if (!must_match || (*size == run->header_size && memcmp(header, run->header, *size) == 0))
        goto done;
    *seal = 0;
    char *const mine = run->header + run->header_size - DIGEST_SIZE;
    char const first = *mine;
    *mine = 0;
    status = strcmp(header + FIXED_SIZE, run->header + FIXED_SIZE) == 0
                 ? KV_FAIL(err, KV_EREQUEST, "%s has other units of work; delete it to start over",
                           run->path)
                 : fail_difference(run, header + FIXED_SIZE, run->header + FIXED_SIZE, err);
    *mine = first;
done:
    kv_free(memory);
    return status;
}

/* Checks the record at `offset` that has been read into run->record; its unit, or -1. */
static int64_t unit_of_record(const kv_run *run)
{
    uint8_t digest[DIGEST_SIZE];
    uint64_t unit;
    size_t const body = run->record_size - CHECK_SIZE;
    kv_sha256(digest, run->record, body);
    if (memcmp(run->record + body, digest, CHECK_SIZE) != 0) return -1;
    memcpy(&unit, run->record, sizeof unit);
    return unit < (uint64_t)run->n_units ? (int64_t)unit : -1;
}

static void read_records(kv_run *run)
{
    run->end = (int64_t)run->header_size;
    while (kv_file_read_at(run->fd, run->record, run->record_size, run->end) == run->record_size) {
        int64_t const unit = unit_of_record(run);
        if (unit >= 0) run->place[unit] = run->end, run->n_done += !run->is_done[unit];
        if (unit >= 0) run->is_done[unit] = 1;
        run->end += (int64_t)run->record_size;
    }
}

/* Opens and locks the log. A process that finishes removes its log while others may be opening it,
 * so the name must still lead to the file that was locked. */
static kv_status open_log(kv_run *run, kv_error *err)
{
    for (int attempt = 0; attempt < 100; attempt++) {
        struct stat here, there;
        run->fd = open(run->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (run->fd < 0) return failed(run, "opening", errno, err);
        if (flock(run->fd, LOCK_EX | LOCK_NB) != 0)
            return errno == EWOULDBLOCK
                       ? KV_FAIL(err, KV_EREQUEST, "%s: another process is working on this run",
                                 run->path)
                       : failed(run, "locking", errno, err);
        if (fstat(run->fd, &here) != 0) return failed(run, "opening", errno, err);
        if (stat(run->path, &there) == 0 && here.st_ino == there.st_ino &&
            here.st_dev == there.st_dev)
            return KV_OK;
        close(run->fd), run->fd = -1;
    }
    return KV_FAIL(err, KV_EIO, "%s: it keeps being replaced", run->path);
}

static kv_status start_log(kv_run *run, kv_error *err)
{
    kv_status status = KV_OK;
    run->end = (int64_t)run->header_size;
    if (ftruncate(run->fd, 0) != 0) KV_TRY(failed(run, "emptying", errno, err));
    int const number = kv_file_write_at(run->fd, run->header, run->header_size, 0);
    if (number) KV_TRY(failed(run, "writing", number, err));
    if (fsync(run->fd) != 0) KV_TRY(failed(run, "syncing", errno, err));
    status = kv_file_sync_folder(run->path, err);
done:
    return status;
}

static kv_status take_up_log(kv_run *run, int resume, kv_error *err)
{
    kv_status status = KV_OK;
    int exists = 0;
    size_t size = 0;
    struct stat info;
    KV_TRY(read_header(&exists, &size, run, resume, err));
    if (fstat(run->fd, &info) != 0) KV_TRY(failed(run, "reading", errno, err));
    if (exists && !resume && info.st_size > (off_t)size)
        KV_TRY(KV_FAIL(err, KV_EREQUEST,
                       "%s holds finished work of an earlier run: use --resume, or delete it",
                       run->path));
    if (!exists || !resume) return start_log(run, err);
    read_records(run);
    if (ftruncate(run->fd, (off_t)run->end) != 0) KV_TRY(failed(run, "repairing", errno, err));
done:
    return status;
}

kv_status kv_run_open(kv_run **out, const kv_run_spec *spec, kv_error *err)
{
    kv_status status = KV_OK;
    void *memory = NULL;
    kv_run *run = NULL;
    int64_t bytes;
    if (spec->n_units < 1 || spec->values_per_unit < 1 ||
        !kv_multiply_sizes(spec->values_per_unit, sizeof(double), &bytes) || bytes > INT64_MAX / 2)
        return KV_FAIL(err, KV_EREQUEST, "%lld units of %lld values", (long long)spec->n_units,
                       (long long)spec->values_per_unit);
    KV_TRY(kv_allocate(&memory, 1, sizeof *run, err));
    run = memory;
    pthread_mutex_init(&run->lock, NULL);
    run->fd = -1;
    run->n_units = spec->n_units, run->values_per_unit = spec->values_per_unit;
    run->record_size = sizeof(uint64_t) + (size_t)bytes + CHECK_SIZE;
    struct stat final; /* renaming over a device or a directory would remove it, or fail late */
    if (stat(spec->final_path, &final) == 0 && !S_ISREG(final.st_mode))
        KV_TRY(KV_FAIL(err, KV_EREQUEST, "%s is no regular file, results cannot replace it",
                       spec->final_path));
    KV_TRY(kv_allocate(&memory, strlen(spec->final_path) + sizeof ".run", 1, err));
    run->path = strcat(strcpy(memory, spec->final_path), ".run");
    KV_TRY(kv_allocate(&memory, run->record_size, 1, err));
    run->record = memory;
    KV_TRY(kv_allocate(&memory, (size_t)run->n_units, sizeof *run->place, err));
    run->place = memory;
    KV_TRY(kv_allocate(&memory, (size_t)run->n_units, sizeof *run->is_done, err));
    run->is_done = memory;
    KV_TRY(make_header(run, spec->identity, err));
    KV_TRY(open_log(run, err));
    KV_TRY(take_up_log(run, spec->resume, err));
    *out = run, run = NULL;
done:
    kv_run_close(run);
    return status;
}

int kv_run_is_done(kv_run *run, int64_t unit)
{
    pthread_mutex_lock(&run->lock);
    int const is_done = unit >= 0 && unit < run->n_units && run->is_done[unit];
    pthread_mutex_unlock(&run->lock);
    return is_done;
}

int64_t kv_run_count_done(kv_run *run)
{
    pthread_mutex_lock(&run->lock);
    int64_t const n_done = run->n_done;
    pthread_mutex_unlock(&run->lock);
    return n_done;
}

/* Appends the record; run->lock is held. */
static kv_status append(kv_run *run, int64_t unit, const double *values, kv_error *err)
{
    uint8_t digest[DIGEST_SIZE];
    uint64_t const number = (uint64_t)unit;
    size_t const body = run->record_size - CHECK_SIZE;
    if (unit < 0 || unit >= run->n_units || run->place[unit])
        return KV_FAIL(err, KV_EREQUEST, "unit %lld of %lld cannot be put: it is %s",
                       (long long)unit, (long long)run->n_units,
                       unit < 0 || unit >= run->n_units ? "not there" : "done");
    if (run->sync_errno) return failed(run, "syncing", run->sync_errno, err);
    memcpy(run->record, &number, sizeof number);
    memcpy(run->record + sizeof number, values, body - sizeof number);
    kv_sha256(digest, run->record, body);
    memcpy(run->record + body, digest, CHECK_SIZE);
    int const failure = kv_file_write_at(run->fd, run->record, run->record_size, run->end);
    if (failure) return failed(run, "writing", failure, err);
    run->place[unit] = run->end;
    run->end += (int64_t)run->record_size;
    return KV_OK;
}

static double seconds_now(void)
{
    struct timespec t = {0};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Syncs when it is time; the others go on writing meanwhile. run->lock is held, and let go while
 * syncing. */
static kv_status sync_sometimes(kv_run *run, kv_error *err)
{
    if (run->is_syncing || seconds_now() < run->next_sync_s) return KV_OK;
    run->is_syncing = 1;
    pthread_mutex_unlock(&run->lock);
    int const number = fdatasync(run->fd) == 0 ? 0 : errno;
    pthread_mutex_lock(&run->lock);
    run->is_syncing = 0;
    run->next_sync_s = seconds_now() + SYNC_INTERVAL_S;
    run->sync_errno = number;
    return number ? failed(run, "syncing", number, err) : KV_OK;
}

kv_status kv_run_put(kv_run *run, int64_t unit, const double *values, kv_error *err)
{
    kv_status status = KV_OK;
    pthread_mutex_lock(&run->lock);
    KV_TRY(append(run, unit, values, err));
    run->is_done[unit] = 1, run->n_done++;
    KV_TRY(sync_sometimes(run, err));
done:
    pthread_mutex_unlock(&run->lock);
    return status;
}

kv_status kv_run_collect(double *all, kv_run *run, kv_error *err)
{
    kv_status status = KV_OK;
    size_t const n = (size_t)run->values_per_unit;
    pthread_mutex_lock(&run->lock);
    for (int64_t unit = 0; unit < run->n_units; unit++) {
        double *const values = all + (size_t)unit * n;
        for (size_t i = 0; i < n; i++) values[i] = (double)NAN;
        if (!run->is_done[unit]) continue;
        size_t const got =
            kv_file_read_at(run->fd, run->record, run->record_size, run->place[unit]);
        if (got != run->record_size || unit_of_record(run) != unit)
            KV_TRY(KV_FAIL(err, KV_EIO, "%s: unit %lld can no longer be read", run->path,
                           (long long)unit));
        memcpy(values, run->record + sizeof(uint64_t), n * sizeof *values);
    }
done:
    pthread_mutex_unlock(&run->lock);
    return status;
}

kv_status kv_run_finish(kv_run *run, kv_error *err)
{
    if (unlink(run->path) != 0) return failed(run, "removing", errno, err);
    return kv_file_sync_folder(run->path, err);
}

void kv_run_close(kv_run *run)
{
    if (!run) return;
    if (run->fd >= 0) {
        (void)fdatasync(run->fd); /* a failure was reported or loses at most the last second */
        close(run->fd);           /* lets go of the lock */
    }
    pthread_mutex_destroy(&run->lock);
    kv_free(run->path), kv_free(run->header), kv_free(run->record);
    kv_free(run->place), kv_free(run->is_done);
    kv_free(run);
}
