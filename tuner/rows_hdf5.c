/* Tables of texts from HDF5: see rows.h. Every 1-D dataset of numbers or texts in the root group is
 * a column; numbers become the texts that read back to them. */
#include <hdf5.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/hdf5_lock.h"
#include "kernels/memory.h"
#include "kernels/probe.h"
#include "results/hdf5_call.h"
#include "tuner/rows.h"

/* deflate cannot do better (zlib's technical notes), so a larger claim is a broken file. */
enum { MOST_BYTES_PER_BYTE = 1032, SLACK_BYTES = 1 << 20 };

/* A column's texts one after another in the reader's text, from `offset`. */
typedef struct {
    size_t name, offset; /* in the text */
    int64_t count;
} column;

typedef struct {
    column *columns;
    size_t n_columns, capacity;
    kv_text text;
    int64_t file_bytes;
    kv_status status;
    kv_error *err;
} reader;

static kv_status add_text(reader *r, const char *text, size_t length)
{
    kv_status const status = kv_text_add(&r->text, r->err, "%.*s", (int)length, text);
    if (status == KV_OK) r->text.length++; /* the terminator stays */
    return status;
}

static kv_status add_number(reader *r, double number)
{
    char text[KV_REAL_TEXT];
    if (fabs(number) <= 9007199254740992.0 && rint(number) == number)
        snprintf(text, sizeof text, "%.0f", number);
    else
        kv_real_text(text, number);
    return add_text(r, text, strlen(text));
}

/* A text [length], with or without a 0 behind it. */
static bool is_utf8(const char *text, size_t length)
{
    char piece[5];
    for (size_t i = 0, n; i < length; i += n) {
        size_t const rest = length - i < 4 ? length - i : 4;
        memcpy(piece, text + i, rest), piece[rest] = 0;
        n = kv_utf8_length(piece);
        if (n == 0) return false;
    }
    return true;
}

static kv_status add_values(reader *r, const char *name, const void *raw, H5T_class_t class,
                            htri_t is_variable, size_t width, int64_t count)
{
    kv_status status = KV_OK;
    char whole[32];
    for (int64_t i = 0; i < count && status == KV_OK; i++) {
        if (class == H5T_FLOAT) {
            status = add_number(r, ((const double *)raw)[i]);
        } else if (class == H5T_INTEGER) {
            snprintf(whole, sizeof whole, "%" PRId64, ((const int64_t *)raw)[i]);
            status = add_text(r, whole, strlen(whole));
        } else {
            const char *const text =
                is_variable ? ((char *const *)raw)[i] : (const char *)raw + (size_t)i * width;
            const char *const end = text && !is_variable ? memchr(text, 0, width) : NULL;
            size_t const length = !text         ? 0
                                  : is_variable ? strlen(text)
                                  : end         ? (size_t)(end - text)
                                                : width;
            status = is_utf8(text, length)
                         ? add_text(r, text ? text : "", length)
                         : KV_FAIL(r->err, KV_EINPUT, "%s: value %" PRId64 " is not text in UTF-8",
                                   name, i);
        }
    }
    return status;
}

static kv_status read_column(reader *r, hid_t dataset, const char *name)
{
    kv_status status = KV_OK;
    kv_error *const err = r->err;
    hid_t type = -1, space = -1, memory = -1;
    void *raw = NULL, *list = r->columns;
    herr_t ok;
    hssize_t count;
    int64_t bytes;
    htri_t is_variable = 0, must_reclaim = 0;
    KV_H5(type, KV_EINPUT, H5Dget_type(dataset), name);
    KV_H5(space, KV_EINPUT, H5Dget_space(dataset), name);
    H5T_class_t const class = H5Tget_class(type);
    if ((class != H5T_FLOAT && class != H5T_INTEGER && class != H5T_STRING) ||
        H5Sget_simple_extent_ndims(space) != 1)
        goto done;
    KV_H5(count, KV_EINPUT, H5Sget_simple_extent_npoints(space), name);
    if (!kv_multiply_sizes((int64_t)count, (int64_t)H5Tget_size(type), &bytes) ||
        bytes / MOST_BYTES_PER_BYTE > r->file_bytes + SLACK_BYTES)
        KV_TRY(KV_FAIL(err, KV_EINPUT, "%s: claims more values than the file can hold", name));
    if (class == H5T_STRING) {
        KV_H5(is_variable, KV_EINPUT, H5Tis_variable_str(type), name);
        KV_H5(memory, KV_EINPUT, H5Tcopy(type), name);
    } else {
        KV_H5(memory, KV_EINPUT, H5Tcopy(class == H5T_FLOAT ? H5T_NATIVE_DOUBLE : H5T_NATIVE_INT64),
              name);
    }
    size_t const width = H5Tget_size(memory);
    KV_TRY(kv_allocate(&raw, (size_t)count, width, err));
    KV_H5(ok, KV_EINPUT, H5Dread(dataset, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, raw), name);
    must_reclaim = is_variable;
    KV_TRY(kv_grow(&list, &r->capacity, r->n_columns, r->n_columns + 1, sizeof *r->columns, err));
    r->columns = list;
    column c = {.name = r->text.length, .count = (int64_t)count};
    KV_TRY(add_text(r, name, strlen(name)));
    c.offset = r->text.length;
    KV_TRY(add_values(r, name, raw, class, is_variable, width, c.count));
    r->columns[r->n_columns++] = c;
done:
    if (must_reclaim > 0) H5Dvlen_reclaim(memory, space, H5P_DEFAULT, raw);
    if (memory >= 0) H5Tclose(memory);
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    kv_free(raw);
    return status;
}

