/* The only place for words that differ between compilers.
 *
 * KV_HD marks functions that compile as C17 and as CUDA (host and device): every number format is
 * written once with it. KV_PRINTF lets the compiler check message formats. KV_CPU_HAS(feature) asks
 * the x86-64 processor for an instruction set by name. Arithmetic rules that come with these words:
 * compile C with -std=c17 -ffp-contract=off and CUDA with --fmad=false; a fused multiply-add is
 * always written fmaf(). kv_int128 is a signed integer of 128 bits. */
#ifndef KVANT_KERNELS_PLATFORM_H
#define KVANT_KERNELS_PLATFORM_H

#ifdef __CUDACC__
#define KV_HD static __host__ __device__ __forceinline__
#else
#define KV_HD static inline
#endif

/* KV_ROLLED stands before a loop whose body CUDA should not repeat: unrolled, thirty-two numbers of
 * a block are thousands of instructions. */
#ifdef __CUDA_ARCH__
#define KV_ROLLED _Pragma("unroll 1")
#else
#define KV_ROLLED
#endif

/* KV_UNROLL_4 stands before a loop whose counting would take what its body should get. */
#if defined(__clang__)
#define KV_UNROLL_4 _Pragma("clang loop unroll_count(4)")
#elif defined(__GNUC__)
#define KV_UNROLL_4 _Pragma("GCC unroll 4")
#else
#define KV_UNROLL_4
#endif

#if defined(__GNUC__) || defined(__clang__)
#define KV_PRINTF(format_index, first_argument)                                                    \
    __attribute__((format(printf, format_index, first_argument)))
#define KV_THREAD_LOCAL __thread
__extension__ typedef __int128 kv_int128;
#if defined(__x86_64__)
#define KV_CPU_HAS(feature) (__builtin_cpu_supports(feature) != 0)
#endif
#else
#define KV_PRINTF(format_index, first_argument)
#define KV_THREAD_LOCAL _Thread_local
#endif

#ifdef __cplusplus
#define KV_EXTERN_C_BEGIN extern "C" {
#define KV_EXTERN_C_END   }
#else
#define KV_EXTERN_C_BEGIN
#define KV_EXTERN_C_END
#endif

#endif
