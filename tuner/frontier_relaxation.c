/* The LP relaxation of a multiple-choice knapsack (frontier_state.h): dominated options dropped,
 * lower convex hull per group, all hull steps merged by slope (Sinha and Zoltners 1979). */
#include <string.h>

#include "kernels/memory.h"
#include "tuner/frontier_state.h"

#define SUM_LIMIT ((int64_t)1 << 61)

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t const rest = a % b;
        a = b, b = rest;
    }
    return a;
}

static int64_t at_least_one(int64_t x)
{
    return x > 0 ? x : 1;
}

/* Adds to *sum the largest magnitude of a group; false where the sum reaches the limit. */
static bool add_magnitude(int64_t *sum, int64_t least, int64_t most)
{
    if (least <= -SUM_LIMIT || most >= SUM_LIMIT) return false;
    *sum += -least > most ? -least : most;
    return *sum < SUM_LIMIT;
}

static kv_status check(const kv_knapsack *k, int64_t *n_all, kv_error *err)
{
    int64_t sizes = 0, errors = 0;
    *n_all = 0;
    if (k->n_groups < 1)
        return KV_FAIL(err, KV_EREQUEST, "knapsack of %lld groups; at least 1 is needed",
                       (long long)k->n_groups);
    for (int64_t g = 0; g < k->n_groups; g++) {
        int64_t const n = k->n_options[g];
        if (n < 1 || n > KV_KNAPSACK_MAX_OPTIONS)
            return KV_FAIL(err, KV_EREQUEST, "group %lld has %lld options; allowed are 1 to %d",
                           (long long)g, (long long)n, KV_KNAPSACK_MAX_OPTIONS);
        kv_option least = k->options[g][0], most = least;
        for (int64_t j = 1; j < n; j++) {
            kv_option const o = k->options[g][j];
            if (o.size < least.size) least.size = o.size;
            if (o.size > most.size) most.size = o.size;
            if (o.error < least.error) least.error = o.error;
            if (o.error > most.error) most.error = o.error;
        }
        bool const is_size = !add_magnitude(&sizes, least.size, most.size);
        if (is_size || !add_magnitude(&errors, least.error, most.error))
            return KV_FAIL(err, KV_EREQUEST,
                           "group %lld: the largest magnitudes of the %s of groups 0 to %lld add "
                           "up to 2^61 or more; sums must stay below",
                           (long long)g, is_size ? "sizes" : "errors", (long long)g);
        *n_all += n;
    }
    return KV_OK;
}

static bool is_before(const kv_efficient *a, const kv_efficient *b)
{
    if (a->size != b->size) return a->size < b->size;
    if (a->error != b->error) return a->error < b->error;
    return a->option < b->option;
}

/* Sorts by size, error, index; the result is in `a`. */
static void sort_options(kv_efficient *a, kv_efficient *spare, int64_t n)
{
    enum { RUN = 8 };
    for (int64_t from = 0; from < n; from += RUN) {
        int64_t const to = from + RUN < n ? from + RUN : n;
        for (int64_t i = from + 1; i < to; i++) {
            kv_efficient const x = a[i];
            int64_t j = i;
            for (; j > from && is_before(&x, &a[j - 1]); j--) a[j] = a[j - 1];
            a[j] = x;
        }
    }
    kv_efficient *in = a, *out = spare;
    for (int64_t run = RUN; run < n; run *= 2) {
        for (int64_t from = 0; from < n; from += 2 * run) {
            int64_t const middle = from + run < n ? from + run : n;
            int64_t const to = middle + run < n ? middle + run : n;
            int64_t i = from, j = middle;
            for (int64_t o = from; o < to; o++)
                out[o] = j == to || (i < middle && is_before(&in[i], &in[j])) ? in[i++] : in[j++];
        }
        kv_efficient *const swap = in;
        in = out, out = swap;
    }
    if (in != a) memcpy(a, in, (size_t)n * sizeof *a);
}

/* Keeps the options that no other dominates (of equal ones the first); returns how many. */
static int64_t drop_dominated(kv_efficient *a, int64_t n)
{
    int64_t kept = 1;
    for (int64_t j = 1; j < n; j++)
        if (a[j].error < a[kept - 1].error) a[kept++] = a[j];
    return kept;
}

static bool is_not_below(kv_efficient a, kv_efficient b, kv_efficient c)
{
    return (kv_int128)(b.error - a.error) * (c.size - a.size) >=
           (kv_int128)(c.error - a.error) * (b.size - a.size);
}

static int64_t lower_hull(int64_t *hull, const kv_efficient *a, int64_t from, int64_t to)
{
    int64_t n = 0;
    for (int64_t j = from; j < to; j++) {
        while (n >= 2 && is_not_below(a[hull[n - 2]], a[hull[n - 1]], a[j])) n--;
        hull[n++] = j;
    }
    return n;
}

