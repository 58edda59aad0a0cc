/* Pulls on the CPU: the specification of what kernels/cuda/pull.cu and covariance.cu compute. */
#include "kernels/pull.h"

#include <math.h>

#include "kernels/memory.h"

/* ---- the head: mean and covariance of its keys ---- */

/* Adds the products of TOGETHER tokens' centred channels [TOGETHER][D] to the lower triangle, one
 * token after another in every sum: a pass over the triangle for each would be slow. */
enum { TOGETHER = 8 };
static void add_products(double *covariance, const double *centred, int64_t width)
{
    for (int64_t i = 0; i < width; i++) {
        double *const row = covariance + i * width;
        double at[TOGETHER];
        for (int k = 0; k < TOGETHER; k++) at[k] = centred[k * width + i];
        for (int64_t j = 0; j <= i; j++) {
            const double *const c = centred + j;
            double sum = row[j];
            for (int k = 0; k < TOGETHER; k++) sum += at[k] * c[k * width];
            row[j] = sum;
        }
    }
}

/* Missing tokens of the last group count as the mean. */
kv_status kv_pull_moments(double *mean, double *covariance, const float *key, int64_t tokens,
                          int64_t head_dim, kv_error *err)
{
    double *centred = NULL;
    kv_status const status =
        kv_allocate3((void **)&centred, TOGETHER, (size_t)head_dim, 1, sizeof *centred, err);
    if (status != KV_OK) return status;
    for (int64_t c = 0; c < head_dim; c++) mean[c] = 0;
    for (int64_t i = 0; i < head_dim * head_dim; i++) covariance[i] = 0;
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t c = 0; c < head_dim; c++) mean[c] += (double)key[t * head_dim + c];
    for (int64_t c = 0; c < head_dim; c++) mean[c] /= (double)tokens;
    for (int64_t t = 0; t < tokens; t += TOGETHER) {
        for (int64_t k = 0; k < TOGETHER; k++)
            for (int64_t c = 0; c < head_dim; c++)
                centred[k * head_dim + c] =
                    t + k < tokens ? (double)key[(t + k) * head_dim + c] - mean[c] : 0;
        add_products(covariance, centred, head_dim);
    }
    kv_free(centred);
    return KV_OK;
}

/* A ridge of 1e-6 of the loudest channel's variance keeps a constant channel, or fewer tokens than
 * channels, from taking everything. */
void kv_pull_factorize(double *a, int64_t head_dim)
{
    double largest = 0;
    for (int64_t i = 0; i < head_dim; i++) largest = fmax(largest, a[i * head_dim + i]);
    double const ridge = largest > 0 ? 1e-6 * largest : 1;
    for (int64_t i = 0; i < head_dim; i++) {
        a[i * head_dim + i] += ridge;
        for (int64_t j = 0; j <= i; j++) {
            double sum = a[i * head_dim + j];
            for (int64_t k = 0; k < j; k++) sum -= a[i * head_dim + k] * a[j * head_dim + k];
            /* a pivot is at least the ridge but for rounding */
            a[i * head_dim + j] = i == j ? sqrt(fmax(sum, ridge / 2)) : sum / a[j * head_dim + j];
        }
    }
}

/* ---- one pull ---- */

typedef struct {
    const kv_pull_keys *keys;
    const kv_pull *to;
    double *query, *direction, *logit, *slope; /* in scratch: [D], [D], [T], [T] */
} pulling;

/* x [D] becomes C^-1 x, with C = factor * factor'. */
static void divide(double *x, const double *factor, int64_t width)
{
    for (int64_t i = 0; i < width; i++) {
        for (int64_t j = 0; j < i; j++) x[i] -= factor[i * width + j] * x[j];
        x[i] /= factor[i * width + i];
    }
    for (int64_t i = width; i-- > 0;) {
        x[i] /= factor[i * width + i];
        for (int64_t j = 0; j < i; j++) x[j] -= factor[i * width + j] * x[i];
    }
}

/* The direction of length 1 that sets tokens [begin, end) apart. */
static void aim(pulling *p, int64_t begin, int64_t end)
{
    int64_t const width = p->keys->head_dim;
    double square = 0;
    for (int64_t c = 0; c < width; c++) {
        double sum = 0;
        for (int64_t t = begin; t < end; t++) sum += (double)p->keys->key[t * width + c];
        p->direction[c] = sum / (double)(end - begin) - p->keys->mean[c];
    }
    divide(p->direction, p->keys->factor, width);
    for (int64_t c = 0; c < width; c++) square += p->direction[c] * p->direction[c];
    double const length = square > 0 ? sqrt(square) : 1;
    for (int64_t c = 0; c < width; c++) p->direction[c] /= length;
}

/* Logit and slope of each token seen, and the largest magnitude of each. */
static void project(pulling *p, double *largest_logit, double *largest_slope)
{
    const kv_pull_keys *const k = p->keys;
    *largest_logit = *largest_slope = 0;
    for (int64_t t = p->to->seen_begin; t < p->to->seen_end; t++) {
        const float *const key = k->key + t * k->head_dim;
        kv_pull_products(&p->logit[t], &p->slope[t], p->query, p->direction, key, k->head_dim);
        p->logit[t] *= k->softmax_scale, p->slope[t] *= k->softmax_scale;
        *largest_logit = kv_pull_larger(*largest_logit, fabs(p->logit[t]));
        *largest_slope = kv_pull_larger(*largest_slope, fabs(p->slope[t]));
    }
}

