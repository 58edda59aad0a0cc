/* Reading a record back: see store.h. The file comes into memory first, so that its seal can be
 * checked before HDF5 sees a byte of a damaged file. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/file.h"
#include "kernels/hdf5_lock.h"
#include "kernels/memory.h"
#include "results/hdf5_call.h"
#include "results/sha256.h"
#include "results/store.h"

/* deflate cannot do better (zlib's technical notes), so a larger claim is a broken file. */
enum { MOST_BYTES_PER_BYTE = 1032, SLACK_BYTES = 1 << 20 };

typedef struct {
    hid_t file;
    size_t size;
    kv_record *record;
    kv_error *err;
    kv_status status;
    int want_scales; /* first pass: dimensions; second pass: arrays */
} reader;

/* The values of an open dataset or attribute: *numbers or *texts, [count]. */
typedef struct {
    int is_attribute, rank;
    hsize_t extents[H5S_MAX_RANK];
    int64_t count;
    double *numbers;
    char **texts;
} values;

static void free_values(values *v)
{
    for (int64_t i = 0; v->texts && i < v->count; i++) kv_free(v->texts[i]);
    kv_free(v->texts), kv_free(v->numbers);
}

static herr_t read_raw(hid_t object, int is_attribute, hid_t type, void *out)
{
    return is_attribute ? H5Aread(object, type, out)
                        : H5Dread(object, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, out);
}

/* Variable-length texts come in HDF5's memory, fixed-length ones in one block. */
static kv_status read_texts(values *v, hid_t object, hid_t file_type, hid_t space, const char *name,
                            kv_error *err)
{
    kv_status status = KV_OK;
    void *memory = NULL, *raw = NULL;
    hid_t type = -1;
    herr_t ok;
    htri_t is_variable;
    int must_reclaim = 0;
    size_t const n = (size_t)v->count;
    KV_H5(is_variable, KV_EINPUT, H5Tis_variable_str(file_type), name);
    KV_H5(type, KV_EINPUT, H5Tcopy(file_type), name);
    size_t const width = is_variable ? sizeof(char *) : H5Tget_size(type);
    KV_TRY(kv_allocate(&memory, n, sizeof *v->texts, err));
    v->texts = memory;
    KV_TRY(kv_allocate(&raw, n, width, err));
    KV_H5(ok, KV_EINPUT, read_raw(object, v->is_attribute, type, raw), name);
    must_reclaim = is_variable > 0;
    for (size_t i = 0; i < n; i++) {
        const char *const text = is_variable ? ((char **)raw)[i] : (char *)raw + i * width;
        const char *const end = text && !is_variable ? memchr(text, 0, width) : NULL;
        size_t const length = !text         ? 0
                              : is_variable ? strlen(text)
                              : end         ? (size_t)(end - text)
                                            : width;
        KV_TRY(kv_duplicate_part(&v->texts[i], text ? text : "", length, err));
    }
done:
    if (must_reclaim) H5Dvlen_reclaim(type, space, H5P_DEFAULT, raw);
    if (type >= 0) H5Tclose(type);
    kv_free(raw);
    return status;
}