static herr_t visit_link(hid_t file, const char *name, const H5L_info_t *info, void *context)
{
    reader *const r = context;
    kv_status status = KV_OK;
    kv_error *const err = r->err;
    hid_t object = -1;
    if (info->type != H5L_TYPE_HARD) return 0;
    KV_H5(object, KV_EINPUT, H5Oopen(file, name, H5P_DEFAULT), name);
    if (H5Iget_type(object) == H5I_DATASET) KV_TRY(read_column(r, object, name));
done:
    if (object >= 0) H5Oclose(object);
    r->status = status;
    return status == KV_OK ? 0 : 1;
}

static kv_status read_columns(reader *r, const char *path)
{
    kv_status status = KV_OK;
    kv_error *const err = r->err;
    hid_t file = -1;
    hsize_t size;
    herr_t ok;
    KV_H5(file, KV_EINPUT, H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT), "open");
    KV_H5(ok, KV_EINPUT, H5Fget_filesize(file, &size), "open");
    r->file_bytes = (int64_t)size;
    KV_H5(ok, KV_EINPUT, H5Literate(file, H5_INDEX_NAME, H5_ITER_INC, NULL, visit_link, r),
          "datasets");
    status = r->status;
done:
    if (file >= 0) H5Fclose(file);
    return status;
}

/* The columns beside each other: as many rows as the longest column has. */
static kv_status make_rows(kv_rows *out, reader *r, kv_error *err)
{
    kv_status status = KV_OK;
    kv_rows rows = {.n_columns = (int64_t)r->n_columns};
    for (size_t c = 0; c < r->n_columns; c++)
        if (r->columns[c].count > rows.n_rows) rows.n_rows = r->columns[c].count;
    size_t const n_rows = (size_t)rows.n_rows;
    rows.text = kv_text_take(&r->text);
    KV_TRY(kv_allocate((void **)&rows.names, r->n_columns, sizeof *rows.names, err));
    KV_TRY(kv_allocate3((void **)&rows.cells, n_rows, r->n_columns, 1, sizeof *rows.cells, err));
    KV_TRY(kv_allocate((void **)&rows.lines, n_rows, sizeof *rows.lines, err));
    for (size_t i = 0; i < n_rows; i++) rows.lines[i] = (int64_t)i;
    for (size_t c = 0; c < r->n_columns; c++) {
        const char *at = rows.text + r->columns[c].offset;
        rows.names[c] = rows.text + r->columns[c].name;
        for (int64_t i = 0; i < r->columns[c].count; i++, at += strlen(at) + 1)
            rows.cells[i * rows.n_columns + (int64_t)c] = at;
    }
    *out = rows, rows = (kv_rows){0};
done:
    kv_rows_free_contents(&rows);
    return status;
}

static kv_status read_file(reader *r, const char *path)
{
    kv_hdf5_lock();
    kv_status const status = read_columns(r, path);
    kv_hdf5_unlock();
    return status;
}

static void free_reader(reader *r)
{
    kv_free(r->columns);
    kv_text_free(&r->text);
}

static void read_once(const char *path)
{
    kv_error err = {0};
    reader r = {.err = &err};
    (void)read_file(&r, path);
    free_reader(&r);
}

kv_status kv_rows_read_hdf5(kv_rows *out, const char *path, kv_error *err)
{
    reader r = {.err = err};
    kv_status status = kv_probe(path, read_once, err);
    if (status != KV_OK) return status;
    status = read_file(&r, path);
    if (status == KV_OK && r.n_columns == 0)
        status = KV_FAIL(err, KV_EINPUT, "there are no columns (1-D datasets in the root group)");
    if (status == KV_OK) status = make_rows(out, &r, err);
    if (status != KV_OK) kv_error_prepend(err, "%s", path);
    free_reader(&r);
    return status;
}
