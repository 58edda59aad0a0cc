/* HDF5 captures: see capture.h for the layout.
 *
 * Everything is checked on opening; a head is read as one hyperslab. HDF5 is called under one lock
 * for the process and its error stack is never printed: each failure becomes a sentence with the
 * name of the call. */
#include <errno.h>
#include <hdf5.h>
#include <stdio.h>
#include <string.h>

#include "kernels/hdf5_lock.h"
#include "kernels/memory.h"
#include "sim/capture_state.h"

enum { MAX_TEXT = 4096, MAX_LAYERS = 100000 };

struct kv_hdf5_file {
    hid_t id;
};

/* ---- attributes: one scalar each ---- */

typedef enum { ABSENT, NUMBER, TEXT, OTHER } found_kind;
typedef struct {
    found_kind kind;
    double number;
    char text[MAX_TEXT];
} found;

static bool read_text(found *f, hid_t attribute, hid_t type)
{
    bool is_read = false;
    if (H5Tis_variable_str(type) > 0) {
        char *text = NULL;
        hid_t const memory = H5Tcopy(H5T_C_S1);
        H5Tset_size(memory, H5T_VARIABLE);
        H5Tset_cset(memory, H5Tget_cset(type));
        if (H5Aread(attribute, memory, &text) >= 0 && text) {
            snprintf(f->text, sizeof f->text, "%s", text);
            is_read = true;
        }
        H5free_memory(text);
        H5Tclose(memory);
    } else if (H5Tget_size(type) < sizeof f->text) { /* the buffer is zeroed: always terminated */
        is_read = H5Aread(attribute, type, f->text) >= 0;
    }
    return is_read;
}

static void read_attribute(found *f, hid_t object, const char *name)
{
    memset(f, 0, sizeof *f);
    if (H5Aexists(object, name) <= 0) return;
    hid_t const attribute = H5Aopen(object, name, H5P_DEFAULT);
    hid_t const type = attribute < 0 ? -1 : H5Aget_type(attribute);
    hid_t const space = attribute < 0 ? -1 : H5Aget_space(attribute);
    f->kind = OTHER;
    if (type >= 0 && space >= 0 && H5Sget_simple_extent_npoints(space) == 1) {
        H5T_class_t const class = H5Tget_class(type);
        if (class == H5T_INTEGER || class == H5T_FLOAT) {
            if (H5Aread(attribute, H5T_NATIVE_DOUBLE, &f->number) >= 0) f->kind = NUMBER;
        } else if (class == H5T_STRING && read_text(f, attribute, type)) {
            f->kind = TEXT;
        }
    }
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    if (attribute >= 0) H5Aclose(attribute);
}

/* A number; `otherwise` where it is absent, NULL makes it required. */
static kv_status get_number(double *out, hid_t object, const char *where, const char *name,
                            const double *otherwise, kv_error *err)
{
    found f;
    read_attribute(&f, object, name);
    if (f.kind == ABSENT && !otherwise)
        return KV_FAIL(err, KV_EINPUT, "%s: attribute %s is missing", where, name);
    if (f.kind != ABSENT && f.kind != NUMBER)
        return KV_FAIL(err, KV_EINPUT, "%s: attribute %s: must be one number", where, name);
    *out = f.kind == ABSENT ? *otherwise : f.number;
    return KV_OK;
}

static kv_status get_integer(int64_t *out, hid_t object, const char *where, const char *name,
                             const double *otherwise, kv_error *err)
{
    double number = 0;
    kv_status const status = get_number(&number, object, where, name, otherwise, err);
    if (status != KV_OK) return status;
    if (!(number >= 0 && number <= 9007199254740992.0 && number == (double)(int64_t)number))
        return KV_FAIL(err, KV_EINPUT, "%s: attribute %s: %g: must be a whole number, 0 or more",
                       where, name, number);
    *out = (int64_t)number;
    return KV_OK;
}

