/* See watch.h. Bytes are what the arguments say; lists and statistics, which are small, are left
 * out. */
#define _POSIX_C_SOURCE 200809L
#include "tests/gpu/watch.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "kernels/cuda/device.h"

watch_switch_function watch_switch;
watch_kept_function watch_kept;

static const kv_cuda_module *cuda; /* the module that works */
static bool is_watching;

/* ---- what a launch moves and multiplies ---- */

typedef struct {
    double bytes, products;
} work;

static double floats(int64_t a, int64_t b, int64_t c)
{
    return (double)a * (double)b * (double)c * (double)sizeof(float);
}

static double tiles_bytes(const kv_cuda_tiles *t)
{
    return (double)t->draws * floats(t->heads, t->tokens, t->head_dim);
}

static work work_generate(const kv_cuda_generate *a)
{
    return (work){floats(a->heads, a->tokens, a->head_dim), 0};
}
static work work_rotate(const kv_cuda_rotate *a)
{
    return (work){2 * floats(a->heads, a->tokens, a->head_dim), 0};
}
static work work_covariance(const kv_cuda_covariance *a)
{
    double const keys = floats(a->heads, a->tokens, a->head_dim);
    return (work){keys, keys / (double)sizeof(float) * (double)a->head_dim / 2};
}
/* Keys once a row; how often the search reads logits is not known before. */
static work work_pull(const kv_cuda_pull *a)
{
    double const keys = (double)a->n * floats(a->heads, a->tokens, a->head_dim);
    return (work){keys, 2 * keys / (double)sizeof(float)};
}
static work work_prepare(const kv_cuda_prepare *a)
{
    double const all = floats(a->heads, a->tokens, a->head_dim);
    return (work){all + (a->z ? floats(a->heads, a->scheme.span, a->head_dim) : 0), 0};
}
static work work_channels(const kv_cuda_channels *a)
{
    return (work){floats(a->heads, a->tokens, a->head_dim), 0};
}
static work work_extremes(const kv_cuda_extremes *a)
{
    return (work){tiles_bytes(&a->tiles), 0};
}
static work work_select(const kv_cuda_select *a)
{
    return (work){tiles_bytes(&a->tiles), 0};
}
static work work_percentiles(const kv_cuda_percentiles *a)
{
    return (work){2 * floats(a->tiles, a->n, 1), 0};
}
static work work_search(const kv_cuda_search *a)
{
    return (work){tiles_bytes(&a->tiles), 0};
}
static work work_global(const kv_cuda_global *a)
{
    return (work){floats(a->tiles, 2, 1), 0};
}
static work work_scales(const kv_cuda_scales *a)
{
    return (work){floats(a->tiles, a->minimum ? 4 : 3, 1), 0};
}
static work work_decode(const kv_cuda_decode *a)
{
    double const tensor = floats(a->heads, a->tokens, a->head_dim);
    return (work){tensor * (double)(1 + (a->x_pre_rope != NULL) + (a->values ? a->n : 0)), 0};
}
static work work_codes(const kv_cuda_codes *a)
{
    return (work){floats(a->heads, a->tokens, a->head_dim) * (a->codes ? 2 : 1), 0};
}
/* Rows of the launch, which are listed on the device. */
static double chunk_rows(const kv_cuda_chunk *chunks, int64_t n)
{
    double rows = 0;
    kv_cuda_chunk *const here = calloc((size_t)n + 1, sizeof *here);
    if (here && cuda->download(here, chunks, n * (int64_t)sizeof *here, NULL) == KV_OK)
        for (int64_t i = 0; i < n; i++) rows += here[i].n;
    free(here);
    return rows;
}
/* Every chunk reads its scheme's keys or values anew. */
static work work_logits(const kv_cuda_logits *a)
{
    double const seen = (double)a->heads * (double)(a->end_token - a->first_token);
    double const keys = seen * (double)a->n_chunks * (double)a->head_dim;
    double const logits = seen * chunk_rows(a->chunks, a->n_chunks);
    return (work){sizeof(float) * (keys + logits), logits * (double)a->head_dim};
}
static work work_rows(const kv_cuda_rows *a)
{
    return (work){floats(a->heads, a->rows, a->stride), 0};
}
static work work_compare(const kv_cuda_compare *a)
{
    return (work){floats(a->heads, a->rows, a->stride), 0};
}
static work work_outputs(const kv_cuda_outputs *a)
{
    double const seen = (double)a->heads * (double)(a->end_token - a->first_token);
    double const values = seen * (double)a->n_chunks * (double)a->head_dim;
    double const weights = seen * chunk_rows(a->chunks, a->n_chunks);
    return (work){sizeof(float) * (values + weights), weights * (double)a->head_dim};
}
static work work_finish(const kv_cuda_finish *a)
{
    return (work){floats(a->heads, a->outs, a->splits * a->head_dim), 0};
}
static work work_squares(const kv_cuda_squares *a)
{
    return (work){floats(a->heads, a->n, 1), 0};
}

/* ---- launches ---- */

enum {
#define KV_ROW(name) AT_##name,
    KV_CUDA_KERNEL_TABLE(KV_ROW)
#undef KV_ROW
        KERNELS
};

static watched kept[KERNELS] = {
#define KV_ROW(name) {.kernel = #name},
    KV_CUDA_KERNEL_TABLE(KV_ROW)
#undef KV_ROW
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void keep(int kernel, work w, double since)
{
    kept[kernel].launches++;
    kept[kernel].seconds += now() - since;
    kept[kernel].bytes += w.bytes;
    kept[kernel].products += w.products;
}

#define KV_ROW(name)                                                                               \
    static kv_status launch_##name(const kv_cuda_##name *a, kv_error *err)                         \
    {                                                                                              \
        if (!is_watching) return cuda->name(a, err);                                               \
        work const w = work_##name(a);                                                             \
        kv_status status = cuda->finish_all(err);                                                  \
        double const since = now();                                                                \
        if (status == KV_OK) status = cuda->name(a, err);                                          \
        if (status == KV_OK) status = cuda->finish_all(err);                                       \
        keep(AT_##name, w, since);                                                                 \
        return status;                                                                             \
    }
KV_CUDA_KERNEL_TABLE(KV_ROW)
#undef KV_ROW

/* ---- the module ---- */

void watch_switch(bool is_on)
{
    is_watching = is_on;
    for (int i = 0; is_on && i < KERNELS; i++) kept[i] = (watched){.kernel = kept[i].kernel};
}

const watched *watch_kept(int *n)
{
    *n = KERNELS;
    return kept;
}

static const kv_cuda_module *watched_module(void)
{
    const char *const path = getenv("KVANT_WATCHED");
    void *const library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    kv_cuda_module_function *table = NULL;
    if (library) *(void **)&table = dlsym(library, "kv_cuda_module_table");
    if (!table) {
        fprintf(stderr, "KVANT_WATCHED: %s\n", path ? dlerror() : "names no module");
        exit(1);
    }
    return table();
}

const kv_cuda_module *kv_cuda_module_table(void)
{
    static kv_cuda_module table;
    if (cuda) return &table;
    cuda = watched_module();
    table = *cuda;
    if (table.version != KV_CUDA_VERSION) return &table; /* the caller refuses it */
#define KV_ROW(name) table.name = launch_##name;
    KV_CUDA_KERNEL_TABLE(KV_ROW)
#undef KV_ROW
    return &table;
}
