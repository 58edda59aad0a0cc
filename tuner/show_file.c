/* What a file holds: see show_file.h. */
#include "tuner/show_file.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "results/store.h"
#include "sim/capture.h"

/* A capture's statistics per layer, or a result file as it is. */
static kv_status read_record(kv_record **out, bool *is_capture, const char *path, kv_error *err)
{
    kv_capture *capture = NULL;
    kv_error not_capture = {0}, not_result = {0};
    *is_capture = false;
    if (kv_store_is_sealed(path)) return kv_store_read(out, path, err);
    kv_status status = kv_capture_probe(path, err);
    if (status != KV_OK) return status;
    status = kv_capture_open(&capture, path, &not_capture);
    *is_capture = status == KV_OK;
    if (status == KV_OK) {
        status = kv_capture_statistics(out, capture, err);
        kv_capture_close(capture);
        return status;
    }
    if (access(path, R_OK) != 0) return KV_FAIL(err, KV_EREQUEST, "%s: %s", path, strerror(errno));
    status = kv_store_read(out, path, &not_result);
    if (status != KV_OK)
        return KV_FAIL(err, status, "%s is neither a result nor a capture:\n  %s\n  %s", path,
                       not_result.message, not_capture.message);
    return status;
}

kv_status kv_show_file(FILE *out, FILE *notes, const char *path, const kv_table_request *request,
                       kv_error *err)
{
    static const kv_table_request by_layer = {.rows = "layer"};
    kv_status status = KV_OK;
    kv_record *record = NULL;
    bool is_capture;
    KV_TRY(read_record(&record, &is_capture, path, err));
    if (!request) KV_TRY(kv_table_write_summary(out, record, err));
    if (!request && is_capture) {
        fputs("\n", out);
        request = &by_layer;
    }
    if (request) KV_TRY(kv_table_write(out, record, request, err));
    fflush(out);
    if (request && !is_capture) kv_table_note(notes, record, request);
done:
    kv_record_free(record);
    return status;
}
