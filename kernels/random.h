/* Random numbers: three generators, each a documented stream that others can reproduce.
 *
 * philox  counter-based and element-addressable: any element of any stream without the ones before
 *         it. The default; see philox.h.
 * numpy   numpy.random.default_rng(seed).standard_normal: SeedSequence, PCG64 (XSL-RR 128/64,
 *         O'Neill 2014), ziggurat with 256 layers (Marsaglia and Tsang 2000). The sequence of draws
 *         never diverges from numpy's; values agree to 4e-15 (tables are computed, not copied).
 * torch   torch.manual_seed(seed); torch.randn(n) on the CPU in float32: MT19937 (Matsumoto and
 *         Nishimura 1998). n >= 16: Box-Muller on 24-bit uniforms in chunks of 16; n < 16: in
 * double on 53-bit uniforms. torch computes with vector approximations of log, sin and cos, so
 *         values agree to about 1e-6.
 *
 *     kv_numpy_stream s;
 *     kv_numpy_seed(&s, 0);
 *     kv_numpy_normals(&s, z, 3);     // 0.12573022, -0.13210486, 0.64042265
 *
 * States are plain values: a copy is a second stream from the same place. */
#ifndef KVANT_KERNELS_RANDOM_H
#define KVANT_KERNELS_RANDOM_H

#include <stdint.h>

#include "kernels/platform.h"

KV_EXTERN_C_BEGIN

/* Elements first ... first + count - 1 of a stream: out [count]. */
void kv_philox_normals(float *out, uint64_t seed, uint64_t stream, uint64_t first, int64_t count);
/* The same in [0, 1), multiples of 2^-24. */
void kv_philox_uniforms(float *out, uint64_t seed, uint64_t stream, uint64_t first, int64_t count);

typedef struct {
    uint64_t state_high, state_low, increment_high, increment_low;
} kv_numpy_stream;

void kv_numpy_seed(kv_numpy_stream *stream, uint64_t seed);
/* The next count numbers: out [count]. */
void kv_numpy_normals(kv_numpy_stream *stream, double *out, int64_t count);

typedef struct {
    uint32_t words[624];
    int32_t next;
    int32_t has_spare; /* the second of a pair of doubles, kept between small calls */
    double spare;
} kv_torch_stream;

void kv_torch_seed(kv_torch_stream *stream, uint64_t seed);
/* One call of torch.randn: the numbers depend on count. out [count]. */
void kv_torch_normals(kv_torch_stream *stream, float *out, int64_t count);
/* The next 32-bit word of MT19937. */
uint32_t kv_torch_word(kv_torch_stream *stream);

KV_EXTERN_C_END

#endif