/* The largest logit of tokens [begin, end) at factor a, or `largest`. */
static double largest_of(const pulling *p, double a, int64_t begin, int64_t end, double largest)
{
    for (int64_t t = begin; t < end; t++)
        largest = kv_pull_larger(largest, p->logit[t] + a * p->slope[t]);
    return largest;
}

/* Adds weights exp(logit - top) of tokens [begin, end) to the lanes. */
static void add_weights(double *lanes, const pulling *p, double a, double top, int64_t begin,
                        int64_t end)
{
    for (int64_t t = begin, n; t < end; t += n) {
        int64_t const lane = (t - p->to->seen_begin) % KV_PULL_LANES;
        const double *const logit = p->logit + t, *const slope = p->slope + t;
        double *const sum = lanes + lane;
        n = KV_PULL_LANES - lane < end - t ? KV_PULL_LANES - lane : end - t;
        for (int64_t i = 0; i < n; i++) sum[i] += kv_exp(logit[i] + a * slope[i] - top);
    }
}

static double sum_of_lanes(double *lanes)
{
    for (int half = KV_PULL_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
    return lanes[0];
}

/* How far the row is from its target at factor a. */
static double distance(const pulling *p, double a)
{
    const kv_pull *const to = p->to;
    double inside[KV_PULL_LANES] = {0}, outside[KV_PULL_LANES] = {0};
    double const in = largest_of(p, a, to->begin, to->end, -HUGE_VAL);
    double const before = largest_of(p, a, to->seen_begin, to->begin, -HUGE_VAL);
    double const out = largest_of(p, a, to->end, to->seen_end, before);
    if (to->is_margin) return in - out - to->target;
    double const top = kv_pull_larger(in, out);
    add_weights(inside, p, a, top, to->begin, to->end);
    add_weights(outside, p, a, top, to->seen_begin, to->begin);
    add_weights(outside, p, a, top, to->end, to->seen_end);
    return kv_pull_odds(sum_of_lanes(inside), sum_of_lanes(outside)) - to->target;
}

/* Adds the pull to the query, or leaves it where the target is out of reach. */
static kv_pull_result pull(pulling *p)
{
    const kv_pull *const to = p->to;
    int64_t const width = p->keys->head_dim;
    kv_pull_result result = {.away = HUGE_VAL};
    for (int64_t n = to->end - to->begin; n > 0; n /= 2) {
        double logit, slope;
        bool const is_last = to->end == to->seen_end;
        aim(p, is_last ? to->end - n : to->begin, is_last ? to->end : to->begin + n);
        project(p, &logit, &slope);
        kv_pull_search s = kv_pull_begin(slope, logit, to->target);
        while (kv_pull_next(&s)) kv_pull_note(&s, distance(p, s.a));
        if (s.is_across) {
            for (int64_t c = 0; c < width; c++) p->query[c] += s.high_a * p->direction[c];
            return (kv_pull_result){s.high_a, s.high_f, 1};
        }
        if (fabs(s.closest) < fabs(result.away)) result.away = s.closest;
    }
    return result;
}

bool kv_pull_row(float *query, kv_pull_result result[KV_PULLS], double *scratch,
                 const kv_pull_keys *keys, const kv_pull pulls[KV_PULLS])
{
    int64_t const width = keys->head_dim;
    bool is_reached = true;
    pulling p = {.keys = keys,
                 .query = scratch,
                 .direction = scratch + width,
                 .logit = scratch + 2 * width,
                 .slope = scratch + 2 * width + keys->tokens};
    for (int64_t c = 0; c < width; c++) p.query[c] = (double)query[c];
    for (int i = 0; i < KV_PULLS; i++) {
        p.to = &pulls[i];
        result[i] = (kv_pull_result){.is_reached = 1};
        if (p.to->begin < p.to->end) result[i] = pull(&p);
        is_reached = is_reached && result[i].is_reached;
    }
    for (int64_t c = 0; c < width; c++) query[c] = (float)p.query[c];
    return is_reached;
}

/* ---- all rows ---- */

kv_status kv_pull_rows(float *query, kv_pull_result (*result)[KV_PULLS], const float *key,
                       const kv_pull (*pulls)[KV_PULLS], int64_t rows, int64_t tokens,
                       int64_t head_dim, double softmax_scale, kv_error *err)
{
    kv_status status = KV_OK;
    size_t const width = (size_t)head_dim;
    double *mean = NULL, *factor = NULL, *scratch = NULL;
    KV_TRY(kv_allocate((void **)&mean, width, sizeof *mean, err));
    KV_TRY(kv_allocate3((void **)&factor, width, width, 1, sizeof *factor, err));
    KV_TRY(kv_allocate((void **)&scratch, (size_t)kv_pull_scratch(tokens, head_dim),
                       sizeof *scratch, err));
    KV_TRY(kv_pull_moments(mean, factor, key, tokens, head_dim, err));
    kv_pull_factorize(factor, head_dim);
    kv_pull_keys const keys = {key, tokens, head_dim, softmax_scale, mean, factor};
    for (int64_t row = 0; row < rows; row++)
        if (!kv_pull_row(query + row * head_dim, result[row], scratch, &keys, pulls[row])) break;
done:
    kv_free(mean);
    kv_free(factor);
    kv_free(scratch);
    return status;
}
