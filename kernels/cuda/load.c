/* The CUDA module, found and opened: see load.h.
 *
 * What is kept here for the whole process is what a process has one of: the opened module (or why
 * there is none), and the device that was chosen. */
#include "kernels/cuda/load.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cuda/cuda.h"

#define MODULE_NAME "libkvant_cuda.so"

#ifdef KVANT_HAS_CUDA_MODULE
#define NOT_FOUND MODULE_NAME " is not found; KVANT_CUDA_MODULE can say where it is"
#else
#define NOT_FOUND "this build has no CUDA module (KVANT_CUDA=OFF or no nvcc)"
#endif

enum { PATH_SIZE = 4096 };

/* ---- the module ---- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct {
    const kv_cuda_module *module;
    int32_t devices;
    kv_error why; /* where there is no device */
} found;

/* The folder of the running program, "" where the system does not say. */
static void program_folder(char out[PATH_SIZE])
{
    ssize_t const n = readlink("/proc/self/exe", out, PATH_SIZE - 1);
    out[n > 0 ? n : 0] = 0;
    char *const slash = strrchr(out, '/');
    if (slash) *slash = 0;
}

/* The module's path, "" where it is nowhere. */
static void find_module(char out[2 * PATH_SIZE])
{
    char program[PATH_SIZE];
    program_folder(program);
    const struct {
        const char *folder, *below;
    } places[] = {{program, ""},
                  {program, KVANT_CUDA_FROM_PROGRAM},
                  {KVANT_CUDA_BUILD_DIR, ""},
                  {KVANT_CUDA_INSTALL_DIR, ""}};
    const char *const asked = getenv("KVANT_CUDA_MODULE");
    snprintf(out, 2 * PATH_SIZE, "%s", asked ? asked : "");
    for (size_t i = 0; !*out && i < sizeof places / sizeof *places; i++) {
        snprintf(out, 2 * PATH_SIZE, "%s%s/" MODULE_NAME, places[i].folder, places[i].below);
        if (access(out, F_OK) != 0) *out = 0;
    }
}

static kv_status open_module(const kv_cuda_module **out, const char *path, kv_error *err)
{
    kv_cuda_module_function *table = NULL;
    void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return KV_FAIL(err, KV_EUNSUPPORTED, "%s", dlerror());
    *(void **)&table = dlsym(library, "kv_cuda_module_table"); /* POSIX's way around ISO C */
    if (!table) {
        KV_FAIL(err, KV_EUNSUPPORTED, "%s", dlerror());
    } else if (table()->version != KV_CUDA_VERSION) {
        KV_FAIL(err, KV_EUNSUPPORTED,
                "%s: belongs to another version of kvant (interface %d, here %d)", path,
                (int)table()->version, KV_CUDA_VERSION);
    } else {
        *out = table();
        return KV_OK;
    }
    dlclose(library);
    return KV_EUNSUPPORTED;
}

static void find_devices(void)
{
    char path[2 * PATH_SIZE];
    const kv_cuda_module *module = NULL;
    find_module(path);
    if (!*path)
        KV_FAIL(&found.why, KV_EUNSUPPORTED, NOT_FOUND);
    else if (open_module(&module, path, &found.why) == KV_OK &&
             module->count(&found.devices, &found.why) == KV_OK && found.devices < 1)
        KV_FAIL(&found.why, KV_EUNSUPPORTED, "CUDA finds no device");
    found.module = module;
}

const char *kv_cuda_unavailable(void)
{
    pthread_once(&once, find_devices);
    return found.why.status == KV_OK ? NULL : found.why.message;
}

/* ---- the device ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    bool is_made;
    int32_t device;
    char name[256];
} choice; /* guarded by lock; the name is only written when the device changes */
static KV_THREAD_LOCAL int32_t current = -1; /* the device that this thread uses */

/* The rank among the processes of an MPI job on this machine, as launchers tell it; or 0. */
static int32_t default_device(void)
{
    static const char *const ranks[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK",
                                        "MPI_LOCALRANKID", "SLURM_LOCALID"};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        const char *const text = getenv(ranks[i]);
        char *end = NULL;
        long const rank = text ? strtol(text, &end, 10) : 0;
        if (text && end != text && !*end && rank >= 0) return (int32_t)(rank % found.devices);
    }
    return 0;
}

/* With the lock held. */
static kv_status use(int32_t device, kv_error *err)
{
    kv_cuda_about about = {0};
    if (choice.is_made && device == choice.device && device == current) return KV_OK;
    kv_status const status = found.module->use(&about, device, err);
    if (status != KV_OK) return status;
    if (!choice.is_made || device != choice.device)
        snprintf(choice.name, sizeof choice.name, "%s", about.name);
    choice.is_made = true, choice.device = current = device;
    return KV_OK;
}

kv_status kv_cuda_choose(int device, kv_error *err)
{
    const char *const reason = kv_cuda_unavailable();
    if (reason) return KV_FAIL(err, KV_EUNSUPPORTED, "backend cuda: %s", reason);
    if (device < 0 || device >= found.devices)
        return KV_FAIL(err, KV_EREQUEST, "no CUDA device %d: this machine has %d, counted from 0",
                       device, (int)found.devices);
    pthread_mutex_lock(&lock);
    kv_status const status = use(device, err);
    pthread_mutex_unlock(&lock);
    return status;
}

/* Makes the process's device this thread's. */
static kv_status use_default(kv_error *err)
{
    const char *const reason = kv_cuda_unavailable();
    if (reason) return KV_FAIL(err, KV_EUNSUPPORTED, "backend cuda: %s", reason);
    pthread_mutex_lock(&lock);
    kv_status const status = use(choice.is_made ? choice.device : default_device(), err);
    pthread_mutex_unlock(&lock);
    return status;
}

const char *kv_cuda_device_name(void)
{
    use_default(NULL);
    return choice.name;
}

/* ---- turns ---- */

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

kv_status kv_cuda_begin(const kv_cuda_module **out, kv_error *err)
{
    kv_status const status = use_default(err);
    if (status != KV_OK) return status;
    pthread_mutex_lock(&turn);
    *out = found.module;
    return KV_OK;
}

void kv_cuda_end(void)
{
    pthread_mutex_unlock(&turn);
}
