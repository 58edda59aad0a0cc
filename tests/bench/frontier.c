/* How long the exact frontier takes, beside GLPK's integer programs on the same instances: 80
 * layers with 9 key times 9 value formats. `uniform`: layers alike, sizes in quarters of a bit an
 * element pair. `mixed`: layers of different heads, widths and windows, sizes in bytes of the whole
 * cache.
 *
 *     bench_frontier [SEEDS [REPEATS]]
 *
 * Medians of processor time, one core. GLPK gets the options that no other dominates, an objective
 * scaled by the LP bound, presolve and all its cuts: its fastest setting on these instances. */
#define _DEFAULT_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <gsl/gsl_math.h>
#include <gsl/gsl_randist.h>
#include <gsl/gsl_rng.h>
#ifdef KVANT_HAVE_GLPK
#include <glpk.h>
#endif

#include "kernels/memory.h"
#include "tuner/frontier_state.h"

enum { LAYERS = 80, FORMATS = 9, OPTIONS = FORMATS * FORMATS, BUDGETS = 9, MAX_TIMES = 1000 };
static const double fractions[BUDGETS] = {0.02, 0.06, 0.12, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8};

/* Bits an element stored, times 4; bits of the grid; factor of its group; is it a float format. */
static const struct {
    int64_t quarter_bits;
    double bits, factor;
    int is_float;
} formats[FORMATS] = {{64, 0, 0, 0},   {32, 5, 1, 1},   {33, 8, 1, 0}, {26, 6, 1, 0}, {22, 5, 1, 0},
                      {20, 4, 0.6, 0}, {17, 4, 1.5, 0}, {14, 3, 1, 0}, {10, 2, 1, 0}};

static kv_option options[LAYERS][OPTIONS];

static double noise(int f, double outliers)
{
    return formats[f].bits == 0 ? 0
                                : formats[f].factor * pow(4, -formats[f].bits) *
                                      (formats[f].is_float ? 1 : outliers);
}

