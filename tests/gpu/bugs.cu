/* Seeded bugs that the emulator must notice, and the same kernels without them that it must not
 * complain about. One kernel normalizes rows: a block per row finds the largest magnitude through
 * shared memory, divides by it and adds the row up. */
#include <cstring>

#include <cuda_runtime.h>

#include "tests/check.h"
#include "tests/gpu/emulator.h"

namespace
{

enum { THREADS = 64, ROWS = 5 };
enum bug {
    NONE,
    NO_BARRIER,    /* warps read what others have not written */
    NO_SECOND,     /* a warp writes where another still reads */
    HALF_BARRIER,  /* not all threads come */
    TWO_BARRIERS,  /* threads wait at different ones */
    PAST_GLOBAL,   /* one float behind the output */
    BEFORE_GLOBAL, /* one in front of it */
    PAST_SHARED,   /* behind the dynamic shared memory */
    MISALIGNED,    /* a float4 at a multiple of 4 */
    OTHER_BLOCK,   /* two blocks write one float */
    NO_SYNCWARP,   /* lanes of a warp read what others write */
    HALF_MASK,     /* a lane outside its shuffle's mask */
    ROUNDING,      /* division rounded to zero */
    REDUCTION,     /* the sum leaves out a distance */
};

__device__ float largest_of_warp(float v)
{
    for (int by = 16; by; by >>= 1) v = fmaxf(v, __shfl_xor_sync(~0u, v, by));
    return v;
}

/* y [ROWS][n] = x [ROWS][n] / largest |x| of the row, sum [ROWS] of y; shared [n + 3]. */
template <bug B> __global__ void normalize(float *y, float *sum, const float *x, int n)
{
    extern __shared__ float4 aligned[];
    float *const row = (float *)aligned, *const part = row + n;
    const int t = threadIdx.x, lane = t & 31, warp = t >> 5;
    float largest = 0.0f;
    for (int i = t; i < n; i += THREADS) {
        row[i] = x[blockIdx.x * n + i];
        largest = fmaxf(largest, fabsf(row[i]));
    }
    largest = largest_of_warp(largest);
    if (lane == 0) part[warp] = largest;
    if (B == HALF_BARRIER && t >= 32) return;
    if (B == TWO_BARRIERS && t >= 32)
        __syncthreads();
    else if (B != NO_BARRIER)
        __syncthreads();
    largest = fmaxf(part[0], part[1]);
    float total = 0.0f;
    for (int i = t; i < n; i += THREADS) {
        const float v = B == ROUNDING ? __fdiv_rz(row[i], largest) : row[i] / largest;
        y[blockIdx.x * n + i] = v;
        total += v;
    }
    for (int by = 16; by; by >>= 1)
        if (B != REDUCTION || by != 4)
            total += __shfl_xor_sync(B == HALF_MASK && by == 2 ? 0xffffu : ~0u, total, by);
    if (B != NO_SECOND) __syncthreads();
    if (lane == 0) part[warp] = total;
    __syncthreads();
    if (t == 0) sum[B == OTHER_BLOCK ? 0 : blockIdx.x] = part[0] + part[1];
    if (B == NO_SYNCWARP) {
        row[t] = total;
        y[blockIdx.x * n + t] = row[t ^ 1];
    }
    if (t == 5) {
        if (B == PAST_GLOBAL) y[gridDim.x * n] = 0.0f;
        if (B == BEFORE_GLOBAL) y[-1] = 0.0f;
        if (B == PAST_SHARED) part[3] = 0.0f;
        if (B == MISALIGNED) *(float4 *)(row + 1) = make_float4(0, 0, 0, 0);
    }
}

/* Runs a kernel; y and sum as bits, "" or the message of a launch that was ended. */
template <bug B> const char *run(uint32_t *result, uint64_t seed)
{
    enum { N = 96, SIZE = ROWS * N };
    float x[SIZE], *device_x, *y, *sum;
    for (int i = 0; i < SIZE; i++) x[i] = (float)((i * 7919) % 2003) / 1001.0f - 1.0f;
    gpu_set_seed(seed);
    gpu_set_races(GPU_RACES_ALL);
    cudaMalloc((void **)&device_x, sizeof x);
    cudaMalloc((void **)&y, sizeof x);
    cudaMalloc((void **)&sum, ROWS * sizeof(float));
    cudaMemcpy(device_x, x, sizeof x, cudaMemcpyHostToDevice);
    normalize<B><<<ROWS, THREADS, (N + 3) * sizeof(float)>>>(y, sum, device_x, N);
    const cudaError_t launched = cudaGetLastError();
    CHECK(launched == cudaSuccess, "launches are asynchronous: %s", cudaGetErrorName(launched));
    const cudaError_t e = cudaDeviceSynchronize();
    const char *const message = gpu_message();
    CHECK((e == cudaErrorIllegalAddress) == (message[0] != 0), "%s: %s", cudaGetErrorName(e),
          message);
    if (e == cudaSuccess) {
        cudaMemcpy(result, y, sizeof x, cudaMemcpyDeviceToHost);
        cudaMemcpy(result + SIZE, sum, ROWS * sizeof(float), cudaMemcpyDeviceToHost);
    }
    cudaDeviceReset();
    cudaFree(device_x);
    cudaFree(y);
    cudaFree(sum);
    CHECK(gpu_live().allocations == 0, "%zu", gpu_live().allocations);
    return message;
}

struct seeded {
    const char *name;
    const char *(*run)(uint32_t *, uint64_t);
    const char *expected; /* in the message; NULL: the results differ */
};
const seeded table[] = {
    {"NO_BARRIER", run<NO_BARRIER>, "race in shared memory"},
    {"NO_SECOND", run<NO_SECOND>, "race in shared memory"},
    {"HALF_BARRIER", run<HALF_BARRIER>, "at a barrier"},
    {"TWO_BARRIERS", run<TWO_BARRIERS>, "wait at different barriers"},
    {"PAST_GLOBAL", run<PAST_GLOBAL>,
     "global write of 4 bytes at byte 1920 of an allocation of 1920 bytes"},
    {"BEFORE_GLOBAL", run<BEFORE_GLOBAL>, "global write of 4 bytes at "},
    {"PAST_SHARED", run<PAST_SHARED>, "shared write of 4 bytes at byte 396 of 396"},
    {"MISALIGNED", run<MISALIGNED>, "misaligned write of 16 bytes"},
    {"OTHER_BLOCK", run<OTHER_BLOCK>, "race in global memory"},
    {"NO_SYNCWARP", run<NO_SYNCWARP>, "of the same warp"},
    {"HALF_MASK", run<HALF_MASK>, "is not in its own mask 0x0000ffff"},
    {"ROUNDING", run<ROUNDING>, nullptr},
    {"REDUCTION", run<REDUCTION>, nullptr},
};

} // namespace

int main()
{
    enum { RESULTS = ROWS * 97 };
    static uint32_t good[RESULTS], other[RESULTS];
    CHECK(run<NONE>(good, 0)[0] == 0, "%s", gpu_message());
    for (uint64_t seed = 1; seed < 6; seed++) {
        CHECK(run<NONE>(other, seed)[0] == 0, "%s", gpu_message());
        CHECK(memcmp(good, other, sizeof good) == 0, "seed %d", (int)seed);
    }
    for (const seeded &s : table)
        for (uint64_t seed = 0; seed < 3; seed++) {
            const char *const message = s.run(other, seed);
            if (s.expected)
                CHECK(strstr(message, s.expected), "%s: '%s'", s.name, message);
            else
                CHECK(message[0] == 0 && memcmp(good, other, sizeof good) != 0, "%s: %s", s.name,
                      message);
        }
    return check_done();
}
