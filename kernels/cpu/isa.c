/* Which instruction set this processor has: see isa.h. */
#include "kernels/cpu/isa.h"

#include <stdbool.h>

kv_isa kv_isa_best(void)
{
#if defined(KV_CPU_HAS)
    bool const has_v3 =
        KV_CPU_HAS("avx2") && KV_CPU_HAS("fma") && KV_CPU_HAS("bmi") && KV_CPU_HAS("bmi2");
    bool const has_v4 = KV_CPU_HAS("avx512f") && KV_CPU_HAS("avx512bw") && KV_CPU_HAS("avx512cd") &&
                        KV_CPU_HAS("avx512dq") && KV_CPU_HAS("avx512vl");
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
