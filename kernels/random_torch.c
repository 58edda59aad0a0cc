/* torch.manual_seed and torch.randn on the CPU: see random.h.
 *
 * MT19937: Matsumoto and Nishimura 1998. The order of draws is that of ATen's normal_fill (16
 * numbers and more) and of at::normal_distribution<double> (fewer). */
#include <math.h>

#include "kernels/random.h"

enum { WORDS = 624, SHIFT = 397, CHUNK = 16 };

static const double two_pi = 6.283185307179586476925;

void kv_torch_stream_seed(kv_torch_stream *stream, uint64_t seed)
{
    *stream = (kv_torch_stream){.next = WORDS};
    stream->state[0] = (uint32_t)seed;
    for (uint32_t i = 1; i < WORDS; i++) {
        const uint32_t last = stream->state[i - 1];
        stream->state[i] = 1812433253u * (last ^ last >> 30) + i;
    }
}

static void refill(kv_torch_stream *s)
{
    for (int i = 0; i < WORDS; i++) {
        const uint32_t next = s->state[(i + 1) % WORDS], far = s->state[(i + SHIFT) % WORDS];
        const uint32_t y = (s->state[i] & 0x80000000u) | (next & 0x7fffffffu);
        s->state[i] = far ^ y >> 1 ^ (next & 1u ? 0x9908b0dfu : 0u);
    }
    s->next = 0;
}

uint32_t kv_torch_word(kv_torch_stream *stream)
{
    if (stream->next == WORDS) refill(stream);
    uint32_t y = stream->state[stream->next++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

void kv_torch_skip(kv_torch_stream *stream, uint64_t count)
{
    while (count > (uint64_t)(WORDS - stream->next)) {
        count -= (uint64_t)(WORDS - stream->next);
        refill(stream);
    }
    stream->next += (int)count;
}

static float uniform(kv_torch_stream *s)
{
    return (float)(kv_torch_word(s) & 0xffffffu) * 0x1p-24f;
}

static double uniform_double(kv_torch_stream *s)
{
    const uint64_t high = kv_torch_word(s), low = kv_torch_word(s);
    return (double)((high << 32 | low) & 0x1fffffffffffffu) * 0x1p-53;
}

static double one_normal(kv_torch_stream *s)
{
    if (s->has_saved) {
        s->has_saved = false;
        return s->saved;
    }
    const double u1 = uniform_double(s), u2 = uniform_double(s);
    const double radius = sqrt(-2.0 * log1p(-u2)), theta = two_pi * u1;
    s->saved = radius * sin(theta);
    s->has_saved = true;
    return radius * cos(theta);
}

static void chunk(kv_torch_stream *s, float *out)
{
    for (int j = 0; j < CHUNK; j++) out[j] = uniform(s);
    for (int j = 0; j < CHUNK / 2; j++) {
        const double radius = sqrt(-2.0 * log(1.0 - out[j]));
        const double theta = two_pi * out[j + CHUNK / 2];
        out[j] = (float)(radius * cos(theta));
        out[j + CHUNK / 2] = (float)(radius * sin(theta));
    }
}

void kv_torch_normals(kv_torch_stream *stream, float *out, size_t count)
{
    const size_t whole = count - count % CHUNK;
    if (count < CHUNK) {
        for (size_t i = 0; i < count; i++) out[i] = (float)one_normal(stream);
        return;
    }
    for (size_t i = 0; i < whole; i += CHUNK) chunk(stream, out + i);
    if (whole < count) {
        kv_torch_skip(stream, count - whole); /* drawn with the rest, then overwritten */
        chunk(stream, out + count - CHUNK);
    }
}