/* *is_ours: the type is a number or a text; only then *v is filled. */
static kv_status read_values(values *v, int *is_ours, hid_t object, const reader *r,
                             const char *name, kv_error *err)
{
    kv_status status = KV_OK;
    void *memory = NULL;
    hid_t type = -1, space = -1;
    herr_t ok;
    hssize_t count;
    int64_t bytes;
    KV_H5(type, KV_EINPUT, v->is_attribute ? H5Aget_type(object) : H5Dget_type(object), name);
    KV_H5(space, KV_EINPUT, v->is_attribute ? H5Aget_space(object) : H5Dget_space(object), name);
    H5T_class_t const class = H5Tget_class(type);
    H5S_class_t const shape = H5Sget_simple_extent_type(space);
    *is_ours = (class == H5T_FLOAT || class == H5T_INTEGER || class == H5T_STRING) &&
               (shape == H5S_SCALAR || shape == H5S_SIMPLE);
    if (!*is_ours) goto done;
    KV_H5(count, KV_EINPUT, H5Sget_simple_extent_npoints(space), name);
    KV_H5(v->rank, KV_EINPUT, H5Sget_simple_extent_dims(space, v->extents, NULL), name);
    if (!kv_multiply_sizes((int64_t)count, (int64_t)H5Tget_size(type), &bytes) ||
        (uint64_t)bytes / MOST_BYTES_PER_BYTE > r->size + SLACK_BYTES)
        KV_TRY(KV_FAIL(err, KV_EINPUT, "%s: claims more values than the file can hold", name));
    v->count = (int64_t)count;
    if (class == H5T_STRING) {
        KV_TRY(read_texts(v, object, type, space, name, err));
    } else {
        KV_TRY(kv_allocate(&memory, (size_t)count, sizeof *v->numbers, err));
        v->numbers = memory;
        KV_H5(ok, KV_EINPUT, read_raw(object, v->is_attribute, H5T_NATIVE_DOUBLE, memory), name);
    }
done:
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    return status;
}

static kv_status read_attribute(values *v, int *is_ours, hid_t object, const char *name,
                                const reader *r, kv_error *err)
{
    kv_status status = KV_OK;
    hid_t attribute = -1;
    KV_H5(attribute, KV_EINPUT, H5Aopen(object, name, H5P_DEFAULT), name);
    v->is_attribute = 1;
    KV_TRY(read_values(v, is_ours, attribute, r, name, err));
done:
    if (attribute >= 0) H5Aclose(attribute);
    return status;
}

/* A text attribute of a dataset; NULL where there is none. The caller frees it. */
static kv_status read_note(char **out, hid_t dataset, const char *name, const reader *r,
                           kv_error *err)
{
    kv_status status = KV_OK;
    values v = {0};
    int is_ours = 0;
    htri_t exists;
    KV_H5(exists, KV_EINPUT, H5Aexists(dataset, name), name);
    if (exists) KV_TRY(read_attribute(&v, &is_ours, dataset, name, r, err));
    if (is_ours && v.texts && v.count == 1) *out = v.texts[0], v.texts[0] = NULL;
done:
    free_values(&v);
    return status;
}

static herr_t take_scale(hid_t dataset, unsigned axis, hid_t scale, void *context)
{
    (void)dataset, (void)axis;
    char *const name = context; /* [256] */
    ssize_t const length = H5Iget_name(scale, name, 256);
    return length > 0 && length < 256 ? 1 : -1; /* the first one is enough */
}

static kv_status find_axes(kv_array_spec *spec, const values *v, hid_t dataset, const reader *r)
{
    kv_status status = KV_OK;
    kv_error *const err = r->err;
    for (int i = 0; i < v->rank; i++) {
        char name[256] = "";
        herr_t found;
        KV_H5(found, KV_EINPUT, H5DSiterate_scales(dataset, (unsigned)i, NULL, take_scale, name),
              spec->name);
        const kv_dimension *const d = found ? kv_record_dimension(r->record, name + 1) : NULL;
        if (!d || d->length != (int64_t)v->extents[i])
            KV_TRY(KV_FAIL(err, KV_EINPUT, "%s: axis %d has no dimension", spec->name, i));
        spec->dimensions[i] = d->name;
    }
done:
    return status;
}

