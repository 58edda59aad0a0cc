/* The table of backends: see backend.h. A new one is a folder and a row. */
#include "kernels/backend.h"

#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cuda/cuda.h"

const int64_t kv_top_k[KV_TOP_COUNT] = {1, 8, 64};

static const char *always(void)
{
    return NULL;
}

static const char *cpu(void)
{
    return "cpu";
}

/* Whoever is quicker comes first: `auto` takes the first that can run. */
static const kv_backend backends[] = {
    {"cuda", "an NVIDIA GPU, one for each process; --device chooses", kv_cuda_unavailable,
     kv_cuda_device_name, kv_cuda_choose, kv_cuda_evaluate, kv_cuda_attend},
    {"cpu", "this machine's processors: OpenMP, and the widest vectors there are", always, cpu,
     NULL, kv_cpu_evaluate, kv_cpu_attend},
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
        if (!is_auto && strcmp(name, backends[b].name) != 0) continue;
        const char *const reason = backends[b].unavailable();
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

void kv_backend_why(char *text, size_t size, const kv_backend *taken)
{
    int n = snprintf(text, size, "%s", taken == backends ? taken->device() : "");
    for (const kv_backend *b = backends; b < taken && (size_t)n < size; b++)
        n += snprintf(text + n, size - (size_t)n, "%snot %s: %s", n ? "; " : "", b->name,
                      b->unavailable());
}

void kv_backend_list(FILE *out)
{
    for (size_t b = 0; b < N_BACKENDS; b++) {
        const char *const reason = backends[b].unavailable();
        fprintf(out, "%-10s %s", backends[b].name, backends[b].about);
        if (reason) fprintf(out, "; not available: %s", reason);
        if (!reason && backends[b].choose) fprintf(out, "; here: %s", backends[b].device());
        fprintf(out, "\n");
    }
}
