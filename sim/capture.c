/* Captures: opening, checks that hold for every kind of file, reading a head. See capture.h. */
#include "sim/capture.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/formats/bf16.h"
#include "kernels/formats/f16.h"
#include "kernels/memory.h"
#include "sim/capture_state.h"

const char *const kv_capture_tensor_names[KV_CAPTURE_TENSORS] = {"key", "value", "query"};

/* ---- raw numbers ---- */

int64_t kv_raw_size(kv_raw_type type)
{
    static const int64_t sizes[] = {
        [KV_RAW_F16] = 2, [KV_RAW_BF16] = 2, [KV_RAW_F32] = 4, [KV_RAW_F64] = 8};
    return sizes[type];
}

kv_status kv_raw_set_shape(kv_raw_tensor *tensor, const int64_t *shape, int rank,
                           int64_t bytes_there, bool is_exact, const char *name, kv_error *err)
{
    char text[128] = "";
    size_t used = 0;
    for (int i = 0; i < rank && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%lld", i ? ", " : "",
                                 (long long)shape[i]);
    if (!(rank == 2 || rank == 3 || (rank == 4 && shape[0] == 1)))
        return KV_FAIL(err, KV_EINPUT,
                       "%s: shape [%s]: must be [heads, tokens, channels], [1, heads, tokens, "
                       "channels] or, for one head, [tokens, channels]",
                       name, text);
    int64_t bytes = kv_raw_size(tensor->type);
    for (int i = 0; i < 3; i++) {
        tensor->extent[i] = i == 0 && rank == 2 ? 1 : shape[rank - 3 + i];
        if (tensor->extent[i] < 1 || !kv_multiply_sizes(bytes, tensor->extent[i], &bytes))
            return KV_FAIL(err, KV_EINPUT, "%s: shape [%s]: an extent is empty or too large", name,
                           text);
    }
    if (bytes > bytes_there || (is_exact && bytes != bytes_there))
        return KV_FAIL(err, KV_EINPUT,
                       "%s: shape [%s] takes %lld bytes, but the file has %lld for it", name, text,
                       (long long)bytes, (long long)bytes_there);
    return KV_OK;
}

static void to_float(float *out, const uint8_t *raw, kv_raw_type type, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *const at = raw + i * kv_raw_size(type);
        uint16_t half;
        double wide;
        switch (type) {
        case KV_RAW_F16: memcpy(&half, at, sizeof half), out[i] = kv_f16_decode(half); break;
        case KV_RAW_BF16: memcpy(&half, at, sizeof half), out[i] = kv_bf16_decode(half); break;
        case KV_RAW_F32: memcpy(&out[i], at, sizeof *out); break;
        case KV_RAW_F64: memcpy(&wide, at, sizeof wide), out[i] = (float)wide; break;
        }
    }
}

/* ---- checks of a layer ---- */

/* The extents agree with each other, and positions lie inside. */
static kv_status check_layer(kv_opened_layer *layer, kv_error *err)
{
    const int64_t *const key = layer->raw[KV_CAPTURE_KEY].extent;
    const int64_t *const value = layer->raw[KV_CAPTURE_VALUE].extent;
    const int64_t *const query = layer->raw[KV_CAPTURE_QUERY].extent;
    kv_capture_layer *const about = &layer->about;
    bool const has_query = query[0] > 0;
    if (memcmp(key, value, 3 * sizeof *key) != 0)
        return KV_FAIL(err, KV_EINPUT,
                       "%s: value has the shape [%lld, %lld, %lld], but key has "
                       "[%lld, %lld, %lld]",
                       layer->name, (long long)value[0], (long long)value[1], (long long)value[2],
                       (long long)key[0], (long long)key[1], (long long)key[2]);
    if (has_query && query[2] != key[2])
        return KV_FAIL(err, KV_EINPUT, "%s: query has %lld channels, but key has %lld", layer->name,
                       (long long)query[2], (long long)key[2]);
    if (query[0] % key[0] != 0) /* 0 heads without queries */
        return KV_FAIL(err, KV_EINPUT, "%s: %lld query heads: must be a multiple of %lld kv heads",
                       layer->name, (long long)query[0], (long long)key[0]);
    about->kv_heads = key[0], about->tokens = key[1], about->head_dim = key[2];
    about->query_heads = query[0], about->queries = query[1];
    for (int64_t i = 0; i < about->queries; i++)
        if (layer->query_position[i] < 0 || layer->query_position[i] >= about->tokens)
            return KV_FAIL(err, KV_EINPUT,
                           "%s: query_position[%lld] is %lld: must be 0 to tokens - 1 = %lld",
                           layer->name, (long long)i, (long long)layer->query_position[i],
                           (long long)about->tokens - 1);
    about->query_position = layer->query_position;
    kv_rope *rope =
        NULL; /* its settings are checked where they are used, too; here with the name */
    kv_error inner = {0};
    kv_status const status = kv_rope_create(&rope, &about->rope, about->head_dim, &inner);
    kv_rope_free(rope);
    if (status != KV_OK)
        return KV_FAIL(err, status == KV_EREQUEST ? KV_EINPUT : status, "%s: %s", layer->name,
                       inner.message);
    return KV_OK;
}

