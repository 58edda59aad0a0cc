/* Captures: small HDF5, .npy and .safetensors files made here are read back exactly; every kind of
 * broken file gets its exact message; running out of memory at any point leaks nothing. */
#include "sim/capture.h"

#include <errno.h>
#include <hdf5.h>
#include <stdlib.h>
#include <unistd.h>

#include "kernels/memory.h"
#include "sim/capture_state.h"
#include "sim/heads.h"
#include "tests/check.h"

/* ---- HDF5 files made here ---- */

/* What a file has that a good one has not. */
typedef struct {
    const char *without;     /* an attribute or dataset left out */
    bool is_query_free;      /* query and query_position left out */
    const char *name, *text; /* an attribute that is this text, */
    double number;           /* or (text NULL) this number */
    const char *shaped;      /* a dataset that has this shape */
    int rank;
    hsize_t shape[4];
    hid_t type;       /* of the numbers of `shaped`, 0 for the usual */
    int64_t position; /* of the last query */
    float planted;    /* key of head 1, token 2, channel 3 */
    long cut;         /* bytes the file is cut to */
    int layers;       /* groups, all saying they are layer 3 */
} change;

static hid_t half_type(void)
{
    hid_t const type = H5Tcopy(H5T_IEEE_F32LE);
    H5Tset_fields(type, 15, 10, 5, 0, 10);
    H5Tset_size(type, 2);
    H5Tset_ebias(type, 15);
    return type;
}

/* Exact in f16: tensor 0 ... 2, element i. */
static float stored(int tensor, int64_t i)
{
    return (float)(i % 97 - 48) / 16 + (float)tensor;
}

static void put_number(hid_t object, const char *name, double value)
{
    hid_t const space = H5Screate(H5S_SCALAR);
    hid_t const attribute =
        H5Acreate2(object, name, H5T_IEEE_F64LE, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(attribute, H5T_NATIVE_DOUBLE, &value);
    H5Aclose(attribute);
    H5Sclose(space);
}

/* Variable-length, or with is_fixed of fixed length; both are about. */
static void put_text(hid_t object, const char *name, const char *value, bool is_fixed)
{
    hid_t const space = H5Screate(H5S_SCALAR), type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, is_fixed ? strlen(value) : H5T_VARIABLE);
    hid_t const attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    if (is_fixed)
        H5Awrite(attribute, type, value);
    else
        H5Awrite(attribute, type, &value);
    H5Aclose(attribute);
    H5Tclose(type);
    H5Sclose(space);
}

static void put_attribute(hid_t object, const char *name, const char *text, double number,
                          const change *c)
{
    bool const is_changed = c->name && strcmp(c->name, name) == 0;
    if (c->without && strcmp(c->without, name) == 0) return;
    if (is_changed) text = c->text, number = c->number;
    if (text)
        put_text(object, name, text, strcmp(name, "rope_layout") == 0);
    else
        put_number(object, name, number);
}

