/* Pulls: a query moved until its attention meets a target, on CPU and GPU with equal bits.
 *
 * A query q gets q + a * d. The direction d tells the target tokens from the rest: Fisher's linear
 * discriminant C^-1 (mean of the targets' keys - mean of all keys), C the covariance of the head's
 * keys. Without C^-1 a few loud channels would drown every needle; with it sinks of small norm are
 * found as models find them, against the mean the other keys share, also where RoPE turns that
 * mean. Where several target tokens have no such direction in common, half of them give it, in the
 * end one: the first of them, or the last ones where the target ends with what the row sees. The
 * factor a is found on exact logits in double; the query is rounded to float when all its pulls are
 * done.
 *
 * The order of sums: over channels kv_pull_products'; over tokens KV_PULL_LANES sums, of every
 * KV_PULL_LANES-th token from the first visible one on, then pairs i, i + LANES / 2 and so on. */
#ifndef KVANT_KERNELS_PULL_H
#define KVANT_KERNELS_PULL_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/error.h"
#include "kernels/real.h"

KV_EXTERN_C_BEGIN

/* What one row is pulled to: of the visible tokens [seen_begin, seen_end), those of [begin, end)
 * shall have a share of the attention, target = ln(share / (1 - share)), or with is_margin the
 * largest of their logits shall be `target` nats above all others. begin = end: nothing. At least
 * one visible token is a target, and one is not. */
typedef struct {
    int64_t seen_begin, seen_end, begin, end;
    double target;
    int32_t is_margin;
} kv_pull;

/* A row's pulls, which are met one after the other; the last one holds where they conflict. */
enum { KV_PULLS = 2 };

/* The factor of the direction, and how far the row then is from its target, nats. Where the target
 * is out of reach, factor is 0 and `away` the closest that it came. A pull to nothing is reached.
 */
typedef struct {
    double factor, away;
    int32_t is_reached;
} kv_pull_result;

/* Keys of one head after RoPE, [tokens][head_dim]; the mean of its channels, [head_dim]; and the
 * lower Cholesky factor of their covariance (times tokens), [head_dim][head_dim]. */
typedef struct {
    const float *key;
    int64_t tokens, head_dim;
    double softmax_scale;
    const double *mean, *factor;
} kv_pull_keys;

/* Doubles of scratch memory that the pulls of a row work in: the query and the direction
 * [head_dim], the logit at a = 0 and its change with a [tokens] of each token seen. */
KV_HD int64_t kv_pull_scratch(int64_t tokens, int64_t head_dim)
{
    return 2 * (tokens + head_dim);
}

/* Pulls the rows of one head, query [rows][D], in place. Stops after a row with a pull out of
 * reach: results of later rows are not set. key [T][D]. KV_ENOMEM. */
kv_status kv_pull_rows(float *query, kv_pull_result (*result)[KV_PULLS], const float *key,
                       const kv_pull (*pulls)[KV_PULLS], int64_t rows, int64_t tokens,
                       int64_t head_dim, double softmax_scale, kv_error *err);

/* Its parts. mean [D] and the lower triangle of covariance [D][D] (times tokens) of key [T][D], or
 * KV_ENOMEM; that triangle to its Cholesky factor, in place; and the pulls of one row, query [D],
 * in scratch [kv_pull_scratch]: true where all are reached. Thread-safe, each on its own memory. */
kv_status kv_pull_moments(double *mean, double *covariance, const float *key, int64_t tokens,
                          int64_t head_dim, kv_error *err);
void kv_pull_factorize(double *covariance, int64_t head_dim);
bool kv_pull_row(float *query, kv_pull_result result[KV_PULLS], double *scratch,
                 const kv_pull_keys *keys, const kv_pull pulls[KV_PULLS]);

KV_EXTERN_C_END

/* ---- arithmetic that both share ---- */

enum { KV_PULL_LANES = 256 };
#define KV_PULL_TOLERANCE 1e-10 /* nats */

/* Of numbers; fmax is a call on the CPU. */
KV_HD double kv_pull_larger(double x, double y)
{
    return x > y ? x : y;
}