/* Arrays of types or ranks that we never write are not an error: others may add them. */
static kv_status read_dataset(hid_t dataset, const char *name, htri_t is_scale, const reader *r)
{
    kv_status status = KV_OK;
    kv_error *const err = r->err;
    values v = {0};
    char *units = NULL, *long_name = NULL, *combine = NULL, *labels = NULL;
    int is_ours = 0;
    KV_TRY(read_values(&v, &is_ours, dataset, r, name, err));
    if (!is_ours || v.rank > KV_RECORD_MAX_RANK) goto done;
    KV_TRY(read_note(&units, dataset, "units", r, err));
    KV_TRY(read_note(&long_name, dataset, "long_name", r, err));
    KV_TRY(read_note(&combine, dataset, "combine", r, err));
    KV_TRY(read_note(&labels, dataset, "labels", r, err));
    const char *const *const texts = (const char *const *)v.texts;
    if (is_scale) {
        if (v.rank != 1)
            KV_TRY(KV_FAIL(err, KV_EINPUT, "%s: a dimension of rank %d", name, v.rank));
        kv_dimension_spec const spec = {.name = name,
                                        .units = units,
                                        .long_name = long_name,
                                        .length = v.count,
                                        .numbers = v.numbers,
                                        .texts = texts};
        status = kv_record_add_dimension(r->record, &spec, err);
    } else {
        const kv_dimension *const d = labels ? kv_record_dimension(r->record, labels) : NULL;
        if (!d || !d->texts || texts) kv_free(labels), labels = NULL; /* another's attribute */
        kv_array_spec spec = {.name = name,
                              .units = units,
                              .long_name = long_name,
                              .combine = combine,
                              .labels = labels,
                              .numbers = v.numbers,
                              .texts = texts};
        KV_TRY(find_axes(&spec, &v, dataset, r));
        status = kv_record_add_array(r->record, &spec, err);
    }
done:
    kv_free(units), kv_free(long_name), kv_free(combine), kv_free(labels);
    free_values(&v);
    return status;
}

static herr_t visit_link(hid_t file, const char *name, const H5L_info_t *info, void *context)
{
    reader *const r = context;
    kv_status status = KV_OK;
    kv_error *const err = r->err;
    hid_t object = -1;
    htri_t is_scale;
    if (info->type != H5L_TYPE_HARD) return 0;
    KV_H5(object, KV_EINPUT, H5Oopen(file, name, H5P_DEFAULT), name);
    if (H5Iget_type(object) != H5I_DATASET) goto done;
    KV_H5(is_scale, KV_EINPUT, H5DSis_scale(object), name);
    if ((is_scale > 0) == r->want_scales) KV_TRY(read_dataset(object, name, is_scale, r));
done:
    if (object >= 0) H5Oclose(object);
    r->status = status;
    return status == KV_OK ? 0 : 1;
}

static herr_t visit_attribute(hid_t file, const char *name, const H5A_info_t *info, void *context)
{
    (void)info;
    reader *const r = context;
    kv_status status = KV_OK;
    values v = {0};
    int is_ours = 0;
    KV_TRY(read_attribute(&v, &is_ours, file, name, r, r->err));
    if (!is_ours || v.count != 1) goto done;
    status = v.texts ? kv_record_set_text(r->record, name, v.texts[0], r->err)
                     : kv_record_set_number(r->record, name, v.numbers[0], r->err);
done:
    free_values(&v);
    r->status = status;
    return status == KV_OK ? 0 : 1;
}

/* In the order of creation where the file remembers it, else by name. */
static void find_orders(H5_index_t *links, H5_index_t *attributes, hid_t file)
{
    unsigned of_links = 0, of_attributes = 0;
    hid_t const root = H5Gopen2(file, "/", H5P_DEFAULT);
    hid_t const creation = root >= 0 ? H5Gget_create_plist(root) : -1;
    if (creation >= 0) {
        H5Pget_link_creation_order(creation, &of_links);
        H5Pget_attr_creation_order(creation, &of_attributes);
        H5Pclose(creation);
    }
    if (root >= 0) H5Gclose(root);
    *links = of_links & H5P_CRT_ORDER_TRACKED ? H5_INDEX_CRT_ORDER : H5_INDEX_NAME;
    *attributes = of_attributes & H5P_CRT_ORDER_TRACKED ? H5_INDEX_CRT_ORDER : H5_INDEX_NAME;
}

