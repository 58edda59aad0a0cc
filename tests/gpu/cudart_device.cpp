/* The emulated CUDA runtime, second part: one device (or what KVANT_GPU_DEVICES says, of one
 * memory) of the architecture that the translated PTX is for; streams and events as mere handles,
 * since everything runs at once; the names of errors. */
#include "tests/gpu/cudart.h"

#include <ctime>
#include <set>

namespace
{

using namespace gpu;

std::set<void *> &streams = *new std::set<void *>; /* read at exit, so never destroyed */
std::set<void *> &events = *new std::set<void *>;
std::map<void *, double> event_times;
thread_local int current_device;

int arch()
{
    const char *const text = getenv("KVANT_GPU_ARCH");
    const int of_module = module_arch();
    return text ? atoi(text) : of_module ? of_module : 90;
}

cudaError_t make(std::set<void *> &kind, void **p)
{
    if (!p || is_broken()) return result(cudaErrorInvalidValue);
    if (is_failing(GPU_MALLOC)) return result(cudaErrorMemoryAllocation);
    kind.insert(*p = malloc(1));
    return result(cudaSuccess);
}

cudaError_t unmake(std::set<void *> &kind, void *p)
{
    if (!kind.erase(p)) return result(cudaErrorInvalidResourceHandle);
    free(p);
    return result(cudaSuccess);
}

struct error_name {
    cudaError_t code;
    const char *name, *text;
};
const error_name error_names[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection",
     "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources",
     "too many resources requested for launch"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};
const error_name *error_of(cudaError_t e)
{
    for (const error_name &n : error_names)
        if (n.code == e) return &n;
    return nullptr;
}

double now_ms()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

} // namespace

int gpu::device_count()
{
    const char *const text = getenv("KVANT_GPU_DEVICES");
    return text ? atoi(text) : 1;
}

int gpu::shared_optin()
{
    return arch() >= 90 ? 232448 : arch() == 80 ? 166912 : 101376; /* CUDA guide, table 21 */
}

cudaError_t gpu::check_stream(cudaStream_t s)
{
    const uintptr_t number = (uintptr_t)s; /* 0, 1, 2: the default streams */
    return result(number <= 2 || streams.count(s) ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

void gpu::count_handles(gpu_holdings *h)
{
    h->streams = streams.size();
    h->events = events.size();
}

extern "C" {

/* ---- devices ---- */
cudaError_t cudaGetDeviceCount(int *count)
{
    if (device_count() == 0) return result(cudaErrorInsufficientDriver); /* count is left alone */
    *count = device_count();
    return result(cudaSuccess);
}
cudaError_t cudaGetDevice(int *device)
{
    *device = current_device;
    return result(cudaSuccess);
}
cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= device_count()) return result(cudaErrorInvalidDevice);
    current_device = device;
    return result(cudaSuccess);
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device)
{
    if (device < 0 || device >= device_count()) return result(cudaErrorInvalidDevice);
    size_t free_bytes;
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "kvant emulator (PTX of sm_%d)", arch());
    if (device > 0) snprintf(p->name + strlen(p->name), 32, ", device %d", device);
    p->major = arch() / 10;
    p->minor = arch() % 10;
    cudaMemGetInfo(&free_bytes, &p->totalGlobalMem);
    p->sharedMemPerBlock = 49152;
    p->sharedMemPerBlockOptin = (size_t)shared_optin();
    p->sharedMemPerMultiprocessor = (size_t)shared_optin() + 1024;
    p->multiProcessorCount = 2;
    p->maxThreadsPerBlock = 1024;
    p->warpSize = 32;
    p->regsPerBlock = 65536;
    p->l2CacheSize = 1 << 20;
    return result(cudaSuccess);
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device)
{
    if (device < 0 || device >= device_count()) return result(cudaErrorInvalidDevice);
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = arch() / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = arch() % 10; break;
    case cudaDevAttrMultiProcessorCount: *value = 2; break;
    case cudaDevAttrClockRate: *value = 1000000; break; /* kHz */
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 49152; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = shared_optin(); break;
    default: return result(cudaErrorInvalidValue);
    }
    return result(cudaSuccess);
}
cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version)
{
    *version = device_count() ? CUDART_VERSION : 0;
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *host, cudaFuncAttribute attribute, int value)
{
    const auto f = functions().find(host);
    if (f == functions().end()) return result(cudaErrorInvalidDeviceFunction);
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
        return result(attribute == cudaFuncAttributePreferredSharedMemoryCarveout
                          ? cudaSuccess
                          : cudaErrorInvalidValue);
    const kernel *const k = find_kernel(f->second.name.c_str());
    if (!k || value < 0 || value + (int)k->static_shared > shared_optin())
        return result(cudaErrorInvalidValue);
    f->second.shared_limit = value;
    return result(cudaSuccess);
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, const void *host)
{
    const auto f = functions().find(host);
    const kernel *const k = f == functions().end() ? nullptr : find_kernel(f->second.name.c_str());
    if (!k) return result(cudaErrorInvalidDeviceFunction);
    memset(a, 0, sizeof *a);
    a->maxThreadsPerBlock = 1024;
    a->sharedSizeBytes = k->static_shared;
    a->maxDynamicSharedSizeBytes = f->second.shared_limit;
    a->ptxVersion = a->binaryVersion = arch();
    return result(cudaSuccess);
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *, int, size_t)
{
    *n = 1;
    return result(cudaSuccess);
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *f, int t,
                                                                   size_t s, unsigned)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(n, f, t, s);
}

/* ---- errors ---- */
const char *cudaGetErrorName(cudaError_t e)
{
    return error_of(e) ? error_of(e)->name : "cudaErrorOther";
}
const char *cudaGetErrorString(cudaError_t e)
{
    return error_of(e) ? error_of(e)->text : "unrecognized error code";
}

/* ---- streams and events ---- */
cudaError_t cudaStreamCreate(cudaStream_t *s)
{
    return make(streams, (void **)s);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
    return cudaStreamCreate(s);
}
cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    return unmake(streams, s);
}
cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    return check_stream(s);
}
cudaError_t cudaStreamQuery(cudaStream_t s)
{
    return check_stream(s);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t, unsigned)
{
    return check_stream(s);
}
cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    return make(events, (void **)e);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
    return cudaEventCreate(e);
}
cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    return unmake(events, e);
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    if (!events.count(e)) return result(cudaErrorInvalidResourceHandle);
    event_times[e] = now_ms();
    return check_stream(s);
}
cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    return result(events.count(e) ? cudaSuccess : cudaErrorInvalidResourceHandle);
}
cudaError_t cudaEventQuery(cudaEvent_t e)
{
    return cudaEventSynchronize(e);
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    if (!events.count(from) || !events.count(to)) return result(cudaErrorInvalidResourceHandle);
    *ms = (float)(event_times[to] - event_times[from]);
    return result(cudaSuccess);
}
}
