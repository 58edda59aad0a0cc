/* The table of formats.h as data: one kv_format per row, nothing written twice. */
#include "kernels/format.h"

#include <string.h>

#define MAXIMUM_EXACT(NAME, bits)   0.0f
#define MAXIMUM_INTEGER(NAME, bits) (float)((1 << ((bits)-1)) - 1)
#define MAXIMUM_FLOAT(NAME, bits)   KV_##NAME##_MAXIMUM
#define MAXIMUM_BLOCK(NAME, bits)   0.0f
#define ELEMENTS_EXACT              1
#define ELEMENTS_INTEGER            1
#define ELEMENTS_FLOAT              1
#define ELEMENTS_BLOCK              32
#define STORED_EXACT(NAME, bits)    bits
#define STORED_INTEGER(NAME, bits)  bits
#define STORED_FLOAT(NAME, bits)    bits
#define STORED_BLOCK(NAME, bits)    KV_##NAME##_BITS_PER_BLOCK

static const kv_format formats[KV_FORMAT_COUNT] = {
#define KV_ROW(name, NAME, KIND, bits, about)                                                      \
    [KV_FORMAT_##NAME] = {#name,                                                                   \
                          about,                                                                   \
                          KV_KIND_##KIND,                                                          \
                          bits,                                                                    \
                          MAXIMUM_##KIND(NAME, bits),                                              \
                          ELEMENTS_##KIND,                                                         \
                          STORED_##KIND(NAME, bits)},
    KV_FORMAT_TABLE(KV_ROW)
#undef KV_ROW
};

const kv_format *kv_format_at(size_t id)
{
    return id < KV_FORMAT_COUNT ? &formats[id] : NULL;
}

const kv_format *kv_format_find(const char *name)
{
    for (size_t i = 0; i < KV_FORMAT_COUNT; i++)
        if (strcmp(formats[i].name, name) == 0) return &formats[i];
    return NULL;
}

bool kv_format_has_scale(const kv_format *f)
{
    return (f->kind == KV_KIND_INTEGER || f->kind == KV_KIND_FLOAT) && f->bits < 16;
}

void kv_format_list(FILE *out)
{
    for (size_t i = 0; i < KV_FORMAT_COUNT; i++)
        fprintf(out, "%-10s %2d bit  %s\n", formats[i].name, formats[i].bits, formats[i].about);
}