static void put_tensor(hid_t group, int tensor, const change *c)
{
    static const hsize_t shapes[3][3] = {{2, 6, 4}, {2, 6, 4}, {4, 3, 4}};
    const char *const name = kv_capture_tensor_names[tensor];
    bool const is_changed = c->shaped && strcmp(c->shaped, name) == 0;
    const hsize_t *const shape = is_changed && c->rank ? c->shape : shapes[tensor];
    int const rank = is_changed && c->rank ? c->rank : 3;
    if (c->is_query_free && tensor == KV_CAPTURE_QUERY) return;
    if (c->without && strcmp(c->without, name) == 0) return;
    int64_t count = 1;
    for (int i = 0; i < rank; i++) count *= (int64_t)shape[i];
    float *const x = malloc((size_t)(count + 1) * sizeof *x);
    for (int64_t i = 0; i < count; i++) x[i] = stored(tensor, i);
    if (tensor == 0 && c->planted != 0 && count > 35) x[35] = c->planted;
    hid_t const half = half_type(), space = H5Screate_simple(rank, shape, NULL);
    hid_t const usual = tensor == KV_CAPTURE_VALUE ? H5T_IEEE_F32BE : half; /* both are read */
    hid_t const dataset = H5Dcreate2(group, name, is_changed && c->type ? c->type : usual, space,
                                     H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Dwrite(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, x);
    H5Dclose(dataset);
    H5Sclose(space);
    H5Tclose(half);
    free(x);
}

static void put_positions(hid_t group, const change *c)
{
    if (c->is_query_free) return;
    bool const is_changed = c->shaped && strcmp(c->shaped, "query_position") == 0;
    hsize_t const n = is_changed && c->rank ? c->shape[0] : 3;
    int64_t const positions[5] = {1, 3, c->position ? c->position : 5, 5, 5};
    if (c->without && strcmp(c->without, "query_position") == 0) return;
    hid_t const space = H5Screate_simple(1, &n, NULL);
    hid_t const dataset =
        H5Dcreate2(group, "query_position", is_changed && c->type ? c->type : H5T_STD_I32LE, space,
                   H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Dwrite(dataset, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, positions);
    H5Dclose(dataset);
    H5Sclose(space);
}

static void write_capture(const char *path, const change *c)
{
    hid_t const file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    put_attribute(file, "kvant_capture", NULL, 1, c);
    put_attribute(file, "model", "tiny", 0, c);
    for (int i = 0; i < (c->layers ? c->layers : 1); i++) {
        char name[32];
        snprintf(name, sizeof name, "layer_%03d", 3 + i);
        if (c->without && strcmp(c->without, "layers") == 0) break;
        hid_t const group = H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        put_attribute(group, "layer", NULL, 3, c);
        put_attribute(group, "key_position", "post-rope", 0, c);
        put_attribute(group, "rope_layout", "half", 0, c);
        put_attribute(group, "rope_theta", NULL, 10000, c);
        put_attribute(group, "window", NULL, 4, c);
        if (c->name && H5Aexists(group, c->name) <= 0 && H5Aexists(file, c->name) <= 0)
            put_attribute(group, c->name, NULL, 0, c);
        for (int tensor = 0; tensor < 3; tensor++) put_tensor(group, tensor, c);
        put_positions(group, c);
        H5Gclose(group);
    }
    H5Fclose(file);
    if (c->cut && truncate(path, c->cut) != 0) printf("cannot cut %s\n", path);
}

static void write_bytes(const char *path, const void *bytes, size_t size);

static void check_good(void)
{
    kv_error err = {0};
    kv_capture *capture = NULL;
    write_capture("t.h5", &(change){0});
    CHECK(kv_capture_open(&capture, "t.h5", &err) == KV_OK, "%s", err.message);
    if (!capture) return;
    CHECK_TEXT(kv_capture_model(capture), "tiny");
    CHECK_TEXT(kv_capture_source(capture), "");
    CHECK(kv_capture_layers(capture) == 1, "layers");
    CHECK(kv_capture_find(capture, 3) == 0 && kv_capture_find(capture, 0) == -1, "find");
    const kv_capture_layer *const l = kv_capture_layer_at(capture, 0);
    CHECK(l->kv_heads == 2 && l->query_heads == 4 && l->tokens == 6 && l->head_dim == 4 &&
              l->queries == 3 && l->window == 4 && !l->is_key_pre_rope && l->softmax_scale == 0 &&
              l->rope.layout == KV_ROPE_HALF && l->rope.base == 10000,
          "attributes");
    CHECK(l->query_position[0] == 1 && l->query_position[1] == 3 && l->query_position[2] == 5,
          "positions");
    for (int tensor = 0; tensor < 3; tensor++)
        for (int64_t head = 0; head < (tensor == KV_CAPTURE_QUERY ? 4 : 2); head++) {
            float x[24] = {0};
            int64_t const size = tensor == KV_CAPTURE_QUERY ? 12 : 24;
            CHECK(kv_capture_load(x, capture, 0, (kv_capture_tensor)tensor, head, &err) == KV_OK,
                  "%s", err.message);
            for (int64_t i = 0; i < size; i++)
                CHECK(x[i] == stored(tensor, head * size + i), "tensor %d, head %d", tensor,
                      (int)head);
        }
    float x[24];
    CHECK(kv_capture_load(x, capture, 0, KV_CAPTURE_KEY, 2, &err) == KV_EREQUEST, "no such head");
    CHECK_TEXT(err.message, "t.h5: layer_003: key: head 2: must be 0 to 1");
    kv_capture_close(capture);
}

/* With every setting a layer may have. */
/* Whole, broken and missing files all come back from the probe: only a crash or a hang is its own.
 */
static void check_probe(void)
{
    kv_error err = {0};
    write_capture("t.h5", &(change){0});
    CHECK(kv_capture_probe("t.h5", &err) == KV_OK, "%s", err.message);
    write_bytes("broken.h5", "\211HDF\r\n\032\n and no more", 20);
    CHECK(kv_capture_probe("broken.h5", &err) == KV_OK, "%s", err.message);
    CHECK(kv_capture_probe("missing.h5", &err) == KV_OK, "%s", err.message);
}

static void check_optional(void)
{
    static const struct {
        const char *name, *text;
        double number;
    } rows[] = {{"rotary_dim", NULL, 2},
                {"softmax_scale", NULL, 0.0625},
                {"key_position", "pre-rope", 0},
                {"rope_layout", "none", 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kv_error err = {0};
        kv_capture *capture = NULL;
        write_capture(
            "t.h5",
            &(change){.name = rows[i].name, .text = rows[i].text, .number = rows[i].number});
        CHECK(kv_capture_open(&capture, "t.h5", &err) == KV_OK, "%s", err.message);
        if (!capture) continue;
        const kv_capture_layer *const l = kv_capture_layer_at(capture, 0);
        CHECK(l->rope.rotary_dim == (i == 0 ? 2 : 0), "rotary_dim");
        CHECK(l->softmax_scale == (i == 1 ? 0.0625 : 0), "softmax_scale");
        CHECK(l->is_key_pre_rope == (i == 2), "key_position");
        CHECK(l->rope.layout == (i == 3 ? KV_ROPE_NONE : KV_ROPE_HALF), "rope_layout");
        kv_capture_close(capture);
    }
    kv_error err = {0};
    kv_capture *capture = NULL;
    write_capture("t.h5", &(change){.is_query_free = true});
    CHECK(kv_capture_open(&capture, "t.h5", &err) == KV_OK, "%s", err.message);
    if (capture) CHECK(kv_capture_layer_at(capture, 0)->query_heads == 0, "queries to be drawn");
    kv_capture_close(capture);
}

static void check_broken(void)
{
    const struct {
        change change;
        const char *message;
    } rows[] = {
        {{.without = "kvant_capture"}, "t.h5: attribute kvant_capture is missing"},
        {{.name = "kvant_capture", .number = 2}, "t.h5: attribute kvant_capture: 2: must be 1"},
        {{.name = "kvant_capture", .text = "yes"},
         "t.h5: attribute kvant_capture: must be one number"},
        {{.without = "layers"}, "t.h5: holds no group layer_NNN"},
        {{.without = "layer"}, "t.h5: layer_003: attribute layer is missing"},
        {{.name = "layer", .number = -1},
         "t.h5: layer_003: attribute layer: -1: must be a whole number, 0 or more"},
        {{.layers = 2}, "t.h5: layer_004: layer 3 is there twice"},
        {{.without = "key_position"}, "t.h5: layer_003: attribute key_position is missing"},
        {{.name = "key_position", .text = "rotated"},
         "t.h5: layer_003: attribute key_position: rotated: must be one of pre-rope, post-rope"},
        {{.name = "key_position", .number = 1},
         "t.h5: layer_003: attribute key_position: not a text: must be one of pre-rope, "
         "post-rope"},
        {{.name = "rope_layout", .text = "neox"},
         "t.h5: layer_003: attribute rope_layout: neox: must be one of none, half, interleaved"},
        {{.without = "rope_theta"}, "t.h5: layer_003: attribute rope_theta is missing"},
        {{.name = "rope_theta", .number = -5},
         "t.h5: layer_003: attribute rope_theta: -5: must be a number above 1"},
        {{.name = "rope_theta", .number = NAN},
         "t.h5: layer_003: attribute rope_theta: nan: must be a number above 1"},
        {{.without = "window"}, "t.h5: layer_003: attribute window is missing"},
        {{.name = "window", .number = 1.5},
         "t.h5: layer_003: attribute window: 1.5: must be a whole number, 0 or more"},
        {{.name = "rotary_dim", .number = 3},
         "t.h5: layer_003: rope.rotary_dim: 3: must be even, at least 2 and at most head_dim = 4"},
        {{.name = "rope_scaling", .text = "dynamic"},
         "t.h5: layer_003: attribute rope_scaling: dynamic: must be one of none, linear, ntk, "
         "yarn, llama3"},
        {{.name = "rope_scaling", .text = "linear"},
         "t.h5: layer_003: rope.factor: 0: scaling linear needs a factor of 1 or more"},
        {{.name = "softmax_scale", .number = -1},
         "t.h5: layer_003: attribute softmax_scale: -1: must be above 0"},
        {{.without = "key"}, "t.h5: layer_003: dataset key is missing"},
        {{.without = "value"}, "t.h5: layer_003: dataset value is missing"},
        {{.without = "query"}, "t.h5: layer_003: dataset query is missing"},
        {{.without = "query_position"}, "t.h5: layer_003: dataset query_position is missing"},
        {{.shaped = "key", .rank = 2, .shape = {6, 4}},
         "t.h5: layer_003/key: 2 axes, must be 3: kv head, token, channel"},
        {{.shaped = "key", .rank = 3, .shape = {2, 0, 4}},
         "t.h5: layer_003/key: axis 1 has the extent 0: empty or too large"},
        {{.shaped = "query", .rank = 4, .shape = {1, 4, 3, 4}},
         "t.h5: layer_003/query: 4 axes, must be 3: query head, query, channel"},
        {{.shaped = "value", .rank = 3, .shape = {2, 5, 4}},
         "t.h5: layer_003: value has the shape [2, 5, 4], but key has [2, 6, 4]"},
        {{.shaped = "query", .rank = 3, .shape = {3, 3, 4}},
         "t.h5: layer_003: 3 query heads: must be a multiple of 2 kv heads"},
        {{.shaped = "query", .rank = 3, .shape = {4, 3, 8}},
         "t.h5: layer_003: query has 8 channels, but key has 4"},
        {{.shaped = "key", .type = H5T_IEEE_F64LE},
         "t.h5: layer_003/key: its numbers must be float16 or float32"},
        {{.shaped = "value", .type = H5T_STD_I16LE},
         "t.h5: layer_003/value: its numbers must be float16 or float32"},
        {{.shaped = "query_position", .rank = 1, .shape = {5}},
         "t.h5: layer_003/query_position: 5 positions, but query has 3 rows"},
        {{.shaped = "query_position", .type = H5T_IEEE_F64LE},
         "t.h5: layer_003/query_position: its numbers must be integers"},
        {{.position = 6}, "t.h5: layer_003: query_position[2] is 6: must be 0 to tokens - 1 = 5"},
        {{.position = -1}, "t.h5: layer_003: query_position[2] is -1: must be 0 to tokens - 1 = 5"},
        {{.cut = 900}, "t.h5: no whole HDF5 file (H5Fopen failed)"},
        {{.cut = 3}, "t.h5: no whole HDF5 file (H5Fopen failed)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kv_error err = {0};
        kv_capture *capture = NULL;
        write_capture("t.h5", &rows[i].change);
        CHECK(kv_capture_open(&capture, "t.h5", &err) == KV_EINPUT && !capture, "row %zu", i);
        CHECK_TEXT(err.message, rows[i].message);
    }
    static const struct {
        float planted;
        const char *message;
    } numbers[] = {
        {NAN, "t.h5: layer_003: key: head 1, token 2, channel 3 is NaN"},
        {INFINITY, "t.h5: layer_003: key: head 1, token 2, channel 3 is infinite"},
    };
    for (size_t i = 0; i < 2; i++) {
        kv_error err = {0};
        kv_capture *capture = NULL;
        float x[24];
        write_capture("t.h5", &(change){.planted = numbers[i].planted});
        CHECK(kv_capture_open(&capture, "t.h5", &err) == KV_OK, "%s", err.message);
        CHECK(kv_capture_load(x, capture, 0, KV_CAPTURE_KEY, 1, &err) == KV_ENUMERIC, "NaN");
        CHECK_TEXT(err.message, numbers[i].message);
        kv_capture_close(capture);
    }
    kv_error err = {0};
    kv_capture *capture = NULL;
    CHECK(kv_capture_open(&capture, "none.h5", &err) == KV_EIO, "a missing file");
    CHECK_TEXT(err.message, "none.h5: No such file or directory");
}

/* ---- .npy and .safetensors ---- */

/* A .npy file in memory: version, header text, then `numbers` bytes. Returns its size. */
static size_t make_npy(uint8_t *out, int version, const char *header, size_t numbers)
{
    size_t const length = strlen(header), start = version == 1 ? 10 : 12;
    memcpy(out, "\x93NUMPY", 6);
    out[6] = (uint8_t)version, out[7] = 0;
    for (size_t i = 8; i < start; i++) out[i] = (uint8_t)(length >> 8 * (i - 8));
    memcpy(out + start, header, length);
    memset(out + start + length, 0, numbers);
    return start + length + numbers;
}

static void check_npy(void)
{
    static const struct {
        int version;
        const char *header;
        size_t numbers;
        const char *message; /* NULL: good */
    } rows[] = {
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4), }", 96, NULL},
        {2, "{\"shape\":(2,3,4),'descr':'<f2','fortran_order':False}\n", 48, NULL},
        {3, "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2, 3, 4)}", 192, NULL},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4)}", 48, NULL},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4)}", 95,
         "x: shape [2, 3, 4] takes 96 bytes, but the file has 95 for it"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4)}", 97,
         "x: shape [2, 3, 4] takes 96 bytes, but the file has 97 for it"},
        {1, "{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3, 4)}", 96,
         "x: numbers of type '>f4': must be '<f2', '<f4' or '<f8'"},
        {1, "{'descr': '|V2', 'fortran_order': False, 'shape': (2, 3, 4)}", 48,
         "x: numbers of type '|V2': must be '<f2', '<f4' or '<f8'"},
        {1, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3, 4)}", 96,
         "x: is in Fortran order: must be in C order (numpy.ascontiguousarray)"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 3, 4)}", 192,
         "x: shape [2, 2, 3, 4]: must be [heads, tokens, channels], [1, heads, tokens, channels] "
         "or, for one head, [tokens, channels]"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': ()}", 4,
         "x: shape []: must be [heads, tokens, channels], [1, heads, tokens, channels] or, for one "
         "head, [tokens, channels]"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 0, 4)}", 0,
         "x: shape [2, 0, 4]: an extent is empty or too large"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 4)}", 96,
         "x: shape [4294967296, 4294967296, 4]: an extent is empty or too large"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999, 1, 4)}", 96,
         "x: broken .npy header: an extent is too large"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, -3, 4)}", 96,
         "x: broken .npy header: shape: a number is missing"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': [2, 3, 4]}", 96,
         "x: broken .npy header: shape: must be a tuple"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4", 96,
         "x: broken .npy header: shape: is not closed"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", 4,
         "x: broken .npy header: shape: too many axes"},
        {1, "{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 3, 4)}", 96,
         "x: broken .npy header: fortran_order: must be True or False"},
        {1, "{'descr': '<f4', 'shape': (2, 3, 4)}", 96,
         "x: broken .npy header: descr, fortran_order or shape is missing"},
        {1, "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4)}", 96,
         "x: broken .npy header: a key that is not descr, fortran_order or shape, or is there "
         "twice"},
        {1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 3, 4)}", 96,
         "x: broken .npy header: a quoted word is missing"},
        {1, "{'descr': '<f4", 96, "x: broken .npy header: a quote is not closed"},
        {1, "{'descr' '<f4'}", 96, "x: broken .npy header: a colon is missing"},
        {1, "{'descr': '<f4' 'shape': (1,)}", 96, "x: broken .npy header: a comma is missing"},
        {1, "", 96, "x: broken .npy header: must be a dictionary"},
        {4, "{}", 0, "x: .npy version 4.0: must be 1.0, 2.0 or 3.0"},
    };
    uint8_t bytes[512];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kv_error err = {0};
        kv_raw_tensor tensor;
        size_t const size = make_npy(bytes, rows[i].version, rows[i].header, rows[i].numbers);
        kv_status const status = kv_npy_parse(&tensor, bytes, size, (int64_t)size, "x", &err);
        CHECK(status == (rows[i].message ? KV_EINPUT : KV_OK), "row %zu: %s", i, err.message);
        CHECK_TEXT(err.message, rows[i].message ? rows[i].message : "");
        if (!rows[i].message)
            CHECK(tensor.extent[1] == 3 && tensor.extent[2] == 4 &&
                      tensor.offset == (int64_t)(size - rows[i].numbers),
                  "row %zu", i);
    }
    kv_error err = {0};
    kv_raw_tensor tensor;
    CHECK(kv_npy_parse(&tensor, (const uint8_t *)"\x93NUMPY\1\0\x80\0{", 11, 11, "x", &err) ==
              KV_EINPUT,
          "a cut header");
    CHECK_TEXT(err.message, "x: is cut off in its header");
    err = (kv_error){0};
    kv_npy_parse(&tensor, (const uint8_t *)"PK\3\4 zip file", 12, 12, "x", &err);
    CHECK_TEXT(err.message, "x: is no .npy file");
}

