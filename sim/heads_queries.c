/* Heads, shaped queries: pulls each query until its attention meets a target.
 *
 * A query q gets q + a * d. The direction d tells the target tokens from the rest: Fisher's linear
 * discriminant C^-1 (mean of the targets' keys - mean of all keys), C the covariance of the head's
 * keys. Without C^-1 a few loud channels would drown every needle; with it sinks of small norm are
 * found as models find them, against the mean the other keys share, also where RoPE turns that
 * mean. Where several target tokens have no such direction in common, fewer of them give it. The
 * factor a is found on exact logits in double:
 *
 *   sinks   softmax mass on the visible sink tokens = sink_mass, all classes; rows that see no sink
 *           or nothing else stay as they are
 *   local   mass on the last local_span visible tokens = local_mass; rows that see no more stay
 *   needle  the needle's logit minus the largest other logit = needle_margin
 *
 * Sinks come first, then the class: where the two conflict the class keeps its target and the
 * sinks' mass moves. Reached to about 1e-6, the rounding of the query to float. */
#include <math.h>

#include "kernels/memory.h"
#include "sim/heads_state.h"

/* One row at work. Target tokens are [target.begin, target.end) among the visible. */
typedef struct {
    const kv_heads *heads;
    int64_t kv_head, row;
    const float *key;      /* [T][D], after RoPE */
    const double *mean;    /* [D] of the keys */
    const double *factor;  /* [D][D] lower Cholesky factor of their covariance */
    double *direction;     /* [D] */
    double *logit, *slope; /* [T] logit at a = 0 and its change with a */
    kv_visible visible, target;
    kv_visible aim; /* tokens of the target that give the direction */
} pull;

/* How far a row is from its target at factor a; 0 is there. */
typedef double distance(const pull *p, double a, double target);

static bool is_target(const pull *p, int64_t t)
{
    return t >= p->target.begin && t < p->target.end;
}

/* Of numbers; fmax is a call. */
static double larger(double x, double y)
{
    return x > y ? x : y;
}

/* Log odds of the target's mass minus those wanted. */
static double mass_distance(const pull *p, double a, double mass)
{
    double top = -HUGE_VAL, inside = 0, outside = 0;
    for (int64_t t = p->visible.begin; t < p->visible.end; t++)
        top = larger(top, p->logit[t] + a * p->slope[t]);
    for (int64_t t = p->visible.begin; t < p->visible.end; t++)
        *(is_target(p, t) ? &inside : &outside) += exp(p->logit[t] + a * p->slope[t] - top);
    /* never 0 / 0: the largest term is 1; a side that vanished counts as e^-745 */
    double const odds = log(fmax(inside, 5e-324)) - log(fmax(outside, 5e-324));
    return odds - log(mass / (1 - mass));
}

static double margin_distance(const pull *p, double a, double margin)
{
    double inside = -HUGE_VAL, outside = -HUGE_VAL;
    for (int64_t t = p->visible.begin; t < p->visible.end; t++) {
        double *const side = is_target(p, t) ? &inside : &outside;
        *side = larger(*side, p->logit[t] + a * p->slope[t]);
    }
    return inside - outside - margin;
}

