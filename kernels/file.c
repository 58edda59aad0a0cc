/* Whole files: see file.h. */
#include "kernels/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/memory.h"
#include "kernels/text.h"

static kv_status failed(kv_error *err, const char *doing, const char *path)
{
    return KV_FAIL(err, KV_EIO, "%s %s: %s", doing, path, strerror(errno));
}

/* The temporary name keeps the ending: DIR/.NAME.PID-N.ENDING; programs choose formats by it. */
kv_status kv_file_temporary(char **out, const char *path, kv_error *err)
{
    static atomic_uint counter;
    const char *const slash = strrchr(path, '/');
    const char *const name = slash ? slash + 1 : path;
    const char *const dot = strrchr(name, '.');
    int const stem = (int)((dot && dot != name ? dot : name + strlen(name)) - name);
    size_t const size = strlen(path) + 64;
    void *text = NULL;
    kv_status const status = kv_allocate(&text, size, 1, err);
    if (status != KV_OK) return status;
    snprintf(text, size, "%.*s.%.*s.%ld-%u%s", (int)(name - path), path, stem, name, (long)getpid(),
             atomic_fetch_add(&counter, 1u), name + stem);
    *out = text;
    return KV_OK;
}

size_t kv_file_read_at(int fd, void *bytes, size_t size, int64_t offset)
{
    size_t done = 0;
    while (done < size) {
        ssize_t const n = pread(fd, (char *)bytes + done, size - done, (off_t)offset + (off_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        done += (size_t)n;
    }
    return done;
}

int kv_file_write_at(int fd, const void *bytes, size_t size, int64_t offset)
{
    size_t done = 0;
    while (done < size) {
        ssize_t const n =
            pwrite(fd, (const char *)bytes + done, size - done, (off_t)offset + (off_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            int const number = n < 0 ? errno : ENOSPC;
            if (ftruncate(fd, (off_t)offset) != 0) return number; /* its checksum gives it away */
            return number;
        }
        done += (size_t)n;
    }
    return 0;
}

kv_status kv_file_sync_folder(const char *path, kv_error *err)
{
    kv_status status = KV_OK;
    char *folder = NULL;
    int fd = -1;
    const char *const slash = strrchr(path, '/');
    if (!slash)
        KV_TRY(kv_duplicate(&folder, ".", err));
    else
        KV_TRY(kv_duplicate_part(&folder, path, (size_t)(slash - path) + (slash == path), err));
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) KV_TRY(failed(err, "opening the folder", folder));
    /* some file systems cannot sync a folder; there is nothing more to do then */
    if (fsync(fd) != 0 && errno != EINVAL) KV_TRY(failed(err, "syncing the folder", folder));
done:
    if (fd >= 0) close(fd);
    kv_free(folder);
    return status;
}

static kv_status sync_file(const char *path, kv_error *err)
{
    int const fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return failed(err, "opening", path);
    int const bad = fsync(fd);
    kv_status const status = bad ? failed(err, "syncing", path) : KV_OK;
    close(fd);
    return status;
}

kv_status kv_file_commit(const char *temporary, const char *path, kv_error *err)
{
    kv_status status = KV_OK;
    KV_TRY(sync_file(temporary, err));
    if (rename(temporary, path) != 0) KV_TRY(failed(err, "renaming to", path));
    return kv_file_sync_folder(path, err);
done:
    unlink(temporary);
    return status;
}

static kv_status write_all(int fd, const char *bytes, size_t size, const char *path, kv_error *err)
{
    while (size > 0) {
        ssize_t const n = write(fd, bytes, size < (1u << 30) ? size : 1u << 30);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return failed(err, "writing", path);
        bytes += n, size -= (size_t)n;
    }
    return KV_OK;
}

kv_status kv_file_replace(const char *path, const void *bytes, size_t size, kv_error *err)
{
    kv_status status = KV_OK;
    char *temporary = NULL;
    int fd = -1;
    KV_TRY(kv_file_temporary(&temporary, path, err));
    fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) KV_TRY(failed(err, "writing", path));
    status = write_all(fd, bytes, size, path, err);
    if (close(fd) != 0 && status == KV_OK) status = failed(err, "writing", path);
    if (status == KV_OK)
        status = kv_file_commit(temporary, path, err);
    else
        unlink(temporary);
done:
    kv_free(temporary);
    return status;
}

kv_status kv_file_read(char **out, size_t *size, const char *path, kv_error *err)
{
    kv_status status = KV_OK;
    void *bytes = NULL;
    size_t used = 0, capacity = 0;
    struct stat info;
    int const fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return KV_FAIL(err, KV_EINPUT, "%s: %s", path, strerror(errno));
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        KV_TRY(KV_FAIL(err, KV_EINPUT, "%s: not a file", path));
    KV_TRY(kv_grow(&bytes, &capacity, 0, (size_t)info.st_size + 2, 1, err));
    for (;;) {
        ssize_t const n = read(fd, (char *)bytes + used, capacity - 1 - used);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) KV_TRY(failed(err, "reading", path));
        if (n == 0) break;
        used += (size_t)n;
        KV_TRY(kv_grow(&bytes, &capacity, used, used + 2, 1, err));
    }
    ((char *)bytes)[used] = 0;
    *out = bytes, bytes = NULL;
    *size = used;
done:
    close(fd);
    kv_free(bytes);
    return status;
}

/* ---- names ---- */

kv_status kv_file_refuse_input(const char *output, const char *input, kv_error *err)
{
    struct stat a, b;
    if (!input || stat(output, &a) != 0 || stat(input, &b) != 0) return KV_OK;
    if (a.st_dev != b.st_dev || a.st_ino != b.st_ino) return KV_OK;
    return KV_FAIL(err, KV_EREQUEST, "%s is read by this run; name another output", output);
}

kv_status kv_file_name_after(char **out, const char *path, const char *ending, kv_error *err)
{
    kv_text text = {0};
    const char *const slash = strrchr(path, '/');
    const char *const name = slash ? slash + 1 : path;
    const char *const dot = strrchr(name, '.');
    size_t const length = dot && dot > name ? (size_t)(dot - name) : strlen(name);
    kv_status const status = kv_text_add(&text, err, "%.*s%s", (int)length, name, ending);
    if (status == KV_OK) *out = kv_text_take(&text);
    return status;
}

kv_status kv_file_whole_path(char **out, const char *path, kv_error *err)
{
    kv_text text = {0};
    char folder[4096];
    if (*path == '/') return kv_duplicate(out, path, err);
    if (!getcwd(folder, sizeof folder))
        return KV_FAIL(err, KV_EIO, "the working folder: %s", strerror(errno));
    kv_status const status = kv_text_add(&text, err, "%s/%s", folder, path);
    if (status == KV_OK) *out = kv_text_take(&text);
    return status;
}
