/* Real captures, where the environment variable KVANT_CAPTURES names a folder of them: every head
 * of every layer reads, un-rotates and rotates back, and keys look as caches of real models do. */
#include <dirent.h>
#include <stdlib.h>

#include "sim/capture.h"
#include "sim/heads.h"
#include "tests/check.h"

/* Un-rotated and rotated again, a key comes back up to two roundings to float. */
static void check_layer(const char *path, int64_t number)
{
    kv_error err = {0};
    kv_heads *heads = NULL;
    char *name = NULL;
    size_t const length = strlen(path);
    name = malloc(length + 1);
    memcpy(name, path, length + 1);
    kv_heads_config const config = {.generator = KV_GENERATOR_CAPTURE, .capture = name};
    CHECK(kv_heads_create(&heads, &config, number, 0, &err) == KV_OK, "%s", err.message);
    if (heads) {
        const kv_layer *const l = kv_heads_layer(heads);
        int64_t const size = l->tokens * l->head_dim, group = l->query_heads / l->kv_heads;
        float *const x = malloc((size_t)size * sizeof *x), *const y =
                                                               malloc((size_t)size * sizeof *y);
        float *const q = malloc((size_t)(group * l->queries * l->head_dim) * sizeof *q);
        for (int64_t g = 0; g < l->kv_heads; g++) {
            double largest = 0, worst = 0;
            CHECK(l->source.load(l->source.context, KV_KEY, g, 0, x, &err) == KV_OK &&
                      l->source.load(l->source.context, KV_KEY_PRE_ROPE, g, 0, y, &err) == KV_OK &&
                      l->source.query(l->source.context, g, q, &err) == KV_OK,
                  "%s", err.message);
            kv_rope_apply(l->source.rope, 0, l->tokens, y);
            for (int64_t i = 0; i < size; i++) {
                largest = fmax(largest, fabs((double)x[i]));
                worst = fmax(worst, fabs((double)x[i] - (double)y[i]));
            }
            CHECK(worst <= 3 * 0x1p-24 * 1.5 * largest, "%s: layer %d: %g", path, (int)number,
                  worst);
        }
        free(x);
        free(y);
        free(q);
    }
    kv_heads_free(heads);
    free(name);
}

static void check_file(const char *path)
{
    kv_error err = {0};
    kv_capture *capture = NULL;
    kv_record *record = NULL;
    CHECK(kv_capture_open(&capture, path, &err) == KV_OK, "%s", err.message);
    if (!capture) return;
    for (int64_t i = 0; i < kv_capture_layers(capture); i++)
        check_layer(path, kv_capture_layer_at(capture, i)->layer);
    CHECK(kv_capture_statistics(&record, capture, &err) == KV_OK, "%s", err.message);
    for (int64_t i = 0; record && i < kv_capture_layers(capture); i++) {
        int64_t const heads = kv_record_dimension(record, "kv_head")->length;
        const double *const ratio = kv_record_array(record, "key_absmax_over_median")->numbers;
        const double *const energy = kv_record_array(record, "key_mean_energy")->numbers;
        const double *const channel = kv_record_array(record, "key_channel_ratio")->numbers;
        int64_t const at = 2 * i * heads + 1; /* head 0, post-rope */
        printf("%s layer %2lld: absmax/median %6.2f, energy in means %.4f, channel ratio %5.2f\n",
               path, (long long)kv_capture_layer_at(capture, i)->layer, ratio[at], energy[at],
               channel[at]);
        CHECK(ratio[at] > 8 && ratio[at] < 200, "absmax/median %g", ratio[at]);
        CHECK(energy[at] > 0.1 && energy[at] < 0.95, "energy in means %g", energy[at]);
        CHECK(channel[at] > 2 && channel[at] < 100, "channel ratio %g", channel[at]);
    }
    kv_record_free(record);
    kv_capture_close(capture);
}

int main(void)
{
    const char *const folder = getenv("KVANT_CAPTURES");
    DIR *const directory = folder && *folder ? opendir(folder) : NULL;
    if (!directory) {
        printf("skipped: KVANT_CAPTURES names no folder of captures\n");
        return 77;
    }
    int files = 0;
    for (const struct dirent *entry; (entry = readdir(directory));) {
        size_t const length = strlen(entry->d_name);
        char path[4096];
        if (length < 4 || strcmp(entry->d_name + length - 3, ".h5") != 0) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        check_file(path);
        files++;
    }
    closedir(directory);
    if (files == 0) {
        printf("skipped: %s holds no .h5 file\n", folder);
        return 77;
    }
    return check_done();
}
