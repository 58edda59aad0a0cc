/* Element-addressable random numbers: see random.h. Element e is lane e % 4 of block e / 4. */
#include "kernels/random_philox.h"

#include "kernels/random.h"

uint64_t kv_stream_id(uint64_t layer, uint64_t calibration, uint64_t head, uint64_t tensor)
{
    return layer << 32 | calibration << 20 | head << 4 | tensor;
}

void kv_philox_words(uint32_t *out, uint64_t seed, uint64_t stream, uint64_t first, size_t count)
{
    uint32_t word[4] = {0};
    for (size_t i = 0; i < count; i++) {
        const uint64_t e = first + i;
        if (i == 0 || e % 4 == 0) kv_philox(word, seed, e / 4, stream);
        out[i] = word[e % 4];
    }
}

void kv_philox_uniforms(double *out, uint64_t seed, uint64_t stream, uint64_t first, size_t count)
{
    uint32_t words[256];
    for (size_t done = 0; done < count;) {
        const size_t n = count - done < 256 ? count - done : 256;
        kv_philox_words(words, seed, stream, first + done, n);
        for (size_t i = 0; i < n; i++) out[done + i] = words[i] * 0x1p-32;
        done += n;
    }
}

void kv_philox_normals(float *out, uint64_t seed, uint64_t stream, uint64_t first, size_t count)
{
#define KV_ROW(isa) kv_philox_fill_##isa,
    static void (*const fill[])(float *, uint64_t, uint64_t, uint64_t,
                                size_t) = {KV_ISA_TABLE(KV_ROW)};
#undef KV_ROW
    const kv_isa isa = kv_isa_best();
    size_t done = 0;
    while (done < count) {
        const uint64_t e = first + done;
        const size_t lane = (size_t)(e % 4), blocks = (count - done) / 4;
        if (lane == 0 && blocks > 0) {
            fill[isa](out + done, seed, stream, e / 4, blocks);
            done += 4 * blocks;
        } else { /* a part of a block, at either end */
            float z[4];
            fill[isa](z, seed, stream, e / 4, 1);
            for (size_t l = lane; l < 4 && done < count; l++) out[done++] = z[l];
        }
    }
}
