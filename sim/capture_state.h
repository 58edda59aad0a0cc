/* What the files of sim/capture*.c share; not for other modules.
 *
 * capture.c              opens, checks, dispatches
 * capture_hdf5.c         HDF5 captures
 * capture_npy.c          NumPy's .npy files
 * capture_safetensors.c  safetensors files
 * capture_statistics.c   outlier statistics */
#ifndef KVANT_SIM_CAPTURE_STATE_H
#define KVANT_SIM_CAPTURE_STATE_H

#include <stddef.h>

#include "sim/capture.h"

/* Numbers that lie in a file as they are (little-endian outside of HDF5). */
typedef enum { KV_RAW_F16, KV_RAW_BF16, KV_RAW_F32, KV_RAW_F64 } kv_raw_type;
int64_t kv_raw_size(kv_raw_type type);

typedef struct {
    kv_raw_type type;
    int64_t extent[3]; /* heads, rows, head_dim; 0 where there is no tensor */
    int64_t offset;    /* of the first number in the file */
} kv_raw_tensor;

/* Both read the beginning of a file, `bytes` [available] of `file_size` in all, and refuse what
 * does not lie wholly inside it. `name` begins every message. */
kv_status kv_npy_parse(kv_raw_tensor *out, const uint8_t *bytes, size_t available,
                       int64_t file_size, const char *name, kv_error *err);
/* `available` holds the whole header, or KV_EINPUT. */
kv_status kv_safetensors_parse(kv_raw_tensor *out, const uint8_t *bytes, size_t available,
                               int64_t file_size, const char *tensor, const char *name,
                               kv_error *err);
/* Largest header that is read, in bytes, its eight length bytes included. */
enum { KV_NPY_MAX_HEADER = 1 << 16, KV_SAFETENSORS_MAX_HEADER = 1 << 24 };

/* Fills extent from a shape [heads][rows][D], [1][heads][rows][D] or [rows][D], and checks that the
 * numbers fit the bytes that are there: exactly where is_exact, else at least. */
kv_status kv_raw_set_shape(kv_raw_tensor *tensor, const int64_t *shape, int rank,
                           int64_t bytes_there, bool is_exact, const char *name, kv_error *err);

/* One layer as opened. */
typedef struct {
    kv_capture_layer about;
    int64_t *query_position;
    char *name;                     /* for messages: "FILE: layer_003", or the spec's layer */
    char *path[KV_CAPTURE_TENSORS]; /* of the file, or of the dataset in an HDF5 file */
    kv_raw_tensor raw[KV_CAPTURE_TENSORS]; /* extents also for HDF5 */
} kv_opened_layer;

typedef struct kv_hdf5_file kv_hdf5_file;

struct kv_capture {
    char *path, *model, *source;
    kv_hdf5_file *hdf5; /* NULL for tensors in files of their own */
    int64_t n_layers;
    kv_opened_layer *layers;
};

/* Fills capture->hdf5, model, source and the layers with everything the file says. */
kv_status kv_capture_open_hdf5(kv_capture *capture, const char *path, kv_error *err);
void kv_hdf5_close(kv_hdf5_file *file);
/* One head as it lies in the file, raw->type numbers in this machine's byte order. */
kv_status kv_hdf5_read_head(void *out, const kv_capture *capture, const kv_opened_layer *layer,
                            kv_capture_tensor tensor, int64_t head, kv_error *err);

extern const char *const kv_capture_tensor_names[KV_CAPTURE_TENSORS];

#endif
