/* Fuzz target: the header of a .npy file. What is accepted lies inside the file. */
#include <stdlib.h>

#include "sim/capture_state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kv_error err = {0};
    kv_raw_tensor tensor;
    if (kv_npy_parse(&tensor, data, size, (int64_t)size, "input", &err) != KV_OK) return 0;
    int64_t const bytes =
        tensor.extent[0] * tensor.extent[1] * tensor.extent[2] * kv_raw_size(tensor.type);
    if (bytes < 1 || tensor.offset + bytes != (int64_t)size) abort();
    return 0;
}
