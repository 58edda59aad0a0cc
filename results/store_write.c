/* Writing a record as HDF5: see store.h.
 *
 * HDF5 builds the file in memory and never touches the disk: a failed write there would leave the
 * library unable to close, and it never syncs. The finished image goes out through kernels/file.h.
 */
#include <math.h>
#include <string.h>

#include "kernels/file.h"
#include "kernels/hdf5_lock.h"
#include "kernels/memory.h"
#include "results/hdf5_call.h"
#include "results/sha256.h"
#include "results/store.h"

enum { MEMORY_STEP = 1 << 20, CHUNK_ELEMENTS = 1 << 16, DEFLATE_LEVEL = 4, UNFILTERED_COUNT = 64 };

static kv_status write_attribute(hid_t object, const char *name, hid_t file_type, hid_t memory_type,
                                 const void *value, kv_error *err)
{
    kv_status status = KV_OK;
    hid_t space = -1, attribute = -1;
    herr_t done_ok;
    KV_H5(space, KV_EIO, H5Screate(H5S_SCALAR), name);
    KV_H5(attribute, KV_EIO, H5Acreate2(object, name, file_type, space, H5P_DEFAULT, H5P_DEFAULT),
          name);
    KV_H5(done_ok, KV_EIO, H5Awrite(attribute, memory_type, value), name);
done:
    if (attribute >= 0) H5Aclose(attribute);
    if (space >= 0) H5Sclose(space);
    return status;
}

static kv_status write_text_attribute(hid_t object, const char *name, const char *text,
                                      kv_error *err)
{
    kv_status status = KV_OK;
    hid_t type = -1;
    if (!text) return KV_OK;
    KV_H5(type, KV_EIO, kv_hdf5_text_type(), name);
    status = write_attribute(object, name, type, type, &text, err);
done:
    if (type >= 0) H5Tclose(type);
    return status;
}

static kv_status write_number_attribute(hid_t object, const char *name, double number,
                                        kv_error *err)
{
    if (fabs(number) > 9007199254740992.0 || rint(number) != number ||
        (number == 0 && signbit(number)))
        return write_attribute(object, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, &number, err);
    int64_t const whole = (int64_t)number;
    return write_attribute(object, name, H5T_STD_I64LE, H5T_NATIVE_INT64, &whole, err);
}

/* Chunks are whole inner axes as long as they stay small, then part of one axis, then 1. */
static kv_status set_filters(hid_t properties, int rank, const hsize_t *extents, const char *name,
                             kv_error *err)
{
    kv_status status = KV_OK;
    hsize_t chunk[KV_RECORD_MAX_RANK], room = CHUNK_ELEMENTS;
    herr_t ok;
    for (int i = rank - 1; i >= 0; i--) {
        chunk[i] = extents[i] < room ? extents[i] : room;
        room /= chunk[i];
    }
    KV_H5(ok, KV_EIO, H5Pset_chunk(properties, rank, chunk), name);
    KV_H5(ok, KV_EIO, H5Pset_shuffle(properties), name);
    KV_H5(ok, KV_EIO, H5Pset_deflate(properties, DEFLATE_LEVEL), name);
    KV_H5(ok, KV_EIO, H5Pset_fletcher32(properties), name);
done:
    return status;
}

