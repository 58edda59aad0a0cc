/* Number formats: the numbers a code can stand for. The table is formats.h; each row's arithmetic
 * is one header in formats/, written once for C17 and CUDA.
 *
 * Three kinds:
 *  - integer grids (int2 ... int8): symmetric (codes -qmax ... qmax, qmax = 2^(b-1) - 1) or
 *    asymmetric (codes 0 ... 2^b - 1 from the tile's min);
 *  - float grids (e4m3, e5m2, f16 ...): a scaled number is rounded to the nearest representable;
 *  - blocks (q8_0, q4_0, exl4 ...): own their tile of 32 channels, their range and their scale
 *    storage.
 *
 *     const kv_format *f = kv_format_find("int8");
 */
#ifndef KVANT_KERNELS_FORMAT_H
#define KVANT_KERNELS_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "kernels/formats.h"

KV_EXTERN_C_BEGIN

typedef enum { KV_KIND_EXACT, KV_KIND_INTEGER, KV_KIND_FLOAT, KV_KIND_BLOCK } kv_format_kind;

/* KV_FORMAT_INT8 and so on, in the order of the table. */
typedef enum {
#define KV_ROW(name, NAME, ...) KV_FORMAT_##NAME,
    KV_FORMAT_TABLE(KV_ROW)
#undef KV_ROW
        KV_FORMAT_COUNT
} kv_format_id;

typedef struct {
    const char *name;
    const char *about; /* one line, with the source of the formula */
    kv_format_kind kind;
    int bits;           /* of one code; for blocks, bits of the codes alone */
    float maximum;      /* largest magnitude of the symmetric grid; 0 for exact and blocks */
    int block_elements; /* 1, or 32 for blocks */
    int block_bits;     /* stored bits of one block, scale included; equals bits otherwise */
} kv_format;

/* Rows of the table; NULL past the end or for an unknown name. */
const kv_format *kv_format_at(size_t id);
const kv_format *kv_format_find(const char *name);

/* The table, a line a format. */
void kv_format_list(FILE *out);

/* Whether a code is relative to a scale that a range rule finds: integer grids and float grids
 * below 16 bits. f32, f16 and bf16 need none, blocks bring their own. */
bool kv_format_has_scale(const kv_format *format);

KV_EXTERN_C_END

#endif
