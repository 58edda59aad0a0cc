/* Which instruction set this processor has: see isa.h. */
#include "kernels/cpu/isa.h"

#include <stdbool.h>

kv_isa kv_isa_best(void)
{
#if defined(__x86_64__)
    bool const has_v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    bool const has_v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512vl");
    if (has_v3 && has_v4) return KV_ISA_v4;
    if (has_v3) return KV_ISA_v3;
#endif
    return KV_ISA_baseline;
}

const char *kv_isa_text(kv_isa isa)
{
#define KV_ROW(isa) #isa,
    static const char *const names[] = {KV_ISA_TABLE(KV_ROW)};
#undef KV_ROW
    return names[isa];
}