/* Efficient options of all groups, still in sizes and errors of the knapsack. */
static kv_status filter(kv_relaxation *r, const kv_knapsack *k, int64_t n_all, kv_error *err)
{
    kv_status status = KV_OK;
    kv_efficient *spare = NULL;
    int64_t largest = 0;
    for (int64_t g = 0; g < k->n_groups; g++)
        if (k->n_options[g] > largest) largest = k->n_options[g];
    KV_TRY(
        kv_allocate3_unset((void **)&r->efficient, 1, 1, (size_t)n_all, sizeof *r->efficient, err));
    KV_TRY(kv_allocate3_unset((void **)&spare, 1, 1, (size_t)largest, sizeof *spare, err));
    KV_TRY(kv_allocate((void **)&r->first, (size_t)k->n_groups + 1, sizeof *r->first, err));
    int64_t n = 0;
    for (int64_t g = 0; g < k->n_groups; g++) {
        kv_efficient *const a = r->efficient + n;
        for (int64_t j = 0; j < k->n_options[g]; j++)
            a[j] = (kv_efficient){k->options[g][j].size, k->options[g][j].error, j};
        sort_options(a, spare, k->n_options[g]);
        n += drop_dominated(a, k->n_options[g]);
        r->first[g + 1] = n;
    }
done:
    kv_free(spare);
    return status;
}

/* To units above each group's least size and error. */
static void normalize(kv_relaxation *r)
{
    int64_t size_unit = 0, error_unit = 0;
    for (int64_t g = 0; g < r->n_groups; g++) {
        kv_efficient *const a = r->efficient + r->first[g];
        int64_t const n = r->first[g + 1] - r->first[g];
        int64_t const size = a[0].size, error = a[n - 1].error;
        r->least_size += size, r->least_error += error;
        for (int64_t j = 0; j < n; j++) {
            a[j].size -= size, a[j].error -= error;
            size_unit = gcd(a[j].size, size_unit), error_unit = gcd(a[j].error, error_unit);
        }
    }
    r->size_unit = at_least_one(size_unit), r->error_unit = at_least_one(error_unit);
    for (int64_t i = 0; i < r->first[r->n_groups]; i++)
        r->efficient[i].size /= r->size_unit, r->efficient[i].error /= r->error_unit;
    for (int64_t g = 0; g < r->n_groups; g++) {
        r->size_range += r->efficient[r->first[g + 1] - 1].size;
        r->error_range += r->efficient[r->first[g]].error;
    }
}

static bool is_steeper(const kv_hull_step *a, const kv_hull_step *b)
{
    return (kv_int128)a->error * b->size > (kv_int128)b->error * a->size;
}

/* Merges the groups' steps, each already by falling slope; equal slopes stay in group order. */
static kv_status merge_steps(kv_relaxation *r, kv_error *err)
{
    kv_status status = KV_OK;
    kv_hull_step *in = NULL, *out = NULL;
    int64_t *ends = NULL;
    size_t const n = (size_t)at_least_one(r->hull_first[r->n_groups] - r->n_groups);
    KV_TRY(kv_allocate((void **)&in, n, sizeof *in, err));
    KV_TRY(kv_allocate((void **)&out, n, sizeof *out, err));
    KV_TRY(kv_allocate((void **)&ends, (size_t)r->n_groups + 1, sizeof *ends, err));
    for (int64_t g = 0; g < r->n_groups; g++) {
        for (int64_t h = r->hull_first[g]; h + 1 < r->hull_first[g + 1]; h++) {
            const kv_efficient *const a = &r->efficient[r->hull[h]];
            const kv_efficient *const b = &r->efficient[r->hull[h + 1]];
            in[r->n_steps++] = (kv_hull_step){g, b->size - a->size, a->error - b->error};
        }
        ends[g + 1] = r->n_steps;
    }
    for (int64_t n_runs = r->n_groups; n_runs > 1; n_runs = (n_runs + 1) / 2) {
        for (int64_t run = 0; run < n_runs; run += 2) {
            int64_t const middle = ends[run + 1], to = ends[run + 2 < n_runs ? run + 2 : n_runs];
            int64_t i = ends[run], j = middle;
            for (int64_t o = i; o < to; o++)
                out[o] = j == to || (i < middle && !is_steeper(&in[j], &in[i])) ? in[i++] : in[j++];
        }
        for (int64_t run = 0; run < n_runs; run += 2)
            ends[run / 2 + 1] = ends[run + 2 < n_runs ? run + 2 : n_runs];
        kv_hull_step *const swap = in;
        in = out, out = swap;
    }
    r->steps = in, in = NULL;
done:
    kv_free(in);
    kv_free(out);
    kv_free(ends);
    return status;
}

kv_status kv_relaxation_create(kv_relaxation *r, const kv_knapsack *knapsack, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t n_all;
    KV_TRY(check(knapsack, &n_all, err));
    r->n_groups = knapsack->n_groups;
    KV_TRY(filter(r, knapsack, n_all, err));
    normalize(r);
    KV_TRY(kv_allocate((void **)&r->hull, (size_t)r->first[r->n_groups], sizeof *r->hull, err));
    KV_TRY(
        kv_allocate((void **)&r->hull_first, (size_t)r->n_groups + 1, sizeof *r->hull_first, err));
    for (int64_t g = 0; g < r->n_groups; g++)
        r->hull_first[g + 1] =
            r->hull_first[g] +
            lower_hull(r->hull + r->hull_first[g], r->efficient, r->first[g], r->first[g + 1]);
    KV_TRY(merge_steps(r, err));
done:
    return status;
}

void kv_relaxation_free(kv_relaxation *r)
{
    kv_free(r->efficient);
    kv_free(r->first);
    kv_free(r->hull);
    kv_free(r->hull_first);
    kv_free(r->steps);
    *r = (kv_relaxation){0};
}