static size_t make_safetensors(uint8_t *out, const char *header, size_t numbers)
{
    size_t const length = strlen(header);
    for (size_t i = 0; i < 8; i++) out[i] = (uint8_t)((uint64_t)length >> 8 * i);
    memcpy(out + 8, header, length);
    memset(out + 8 + length, 0, numbers);
    return 8 + length + numbers;
}

static void check_safetensors(void)
{
    static const struct {
        const char *header;
        size_t numbers;
        const char *message; /* NULL: good */
    } rows[] = {
        {"{\"__metadata__\":{\"a\":\"b\"},\"k\":{\"dtype\":\"F16\",\"shape\":[2,3,4],"
         "\"data_offsets\":[0,48]}}",
         48, NULL},
        {"{\"k\":{\"dtype\":\"BF16\",\"shape\":[1,2,3,4],\"data_offsets\":[0,48]}}   ", 48, NULL},
        {"{\"k\":{\"dtype\":\"F32\",\"shape\":[2,3,4],\"data_offsets\":[0,96]}}", 200, NULL},
        {"{\"q\":{}}", 8, "x: holds no tensor of this name (1 others)"},
        {"[]", 8, "x: its header is no JSON object: something else"},
        {"{\"k\":", 8, "x: its header is no JSON object: unexpected token near end of file"},
        {"{\"k\":{}, \"k\":{}}", 8,
         "x: its header is no JSON object: duplicate object key near '\"k\"'"},
        {"{\"k\":{\"a\":[[[[]]]]}}", 8, "x: its header nests deeper than 4"},
        {"{\"k\":{\"shape\":[2,3,4],\"data_offsets\":[0,48]}}", 48,
         "x: dtype is missing: must be F16, BF16 or F32"},
        {"{\"k\":{\"dtype\":\"F8_E4M3\",\"shape\":[2,3,4],\"data_offsets\":[0,24]}}", 24,
         "x: dtype F8_E4M3: must be F16, BF16 or F32"},
        {"{\"k\":{\"dtype\":\"F16\",\"shape\":[2,3,4.5],\"data_offsets\":[0,48]}}", 48,
         "x: shape: must be a list of up to 8 whole numbers"},
        {"{\"k\":{\"dtype\":\"F16\",\"shape\":[2,-3,4],\"data_offsets\":[0,48]}}", 48,
         "x: shape: must be a list of up to 8 whole numbers"},
        {"{\"k\":{\"dtype\":\"F16\",\"shape\":[2,3,4]}}", 48,
         "x: data_offsets: must be [begin, end]"},
        {"{\"k\":{\"dtype\":\"F16\",\"shape\":[2,3,4],\"data_offsets\":[48,0]}}", 48,
         "x: data_offsets: must be [begin, end]"},
        {"{\"k\":{\"dtype\":\"F16\",\"shape\":[2,3,4],\"data_offsets\":[0,48]}}", 47,
         "x: data_offsets end at 48, but the file has 47 bytes of data: it is cut off"},
        {"{\"k\":{\"dtype\":\"F16\",\"shape\":[2,3,4],\"data_offsets\":[0,40]}}", 48,
         "x: shape [2, 3, 4] takes 48 bytes, but the file has 40 for it"},
        {"{\"k\":{\"dtype\":\"F16\",\"shape\":[9223372036854775807,3,4],\"data_offsets\":[0,40]}}",
         48, "x: shape [9223372036854775807, 3, 4]: an extent is empty or too large"},
    };
    uint8_t bytes[512];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kv_error err = {0};
        kv_raw_tensor tensor;
        size_t const size = make_safetensors(bytes, rows[i].header, rows[i].numbers);
        kv_status const status =
            kv_safetensors_parse(&tensor, bytes, size, (int64_t)size, "k", "x", &err);
        CHECK(status == (rows[i].message ? KV_EINPUT : KV_OK), "row %zu: %s", i, err.message);
        CHECK_TEXT(err.message, rows[i].message ? rows[i].message : "");
        if (!rows[i].message)
            CHECK(tensor.extent[0] == 2 && tensor.extent[1] == 3 && tensor.extent[2] == 4, "%zu",
                  i);
    }
    kv_error err = {0};
    kv_raw_tensor tensor;
    uint8_t const huge[16] = {0, 0, 0, 0, 0, 1};
    kv_safetensors_parse(&tensor, huge, 16, 16, "k", "x", &err);
    CHECK_TEXT(err.message, "x: a header of 1099511627776 bytes: must be 16777208 or less");
}

