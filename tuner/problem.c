/* Problems: see problem.h. Making them from arrays, looking things up, integers, records. */
#include "tuner/problem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/memory.h"
#include "kernels/shorthand.h"
#include "tuner/problem_parts.h"

static void free_side(kv_problem_side *side)
{
    for (int64_t i = 0; side->schemes && i < side->n; i++) kv_free(side->schemes[i]);
    kv_free(side->schemes), kv_free(side->error), kv_free(side->bytes);
}

void kv_problem_free(kv_problem *problem)
{
    if (!problem) return;
    for (int64_t i = 0; problem->layers && i < problem->n_layers; i++)
        kv_free(problem->layers[i].choices);
    kv_free(problem->layers);
    free_side(&problem->keys), free_side(&problem->values);
    for (int64_t i = 0; i < problem->n_extra; i++) kv_free(problem->extra_names[i]);
    kv_free(problem->extra_names), kv_free(problem->extra_values), kv_free(problem->extra_text);
    kv_free(problem->row_layer), kv_free(problem->row_key), kv_free(problem->row_value);
    kv_free(problem);
}

/* ---- making ---- */

static kv_status make_side(kv_problem_side *side, int64_t n_layers, kv_error *err)
{
    kv_status status = KV_OK;
    size_t const n = (size_t)side->n, L = (size_t)n_layers;
    KV_TRY(kv_allocate3((void **)&side->error, L, n, 1, sizeof *side->error, err));
    KV_TRY(kv_allocate3((void **)&side->bytes, L, n, 1, sizeof *side->bytes, err));
    for (size_t i = 0; i < L * n; i++) side->error[i] = (double)NAN, side->bytes[i] = -1;
done:
    return status;
}

kv_status kv_problem_make_sides(kv_problem *problem, kv_error *err)
{
    kv_status const status = make_side(&problem->keys, problem->n_layers, err);
    return status == KV_OK ? make_side(&problem->values, problem->n_layers, err) : status;
}

/* Adds the pair where the layer has both of its schemes. */
static void add_pair(kv_problem *p, int64_t layer, int32_t key, int32_t value)
{
    kv_problem_layer *const to = &p->layers[layer];
    int64_t const k = layer * p->keys.n + key, v = layer * p->values.n + value;
    if (isnan(p->keys.error[k]) || isnan(p->values.error[v])) return;
    to->choices[to->n_choices++] =
        (kv_choice){key, value, p->keys.bytes[k] + p->values.bytes[v],
                    p->keys.error[k] + p->values.error[v], KV_ERROR_GIVEN};
}

/* Schemes that a layer has. */
static int64_t count_schemes(const kv_problem_side *side, int64_t layer)
{
    int64_t n = 0;
    for (int64_t i = layer * side->n; i < (layer + 1) * side->n; i++) n += !isnan(side->error[i]);
    return n;
}

kv_status kv_problem_pair_choices(kv_problem *p, const int32_t (*pairs)[2], int64_t n_pairs,
                                  kv_error *err)
{
    for (int64_t layer = 0; layer < p->n_layers; layer++) {
        kv_problem_layer *const to = &p->layers[layer];
        int64_t const rows = n_pairs ? n_pairs : count_schemes(&p->keys, layer);
        int64_t const columns = n_pairs ? 1 : count_schemes(&p->values, layer);
        kv_status const status = kv_allocate3((void **)&to->choices, (size_t)rows, (size_t)columns,
                                              1, sizeof *to->choices, err);
        if (status != KV_OK) return status;
        for (int64_t i = 0; i < n_pairs; i++) add_pair(p, layer, pairs[i][0], pairs[i][1]);
        for (int32_t k = 0; !n_pairs && k < p->keys.n; k++) {
            if (isnan(p->keys.error[layer * p->keys.n + k])) continue;
            for (int32_t v = 0; v < p->values.n; v++) add_pair(p, layer, k, v);
        }
        if (to->n_choices == 0)
            return KV_FAIL(err, KV_EREQUEST, "layer %" PRId64 " has no choices", to->number);
    }
    return KV_OK;
}

static kv_status copy_side(kv_problem_side *out, const kv_problem_side *side, int64_t n_layers,
                           bool is_key, kv_error *err)
{
    kv_status status = KV_OK;
    KV_TRY(kv_allocate((void **)&out->schemes, (size_t)side->n, sizeof *out->schemes, err));
    for (; out->n < side->n; out->n++)
        KV_TRY(kv_scheme_canonical(&out->schemes[out->n], side->schemes[out->n], is_key, err));
    KV_TRY(make_side(out, n_layers, err));
    for (int64_t i = 0; i < n_layers * side->n; i++) {
        double const error = side->error[i];
        if (isnan(error) && side->bytes[i] == -1) continue;
        if (!(error >= 0) || isinf(error) || side->bytes[i] < 0)
            KV_TRY(KV_FAIL(err, KV_EREQUEST,
                           "layer position %" PRId64 ", %s %s: error %g and %" PRId64
                           " bytes: must be finite and not negative",
                           i / side->n, is_key ? "key" : "value", side->schemes[i % side->n], error,
                           side->bytes[i]));
        out->error[i] = error, out->bytes[i] = side->bytes[i];
    }
done:
    return status;
}

