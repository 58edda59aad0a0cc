/* Whole Philox blocks of normals; compiled once per instruction set (cpu/isa.h). Blocks are handled
 * in groups, stage by stage over plain arrays, so that each stage vectorizes. */
#include "kernels/cpu/isa.h"
#include "kernels/random_philox.h"

enum { GROUP = 32 };

static void fill_group(float *out, uint64_t seed, uint64_t stream, uint64_t block)
{
    uint32_t word[4][GROUP];
    float normal[4][GROUP];
    for (int i = 0; i < GROUP; i++) {
        uint32_t w[4];
        kv_philox(w, seed, block + (uint64_t)i, stream);
        word[0][i] = w[0];
        word[1][i] = w[1];
        word[2][i] = w[2];
        word[3][i] = w[3];
    }
    for (int p = 0; p < 4; p += 2)
        for (int i = 0; i < GROUP; i++)
            kv_philox_normal_pair(&normal[p][i], &normal[p + 1][i], word[p][i], word[p + 1][i]);
    for (int i = 0; i < GROUP; i++)
        for (int j = 0; j < 4; j++) out[4 * i + j] = normal[j][i];
}

void KV_ISA_NAME(kv_philox_fill)(float *out, uint64_t seed, uint64_t stream, uint64_t block,
                                 size_t blocks)
{
    size_t b = 0;
    for (; b + GROUP <= blocks; b += GROUP) fill_group(out + 4 * b, seed, stream, block + b);
    for (; b < blocks; b++) {
        uint32_t w[4];
        float *const z = out + 4 * b;
        kv_philox(w, seed, block + b, stream);
        kv_philox_normal_pair(z, z + 1, w[0], w[1]);
        kv_philox_normal_pair(z + 2, z + 3, w[2], w[3]);
    }
}