static void write_bytes(const char *path, const void *bytes, size_t size)
{
    FILE *const file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, size, file) != size || fclose(file) != 0)
        CHECK(false, "%s: %s", path, strerror(errno));
}

/* Key and value of one layer in files of their own, read back number by number. */
static void check_files(void)
{
    uint8_t bytes[1024];
    const char *const header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 6, 4)}";
    size_t const start = 10 + strlen(header);
    make_npy(bytes, 1, header, 192);
    for (int64_t i = 0; i < 48; i++)
        memcpy(bytes + start + 4 * i, &(float){stored(0, i)}, sizeof(float));
    write_bytes("k.npy", bytes, start + 192);
    const char *const json =
        "{\"a:v\":{\"dtype\":\"BF16\",\"shape\":[1,2,6,4],\"data_offsets\":[8,104]},"
        "\"q\":{\"dtype\":\"BF16\",\"shape\":[2,2,4],\"data_offsets\":[104,136]}}";
    make_safetensors(bytes, json, 136);
    for (int64_t i = 0; i < 64; i++) { /* whole numbers: exact in bf16 */
        float const x = (float)(i - 32);
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        uint16_t const upper = (uint16_t)(bits >> 16);
        memcpy(bytes + 8 + strlen(json) + 8 + 2 * i, &upper, sizeof upper);
    }
    write_bytes("m.safetensors", bytes, 8 + strlen(json) + 136);

    kv_error err = {0};
    kv_capture *capture = NULL;
    kv_capture_spec spec = {{"k.npy", "m.safetensors:a:v", "m.safetensors:q"}, {.layer = 9}};
    CHECK(kv_capture_open_tensors(&capture, &spec, 1, &err) == KV_OK, "%s", err.message);
    if (!capture) return;
    const kv_capture_layer *const l = kv_capture_layer_at(capture, 0);
    CHECK(l->kv_heads == 2 && l->query_heads == 2 && l->queries == 2 && l->tokens == 6, "extents");
    CHECK(l->query_position[0] == 4 && l->query_position[1] == 5, "the last positions");
    float x[24];
    CHECK(kv_capture_load(x, capture, 0, KV_CAPTURE_KEY, 1, &err) == KV_OK, "%s", err.message);
    for (int i = 0; i < 24; i++) CHECK(x[i] == stored(0, 24 + i), "key %d", i);
    CHECK(kv_capture_load(x, capture, 0, KV_CAPTURE_VALUE, 1, &err) == KV_OK, "%s", err.message);
    for (int i = 0; i < 24; i++) CHECK(x[i] == (float)(24 + i - 32), "value %d", i);
    CHECK(kv_capture_load(x, capture, 0, KV_CAPTURE_QUERY, 1, &err) == KV_OK, "%s", err.message);
    for (int i = 0; i < 8; i++) CHECK(x[i] == (float)(56 + i - 32), "query %d", i);
    write_bytes("k.npy", "", 0);
    CHECK(kv_capture_load(x, capture, 0, KV_CAPTURE_KEY, 1, &err) == KV_EIO, "a changed file");
    CHECK_TEXT(err.message, "k.npy: cannot read head 1: the file has changed");
    kv_capture_close(capture);

    static const struct {
        const char *key, *message;
    } rows[] = {
        {NULL, "layer 9: key is missing"},
        {"k.bin", "layer 9: key: k.bin: must be FILE.npy or FILE.safetensors:NAME"},
        {"k.npy", "k.npy: is no .npy file"},
        {"none.npy", "none.npy: No such file or directory"},
        {"k.npy:x", "k.npy:x: a .npy file holds one tensor without a name"},
        {"m.safetensors", "m.safetensors: which tensor? write FILE.safetensors:NAME"},
        {"m.safetensors:w", "m.safetensors:w: holds no tensor of this name (2 others)"},
        {"m.safetensors:q", "layer 9: value has the shape [2, 6, 4], but key has [2, 2, 4]"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        err = (kv_error){0}, capture = NULL;
        spec.tensor[KV_CAPTURE_KEY] = rows[i].key;
        CHECK(kv_capture_open_tensors(&capture, &spec, 1, &err) != KV_OK, "row %zu", i);
        CHECK_TEXT(err.message, rows[i].message);
    }
}