static void make(int is_mixed, unsigned long seed)
{
    static const int64_t heads[] = {1, 2, 4, 8, 16}, widths[] = {64, 80, 96, 128, 192, 256};
    gsl_rng *const r = gsl_rng_alloc(gsl_rng_mt19937);
    gsl_rng_set(r, seed);
    for (int l = 0; l < LAYERS; l++) {
        double const gain = (1 + 8 * exp(-l / 2.0) + 3 * exp(-(LAYERS - 1 - l) / 1.5)) *
                            exp(gsl_ran_gaussian(r, 0.6));
        double const key_gain = exp(log(4.) + gsl_ran_gaussian(r, 0.8));
        double const key_outliers = exp(gsl_ran_gaussian(r, 0.7));
        double const value_outliers = exp(gsl_ran_gaussian(r, 0.3));
        int64_t elements = 0, tokens = 0, recent = 0;
        if (is_mixed) {
            elements = heads[gsl_rng_uniform_int(r, 5)];
            elements *= widths[gsl_rng_uniform_int(r, 6)];
            tokens = l % 6 == 5                 ? 131072
                     : gsl_rng_uniform(r) < 0.5 ? 1024
                                                : 4096 + (int64_t)gsl_rng_uniform_int(r, 1000);
            recent = (int64_t)gsl_rng_uniform_int(r, 128);
        }
        for (int j = 0; j < OPTIONS; j++) {
            int const k = j / FORMATS, v = j % FORMATS;
            double const key = key_gain * noise(k, key_outliers), value = noise(v, value_outliers);
            double const error = gain * (key + value + 0.2 * sqrt(key * value)) *
                                 exp(gsl_ran_gaussian(r, 0.05)) / LAYERS;
            int64_t const pair = formats[k].quarter_bits + formats[v].quarter_bits;
            options[l][j].error = llround(ldexp(error, 52));
            options[l][j].size =
                is_mixed ? (elements * ((tokens - recent) * pair / 4 + recent * 32) + 7) / 8 : pair;
        }
    }
    gsl_rng_free(r);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double const x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct {
    int n;
    double s[MAX_TIMES];
} times;

static void note(times *t, double since)
{
    if (t->n < MAX_TIMES) t->s[t->n++] = now() - since;
}

static double median(times *t)
{
    qsort(t->s, (size_t)t->n, sizeof *t->s, by_value);
    return t->n ? t->s[t->n / 2] : (double)NAN;
}

static void must(kv_status status, const kv_error *err)
{
    if (status == KV_OK) return;
    fprintf(stderr, "%s\n", err->message);
    exit(1);
}

#ifdef KVANT_HAVE_GLPK
/* Least error within a size, and the seconds it took from the filtered options to the answer. */
static int64_t glpk_within(const kv_knapsack *k, int64_t budget, double bound, times *t)
{
    kv_error err = {0};
    kv_relaxation r = {0};
    double const start = now();
    must(kv_relaxation_create(&r, k, &err), &err);
    glp_term_out(GLP_OFF);
    glp_prob *const p = glp_create_prob();
    int const n = (int)r.first[r.n_groups], groups = (int)r.n_groups;
    static int row[2 * LAYERS * OPTIONS + 1], column[2 * LAYERS * OPTIONS + 1];
    static double value[2 * LAYERS * OPTIONS + 1];
    int c = 0;
    glp_set_obj_dir(p, GLP_MIN);
    glp_add_rows(p, groups + 1);
    glp_add_cols(p, n);
    for (int g = 0; g < groups; g++) {
        glp_set_row_bnds(p, g + 1, GLP_FX, 1, 1);
        for (int i = (int)r.first[g]; i < (int)r.first[g + 1]; i++) {
            glp_set_col_kind(p, i + 1, GLP_BV);
            glp_set_obj_coef(p, i + 1,
                             1000 * (double)r.efficient[i].error * (double)r.error_unit / bound);
            row[++c] = g + 1, column[c] = i + 1, value[c] = 1;
            row[++c] = groups + 1, column[c] = i + 1, value[c] = (double)r.efficient[i].size;
        }
    }
    glp_set_row_bnds(p, groups + 1, GLP_UP, 0, (double)((budget - r.least_size) / r.size_unit));
    glp_load_matrix(p, c, row, column, value);
    glp_iocp how;
    glp_init_iocp(&how);
    how.presolve = GLP_ON, how.msg_lev = GLP_MSG_OFF, how.tm_lim = 60000;
    how.gmi_cuts = how.mir_cuts = how.cov_cuts = how.clq_cuts = GLP_ON;
    int const failed = glp_intopt(p, &how);
    note(t, start);
    int64_t error = failed ? -1 : r.least_error;
    for (int i = 0; i < n && !failed; i++)
        if (glp_mip_col_val(p, i + 1) > 0.5) error += r.efficient[i].error * r.error_unit;
    glp_delete_prob(p);
    kv_relaxation_free(&r);
    return error;
}
#endif

static void measure(int is_mixed, int n_seeds, int repeats)
{
    kv_error err = {0};
    int64_t n_options[LAYERS];
    const kv_option *lists[LAYERS];
    for (int l = 0; l < LAYERS; l++) n_options[l] = OPTIONS, lists[l] = options[l];
    kv_knapsack const k = {LAYERS, n_options, lists};
    static times whole, coarse, single, slowest, filter, glpk;
    whole.n = coarse.n = single.n = slowest.n = filter.n = glpk.n = 0;
    int64_t points = 0, n_glpk = 0, n_equal = 0, coarse_points = 0;
    for (int seed = 1; seed <= n_seeds; seed++) {
        make(is_mixed, (unsigned long)seed);
        kv_frontier *all = NULL, *some = NULL;
        for (int i = 0; i < (is_mixed ? (repeats + 4) / 5 : repeats); i++) {
            kv_frontier_free(all);
            double const start = now();
            must(kv_frontier_solve(&all, &k, &(kv_frontier_options){0}, &err), &err);
            note(&whole, start);
        }
        points += all->count;
        int64_t const least = all->size[0], range = all->size[all->count - 1] - least;
        for (int i = 0; i < repeats; i++) {
            kv_frontier_free(some);
            double const start = now();
            must(kv_frontier_solve(&some, &k, &(kv_frontier_options){.resolution = range / 1000},
                                   &err),
                 &err);
            note(&coarse, start);
            kv_relaxation r = {0};
            double const filter_start = now();
            must(kv_relaxation_create(&r, &k, &err), &err);
            note(&filter, filter_start);
            kv_relaxation_free(&r);
        }
        coarse_points += some->count;
        for (int b = 0; b < BUDGETS; b++) {
            int64_t const budget = least + (int64_t)(fractions[b] * (double)range);
            kv_frontier *one = NULL;
            times here = {0};
            for (int i = 0; i < repeats; i++) {
                kv_frontier_free(one);
                double const start = now();
                must(kv_knapsack_within_size(&one, &k, budget, &err), &err);
                note(&single, start);
                note(&here, start);
            }
            double const t = median(&here);
            if (slowest.n == 0 || t > slowest.s[0]) slowest.s[0] = t, slowest.n = 1;
#ifdef KVANT_HAVE_GLPK
            int64_t const found = glpk_within(&k, budget, one->lower_bound[0], &glpk);
            n_glpk++, n_equal += found == one->error[0];
#endif
            kv_frontier_free(one);
        }
        kv_frontier_free(all);
        kv_frontier_free(some);
    }
    double const one = median(&single);
    printf("%s, %d instances of %d layers x %d options\n", is_mixed ? "mixed" : "uniform", n_seeds,
           LAYERS, OPTIONS);
    printf("  dominance filter and relaxation %9.3f ms\n", 1e3 * median(&filter));
    printf("  whole frontier                  %9.3f ms, %" PRId64 " points\n", 1e3 * median(&whole),
           points / n_seeds);
    printf("  frontier at 1000 budgets        %9.3f ms, %" PRId64 " points\n",
           1e3 * median(&coarse), coarse_points / n_seeds);
    printf("  one budget                      %9.3f ms, slowest of %d x %d %.3f ms\n", 1e3 * one,
           n_seeds, BUDGETS, 1e3 * slowest.s[0]);
    if (n_glpk)
        printf("  one budget by GLPK              %9.3f ms, %.0f times as long; %" PRId64
               " of %" PRId64 " equal\n",
               1e3 * median(&glpk), median(&glpk) / one, n_equal, n_glpk);
}

int main(int argc, char **argv)
{
    int const seeds = argc > 1 ? atoi(argv[1]) : 5, repeats = argc > 2 ? atoi(argv[2]) : 11;
    if (seeds < 1 || repeats < 1 || seeds * BUDGETS * repeats > MAX_TIMES) {
        fprintf(stderr, "bench_frontier [SEEDS [REPEATS]]: SEEDS x REPEATS is 1 to %d\n",
                MAX_TIMES / BUDGETS);
        return 2;
    }
    measure(0, seeds, repeats);
    measure(1, seeds, repeats);
    return 0;
}
