/* Files that are whole or not there: written under a temporary name, synced, renamed, and the
 * folder synced. */
#ifndef KVANT_KERNELS_FILE_H
#define KVANT_KERNELS_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/error.h"

/* Replaces `path` by `size` bytes. On failure `path` is untouched and nothing is left behind. */
kv_status kv_file_replace(const char *path, const void *bytes, size_t size, kv_error *err);

/* The first half for writers that are other programs: a new name beside `path`, with the same
 * ending; the caller frees it. Then kv_file_commit syncs and renames it; on failure it is removed.
 */
kv_status kv_file_temporary(char **out, const char *path, kv_error *err);
kv_status kv_file_commit(const char *temporary, const char *path, kv_error *err);

/* For logs of checksummed records: how many of `size` bytes there are from `offset` on; and all of
 * them or, as far as the next reader can tell, nothing written there, the errno of what failed. */
size_t kv_file_read_at(int fd, void *bytes, size_t size, int64_t offset);
int kv_file_write_at(int fd, const void *bytes, size_t size, int64_t offset);

/* Syncs the folder that `path` lies in, so that a new or removed name survives a power failure. */
kv_status kv_file_sync_folder(const char *path, kv_error *err);

/* KV_EREQUEST where a file that is to be written is one that is read: a result must not replace
 * what it is made from. `input` may be NULL. */
kv_status kv_file_refuse_input(const char *output, const char *input, kv_error *err);

/* The name of what is made from a file: "dir/name.yaml" and ".h5" give "name.h5". The caller frees.
 */
kv_status kv_file_name_after(char **out, const char *path, const char *ending, kv_error *err);

/* A path that holds from any folder. The caller frees. */
kv_status kv_file_whole_path(char **out, const char *path, kv_error *err);

/* All bytes of a file, and one 0 after them that *size does not count. The caller frees. */
kv_status kv_file_read(char **out, size_t *size, const char *path, kv_error *err);

#endif