kv_status kv_problem_create(kv_problem **out, int64_t n_layers, const int64_t *numbers,
                            const kv_problem_side *keys, const kv_problem_side *values,
                            const int32_t (*pairs)[2], int64_t n_pairs, kv_error *err)
{
    kv_status status = KV_OK;
    kv_problem *p = NULL;
    KV_TRY(kv_allocate((void **)&p, 1, sizeof *p, err));
    KV_TRY(kv_allocate((void **)&p->layers, (size_t)n_layers, sizeof *p->layers, err));
    p->n_layers = n_layers, p->is_separable = true;
    for (int64_t i = 0; i < n_layers; i++) {
        p->layers[i].number = numbers[i];
        if (i && numbers[i] <= numbers[i - 1])
            KV_TRY(KV_FAIL(err, KV_EREQUEST,
                           "layer %" PRId64 " after layer %" PRId64 ": numbers must rise",
                           numbers[i], numbers[i - 1]));
    }
    KV_TRY(copy_side(&p->keys, keys, n_layers, true, err));
    KV_TRY(copy_side(&p->values, values, n_layers, false, err));
    KV_TRY(kv_problem_pair_choices(p, pairs, n_pairs, err));
    *out = p, p = NULL;
done:
    kv_problem_free(p);
    return status;
}

/* ---- looking up ---- */

int32_t kv_problem_scheme(const kv_problem *problem, const char *text, bool is_key)
{
    const kv_problem_side *const side = is_key ? &problem->keys : &problem->values;
    char *canonical = NULL;
    int32_t found = -1;
    if (kv_scheme_canonical(&canonical, text, is_key, NULL) != KV_OK) return -1;
    for (int32_t i = 0; found < 0 && i < side->n; i++)
        if (strcmp(side->schemes[i], canonical) == 0) found = i;
    kv_free(canonical);
    return found;
}

int64_t kv_problem_layer_at(const kv_problem *problem, int64_t number)
{
    for (int64_t i = 0; i < problem->n_layers; i++)
        if (problem->layers[i].number == number) return i;
    return -1;
}

int64_t kv_problem_find(const kv_problem *problem, int64_t layer, const char *key,
                        const char *value)
{
    int32_t const k = kv_problem_scheme(problem, key, true);
    int32_t const v = kv_problem_scheme(problem, value, false);
    const kv_problem_layer *const at = &problem->layers[layer];
    for (int64_t i = 0; k >= 0 && v >= 0 && i < at->n_choices; i++)
        if (at->choices[i].key == k && at->choices[i].value == v) return i;
    return -1;
}

int64_t kv_problem_dominator(const kv_problem_layer *layer, int64_t choice)
{
    const kv_choice *const c = &layer->choices[choice];
    for (int64_t i = 0; i < layer->n_choices; i++) {
        const kv_choice *const x = &layer->choices[i];
        if (i == choice || x->bytes > c->bytes || x->error > c->error) continue;
        if (x->bytes < c->bytes || x->error < c->error || i < choice) return i;
    }
    return -1;
}

int64_t kv_problem_bytes(const kv_problem *problem, const int32_t *assignment)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < problem->n_layers; i++) {
        if (assignment[i] < 0) return -1;
        sum += problem->layers[i].choices[assignment[i]].bytes;
    }
    return sum;
}

double kv_problem_error(const kv_problem *problem, const int32_t *assignment)
{
    double sum = 0;
    for (int64_t i = 0; i < problem->n_layers; i++) {
        if (assignment[i] < 0) return (double)NAN;
        sum += problem->layers[i].choices[assignment[i]].error;
    }
    return sum;
}

/* ---- integers ---- */

/* Sums over layers of the largest error and of the largest bytes, both as integers; false where
 * they do not stay below 2^61. */
static bool sums_fit(const kv_problem *p, int exponent, bool is_bytes)
{
    int64_t const limit = INT64_C(1) << 61;
    int64_t sum = 0;
    for (int64_t i = 0; i < p->n_layers; i++) {
        int64_t largest = 0;
        for (int64_t c = 0; c < p->layers[i].n_choices; c++) {
            const kv_choice *const choice = &p->layers[i].choices[c];
            double const error = is_bytes ? 0 : rint(ldexp(choice->error, -exponent));
            if (error >= 0x1p61 || (is_bytes && choice->bytes >= limit)) return false;
            int64_t const size = is_bytes ? choice->bytes : (int64_t)error;
            if (size > largest) largest = size;
        }
        sum += largest;
        if (sum >= limit) return false;
    }
    return true;
}

