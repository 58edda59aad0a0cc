/* The table of backends: see backend.h. A new one is a folder and a row. */
#include "kernels/backend.h"

#include <string.h>

#include "kernels/cpu/cpu.h"

const int64_t kv_top_k[KV_TOP_COUNT] = {1, 8, 64};

static const char *always(void)
{
    return NULL;
}

static const kv_backend backends[] = {
    {"cpu", "this machine's processors: OpenMP, and the widest vectors there are", always,
     kv_cpu_evaluate, kv_cpu_attend},
};
enum { N_BACKENDS = sizeof backends / sizeof backends[0] };

const kv_backend *kv_backend_at(size_t index)
{
    return index < N_BACKENDS ? &backends[index] : NULL;
}

kv_status kv_backend_find(const kv_backend **out, const char *name, kv_error *err)
{
    bool const is_auto = strcmp(name, "auto") == 0;
    for (size_t b = 0; b < N_BACKENDS; b++) {
        const char *const reason = backends[b].unavailable();
        if (!is_auto && strcmp(name, backends[b].name) != 0) continue;
        if (reason && is_auto) continue;
        if (reason) return KV_FAIL(err, KV_EUNSUPPORTED, "backend %s: %s", name, reason);
        *out = &backends[b];
        return KV_OK;
    }
    char names[256] = "auto";
    for (size_t b = 0; b < N_BACKENDS; b++) {
        strncat(names, ", ", sizeof names - strlen(names) - 1);
        strncat(names, backends[b].name, sizeof names - strlen(names) - 1);
    }
    return KV_FAIL(err, KV_EREQUEST, "backend %s: not known; there are: %s", name, names);
}

void kv_backend_list(FILE *out)
{
    for (size_t b = 0; b < N_BACKENDS; b++) {
        const char *const reason = backends[b].unavailable();
        fprintf(out, "%-10s %s%s%s\n", backends[b].name, backends[b].about,
                reason ? "; not available: " : "", reason ? reason : "");
    }
}
