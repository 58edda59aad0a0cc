/* The emulator's CUDA runtime: errors that a GPU would report, injected faults, leaks, constants,
 * streams; and what nvcc makes of calls, switches, local arrays, by-value structs, Philox. */
#include <cstring>

#include <cuda_runtime.h>
#include <curand_kernel.h>

#include "kernels/philox.h"
#include "tests/check.h"
#include "tests/gpu/emulator.h"

namespace
{

__constant__ float weights[4];
__device__ unsigned long long total;

struct arguments {
    unsigned *out;
    int n, table[8];
    double factors[3];
};

__device__ __noinline__ double scaled(arguments a, int i)
{
    double r = a.factors[i % 3];
    for (int k = 0; k < i % 5; k++) r = fma(r, 1.25, (double)weights[k & 3]);
    return r;
}

KV_HD unsigned chosen(int op, unsigned x, unsigned y)
{
    switch (op) {
    case 0: return x + y;
    case 1: return x * y;
    case 2: return x / (y | 1);
    case 3: return x % (y | 1);
    case 4: return x << (y & 31) | x >> (-y & 31);
    case 5: return (unsigned)((int)x / ((int)(y & 0xffff) + 1));
    case 6: return (unsigned)(((unsigned long long)x * y) >> 32);
    case 7: return x > y ? x - y : y - x;
    default: return 0;
    }
}

__global__ void words(arguments a)
{
    const int i = threadIdx.x;
    curandStatePhilox4_32_10_t state;
    curand_init(a.n, blockIdx.x, i, &state);
    const unsigned word = curand(&state);
    unsigned history[8];
    for (int k = 0; k < 8; k++) history[k] = word * (k + 1);
    history[a.table[i & 7] & 7] ^= 0x55u;
    atomicAdd(&total, (unsigned long long)(word & 0xff));
    const double d = scaled(a, i);
    a.out[4 * i] = word;
    a.out[4 * i + 1] = chosen(i & 15, word, history[i & 7]);
    a.out[4 * i + 2] = history[(i * 3) & 7];
    a.out[4 * i + 3] = (unsigned)__double2int_rn(d * 1e4);
}

/* Where each thread of a grid of three dimensions is: out [blocks][threads]. */
KV_HD unsigned place(dim3 t, dim3 b, unsigned lane, unsigned warp)
{
    return t.x | t.y << 3 | t.z << 6 | b.x << 9 | b.y << 12 | b.z << 15 | lane << 18 | warp << 23;
}

__global__ void places(unsigned *out)
{
    unsigned lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    out[block * blockDim.x * blockDim.y * blockDim.z + thread] =
        place(dim3(threadIdx.x, threadIdx.y, threadIdx.z), dim3(blockIdx.x, blockIdx.y, blockIdx.z),
              lane, thread / warpSize);
}

void check_places()
{
    const dim3 grid(3, 2, 4), block(5, 3, 4);
    enum { BLOCKS = 24, SIZE = 60 };
    unsigned *p, out[BLOCKS * SIZE];
    for (uint64_t seed = 0; seed < 3; seed++) {
        gpu_set_seed(seed);
        cudaMalloc((void **)&p, sizeof out);
        places<<<grid, block>>>(p);
        CHECK(cudaMemcpy(out, p, sizeof out, cudaMemcpyDeviceToHost) == cudaSuccess, "%s",
              gpu_message());
        cudaFree(p);
        for (unsigned b = 0; b < BLOCKS; b++)
            for (unsigned t = 0; t < SIZE; t++)
                CHECK(out[b * SIZE + t] == place(dim3(t % 5, t / 5 % 3, t / 15),
                                                 dim3(b % 3, b / 3 % 2, b / 6), t % 32, t / 32),
                      "block %u thread %u", b, t);
    }
    gpu_set_seed(0);
}

__global__ void big(float *p)
{
    extern __shared__ float shared[];
    shared[threadIdx.x] = p[threadIdx.x];
}

/* The same on the CPU. */
void check_words()
{
    enum { N = 64 };
    arguments a = {nullptr, 77, {3, 1, 4, 1, 5, 9, 2, 6}, {0.5, -1.75, 2.125}};
    const float w[4] = {1.0f, -2.0f, 0.25f, 3.0f};
    unsigned out[4 * N];
    unsigned long long sum = 0, zero = 0, found = 1;
    CHECK(cudaMemcpyToSymbol(weights, w, sizeof w) == cudaSuccess, "weights");
    CHECK(cudaMemcpyToSymbol(total, &zero, sizeof zero) == cudaSuccess, "total");
    cudaMalloc((void **)&a.out, sizeof out);
    words<<<1, N>>>(a);
    CHECK(cudaMemcpy(out, a.out, sizeof out, cudaMemcpyDeviceToHost) == cudaSuccess, "%s",
          gpu_message());
    cudaFree(a.out);
    for (int i = 0; i < N; i++) {
        uint32_t four[4], history[8];
        kv_philox(four, 77, (uint64_t)i / 4, 0);
        const uint32_t word = four[i % 4];
        for (uint32_t k = 0; k < 8; k++) history[k] = word * (k + 1);
        history[a.table[i & 7] & 7] ^= 0x55u;
        double d = a.factors[i % 3];
        for (int k = 0; k < i % 5; k++) d = fma(d, 1.25, (double)w[k & 3]);
        sum += word & 0xff;
        CHECK(out[4 * i] == word, "lane %d: %08x %08x", i, out[4 * i], word);
        CHECK(out[4 * i + 1] == chosen(i & 15, word, history[i & 7]), "lane %d", i);
        CHECK(out[4 * i + 2] == history[(i * 3) & 7], "lane %d", i);
        CHECK(out[4 * i + 3] == (unsigned)(int)rint(d * 1e4), "lane %d", i);
    }
    CHECK(cudaMemcpyFromSymbol(&found, total, sizeof found) == cudaSuccess, "total");
    CHECK(found == sum, "%llu %llu", found, sum);
}

#define EXPECT(call, error)                                                                        \
    do {                                                                                           \
        const cudaError_t e_ = (call);                                                             \
        CHECK(e_ == (error), "%s", cudaGetErrorName(e_));                                          \
        cudaGetLastError();                                                                        \
    } while (0)

void check_errors()
{
    float *p, host[64] = {0};
    int n = -1;
    cudaDeviceProp properties;
    cudaStream_t stream;
    cudaEvent_t event;
    EXPECT(cudaGetDeviceCount(&n), cudaSuccess);
    CHECK(n == 1, "%d", n);
    EXPECT(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
    CHECK(properties.major == 8 || properties.major == 9, "%d", properties.major);
    EXPECT(cudaSetDevice(1), cudaErrorInvalidDevice);
    EXPECT(cudaMalloc((void **)&p, sizeof host), cudaSuccess);
    EXPECT(cudaMemcpy(p, host, sizeof host, cudaMemcpyHostToDevice), cudaSuccess);
    EXPECT(cudaMemcpy(p, host, sizeof host + 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    EXPECT(cudaMemcpy(p, host, sizeof host, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    EXPECT(cudaMemcpy(host, p, sizeof host, cudaMemcpyDefault), cudaSuccess);
    EXPECT(cudaMemset(p + 1, 0, sizeof host), cudaErrorInvalidValue);
    EXPECT(cudaFree(p + 1), cudaErrorInvalidValue);
    big<<<1, 1025>>>(p);
    EXPECT(cudaGetLastError(), cudaErrorInvalidConfiguration);
    big<<<0, 32>>>(p);
    EXPECT(cudaGetLastError(), cudaErrorInvalidConfiguration);
    big<<<1, 32, 49153>>>(p);
    EXPECT(cudaGetLastError(), cudaErrorInvalidValue);
    EXPECT(cudaFuncSetAttribute(big, cudaFuncAttributeMaxDynamicSharedMemorySize, 300000),
           cudaErrorInvalidValue);
    EXPECT(cudaFuncSetAttribute(big, cudaFuncAttributeMaxDynamicSharedMemorySize, 100000),
           cudaSuccess);
    big<<<1, 32, 100000>>>(p);
    EXPECT(cudaGetLastError(), cudaSuccess);
    big<<<1, 32, 100001>>>(p);
    EXPECT(cudaGetLastError(), cudaErrorInvalidValue);
    EXPECT(cudaStreamCreate(&stream), cudaSuccess);
    EXPECT(cudaEventCreate(&event), cudaSuccess);
    EXPECT(cudaEventRecord(event, stream), cudaSuccess);
    EXPECT(cudaMemcpyAsync(p, host, 4, cudaMemcpyHostToDevice, stream), cudaSuccess);
    CHECK(gpu_live().streams == 1 && gpu_live().events == 1, "held");
    CHECK(gpu_live().allocations == 1 && gpu_live().bytes == sizeof host, "held");
    EXPECT(cudaEventDestroy(event), cudaSuccess);
    EXPECT(cudaEventSynchronize(event), cudaErrorInvalidResourceHandle);
    EXPECT(cudaStreamDestroy(stream), cudaSuccess);
    EXPECT(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
    /* Freed memory is out of bounds; the error stays until the reset. */
    EXPECT(cudaFree(p), cudaSuccess);
    EXPECT(cudaFree(p), cudaErrorInvalidValue);
    big<<<1, 32, 128>>>(p);
    EXPECT(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    EXPECT(cudaMalloc((void **)&p, 4), cudaErrorIllegalAddress);
    EXPECT(cudaDeviceReset(), cudaSuccess);
    CHECK(gpu_live().streams + gpu_live().events == 0, "held");
}

/* A small backend: allocates, copies, launches; gives all back whatever fails. */
cudaError_t backend(void)
{
    float *a = nullptr, *b = nullptr, host[32] = {0};
    cudaError_t e = cudaMalloc((void **)&a, sizeof host);
    if (!e) e = cudaMalloc((void **)&b, sizeof host);
    if (!e) e = cudaMemcpy(a, host, sizeof host, cudaMemcpyHostToDevice);
    if (!e) big<<<1, 32, 128>>>(a), e = cudaGetLastError();
    if (!e) e = cudaMemcpy(host, b, sizeof host, cudaMemcpyDeviceToHost);
    cudaFree(b);
    cudaFree(a);
    cudaGetLastError();
    return e;
}

void check_faults()
{
    const struct {
        gpu_call kind;
        int calls;
        cudaError_t error;
    } kinds[] = {{GPU_MALLOC, 2, cudaErrorMemoryAllocation},
                 {GPU_COPY, 2, cudaErrorUnknown},
                 {GPU_LAUNCH, 1, cudaErrorLaunchOutOfResources},
                 {GPU_ANY, 5, cudaSuccess}};
    for (const auto &k : kinds) {
        gpu_fail(k.kind, 0);
        EXPECT(backend(), cudaSuccess);
        CHECK(gpu_calls(k.kind) == k.calls, "%d", gpu_calls(k.kind));
        for (int i = 1; i <= k.calls; i++) {
            gpu_fail(k.kind, i);
            const cudaError_t e = backend();
            CHECK(k.kind == GPU_ANY ? e != cudaSuccess : e == k.error, "%d: %s", i,
                  cudaGetErrorName(e));
            CHECK(gpu_live().allocations == 0, "%d", i);
        }
        gpu_fail(k.kind, k.calls + 1);
        EXPECT(backend(), cudaSuccess);
    }
    gpu_fail(GPU_ANY, 0);
}

} // namespace

int main(int argc, char **argv)
{
    if (argc > 1) { /* for the tests of the environment's settings */
        float *p;
        int n = -1;
        if (strcmp(argv[1], "count") == 0) return cudaGetDeviceCount(&n) == 35 && n == -1 ? 0 : 1;
        const cudaError_t first = cudaMalloc((void **)&p, 4), second = cudaMalloc((void **)&p, 4);
        printf("%s %s\n", cudaGetErrorName(first), cudaGetErrorString(second));
        return 0;
    }
    check_places();
    check_words();
    check_errors();
    check_faults();
    return check_done();
}