static int by_number(const void *a, const void *b)
{
    int64_t const x = ((const kv_opened_layer *)a)->about.layer;
    int64_t const y = ((const kv_opened_layer *)b)->about.layer;
    return (x > y) - (x < y);
}

static kv_status check(kv_capture *capture, kv_error *err)
{
    for (int64_t i = 0; i < capture->n_layers; i++) {
        kv_status const status = check_layer(&capture->layers[i], err);
        if (status != KV_OK) return status;
    }
    qsort(capture->layers, (size_t)capture->n_layers, sizeof *capture->layers, by_number);
    for (int64_t i = 1; i < capture->n_layers; i++)
        if (capture->layers[i].about.layer == capture->layers[i - 1].about.layer)
            return KV_FAIL(err, KV_EINPUT, "%s: layer %lld is there twice", capture->layers[i].name,
                           (long long)capture->layers[i].about.layer);
    return KV_OK;
}

/* ---- tensors in files of their own ---- */

typedef kv_status parse(kv_raw_tensor *out, const uint8_t *bytes, size_t available,
                        int64_t file_size, const char *tensor, const char *name, kv_error *err);

static kv_status parse_npy(kv_raw_tensor *out, const uint8_t *bytes, size_t available,
                           int64_t file_size, const char *tensor, const char *name, kv_error *err)
{
    if (tensor)
        return KV_FAIL(err, KV_EREQUEST, "%s: a .npy file holds one tensor without a name", name);
    return kv_npy_parse(out, bytes, available, file_size, name, err);
}

static kv_status parse_safetensors(kv_raw_tensor *out, const uint8_t *bytes, size_t available,
                                   int64_t file_size, const char *tensor, const char *name,
                                   kv_error *err)
{
    if (!tensor)
        return KV_FAIL(err, KV_EREQUEST, "%s: which tensor? write FILE.safetensors:NAME", name);
    return kv_safetensors_parse(out, bytes, available, file_size, tensor, name, err);
}

static const struct {
    const char *ending;
    parse *parse;
    size_t max_header;
} kinds[] = {{".npy", parse_npy, KV_NPY_MAX_HEADER},
             {".safetensors", parse_safetensors, KV_SAFETENSORS_MAX_HEADER}};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static bool ends_in(const char *text, size_t length, const char *ending)
{
    size_t const n = strlen(ending);
    return length >= n && memcmp(text + length - n, ending, n) == 0;
}

/* Splits "FILE.npy" or "FILE.safetensors:NAME" at the last colon behind a known ending. */
static int find_kind(size_t *path_length, const char **tensor, const char *text)
{
    size_t const length = strlen(text);
    for (size_t n = length + 1; n-- > 0;) {
        if (n != length && text[n] != ':') continue;
        for (int k = 0; k < N_KINDS; k++)
            if (ends_in(text, n, kinds[k].ending)) {
                *path_length = n, *tensor = n == length ? NULL : text + n + 1;
                return k;
            }
    }
    return -1;
}

