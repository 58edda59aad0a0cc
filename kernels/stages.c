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
