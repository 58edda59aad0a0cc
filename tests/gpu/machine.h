/* The machine as translated kernels see it: the running lane, its memory, its collectives.
 *
 * Addresses are 64 bits. Global (and constant) addresses are host pointers; generic addresses of
 * shared and local memory carry a tag above all host pointers, plain ones are offsets. Functions
 * take the PTX line, for messages. */
#ifndef KVANT_TESTS_GPU_MACHINE_H
#define KVANT_TESTS_GPU_MACHINE_H

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace gpu
{

struct size3 {
    unsigned x, y, z;
};

enum access { READ, WRITE, ATOMIC };
enum space { GENERIC, GLOBAL, SHARED, LOCAL, CONSTANT };
enum collective { SYNCWARP, SHUFFLE, BALLOT };

const uint64_t shared_tag = 0xc000000000000000u, local_tag = 0xd000000000000000u;
const uint32_t local_size = 16384;  /* of one lane */
const uint32_t shared_start = 1024; /* GPUs keep the first bytes: no address of a variable is 0 */

/* What a lane can see of its place; the scheduler's fiber extends it. */
struct lane {
    size3 thread, block, threads, blocks;
    uint32_t number; /* in its block */
    uint32_t block_number;
    uint32_t local_top;
    uint8_t *local;  /* [local_size] */
    uint8_t *shared; /* [shared_bytes] */
    uint32_t shared_bytes, dynamic_offset;
    uint32_t block_epoch, warp_epoch; /* barriers passed */
    bool has_fenced;
};
extern lane *self;

/* Ends the launch with a message about the running lane. */
[[noreturn]] void fault(int line, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Checks an access and returns the host address. */
uint8_t *touch(space s, uint64_t address, uint32_t size, uint32_t alignment, access a, int line);

template <class T> T read(const uint8_t *p)
{
    T value;
    memcpy(&value, p, sizeof value);
    return value;
}

template <class T> void write(uint8_t *p, T value)
{
    memcpy(p, &value, sizeof value);
}

/* Lanes switch only at barriers, so a plain read, change and write is atomic. */
template <class T, class F> T atomic(space s, uint64_t address, int line, F change)
{
    uint8_t *const p = touch(s, address, sizeof(T), sizeof(T), ATOMIC, line);
    const T old = read<T>(p);
    write<T>(p, (T)change(old));
    return old;
}

/* bar.sync 0: returns how many lanes gave a true predicate. */
uint32_t barrier(bool predicate, int line);

/* All lanes of `mask` meet; SHUFFLE answers the value of lane `source`, BALLOT the mask of values
 * that are not 0. */
uint32_t meet(collective kind, uint32_t mask, uint32_t value, uint32_t source, int line);

/* shfl.sync, PTX ISA 9.7.9.6: c holds the clamp in bits 0-4 and the segment mask in bits 8-12. */
enum shuffle { UP, DOWN, BUTTERFLY, INDEX };
inline uint32_t shuffled(shuffle mode, bool *inside, uint32_t a, uint32_t b, uint32_t c,
                         uint32_t mask, int line)
{
    const int lane_id = (int)(self->number & 31), by = (int)(b & 31), clamp = (int)(c & 31);
    const int segment = (int)(c >> 8 & 31);
    const int last = (lane_id & segment) | (clamp & ~segment), first = lane_id & segment;
    const int sources[] = {lane_id - by, lane_id + by, lane_id ^ by, first | (by & ~segment)};
    const int j = sources[mode];
    *inside = mode == UP ? j >= last : j <= last;
    return meet(SHUFFLE, mask, a, (uint32_t)(*inside ? j : lane_id), line);
}

/* Frames of local memory. */
struct frame {
    const uint32_t before;
    frame(uint32_t size, int line) : before(self->local_top)
    {
        const uint32_t base = (before + 15) / 16 * 16;
        if (base + size > local_size) fault(line, "local memory of %u bytes overflows", local_size);
        memset(self->local + base, 0xa5, size);
        self->local_top = base + size;
    }
    ~frame() { self->local_top = before; }
    uint32_t base() const { return (before + 15) / 16 * 16; }
};

/* What a translated file registers, from its static constructors. */
struct kernel {
    const char *name;
    void (*run)(uint8_t *const *parameters);
    uint32_t parameter_count;
    const uint32_t *parameter_bytes;
    uint32_t static_shared;
};
struct variable {
    const char *name;
    uint8_t *memory;
    size_t bytes;
    bool is_constant;
};
struct module {
    module(int arch, const kernel *kernels, size_t n_kernels, const variable *variables,
           size_t n_variables);
};

} // namespace gpu

#endif
