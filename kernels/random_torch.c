/* torch.manual_seed(seed); torch.randn(n) on the CPU, float32. See random.h.
 *
 * Facts: MT19937 seeded with the low 32 bits of the seed; at::normal_fill for n >= 16: all uniforms
 * first, each the low 24 bits of a word over 2^24, then in every chunk of 16 number j and j + 8
 * make a pair (1 - u_j the radius, u_(j+8) the angle); where n is no multiple of 16 the last 16 are
 * drawn again. n < 16: at::normal_distribution<double>, 53 bits of two words, cosine first, sine
 * kept. */
#include <math.h>

#include "kernels/random.h"

enum { N = 624, M = 397, CHUNK = 16 };

void kv_torch_seed(kv_torch_stream *s, uint64_t seed)
{
    *s = (kv_torch_stream){.next = N};
    s->words[0] = (uint32_t)seed;
    for (uint32_t i = 1; i < N; i++)
        s->words[i] = 1812433253u * (s->words[i - 1] ^ s->words[i - 1] >> 30) + i;
}

static void refill(kv_torch_stream *s)
{
    uint32_t *const w = s->words;
    for (int i = 0; i < N; i++) {
        uint32_t const y = (w[i] & 0x80000000u) | (w[(i + 1) % N] & 0x7FFFFFFFu);
        w[i] = w[(i + M) % N] ^ y >> 1 ^ (y & 1 ? 0x9908B0DFu : 0);
    }
    s->next = 0;
}

uint32_t kv_torch_word(kv_torch_stream *s)
{
    if (s->next == N) refill(s);
    uint32_t y = s->words[s->next++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9D2C5680u;
    y ^= y << 15 & 0xEFC60000u;
    return y ^ y >> 18;
}

static float unit24(kv_torch_stream *s)
{
    return (float)(kv_torch_word(s) & 0xFFFFFFu) * 0x1p-24f;
}

static double unit53(kv_torch_stream *s)
{
    uint64_t const high = kv_torch_word(s), low = kv_torch_word(s);
    return (double)((high << 32 | low) & 0x1FFFFFFFFFFFFFu) * 0x1p-53;
}

static void transform_chunk(float *x)
{
    float const two_pi = 6.283185307179586f;
    for (int j = 0; j < CHUNK / 2; j++) {
        float const length = sqrtf(-2 * logf(1 - x[j])), angle = two_pi * x[j + CHUNK / 2];
        x[j] = length * cosf(angle);
        x[j + CHUNK / 2] = length * sinf(angle);
    }
}

static double small_normal(kv_torch_stream *s)
{
    if (s->has_spare) {
        s->has_spare = 0;
        return s->spare;
    }
    double const angle = 2 * acos(-1.0) * unit53(s), length = sqrt(-2 * log1p(-unit53(s)));
    s->spare = length * sin(angle), s->has_spare = 1;
    return length * cos(angle);
}

void kv_torch_normals(kv_torch_stream *s, float *out, int64_t count)
{
    if (count < CHUNK) {
        for (int64_t i = 0; i < count; i++) out[i] = (float)small_normal(s);
        return;
    }
    for (int64_t i = 0; i < count; i++) out[i] = unit24(s);
    for (int64_t i = 0; i + CHUNK <= count; i += CHUNK) transform_chunk(out + i);
    if (count % CHUNK == 0) return;
    float *const last = out + count - CHUNK;
    for (int j = 0; j < CHUNK; j++) last[j] = unit24(s);
    transform_chunk(last);
}
