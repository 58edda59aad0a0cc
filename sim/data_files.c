/* Data files by name: see data_files.h. */
#include "sim/data_files.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/memory.h"
#include "kernels/text.h"

static const char suffix[] = ".yaml";

kv_status kv_data_find(char **path, const char *kind, const char *name,
                       const char *const *data_dirs, size_t n_data_dirs, kv_error *err)
{
    *path = NULL;
    if (!*name || *name == '.' || strchr(name, '/')) return KV_OK;
    for (size_t i = 0; i < n_data_dirs; i++) {
        kv_text t = {0};
        kv_status const status =
            kv_text_add(&t, err, "%s/%s/%s%s", data_dirs[i], kind, name, suffix);
        if (status == KV_OK && access(t.data, F_OK) == 0) return *path = kv_text_take(&t), KV_OK;
        kv_text_free(&t);
        if (status != KV_OK) return status;
    }
    return KV_OK;
}

static bool has_name(const kv_data_names *names, const char *name, size_t length)
{
    for (size_t i = 0; i < names->count; i++)
        if (strlen(names->names[i]) == length && memcmp(names->names[i], name, length) == 0)
            return true;
    return false;
}

static kv_status add_name(kv_data_names *names, const char *file, kv_error *err)
{
    size_t const length = strlen(file), tail = sizeof suffix - 1;
    if (*file == '.' || length <= tail || strcmp(file + length - tail, suffix) != 0) return KV_OK;
    if (has_name(names, file, length - tail)) return KV_OK;
    kv_status status = kv_grow((void **)&names->names, &names->capacity, names->count,
                               names->count + 1, sizeof *names->names, err);
    if (status == KV_OK)
        status = kv_duplicate_part(&names->names[names->count], file, length - tail, err);
    if (status == KV_OK) names->count++;
    return status;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

kv_status kv_data_list(kv_data_names *out, const char *kind, const char *const *data_dirs,
                       size_t n_data_dirs, kv_error *err)
{
    kv_status status = KV_OK;
    kv_data_names names = {0};
    DIR *directory = NULL;
    kv_text t = {0};
    for (size_t i = 0; i < n_data_dirs; i++) {
        KV_TRY(kv_text_add(&t, err, "%s/%s", data_dirs[i], kind));
        directory = opendir(t.data);
        kv_text_free(&t);
        if (!directory) continue;
        for (struct dirent *entry; (entry = readdir(directory));)
            KV_TRY(add_name(&names, entry->d_name, err));
        closedir(directory), directory = NULL;
    }
    if (names.count) qsort(names.names, names.count, sizeof *names.names, by_text);
    *out = names, names = (kv_data_names){0};
done:
    if (directory) closedir(directory);
    kv_text_free(&t);
    kv_data_names_free(&names);
    return status;
}

void kv_data_names_free(kv_data_names *names)
{
    for (size_t i = 0; i < names->count; i++) kv_free(names->names[i]);
    kv_free(names->names);
    *names = (kv_data_names){0};
}