/* Index into `allowed` (ended by NULL) of a text; `otherwise` >= 0 where it is absent. */
static kv_status get_choice(int64_t *out, hid_t object, const char *where, const char *name,
                            const char *const *allowed, int64_t otherwise, kv_error *err)
{
    found f;
    char list[256] = "";
    size_t used = 0;
    read_attribute(&f, object, name);
    if (f.kind == ABSENT && otherwise >= 0) return *out = otherwise, KV_OK;
    if (f.kind == ABSENT)
        return KV_FAIL(err, KV_EINPUT, "%s: attribute %s is missing", where, name);
    for (int64_t i = 0; allowed[i]; i++) {
        if (f.kind == TEXT && strcmp(f.text, allowed[i]) == 0) return *out = i, KV_OK;
        used +=
            (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", allowed[i]);
    }
    return KV_FAIL(err, KV_EINPUT, "%s: attribute %s: %.80s: must be one of %s", where, name,
                   f.kind == TEXT ? f.text : "not a text", list);
}

static kv_status get_text(char **out, hid_t object, const char *name, kv_error *err)
{
    found f;
    read_attribute(&f, object, name);
    return kv_duplicate(out, f.kind == TEXT ? f.text : "", err);
}

/* ---- datasets ---- */

/* IEEE 754 binary16, which HDF5 1.10 has no name for. */
static hid_t half_type(void)
{
    hid_t const type = H5Tcopy(H5T_NATIVE_FLOAT);
    H5Tset_fields(type, 15, 10, 5, 0, 10);
    H5Tset_size(type, 2);
    H5Tset_ebias(type, 15);
    return type;
}

static bool is_layout_of(hid_t type, hid_t wanted)
{
    size_t a[5], b[5];
    return H5Tget_class(type) == H5T_FLOAT && H5Tget_size(type) == H5Tget_size(wanted) &&
           H5Tget_fields(type, a, a + 1, a + 2, a + 3, a + 4) >= 0 &&
           H5Tget_fields(wanted, b, b + 1, b + 2, b + 3, b + 4) >= 0 &&
           memcmp(a, b, sizeof a) == 0 && H5Tget_ebias(type) == H5Tget_ebias(wanted);
}

/* Rank and extents of an open dataset; [rank] of them, all of 1 or more. */
static kv_status get_extents(hsize_t *extent, hid_t dataset, int rank, const char *axes,
                             const char *where, kv_error *err)
{
    hid_t const space = H5Dget_space(dataset);
    int const found_rank = space < 0 ? -1 : H5Sget_simple_extent_ndims(space);
    if (found_rank == rank) H5Sget_simple_extent_dims(space, extent, NULL);
    if (space >= 0) H5Sclose(space);
    if (found_rank != rank)
        return KV_FAIL(err, KV_EINPUT, "%s: %d axes, must be %d: %s", where, found_rank, rank,
                       axes);
    int64_t count = 1;
    for (int i = 0; i < rank; i++)
        if (extent[i] < 1 || extent[i] > INT64_MAX / 8 ||
            !kv_multiply_sizes(count, (int64_t)extent[i], &count) || count > INT64_MAX / 8)
            return KV_FAIL(err, KV_EINPUT, "%s: axis %d has the extent %llu: empty or too large",
                           where, i, (unsigned long long)extent[i]);
    return KV_OK;
}

static kv_status open_tensor(kv_opened_layer *layer, hid_t group, const char *group_name,
                             kv_capture_tensor tensor, kv_error *err)
{
    static const char *const axes[] = {"kv head, token, channel", "kv head, token, channel",
                                       "query head, query, channel"};
    kv_status status = KV_OK;
    const char *const name = kv_capture_tensor_names[tensor];
    char where[1024], path[512];
    hid_t dataset = -1, type = -1, half = -1;
    hsize_t extent[3];
    snprintf(where, sizeof where, "%s/%s", layer->name, name);
    snprintf(path, sizeof path, "%s/%s", group_name, name);
    if (H5Lexists(group, name, H5P_DEFAULT) <= 0)
        KV_TRY(KV_FAIL(err, KV_EINPUT, "%s: dataset %s is missing", layer->name, name));
    dataset = H5Dopen2(group, name, H5P_DEFAULT);
    if (dataset < 0) KV_TRY(KV_FAIL(err, KV_EINPUT, "%s: is no dataset (H5Dopen2 failed)", where));
    KV_TRY(get_extents(extent, dataset, 3, axes[tensor], where, err));
    for (int i = 0; i < 3; i++) layer->raw[tensor].extent[i] = (int64_t)extent[i];
    type = H5Dget_type(dataset), half = half_type();
    if (is_layout_of(type, half))
        layer->raw[tensor].type = KV_RAW_F16;
    else if (is_layout_of(type, H5T_NATIVE_FLOAT))
        layer->raw[tensor].type = KV_RAW_F32;
    else
        KV_TRY(KV_FAIL(err, KV_EINPUT, "%s: its numbers must be float16 or float32", where));
    KV_TRY(kv_duplicate(&layer->path[tensor], path, err));
done:
    if (half >= 0) H5Tclose(half);
    if (type >= 0) H5Tclose(type);
    if (dataset >= 0) H5Dclose(dataset);
    return status;
}

static kv_status read_positions(kv_opened_layer *layer, hid_t group, kv_error *err)
{
    kv_status status = KV_OK;
    char where[1024];
    hid_t dataset = -1, type = -1;
    hsize_t extent[1];
    int64_t const queries = layer->raw[KV_CAPTURE_QUERY].extent[1];
    snprintf(where, sizeof where, "%s/query_position", layer->name);
    if (H5Lexists(group, "query_position", H5P_DEFAULT) <= 0)
        KV_TRY(KV_FAIL(err, KV_EINPUT, "%s: dataset query_position is missing", layer->name));
    dataset = H5Dopen2(group, "query_position", H5P_DEFAULT);
    if (dataset < 0) KV_TRY(KV_FAIL(err, KV_EINPUT, "%s: is no dataset (H5Dopen2 failed)", where));
    KV_TRY(get_extents(extent, dataset, 1, "query", where, err));
    if ((int64_t)extent[0] != queries)
        KV_TRY(KV_FAIL(err, KV_EINPUT, "%s: %lld positions, but query has %lld rows", where,
                       (long long)extent[0], (long long)queries));
    type = H5Dget_type(dataset);
    if (H5Tget_class(type) != H5T_INTEGER)
        KV_TRY(KV_FAIL(err, KV_EINPUT, "%s: its numbers must be integers", where));
    KV_TRY(kv_allocate((void **)&layer->query_position, (size_t)queries, sizeof(int64_t), err));
    if (H5Dread(dataset, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, layer->query_position) <
        0)
        KV_TRY(KV_FAIL(err, KV_EIO, "%s: H5Dread failed: the file is damaged", where));
done:
    if (type >= 0) H5Tclose(type);
    if (dataset >= 0) H5Dclose(dataset);
    return status;
}

/* ---- a layer ---- */

static kv_status read_about(kv_opened_layer *layer, hid_t group, kv_error *err)
{
    static const char *const positions[] = {"pre-rope", "post-rope", NULL};
    static const char *const layouts[] = {"none", "half", "interleaved", NULL};
    static const char *const scalings[] = {"none", "linear", "ntk", "yarn", "llama3", NULL};
    kv_capture_layer *const about = &layer->about;
    const char *const where = layer->name;
    double const none = 0;
    kv_status status = KV_OK;
    int64_t is_post = 0;
    KV_TRY(get_integer(&about->layer, group, where, "layer", NULL, err));
    KV_TRY(get_choice(&is_post, group, where, "key_position", positions, -1, err));
    about->is_key_pre_rope = !is_post;
    KV_TRY(get_choice(&about->rope.layout, group, where, "rope_layout", layouts, -1, err));
    bool const has_rope = about->rope.layout != KV_ROPE_NONE;
    KV_TRY(get_number(&about->rope.base, group, where, "rope_theta", has_rope ? NULL : &none, err));
    if (has_rope && !(about->rope.base > 1 && about->rope.base <= 1e300))
        KV_TRY(KV_FAIL(err, KV_EINPUT, "%s: attribute rope_theta: %g: must be a number above 1",
                       where, about->rope.base));
    KV_TRY(get_integer(&about->window, group, where, "window", NULL, err));
    KV_TRY(get_integer(&about->rope.rotary_dim, group, where, "rotary_dim", &none, err));
    KV_TRY(get_choice(&about->rope.scaling, group, where, "rope_scaling", scalings, 0, err));
    KV_TRY(get_integer(&about->rope.original_length, group, where, "rope_original_length", &none,
                       err));
    KV_TRY(get_integer(&about->rope.training_length, group, where, "training_length", &none, err));
    const struct {
        const char *name;
        double *field;
    } numbers[] = {{"rope_factor", &about->rope.factor},
                   {"rope_low_freq_factor", &about->rope.low_freq_factor},
                   {"rope_high_freq_factor", &about->rope.high_freq_factor},
                   {"rope_beta_fast", &about->rope.beta_fast},
                   {"rope_beta_slow", &about->rope.beta_slow},
                   {"softmax_scale", &about->softmax_scale}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        KV_TRY(get_number(numbers[i].field, group, where, numbers[i].name, &none, err));
    if (!(about->softmax_scale >= 0 && about->softmax_scale <= 1e30))
        KV_TRY(KV_FAIL(err, KV_EINPUT, "%s: attribute softmax_scale: %g: must be above 0", where,
                       about->softmax_scale));
done:
    return status;
}

static kv_status open_layer(kv_opened_layer *layer, hid_t file, const char *path, const char *name,
                            kv_error *err)
{
    kv_status status = KV_OK;
    char where[1024];
    snprintf(where, sizeof where, "%s: %s", path, name);
    hid_t const group = H5Gopen2(file, name, H5P_DEFAULT);
    if (group < 0) KV_TRY(KV_FAIL(err, KV_EINPUT, "%s: is no group (H5Gopen2 failed)", where));
    KV_TRY(kv_duplicate(&layer->name, where, err));
    KV_TRY(read_about(layer, group, err));
    KV_TRY(open_tensor(layer, group, name, KV_CAPTURE_KEY, err));
    KV_TRY(open_tensor(layer, group, name, KV_CAPTURE_VALUE, err));
    /* queries may be made up later; positions alone are a slip */
    if (H5Lexists(group, "query", H5P_DEFAULT) <= 0 &&
        H5Lexists(group, "query_position", H5P_DEFAULT) <= 0)
        goto done;
    KV_TRY(open_tensor(layer, group, name, KV_CAPTURE_QUERY, err));
    KV_TRY(read_positions(layer, group, err));
done:
    if (group >= 0) H5Gclose(group);
    return status;
}

/* The groups whose name begins with "layer_"; with layers NULL they are only counted. */
static kv_status walk_layers(int64_t *count, kv_opened_layer *layers, hid_t file, const char *path,
                             kv_error *err)
{
    H5G_info_t info;
    *count = 0;
    if (H5Gget_info(file, &info) < 0)
        return KV_FAIL(err, KV_EINPUT, "%s: H5Gget_info failed: the file is damaged", path);
    for (hsize_t i = 0; i < info.nlinks; i++) {
        char name[256];
        ssize_t const length = H5Lget_name_by_idx(file, ".", H5_INDEX_NAME, H5_ITER_INC, i, name,
                                                  sizeof name, H5P_DEFAULT);
        if (length < 0)
            return KV_FAIL(err, KV_EINPUT, "%s: H5Lget_name_by_idx failed: the file is damaged",
                           path);
        if (length >= (ssize_t)sizeof name || strncmp(name, "layer_", 6) != 0) continue;
        if (*count == MAX_LAYERS)
            return KV_FAIL(err, KV_EINPUT, "%s: more than %d layers", path, MAX_LAYERS);
        if (layers) {
            kv_status const status = open_layer(&layers[*count], file, path, name, err);
            if (status != KV_OK) return status;
        }
        ++*count;
    }
    return KV_OK;
}

kv_status kv_capture_open_hdf5(kv_capture *capture, const char *path, kv_error *err)
{
    kv_status status = KV_OK;
    double version = 0;
    int64_t count = 0;
    FILE *const file = fopen(path, "rb"); /* HDF5 would not say why it cannot open a file */
    if (!file) return KV_FAIL(err, KV_EIO, "%s: %s", path, strerror(errno));
    fclose(file);
    KV_TRY(kv_allocate((void **)&capture->hdf5, 1, sizeof *capture->hdf5, err));
    capture->hdf5->id = -1;
    kv_hdf5_lock();
    status = KV_OK;
    hid_t const id = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    capture->hdf5->id = id;
    if (id < 0) status = KV_FAIL(err, KV_EINPUT, "%s: no whole HDF5 file (H5Fopen failed)", path);
    if (status == KV_OK) status = get_number(&version, id, path, "kvant_capture", NULL, err);
    if (status == KV_OK && version != 1)
        status =
            KV_FAIL(err, KV_EINPUT, "%s: attribute kvant_capture: %g: must be 1", path, version);
    if (status == KV_OK) status = get_text(&capture->model, id, "model", err);
    if (status == KV_OK) status = get_text(&capture->source, id, "source", err);
    if (status == KV_OK) status = walk_layers(&count, NULL, id, path, err);
    if (status == KV_OK && count == 0)
        status = KV_FAIL(err, KV_EINPUT, "%s: holds no group layer_NNN", path);
    if (status == KV_OK)
        status =
            kv_allocate((void **)&capture->layers, (size_t)count, sizeof *capture->layers, err);
    if (status == KV_OK) {
        capture->n_layers = count; /* set first: closing frees a half-filled layer too */
        status = walk_layers(&count, capture->layers, id, path, err);
    }
    kv_hdf5_unlock();
done:
    return status;
}

void kv_hdf5_close(kv_hdf5_file *file)
{
    if (!file) return;
    kv_hdf5_lock();
    if (file->id >= 0) H5Fclose(file->id);
    kv_hdf5_unlock();
    kv_free(file);
}

static kv_status read_slab(void *out, hid_t file, const kv_opened_layer *layer,
                           kv_capture_tensor tensor, int64_t head, hid_t memory_type, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_raw_tensor *const raw = &layer->raw[tensor];
    hsize_t const start[3] = {(hsize_t)head, 0, 0};
    hsize_t const count[3] = {1, (hsize_t)raw->extent[1], (hsize_t)raw->extent[2]};
    hid_t const dataset = H5Dopen2(file, layer->path[tensor], H5P_DEFAULT);
    hid_t const space = dataset < 0 ? -1 : H5Dget_space(dataset);
    hid_t const memory = H5Screate_simple(3, count, NULL);
    if (space < 0 || memory < 0 ||
        H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) < 0 ||
        H5Dread(dataset, memory_type, memory, space, H5P_DEFAULT, out) < 0)
        status = KV_FAIL(err, KV_EIO, "%s/%s: head %lld: H5Dread failed: the file is damaged",
                         layer->name, kv_capture_tensor_names[tensor], (long long)head);
    if (memory >= 0) H5Sclose(memory);
    if (space >= 0) H5Sclose(space);
    if (dataset >= 0) H5Dclose(dataset);
    return status;
}

kv_status kv_hdf5_read_head(void *out, const kv_capture *capture, const kv_opened_layer *layer,
                            kv_capture_tensor tensor, int64_t head, kv_error *err)
{
    kv_hdf5_lock();
    bool const is_half = layer->raw[tensor].type == KV_RAW_F16;
    hid_t const type = is_half ? half_type() : H5Tcopy(H5T_NATIVE_FLOAT);
    kv_status const status = read_slab(out, capture->hdf5->id, layer, tensor, head, type, err);
    H5Tclose(type);
    kv_hdf5_unlock();
    return status;
}
