/* The store: one record, one HDF5 file.
 *
 * A flat root group: one 1-D dataset per dimension, made a dimension scale; one N-D dataset per
 * array, its axes attached to the scales; attributes. The file opens in xarray (engines h5netcdf
 * and netcdf4), h5py and h5dump without any code of ours. Numbers are f64, strings variable-length
 * UTF-8; whole attribute numbers are stored as 64-bit integers. Chunks have shuffle, deflate and
 * fletcher32. Equal records give equal bytes.
 *
 *     kv_store_write("sweep.h5", record, &err);
 *     kv_store_read(&record, "sweep.h5", &err);
 */
#ifndef KVANT_RESULTS_STORE_H
#define KVANT_RESULTS_STORE_H

#include <stdbool.h>

#include "kernels/record.h"

/* Writes all of the record under a temporary name beside `path`, syncs it and renames it: `path` is
 * always the old file or the whole new one, also when the process dies. Thread-safe.
 * KV_EREQUEST for units xarray would read as dates ("s" is fine, "seconds" is not). */
kv_status kv_store_write(const char *path, const kv_record *record, kv_error *err);

/* Reads a file that kv_store_write made. Order of dimensions and arrays is kept; attributes that
 * are neither a text nor a number are left out. KV_EINPUT for anything else: broken, truncated,
 * not HDF5, or HDF5 of another layout. The caller frees *out. Thread-safe. */
kv_status kv_store_read(kv_record **out, const char *path, kv_error *err);

/* Whether the file ends with the seal of kv_store_write: a result, whole or damaged, whose bytes
 * only kv_store_read should look at. */
bool kv_store_is_sealed(const char *path);

#endif
