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
        int64_t const limit = number % 16 ? MAX_ASSIGNMENTS / 8 : MAX_ASSIGNMENTS;
        x->n_options[g] = assignments * most <= limit ? most : 1;
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
    int64_t const stride = n / 6 + 1;
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

/* Instances too large to enumerate: both methods equal to the last bit where the dense program is
 * small enough, single budgets and resolutions equal to what the whole frontier holds. */
static bool is_equal(const kv_frontier *a, const kv_frontier *b)
{
    size_t const n = (size_t)a->count;
    return a->count == b->count && a->n_groups == b->n_groups &&
           memcmp(a->size, b->size, n * sizeof *a->size) == 0 &&
           memcmp(a->error, b->error, n * sizeof *a->error) == 0 &&
           memcmp(a->lower_bound, b->lower_bound, n * sizeof *a->lower_bound) == 0 &&
           memcmp(a->multiplier, b->multiplier, n * sizeof *a->multiplier) == 0 &&
           memcmp(a->option, b->option, n * (size_t)a->n_groups * sizeof *a->option) == 0;
}

static bool is_same_point(const kv_frontier *a, int64_t p, const kv_frontier *b, int64_t q)
{
    return a->size[p] == b->size[q] && a->error[p] == b->error[q] &&
           a->lower_bound[p] == b->lower_bound[q] && a->multiplier[p] == b->multiplier[q] &&
           memcmp(a->option + p * a->n_groups, b->option + q * b->n_groups,
                  (size_t)a->n_groups * sizeof *a->option) == 0;
}

/* One budget of size or error, or a resolution, against the whole frontier. */
static void check_part(const kv_frontier *whole, const kv_knapsack *k, int i)
{
    kv_error err = {0};
    kv_frontier *f = NULL;
    int64_t const n = whole->count, p = random_below(n), q = p + 1 < n ? p + 1 : p;
    int64_t const range = whole->size[n - 1] - whole->size[0];
    int64_t const resolution = 1 + random_below(range / 8 + 1);
    int64_t const within =
        whole->size[p] + random_below(whole->size[q] - whole->size[p] + (q == p));
    kv_frontier_options const coarse = {.resolution = resolution};
    kv_status const status = i % 4 == 0   ? kv_frontier_solve(&f, k, &coarse, &err)
                             : i % 2 == 0 ? kv_knapsack_within_error(&f, k, whole->error[p], &err)
                                          : kv_knapsack_within_size(&f, k, within, &err);
    CHECK(status == KV_OK, "%s", err.message);
    if (!f) return;
    int64_t found = 0;
    for (int64_t j = 0; j < n; j++) {
        int64_t const above = whole->size[j] - whole->size[0];
        int64_t const budget = (above + resolution - 1) / resolution * resolution;
        bool const is_asked = j + 1 == n || budget < whole->size[j + 1] - whole->size[0];
        if (i % 4 ? j != p : !is_asked) continue;
        CHECK(found < f->count && is_same_point(f, found, whole, j), "part %d, point %" PRId64, i,
              j);
        found++;
    }
    CHECK(f->count == found, "part %d: %" PRId64 " of %" PRId64, i, f->count, found);
    kv_frontier_free(f);
}

static void check_methods(int64_t n_groups, int64_t n_options, int64_t sizes, int64_t errors)
{
    kv_error err = {0};
    kv_frontier *dense = NULL, *segments = NULL, *best = NULL;
    kv_option *const options = calloc((size_t)(n_groups * n_options), sizeof *options);
    const kv_option **const lists = calloc((size_t)n_groups, sizeof *lists);
    int64_t *const counts = calloc((size_t)n_groups, sizeof *counts);
    if (!options || !lists || !counts) abort();
    for (int64_t g = 0; g < n_groups; g++) {
        counts[g] = n_options, lists[g] = options + g * n_options;
        int64_t const gain = 1 + random_below(errors);
        for (int64_t j = 0; j < n_options;
             j++) { /* near a convex curve, so that most are efficient */
            int64_t const size = random_below(sizes);
            options[g * n_options + j] = (kv_option){
                size - sizes / 2, gain * sizes / (size + 1) + random_below(gain / 8 + 2)};
        }
    }
    kv_knapsack const k = {n_groups, counts, lists};
    kv_frontier_options const whole = {0};
    bool const is_dense = sizes <= 20000;
    CHECK((!is_dense || kv_frontier_solve_by(&dense, &k, &whole, KV_METHOD_DENSE, KV_SEGMENT_STATES,
                                             &err) == KV_OK) &&
              kv_frontier_solve_by(&segments, &k, &whole, KV_METHOD_SEGMENTS, KV_SEGMENT_STATES,
                                   &err) == KV_OK &&
              kv_frontier_solve(&best, &k, &whole, &err) == KV_OK,
          "%s", err.message);
    if (segments && best && (dense || !is_dense)) {
        CHECK(!is_dense || is_equal(dense, segments), "%" PRId64 " x %" PRId64 ": %" PRId64,
              n_groups, n_options, segments->count);
        CHECK(is_equal(best, segments), "%" PRId64 " x %" PRId64, n_groups, n_options);
        for (int i = 0; i < 8; i++) check_part(segments, &k, i);
    }
    kv_frontier_free(dense);
    kv_frontier_free(segments);
    kv_frontier_free(best);
    free(options);
    free(lists);
    free(counts);
}

