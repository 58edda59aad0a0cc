/* NumPy's .npy files, format versions 1 to 3 (numpy/lib/format.py): the magic string, a version,
 * the header's length, and the header: a Python dictionary literal with exactly the keys 'descr',
 * 'fortran_order' and 'shape'. Only little-endian floats in C order are read. */
#include <stdio.h>
#include <string.h>

#include "kernels/memory.h"
#include "sim/capture_state.h"

enum { MAX_AXES = 8, MAX_WORD = 64 };

/* The header being read; `at` never passes `end`. */
typedef struct {
    const char *at, *end;
    const char *name;
    kv_error *err;
} reader;

static kv_status wrong(reader *r, const char *what)
{
    return KV_FAIL(r->err, KV_EINPUT, "%s: broken .npy header: %s", r->name, what);
}

static void skip_space(reader *r)
{
    while (r->at < r->end && strchr(" \t\n\r", *r->at) && *r->at) r->at++;
}

/* Whether the next thing is `c`; takes it. */
static bool take(reader *r, char c)
{
    skip_space(r);
    if (r->at == r->end || *r->at != c) return false;
    r->at++;
    return true;
}

/* A quoted word without escapes. */
static kv_status read_word(char word[MAX_WORD], reader *r)
{
    size_t n = 0;
    skip_space(r);
    char const quote = r->at < r->end ? *r->at : 0;
    if (quote != '\'' && quote != '"') return wrong(r, "a quoted word is missing");
    for (r->at++; r->at < r->end && *r->at != quote; r->at++) {
        if (n + 1 == MAX_WORD) return wrong(r, "a word is too long");
        word[n++] = *r->at;
    }
    word[n] = 0;
    return take(r, quote) ? KV_OK : wrong(r, "a quote is not closed");
}

static kv_status read_extent(int64_t *out, reader *r)
{
    int64_t n = 0;
    skip_space(r);
    const char *const start = r->at;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++)
        if (!kv_multiply_sizes(n, 10, &n) || n > INT64_MAX - 9)
            return wrong(r, "an extent is too large");
        else
            n += *r->at - '0';
    *out = n;
    return r->at > start ? KV_OK : wrong(r, "shape: a number is missing");
}

static kv_status read_shape(int64_t shape[MAX_AXES], int *rank, reader *r)
{
    *rank = 0;
    if (!take(r, '(')) return wrong(r, "shape: must be a tuple");
    while (!take(r, ')')) {
        if (*rank == MAX_AXES) return wrong(r, "shape: too many axes");
        kv_status const status = read_extent(&shape[(*rank)++], r);
        if (status != KV_OK) return status;
        if (!take(r, ',')) return take(r, ')') ? KV_OK : wrong(r, "shape: is not closed");
    }
    return KV_OK;
}

static kv_status read_bool(bool *out, reader *r)
{
    skip_space(r);
    size_t const left = (size_t)(r->end - r->at);
    if (left >= 4 && memcmp(r->at, "True", 4) == 0) return *out = true, r->at += 4, KV_OK;
    if (left >= 5 && memcmp(r->at, "False", 5) == 0) return *out = false, r->at += 5, KV_OK;
    return wrong(r, "fortran_order: must be True or False");
}

static kv_status set_type(kv_raw_tensor *out, const char *descr, reader *r)
{
    static const struct {
        const char *descr;
        kv_raw_type type;
    } types[] = {{"<f2", KV_RAW_F16}, {"<f4", KV_RAW_F32}, {"<f8", KV_RAW_F64}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(descr, types[i].descr) == 0) return out->type = types[i].type, KV_OK;
    return KV_FAIL(r->err, KV_EINPUT, "%s: numbers of type '%s': must be '<f2', '<f4' or '<f8'",
                   r->name, descr);
}

typedef struct {
    bool has_descr, has_order, has_shape;
    char descr[MAX_WORD];
    bool is_fortran;
    int rank;
    int64_t shape[MAX_AXES];
} header;

static kv_status read_header(header *h, reader *r)
{
    kv_status status = KV_OK;
    char key[MAX_WORD];
    if (!take(r, '{')) KV_TRY(wrong(r, "must be a dictionary"));
    while (!take(r, '}')) {
        KV_TRY(read_word(key, r));
        if (!take(r, ':')) KV_TRY(wrong(r, "a colon is missing"));
        if (strcmp(key, "descr") == 0 && !h->has_descr) {
            h->has_descr = true;
            KV_TRY(read_word(h->descr, r));
        } else if (strcmp(key, "fortran_order") == 0 && !h->has_order) {
            h->has_order = true;
            KV_TRY(read_bool(&h->is_fortran, r));
        } else if (strcmp(key, "shape") == 0 && !h->has_shape) {
            h->has_shape = true;
            KV_TRY(read_shape(h->shape, &h->rank, r));
        } else {
            KV_TRY(wrong(r, "a key that is not descr, fortran_order or shape, or is there twice"));
        }
        if (take(r, ',')) continue;
        if (!take(r, '}')) KV_TRY(wrong(r, "a comma is missing"));
        break;
    }
    if (!h->has_descr || !h->has_order || !h->has_shape)
        KV_TRY(wrong(r, "descr, fortran_order or shape is missing"));
done:
    return status;
}

kv_status kv_npy_parse(kv_raw_tensor *out, const uint8_t *bytes, size_t available,
                       int64_t file_size, const char *name, kv_error *err)
{
    kv_status status = KV_OK;
    kv_raw_tensor tensor = {0};
    header h = {0};
    if (available < 10 || memcmp(bytes, "\x93NUMPY", 6) != 0)
        return KV_FAIL(err, KV_EINPUT, "%s: is no .npy file", name);
    if (bytes[6] < 1 || bytes[6] > 3 || bytes[7] != 0)
        return KV_FAIL(err, KV_EINPUT, "%s: .npy version %d.%d: must be 1.0, 2.0 or 3.0", name,
                       bytes[6], bytes[7]);
    size_t const start = bytes[6] == 1 ? 10 : 12;
    if (available < start) return KV_FAIL(err, KV_EINPUT, "%s: is cut off in its header", name);
    size_t length = 0;
    for (size_t i = start; i-- > 8;) length = length << 8 | bytes[i];
    if (length > KV_NPY_MAX_HEADER - start)
        return KV_FAIL(err, KV_EINPUT, "%s: a header of %zu bytes: must be %zu or less", name,
                       length, KV_NPY_MAX_HEADER - start);
    if (length > available - start)
        return KV_FAIL(err, KV_EINPUT, "%s: is cut off in its header", name);
    reader r = {(const char *)bytes + start, (const char *)bytes + start + length, name, err};
    KV_TRY(read_header(&h, &r));
    KV_TRY(set_type(&tensor, h.descr, &r));
    if (h.is_fortran)
        KV_TRY(KV_FAIL(err, KV_EINPUT,
                       "%s: is in Fortran order: must be in C order "
                       "(numpy.ascontiguousarray)",
                       name));
    tensor.offset = (int64_t)(start + length);
    KV_TRY(kv_raw_set_shape(&tensor, h.shape, h.rank, file_size - tensor.offset, true, name, err));
    *out = tensor;
done:
    return status;
}
