/* A module of another version, which must not be used. */
#include "kernels/cuda/device.h"

const kv_cuda_module *kv_cuda_module_table(void)
{
    static const kv_cuda_module table = {.version = KV_CUDA_VERSION + 1};
    return &table;
}
