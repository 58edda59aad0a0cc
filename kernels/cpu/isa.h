/* Instruction sets: files listed with kvant_isa_sources (kernels/CMakeLists.txt) are compiled once
 * per row of KV_ISA_TABLE, with KV_ISA defined as the row's name and the compiler's flags to match.
 * Such a file exports names made with KV_ISA_NAME; a caller collects them by walking the table and
 * takes the one of kv_isa_best(). Every variant gives the same bits: the arithmetic is written with
 * explicit fmaf and fixed order, and only its width differs.
 *
 *     // in the file that is compiled per instruction set
 *     void KV_ISA_NAME(round_rows)(float *y, const float *x, int64_t n) { ... }
 *     // in its caller
 *     #define KV_ROW(isa) void round_rows_##isa(float *, const float *, int64_t);
 *     KV_ISA_TABLE(KV_ROW)
 *     #undef KV_ROW
 *     #define KV_ROW(isa) round_rows_##isa,
 *     static void (*const round_rows[])(float *, const float *, int64_t) = {KV_ISA_TABLE(KV_ROW)};
 *     round_rows[kv_isa_best()](y, x, n);
 */
#ifndef KVANT_KERNELS_CPU_ISA_H
#define KVANT_KERNELS_CPU_ISA_H

#include "kernels/platform.h"

KV_EXTERN_C_BEGIN

/* From the narrowest to the widest. v3 is AVX2 and FMA, v4 is AVX-512 (x86-64 psABI levels). */
#if defined(__x86_64__)
#define KV_ISA_TABLE(X) X(baseline) X(v3) X(v4)
#else
#define KV_ISA_TABLE(X) X(baseline)
#endif

#define KV_ISA_PASTE_(stem, isa) stem##_##isa
#define KV_ISA_PASTE(stem, isa)  KV_ISA_PASTE_(stem, isa)
#define KV_ISA_NAME(stem)        KV_ISA_PASTE(stem, KV_ISA)

#define KV_ROW(isa) KV_ISA_##isa,
typedef enum { KV_ISA_TABLE(KV_ROW) KV_ISA_COUNT } kv_isa;
#undef KV_ROW

/* The widest that this processor runs; thread-safe. */
kv_isa kv_isa_best(void);
const char *kv_isa_text(kv_isa isa);

KV_EXTERN_C_END

#endif
