/* A CUDA runtime for machines without a GPU: the calls nvcc's host code makes and those our backend
 * uses. Device memory is host memory that only kernels should touch; copies check their direction.
 * Launches run at once, but what a kernel breaks shows up, as on a GPU, at the next call that
 * synchronizes, and stays until cudaDeviceReset(). See emulator.h for faults and leaks. */
#include "tests/gpu/cudart.h"

#include <algorithm>
#include <unistd.h>
#include <vector>

namespace
{

using namespace gpu;

/* By the host's shadow variable; made at the first call, as functions() is, since static
 * constructors of nvcc's objects come here. */
std::map<const void *, std::string> &symbols()
{
    static std::map<const void *, std::string> s;
    return s;
}
cudaError_t last, sticky;
struct {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
} call;

const char *const call_names[] = {"malloc", "copy", "launch", "any"};
int calls[4], fail_at[4];
bool is_fail_read;

size_t memory_of_environment()
{
    const char *const text = getenv("KVANT_GPU_MEMORY");
    return text ? strtoull(text, nullptr, 10) : (size_t)16 << 30;
}
size_t memory_bytes = memory_of_environment();

void read_environment()
{
    if (is_fail_read) return;
    is_fail_read = true;
    const char *const text = getenv("KVANT_GPU_FAIL");
    const char *const colon = text ? strchr(text, ':') : nullptr;
    if (!colon) return;
    for (int i = 0; i < 4; i++)
        if (std::string(text, colon) == call_names[i]) fail_at[i] = atoi(colon + 1);
}

cudaError_t allocate(void **p, size_t size, owner who)
{
    if (!p || sticky) return result(cudaErrorInvalidValue);
    if (is_failing(GPU_MALLOC) || size > memory_bytes || live_ranges().bytes > memory_bytes - size)
        return result(cudaErrorMemoryAllocation);
    *p = nullptr;
    if (size == 0) return result(cudaSuccess);
    void *const memory = aligned_alloc(256, (size + 255) / 256 * 256);
    if (!memory) return result(cudaErrorMemoryAllocation);
    memset(memory, 0xff, size); /* NaN, where a program forgets to write */
    add_range(memory, size, who);
    *p = memory;
    return result(cudaSuccess);
}

cudaError_t release(void *p, owner who)
{
    if (!p) return result(cudaSuccess);
    const range *const r = range_of(p, 1);
    const size_t size = r ? r->end - r->begin : 0;
    if (!remove_range(p, who)) return result(cudaErrorInvalidValue);
    memset(p, 0xff, size);
    free(p);
    return result(cudaSuccess);
}

bool is_device(const void *p, size_t size)
{
    const range *const r = range_of(p, size);
    return r && r->who != OWNER_MAPPED && r->who != OWNER_PINNED;
}

bool is_host(const void *p)
{
    return !is_device(p, 1);
}

cudaError_t copy(void *to, const void *from, size_t size, cudaMemcpyKind kind)
{
    if (is_failing(GPU_COPY)) return result(cudaErrorUnknown);
    if (size == 0) return result(cudaSuccess);
    const bool to_device = is_device(to, size), from_device = is_device(from, size);
    const bool to_host = is_host(to), from_host = is_host(from);
    const bool fits[] = {to_host && from_host, to_device && from_host, to_host && from_device,
                         to_device && from_device,
                         (to_device || to_host) && (from_device || from_host)};
    if ((unsigned)kind > cudaMemcpyDefault) return result(cudaErrorInvalidMemcpyDirection);
    if (!to || !from || !fits[kind]) {
        fprintf(stderr, "GPU emulator: copy of %zu bytes, kind %d: a side is not %s\n", size,
                (int)kind, "where the kind says, or ends before");
        return result(cudaErrorInvalidValue);
    }
    if (!sticky) memmove(to, from, size);
    return result(cudaSuccess);
}

cudaError_t set(void *p, int value, size_t size)
{
    if (is_failing(GPU_COPY)) return result(cudaErrorUnknown);
    if (size && !is_device(p, size)) return result(cudaErrorInvalidValue);
    if (!sticky) memset(p, value, size);
    return result(cudaSuccess);
}

cudaError_t run(const void *host, dim3 grid, dim3 block, void **arguments, size_t shared)
{
    const auto f = functions().find(host);
    const kernel *const k = f == functions().end() ? nullptr : find_kernel(f->second.name.c_str());
    if (is_failing(GPU_LAUNCH)) return result(cudaErrorLaunchOutOfResources);
    if (!k) return result(cudaErrorInvalidDeviceFunction);
    const uint64_t threads = (uint64_t)block.x * block.y * block.z;
    if (!threads || threads > 1024 || block.z > 64 || !grid.x || !grid.y || !grid.z ||
        grid.x > 2147483647u || grid.y > 65535 || grid.z > 65535)
        return result(cudaErrorInvalidConfiguration);
    const int optin = shared_optin(), limit = f->second.shared_limit;
    if (shared + k->static_shared > (size_t)(limit > 49152 ? optin : 49152) ||
        (limit > 49152 && shared > (size_t)limit))
        return result(cudaErrorInvalidValue);
    if (sticky) return result(sticky);
    std::vector<std::vector<uint8_t>> copies; /* a launch owns its arguments */
    std::vector<uint8_t *> parameters;
    for (uint32_t i = 0; i < k->parameter_count; i++) {
        const uint8_t *const from = (const uint8_t *)arguments[i];
        copies.emplace_back(from, from + k->parameter_bytes[i]);
    }
    for (auto &c : copies) parameters.push_back(c.data());
    if (!launch(*k, {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, (uint32_t)shared,
                parameters.data()))
        sticky = cudaErrorIllegalAddress;
    return cudaSuccess; /* launches are asynchronous: the next call tells */
}

const variable *symbol(const void *host)
{
    const auto s = symbols().find(host);
    return s == symbols().end() ? nullptr : find_variable(s->second.c_str());
}

__attribute__((destructor)) void report_leaks()
{
    if (!getenv("KVANT_GPU_LEAKS")) return;
    const gpu_holdings h = gpu_live();
    if (!h.allocations && !h.streams && !h.events) return;
    fprintf(stderr, "GPU emulator: leaked %zu allocations (%zu bytes), %zu streams, %zu events\n",
            h.allocations, h.bytes, h.streams, h.events);
    fflush(nullptr);
    _exit(98);
}

} // namespace

std::map<const void *, device_function> &gpu::functions()
{
    static std::map<const void *, device_function> f;
    return f;
}

bool gpu::is_failing(gpu_call kind)
{
    read_environment();
    const bool one = ++calls[kind] == fail_at[kind], any = ++calls[GPU_ANY] == fail_at[GPU_ANY];
    return one || any;
}

cudaError_t gpu::result(cudaError_t e)
{
    if (sticky) e = sticky;
    if (e) last = e;
    return e;
}

bool gpu::is_broken()
{
    return sticky != cudaSuccess;
}

extern "C" {

void gpu_fail(gpu_call kind, int k)
{
    is_fail_read = true;
    memset(calls, 0, sizeof calls);
    memset(fail_at, 0, sizeof fail_at);
    fail_at[kind] = k;
}

void gpu_set_memory(size_t bytes)
{
    memory_bytes = bytes ? bytes : memory_of_environment();
}

int gpu_calls(gpu_call kind)
{
    return calls[kind];
}

gpu_holdings gpu_live(void)
{
    gpu_holdings h = live_ranges();
    count_handles(&h);
    return h;
}

/* ---- what nvcc's host code calls ---- */
void **__cudaRegisterFatBinary(void *)
{
    static void *handle;
    return &handle;
}
void __cudaRegisterFatBinaryEnd(void **) {}
void __cudaUnregisterFatBinary(void **) {}
char __cudaInitModule(void **)
{
    return 1;
}
void __cudaRegisterFunction(void **, const char *host, char *, const char *name, int, uint3 *,
                            uint3 *, dim3 *, dim3 *, int *)
{
    functions()[host].name = name;
}
void __cudaRegisterVar(void **, char *host, char *, const char *name, int, size_t, int, int)
{
    symbols()[host] = name;
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st *stream)
{
    call = {grid, block, shared, stream};
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
    *grid = call.grid;
    *block = call.block;
    *shared = call.shared;
    memcpy(stream, &call.stream, sizeof call.stream);
    return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t *k, const void *host)
{
    *k = (cudaKernel_t)(void *)(uintptr_t)host;
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t k, dim3 grid, dim3 block, void **arguments,
                               size_t shared, cudaStream_t stream)
{
    if (check_stream(stream)) return last;
    return run((const void *)k, grid, block, arguments, shared);
}
cudaError_t cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **arguments,
                             size_t shared, cudaStream_t stream)
{
    if (check_stream(stream)) return last;
    return run(host, grid, block, arguments, shared);
}

/* ---- memory ---- */
cudaError_t cudaMalloc(void **p, size_t size)
{
    return allocate(p, size, OWNER_PROGRAM);
}
cudaError_t cudaFree(void *p)
{
    return release(p, OWNER_PROGRAM);
}
cudaError_t cudaMallocAsync(void **p, size_t size, cudaStream_t)
{
    return cudaMalloc(p, size);
}
cudaError_t cudaFreeAsync(void *p, cudaStream_t)
{
    return cudaFree(p);
}
cudaError_t cudaMallocHost(void **p, size_t size)
{
    return allocate(p, size, OWNER_PINNED);
}
cudaError_t cudaHostAlloc(void **p, size_t size, unsigned)
{
    return cudaMallocHost(p, size);
}
cudaError_t cudaFreeHost(void *p)
{
    return release(p, OWNER_PINNED);
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t size, cudaMemcpyKind kind)
{
    return copy(to, from, size, kind);
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, cudaMemcpyKind kind,
                            cudaStream_t s)
{
    return check_stream(s) ? last : copy(to, from, size, kind);
}
cudaError_t cudaMemset(void *p, int value, size_t size)
{
    return set(p, value, size);
}
cudaError_t cudaMemsetAsync(void *p, int value, size_t size, cudaStream_t s)
{
    return check_stream(s) ? last : set(p, value, size);
}
cudaError_t cudaMemcpyToSymbol(const void *host, const void *from, size_t size, size_t offset,
                               cudaMemcpyKind)
{
    const variable *const v = symbol(host);
    if (is_failing(GPU_COPY)) return result(cudaErrorUnknown);
    if (!v || offset + size > v->bytes) return result(cudaErrorInvalidValue);
    memcpy(v->memory + offset, from, size);
    return result(cudaSuccess);
}
cudaError_t cudaMemcpyFromSymbol(void *to, const void *host, size_t size, size_t offset,
                                 cudaMemcpyKind)
{
    const variable *const v = symbol(host);
    if (is_failing(GPU_COPY)) return result(cudaErrorUnknown);
    if (!v || offset + size > v->bytes) return result(cudaErrorInvalidValue);
    memcpy(to, v->memory + offset, size);
    return result(cudaSuccess);
}
cudaError_t cudaGetSymbolAddress(void **p, const void *host)
{
    const variable *const v = symbol(host);
    if (v) *p = v->memory;
    return result(v ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    *total = memory_bytes;
    *free_bytes = *total - std::min(*total, live_ranges().bytes);
    return result(cudaSuccess);
}

/* ---- errors ---- */
cudaError_t cudaGetLastError(void)
{
    const cudaError_t e = last;
    last = e == sticky ? sticky : cudaSuccess;
    return e;
}
cudaError_t cudaPeekAtLastError(void)
{
    return last;
}
cudaError_t cudaDeviceSynchronize(void)
{
    return result(cudaSuccess);
}
cudaError_t cudaDeviceReset(void)
{
    last = sticky = cudaSuccess;
    return cudaSuccess;
}
}
