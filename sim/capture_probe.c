/* A capture is read once by a child process before it is trusted: libhdf5 1.10 can crash or hang on
 * damaged files (variable-length attributes, chunk indices), which no check of ours can catch. */
#include "kernels/memory.h"
#include "kernels/probe.h"
#include "sim/capture.h"

/* What a user of the capture will read: everything but further heads. The child's errors are left
 * to the parent, which meets them again and can name them. */
static void read_once(const char *path)
{
    kv_error err = {0};
    kv_capture *capture = NULL;
    if (kv_capture_open(&capture, path, &err) != KV_OK) return;
    for (int64_t i = 0; i < kv_capture_layers(capture); i++) {
        const kv_capture_layer *const layer = kv_capture_layer_at(capture, i);
        int64_t const rows = layer->tokens > layer->queries ? layer->tokens : layer->queries;
        float *x = NULL;
        if (kv_allocate3((void **)&x, (size_t)rows, (size_t)layer->head_dim, 1, sizeof *x, &err) !=
            KV_OK)
            return;
        for (int tensor = 0; tensor < KV_CAPTURE_TENSORS; tensor++)
            if (tensor != KV_CAPTURE_QUERY || layer->query_heads > 0)
                (void)kv_capture_load(x, capture, i, (kv_capture_tensor)tensor, 0, &err);
        kv_free(x);
    }
    kv_capture_close(capture);
}

kv_status kv_capture_probe(const char *path, kv_error *err)
{
    return kv_probe(path, read_once, err);
}
