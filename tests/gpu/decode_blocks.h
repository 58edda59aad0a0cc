/* Every block format on blocks of every kind of content, as decode_numbers.h has it for grids. For
 * test_decode.c. */
#ifndef KVANT_TESTS_GPU_DECODE_BLOCKS_H
#define KVANT_TESTS_GPU_DECODE_BLOCKS_H

#include "tests/gpu/decode_numbers.h"

typedef void number_block(float *values, uint32_t *codes, const float *x);
#define BLOCK_EXACT(name)
#define BLOCK_INTEGER(name)
#define BLOCK_FLOAT(name)
#define BLOCK_BLOCK(name)                                                                          \
    static void block_##name(float *values, uint32_t *codes, const float *x)                       \
    {                                                                                              \
        struct kv_##name##_block block;                                                            \
        kv_##name##_encode_block(&block, x);                                                       \
        kv_##name##_decode_block(values, &block);                                                  \
        kv_##name##_block_codes(codes, &block);                                                    \
    }
#define KV_ROW(name, NAME, KIND, ...) BLOCK_##KIND(name)
KV_FORMAT_TABLE(KV_ROW)
#undef KV_ROW

static number_block *block_of(int32_t format)
{
#define IF_EXACT(name, NAME)
#define IF_INTEGER(name, NAME)
#define IF_FLOAT(name, NAME)
#define IF_BLOCK(name, NAME)                                                                       \
    if (format == KV_FORMAT_##NAME) return block_##name;
#define KV_ROW(name, NAME, KIND, ...) IF_##KIND(name, NAME)
    KV_FORMAT_TABLE(KV_ROW)
#undef KV_ROW
    return NULL;
}

/* How many steps of its scale the largest number of a block is. */
static uint32_t steps_of(int32_t format)
{
    uint32_t const codes = 1u << kv_format_at((size_t)format)->bits;
    switch (format) {
    case KV_FORMAT_Q8_0:
    case KV_FORMAT_IQ4_NL: return 127;
    case KV_FORMAT_Q4_1:
    case KV_FORMAT_Q5_1: return codes - 1;
    default: return codes / 2;
    }
}

/* A number of steps, whole or in the middle of two codes, often half a step. */
static float number_of_steps(int32_t format)
{
    uint32_t const k = number_below(4) ? number_below(2 * steps_of(format) + 1) : 1;
    if (format != KV_FORMAT_IQ4_NL) return (float)k * 0.5f;
    return fabsf(kv_iq4_nl_number(k % 15) + kv_iq4_nl_number(k % 15 + 1)) * 0.5f;
}

/* What the block's largest number, range or mean must be for a scale in the middle of two numbers
 * of f16, whose last bit decides which of them is stored. */
static float number_of_middle(int32_t format)
{
    uint32_t const code = 1 + number_below(0x7bfe);
    double const middle = ((double)kv_f16_decode(code) + (double)kv_f16_decode(code + 1)) / 2;
    bool const is_exl = kv_format_at((size_t)format)->name[0] == 'e';
    return (float)(is_exl ? middle - 1e-10 : middle * steps_of(format));
}

/* 32 numbers: any; of one sign; zeros; one number of both signs; where 1 / scale or the scale's f16
 * is at an end; an outlier; codes and their middles, from zero and from a minimum, of scales that
 * are powers of two and of any; and scales and minima that the last bit rounds up or down. Number
 * `lead` is the largest one. */
static void fill_block(float *x, int kind, int32_t format, uint32_t lead)
{
    uint32_t const last = lead ^ (1 + number_below(31));
    float const top = (float)steps_of(format);
    float const ends[] = {1e-15f, nextafterf(1e-15f, 0), 65504, 65520, 127 * 65520.0f, FLT_MAX};
    float const end = ends[number_below(6)];
    float const low = (float)(number_below(3) ? (int)number_below(40) - 30 : 0);
    float const power = kv_bits_float((number_below(2) ? 127 : 110 + number_below(34)) << 23);
    float const step = fabsf(number_of_exponent(115, 135)) / top;
    float const middle = number_near(number_of_middle(format));
    float const tiny = top * (0x1p-128f + (float)((int)number_below(3) - 1) * 0x1p-149f);
    float const small = (float)(1 + number_below(8)) * 0.25e-10f; /* exl adds 1e-10 */
    uint32_t const exponent = number_below(40);
    for (uint32_t i = 0; i < 32; i++) {
        float const some = number_of_steps(format);
        float const up = i == lead ? top : some, from = i == last ? 0 : up;
        bool const is_negative = number_word() >> 31;
        float const sign = is_negative ? -1.0f : 1.0f, any = number_of_exponent(120, 130);
        switch (kind) {
        case 0: x[i] = any; break;
        case 1: x[i] = fabsf(any) * (i % 4 ? 1.0f : 1e-3f) * (low > -10 ? 1.0f : -1.0f); break;
        case 2: x[i] = sign * (low > 0 ? 0.0f : low); break;
        case 3: x[i] = low; break;
        case 4: x[i] = up * sign * power; break;
        case 5: x[i] = (from + low) * power; break;
        case 6: x[i] = number_of_exponent(exponent, exponent + 2); break;
        case 7: x[i] = number_of_exponent(96 + exponent, 98 + exponent); break;
        case 8: x[i] = sign * end * (i % 5 ? 1.0f : 0.5f); break;
        case 9: x[i] = i == lead ? 1e4f * sign : any * 1e-3f; break;
        case 10: x[i] = number_of_exponent(0, 255); break;
        case 11: x[i] = i == last ? low * step : number_near(from + low) * step; break;
        case 12: x[i] = i == lead ? top * step * sign : number_near(some * step); break;
        case 13: x[i] = i == last ? 0 : i == lead ? middle : middle / 3; break;
        case 14: x[i] = i == last ? middle / top : i == lead ? middle * 2 : middle; break;
        case 15: x[i] = i == lead ? tiny : i == last ? 0 : tiny / 3; break;
        case 16: x[i] = i == lead ? middle : 0; break;
        case 17: x[i] = i == last ? 0 : (i == lead ? top : 0.5f - 0x1p-25f) * power; break;
        case 18: x[i] = i == lead ? small : number_near(some / top * (small + 1e-10f)); break;
        default: x[i] = i != lead ? any : number_of_no_scale(); break;
        }
    }
}

/* Only iq4_nl's codes do not go by way of an integer, so that NaN and infinities have one. */
enum { BLOCK_KINDS = 19 };
static int block_kinds(int32_t format)
{
    return format == KV_FORMAT_IQ4_NL ? BLOCK_KINDS + 1 : BLOCK_KINDS;
}

static void check_blocks(emulated *e, int32_t format)
{
    static float x[NUMBERS], values[NUMBERS];
    static const int middles[] = {5, 11, 12};
    static uint32_t codes[NUMBERS], lead;
    for (int i = 0; i < NUMBERS; i += 32) {
        int const kind = i / 32 % 2 ? i / 64 % block_kinds(format) : middles[lead / 64 % 3];
        fill_block(x + i, kind, format, lead++ / 2 % 32);
        block_of(format)(values + i, codes + i, x + i);
    }
    kv_cuda_scheme const scheme = {.format = format, .span = NUMBERS_TOKENS};
    check_numbers(e, kv_format_at((size_t)format)->name, &scheme, x, values, codes);
    give_back(e);
}

static void check_all_numbers(emulated *e)
{
    for (int32_t format = 0; format < KV_FORMAT_COUNT; format++)
        for (int pass = 0; pass < PASSES; pass++) {
            e->set_seed((uint64_t)(PASSES * format + pass));
            kv_format_kind const kind = kv_format_at((size_t)format)->kind;
            bool const is_integer = kind == KV_KIND_INTEGER;
            if (kind == KV_KIND_BLOCK) check_blocks(e, format);
            if (kind == KV_KIND_FLOAT || is_integer) check_grid(e, format, false, pass);
            if (is_integer) check_grid(e, format, true, pass);
        }
}

#endif
