/* The inner loops for one instruction set: compiled once per row of KV_ISA_TABLE (isa.h). */
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/products.h"
#include "kernels/cpu/rows.h"

/* 16 chains hide the latency of two FMA units; on narrower vectors a vec is several of them. */
enum { CHAINS = VEC_PANELS > 1 ? 16 : VEC_ROWS > 1 ? 6 : 1 };

static double burn_fma(float *sink, int64_t rounds)
{
    vec acc[CHAINS];
    for (int i = 0; i < CHAINS; i++) acc[i] = vec_all((float)i);
    vec const a = vec_all(sink[0]), b = vec_all(sink[1]);
    for (int64_t r = 0; r < rounds; r++)
        for (int i = 0; i < CHAINS; i++) acc[i] = vec_fma(acc[i], a, b);
    for (int i = 1; i < CHAINS; i++) acc[0] = vec_add(acc[0], acc[i]);
    vec_store(sink + 2, acc[0]);
    return 2.0 * VEC * CHAINS * (double)rounds;
}

static float read_all(const float *x, int64_t n)
{
    vec s[8];
    for (int i = 0; i < 8; i++) s[i] = vec_all(0);
    for (int64_t j = 0; j + 8 * VEC <= n; j += 8 * VEC)
        for (int i = 0; i < 8; i++) s[i] = vec_max(s[i], vec_load(x + j + i * VEC));
    for (int i = 1; i < 8; i++) s[0] = vec_max(s[0], s[i]);
    float lanes[VEC], sum = 0;
    vec_store(lanes, s[0]);
    for (int i = 0; i < VEC; i++) sum += lanes[i];
    return sum;
}

extern const kv_cpu_kernels KV_ISA_NAME(kv_cpu_kernels);
const kv_cpu_kernels KV_ISA_NAME(kv_cpu_kernels) = {
    .logits = logits,
    .logits_apart = logits_apart,
    .outputs = outputs,
    .pack = pack,
    .row_hide = row_hide,
    .row_max = row_max,
    .row_weights = row_weights,
    .row_compare = row_compare,
    .row_finish = row_finish,
    .row_top = row_top,
    .largest_magnitude = largest_magnitude,
    .count_magnitudes = count_magnitudes,
    .sum_square = sum_square,
    .sum_square_difference = sum_square_difference,
    .sum_square_scaled_difference = sum_square_scaled_difference,
    .burn_fma = burn_fma,
    .read_all = read_all,
};
