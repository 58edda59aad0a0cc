/* The exact frontier against all assignments of many small random instances, both methods, both
 * kinds of single budget, resolutions; larger instances between the methods; refusals. */
#include <inttypes.h>
#include <stdlib.h>

#include "kernels/memory.h"
#include "kernels/platform.h"
#include "tests/check.h"
#include "tuner/frontier_state.h"

enum { MAX_GROUPS = 8, MAX_OPTIONS = 24, MAX_ASSIGNMENTS = 3000 };

static uint64_t random_state = 20240607;

static uint64_t random_bits(void) /* splitmix64 */
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int64_t random_below(int64_t n)
{
    return (int64_t)(random_bits() % (uint64_t)n);
}

typedef struct {
    int64_t n_groups, n_options[MAX_GROUPS];
    kv_option options[MAX_GROUPS][MAX_OPTIONS];
    const kv_option *lists[MAX_GROUPS];
} instance;

static kv_knapsack knapsack_of(instance *x)
{
    for (int64_t g = 0; g < x->n_groups; g++) x->lists[g] = x->options[g];
    return (kv_knapsack){x->n_groups, x->n_options, x->lists};
}

/* Styles: how an option's size and error come about. */
static kv_option any_of(int64_t range)
{
    return (kv_option){random_below(range), random_below(range)};
}
static kv_option few(int64_t g, int64_t j)
{
    (void)g, (void)j;
    return any_of(4);
}
static kv_option plain(int64_t g, int64_t j)
{
    (void)g, (void)j;
    return any_of(1000);
}
static kv_option equal_size(int64_t g, int64_t j)
{
    (void)j;
    return (kv_option){7 * g, random_below(50)};
}
static kv_option equal_error(int64_t g, int64_t j)
{
    (void)j;
    return (kv_option){random_below(50), -g};
}
static kv_option negative(int64_t g, int64_t j)
{
    (void)g, (void)j;
    return (kv_option){random_below(200) - 150, random_below(200) - 50};
}
static kv_option on_a_line(int64_t g, int64_t j)
{
    (void)g, (void)j;
    int64_t const s = random_below(12);
    return (kv_option){3 * s, 5 * (12 - s)};
}
static kv_option nearly_on_a_line(int64_t g, int64_t j)
{
    (void)g, (void)j;
    int64_t const s = random_below(100000);
    return (kv_option){s, 100000 - s + random_below(3)};
}
static kv_option convex(int64_t g, int64_t j)
{
    (void)g;
    return (kv_option){16 * j + 2, (int64_t)1 << (30 - j)};
}
static kv_option separable(int64_t g, int64_t j) /* 3 keys x 8 values of each group */
{
    static const int64_t bits[] = {2, 3, 4, 5, 6, 8, 12, 16};
    int64_t const key = bits[j / 8 * 2], value = bits[j % 8];
    return (kv_option){1024 * (key + value),
                       ((int64_t)1 << 40 >> 2 * key) * (g + 3) + ((int64_t)1 << 38 >> 2 * value)};
}
static kv_option large(int64_t g, int64_t j) /* sums of 8 groups just below 2^61 */
{
    (void)g, (void)j;
    int64_t const half = (int64_t)1 << 58;
    return (kv_option){random_below(2 * half - 1) - half + 1,
                       random_below(2 * half - 1) - half + 1};
}
static kv_option large_line(int64_t g, int64_t j) /* reduced costs beyond 64 bits, nearly equal */
{
    (void)g, (void)j;
    int64_t const s = random_below((int64_t)1 << 56);
    return (kv_option){s, ((int64_t)1 << 57) - s + random_below(3)};
}
static kv_option large_multiple(int64_t g, int64_t j)
{
    (void)g, (void)j;
    int64_t const unit = 123456789012345;
    return (kv_option){unit * random_below(9) - 17, (unit + 1) * random_below(9) + 5};
}
static kv_option same_options(int64_t g, int64_t j)
{
    (void)g;
    return (kv_option){j % 5 * 10, 40 - j % 5 * j % 7};
}
typedef kv_option style(int64_t g, int64_t j);
static style *const styles[] = {few,        plain,          equal_size,       equal_error, negative,
                                on_a_line,  convex,         nearly_on_a_line, separable,   large,
                                large_line, large_multiple, same_options};
enum { N_STYLES = sizeof styles / sizeof *styles };

static void make(instance *x, int64_t number)
{
    int64_t assignments = 1;
    x->n_groups = 1 + random_below(MAX_GROUPS);
    for (int64_t g = 0; g < x->n_groups; g++) {
        int64_t const most = g % 3 == 2 ? 2 : 1 + random_below(number % 7 ? 6 : MAX_OPTIONS);
        x->n_options[g] = assignments * most <= MAX_ASSIGNMENTS ? most : 1;
        assignments *= x->n_options[g];
        for (int64_t j = 0; j < x->n_options[g]; j++)
            x->options[g][j] = styles[number % N_STYLES](g, j);
    }
}

