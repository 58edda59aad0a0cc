/* Between HDF5 and kv_error, for the store's two halves. */
#ifndef KVANT_RESULTS_HDF5_CALL_H
#define KVANT_RESULTS_HDF5_CALL_H

#include <hdf5.h>
#include <hdf5_hl.h>

#include "kernels/error.h"

/* A file ends with this mark and the SHA-256 of all bytes before the mark. HDF5 readers ignore
 * bytes after the end that the superblock gives; a program that changes the file cuts them off. */
#define KV_SEAL_MARK "kvseal\r\n"
enum { KV_SEAL_SIZE = 8 + 32 };

/* The root attribute that tells our files from others, and its value. */
#define KV_SCHEMA_NAME "kvant_schema"
enum { KV_SCHEMA = 1 };

/* A failure of the HDF5 call `call` on `name`, with HDF5's own innermost reason. */
kv_status kv_hdf5_failed(kv_status status, const char *call, const char *name, kv_error *err);

/* Variable-length UTF-8; negative on failure, H5Tclose it. */
hid_t kv_hdf5_text_type(void);

/* result = call; leaves through `done` where that is negative. */
#define KV_H5(result, failure, call, name)                                                         \
    do {                                                                                           \
        if (((result) = (call)) < 0) {                                                             \
            status = kv_hdf5_failed(failure, #call, name, err);                                    \
            goto done;                                                                             \
        }                                                                                          \
    } while (0)

#endif