/* ---- statistics and memory ---- */

static void check_statistics(void)
{
    kv_error err = {0};
    kv_capture *capture = NULL;
    kv_record *record = NULL;
    write_capture("t.h5", &(change){.planted = 50});
    CHECK(kv_capture_open(&capture, "t.h5", &err) == KV_OK, "%s", err.message);
    CHECK(kv_capture_statistics(&record, capture, &err) == KV_OK, "%s", err.message);
    if (!record) return;
    const kv_array *const ratio = kv_record_array(record, "key_absmax_over_median");
    CHECK(ratio->count == 1 * 2 * 2, "layers x heads x positions");
    /* head 1, post-rope: magnitudes are 1 ... 24 sixteenths, 13 of them replaced by 50 */
    CHECK(ratio->numbers[3] == 50 / (13.0 / 16), "%.17g", ratio->numbers[3]);
    const kv_array *const energy = kv_record_array(record, "value_mean_energy");
    CHECK(energy->count == 2 && energy->numbers[0] > 0 && energy->numbers[0] <= 1, "energy");
    kv_record_free(record);
    kv_capture_close(capture);
}

/* ---- heads that read a capture ---- */

static void check_heads(void)
{
    static const char *const positions[] = {"pre-rope", "post-rope"};
    for (int is_post = 0; is_post < 2; is_post++) {
        kv_error err = {0};
        kv_heads *heads = NULL;
        kv_rope *rope = NULL;
        float key[24], pre[24], x[24];
        char path[] = "t.h5";
        kv_heads_config const config = {.generator = KV_GENERATOR_CAPTURE, .capture = path};
        write_capture(path, &(change){.name = "key_position", .text = positions[is_post]});
        CHECK(kv_heads_create(&heads, &config, 3, 0, &err) == KV_OK, "%s", err.message);
        if (!heads) return;
        const kv_layer *const l = kv_heads_layer(heads);
        CHECK(l->kv_heads == 2 && l->query_heads == 4 && l->window == 4 && l->rotary_dim == 4 &&
                  l->softmax_scale == 0.5 && !l->needle && l->query_position[1] == 3,
              "the layer");
        for (int64_t i = 0; i < 24; i++) key[i] = pre[i] = stored(KV_CAPTURE_KEY, 24 + i);
        CHECK(kv_rope_create(&rope, &(kv_rope_settings){.layout = KV_ROPE_HALF}, 4, &err) == KV_OK,
              "%s", err.message);
        if (is_post)
            kv_rope_remove(rope, 0, 6, pre);
        else
            kv_rope_apply(rope, 0, 6, key);
        CHECK(l->source.load(l->source.context, KV_KEY, 1, 0, x, &err) == KV_OK, "key");
        CHECK(memcmp(x, key, sizeof x) == 0, "%s: key as attention uses it", positions[is_post]);
        CHECK(l->source.load(l->source.context, KV_KEY_PRE_ROPE, 1, 0, x, &err) == KV_OK, "key");
        CHECK(memcmp(x, pre, sizeof x) == 0, "%s: key before RoPE", positions[is_post]);
        CHECK(l->source.query(l->source.context, 1, x, &err) == KV_OK, "query");
        for (int64_t i = 0; i < 24; i++)
            CHECK(x[i] == stored(KV_CAPTURE_QUERY, 24 + i), "query %d", (int)i);
        CHECK(l->source.load(l->source.context, KV_VALUE, 1, 1, x, &err) == KV_EREQUEST, "seeds");
        CHECK_TEXT(err.message, "static scales from other seeds: a capture has no other seeds; use "
                                "static=N, the first N tokens");
        kv_rope_free(rope);
        kv_heads_free(heads);
        err = (kv_error){0}, heads = NULL;
        CHECK(kv_heads_create(&heads, &config, 0, 0, &err) == KV_EREQUEST, "no such layer");
        CHECK_TEXT(err.message, "t.h5: has no layer 0");
    }
}