/* Every assignment in lexicographic order; the frontier is what sorting by size, error, order
 * leaves. */
typedef struct {
    int64_t size, error, order;
} sum;

static int by_size(const void *a, const void *b)
{
    const sum *const x = a, *const y = b;
    if (x->size != y->size) return x->size < y->size ? -1 : 1;
    if (x->error != y->error) return x->error < y->error ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

static sum all[MAX_ASSIGNMENTS], expected[MAX_ASSIGNMENTS];

/* The relaxation, from its definition: the least error at a size of all mixtures of two points is
 * that of the lower hull of the points; its slope to the right is that of the hull's edge. */
static int64_t corner[MAX_ASSIGNMENTS];

static bool is_lower(sum from, sum a, sum b) /* the line to a does not lie above that to b */
{
    return (kv_int128)(from.error - a.error) * (b.size - from.size) >=
           (kv_int128)(from.error - b.error) * (a.size - from.size);
}

static void find_corners(int64_t n)
{
    int64_t i = 0, c = 0;
    for (corner[0] = 0; i < n - 1; corner[++c] = i) {
        int64_t next = i + 1;
        for (int64_t k = i + 2; k < n; k++)
            if (is_lower(expected[i], expected[k], expected[next])) next = k;
        i = next;
    }
}

static int64_t enumerate(const instance *x)
{
    int64_t n = 0, kept = 0, digits[MAX_GROUPS] = {0};
    for (bool is_done = false; !is_done; n++) {
        all[n] = (sum){.order = n};
        for (int64_t g = 0; g < x->n_groups; g++) {
            all[n].size += x->options[g][digits[g]].size;
            all[n].error += x->options[g][digits[g]].error;
        }
        int64_t g = x->n_groups - 1;
        for (; g >= 0 && ++digits[g] == x->n_options[g]; g--) digits[g] = 0;
        is_done = g < 0;
    }
    qsort(all, (size_t)n, sizeof *all, by_size);
    for (int64_t i = 0; i < n; i++)
        if (kept == 0 || all[i].error < expected[kept - 1].error) expected[kept++] = all[i];
    find_corners(kept);
    return kept;
}

static int64_t order_of(const instance *x, const uint16_t *row)
{
    int64_t order = 0;
    for (int64_t g = 0; g < x->n_groups; g++) {
        if (row[g] >= x->n_options[g]) return -1;
        order = order * x->n_options[g] + row[g];
    }
    return order;
}

static bool is_point(const kv_frontier *f, int64_t p, const instance *x, sum e)
{
    return f->size[p] == e.size && f->error[p] == e.error &&
           order_of(x, f->option + p * f->n_groups) == e.order;
}

static void check_bound(const kv_frontier *f, int64_t p, int64_t n, int64_t number)
{
    int64_t c = 0;
    while (corner[c] < n - 1 && expected[corner[c + 1]].size <= f->size[p]) c++;
    sum const from = expected[corner[c]];
    double multiplier = 0, bound = (double)from.error;
    if (corner[c] < n - 1) {
        sum const to = expected[corner[c + 1]];
        multiplier = (double)(from.error - to.error) / (double)(to.size - from.size);
        bound -= multiplier * (double)(f->size[p] - from.size);
    }
    double const scale = fabs((double)expected[0].error) + fabs((double)expected[n - 1].error) + 1;
    CHECK(f->lower_bound[p] <= (double)f->error[p], "%" PRId64, number);
    CHECK(fabs(f->lower_bound[p] - bound) <= 1e-14 * scale, "%" PRId64 ": %.17g, %.17g", number,
          f->lower_bound[p], bound);
    CHECK(fabs(f->multiplier[p] - multiplier) <= 1e-14 * multiplier, "%" PRId64 ": %.17g, %.17g",
          number, f->multiplier[p], multiplier);
}

static void check_whole(instance *x, int64_t n, int64_t number, kv_frontier_method method)
{
    kv_error err = {0};
    kv_frontier *f = NULL;
    kv_knapsack const k = knapsack_of(x);
    kv_status const status =
        kv_frontier_solve_by(&f, &k, &(kv_frontier_options){0}, method, KV_SEGMENT_STATES, &err);
    CHECK(status == KV_OK, "%" PRId64 ": %s", number, err.message);
    if (!f) return;
    CHECK(f->count == n && f->n_groups == x->n_groups, "%" PRId64 ": %" PRId64 " of %" PRId64,
          number, f->count, n);
    for (int64_t p = 0; p < n && p < f->count; p++) {
        CHECK(is_point(f, p, x, expected[p]), "instance %" PRId64 ", point %" PRId64, number, p);
        check_bound(f, p, n, number);
    }
    kv_frontier_free(f);
}

/* For every budget of the resolution the last point within it, each once. */
static void check_resolution(instance *x, int64_t n, int64_t number, kv_frontier_method method)
{
    kv_error err = {0};
    kv_frontier *f = NULL;
    kv_knapsack const k = knapsack_of(x);
    int64_t const range = expected[n - 1].size - expected[0].size;
    int64_t const resolution = 1 + random_below(range / (1 + random_below(9)) + 2);
    kv_status const status = kv_frontier_solve_by(
        &f, &k, &(kv_frontier_options){.resolution = resolution}, method, KV_SEGMENT_STATES, &err);
    CHECK(status == KV_OK, "%" PRId64 ": %s", number, err.message);
    if (!f) return;
    int64_t p = 0;
    for (int64_t i = 0; i < n; i++) {
        /* Is there a budget in [size, next size)? */
        int64_t const above = expected[i].size - expected[0].size;
        int64_t const budget = (above + resolution - 1) / resolution * resolution;
        if (i + 1 < n && budget >= expected[i + 1].size - expected[0].size) continue;
        CHECK(p < f->count && is_point(f, p, x, expected[i]),
              "instance %" PRId64 ", resolution %" PRId64 ", point %" PRId64, number, resolution,
              p);
        p++;
    }
    CHECK(f->count == p, "instance %" PRId64 ": %" PRId64 " of %" PRId64, number, f->count, p);
    kv_frontier_free(f);
}

static void check_budget(instance *x, int64_t n, int64_t number, int64_t budget, bool is_error,
                         kv_frontier_method method)
{
    kv_error err = {0};
    kv_frontier *f = NULL;
    kv_knapsack const k = knapsack_of(x);
    kv_status const status =
        kv_knapsack_within_by(&f, &k, budget, is_error, method, KV_SEGMENT_STATES, &err);
    CHECK(status == KV_OK, "%" PRId64 ": %s", number, err.message);
    if (!f) return;
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++) {
        if (is_error ? expected[i].error > budget : expected[i].size > budget) continue;
        best = i;
        if (is_error) break;
    }
    CHECK(f->count == (best >= 0), "instance %" PRId64 ", budget %" PRId64, number, budget);
    if (best >= 0 && f->count == 1) {
        CHECK(is_point(f, 0, x, expected[best]), "instance %" PRId64 ", budget %" PRId64, number,
              budget);
        check_bound(f, 0, n, number);
    }
    kv_frontier_free(f);
}

