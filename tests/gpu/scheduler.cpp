/* Lanes as fibers: each runs until it waits at a barrier or a warp collective, or ends; then the
 * next ready lane runs, the first one or a drawn one. Blocks run one after the other, so what they
 * exchange through global memory must not wait.
 *
 * Rules that end a launch: a barrier that not every thread of the block reaches (also by having
 * ended), threads at different barriers, a lane outside its own mask, a mask with an ended lane,
 * lanes of one mask in different collectives, a shuffle from a lane outside the mask. */
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "tests/gpu/fiber.h"
#include "tests/gpu/internal.h"

namespace gpu
{

lane *self;

namespace
{

const size_t stack_size = 128 * 1024;
enum state { READY, AT_BARRIER, IN_COLLECTIVE, ENDED };

struct fiber : lane {
    context where;
    std::vector<uint8_t> stack, memory;
    state is;
    collective kind;
    uint32_t mask, value, source, answer;
    int line;
};

struct machine {
    std::vector<fiber> fibers;
    std::vector<uint32_t> ready; /* a queue from `next` on */
    size_t next;
    uint32_t threads, running, arrived, votes;
    const kernel *kernel_;
    uint8_t *const *parameters;
    context launcher;
    bool is_ended;
    uint64_t random;
} m;

char message[512];
uint64_t seed;
bool is_seeded;
std::recursive_mutex one_launch;

uint64_t draw(uint64_t n)
{
    m.random = m.random * 6364136223846793005u + 1442695040888963407u;
    return (m.random >> 33) % n;
}

void make_ready(fiber &f)
{
    f.is = READY;
    m.ready.push_back(f.number);
}

/* Leaves the running lane for the next ready one; the launcher, when there is none. */
void leave(context *from)
{
    if (m.next == m.ready.size()) {
        if (m.running == 0) switch_context(from, &m.launcher);
        uint32_t n_barrier = 0, n_collective = 0;
        int line = 0;
        for (uint32_t i = 0; i < m.threads; i++) {
            const fiber &f = m.fibers[i];
            n_barrier += f.is == AT_BARRIER;
            n_collective += f.is == IN_COLLECTIVE;
            if (f.is == AT_BARRIER || f.is == IN_COLLECTIVE) line = f.line;
        }
        fault(line, "deadlock: %u threads wait at a barrier, %u in a warp collective, %u ended",
              n_barrier, n_collective, m.threads - m.running);
    }
    if (seed) {
        const size_t other = m.next + draw(m.ready.size() - m.next);
        const uint32_t t = m.ready[other];
        m.ready[other] = m.ready[m.next];
        m.ready[m.next] = t;
    }
    fiber &f = m.fibers[m.ready[m.next++]];
    if (m.next == m.ready.size()) m.ready.clear(), m.next = 0;
    if (self == &f) return;
    self = &f;
    switch_context(from, &f.where);
}

void enter()
{
    m.kernel_->run(m.parameters);
    fiber *const f = static_cast<fiber *>(self);
    f->is = ENDED;
    m.running--;
    self = nullptr;
    leave(&f->where);
    abort(); /* an ended lane is never resumed */
}

void run_block(size3 index, size3 blocks, size3 threads, uint32_t dynamic_bytes,
               std::vector<uint8_t> &shared)
{
    const uint32_t dynamic_offset = (m.kernel_->static_shared + 15) / 16 * 16;
    const uint32_t shared_bytes =
        dynamic_bytes ? dynamic_offset + dynamic_bytes : m.kernel_->static_shared;
    shared.assign(shared_bytes + 16, 0xff); /* NaN, where a kernel forgets to write */
    memory_begin_block(shared_bytes);
    m.ready.clear();
    m.next = 0;
    m.arrived = m.votes = 0;
    m.running = m.threads;
    for (uint32_t i = 0; i < m.threads; i++) {
        fiber &f = m.fibers[i];
        f.thread = {i % threads.x, i / threads.x % threads.y, i / threads.x / threads.y};
        f.block = index;
        f.threads = threads;
        f.blocks = blocks;
        f.number = i;
        f.block_number = index.x + blocks.x * (index.y + blocks.y * index.z);
        f.local_top = 0;
        f.local = f.memory.data();
        f.shared = shared.data();
        f.shared_bytes = shared_bytes;
        f.dynamic_offset = dynamic_offset;
        f.block_epoch = f.warp_epoch = 0;
        f.has_fenced = false;
        make_context(&f.where, f.stack.data(), stack_size, enter);
        make_ready(f);
    }
    self = nullptr;
    leave(&m.launcher);
    self = nullptr;
}

} // namespace

void fault(int line, const char *format, ...)
{
    char what[320];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    const fiber &any = self ? *static_cast<fiber *>(self) : m.fibers[0];
    char thread[48] = "";
    if (self)
        snprintf(thread, sizeof thread, ", thread (%u,%u,%u)", any.thread.x, any.thread.y,
                 any.thread.z);
    snprintf(message, sizeof message, "%s: %s; block (%u,%u,%u)%s, PTX line %d", m.kernel_->name,
             what, any.block.x, any.block.y, any.block.z, thread, line);
    fprintf(stderr, "GPU emulator: %s\n", message);
    m.is_ended = true;
    context abandoned;
    switch_context(&abandoned, &m.launcher);
    abort();
}

uint32_t barrier(bool predicate, int line)
{
    fiber *const f = static_cast<fiber *>(self);
    f->line = line;
    f->is = AT_BARRIER;
    m.votes += predicate;
    for (uint32_t i = 0; i < m.threads && m.arrived; i++) /* all others wait at the same one */
        if (m.fibers[i].is == AT_BARRIER) {
            if (m.fibers[i].line != line)
                fault(line, "threads of one block wait at different barriers (PTX lines %d and %d)",
                      m.fibers[i].line, line);
            break;
        }
    if (m.running < m.threads)
        fault(line, "a thread waits at a barrier that %u ended threads never reach",
              m.threads - m.running);
    if (++m.arrived == m.threads) {
        const uint32_t votes = m.votes;
        m.arrived = m.votes = 0;
        for (uint32_t i = 0; i < m.threads; i++) {
            fiber &other = m.fibers[i];
            other.answer = votes;
            other.block_epoch++;
            make_ready(other);
        }
    }
    leave(&f->where);
    return f->answer;
}

uint32_t meet(collective kind, uint32_t mask, uint32_t value, uint32_t source, int line)
{
    fiber *const f = static_cast<fiber *>(self);
    const uint32_t first = f->number & ~31u, me = f->number & 31;
    if (!(mask >> me & 1)) fault(line, "lane %u is not in its own mask 0x%08x", me, mask);
    if (kind == SHUFFLE && !(mask >> source & 1))
        fault(line, "lane %u reads lane %u, which is outside the mask 0x%08x", me, source, mask);
    f->kind = kind;
    f->mask = mask;
    f->value = value;
    f->source = source;
    f->line = line;
    f->is = IN_COLLECTIVE;
    bool is_complete = true;
    uint32_t ballot = 0;
    for (uint32_t i = 0; i < 32; i++) {
        if (!(mask >> i & 1)) continue;
        if (first + i >= m.threads || m.fibers[first + i].is == ENDED)
            fault(line, "mask 0x%08x names lane %u, which has ended or never was", mask, i);
        const fiber &other = m.fibers[first + i];
        if (other.is != IN_COLLECTIVE) {
            is_complete = false;
            continue;
        }
        if (other.mask != mask || other.kind != kind)
            fault(line, "lanes %u and %u wait in different collectives (PTX lines %d and %d)", me,
                  i, line, other.line);
        ballot |= (uint32_t)(other.value != 0) << i;
    }
    if (is_complete)
        for (uint32_t i = 0; i < 32; i++)
            if (mask >> i & 1) {
                fiber &other = m.fibers[first + i];
                other.answer = kind == BALLOT ? ballot : m.fibers[first + other.source].value;
                other.warp_epoch += kind == SYNCWARP;
                make_ready(other);
            }
    leave(&f->where);
    return f->answer;
}

bool launch(const kernel &k, size3 blocks, size3 threads, uint32_t dynamic_bytes,
            uint8_t *const *parameters)
{
    const std::lock_guard<std::recursive_mutex> lock(one_launch);
    if (!is_seeded) {
        const char *const text = getenv("KVANT_GPU_SEED");
        gpu_set_seed(text ? strtoull(text, nullptr, 10) : 0);
    }
    m.threads = threads.x * threads.y * threads.z;
    while (m.fibers.size() < m.threads) {
        m.fibers.emplace_back();
        m.fibers.back().stack.resize(stack_size);
        m.fibers.back().memory.resize(local_size);
    }
    m.kernel_ = &k;
    m.parameters = parameters;
    m.is_ended = false;
    message[0] = 0;
    memory_begin_launch();
    const uint64_t n = (uint64_t)blocks.x * blocks.y * blocks.z;
    std::vector<uint64_t> order(n);
    for (uint64_t i = 0; i < n; i++) order[i] = i;
    for (uint64_t i = n; seed && i > 1; i--) {
        const uint64_t j = draw(i), t = order[j];
        order[j] = order[i - 1];
        order[i - 1] = t;
    }
    std::vector<uint8_t> shared;
    for (uint64_t i = 0; i < n && !m.is_ended; i++) {
        const uint64_t b = order[i], rest = b / blocks.x;
        run_block(
            {(unsigned)(b % blocks.x), (unsigned)(rest % blocks.y), (unsigned)(rest / blocks.y)},
            blocks, threads, dynamic_bytes, shared);
    }
    return !m.is_ended;
}

} // namespace gpu

extern "C" void gpu_set_seed(uint64_t value)
{
    gpu::seed = gpu::m.random = value;
    gpu::is_seeded = true;
}

extern "C" const char *gpu_message(void)
{
    return gpu::message;
}
