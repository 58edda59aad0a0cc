/* The module's table and its calls that are no kernels: see device.h. */
#include "kernels/cuda/launch.h"

#include <stdio.h>

static kv_status failed(cudaError_t code, const char *call, kv_error *err)
{
    if (code == cudaSuccess) return KV_OK;
    cudaGetLastError(); /* what is reported once is not reported again */
    return KV_FAIL(err, code == cudaErrorMemoryAllocation ? KV_ENOMEM : KV_EUNSUPPORTED,
                   "CUDA: %s: %s (%s)", call, cudaGetErrorString(code), cudaGetErrorName(code));
}

kv_status kv_cuda_launched(const char *kernel, kv_error *err)
{
    const cudaError_t code = cudaGetLastError();
    char call[128];
    snprintf(call, sizeof call, "launch of kernel %s", kernel);
    return failed(code, call, err);
}

static kv_status shared_limit(int64_t *bytes, kv_error *err)
{
    int device = 0, limit = 0;
    kv_status status = failed(cudaGetDevice(&device), "cudaGetDevice", err);
    if (status == KV_OK)
        status =
            failed(cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
                   "cudaDeviceGetAttribute(MaxSharedMemoryPerBlockOptin)", err);
    *bytes = limit;
    return status;
}

kv_status kv_cuda_shared(const void *kernel, const char *name, int64_t bytes, kv_error *err)
{
    int64_t limit = 0;
    const kv_status status = shared_limit(&limit, err);
    if (status != KV_OK) return status;
    if (bytes > limit)
        return KV_FAIL(err, KV_EUNSUPPORTED,
                       "CUDA: kernel %s needs %lld bytes of shared memory a block, this device has "
                       "%lld; a smaller head_dim needs less, and the CPU backend takes any",
                       name, (long long)bytes, (long long)limit);
    return failed(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
        "cudaFuncSetAttribute(MaxDynamicSharedMemorySize)", err);
}

static kv_status count(int32_t *devices, kv_error *err)
{
    int n = 0;
    const kv_status status = failed(cudaGetDeviceCount(&n), "cudaGetDeviceCount", err);
    if (status == KV_OK) *devices = n;
    return status;
}

static kv_status use(kv_cuda_about *about, int32_t device, kv_error *err)
{
    cudaDeviceProp properties;
    kv_status status = failed(cudaSetDevice(device), "cudaSetDevice", err);
    if (status != KV_OK) return status;
    status = failed(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties", err);
    if (status != KV_OK) return status;
    int clock_khz = 0;
    if (cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, device) != cudaSuccess)
        clock_khz = 0, cudaGetLastError();
    snprintf(about->name, sizeof about->name, "%s", properties.name);
    about->major = properties.major, about->minor = properties.minor;
    about->multiprocessors = properties.multiProcessorCount;
    about->shared_bytes = (int64_t)properties.sharedMemPerBlockOptin;
    about->total_bytes = (int64_t)properties.totalGlobalMem;
    about->clock_hz = 1e3 * clock_khz;
    return KV_OK;
}

static kv_status free_bytes(int64_t *bytes, kv_error *err)
{
    size_t left = 0, total = 0;
    const kv_status status = failed(cudaMemGetInfo(&left, &total), "cudaMemGetInfo", err);
    if (status == KV_OK) *bytes = (int64_t)left;
    return status;
}

static kv_status allocate(void **out, int64_t bytes, kv_error *err)
{
    void *memory = NULL;
    char call[64];
    snprintf(call, sizeof call, "cudaMalloc of %lld bytes", (long long)bytes);
    const kv_status status = failed(cudaMalloc(&memory, bytes > 0 ? (size_t)bytes : 1), call, err);
    if (status == KV_OK) *out = memory;
    return status;
}

static void release(void *memory)
{
    cudaFree(memory);
}

static kv_status upload(void *to, const void *from, int64_t bytes, kv_error *err)
{
    return failed(cudaMemcpy(to, from, (size_t)bytes, cudaMemcpyHostToDevice),
                  "cudaMemcpy to the device", err);
}

static kv_status download(void *to, const void *from, int64_t bytes, kv_error *err)
{
    return failed(cudaMemcpy(to, from, (size_t)bytes, cudaMemcpyDeviceToHost),
                  "cudaMemcpy from the device (or a kernel before it)", err);
}

static kv_status zero(void *memory, int64_t bytes, kv_error *err)
{
    return failed(cudaMemset(memory, 0, (size_t)bytes), "cudaMemset", err);
}

static kv_status finish_all(kv_error *err)
{
    return failed(cudaDeviceSynchronize(), "cudaDeviceSynchronize (or a kernel before it)", err);
}

const kv_cuda_module *kv_cuda_module_table(void)
{
    static const kv_cuda_module table = {KV_CUDA_VERSION,
                                         count,
                                         use,
                                         free_bytes,
                                         allocate,
                                         release,
                                         upload,
                                         download,
                                         zero,
                                         finish_all,
#define KV_ROW(name) kv_cuda_launch_##name,
                                         KV_CUDA_KERNEL_TABLE(KV_ROW)
#undef KV_ROW
    };
    return &table;
}
