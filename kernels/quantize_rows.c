/* Which variant of the row loops runs here: see quantize_rows.h. */
#include "kernels/quantize_rows.h"

#define KV_ROW(isa) extern const kv_rows kv_rows_##isa;
KV_ISA_TABLE(KV_ROW)
#undef KV_ROW

const kv_rows *kv_rows_at(kv_isa isa)
{
#define KV_ROW(isa) &kv_rows_##isa,
    static const kv_rows *const variants[] = {KV_ISA_TABLE(KV_ROW)};
#undef KV_ROW
    return variants[isa];
}

const kv_rows *kv_rows_best(void)
{
    return kv_rows_at(kv_isa_best());
}