/* Products of the query and of the direction with a key, of n channels; four sums each. */
KV_HD void kv_pull_products(double *logit, double *slope, const double *query,
                            const double *direction, const float *key, int64_t n)
{
    double a0 = 0, a1 = 0, a2 = 0, a3 = 0, b0 = 0, b1 = 0, b2 = 0, b3 = 0;
    int64_t i = 0;
    KV_ROLLED
    for (; i + 4 <= n; i += 4) {
        const double k0 = key[i], k1 = key[i + 1], k2 = key[i + 2], k3 = key[i + 3];
        a0 += query[i] * k0, b0 += direction[i] * k0;
        a1 += query[i + 1] * k1, b1 += direction[i + 1] * k1;
        a2 += query[i + 2] * k2, b2 += direction[i + 2] * k2;
        a3 += query[i + 3] * k3, b3 += direction[i + 3] * k3;
    }
    KV_ROLLED
    for (; i < n; i++) a0 += query[i] * (double)key[i], b0 += direction[i] * (double)key[i];
    *logit = (a0 + a1) + (a2 + a3);
    *slope = (b0 + b1) + (b2 + b3);
}

/* Log odds of a share from its weight and that of the rest; one of them is at least 1, and the
 * other counts as e^-708 where it vanished. */
KV_HD double kv_pull_odds(double inside, double outside)
{
    const double least = 0x1p-1022;
    return kv_log(kv_pull_larger(inside, least)) - kv_log(kv_pull_larger(outside, least));
}

/* The search for a with f(a) = 0, f the distance from the target: steps from a = 0 until f changes
 * its sign, half a nat each, growing by 5 %, since f can turn back and a solution must not be
 * jumped over; then regula falsi in its Illinois form, where the end that stays twice counts half.
 *
 *     kv_pull_search s = kv_pull_begin(largest_slope, largest_logit, target);
 *     while (kv_pull_next(&s)) kv_pull_note(&s, f(s.a));
 *     if (s.is_across) ... s.high_a solves it
 *
 * largest_slope and largest_logit are of |d logit / d a| and |logit| over the visible tokens. */
typedef struct {
    double a; /* where f is asked */
    double low_a, low_f, high_a, high_f, closest, slope, limit;
    double sign;        /* of the steps; 0 before f(0) is known */
    int32_t cuts, side; /* how many there were; which end moved last */
    bool is_across;     /* low and high have a solution between them */
} kv_pull_search;

KV_HD kv_pull_search kv_pull_begin(double largest_slope, double largest_logit, double target)
{
    kv_pull_search s;
    s.a = s.low_a = s.low_f = s.high_a = s.high_f = s.sign = 0;
    s.closest = INFINITY;
    s.slope = largest_slope;
    s.cuts = s.side = 0, s.is_across = false;
    /* far beyond the logits there are, one token outshouts another by chance */
    s.limit = 100 + 10 * (largest_logit + fabs(target));
    return s;
}

/* Sets s->a and returns true where f is to be asked. */
KV_HD bool kv_pull_next(kv_pull_search *s)
{
    enum { MOST_CUTS = 100 };
    const double high = s->high_a;
    if (s->sign == 0) return true;
    if (!s->is_across) {
        s->a = high + s->sign * kv_pull_larger(0.5 / s->slope, 0.05 * fabs(high));
        return s->slope > 0 && fabs(high) * s->slope < s->limit;
    }
    s->a = high - s->high_f * (high - s->low_a) / (s->high_f - s->low_f);
    return s->cuts < MOST_CUTS && fabs(s->high_f) > KV_PULL_TOLERANCE;
}

/* f is the distance at s->a. */
KV_HD void kv_pull_note(kv_pull_search *s, double f)
{
    if (s->sign == 0) s->sign = f < 0 ? 1 : -1;
    const bool is_beyond = f * s->sign >= 0;
    if (!s->is_across) {
        s->low_a = s->high_a, s->low_f = s->high_f;
        s->high_a = s->a, s->high_f = f;
        if (fabs(f) < fabs(s->closest)) s->closest = f;
        s->is_across = is_beyond;
        return;
    }
    s->cuts++;
    if (is_beyond || fabs(f) <= KV_PULL_TOLERANCE) {
        if (s->side > 0) s->low_f /= 2;
        s->high_a = s->a, s->high_f = f, s->side = 1;
    } else {
        if (s->side < 0) s->high_f /= 2;
        s->low_a = s->a, s->low_f = f, s->side = -1;
    }
}

#endif