static double dot(const double *x, const float *y, int64_t n)
{
    double sum[4] = {0};
    int64_t c = 0;
    for (; c + 4 <= n; c += 4)
        for (int k = 0; k < 4; k++) sum[k] += x[c + k] * (double)y[c + k];
    for (; c < n; c++) sum[0] += x[c] * (double)y[c];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

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

/* Direction of the target and, for each visible token, logit and slope of the row's query q [D]. */
static void prepare(pull *p, const double *q)
{
    const kv_layer *const layer = &p->heads->layer;
    int64_t const width = layer->head_dim, n = p->aim.end - p->aim.begin;
    double norm = 0;
    for (int64_t c = 0; c < width; c++) {
        double sum = 0;
        for (int64_t t = p->aim.begin; t < p->aim.end; t++) sum += p->key[t * width + c];
        p->direction[c] = sum / (double)n - p->mean[c];
    }
    divide(p->direction, p->factor, width);
    for (int64_t c = 0; c < width; c++) norm += p->direction[c] * p->direction[c];
    for (int64_t c = 0; c < width && norm > 0; c++) p->direction[c] /= sqrt(norm);
    for (int64_t t = p->visible.begin; t < p->visible.end; t++) {
        p->logit[t] = layer->softmax_scale * dot(q, p->key + t * width, width);
        p->slope[t] = layer->softmax_scale * dot(p->direction, p->key + t * width, width);
    }
}

/* One end of an interval that holds a solution. */
typedef struct {
    double a, f;
} end;

/* Steps from a = 0 until f changes its sign between *low and *high. *best is the closest approach.
 */
static bool bracket(end *low, end *high, double *best, const pull *p, distance *f, double target)
{
    enum { MAX_STEPS = 400 };
    double const start = f(p, 0, target), sign = start < 0 ? 1 : -1;
    double largest = 0, loudest = 0;
    for (int64_t t = p->visible.begin; t < p->visible.end; t++) {
        largest = larger(largest, fabs(p->slope[t]));
        loudest = larger(loudest, fabs(p->logit[t]));
    }
    /* far beyond the logits there are, one token outshouts another by chance */
    double const limit = 100 + 10 * (loudest + fabs(target));
    *low = *high = (end){0, start}, *best = start;
    /* half a nat, growing by 5 %: f can turn back, so a solution must not be jumped over */
    for (int i = 0; i < MAX_STEPS && high->f * sign < 0 && largest > 0; i++) {
        *low = *high;
        high->a += sign * fmax(0.5 / largest, 0.05 * fabs(high->a));
        high->f = f(p, high->a, target);
        if (fabs(high->f) < fabs(*best)) *best = high->f;
        if (fabs(high->a) * largest > limit) break;
    }
    return high->f * sign >= 0;
}

/* Solves f(a) = 0 by regula falsi in its Illinois form: the end that stays twice counts half. */
static bool solve(double *a, double *best, const pull *p, distance *f, double target)
{
    enum { MAX_STEPS = 100 };
    double const tolerance = 1e-10; /* nats */
    end low, high;
    if (!bracket(&low, &high, best, p, f, target)) return false;
    double const sign = high.f < 0 ? -1 : 1;
    int last = 0;
    for (int i = 0; i < MAX_STEPS && fabs(high.f) > tolerance; i++) {
        double at = high.a - high.f * (high.a - low.a) / (high.f - low.f);
        if (!(fabs(at - low.a) + fabs(at - high.a) <= fabs(high.a - low.a))) /* rounding */
            at = low.a + (high.a - low.a) / 2;
        end const now = {at, f(p, at, target)};
        int const side = now.f * sign >= 0 ? 1 : -1;
        if (fabs(now.f) <= tolerance) {
            high = now;
            break;
        }
        if (side == last) *(side > 0 ? &low.f : &high.f) /= 2;
        *(side > 0 ? &high : &low) = now, last = side;
    }
    *a = high.a;
    return true;
}

/* Adds the pull to q [D]. Many tokens may have no direction in common; then half of them, in the
 * end one, give it: the first of the sinks, the last of the recent ones. */
static kv_status pull_row(pull *p, double *q, distance *f, double target, const char *what,
                          kv_error *err)
{
    double a = 0, best = HUGE_VAL;
    bool const is_recent = p->target.end == p->visible.end, is_margin = f == margin_distance;
    for (int64_t n = p->target.end - p->target.begin; n > 0; n /= 2) {
        double closest;
        p->aim = p->target;
        *(is_recent ? &p->aim.begin : &p->aim.end) = is_recent ? p->aim.end - n : p->aim.begin + n;
        prepare(p, q);
        if (solve(&a, &closest, p, f, target)) {
            for (int64_t c = 0; c < p->heads->layer.head_dim; c++) q[c] += a * p->direction[c];
            return KV_OK;
        }
        if (fabs(closest) < fabs(best)) best = closest;
    }
    double const odds = log(target / (1 - target)) + best;
    return KV_FAIL(
        err, KV_EREQUEST,
        "heads: layer %lld, kv head %lld, query row %lld: %s %g cannot be reached, only "
        "%.3g; keys of the target tokens are too close to the others%s",
        (long long)p->heads->index, (long long)p->kv_head, (long long)p->row, what, target,
        is_margin ? target + best : 1 / (1 + exp(-odds)),
        is_margin ? ""
                  : " (a larger key gain, or an outlier bias on slow RoPE pairs, sets them apart)");
}

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

/* Mean [D] and covariance [D][D] (its lower triangle, times T) of the keys over the tokens; centred
 * [TOGETHER][D] is scratch. Missing tokens of the last group count as the mean. */
static void key_moments(double *mean, double *covariance, double *centred, const float *key,
                        int64_t tokens, int64_t width)
{
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t c = 0; c < width; c++) mean[c] += (double)key[t * width + c] / (double)tokens;
    for (int64_t t = 0; t < tokens; t += TOGETHER) {
        for (int64_t k = 0; k < TOGETHER; k++)
            for (int64_t c = 0; c < width; c++)
                centred[k * width + c] =
                    t + k < tokens ? (double)key[(t + k) * width + c] - mean[c] : 0;
        add_products(covariance, centred, width);
    }
}

