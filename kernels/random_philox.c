/* Philox streams: see random.h. */
#include "kernels/philox.h"
#include "kernels/random.h"

void kv_philox_normals(float *out, uint64_t seed, uint64_t stream, uint64_t first, int64_t count)
{
    uint64_t const end = first + (uint64_t)count;
    for (uint64_t tuple = first / 4; tuple * 4 < end; tuple++) {
        uint32_t words[4];
        float normals[4];
        kv_philox(words, seed, stream, tuple);
        kv_philox_pair(normals, words[0], words[1]);
        kv_philox_pair(normals + 2, words[2], words[3]);
        for (uint64_t e = tuple * 4; e < tuple * 4 + 4; e++)
            if (e >= first && e < end) out[e - first] = normals[e % 4];
    }
}

void kv_philox_uniforms(float *out, uint64_t seed, uint64_t stream, uint64_t first, int64_t count)
{
    uint64_t const end = first + (uint64_t)count;
    for (uint64_t tuple = first / 4; tuple * 4 < end; tuple++) {
        uint32_t words[4];
        kv_philox(words, seed, stream, tuple);
        for (uint64_t e = tuple * 4; e < tuple * 4 + 4; e++)
            if (e >= first && e < end) out[e - first] = kv_philox_unit(words[e % 4]);
    }
}
