/* The stage tables as data: see stages.h. */
#include "kernels/stages.h"

#define KV_ROW(name, NAME, value, minimum, maximum, preset, about)                                 \
    {#name, about, value, minimum, maximum, preset, 0},
static const kv_stage_row transforms[] = {KV_TRANSFORM_TABLE(KV_ROW)};
static const kv_stage_row ranges[] = {KV_RANGE_TABLE(KV_ROW)};
#undef KV_ROW
#define KV_ROW(name, NAME, bits, about) {#name, about, KV_VALUE_NONE, 0, 0, 0, bits},
static const kv_stage_row scales[] = {KV_SCALE_TABLE(KV_ROW)};
#undef KV_ROW

const kv_stage_row *kv_transform_at(size_t id)
{
    return id < KV_TRANSFORM_COUNT ? &transforms[id] : NULL;
}

const kv_stage_row *kv_range_at(size_t id)
{
    return id < KV_RANGE_COUNT ? &ranges[id] : NULL;
}

const kv_stage_row *kv_scale_at(size_t id)
{
    return id < KV_SCALE_COUNT ? &scales[id] : NULL;
}

static void list(FILE *out, const char *title, const kv_stage_row *rows, size_t n,
                 const char *prefix)
{
    static const char *const ends[] = {
        [KV_VALUE_NONE] = "", [KV_VALUE_OPTIONAL] = "[=X]", [KV_VALUE_REQUIRED] = "=X"};
    fprintf(out, "\n%s\n", title);
    for (size_t i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s%s%s", prefix, rows[i].name, ends[rows[i].value]);
        fprintf(out, "  %-20s %s\n", name, rows[i].about);
    }
}

void kv_stages_list(FILE *out)
{
    list(out, "options: transforms, in this order", transforms, KV_TRANSFORM_COUNT, "");
    list(out, "options: ranges", ranges, KV_RANGE_COUNT, "");
    list(out, "options: how scales are stored", scales, KV_SCALE_COUNT, "scale=");
}
