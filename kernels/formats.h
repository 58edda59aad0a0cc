/* THE table of number formats. To add one: write formats/NAME.h, then its include and its row here.
 *
 * Row: X(name, NAME, KIND, bits, about); bits is of one code. What a header must define depends on
 * KIND, see format.h:
 *  EXACT    nothing to round: kv_NAME_round(x)
 *  INTEGER  formats/integer.h serves every width
 *  FLOAT    KV_NAME_MAXIMUM, kv_NAME_encode(float) -> uint32_t (round to nearest even, saturating
 *           unless the header says otherwise), kv_NAME_decode(uint32_t) -> float,
 *           kv_NAME_round(float) -> float = decode(encode(x)), branch-free so that loops vectorize;
 *           formats/minifloat.h makes all three from a layout. Under a scale s:
 *           code = encode(x / s) by true division, value = decode(code) * s, vLLM's convention
 *           (quant_utils.cuh, scaled_vec_conversion)
 *  BLOCK    of 32 numbers under one kv_block_scale, see formats/block.h:
 *           kv_NAME_scale(const float [32]) -> scale, kv_NAME_code(float, scale) -> uint32_t,
 *           kv_NAME_value(uint32_t, stored scale) -> float; and as bytes
 *           KV_NAME_BITS_PER_BLOCK, struct kv_NAME_block,
 *           kv_NAME_encode_block(block *, const float [32]),
 *           kv_NAME_decode_block(float [32], const block *),
 *           kv_NAME_block_codes(uint32_t [32], const block *)
 * formats/e8m0.h is no row: it stores scales only; block.h is what blocks share, ggml.h what
 * ggml's do. */
#ifndef KVANT_KERNELS_FORMATS_H
#define KVANT_KERNELS_FORMATS_H

#include "kernels/formats/bf16.h"
#include "kernels/formats/e2m1.h"
#include "kernels/formats/e4m3.h"
#include "kernels/formats/e4m3fnuz.h"
#include "kernels/formats/e5m2.h"
#include "kernels/formats/e5m2fnuz.h"
#include "kernels/formats/e8m0.h"
#include "kernels/formats/exl.h"
#include "kernels/formats/f16.h"
#include "kernels/formats/f32.h"
#include "kernels/formats/integer.h"
#include "kernels/formats/iq4_nl.h"
#include "kernels/formats/q4_0.h"
#include "kernels/formats/q4_1.h"
#include "kernels/formats/q5_0.h"
#include "kernels/formats/q5_1.h"
#include "kernels/formats/q8_0.h"

/* clang-format off */
/*    name      NAME      KIND    bits about */
#define KV_FORMAT_TABLE(X)                                                                         \
    X(f32,      F32,      EXACT,   32, "IEEE binary32, kept exact")                                \
    X(f16,      F16,      FLOAT,   16,                                                             \
      "IEEE binary16, +-65504; past that infinity, which the quantizer reports as an error")       \
    X(bf16,     BF16,     FLOAT,   16, "bfloat16, the upper half of binary32")                     \
    X(e4m3,     E4M3,     FLOAT,   8,  "OCP FP8 E4M3, +-448, saturating (CUDA __NV_SATFINITE)")    \
    X(e4m3fnuz, E4M3FNUZ, FLOAT,   8,                                                              \
      "FP8 of AMD MI300, bias 8, +-240, no -0, saturating (Noune et al. 2022)")                    \
    X(e5m2,     E5M2,     FLOAT,   8,  "OCP FP8 E5M2, +-57344, saturating (CUDA __NV_SATFINITE)")  \
    X(e5m2fnuz, E5M2FNUZ, FLOAT,   8,                                                              \
      "FP8 of AMD MI300, bias 16, +-57344, no -0, saturating (Noune et al. 2022)")                 \
    X(e2m1,     E2M1,     FLOAT,   4,  "OCP MX and NVFP4 elements, 0 ... 6, saturating")           \
    X(int8,     INT8,     INTEGER, 8,                                                              \
      "integers -127 ... 127, with zero 0 ... 255 (Jacob et al. 2018, eq. 1)")                     \
    X(int7,     INT7,     INTEGER, 7,  "integers -63 ... 63, with zero 0 ... 127 (as int8)")       \
    X(int6,     INT6,     INTEGER, 6,  "integers -31 ... 31, with zero 0 ... 63 (as int8)")        \
    X(int5,     INT5,     INTEGER, 5,  "integers -15 ... 15, with zero 0 ... 31 (as int8)")        \
    X(int4,     INT4,     INTEGER, 4,  "integers -7 ... 7, with zero 0 ... 15 (as int8)")          \
    X(int3,     INT3,     INTEGER, 3,  "integers -3 ... 3, with zero 0 ... 7 (as int8)")           \
    X(int2,     INT2,     INTEGER, 2,  "integers -1 ... 1, with zero 0 ... 3 (KIVI eq. 1)")        \
    X(q8_0,     Q8_0,     BLOCK,   8,                                                              \
      "ggml block: 32 bytes and an f16 scale amax/127 (quantize_row_q8_0_ref)")                    \
    X(q5_1,     Q5_1,     BLOCK,   5,                                                              \
      "ggml block: 32 codes, f16 scale (max-min)/31 and minimum (quantize_row_q5_1_ref)")          \
    X(q5_0,     Q5_0,     BLOCK,   5,                                                              \
      "ggml block: 32 codes and a signed f16 scale m/-16 (quantize_row_q5_0_ref)")                 \
    X(q4_1,     Q4_1,     BLOCK,   4,                                                              \
      "ggml block: 32 nibbles, f16 scale (max-min)/15 and minimum (quantize_row_q4_1_ref)")        \
    X(q4_0,     Q4_0,     BLOCK,   4,                                                              \
      "ggml block: 32 nibbles and a signed f16 scale m/-8 (quantize_row_q4_0_ref)")                \
    X(iq4_nl,   IQ4_NL,   BLOCK,   4,                                                              \
      "ggml block: 32 of 16 fixed numbers, least-squares f16 scale (quantize_row_iq4_nl_ref)")     \
    X(exl8,     EXL8,     BLOCK,   8,                                                              \
      "exllamav3 block: 32 mid-rise codes under f16 amax (q_cache_kernels.cuh); add :hadamard=32") \
    X(exl7,     EXL7,     BLOCK,   7,  "as exl8, codes of 7 bits")                                 \
    X(exl6,     EXL6,     BLOCK,   6,  "as exl8, codes of 6 bits")                                 \
    X(exl5,     EXL5,     BLOCK,   5,  "as exl8, codes of 5 bits")                                 \
    X(exl4,     EXL4,     BLOCK,   4,  "as exl8, codes of 4 bits")                                 \
    X(exl3,     EXL3,     BLOCK,   3,  "as exl8, codes of 3 bits")                                 \
    X(exl2,     EXL2,     BLOCK,   2,  "as exl8, codes of 2 bits")
/* clang-format on */

#endif
