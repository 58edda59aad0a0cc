/* What the two files of the emulated CUDA runtime share: cudart.cpp (launches, memory, errors) and
 * cudart_device.cpp (devices, streams, events, names of errors). */
#ifndef KVANT_TESTS_GPU_CUDART_H
#define KVANT_TESTS_GPU_CUDART_H

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "tests/gpu/internal.h"

namespace gpu
{

struct device_function {
    std::string name;
    int shared_limit = 49152; /* dynamic bytes, raised by cudaFuncSetAttribute */
};
std::map<const void *, device_function> &functions(); /* by the host's stub */

/* What every call returns through: the broken kernel's error first. */
cudaError_t result(cudaError_t e);
bool is_broken(); /* a kernel broke a rule, and no cudaDeviceReset() since */
bool is_failing(gpu_call kind);

int device_count();
int shared_optin();
cudaError_t check_stream(cudaStream_t s);
void count_handles(gpu_holdings *h);

} // namespace gpu

#endif
