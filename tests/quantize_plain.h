/* The quantizer once more, as plainly as it can be said: the whole tensor in memory, every tile a
 * list of elements, percentiles by sorting. Written from the definitions in kernels/quantize.h and
 * the stage files, sharing only the number formats (which have their own tests); test_quantize.c
 * holds it against the real one, bit for bit.
 *
 * Shapes: x [G][T][D]; the quantized body y [G][n][D]. */
#ifndef KVANT_TESTS_QUANTIZE_PLAIN_H
#define KVANT_TESTS_QUANTIZE_PLAIN_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/formats.h"
#include "kernels/quantize.h"

typedef struct {
    float *value;   /* [G][T][D] */
    uint32_t *code; /* [G][T][D] */
    float *scale, *minimum;
    int64_t tiles, bits;
} plain_result;

static void plain_free(plain_result *r)
{
    free(r->value), free(r->code), free(r->scale), free(r->minimum);
}

static void *plain_room(int64_t count, size_t size)
{
    return calloc((size_t)count + 1, size);
}

typedef struct {
    const kv_quantizer *q;
    const kv_format *format;
    int64_t G, T, D, n, first;
    const kv_tensor_shape *shape;
    float *y;                    /* [G][n][D] transformed */
    char *is_kept;               /* [G][n][D] */
    float *mean, *lambda, *sign; /* [G][D], [D] */
    /* One tile: its elements in order head, token, channel. */
    int64_t *element, count;
    int64_t tile_heads, tile_tokens, tile_channels;
} plain;

/* ---- numbers ---- */

static float plain_store(float x, kv_scale_storage storage)
{
    switch (storage) {
    case KV_SCALE_F16: return kv_f16_round(fmaxf(fminf(x, 65504.0f), -65504.0f));
    case KV_SCALE_BF16: return isinf(kv_bf16_round(x)) ? KV_BF16_MAXIMUM : kv_bf16_round(x);
    case KV_SCALE_E8M0: return fminf(kv_e8m0_round(x), 0x1p127f);
    case KV_SCALE_E4M3: return kv_e4m3_round(x);
    default: return x;
    }
}