/* The first bytes of a file, at most `most`, and its size. */
static kv_status read_beginning(uint8_t **out, size_t *available, int64_t *file_size,
                                const char *path, size_t most, kv_error *err)
{
    kv_status status = KV_OK;
    uint8_t *bytes = NULL;
    FILE *const file = fopen(path, "rb");
    if (!file) KV_TRY(KV_FAIL(err, KV_EIO, "%s: %s", path, strerror(errno)));
    if (fseeko(file, 0, SEEK_END) != 0 || (*file_size = (int64_t)ftello(file)) < 0 ||
        fseeko(file, 0, SEEK_SET) != 0)
        KV_TRY(KV_FAIL(err, KV_EIO, "%s: %s", path, strerror(errno)));
    if ((uint64_t)*file_size < most) most = (size_t)*file_size;
    KV_TRY(kv_allocate((void **)&bytes, most, 1, err));
    if (fread(bytes, 1, most, file) != most) KV_TRY(KV_FAIL(err, KV_EIO, "%s: cannot read", path));
    *out = bytes, *available = most, bytes = NULL;
done:
    kv_free(bytes);
    if (file) fclose(file);
    return status;
}

static kv_status open_raw(kv_opened_layer *layer, kv_capture_tensor tensor, const char *text,
                          kv_error *err)
{
    kv_status status = KV_OK;
    uint8_t *bytes = NULL;
    size_t path_length = 0, available = 0;
    int64_t file_size = 0;
    const char *name = NULL;
    int const kind = text ? find_kind(&path_length, &name, text) : -1;
    if (text && !*text) text = NULL;
    if (!text && tensor == KV_CAPTURE_QUERY) return KV_OK; /* queries may be made up later */
    if (!text)
        KV_TRY(KV_FAIL(err, KV_EREQUEST, "%s: %s is missing", layer->name,
                       kv_capture_tensor_names[tensor]));
    if (kind < 0)
        KV_TRY(KV_FAIL(err, KV_EREQUEST, "%s: %s: %s: must be FILE.npy or FILE.safetensors:NAME",
                       layer->name, kv_capture_tensor_names[tensor], text));
    KV_TRY(kv_duplicate_part(&layer->path[tensor], text, path_length, err));
    KV_TRY(read_beginning(&bytes, &available, &file_size, layer->path[tensor],
                          kinds[kind].max_header, err));
    KV_TRY(kinds[kind].parse(&layer->raw[tensor], bytes, available, file_size, name, text, err));
done:
    kv_free(bytes);
    return status;
}

static kv_status open_spec(kv_opened_layer *layer, const kv_capture_spec *spec, kv_error *err)
{
    kv_status status = KV_OK;
    char name[64];
    snprintf(name, sizeof name, "layer %lld", (long long)spec->about.layer);
    KV_TRY(kv_duplicate(&layer->name, name, err));
    layer->about = spec->about;
    for (int tensor = 0; tensor < KV_CAPTURE_TENSORS; tensor++)
        KV_TRY(open_raw(layer, (kv_capture_tensor)tensor, spec->tensor[tensor], err));
    int64_t const tokens = layer->raw[KV_CAPTURE_KEY].extent[1];
    int64_t const queries = layer->raw[KV_CAPTURE_QUERY].extent[1];
    KV_TRY(kv_allocate((void **)&layer->query_position, (size_t)queries, sizeof(int64_t), err));
    if (spec->about.query_position && spec->about.queries != queries)
        KV_TRY(KV_FAIL(err, KV_EREQUEST, "%s: %lld query positions, but query has %lld rows", name,
                       (long long)spec->about.queries, (long long)queries));
    for (int64_t i = 0; i < queries; i++)
        layer->query_position[i] =
            spec->about.query_position ? spec->about.query_position[i] : tokens - queries + i;
done:
    return status;
}

/* ---- the public functions ---- */

static kv_status create(kv_capture **out, const char *path, kv_error *err)
{
    kv_status status = KV_OK;
    kv_capture *capture = NULL;
    KV_TRY(kv_allocate((void **)&capture, 1, sizeof *capture, err));
    *out = capture; /* the caller closes it, also on failure below */
    KV_TRY(kv_duplicate(&capture->path, path, err));
done:
    return status;
}

kv_status kv_capture_open(kv_capture **out, const char *path, kv_error *err)
{
    kv_status status = KV_OK;
    kv_capture *capture = NULL;
    KV_TRY(create(&capture, path, err));
    KV_TRY(kv_capture_open_hdf5(capture, path, err));
    KV_TRY(check(capture, err));
    *out = capture, capture = NULL;
done:
    kv_capture_close(capture);
    return status;
}

