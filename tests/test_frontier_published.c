/* Published instances with known optima: HAWQ-V3's nine integer programs for ResNet18 (Yao et al.
 * 2021, arXiv 2011.10680; measured numbers of github.com/Zhen-Dong/HAWQ, ILP.ipynb). 19 layers at 4
 * or 8 bits; three downsampling layers have the bits of their block. Error is trace * |W - Q(W)|^2;
 * the cost, size, bit operations or latency, may be at most `share` of the way from all 4 to all 8
 * bits. Each published configuration is an exact optimum, with these sums of error differences. */
#include <stdbool.h>

#include "check.h"
#include "tuner/frontier.h"

enum { LAYERS = 19, GROUPS = 16, COSTS = 3, SHARES = 3 };

/* In 1e-8, 1e-4 and 1e-4; parameters; operations; 1e-8 ms. */
static const int64_t trace[LAYERS] = {6857826, 3162379, 3298575, 1205663, 2222431, 596336, 6931772,
                                      807129,  372905,  530698,  209011,  737569,  210454, 151197,
                                      158041,  78146,   451841,  98745,   72944};
static const int64_t error_8[LAYERS] = {235, 125, 102, 82,  145, 344,  23,  287, 148, 333,
                                        682, 27,  448, 336, 576, 1130, 102, 947, 532};
static const int64_t error_4[LAYERS] = {67430,  39691,  33281,  26796,  47277, 105966, 6827,
                                        90942,  48857,  107599, 217546, 8603,  145324, 109651,
                                        187706, 364044, 31572,  296994, 174016};
static const int64_t parameters[LAYERS] = {
    36864,  36864, 36864,  36864,  73728,   147456,  8192,   147456,  147456, 294912,
    589824, 32768, 589824, 589824, 1179648, 2359296, 131072, 2359296, 2359296};
static const int64_t operations[LAYERS] = {115605504, 115605504, 115605504, 115605504, 57802752,
                                           115605504, 6422528,   115605504, 115605504, 57802752,
                                           115605504, 6422528,   115605504, 115605504, 57802752,
                                           115605504, 6422528,   115605504, 115605504};
static const int64_t latency_4[LAYERS] = {21094404, 21092674, 21104113, 21086851, 13642465,
                                          19167506, 2532183,  19148203, 19142914, 11395316,
                                          20556011, 1917474,  20566918, 20566509, 13185102,
                                          22287786, 1790088,  22304611, 22286099};
static const int64_t latency_8[LAYERS] = {36189111, 36211718, 31141909, 30454471, 19184896,
                                          38948934, 3341690,  38904905, 38928590, 19134735,
                                          34307431, 2802354,  34313329, 34310756, 21117103,
                                          37376585, 2896843,  37398187, 37405185};

/* The layer that layer l shares its bits with: itself, or its block. */
static int owner(int l)
{
    return l == 6 ? 4 : l == 11 ? 9 : l == 16 ? 14 : l;
}

/* Costs of a layer at 4 and at 8 bits, in units that make them whole. */
static int64_t cost_of(int kind, int l, bool is_8)
{
    if (kind == 0) return parameters[l] * (is_8 ? 2 : 1); /* half bytes */
    if (kind == 1) return operations[l] * (is_8 ? 4 : 1); /* bits^2 / 16 */
    return is_8 ? latency_8[l] : latency_4[l];
}

static void solve(int kind, int quarters, double published, const char *bits)
{
    int group_of[LAYERS], n = 0;
    kv_option options[GROUPS][2] = {{{0, 0}}};
    const kv_option *groups[GROUPS];
    int64_t counts[GROUPS], low = 0, high = 0, all_4 = 0;
    kv_frontier *best = NULL;
    kv_error err = {0};
    for (int l = 0; l < LAYERS; l++) {
        if (owner(l) == l) group_of[l] = n++;
        int const g = group_of[owner(l)];
        for (int b = 0; b < 2; b++) {
            options[g][b].size += cost_of(kind, l, b);
            options[g][b].error += trace[l] * (b ? error_8[l] : error_4[l]);
        }
        low += cost_of(kind, l, false), high += cost_of(kind, l, true);
        all_4 += trace[l] * error_4[l];
    }
    for (int g = 0; g < GROUPS; g++) groups[g] = options[g], counts[g] = 2;
    kv_knapsack const knapsack = {GROUPS, counts, groups};
    CHECK(n == GROUPS, "%d groups", n);
    CHECK(kv_knapsack_within_size(&best, &knapsack, low + (high - low) * quarters / 4, &err) ==
                  KV_OK &&
              best->count == 1,
          "%s", err.message);
    if (!best || best->count != 1) return;
    double const found = 1e-12 * (double)(best->error[0] - all_4);
    CHECK(fabs(found - published) <= 0.5e-6, "cost %d, %d/4: %.7f, published %.6f", kind, quarters,
          found, published);
    for (int l = 0; bits && l < LAYERS; l++)
        CHECK(best->option[group_of[owner(l)]] == (bits[l] == '8'), "layer %d", l);
    kv_frontier_free(best);
}

int main(void)
{
    static const double published[COSTS][SHARES] = {{-1.189414, -1.233207, -1.274273},
                                                    {-0.847289, -1.092024, -1.227748},
                                                    {-0.847289, -1.105039, -1.227748}};
    for (int kind = 0; kind < COSTS; kind++)
        for (int i = 0; i < SHARES; i++)
            solve(kind, i + 1, published[kind][i],
                  kind == 0 && i == 1 ? "8888888888888884844" : NULL);
    return check_done();
}
