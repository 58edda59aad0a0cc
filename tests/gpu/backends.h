/* Both backends, opened for a test of the CUDA one on a module (argv[1]), and one evaluation or
 * attention put to both: the same answer, and nothing left on the device. */
#ifndef KVANT_TESTS_GPU_BACKENDS_H
#define KVANT_TESTS_GPU_BACKENDS_H

#include <dlfcn.h>
#include <stdio.h>

#include "tests/gpu/backend_cases.h"
#include "tests/gpu/backend_compare.h"
#include "tests/gpu/kernels.h"

static const kv_backend *cpu, *cuda;

/* What the emulator inside the module can do, of which a GPU can nothing. */
static emulated gpu;
static void (*set_memory)(size_t); /* NULL on a GPU */

static inline void check_nothing_left(const char *where)
{
    gpu_holdings const left = gpu.live();
    CHECK(left.allocations + left.streams + left.events == 0,
          "%s: %zu allocations, %zu streams, %zu events left", where, left.allocations,
          left.streams, left.events);
}

/* The library's CUDA backend on the module at `path`, and what the emulator inside it can do. */
static inline void open_backends(const char *path)
{
    kv_error err = {0};
    void *const library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (!library) fprintf(stderr, "%s\n", dlerror()), exit(1);
    find_emulator(&gpu, library);
    *(void **)&set_memory = dlsym(library, "gpu_set_memory");
    setenv("KVANT_CUDA_MODULE", path, 1);
    if (kv_backend_find(&cpu, "cpu", &err) != KV_OK ||
        kv_backend_find(&cuda, "cuda", &err) != KV_OK)
        fprintf(stderr, "%s\n", err.message), exit(1);
}

/* ---- evaluations ---- */

static inline void check_evaluation(const kv_layer *layer, const kv_evaluation *e,
                                    const char *where)
{
    char text[8192];
    int const used = snprintf(text, sizeof text, "%s", where);
    name_all(text + used, sizeof text - (size_t)used, e);
    outcome expected = evaluate(cpu, layer, e, 1), found = evaluate(cuda, layer, e, 1);
    compare_outcomes(&found, &expected, layer, text);
    if (*gpu.message()) printf("%s: %s\n", where, gpu.message());
    check_nothing_left(where);
    free_outcome(&expected), free_outcome(&found);
}

/* ---- attentions ---- */

typedef struct {
    memory_layer m;
    quantizers q;
    kv_attention a;
    float *query;
    int32_t (*pair)[2];
} request;

/* Rows name pairs of few kinds or any; every quantizer can be named, and -1. */
static inline void make_request(request *r, const shape *s, int64_t rows, int64_t position,
                                int kinds, int rope)
{
    int32_t kind[16][2];
    make_case(&r->m, s, NORMAL, rope);
    draw_quantizers(&r->q, &r->m.layer, 4, 3);
    int64_t const n = r->m.layer.query_heads * rows * s->head_dim;
    r->query = floats(n + 1);
    r->pair = calloc((size_t)rows + 1, sizeof *r->pair);
    for (int64_t i = 0; i < n; i++)
        r->query[i] = i / s->head_dim % rows == 1 ? 0 : 2 * draw_normal();
    for (int i = 0; i < kinds; i++) {
        kind[i][0] = (int32_t)(draw() * 5) - 1;
        kind[i][1] = (int32_t)(draw() * 4) - 1;
    }
    for (int64_t i = 0; i < rows; i++) memcpy(r->pair[i], kind[(int)(draw() * kinds)], 8);
    r->a = (kv_attention){.n_keys = 4,
                          .n_values = 3,
                          .keys = r->q.keys,
                          .values = r->q.values,
                          .rows = rows,
                          .position = position,
                          .query = r->query,
                          .pair = (const int32_t(*)[2])r->pair};
}

static inline void free_request(request *r)
{
    free_layer(&r->m);
    free(r->query), free(r->pair);
}

static inline void check_attention(const request *r, const char *where)
{
    char text[8192];
    int const used = snprintf(text, sizeof text, "attend: %s, rows %d, position %d", where,
                              (int)r->a.rows, (int)r->a.position);
    name_all(text + used, sizeof text - (size_t)used, &r->q.evaluation);
    outcome expected = attend(cpu, &r->m.layer, &r->a, 1);
    outcome found = attend(cuda, &r->m.layer, &r->a, 1);
    compare_outcomes(&found, &expected, &r->m.layer, text);
    if (*gpu.message()) printf("%s: %s\n", where, gpu.message());
    check_nothing_left(where);
    free_outcome(&expected), free_outcome(&found);
}

#endif