/* *out is an open dataset holding the values; rank 0 is a scalar. */
static kv_status write_dataset(hid_t *out, hid_t file, const char *name, int rank,
                               const hsize_t *extents, const double *numbers, char *const *texts,
                               kv_error *err)
{
    kv_status status = KV_OK;
    hid_t space = -1, type = -1, properties = -1, dataset = -1;
    herr_t ok;
    hsize_t count = 1;
    for (int i = 0; i < rank; i++) count *= extents[i];
    KV_H5(space, KV_EIO, rank ? H5Screate_simple(rank, extents, NULL) : H5Screate(H5S_SCALAR),
          name);
    KV_H5(properties, KV_EIO, H5Pcreate(H5P_DATASET_CREATE), name);
    KV_H5(ok, KV_EIO, H5Pset_obj_track_times(properties, 0), name);
    KV_H5(ok, KV_EIO,
          H5Pset_attr_creation_order(properties, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED),
          name);
    if (numbers && rank && count > UNFILTERED_COUNT)
        KV_TRY(set_filters(properties, rank, extents, name, err));
    KV_H5(type, KV_EIO, texts ? kv_hdf5_text_type() : H5Tcopy(H5T_IEEE_F64LE), name);
    KV_H5(dataset, KV_EIO,
          H5Dcreate2(file, name, type, space, H5P_DEFAULT, properties, H5P_DEFAULT), name);
    KV_H5(ok, KV_EIO,
          H5Dwrite(dataset, texts ? type : H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                   texts ? (const void *)texts : (const void *)numbers),
          name);
    *out = dataset, dataset = -1;
done:
    if (dataset >= 0) H5Dclose(dataset);
    if (type >= 0) H5Tclose(type);
    if (properties >= 0) H5Pclose(properties);
    if (space >= 0) H5Sclose(space);
    return status;
}

static kv_status write_dimension(hid_t *out, hid_t file, const kv_dimension *d, kv_error *err)
{
    kv_status status = KV_OK;
    hid_t dataset = -1;
    herr_t ok;
    hsize_t const length = (hsize_t)d->length;
    KV_TRY(write_dataset(&dataset, file, d->name, 1, &length, d->numbers, d->texts, err));
    KV_H5(ok, KV_EIO, H5DSset_scale(dataset, d->name), d->name);
    KV_TRY(write_text_attribute(dataset, "units", d->units, err));
    KV_TRY(write_text_attribute(dataset, "long_name", d->long_name, err));
    *out = dataset, dataset = -1;
done:
    if (dataset >= 0) H5Dclose(dataset);
    return status;
}

static kv_status write_array(hid_t file, const kv_record *record, const kv_array *a,
                             const hid_t *scales, kv_error *err)
{
    kv_status status = KV_OK;
    hid_t dataset = -1;
    herr_t ok;
    hsize_t extents[KV_RECORD_MAX_RANK];
    for (int i = 0; i < a->rank; i++)
        extents[i] = (hsize_t)record->dimensions[a->dimensions[i]].length;
    KV_TRY(write_dataset(&dataset, file, a->name, a->rank, extents, a->numbers, a->texts, err));
    KV_TRY(write_text_attribute(dataset, "units", a->units, err));
    KV_TRY(write_text_attribute(dataset, "long_name", a->long_name, err));
    KV_TRY(write_text_attribute(dataset, "combine", a->combine, err));
    KV_TRY(write_text_attribute(dataset, "labels", a->labels, err));
    for (int i = 0; i < a->rank; i++)
        KV_H5(ok, KV_EIO, H5DSattach_scale(dataset, scales[a->dimensions[i]], (unsigned)i),
              a->name);
done:
    if (dataset >= 0) H5Dclose(dataset);
    return status;
}

static kv_status write_attributes(hid_t file, const kv_record *record, kv_error *err)
{
    kv_status status = KV_OK;
    if (!kv_record_attribute(record, KV_SCHEMA_NAME))
        KV_TRY(write_number_attribute(file, KV_SCHEMA_NAME, KV_SCHEMA, err));
    for (int i = 0; i < record->n_attributes; i++) {
        const kv_attribute *const a = &record->attributes[i];
        KV_TRY(a->text ? write_text_attribute(file, a->name, a->text, err)
                       : write_number_attribute(file, a->name, a->number, err));
    }
done:
    return status;
}

