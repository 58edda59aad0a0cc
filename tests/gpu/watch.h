/* A module in front of another one, which it forwards to: while it is switched on it waits for
 * every kernel and keeps what each took. For bench.c.
 *
 * KVANT_WATCHED names the module that does the work; the program opens this one instead of it
 * (KVANT_CUDA_MODULE). Switched off, a call costs one branch. */
#ifndef KVANT_TESTS_GPU_WATCH_H
#define KVANT_TESTS_GPU_WATCH_H

#include <stdbool.h>
#include <stdint.h>

/* Of all launches of a kernel since it was switched on. bytes counts every tensor that the kernel
 * reads or writes once, wherever it comes from; products are multiply-adds of logits and outputs.
 */
typedef struct {
    const char *kernel;
    int64_t launches;
    double seconds, bytes, products;
} watched;

/* The module's two symbols beside the table. Off: what was kept stays. On: it starts anew. */
typedef void watch_switch_function(bool is_on);
typedef const watched *watch_kept_function(int *n);

#endif