static void check_budgets(instance *x, int64_t n, int64_t number, kv_frontier_method method)
{
    int64_t const stride = n / 12 + 1;
    for (int is_error = 0; is_error < 2; is_error++) {
        for (int64_t i = random_below(stride); i < n; i += stride)
            for (int64_t d = -1; d <= 1; d++)
                check_budget(x, n, number, d + (is_error ? expected[i].error : expected[i].size),
                             is_error, method);
        check_budget(x, n, number, INT64_MIN, is_error, method);
        check_budget(x, n, number, INT64_MAX, is_error, method);
        check_budget(x, n, number, expected[0].size - 1, is_error, method);
        check_budget(x, n, number, expected[n - 1].error - 1, is_error, method);
    }
}

/* Whether the dense program fits; of the large ones, those whose divisor makes them small. */
static bool is_small(instance *x)
{
    kv_relaxation r = {0};
    kv_knapsack const k = knapsack_of(x);
    bool const is_small = kv_relaxation_create(&r, &k, NULL) == KV_OK && r.size_range < 100000 &&
                          r.error_range < 100000;
    kv_relaxation_free(&r);
    return is_small;
}

static void check_small(int64_t n_instances)
{
    int64_t points = 0, dense = 0;
    for (int64_t number = 0; number < n_instances; number++) {
        instance x;
        make(&x, number);
        int64_t const n = enumerate(&x);
        points += n;
        for (int m = KV_METHOD_BEST; m <= KV_METHOD_SEGMENTS; m++) {
            if (m == KV_METHOD_DENSE && !is_small(&x)) continue;
            dense += m == KV_METHOD_DENSE;
            check_whole(&x, n, number, (kv_frontier_method)m);
            check_resolution(&x, n, number, (kv_frontier_method)m);
            check_budgets(&x, n, number, (kv_frontier_method)m);
        }
    }
    printf("%" PRId64 " instances equal to all their assignments, %" PRId64
           " also by the dense program; %" PRId64 " points\n",
           n_instances, dense, points);
}

int main(void)
{
    check_small(26000);
    return check_done();
}