/* A file that exists in memory only, which remembers the order of creation and no times. */
static kv_status create_file(hid_t *out, kv_error *err)
{
    kv_status status = KV_OK;
    unsigned const order = H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED;
    hid_t creation = -1, access = -1;
    herr_t ok;
    KV_H5(creation, KV_EIO, H5Pcreate(H5P_FILE_CREATE), "new file");
    KV_H5(ok, KV_EIO, H5Pset_obj_track_times(creation, 0), "new file");
    KV_H5(ok, KV_EIO, H5Pset_link_creation_order(creation, order), "new file");
    KV_H5(ok, KV_EIO, H5Pset_attr_creation_order(creation, order), "new file");
    KV_H5(access, KV_EIO, H5Pcreate(H5P_FILE_ACCESS), "new file");
    KV_H5(ok, KV_EIO, H5Pset_fapl_core(access, MEMORY_STEP, 0), "new file");
    KV_H5(*out, KV_EIO, H5Fcreate("kvant-in-memory", H5F_ACC_TRUNC, creation, access), "new file");
done:
    if (access >= 0) H5Pclose(access);
    if (creation >= 0) H5Pclose(creation);
    return status;
}

/* The whole file and its seal; the caller frees it. */
static kv_status make_image(char **out, size_t *size, const kv_record *record, kv_error *err)
{
    kv_status status = KV_OK;
    hid_t file = -1;
    hid_t *scales = NULL;
    void *memory = NULL;
    herr_t ok;
    ssize_t bytes;
    int n_scales = 0;
    KV_TRY(kv_allocate(&memory, (size_t)record->n_dimensions, sizeof *scales, err));
    scales = memory, memory = NULL;
    KV_TRY(create_file(&file, err));
    for (; n_scales < record->n_dimensions; n_scales++)
        KV_TRY(write_dimension(&scales[n_scales], file, &record->dimensions[n_scales], err));
    for (int i = 0; i < record->n_arrays; i++)
        KV_TRY(write_array(file, record, &record->arrays[i], scales, err));
    KV_TRY(write_attributes(file, record, err));
    while (n_scales > 0) H5Dclose(scales[--n_scales]);
    KV_H5(ok, KV_EIO, H5Fflush(file, H5F_SCOPE_GLOBAL), "new file");
    KV_H5(bytes, KV_EIO, H5Fget_file_image(file, NULL, 0), "new file");
    KV_TRY(kv_allocate(&memory, (size_t)bytes + KV_SEAL_SIZE, 1, err));
    KV_H5(bytes, KV_EIO, H5Fget_file_image(file, memory, (size_t)bytes), "new file");
    char *const seal = (char *)memory + bytes;
    memcpy(seal, KV_SEAL_MARK, 8);
    kv_sha256((uint8_t *)seal + 8, memory, (size_t)bytes);
    *out = memory, memory = NULL;
    *size = (size_t)bytes + KV_SEAL_SIZE;
done:
    while (n_scales > 0) H5Dclose(scales[--n_scales]);
    if (file >= 0) H5Fclose(file);
    kv_free(scales), kv_free(memory);
    return status;
}

/* Units that xarray would turn into dates or durations, as its conventions/times.py tells them. */
static kv_status check_units(const char *name, const char *units, kv_error *err)
{
    static const char *const durations[] = {"days",         "hours",        "minutes",    "seconds",
                                            "milliseconds", "microseconds", "nanoseconds"};
    int is_bad = units && strstr(units, "since") != NULL;
    for (size_t i = 0; units && i < sizeof durations / sizeof *durations; i++)
        is_bad |= strcmp(units, durations[i]) == 0;
    if (!is_bad) return KV_OK;
    return KV_FAIL(err, KV_EREQUEST, "%s: units \"%s\" would be read as dates; write \"s\", \"ms\"",
                   name, units);
}

kv_status kv_store_write(const char *path, const kv_record *record, kv_error *err)
{
    kv_status status = KV_OK;
    char *image = NULL;
    size_t size = 0;
    for (int i = 0; i < record->n_dimensions; i++)
        KV_TRY(check_units(record->dimensions[i].name, record->dimensions[i].units, err));
    for (int i = 0; i < record->n_arrays; i++)
        KV_TRY(check_units(record->arrays[i].name, record->arrays[i].units, err));
    kv_hdf5_lock();
    status = make_image(&image, &size, record, err);
    kv_hdf5_unlock();
    if (status != KV_OK) kv_error_prepend(err, "%s", path);
    KV_TRY(status);
    status = kv_file_replace(path, image, size, err);
done:
    kv_free(image);
    return status;
}
