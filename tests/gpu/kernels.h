/* For tests of single kernels: opens an emulated module (argv[1]), moves arrays to and from its
 * memory, and runs a test under several schedules. A module that is not emulated runs the same
 * tests on the machine's GPU: what only the emulator can do is left out, and a line says so.
 * argv[2], 1 where it is not there, multiplies how many random cases are drawn.
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
#include <stdbool.h>
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
    uint64_t (*atomics)(void); /* NULL on a GPU */
    gpu_holdings (*live)(void);
    const char *(*message)(void);
    void *memory[EMULATED_MEMORIES];
    int n, scale; /* times as many random cases */
    kv_error err;
} emulated;

/* What a GPU has no way to do does nothing. */
static inline void device_set_seed(uint64_t seed)
{
    (void)seed;
}
static inline void device_set_races(gpu_races races)
{
    (void)races;
}
static inline void device_fail(gpu_call call, int k)
{
    (void)call, (void)k;
}
static inline int device_calls(gpu_call call)
{
    return (void)call, 0;
}
static inline gpu_holdings device_live(void)
{
    return (gpu_holdings){0};
}
static inline const char *device_message(void)
{
    return "";
}

static inline void *module_symbol(void *library, const char *name)
{
    void *const symbol = dlsym(library, name);
    if (!symbol) fprintf(stderr, "%s\n", dlerror()), exit(1);
    return symbol;
}

/* Whether a module brings the emulator; with a line for one that does not. */
static inline bool module_is_emulated(void *library)
{
    bool const is_emulated = dlsym(library, "gpu_set_seed") != NULL;
    if (!is_emulated)
        printf("not an emulated module: no schedules, races, faults and leaks are looked for\n");
    return is_emulated;
}

static inline void find_emulator(emulated *e, void *library)
{
    e->set_seed = device_set_seed, e->set_races = device_set_races, e->fail = device_fail;
    e->calls = device_calls, e->live = device_live, e->message = device_message;
    if (!module_is_emulated(library)) return;
    *(void **)&e->set_seed = module_symbol(library, "gpu_set_seed");
    *(void **)&e->set_races = module_symbol(library, "gpu_set_races");
    *(void **)&e->fail = module_symbol(library, "gpu_fail");
    *(void **)&e->calls = module_symbol(library, "gpu_calls");
    *(void **)&e->atomics = module_symbol(library, "gpu_atomics");
    *(void **)&e->live = module_symbol(library, "gpu_live");
    *(void **)&e->message = module_symbol(library, "gpu_message");
}

static inline emulated emulated_open(int argc, char **argv)
{
    emulated e = {.scale = argc > 2 ? atoi(argv[2]) : 1};
    kv_cuda_about about;
    void *const library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) fprintf(stderr, "%s\n", argc > 1 ? dlerror() : "usage: test MODULE"), exit(1);
    kv_cuda_module_function *table;
    *(void **)&table = module_symbol(library, "kv_cuda_module_table");
    find_emulator(&e, library);
    e.cuda = table();
    if (e.cuda->version != KV_CUDA_VERSION) fprintf(stderr, "another version\n"), exit(1);
    if (e.cuda->use(&about, 0, &e.err) != KV_OK) fprintf(stderr, "%s\n", e.err.message), exit(1);
    e.set_races(GPU_RACES_ALL);
    return e;
}

/* Bytes of device memory; the emulator fills them with 0xff. */
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