static kv_status read_file(reader *r, const char *bytes)
{
    kv_status status = KV_OK;
    kv_error *const err = r->err;
    hid_t access = -1;
    herr_t ok;
    htri_t is_ours;
    H5_index_t links, attributes;
    KV_H5(access, KV_EINPUT, H5Pcreate(H5P_FILE_ACCESS), "open");
    KV_H5(ok, KV_EINPUT, H5Pset_fapl_core(access, 1 << 20, 0), "open");
    /* HDF5 copies the image, so it may take the const away */
    void *const image = (void *)(uintptr_t)bytes;
    KV_H5(ok, KV_EINPUT, H5Pset_file_image(access, image, r->size), "open");
    KV_H5(r->file, KV_EINPUT, H5Fopen("kvant-in-memory", H5F_ACC_RDONLY, access), "open");
    KV_H5(is_ours, KV_EINPUT, H5Aexists(r->file, KV_SCHEMA_NAME), KV_SCHEMA_NAME);
    if (!is_ours) KV_TRY(KV_FAIL(err, KV_EINPUT, "not a result file of kvant"));
    find_orders(&links, &attributes, r->file);
    KV_H5(ok, KV_EINPUT, H5Aiterate2(r->file, attributes, H5_ITER_INC, NULL, visit_attribute, r),
          "attributes");
    KV_TRY(r->status);
    const kv_attribute *const schema = kv_record_attribute(r->record, KV_SCHEMA_NAME);
    if (!schema || schema->text || !(schema->number >= 1 && schema->number <= KV_SCHEMA))
        KV_TRY(KV_FAIL(err, KV_EINPUT, "its %s is not %d; a newer kvant may read it",
                       KV_SCHEMA_NAME, KV_SCHEMA));
    for (r->want_scales = 1; r->want_scales >= 0; r->want_scales--) {
        KV_H5(ok, KV_EINPUT, H5Literate(r->file, links, H5_ITER_INC, NULL, visit_link, r),
              "datasets");
        KV_TRY(r->status);
    }
done:
    if (r->file >= 0) H5Fclose(r->file);
    if (access >= 0) H5Pclose(access);
    return status;
}

bool kv_store_is_sealed(const char *path)
{
    char mark[8];
    FILE *const file = fopen(path, "rb");
    bool const is_sealed = file && fseek(file, -(long)KV_SEAL_SIZE, SEEK_END) == 0 &&
                           fread(mark, sizeof mark, 1, file) == 1 &&
                           memcmp(mark, KV_SEAL_MARK, sizeof mark) == 0;
    if (file) fclose(file);
    return is_sealed;
}

static kv_status check_seal(size_t *size, const char *bytes, kv_error *err)
{
    uint8_t digest[32];
    if (*size < KV_SEAL_SIZE) return KV_OK;
    const char *const seal = bytes + *size - KV_SEAL_SIZE;
    if (memcmp(seal, KV_SEAL_MARK, 8) != 0) return KV_OK;
    kv_sha256(digest, bytes, *size - KV_SEAL_SIZE);
    if (memcmp(seal + 8, digest, sizeof digest) != 0)
        return KV_FAIL(err, KV_EINPUT, "damaged: its bytes do not match its checksum");
    *size -= KV_SEAL_SIZE;
    return KV_OK;
}

kv_status kv_store_read(kv_record **out, const char *path, kv_error *err)
{
    kv_status status = KV_OK;
    char *bytes = NULL;
    reader r = {.file = -1, .err = err};
    status = kv_file_read(&bytes, &r.size, path, err);
    if (status != KV_OK) return status;
    KV_TRY(check_seal(&r.size, bytes, err));
    if (r.size < 8 || memcmp(bytes, "\x89HDF\r\n\x1a\n", 8) != 0)
        KV_TRY(KV_FAIL(err, KV_EINPUT, "not an HDF5 file"));
    KV_TRY(kv_record_create(&r.record, err));
    kv_hdf5_lock();
    status = read_file(&r, bytes);
    kv_hdf5_unlock();
    KV_TRY(status);
    *out = r.record, r.record = NULL;
done:
    if (status != KV_OK) kv_error_prepend(err, "%s", path);
    kv_record_free(r.record);
    kv_free(bytes);
    return status;
}