/* Keys and values without queries: those are drawn, and find their needle among captured keys. */
static void check_drawn_queries(void)
{
    uint8_t bytes[1024];
    kv_error err = {0};
    kv_heads *heads = NULL;
    const char *const header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 6, 4)}";
    size_t const start = 10 + strlen(header);
    make_npy(bytes, 1, header, 192);
    for (int64_t i = 0; i < 48; i++)
        memcpy(bytes + start + 4 * i, &(float){stored(0, i * i * 5 % 89)}, sizeof(float));
    write_bytes("k.npy", bytes, start + 192);
    char path[] = "k.npy";
    kv_capture_files files = {.layer = 2, .key = path, .value = path};
    kv_heads_config const config = {.generator = KV_GENERATOR_CAPTURE,
                                    .capture_map = {.count = 1, .files = &files},
                                    .rope = {.layout = KV_ROPE_HALF},
                                    .queries = 3,
                                    .query_heads = 4,
                                    .query_gain = 1,
                                    .class_share = {0, 0, 1},
                                    .needle_depth = 1,
                                    .needle_margin = 2};
    CHECK(kv_heads_create(&heads, &config, 2, 0, &err) == KV_OK, "%s", err.message);
    if (!heads) return;
    const kv_layer *const l = kv_heads_layer(heads);
    float q[24], k[24];
    CHECK(l->queries == 3 && l->query_heads == 4 && l->needle[0] == 3 && l->needle[2] == 5,
          "layer");
    CHECK(l->source.query(l->source.context, 1, q, &err) == KV_OK, "%s", err.message);
    CHECK(l->source.load(l->source.context, KV_KEY, 1, 0, k, &err) == KV_OK, "%s", err.message);
    for (int row = 0; row < 6; row++) {
        double other = -HUGE_VAL, needle = 0;
        for (int64_t t = 0; t <= l->query_position[row % 3]; t++) {
            double logit = 0;
            for (int c = 0; c < 4; c++)
                logit += 0.5 * (double)q[row * 4 + c] * (double)k[t * 4 + c];
            if (t == l->needle[row % 3])
                needle = logit;
            else
                other = fmax(other, logit);
        }
        CHECK(fabs(needle - other - 2) < 1e-4, "row %d: margin %g", row, needle - other);
    }
    kv_heads_free(heads);
    err = (kv_error){0};
    CHECK(kv_heads_create(&heads, &config, 1, 0, &err) == KV_EREQUEST, "no such layer");
    CHECK_TEXT(err.message, "heads.capture: names no files for layer 1");
}

