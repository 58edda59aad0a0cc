/* Runs CUDA programs without a GPU: what a test may ask of the emulator.
 *
 * A program under test is an unmodified nvcc object (real <<<>>>), linked with
 *  - cudart.cpp, a CUDA runtime that keeps "device" memory in host memory, and
 *  - nvcc's own PTX of the same source, translated to C++ by translate.py.
 * Lanes are fibers that switch at barriers and warp collectives only (scheduler.cpp); blocks run
 * one after the other. Both orders are drawn from a seed. Every access is checked for bounds,
 * alignment and races (memory.cpp). A broken rule ends the launch: the message goes to stderr and
 * gpu_message(), and the runtime returns cudaErrorIllegalAddress until cudaDeviceReset().
 *
 * Not emulated: ptxas, register limits and launch bounds, weak memory beyond the race rule,
 * textures, streams that overlap, dynamic parallelism, time. Launches from several host threads
 * wait for each other; the other calls are for one host thread at a time.
 *
 *     gpu_set_seed(3);
 *     gpu_fail(GPU_MALLOC, 2);                   // the second cudaMalloc from here on fails
 *     CHECK(run() == KV_ERROR_MEMORY, ...);
 *     CHECK(gpu_live().allocations == 0, ...);
 *
 * The same by environment, for programs that know nothing of this header: KVANT_GPU_SEED=3,
 * KVANT_GPU_FAIL=malloc:2 (or copy, launch, any), KVANT_GPU_RACES=off|shared|all,
 * KVANT_GPU_ARCH=80|90, KVANT_GPU_DEVICES=4, KVANT_GPU_MEMORY=bytes, KVANT_GPU_LEAKS=1 (leaks end
 * the program with 98). */
#ifndef KVANT_TESTS_GPU_EMULATOR_H
#define KVANT_TESTS_GPU_EMULATOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Order of blocks and lanes; 0 is the plain order (blocks, warps, lanes ascending). */
void gpu_set_seed(uint64_t seed);

/* Races looked for: none, in shared memory (the default), also in global memory. */
typedef enum { GPU_RACES_OFF, GPU_RACES_SHARED, GPU_RACES_ALL } gpu_races;
void gpu_set_races(gpu_races races);

/* The k-th (from 1) call of a kind from now on fails once; k = 0 switches injection off. Kinds:
 * allocations (device, pinned, streams, events), copies and sets, launches, all of these. */
typedef enum { GPU_MALLOC, GPU_COPY, GPU_LAUNCH, GPU_ANY } gpu_call;
void gpu_fail(gpu_call call, int k);

/* Calls of a kind made since the last gpu_fail(): how many faults there are to inject. */
int gpu_calls(gpu_call call);

/* Atomic operations of all threads so far: what a kernel that avoids them did not spare. */
uint64_t gpu_atomics(void);

/* What the program has not given back. */
typedef struct {
    size_t allocations, bytes, streams, events;
} gpu_holdings;
gpu_holdings gpu_live(void);

/* Bytes of device memory (0: those of the environment, or 16 GiB): what cudaMemGetInfo tells, and
 * allocations beyond fail. */
void gpu_set_memory(size_t bytes);

/* Why the last launch was ended, "" if it was not; valid until the next launch. */
const char *gpu_message(void);

/* Launches a translated kernel by its PTX name, without nvcc's host code; arguments[i] points to
 * the i-th parameter. 0, or 1 with gpu_message(). */
int gpu_run(const char *kernel, unsigned blocks, unsigned threads, unsigned shared_bytes,
            void **arguments);

/* Makes host memory of `size` bytes accessible to kernels, and takes it back. */
void gpu_map(void *memory, size_t size);
void gpu_unmap(void *memory);

#ifdef __cplusplus
}
#endif
#endif
