/* For tests of single kernels: opens an emulated module (argv[1]), moves arrays to and from its
 * memory, and runs a test under several schedules.
 *
 *     emulated e = emulated_open(argc, argv);
 *     float *x = to_device(&e, host, n * sizeof *host);
 *     DO(&e, squares, &(kv_cuda_squares){.x = x, ...});
 *     to_host(&e, host, x, n * sizeof *host);
 *     emulated_close(&e);               // frees what to_device and room gave, looks for leaks
 */
#ifndef KVANT_TESTS_GPU_KERNELS_H
#define KVANT_TESTS_GPU_KERNELS_H

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/device.h"
#include "tests/check.h"
#include "tests/gpu/emulator.h"

enum { EMULATED_MEMORIES = 512 };
typedef struct {
    const kv_cuda_module *cuda;
    void (*set_seed)(uint64_t);
    void (*set_races)(gpu_races);
    void (*fail)(gpu_call, int);
    int (*calls)(gpu_call);
    gpu_holdings (*live)(void);
    const char *(*message)(void);
    void *memory[EMULATED_MEMORIES];
    int n;
    kv_error err;
} emulated;

static inline void *emulated_symbol(void *library, const char *name)
{
    void *const symbol = dlsym(library, name);
    if (!symbol) fprintf(stderr, "%s\n", dlerror()), exit(1);
    return symbol;
}

static inline emulated emulated_open(int argc, char **argv)
{
    emulated e = {0};
    kv_cuda_about about;
    void *const library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) fprintf(stderr, "%s\n", argc > 1 ? dlerror() : "usage: test MODULE"), exit(1);
    kv_cuda_module_function *table;
    *(void **)&table = emulated_symbol(library, "kv_cuda_module_table");
    *(void **)&e.set_seed = emulated_symbol(library, "gpu_set_seed");
    *(void **)&e.set_races = emulated_symbol(library, "gpu_set_races");
    *(void **)&e.fail = emulated_symbol(library, "gpu_fail");
    *(void **)&e.calls = emulated_symbol(library, "gpu_calls");
    *(void **)&e.live = emulated_symbol(library, "gpu_live");
    *(void **)&e.message = emulated_symbol(library, "gpu_message");
    e.cuda = table();
    if (e.cuda->version != KV_CUDA_VERSION) fprintf(stderr, "another version\n"), exit(1);
    if (e.cuda->use(&about, 0, &e.err) != KV_OK) fprintf(stderr, "%s\n", e.err.message), exit(1);
    e.set_races(GPU_RACES_ALL);
    return e;
}

/* Bytes of device memory, filled with 0xff by the emulator. */
static inline void *room(emulated *e, size_t bytes)
{
    void *p = NULL;
    if (e->n == EMULATED_MEMORIES || e->cuda->allocate(&p, (int64_t)bytes, &e->err) != KV_OK)
        fprintf(stderr, "no memory: %s\n", e->err.message), exit(1);
    return e->memory[e->n++] = p;
}

static inline void *to_device(emulated *e, const void *from, size_t bytes)
{
    void *const p = room(e, bytes);
    CHECK(e->cuda->upload(p, from, (int64_t)bytes, &e->err) == KV_OK, "%s", e->err.message);
    return p;
}

static inline void to_host(emulated *e, void *to, const void *from, size_t bytes)
{
    CHECK(e->cuda->download(to, from, (int64_t)bytes, &e->err) == KV_OK, "%s: %s", e->err.message,
          e->message());
}

static inline void give_back(emulated *e)
{
    while (e->n > 0) e->cuda->release(e->memory[--e->n]);
}

static inline void emulated_close(emulated *e)
{
    give_back(e);
    gpu_holdings const left = e->live();
    CHECK(left.allocations == 0, "%zu allocations left", left.allocations);
}

/* One launch that must work. */
#define DO(e, name, ...)                                                                           \
    CHECK((e)->cuda->name(__VA_ARGS__, &(e)->err) == KV_OK, "%s: %s", (e)->err.message,            \
          (e)->message())

#endif
