/* Which memory there is, and who touched it last.
 *
 * Bounds are those of the program's own allocations, to the byte, and those of all of a block's
 * shared memory (one shared array may run into the next). Two accesses race when they touch a byte
 * from different threads, one of them writes, not both are atomic, and nothing orders them: a
 * barrier of the block, bar.warp.sync within a warp, or the end of the launch. That is a property
 * of the kernel and not of the order it happened to run in, so one run finds it. Between blocks
 * nothing orders but a fence: what a thread that has fenced reads is taken as ordered, so that "the
 * last block sums up" is no race. The state per byte costs time: races in global memory are looked
 * for only where a test asks. */
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

#include "tests/gpu/internal.h"

namespace gpu
{

namespace
{

/* The last write and the last read of a byte. `spread` says how far apart the unordered readers
 * are. */
enum spread { ONE, LANES, WARPS, BLOCKS };
struct visit {
    uint32_t launch, block, thread, block_epoch, warp_epoch;
    bool is_atomic;
    uint8_t spread_;
};
struct cell {
    visit write, read;
};

/* By begin; made at the first call and never destroyed, since static constructors and destructors
 * of other files come here. */
std::map<uint64_t, range> &all_ranges()
{
    static std::map<uint64_t, range> *const r = new std::map<uint64_t, range>;
    return *r;
}

std::map<uint64_t, std::vector<cell>> cells;
std::recursive_mutex lock_ranges;
range recent[4];
unsigned next_recent;
std::vector<cell> shared_cells;
uint64_t n_atomics;
uint32_t launch_number;
gpu_races races_wanted;
bool is_races_set;

gpu_races races()
{
    if (!is_races_set) {
        const char *const text = getenv("KVANT_GPU_RACES");
        gpu_set_races(!text                         ? GPU_RACES_SHARED
                      : strcmp(text, "off") == 0    ? GPU_RACES_OFF
                      : strcmp(text, "shared") == 0 ? GPU_RACES_SHARED
                                                    : GPU_RACES_ALL);
    }
    return races_wanted;
}

void forget_recent()
{
    for (range &r : recent) r = {1, 0, OWNER_PROGRAM};
}

const range *find(uint64_t address, uint64_t size)
{
    for (const range &r : recent)
        if (address >= r.begin && address + size <= r.end) return &r;
    const auto after = all_ranges().upper_bound(address);
    if (after == all_ranges().begin()) return nullptr;
    const range &r = std::prev(after)->second;
    if (address + size > r.end) return nullptr;
    recent[next_recent++ % 4] = r;
    return &r;
}

/* How far the earlier visit is from the running lane; ONE where it is ordered before it. */
spread distance(const visit &before)
{
    if (before.launch != launch_number) return ONE;
    if (before.block != self->block_number) return self->has_fenced ? ONE : BLOCKS;
    if (before.thread == self->number || before.block_epoch != self->block_epoch) return ONE;
    if (before.thread / 32 != self->number / 32) return WARPS;
    return before.warp_epoch != self->warp_epoch ? ONE : LANES;
}

const char *const far[] = {"", "the same warp", "another warp", "another block"};

void race(int line, const char *where, const char *now, const char *before, spread d,
          const visit &v)
{
    fault(line, "race in %s memory: this thread %s what thread %u of %s %s, with nothing between",
          where, now, v.thread, far[d], before);
}

void visit_cell(cell &c, access a, const char *where, int line)
{
    const visit now = {launch_number,    self->block_number, self->number, self->block_epoch,
                       self->warp_epoch, a == ATOMIC,        ONE};
    const spread written = distance(c.write);
    if (written != ONE && !(a == ATOMIC && c.write.is_atomic))
        race(line, where, a == READ ? "reads" : "writes", "wrote", written, c.write);
    spread read = distance(c.read);
    const bool is_same_epoch =
        c.read.launch == launch_number &&
        (c.read.block != self->block_number || c.read.block_epoch == self->block_epoch);
    const spread readers = is_same_epoch ? (spread)c.read.spread_ : ONE;
    if (a == READ) {
        const bool is_lanes_ordered = readers == LANES && c.read.warp_epoch != self->warp_epoch;
        const spread kept = is_lanes_ordered ? ONE : readers;
        c.read = now;
        c.read.spread_ = (uint8_t)(read > kept ? read : kept);
        return;
    }
    if (read == ONE && readers != ONE && !self->has_fenced &&
        !(readers == LANES && c.read.warp_epoch != self->warp_epoch))
        read = readers;
    if (read != ONE) race(line, where, "writes", "read", read, c.read);
    c.write = now;
}

const char *verb(access a)
{
    return a == READ ? "read" : a == WRITE ? "write" : "atomic";
}

[[noreturn]] void outside(uint64_t address, uint32_t size, access a, int line)
{
    const range *near = nullptr;
    const auto after = all_ranges().upper_bound(address);
    if (after != all_ranges().begin()) near = &std::prev(after)->second;
    if (near && address < near->end + (1 << 20))
        fault(line, "global %s of %u bytes at byte %llu of an allocation of %llu bytes", verb(a),
              size, (unsigned long long)(address - near->begin),
              (unsigned long long)(near->end - near->begin));
    fault(line, "global %s of %u bytes at 0x%llx, outside all allocations", verb(a), size,
          (unsigned long long)address);
}

} // namespace

uint8_t *touch(space s, uint64_t address, uint32_t size, uint32_t alignment, access a, int line)
{
    n_atomics += a == ATOMIC;
    if (s == GENERIC) {
        s = address >= local_tag ? LOCAL : address >= shared_tag ? SHARED : GLOBAL;
        if (s == SHARED) address -= shared_tag;
        if (s == LOCAL) address -= local_tag;
    }
    if (address % alignment)
        fault(line, "misaligned %s of %u bytes at 0x%llx", verb(a), size,
              (unsigned long long)address);
    if (s == SHARED) {
        address -= shared_start;
        if (address + size > self->shared_bytes || address + size < address)
            fault(line, "shared %s of %u bytes at byte %lld of %u", verb(a), size,
                  (long long)(int32_t)address, self->shared_bytes);
        if (races() != GPU_RACES_OFF)
            for (uint32_t i = 0; i < size; i++)
                visit_cell(shared_cells[address + i], a, "shared", line);
        return self->shared + address;
    }
    if (s == LOCAL) {
        if (address + size > self->local_top || address + size < address)
            fault(line, "local %s of %u bytes at byte %lld of %u", verb(a), size,
                  (long long)address, self->local_top);
        return self->local + address;
    }
    const range *const r = find(address, size);
    if (!r) outside(address, size, a, line);
    if (r->who == OWNER_CONSTANT && a != READ) fault(line, "%s of constant memory", verb(a));
    if (races() == GPU_RACES_ALL && r->who != OWNER_CONSTANT) {
        std::vector<cell> &c = cells[r->begin];
        if (c.empty()) c.resize(r->end - r->begin);
        for (uint32_t i = 0; i < size; i++)
            visit_cell(c[address - r->begin + i], a, "global", line);
    }
    return (uint8_t *)(uintptr_t)address;
}

void add_range(void *memory, size_t size, owner who)
{
    const std::lock_guard<std::recursive_mutex> lock(lock_ranges);
    const uint64_t begin = (uint64_t)(uintptr_t)memory;
    all_ranges()[begin] = {begin, begin + size, who};
    forget_recent();
}

bool remove_range(void *memory, owner who)
{
    const std::lock_guard<std::recursive_mutex> lock(lock_ranges);
    const auto i = all_ranges().find((uint64_t)(uintptr_t)memory);
    if (i == all_ranges().end() || i->second.who != who) return false;
    cells.erase(i->first);
    all_ranges().erase(i);
    forget_recent();
    return true;
}

const range *range_of(const void *memory, size_t size)
{
    const std::lock_guard<std::recursive_mutex> lock(lock_ranges);
    return find((uint64_t)(uintptr_t)memory, size);
}

gpu_holdings live_ranges()
{
    const std::lock_guard<std::recursive_mutex> lock(lock_ranges);
    gpu_holdings h = {0, 0, 0, 0};
    for (const auto &r : all_ranges())
        if (r.second.who == OWNER_PROGRAM || r.second.who == OWNER_PINNED) {
            h.allocations++;
            h.bytes += r.second.end - r.second.begin;
        }
    return h;
}

void memory_begin_launch()
{
    launch_number++;
    forget_recent();
}

void memory_begin_block(uint32_t shared_bytes)
{
    if (races() != GPU_RACES_OFF) shared_cells.assign(shared_bytes, cell{});
}

} // namespace gpu

extern "C" void gpu_set_races(gpu_races wanted)
{
    gpu::races_wanted = wanted;
    gpu::is_races_set = true;
}

extern "C" void gpu_map(void *memory, size_t size)
{
    gpu::add_range(memory, size, gpu::OWNER_MAPPED);
}

extern "C" void gpu_unmap(void *memory)
{
    gpu::remove_range(memory, gpu::OWNER_MAPPED);
}

extern "C" uint64_t gpu_atomics(void)
{
    return gpu::n_atomics;
}