/* What the errors of an assignment add up to at most. */
static double largest_sum(const kv_problem *p)
{
    double sum = 0;
    for (int64_t i = 0; i < p->n_layers; i++) {
        double largest = 0;
        for (int64_t c = 0; c < p->layers[i].n_choices; c++)
            largest = fmax(largest, p->layers[i].choices[c].error);
        sum += largest;
    }
    return sum;
}

/* The smallest exponent for which errors as multiples of 2^exponent fit; 0 where all are zero. */
static int find_exponent(const kv_problem *p)
{
    enum { SMALLEST = -1074 };
    double largest = 0;
    int exponent = 0;
    for (int64_t i = 0; i < p->n_layers; i++)
        for (int64_t c = 0; c < p->layers[i].n_choices; c++)
            largest = fmax(largest, p->layers[i].choices[c].error);
    if (largest == 0) return 0;
    (void)frexp(largest, &exponent); /* largest < 2^exponent */
    exponent = exponent - 61 < SMALLEST ? SMALLEST : exponent - 61;
    while (!sums_fit(p, exponent, false)) exponent++;
    return exponent;
}

/* e = m / 10^digits for a whole number m, to the last bit. */
static bool is_decimal(double e, double power)
{
    return isnan(e) || rint(e * power) / power == e;
}

static bool are_decimals(const kv_problem *p, double power)
{
    const kv_problem_side *const sides[] = {&p->keys, &p->values};
    bool is_good = true;
    for (int k = 0; k < 2 && p->is_separable; k++)
        for (int64_t i = 0; is_good && i < p->n_layers * sides[k]->n; i++)
            is_good = is_decimal(sides[k]->error[i], power);
    for (int64_t i = 0; !p->is_separable && i < p->n_layers; i++)
        for (int64_t c = 0; is_good && c < p->layers[i].n_choices; c++)
            is_good = is_decimal(p->layers[i].choices[c].error, power);
    return is_good;
}

/* The largest power of ten that keeps the sum of the layers' largest errors below 2^50, where all
 * errors are whole multiples of its inverse; 0 where there is none. 2^50, so that a number divided
 * by the unit is off by less than half. 10^22 is the last that a double holds. */
static double find_decimal(const kv_problem *p)
{
    double const sum = largest_sum(p);
    double power = 1;
    if (!(sum < 0x1p50)) return 0;
    for (int digits = 0; digits < 22 && sum * power * 10 < 0x1p50; digits++) power *= 10;
    return sum > 0 && are_decimals(p, power) ? power : 0;
}

static int64_t whole_error(const kv_problem *p, int64_t layer, const kv_choice *c, double decimal,
                           int exponent)
{
    if (decimal == 0) return (int64_t)rint(ldexp(c->error, -exponent));
    if (!p->is_separable) return (int64_t)rint(c->error * decimal);
    return (int64_t)rint(p->keys.error[layer * p->keys.n + c->key] * decimal) +
           (int64_t)rint(p->values.error[layer * p->values.n + c->value] * decimal);
}

kv_status kv_problem_integers_create(kv_problem_integers *out, const kv_problem *p, kv_error *err)
{
    kv_status status = KV_OK;
    kv_problem_integers made = {0};
    size_t const L = (size_t)p->n_layers;
    if (!sums_fit(p, 0, true))
        KV_TRY(KV_FAIL(err, KV_EREQUEST, "the layers' bytes add up to 2^61 or more"));
    if (isinf(largest_sum(p)))
        KV_TRY(KV_FAIL(err, KV_EREQUEST,
                       "the layers' largest errors add up to more than a double holds, 1.8e308"));
    double const decimal = find_decimal(p);
    int const exponent = decimal > 0 ? 0 : find_exponent(p);
    KV_TRY(kv_allocate((void **)&made.n_options, L, sizeof *made.n_options, err));
    KV_TRY(kv_allocate((void **)&made.options, L, sizeof *made.options, err));
    made.unit = decimal > 0 ? 1 / decimal : ldexp(1, exponent);
    made.knapsack.n_groups = p->n_layers;
    for (int64_t i = 0; i < p->n_layers; i++) {
        const kv_problem_layer *const layer = &p->layers[i];
        KV_TRY(kv_allocate((void **)&made.options[i], (size_t)layer->n_choices,
                           sizeof **made.options, err));
        made.n_options[i] = layer->n_choices;
        for (int64_t c = 0; c < layer->n_choices; c++)
            made.options[i][c] = (kv_option){
                layer->choices[c].bytes, whole_error(p, i, &layer->choices[c], decimal, exponent)};
    }
    made.knapsack.n_options = made.n_options;
    made.knapsack.options = (const kv_option *const *)made.options;
    *out = made, made = (kv_problem_integers){0};
done:
    kv_problem_integers_free(&made);
    return status;
}

void kv_problem_integers_free(kv_problem_integers *integers)
{
    for (int64_t i = 0; integers->options && i < integers->knapsack.n_groups; i++)
        kv_free(integers->options[i]);
    kv_free(integers->options), kv_free(integers->n_options);
    *integers = (kv_problem_integers){0};
}