static int plain_order(const void *a, const void *b)
{
    float const x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* numbers [n] are sorted in place. */
static double plain_percentile(float *numbers, int64_t n, double p)
{
    qsort(numbers, (size_t)n, sizeof *numbers, plain_order);
    double const at = (double)(n - 1) * (p / 100.0), k = floor(at);
    double const low = (double)numbers[(int64_t)k];
    double const high = (double)numbers[(int64_t)k + 1 < n ? (int64_t)k + 1 : n - 1];
    return low + (high - low) * (at - k);
}

/* Code and value of x under scale s and minimum m. */
static float plain_element(const plain *p, float x, float s, float m, uint32_t *code)
{
    int const bits = p->format->bits;
    if (p->format->kind == KV_KIND_INTEGER) {
        float inverse = s > 0 ? 1.0f / s : 0.0f;
        if (inverse > FLT_MAX) inverse = FLT_MAX;
        int const top = p->q->is_asymmetric ? (1 << bits) - 1 : (1 << (bits - 1)) - 1;
        int const bottom = p->q->is_asymmetric ? 0 : -top;
        double level = (double)rintf((p->q->is_asymmetric ? x - m : x) * inverse);
        if (level > top) level = top;
        if (!(level >= bottom)) level = bottom;
        *code = (uint32_t)(int32_t)level & ((1u << bits) - 1u);
        return p->q->is_asymmetric ? fmaf((float)(int)level, s, m) : (float)(int)level * s;
    }
    float const scaled = s > 0 ? x / s : 0.0f;
#define KV_CASE_EXACT(name, NAME)
#define KV_CASE_INTEGER(name, NAME)
#define KV_CASE_BLOCK(name, NAME)
#define KV_CASE_FLOAT(name, NAME)                                                                  \
    if (p->q->format == KV_FORMAT_##NAME) {                                                        \
        *code = kv_##name##_encode(scaled);                                                        \
        return kv_##name##_decode(*code) * s;                                                      \
    }
#define KV_ROW(name, NAME, KIND, ...) KV_CASE_##KIND(name, NAME)
    KV_FORMAT_TABLE(KV_ROW)
#undef KV_ROW
    memcpy(code, &x, sizeof x);
    return x;
}

/* ---- transforms ---- */

static void plain_hadamard(float *row, int64_t n)
{
    for (int64_t h = 1; h < n; h *= 2)
        for (int64_t i = 0; i < n; i += 2 * h)
            for (int64_t j = i; j < i + h; j++) {
                float const a = row[j], b = row[j + h];
                row[j] = a + b, row[j + h] = a - b;
            }
    for (int64_t i = 0; i < n; i++) row[i] *= (float)(1 / sqrt((double)n));
}

static float plain_sign(uint64_t seed, int64_t c)
{
    uint64_t z = seed + (uint64_t)(c + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return z & 0x8000000000000000u ? -1.0f : 1.0f;
}

static void plain_transform(plain *p)
{
    const kv_transform_setting *const s = p->q->transforms;
    int64_t const n = p->n, D = p->D;
    for (int64_t g = 0; g < p->G; g++) {
        float *const y = p->y + g * n * D;
        for (int64_t c = 0; c < D; c++) {
            double sum = 0;
            for (int64_t t = 0; t < n; t++) sum += (double)y[t * D + c];
            float *const mean = p->mean + g * D + c;
            if (s[KV_TRANSFORM_CENTER].is_on && n) *mean = kv_f16_round((float)(sum / (double)n));
            for (int64_t t = 0; t < n && s[KV_TRANSFORM_CENTER].is_on; t++) y[t * D + c] -= *mean;
        }
        for (int64_t c = 0; c < D; c++) {
            int64_t pair = c, half = p->shape->rotary_dim / 2;
            if (c < 2 * half) pair = c < half ? c + half : c - half;
            if (c < 2 * half && p->shape->is_rope_interleaved) pair = c % 2 ? c - 1 : c + 1;
            float most = 0;
            for (int64_t t = 0; t < n; t++)
                most = fmaxf(most, fmaxf(fabsf(y[t * D + c]), fabsf(y[t * D + pair])));
            double const a = s[KV_TRANSFORM_SMOOTH].value != 0 ? s[KV_TRANSFORM_SMOOTH].value : 0.5;
            p->lambda[g * D + c] = most > 0 ? (float)pow((double)most, a) : 1;
        }
        for (int64_t i = 0; i < n * D; i++) {
            if (s[KV_TRANSFORM_SMOOTH].is_on) y[i] /= p->lambda[g * D + i % D];
            if (s[KV_TRANSFORM_HADAMARD].is_on && s[KV_TRANSFORM_HADAMARD].has_signs)
                y[i] *= plain_sign(p->shape->seed, i % D);
        }
        double const size = s[KV_TRANSFORM_HADAMARD].value;
        int64_t const h = size != 0 ? (int64_t)size : D;
        for (int64_t i = 0; i < n * D && s[KV_TRANSFORM_HADAMARD].is_on; i += h)
            plain_hadamard(y + i, h);
    }
}

/* One row back, in place. */
static void plain_undo(const plain *p, int64_t g, float *row)
{
    const kv_transform_setting *const s = p->q->transforms;
    double const size = s[KV_TRANSFORM_HADAMARD].value;
    int64_t const h = size != 0 ? (int64_t)size : p->D;
    for (int64_t i = 0; i < p->D && s[KV_TRANSFORM_HADAMARD].is_on; i += h)
        plain_hadamard(row + i, h);
    for (int64_t c = 0; c < p->D; c++) {
        if (s[KV_TRANSFORM_HADAMARD].is_on && s[KV_TRANSFORM_HADAMARD].has_signs)
            row[c] *= plain_sign(p->shape->seed, c);
        if (s[KV_TRANSFORM_SMOOTH].is_on) row[c] *= p->lambda[g * p->D + c];
        if (s[KV_TRANSFORM_CENTER].is_on) row[c] += p->mean[g * p->D + c];
    }
}

/* ---- outliers ---- */

static void plain_outliers(plain *p, bool by_channel)
{
    int64_t const n = p->n, D = p->D, length = by_channel ? n : D, step = by_channel ? D : 1;
    float *const sorted = plain_room(length, sizeof *sorted);
    for (int64_t g = 0; g < p->G; g++)
        for (int64_t v = 0; v < (by_channel ? D : n) && n > 0; v++) {
            float *const at = p->y + g * n * D + (by_channel ? v : v * D);
            char *const kept = p->is_kept + (at - p->y);
            for (int64_t i = 0; i < length; i++) sorted[i] = at[i * step];
            double const half = p->q->outliers_percent / 2;
            double const low = plain_percentile(sorted, length, half);
            double const high = plain_percentile(sorted, length, 100 - half);
            for (int64_t i = 0; i < length; i++)
                kept[i * step] = (double)at[i * step] <= low || (double)at[i * step] >= high;
        }
    free(sorted);
}

/* ---- ranges ---- */

static float plain_scale_of(const plain *p, float low, float high)
{
    int const b = p->format->bits;
    if (p->q->is_asymmetric) return (high - low) / (float)((1 << b) - 1);
    if (p->format->kind == KV_KIND_INTEGER) return high / (float)((1 << (b - 1)) - 1);
    return high / p->format->maximum;
}

static void plain_stored(const plain *p, float low, float high, float global, float *s, float *m)
{
    float const plain_s = plain_scale_of(p, low, high);
    *s = plain_store(plain_s, p->q->scale_storage);
    if (p->q->scale_storage == KV_SCALE_E4M3)
        *s = global > 0 ? kv_e4m3_round(plain_s / global) * global : 0;
    *m = p->q->is_asymmetric ? plain_store(low, p->q->scale_storage) + 0.0f : 0; /* -0 is 0 */
}

/* Elements of the tile a range may see: not kept, and within static tokens. */
static bool plain_is_seen(const plain *p, int64_t element)
{
    int64_t const u = element / p->D % p->n;
    return !p->is_kept[element] && (p->q->static_tokens == 0 || u < p->q->static_tokens);
}

/* Each head: each channel over tokens, then 8 interleaved sums of the tile's channels. */
static double plain_error(const plain *p, float s, float m)
{
    double error = 0;
    uint32_t code;
    double *const channel = plain_room(p->D, sizeof *channel);
    for (int64_t i = 0; i < p->count;) {
        int64_t const g = p->element[i] / (p->n * p->D), from = p->element[i] % p->D;
        int64_t end = from;
        memset(channel, 0, (size_t)p->D * sizeof *channel);
        for (; i < p->count && p->element[i] / (p->n * p->D) == g; i++) {
            int64_t const e = p->element[i], c = e % p->D;
            if (c >= end) end = c + 1;
            if (!plain_is_seen(p, e)) continue;
            double const d = (double)plain_element(p, p->y[e], s, m, &code) - (double)p->y[e];
            channel[c - from] += d * d;
        }
        double lane[8] = {0};
        for (int64_t c = 0; c < end - from; c++) lane[c & 7] += channel[c];
        double const even = (lane[0] + lane[4]) + (lane[2] + lane[6]);
        error += even + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
    }
    free(channel);
    return error;
}

static void plain_range(const plain *p, float global, float *low, float *high)
{
    float *const seen = plain_room(p->count, sizeof *seen);
    int64_t n = 0;
    for (int64_t i = 0; i < p->count; i++)
        if (plain_is_seen(p, p->element[i])) seen[n++] = p->y[p->element[i]];
    bool const is_asymmetric = p->q->is_asymmetric;
    for (int64_t i = 0; i < n && !is_asymmetric; i++) seen[i] = fabsf(seen[i]);
    *low = *high = 0;
    if (n > 0 && p->q->range == KV_RANGE_PERCENTILE) {
        *high = (float)plain_percentile(seen, n, p->q->range_value);
        if (is_asymmetric) *low = (float)plain_percentile(seen, n, 100 - p->q->range_value);
    } else if (n > 0) {
        *low = (float)plain_percentile(seen, n, 0), *high = (float)plain_percentile(seen, n, 100);
    }
    free(seen);
    if (p->q->range != KV_RANGE_MSE || global < 0) return;
    double best = INFINITY;
    float factor = 1;
    for (int i = 0; i <= 50; i++) {
        float const f = (float)(1 - 0.01 * i);
        float s, m;
        plain_stored(p, *low * f, *high * f, global, &s, &m);
        double const error = plain_error(p, s, m);
        if (error < best) best = error, factor = f;
    }
    *low *= factor, *high *= factor;
}

/* ---- tiles ---- */

/* Elements of tile (head or all, row, column). */
static void plain_gather(plain *p, int64_t head, int64_t row, int64_t column)
{
    p->count = 0;
    int64_t const heads_end = p->tile_heads == 1 ? head + 1 : p->G;
    for (int64_t g = p->tile_heads == 1 ? head : 0; g < heads_end; g++)
        for (int64_t u = row * p->tile_tokens; u < (row + 1) * p->tile_tokens && u < p->n; u++)
            for (int64_t c = column * p->tile_channels;
                 c < (column + 1) * p->tile_channels && c < p->D; c++)
                p->element[p->count++] = (g * p->n + u) * p->D + c;
}

static void plain_tile_extent(plain *p)
{
    kv_quantizer const *const q = p->q;
    bool const all_heads = q->tile == KV_TILE_TENSOR || q->tile == KV_TILE_TOKEN_ALL;
    p->tile_heads = all_heads ? p->G : 1;
    p->tile_tokens = p->n, p->tile_channels = p->D;
    if (q->tile == KV_TILE_TOKEN || q->tile == KV_TILE_TOKEN_ALL) p->tile_tokens = 1;
    if (q->tile == KV_TILE_CHANNEL) p->tile_channels = 1;
    if (q->tile == KV_TILE_BLOCK && q->tile_tokens) p->tile_tokens = q->tile_tokens;
    if (q->tile == KV_TILE_BLOCK && q->tile_channels) p->tile_channels = q->tile_channels;
    if (p->tile_channels > p->D) p->tile_channels = p->D;
}

/* Body elements [G][n][D]: codes and values in the transformed space, and the scales. */
static void plain_tiles(plain *p, plain_result *r, float *value, uint32_t *code)
{
    bool const all_heads = p->q->tile == KV_TILE_TENSOR || p->q->tile == KV_TILE_TOKEN_ALL;
    int64_t const heads = all_heads ? 1 : p->G;
    if (!all_heads)
        p->tile_heads = 1;
    else if (p->G == 1)
        p->tile_heads = 1;
    int64_t const rows = p->n ? (p->n + p->tile_tokens - 1) / p->tile_tokens : 0;
    int64_t const columns = (p->D + p->tile_channels - 1) / p->tile_channels;
    r->tiles = heads * rows * columns;
    r->scale = plain_room(r->tiles, sizeof(float)),
    r->minimum = plain_room(r->tiles, sizeof(float));
    float global = -1, low, high;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < r->tiles; i++) {
            plain_gather(p, i / (rows * columns), i / columns % rows, i % columns);
            bool const is_unit = p->q->range == KV_RANGE_UNIT;
            plain_range(p, pass == 0 ? -1 : global, &low, &high);
            float const s = plain_scale_of(p, low, high) / 448.0f;
            if (pass == 0) {
                global = s > global ? s : global;
                continue;
            }
            plain_stored(p, low, high, global, &r->scale[i], &r->minimum[i]);
            if (is_unit) r->scale[i] = 1, r->minimum[i] = 0;
            for (int64_t k = 0; k < p->count; k++) {
                int64_t const e = p->element[k];
                value[e] = plain_element(p, p->y[e], r->scale[i], r->minimum[i], &code[e]);
            }
        }
}

static void plain_blocks(const plain *p, float *value, uint32_t *code)
{
    for (int64_t i = 0; i < p->G * p->n * p->D; i += 32) {
        float x[32];
        for (int k = 0; k < 32; k++) x[k] = p->is_kept[i + k] ? 0.0f : p->y[i + k];
#define KV_CASE2_EXACT(name, NAME)
#define KV_CASE2_INTEGER(name, NAME)
#define KV_CASE2_FLOAT(name, NAME)
#define KV_CASE2_BLOCK(name, NAME)                                                                 \
    if (p->q->format == KV_FORMAT_##NAME) {                                                        \
        struct kv_##name##_block block;                                                            \
        kv_##name##_encode_block(&block, x);                                                       \
        kv_##name##_decode_block(value + i, &block);                                               \
        kv_##name##_block_codes(code + i, &block);                                                 \
    }
#define KV_ROW(name, NAME, KIND, ...) KV_CASE2_##KIND(name, NAME)
        KV_FORMAT_TABLE(KV_ROW)
#undef KV_ROW
    }
}

static void plain_quantize(plain_result *r, const kv_quantizer *q, const kv_tensor_shape *shape,
                           const float *x)
{
    plain p = {.q = q, .shape = shape, .G = shape->heads, .T = shape->tokens, .D = shape->head_dim};
    int64_t const D = p.D, all = p.G * p.T * D;
    int64_t kept_recent = q->window, kept_elements = 0;
    if (q->flush && p.T % q->flush > kept_recent) kept_recent = p.T % q->flush;
    p.first = q->sinks < p.T ? q->sinks : p.T;
    p.n = p.T - kept_recent - p.first > 0 ? p.T - kept_recent - p.first : 0;
    p.format = kv_format_at(q->format);
    int64_t const body = p.G * p.n * D;
    p.y = plain_room(body, sizeof *p.y), p.is_kept = plain_room(body, 1);
    p.mean = plain_room(p.G * D, sizeof(float)), p.lambda = plain_room(p.G * D, sizeof(float));
    p.element = plain_room(body, sizeof *p.element);
    float *const value = plain_room(body, sizeof *value);
    uint32_t *const code = plain_room(body, sizeof *code);
    r->value = plain_room(all, sizeof(float)), r->code = plain_room(all, sizeof *code);
    for (int64_t i = 0; i < body; i++)
        p.y[i] = x[(i / (p.n * D) * p.T + p.first) * D + i % (p.n * D)];
    plain_transform(&p);
    bool const has_scale = (p.format->kind == KV_KIND_INTEGER || p.format->kind == KV_KIND_FLOAT) &&
                           p.format->bits < 16;
    plain_tile_extent(&p);
    bool const is_one_channel =
        q->tile == KV_TILE_CHANNEL || (q->tile == KV_TILE_BLOCK && q->tile_channels == 1);
    if (q->outliers_percent > 0) plain_outliers(&p, has_scale && is_one_channel);
    if (p.format->kind == KV_KIND_BLOCK)
        plain_blocks(&p, value, code);
    else if (has_scale)
        plain_tiles(&p, r, value, code);
    else
        for (int64_t i = 0; i < body; i++) value[i] = plain_element(&p, p.y[i], 1, 0, &code[i]);
    for (int64_t i = 0; i < body; i++) {
        if (!p.is_kept[i]) continue;
        value[i] = kv_f16_round(p.y[i]), code[i] = KV_CODE_KEPT, kept_elements++;
    }
    for (int64_t i = 0; i < all; i++) r->value[i] = kv_f16_round(x[i]), r->code[i] = KV_CODE_KEPT;
    for (int64_t i = 0; i < body; i++) {
        if (i % D == 0) plain_undo(&p, i / (p.n * D), value + i);
        int64_t const to = (i / (p.n * D) * p.T + p.first) * D + i % (p.n * D);
        r->value[to] = value[i], r->code[to] = code[i];
    }
    bool const stores = has_scale && q->range != KV_RANGE_UNIT && !q->static_tokens;
    r->bits = 16 * (all - body) + 32 * kept_elements;
    if (p.format->kind == KV_KIND_BLOCK)
        r->bits += body / 32 * p.format->block_bits;
    else
        r->bits += (body - kept_elements) * p.format->bits;
    if (stores)
        r->bits += r->tiles * kv_scale_at(q->scale_storage)->bits * (q->is_asymmetric ? 2 : 1);
    if (stores && q->scale_storage == KV_SCALE_E4M3 && p.n > 0) r->bits += 32;
    if (q->transforms[KV_TRANSFORM_CENTER].is_on && p.n > 0) r->bits += 16 * p.G * D;
    free(p.y), free(p.is_kept), free(p.mean), free(p.lambda), free(p.element);
    free(value), free(code);
}

#endif
