/* RoPE by tables of any content, on numbers whose last bits decide: for tests of every kernel that
 * turns pairs. 70 tokens of 40 pairs, half a row apart. */
#ifndef KVANT_TESTS_GPU_ROPE_TURNS_H
#define KVANT_TESTS_GPU_ROPE_TURNS_H

#include "kernels/random.h"
#include "kernels/rope.h"
#include "tests/gpu/kernels.h"

enum {
    TURN_TOKENS = 70,
    TURN_PAIRS = 40,
    TURN_DIM = 2 * TURN_PAIRS,
    TURN_OFFSETS = KV_ROPE_OFFSETS * TURN_PAIRS
};
typedef struct {
    double cosine[TURN_OFFSETS], sine[TURN_OFFSETS];
    double block_cosine[TURN_OFFSETS], block_sine[TURN_OFFSETS];
    double magnitude;
    float x[TURN_TOKENS][TURN_DIM];
} turns;

/* As rope_pairs.c turns them. */
static inline void turns_expected(const turns *a, float expected[TURN_TOKENS][TURN_DIM])
{
    for (int t = 0; t < TURN_TOKENS; t++)
        for (int i = 0; i < TURN_PAIRS; i++) {
            int const offset = t % KV_ROPE_OFFSETS * TURN_PAIRS + i;
            int const block = t / KV_ROPE_OFFSETS * TURN_PAIRS + i;
            double const cosine = a->cosine[offset], sine = a->sine[offset];
            double const block_cosine = a->block_cosine[block], block_sine = a->block_sine[block];
            double const c = (cosine * block_cosine - sine * block_sine) * a->magnitude;
            double const s = (sine * block_cosine + cosine * block_sine) * a->magnitude;
            double const x = (double)a->x[t][i], y = (double)a->x[t][TURN_PAIRS + i];
            expected[t][i] = (float)(x * c - y * s);
            expected[t][TURN_PAIRS + i] = (float)(y * c + x * s);
        }
}

static inline kv_cuda_rope turns_tables(emulated *e, const turns *a)
{
    size_t const bytes = sizeof a->cosine;
    return (kv_cuda_rope){.pairs = TURN_PAIRS,
                          .magnitude = a->magnitude,
                          .cosine = to_device(e, a->cosine, bytes),
                          .sine = to_device(e, a->sine, bytes),
                          .block_cosine = to_device(e, a->block_cosine, bytes),
                          .block_sine = to_device(e, a->block_sine, bytes)};
}

/* Tables and numbers that nearly cancel, so that every product's rounding decides bits. */
static inline void turns_cancel(turns *a)
{
    a->magnitude = 1.3;
    double *const tables[] = {a->cosine, a->sine, a->block_cosine, a->block_sine};
    uint32_t words[TURN_OFFSETS];
    for (uint64_t i = 0; i < 4; i++) {
        kv_philox_words(words, 1, i, 0, TURN_OFFSETS);
        for (int k = 0; k < TURN_OFFSETS; k++) {
            double const size = words[k] % 3 == 0 ? 0 : 1 + (words[k] >> 4) * 0x1p-52;
            tables[i][k] = words[k] & 8 ? -size : size;
        }
    }
    for (uint64_t t = 0; t < TURN_TOKENS; t++) {
        kv_philox_words(words, 2, t, 0, TURN_DIM);
        for (int c = 0; c < TURN_DIM; c++)
            a->x[t][c] = words[c] % 4 == 0 ? 0 : words[c] & 8 ? -1.1f : 1.1f;
    }
}

/* The same for sums: even pairs have cosine and sine as sum and difference of a number and less
 * than its last bit, and a result of what is left when they cancel; results of odd pairs lie less
 * than a double's last bit below a tie of two floats. */
static inline void turns_sum(turns *a)
{
    a->magnitude = 1;
    uint32_t words[TURN_OFFSETS];
    kv_philox_words(words, 3, 0, 0, TURN_OFFSETS);
    for (int k = 0; k < TURN_OFFSETS; k++) {
        bool const is_tie = k % TURN_PAIRS % 2;
        a->cosine[k] = is_tie ? 1 + 3 * 0x1p-24 : 1 + (words[k] & 255) * 0x1p-52;
        a->sine[k] = is_tie ? 0x1p-60 : (words[k] >> 8) * 0x1p-76;
        a->block_cosine[k] = 1, a->block_sine[k] = !is_tie;
    }
    for (int t = 0; t < TURN_TOKENS; t++)
        for (int i = 0; i < TURN_PAIRS; i++)
            a->x[t][i] = 1, a->x[t][TURN_PAIRS + i] = t % 2 ? -1 : 1;
}

#endif