/* One group of as many options as there may be, all efficient. */
static void check_most_options(void)
{
    enum { N = KV_KNAPSACK_MAX_OPTIONS };
    static kv_option options[N];
    for (int64_t j = 0; j < N; j++) options[j] = (kv_option){-3 * j, 7 * j};
    kv_error err = {0};
    kv_frontier *f = NULL;
    kv_knapsack const k = {1, (const int64_t[]){N}, (const kv_option *const[]){options}};
    CHECK(kv_frontier_solve(&f, &k, &(kv_frontier_options){0}, &err) == KV_OK, "%s", err.message);
    if (!f) return;
    CHECK(f->count == N, "%" PRId64, f->count);
    for (int64_t p = 0; p < f->count; p++)
        CHECK(f->option[p] == N - 1 - p && f->size[p] == -3 * (N - 1 - p), "%" PRId64, p);
    kv_frontier_free(f);
}

/* What is refused, to the letter. */
static void check_refusals(void)
{
    static const kv_option ok[] = {{0, 1}, {1, 0}};
    static const kv_option wide[] = {{0, 0}, {(int64_t)1 << 60, -1}};
    static const kv_option deep[] = {{0, -((int64_t)1 << 60)}};
    static const kv_option lowest[] = {{INT64_MIN, 0}}, highest[] = {{0, INT64_MAX}};
    static const struct {
        int64_t n_groups, n_options[2];
        const kv_option *options[2];
        kv_frontier_options how;
        const char *message;
    } rows[] = {
        {.n_groups = 0, .message = "knapsack of 0 groups; at least 1 is needed"},
        {.n_groups = -1, .message = "knapsack of -1 groups; at least 1 is needed"},
        {2, {2, 0}, {ok, ok}, {0}, "group 1 has 0 options; allowed are 1 to 65535"},
        {1, {65536}, {ok}, {0}, "group 0 has 65536 options; allowed are 1 to 65535"},
        {2,
         {2, 2},
         {wide, wide},
         {0},
         "group 1: the largest magnitudes of the sizes of groups 0 to 1 add up to 2^61 or more; "
         "sums must stay below"},
        {2,
         {1, 1},
         {deep, deep},
         {0},
         "group 1: the largest magnitudes of the errors of groups 0 to 1 add up to 2^61 or more; "
         "sums must stay below"},
        {1,
         {1},
         {lowest},
         {0},
         "group 0: the largest magnitudes of the sizes of groups 0 to 0 add up to 2^61 or more; "
         "sums must stay below"},
        {1,
         {1},
         {highest},
         {0},
         "group 0: the largest magnitudes of the errors of groups 0 to 0 add up to 2^61 or more; "
         "sums must stay below"},
        {1, {2}, {ok}, {-1, 0}, "resolution -1, max_points 0; neither may be negative"},
        {1, {2}, {ok}, {0, -5}, "resolution 0, max_points -5; neither may be negative"},
        {1, {2}, {ok}, {0, 1}, "the frontier has more than 1 point, the most that was asked for"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kv_error err = {0};
        kv_frontier *f = NULL;
        kv_knapsack const k = {rows[i].n_groups, rows[i].n_options, rows[i].options};
        CHECK(kv_frontier_solve(&f, &k, &rows[i].how, &err) == KV_EREQUEST && !f, "row %zu", i);
        CHECK_TEXT(err.message, rows[i].message);
        if (rows[i].how.resolution || rows[i].how.max_points) continue;
        err = (kv_error){0};
        CHECK(kv_knapsack_within_size(&f, &k, 0, &err) == KV_EREQUEST && !f, "row %zu", i);
        CHECK_TEXT(err.message, rows[i].message);
    }
    /* One short of the limit on both sides is fine. */
    int64_t const most = ((int64_t)1 << 61) - 1;
    kv_option const edge[] = {{-most, most}, {most, -most}};
    kv_knapsack const k = {1, (const int64_t[]){2}, (const kv_option *const[]){edge}};
    kv_error err = {0};
    kv_frontier *f = NULL;
    CHECK(kv_frontier_solve(&f, &k, &(kv_frontier_options){.resolution = INT64_MAX}, &err) == KV_OK,
          "%s", err.message);
    CHECK(f && f->count == 2 && f->size[0] == -most && f->size[1] == most && f->error[1] == -most,
          "%" PRId64, f ? f->count : -1);
    kv_frontier_free(f);
}

/* 12 groups of powers of two: 4096 points on a line, all equally good for the relaxation. */
static kv_knapsack powers(void)
{
    static kv_option options[12][2];
    static const kv_option *lists[12];
    static int64_t n_options[12];
    for (int g = 0; g < 12; g++) {
        options[g][1] = (kv_option){(int64_t)10 << g, 0}, options[g][0].error = (int64_t)3 << g;
        lists[g] = options[g], n_options[g] = 2;
    }
    return (kv_knapsack){12, n_options, lists};
}

static void check_limits(void)
{
    kv_knapsack const k = powers();
    for (int m = KV_METHOD_DENSE; m <= KV_METHOD_SEGMENTS; m++) {
        kv_error err = {0};
        kv_frontier *f = NULL;
        kv_frontier_options const few = {.max_points = 100}, many = {.max_points = 4096};
        CHECK(kv_frontier_solve_by(&f, &k, &few, (kv_frontier_method)m, KV_SEGMENT_STATES, &err) ==
                  KV_EREQUEST,
              "%s", err.message);
        CHECK_TEXT(err.message, "the frontier has more than 100 points, the most that was asked "
                                "for; a resolution of 414 or more keeps within that");
        for (int64_t resolution = 414; resolution < 60000; resolution += 97) {
            kv_frontier_options const coarse = {resolution, 100};
            err = (kv_error){0};
            CHECK(kv_frontier_solve_by(&f, &k, &coarse, (kv_frontier_method)m, KV_SEGMENT_STATES,
                                       &err) == KV_OK,
                  "%s", err.message);
            CHECK(f && f->count == 1 + (40950 + resolution - 1) / resolution, "%" PRId64,
                  resolution);
            kv_frontier_free(f);
            f = NULL;
        }
        CHECK(kv_frontier_solve_by(&f, &k, &many, (kv_frontier_method)m, KV_SEGMENT_STATES, &err) ==
                      KV_OK &&
                  f->count == 4096,
              "%s", err.message);
        kv_frontier_free(f);
    }
    /* A search that holds too much: an error, or the dense program where that is small. */
    kv_error err = {0};
    kv_frontier *f = NULL;
    CHECK(kv_knapsack_within_by(&f, &k, 30010, false, KV_METHOD_SEGMENTS, 8, &err) == KV_ENOMEM &&
              !f,
          "%s", err.message);
    CHECK_TEXT(err.message,
               "exact search holds more than 8 partial sums between two vertices of "
               "the relaxation; sizes or errors of fewer digits would make it shorter");
    for (int is_error = 0; is_error < 2; is_error++) {
        err = (kv_error){0};
        CHECK(kv_knapsack_within_by(&f, &k, is_error ? 3282 : 30010, is_error, KV_METHOD_BEST, 8,
                                    &err) == KV_OK,
              "%s", err.message);
        CHECK(f && f->count == 1 && f->size[0] == 30010 && f->error[0] == 3282, "%d", is_error);
        kv_frontier_free(f);
        f = NULL;
    }
}

/* Every allocation fails once; nothing leaks (sanitizers watch) and nothing is given out. */
static void check_allocations(void)
{
    kv_knapsack const k = powers();
    for (int call = 0; call < 4; call++)
        for (long fail = 0, is_done = 0; !is_done; fail++) {
            kv_error err = {0};
            kv_frontier *f = NULL;
            kv_fail_allocation(fail);
            kv_frontier_method const method = call % 2 ? KV_METHOD_SEGMENTS : KV_METHOD_DENSE;
            kv_status const status = call < 2
                                         ? kv_frontier_solve_by(&f, &k, &(kv_frontier_options){0},
                                                                method, KV_SEGMENT_STATES, &err)
                                         : kv_knapsack_within_by(&f, &k, 1234, call == 3, method,
                                                                 KV_SEGMENT_STATES, &err);
            kv_fail_allocation(-1);
            is_done = status == KV_OK;
            CHECK((status == KV_OK) == (f != NULL) && (is_done || status == KV_ENOMEM),
                  "call %d, allocation %ld: %s", call, fail, err.message);
            CHECK(!is_done || fail > 10, "call %d made %ld allocations", call, fail);
            kv_frontier_free(f);
        }
}

int main(void)
{
    check_small(21000);
    for (int i = 0; i < 24; i++)
        check_methods(2 + random_below(30), 1 + random_below(40), 2 + random_below(150),
                      i % 3 ? 1000 : (int64_t)1 << 45);
    check_methods(3, 600, 700, 1000000); /* more options than 8 bits count */
    check_methods(2, 3000, 20000, 1000000000);
    for (int i = 0; i < 10; i++)
        check_methods(4 + random_below(12), 2 + random_below(20), (int64_t)1 << (17 + 2 * i),
                      i % 2 ? 1000 : (int64_t)1 << (36 - 2 * i));
    check_most_options();
    check_refusals();
    check_limits();
    check_allocations();
    return check_done();
}