/* The lower triangle becomes its Cholesky factor. A ridge of 1e-6 of the loudest channel's variance
 * keeps a constant channel, or fewer tokens than channels, from taking everything. */
static void factorize(double *a, int64_t width)
{
    double largest = 0;
    for (int64_t i = 0; i < width; i++) largest = fmax(largest, a[i * width + i]);
    double const ridge = largest > 0 ? 1e-6 * largest : 1;
    for (int64_t i = 0; i < width; i++) {
        a[i * width + i] += ridge;
        for (int64_t j = 0; j <= i; j++) {
            double sum = a[i * width + j];
            for (int64_t k = 0; k < j; k++) sum -= a[i * width + k] * a[j * width + k];
            /* a pivot is at least the ridge but for rounding */
            a[i * width + j] = i == j ? sqrt(fmax(sum, ridge / 2)) : sum / a[j * width + j];
        }
    }
}

static kv_status shape_row(pull *p, double *q, kv_error *err)
{
    const kv_heads_config *const config = &p->heads->config;
    int64_t const i = p->row % p->heads->layer.queries;
    uint8_t const kind = p->heads->classes[i];
    const kv_layer *const layer = &p->heads->layer;
    kv_visible const seen = kv_layer_visible(layer, layer->query_position[i]);
    int64_t const sinks = config->sink_count < seen.end ? config->sink_count : seen.end;
    kv_status status = KV_OK;
    p->visible = seen;
    p->target = (kv_visible){seen.begin, sinks};
    if (config->sink_mass > 0 && sinks > seen.begin && sinks < seen.end)
        KV_TRY(pull_row(p, q, mass_distance, config->sink_mass, "sink mass", err));
    p->target = (kv_visible){seen.end - config->local_span, seen.end};
    if (kind == KV_CLASS_LOCAL && p->target.begin > seen.begin)
        KV_TRY(pull_row(p, q, mass_distance, config->local_mass, "local mass", err));
    if (kind == KV_CLASS_NEEDLE) {
        p->target.begin = p->heads->needle[i], p->target.end = p->target.begin + 1;
        KV_TRY(pull_row(p, q, margin_distance, config->needle_margin, "needle margin", err));
    }
done:
    return status;
}

kv_status kv_heads_shape_queries(kv_heads *heads, int64_t kv_head, float *query, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_layer *const layer = &heads->layer;
    size_t const tokens = (size_t)layer->tokens, width = (size_t)layer->head_dim;
    float *key = NULL;
    double *mean = NULL, *factor = NULL, *centred = NULL, *q = NULL;
    pull p = {.heads = heads, .kv_head = kv_head};
    KV_TRY(kv_allocate3((void **)&key, tokens, width, 1, sizeof *key, err));
    KV_TRY(kv_allocate((void **)&mean, width, sizeof *mean, err));
    KV_TRY(kv_allocate3((void **)&factor, width, width, 1, sizeof *factor, err));
    KV_TRY(kv_allocate3((void **)&centred, TOGETHER, width, 1, sizeof *centred, err));
    KV_TRY(kv_allocate((void **)&q, width, sizeof *q, err));
    KV_TRY(kv_allocate((void **)&p.direction, width, sizeof(double), err));
    KV_TRY(kv_allocate((void **)&p.logit, tokens, sizeof(double), err));
    KV_TRY(kv_allocate((void **)&p.slope, tokens, sizeof(double), err));
    KV_TRY(layer->source.load(layer->source.context, KV_KEY, kv_head, 0, key, err));
    key_moments(mean, factor, centred, key, layer->tokens, layer->head_dim);
    factorize(factor, layer->head_dim);
    p.key = key, p.mean = mean, p.factor = factor;
    int64_t const rows = layer->query_heads / layer->kv_heads * layer->queries;
    for (p.row = 0; p.row < rows; p.row++) {
        float *const row = query + (size_t)p.row * width;
        for (size_t c = 0; c < width; c++) q[c] = row[c];
        KV_TRY(shape_row(&p, q, err));
        for (size_t c = 0; c < width; c++) row[c] = (float)q[c];
    }
done:
    kv_free(key);
    kv_free(mean);
    kv_free(factor);
    kv_free(centred);
    kv_free(q);
    kv_free(p.direction);
    kv_free(p.logit);
    kv_free(p.slope);
    return status;
}
