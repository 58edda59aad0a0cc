/* Two stacks and a jump between them: the only part that knows the processor. x86-64 (System V)
 * saves the callee's registers by hand, since swapcontext() would ask the kernel each time;
 * everywhere else ucontext serves. The rounding mode is not saved: it never differs at a switch. */
#ifndef KVANT_TESTS_GPU_FIBER_H
#define KVANT_TESTS_GPU_FIBER_H

#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace gpu
{

#if defined(__x86_64__)

typedef void *context;
extern "C" void gpu_switch(context *from, context to);
asm(".text\n"
    ".globl gpu_switch\n"
    ".type gpu_switch,@function\n"
    "gpu_switch:\n"
    "  push %rbp\n  push %rbx\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
    "  mov %rsp, (%rdi)\n"
    "  mov %rsi, %rsp\n"
    "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbx\n  pop %rbp\n"
    "  ret\n"
    ".size gpu_switch, .-gpu_switch\n");

/* A context that will call `entry`, which must not return. */
inline void make_context(context *c, uint8_t *stack, size_t size, void (*entry)())
{
    void **top = (void **)(((uintptr_t)stack + size - 64) & ~(uintptr_t)15);
    *--top = nullptr; /* as if called: the stack is 8 off a multiple of 16 at the entry */
    *--top = (void *)entry;
    for (int i = 0; i < 6; i++) *--top = nullptr;
    *c = top;
}

inline void switch_context(context *from, context *to)
{
    gpu_switch(from, *to);
}

#else

typedef ucontext_t context;

inline void make_context(context *c, uint8_t *stack, size_t size, void (*entry)())
{
    getcontext(c);
    c->uc_stack.ss_sp = stack;
    c->uc_stack.ss_size = size;
    c->uc_link = nullptr;
    makecontext(c, entry, 0);
}

inline void switch_context(context *from, context *to)
{
    swapcontext(from, to);
}

#endif

} // namespace gpu

#endif