static void check_memory(void)
{
    write_capture("t.h5", &(change){0});
    for (int is_statistics = 0; is_statistics < 2; is_statistics++) {
        bool is_done = false;
        for (long k = 0; !is_done && k < 1000; k++) {
            kv_error err = {0};
            kv_capture *capture = NULL;
            kv_record *record = NULL;
            kv_fail_allocation(is_statistics ? -1 : k);
            kv_status status = kv_capture_open(&capture, "t.h5", &err);
            if (is_statistics) {
                kv_fail_allocation(k);
                status = kv_capture_statistics(&record, capture, &err);
            }
            kv_fail_allocation(-1);
            is_done = status == KV_OK;
            CHECK(is_done || status == KV_ENOMEM, "allocation %ld: %s", k, err.message);
            kv_record_free(record);
            kv_capture_close(capture);
        }
        CHECK(is_done, "never enough memory");
    }
}

int main(void)
{
    char directory[] = "/tmp/kvant_test_capture_XXXXXX";
    if (!mkdtemp(directory) || chdir(directory) != 0) {
        printf("no temporary directory\n");
        return 1;
    }
    check_good();
    check_optional();
    check_probe();
    check_broken();
    check_npy();
    check_safetensors();
    check_files();
    check_statistics();
    check_heads();
    check_drawn_queries();
    check_memory();
    static const char *const left[] = {"t.h5", "k.npy", "m.safetensors"};
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) unlink(left[i]);
    if (chdir("/") == 0) rmdir(directory);
    return check_done();
}
