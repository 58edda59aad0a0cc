/* safetensors files (huggingface/safetensors, README "Format"): 8 bytes length N, little-endian; N
 * bytes of JSON {"NAME": {"dtype": "F16", "shape": [...], "data_offsets": [BEGIN, END]}, ...}; then
 * the numbers, offsets counted from there. Size and nesting of the JSON are bounded before it is
 * parsed. */
#include <jansson.h>
#include <string.h>

#include "kernels/memory.h"
#include "sim/capture_state.h"

enum { MAX_AXES = 8, MAX_DEPTH = 4 };

/* Deepest nesting of brackets outside of strings; parsing is Jansson's. */
static int nesting(const char *text, size_t length)
{
    int depth = 0, deepest = 0;
    bool is_text = false;
    for (size_t i = 0; i < length; i++) {
        char const c = text[i];
        if (is_text && c == '\\') {
            i++;
        } else if (c == '"') {
            is_text = !is_text;
        } else if (!is_text && (c == '{' || c == '[')) {
            depth++;
            deepest = depth > deepest ? depth : deepest;
        } else if (!is_text && (c == '}' || c == ']')) {
            depth--;
        }
    }
    return deepest;
}

static kv_status set_type(kv_raw_tensor *out, const json_t *dtype, const char *name, kv_error *err)
{
    static const struct {
        const char *dtype;
        kv_raw_type type;
    } types[] = {{"F16", KV_RAW_F16}, {"BF16", KV_RAW_BF16}, {"F32", KV_RAW_F32}};
    const char *const text = json_string_value(dtype);
    for (size_t i = 0; text && i < sizeof types / sizeof *types; i++)
        if (strcmp(text, types[i].dtype) == 0) return out->type = types[i].type, KV_OK;
    return KV_FAIL(err, KV_EINPUT, "%s: dtype %.20s: must be F16, BF16 or F32", name,
                   text ? text : "is missing");
}

/* `count` whole numbers of 0 or more; -1 where the array is no such thing. */
static int read_list(int64_t *out, int most, const json_t *array)
{
    size_t const count = json_array_size(array);
    if (!json_is_array(array) || count > (size_t)most) return -1;
    for (size_t i = 0; i < count; i++) {
        const json_t *const item = json_array_get(array, i);
        if (!json_is_integer(item) || json_integer_value(item) < 0) return -1;
        out[i] = json_integer_value(item);
    }
    return (int)count;
}

static kv_status set_tensor(kv_raw_tensor *out, const json_t *entry, int64_t data_start,
                            int64_t file_size, const char *name, kv_error *err)
{
    kv_status status = KV_OK;
    kv_raw_tensor tensor = {0};
    int64_t shape[MAX_AXES], offsets[2];
    KV_TRY(set_type(&tensor, json_object_get(entry, "dtype"), name, err));
    int const rank = read_list(shape, MAX_AXES, json_object_get(entry, "shape"));
    if (rank < 0)
        KV_TRY(KV_FAIL(err, KV_EINPUT, "%s: shape: must be a list of up to %d whole numbers", name,
                       MAX_AXES));
    if (read_list(offsets, 2, json_object_get(entry, "data_offsets")) != 2 ||
        offsets[1] < offsets[0])
        KV_TRY(KV_FAIL(err, KV_EINPUT, "%s: data_offsets: must be [begin, end]", name));
    if (offsets[1] > file_size - data_start)
        KV_TRY(KV_FAIL(err, KV_EINPUT,
                       "%s: data_offsets end at %lld, but the file has %lld bytes of data: it is "
                       "cut off",
                       name, (long long)offsets[1], (long long)(file_size - data_start)));
    KV_TRY(kv_raw_set_shape(&tensor, shape, rank, offsets[1] - offsets[0], true, name, err));
    tensor.offset = data_start + offsets[0];
    *out = tensor;
done:
    return status;
}

kv_status kv_safetensors_parse(kv_raw_tensor *out, const uint8_t *bytes, size_t available,
                               int64_t file_size, const char *tensor, const char *name,
                               kv_error *err)
{
    kv_status status = KV_OK;
    json_error_t problem;
    uint64_t length = 0;
    if (available < 8) return KV_FAIL(err, KV_EINPUT, "%s: is no safetensors file", name);
    for (int i = 8; i-- > 0;) length = length << 8 | bytes[i];
    if (length > KV_SAFETENSORS_MAX_HEADER - 8)
        return KV_FAIL(err, KV_EINPUT, "%s: a header of %llu bytes: must be %d or less", name,
                       (unsigned long long)length, KV_SAFETENSORS_MAX_HEADER - 8);
    if (length > available - 8)
        return KV_FAIL(err, KV_EINPUT, "%s: is cut off in its header", name);
    const char *const text = (const char *)bytes + 8;
    if (nesting(text, (size_t)length) > MAX_DEPTH)
        return KV_FAIL(err, KV_EINPUT, "%s: its header nests deeper than %d", name, MAX_DEPTH);
    json_t *const header = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &problem);
    if (!json_is_object(header))
        KV_TRY(KV_FAIL(err, KV_EINPUT, "%s: its header is no JSON object: %s", name,
                       header ? "something else" : problem.text));
    const json_t *const entry = json_object_get(header, tensor);
    if (!json_is_object(entry))
        KV_TRY(KV_FAIL(err, KV_EINPUT, "%s: holds no tensor of this name (%zu others)", name,
                       json_object_size(header)));
    KV_TRY(set_tensor(out, entry, 8 + (int64_t)length, file_size, name, err));
done:
    json_decref(header);
    return status;
}
