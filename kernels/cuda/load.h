/* Finds the module libkvant_cuda.so and the device to use; for the files of kernels/cuda.
 *
 *     KV_TRY(kv_cuda_begin(&cuda, err));
 *     ... cuda->allocate(...), cuda->logits(...) ...
 *     kv_cuda_end();
 *
 * The module is opened once per process and stays open. It is looked for where the environment's
 * KVANT_CUDA_MODULE says, or else beside the running program, in the folder that belongs to the
 * program's installation, in the build folder and in the installed ${libdir}/kvant. */
#ifndef KVANT_KERNELS_CUDA_LOAD_H
#define KVANT_KERNELS_CUDA_LOAD_H

#include "kernels/cuda/device.h"

/* The module, with the process's device current in this thread, for this thread alone until
 * kv_cuda_end; others wait. KV_EUNSUPPORTED with the reason where there is no device; then there is
 * nothing to end. */
kv_status kv_cuda_begin(const kv_cuda_module **out, kv_error *err);
void kv_cuda_end(void);

#endif
