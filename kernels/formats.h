/* THE table of number formats. To add one: write formats/NAME.h, then its include and its row here.
 *
 * Row: X(name, NAME, KIND, bits, about). What a header must define depends on KIND, see format.h:
 *  EXACT    nothing to round: kv_NAME_round(x)
 *  INTEGER  formats/integer.h serves every width
 *  FLOAT    KV_NAME_MAXIMUM, kv_NAME_encode(float) -> uint32_t (round to nearest even, saturating),
 *           kv_NAME_decode(uint32_t) -> float, kv_NAME_round(float) -> float = decode(encode(x)),
 *           branch-free so that loops over it vectorize
 *  BLOCK    KV_NAME_BITS_PER_BLOCK, struct kv_NAME_block, kv_NAME_encode_block(block *, const float
 * [32]), kv_NAME_decode_block(float [32], const block *), kv_NAME_block_codes(uint32_t [32], const
 * block *) */
#ifndef KVANT_KERNELS_FORMATS_H
#define KVANT_KERNELS_FORMATS_H

#define KV_FORMAT_TABLE(X)

#endif
