/* Benchmarks: how fast each kernel of this build runs on this machine, beside the limit that
 * bounds it, which is measured in the same run and never looked up.
 *
 *     kv_bench_row rows[KV_BENCH_MAX_ROWS];
 *     int n_rows;
 *     kv_bench_run(rows, &n_rows, 1, &err);
 */
#ifndef KVANT_KERNELS_BENCH_H
#define KVANT_KERNELS_BENCH_H

#include <stdbool.h>
#include <stdio.h>

#include "kernels/error.h"

KV_EXTERN_C_BEGIN

enum { KV_BENCH_MAX_ROWS = 32 };

/* seconds: median of several runs of the kernel: of the thread's CPU time for one thread, else of
 * wall time. rate is in `unit` (GFLOP/s or GB/s) and counts only the work asked for: 2 flop per
 * multiply-add of the products, bytes read of the tensor. bound: "fma" or "bandwidth", the limit
 * that `peak` (same unit) is. Each run stands between two measurements of its limit; peak is their
 * median and fraction the median of the runs' own ratios. Bandwidth is that of memory read in turns
 * of 1 GiB, and so are the tensors of the bandwidth-bound rows. The rows that measure the limits
 * themselves have fraction 1. `threads` are those of the pair matrix, of attend and of the fma
 * peak; the other kernels run on one. Texts are static. */
typedef struct {
    const char *kernel, *shape;
    double seconds, rate;
    const char *unit, *bound;
    double peak, fraction;
} kv_bench_row;

/* Fills rows [KV_BENCH_MAX_ROWS] and their number. threads < 1 means 1. Takes a few seconds. */
kv_status kv_bench_run(kv_bench_row *rows, int *n_rows, int threads, kv_error *err);

/* A line a row, or an array of JSON objects. */
void kv_bench_print(FILE *out, const kv_bench_row *rows, int n_rows, bool is_json);

KV_EXTERN_C_END

#endif
