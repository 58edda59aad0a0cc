/* The decode stack: what pulls the exact streams' queries, kept between runs of the same seed. */
#include "kernels/memory.h"
#include "sim/stack_state.h"

/* One (seed, layer). */
typedef struct {
    int64_t seed, layer;
    float *pull; /* [H][S][D] */
} entry;

struct kv_stack_pulls {
    entry *entries;
    size_t count, room;
};

kv_status kv_stack_pulls_create(kv_stack_pulls **out, kv_error *err)
{
    return kv_allocate((void **)out, 1, sizeof **out, err);
}

void kv_stack_pulls_free(kv_stack_pulls *pulls)
{
    if (!pulls) return;
    for (size_t i = 0; i < pulls->count; i++) kv_free(pulls->entries[i].pull);
    kv_free(pulls->entries);
    kv_free(pulls);
}

const float *kv_stack_pulls_find(const kv_stack_pulls *pulls, int64_t seed, int64_t layer)
{
    for (size_t i = 0; pulls && i < pulls->count; i++)
        if (pulls->entries[i].seed == seed && pulls->entries[i].layer == layer)
            return pulls->entries[i].pull;
    return NULL;
}

kv_status kv_stack_pulls_add(kv_stack_pulls *pulls, int64_t seed, int64_t layer, float **pull,
                             kv_error *err)
{
    if (!pulls) return KV_OK;
    kv_status const status = kv_grow((void **)&pulls->entries, &pulls->room, pulls->count,
                                     pulls->count + 1, sizeof *pulls->entries, err);
    if (status != KV_OK) return status;
    pulls->entries[pulls->count++] = (entry){seed, layer, *pull};
    *pull = NULL;
    return KV_OK;
}
