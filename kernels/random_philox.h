/* What random_philox.c and random_philox_fill.c share; not for other modules. */
#ifndef KVANT_KERNELS_RANDOM_PHILOX_H
#define KVANT_KERNELS_RANDOM_PHILOX_H

#include <stddef.h>

#include "kernels/cpu/isa.h"
#include "kernels/philox.h"

/* Normals of whole blocks, out [4 * blocks], block number `block` first. */
#define KV_ROW(isa)                                                                                \
    void kv_philox_fill_##isa(float *out, uint64_t seed, uint64_t stream, uint64_t block,          \
                              size_t blocks);
KV_ISA_TABLE(KV_ROW)
#undef KV_ROW

#endif
