/* Random numbers: three generators, each reproducible to the draw.
 *
 *  - philox: a function of (seed, stream, element), never of call order, with equal bits on
 *    every backend. The default.
 *  - numpy: the stream of numpy.random.default_rng(seed).standard_normal.
 *  - torch: the stream of torch.manual_seed(seed) and torch.randn on the CPU.
 *
 *     float z[128];
 *     uint64_t stream = kv_stream_id(layer, calibration, head, tensor);
 *     kv_philox_normals(z, seed, stream, token * 128, 128);      // one token, in any order
 *
 * Nothing here allocates, fails or has global state. Stream structs are plain values: a copy is a
 * second stream that goes on from the same place. One struct is for one thread at a time. */
#ifndef KVANT_KERNELS_RANDOM_H
#define KVANT_KERNELS_RANDOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/platform.h"

KV_EXTERN_C_BEGIN

/* ---- philox: element-addressable (arithmetic in philox.h) ---- */

/* The 64-bit stream of one head of one tensor; each stream has 2^66 words. From the top: layer 32
 * bits, calibration 12, head 16, tensor 4; callers keep within these. */
uint64_t kv_stream_id(uint64_t layer, uint64_t calibration, uint64_t head, uint64_t tensor);

/* Elements first ... first + count - 1 of a stream: its words, its words / 2^32 in [0, 1), or N(0,
 * 1) numbers. Element e depends on nothing but (seed, stream, e); normal e is made of the words e
 * and e ^ 1. Thread-safe. */
void kv_philox_words(uint32_t *out, uint64_t seed, uint64_t stream, uint64_t first, size_t count);
void kv_philox_uniforms(double *out, uint64_t seed, uint64_t stream, uint64_t first, size_t count);
void kv_philox_normals(float *out, uint64_t seed, uint64_t stream, uint64_t first, size_t count);

/* ---- numpy: SeedSequence, PCG64, ziggurat ---- */

/* Tables of the ziggurat (Marsaglia and Tsang 2000) with numpy's 256 layers and r, computed in long
 * double; numpy's are literals. Filled once by its owner, then shared between streams and threads.
 */
typedef struct {
    uint64_t accept[256];
    double width[256], density[256];
} kv_ziggurat;
void kv_ziggurat_fill(kv_ziggurat *ziggurat);

/* PCG64: 128-bit state and increment, high word first. The ziggurat belongs to the caller and must
 * outlive the stream. */
typedef struct {
    uint64_t state[2], increment[2];
    const kv_ziggurat *ziggurat;
} kv_numpy_stream;

/* default_rng(seed); and default_rng of an integer or a list of integers of any size, as 32-bit
 * words: each integer's words from the low end, at least one, in list order. */
void kv_numpy_stream_seed(kv_numpy_stream *stream, const kv_ziggurat *ziggurat, uint64_t seed);
void kv_numpy_stream_seed_words(kv_numpy_stream *stream, const kv_ziggurat *ziggurat,
                                const uint32_t *words, size_t count);

/* The next word; the next numbers of standard_normal. The sequence of accepted draws is numpy's;
 * the values differ by at most 4e-15 (tables' last bits, and libm in the tail). With out NULL the
 * numbers are drawn and dropped, which is how to skip. */
uint64_t kv_numpy_word(kv_numpy_stream *stream);
void kv_numpy_normals(kv_numpy_stream *stream, double *out, size_t count);

/* ---- torch: MT19937, Box-Muller ---- */

typedef struct {
    uint32_t state[624];
    int next;       /* word of `state` to hand out; 624 = all used */
    bool has_saved; /* the second number of a scalar pair waits in `saved` */
    double saved;
} kv_torch_stream;

/* torch.manual_seed(seed), its low 32 bits (Matsumoto and Nishimura 1998, init_genrand). */
void kv_torch_stream_seed(kv_torch_stream *stream, uint64_t seed);

/* The next word; drops `count` words. */
uint32_t kv_torch_word(kv_torch_stream *stream);
void kv_torch_skip(kv_torch_stream *stream, uint64_t count);

/* torch.randn(count), float32, contiguous, CPU (ATen/native/cpu/DistributionTemplates.h,
 * normal_fill). From 16 numbers on, one word makes one uniform, and chunks of 16 are transformed:
 * number j of the first eight is the radius, j + 8 the angle; where 16 does not divide count, the
 * last 16 numbers are drawn again. So calls for multiples of 16 continue each other as one large
 * call, other calls do not. Fewer than 16 are drawn one by one in double from two words a uniform.
 * torch takes log, sin and cos from vector approximations that depend on the processor: values
 * agree to about 1e-6. */
void kv_torch_normals(kv_torch_stream *stream, float *out, size_t count);

KV_EXTERN_C_END

#endif
