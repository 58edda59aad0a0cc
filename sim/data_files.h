/* Data files by name: DIR/KIND/NAME.yaml over a list of directories, the first that has it counts.
 */
#ifndef KVANT_SIM_DATA_FILES_H
#define KVANT_SIM_DATA_FILES_H

#include <stddef.h>

#include "kernels/error.h"

typedef struct {
    char **names;
    size_t count, capacity;
} kv_data_names;

/* The path, or NULL where there is none (or the name could not be a file's). Caller frees. */
kv_status kv_data_find(char **path, const char *kind, const char *name,
                       const char *const *data_dirs, size_t n_data_dirs, kv_error *err);

/* All names, sorted, each once. A directory that is not there is empty. */
kv_status kv_data_list(kv_data_names *out, const char *kind, const char *const *data_dirs,
                       size_t n_data_dirs, kv_error *err);
void kv_data_names_free(kv_data_names *names);

#endif