kv_status kv_capture_open_tensors(kv_capture **out, const kv_capture_spec *specs, int64_t count,
                                  kv_error *err)
{
    kv_status status = KV_OK;
    kv_capture *capture = NULL;
    KV_TRY(create(&capture, "", err));
    if (count < 1) KV_TRY(KV_FAIL(err, KV_EREQUEST, "a capture needs at least one layer"));
    KV_TRY(kv_allocate((void **)&capture->layers, (size_t)count, sizeof *capture->layers, err));
    capture->n_layers = count;
    for (int64_t i = 0; i < count; i++) KV_TRY(open_spec(&capture->layers[i], &specs[i], err));
    KV_TRY(check(capture, err));
    *out = capture, capture = NULL;
done:
    kv_capture_close(capture);
    return status;
}

void kv_capture_close(kv_capture *capture)
{
    if (!capture) return;
    for (int64_t i = 0; i < capture->n_layers; i++) {
        kv_opened_layer *const layer = &capture->layers[i];
        kv_free(layer->query_position);
        kv_free(layer->name);
        for (int tensor = 0; tensor < KV_CAPTURE_TENSORS; tensor++) kv_free(layer->path[tensor]);
    }
    kv_free(capture->layers);
    kv_hdf5_close(capture->hdf5);
    kv_free(capture->path);
    kv_free(capture->model);
    kv_free(capture->source);
    kv_free(capture);
}

int64_t kv_capture_layers(const kv_capture *capture)
{
    return capture->n_layers;
}

const kv_capture_layer *kv_capture_layer_at(const kv_capture *capture, int64_t index)
{
    return &capture->layers[index].about;
}

int64_t kv_capture_find(const kv_capture *capture, int64_t layer)
{
    for (int64_t i = 0; i < capture->n_layers; i++)
        if (capture->layers[i].about.layer == layer) return i;
    return -1;
}

const char *kv_capture_model(const kv_capture *capture)
{
    return capture->model ? capture->model : "";
}

const char *kv_capture_source(const kv_capture *capture)
{
    return capture->source ? capture->source : "";
}

static kv_status read_raw(uint8_t *out, const kv_raw_tensor *raw, const char *path, int64_t head,
                          int64_t bytes, kv_error *err)
{
    kv_status status = KV_OK;
    FILE *const file = fopen(path, "rb");
    if (!file) KV_TRY(KV_FAIL(err, KV_EIO, "%s: %s", path, strerror(errno)));
    if (fseeko(file, (off_t)(raw->offset + head * bytes), SEEK_SET) != 0 ||
        fread(out, 1, (size_t)bytes, file) != (size_t)bytes)
        KV_TRY(KV_FAIL(err, KV_EIO, "%s: cannot read head %lld: the file has changed", path,
                       (long long)head));
done:
    if (file) fclose(file);
    return status;
}

kv_status kv_capture_load(float *out, const kv_capture *capture, int64_t index,
                          kv_capture_tensor tensor, int64_t head, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_opened_layer *const layer = &capture->layers[index];
    const kv_raw_tensor *const raw = &layer->raw[tensor];
    const char *const what = kv_capture_tensor_names[tensor];
    int64_t const count = raw->extent[1] * raw->extent[2], bytes = count * kv_raw_size(raw->type);
    uint8_t *buffer = NULL;
    if (head < 0 || head >= raw->extent[0])
        KV_TRY(KV_FAIL(err, KV_EREQUEST, "%s: %s: head %lld: must be 0 to %lld", layer->name, what,
                       (long long)head, (long long)raw->extent[0] - 1));
    KV_TRY(kv_allocate((void **)&buffer, (size_t)bytes, 1, err));
    KV_TRY(capture->hdf5 ? kv_hdf5_read_head(buffer, capture, layer, tensor, head, err)
                         : read_raw(buffer, raw, layer->path[tensor], head, bytes, err));
    to_float(out, buffer, raw->type, count);
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(out[i]))
            KV_TRY(KV_FAIL(err, KV_ENUMERIC, "%s: %s: head %lld, %s %lld, channel %lld is %s",
                           layer->name, what, (long long)head,
                           tensor == KV_CAPTURE_QUERY ? "query" : "token",
                           (long long)(i / raw->extent[2]), (long long)(i % raw->extent[2]),
                           isnan(out[i]) ? "NaN" : "infinite"));
done:
    kv_free(buffer);
    return status;
}
