/* What the parts of the emulator share: the scheduler, the memory, the runtime. */
#ifndef KVANT_TESTS_GPU_INTERNAL_H
#define KVANT_TESTS_GPU_INTERNAL_H

#include "tests/gpu/emulator.h"
#include "tests/gpu/machine.h"

namespace gpu
{

/* memory.cpp: ranges that kernels may touch. Of those that a program allocates, live() tells. */
enum owner { OWNER_PROGRAM, OWNER_PINNED, OWNER_MODULE, OWNER_CONSTANT, OWNER_MAPPED };
struct range {
    uint64_t begin, end;
    owner who;
};
void add_range(void *memory, size_t size, owner who);
bool remove_range(void *memory, owner who);
const range *range_of(const void *memory, size_t size); /* NULL: not all inside one range */
gpu_holdings live_ranges();
void memory_begin_launch();
void memory_begin_block(uint32_t shared_bytes);

/* scheduler.cpp: runs all blocks; false with gpu_message() if the launch was ended. */
bool launch(const kernel &k, size3 blocks, size3 threads, uint32_t dynamic_bytes,
            uint8_t *const *parameters);
const kernel *find_kernel(const char *name);
const variable *find_variable(const char *name);
int module_arch(); /* of the first module, 0 without any */

} // namespace gpu

#endif
