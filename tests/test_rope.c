/* RoPE against a direct complex rotation in double, its inverse, and frequencies from the papers.
 */
#include "kernels/rope.h"

#include <complex.h>
#include <stdbool.h>
#include <stdint.h>

#include "tests/check.h"

enum { ROWS = 150, DIM = 20 };

static float noise(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

/* Largest |found - exact| against half a float step of the pair's norm, with room for the double
 * arithmetic: exact product in long double angles. */
static void check_rotation(const char *name, const kv_rope_settings *settings, int64_t first)
{
    kv_error err = {0};
    kv_rope *rope = NULL;
    float x[ROWS][DIM], y[ROWS][DIM];
    uint32_t state = 7;
    for (int t = 0; t < ROWS; t++)
        for (int c = 0; c < DIM; c++) x[t][c] = y[t][c] = noise(&state);
    CHECK(kv_rope_create(&rope, settings, DIM, &err) == KV_OK, "%s: %s", name, err.message);
    if (!rope) return;
    kv_rope_apply(rope, first, ROWS, y[0]);
    int const pairs = (int)kv_rope_rotary_dim(rope) / 2;
    bool const is_half = settings->layout == KV_ROPE_HALF;
    double const gain =
        settings->scaling == KV_ROPE_SCALING_YARN ? 0.1 * log(settings->factor) + 1 : 1;
    double worst = 0;
    for (int t = 0; t < ROWS; t++)
        for (int i = 0; i < pairs; i++) {
            int const a = is_half ? i : 2 * i, b = is_half ? i + pairs : 2 * i + 1;
            double const angle = (double)(first + t) * kv_rope_frequency(rope, i);
            double complex const z =
                gain * (x[t][a] + I * (double)x[t][b]) * (cos(angle) + I * sin(angle));
            double const norm = cabs(z);
            worst = fmax(worst, fabs(creal(z) - y[t][a]) / norm);
            worst = fmax(worst, fabs(cimag(z) - y[t][b]) / norm);
        }
    /* one rounding to float, and two angles that add: block + offset is exact, each product with
     * the frequency rounds to 2^-53 of an angle below (first + ROWS) */
    double const bound = 0x1p-24 + (double)(first + ROWS) * 0x1p-51;
    CHECK(worst <= bound, "%s: off by %g, allowed %g", name, worst, bound);
    for (int t = 0; t < ROWS; t++)
        for (int c = 2 * pairs; c < DIM; c++)
            CHECK(x[t][c] == y[t][c], "%s: channel %d past rotary_dim moved", name, c);

    /* a row's result depends on its position alone */
    float one[DIM];
    memcpy(one, x[77], sizeof one);
    kv_rope_apply(rope, first + 77, 1, one);
    CHECK(memcmp(one, y[77], sizeof one) == 0, "%s: one row differs from the block", name);

    kv_rope_remove(rope, first, ROWS, y[0]);
    worst = 0;
    for (int t = 0; t < ROWS; t++)
        for (int c = 0; c < DIM; c++) worst = fmax(worst, fabs((double)x[t][c] - y[t][c]));
    CHECK(worst <= 3e-7, "%s: the inverse is off by %g", name,
          worst); /* 2 roundings, |pair| < 1.5 */
    kv_rope_free(rope);
}

/* Frequencies of pairs, computed in Python from the formulas with D = 128. */
static const struct {
    const char *name;
    kv_rope_settings settings;
    struct {
        int64_t pair;
        double frequency;
    } golden[5];
} scaled[] = {
    {"plain",
     {.layout = KV_ROPE_HALF, .base = 10000},
     {{0, 1.0},
      {25, 0.027384196342643614},
      {32, 0.01},
      {35, 0.006493816315762113},
      {63, 0.00011547819846894582}}},
    {"linear",
     {.layout = KV_ROPE_HALF, .scaling = KV_ROPE_SCALING_LINEAR, .factor = 4},
     {{0, 0.25},
      {25, 0.006846049085660904},
      {32, 0.0025},
      {35, 0.0016234540789405282},
      {63, 2.8869549617236455e-05}}},
    {"ntk",
     {.layout = KV_ROPE_HALF, .scaling = KV_ROPE_SCALING_NTK, .factor = 4},
     {{0, 1.0},
      {25, 0.01579746147855816},
      {32, 0.004945289840680367},
      {35, 0.0030062301565013795},
      {63, 2.8869549617236452e-05}}},
    {"yarn",
     {.layout = KV_ROPE_HALF,
      .scaling = KV_ROPE_SCALING_YARN,
      .factor = 4,
      .original_length = 4096},
     {{0, 1.0},
      {25, 0.023434552639377708},
      {32, 0.006538461538461538},
      {35, 0.003683991948365045},
      {63, 2.8869549617236455e-05}}},
    {"llama3",
     {.layout = KV_ROPE_HALF,
      .base = 500000,
      .scaling = KV_ROPE_SCALING_LLAMA3,
      .factor = 8,
      .low_freq_factor = 1,
      .high_freq_factor = 4,
      .original_length = 8192},
     {{0, 1.0},
      {25, 0.005940730375674967},
      {32, 0.0005248461609929547},
      {35, 9.556212353964683e-05},
      {63, 3.068925988914511e-07}}},
};

static const struct {
    kv_rope_settings settings;
    const char *message;
} refused[] = {
    {{.layout = 7}, "rope.layout: 7 is no layout"},
    {{.layout = KV_ROPE_HALF, .rotary_dim = 7},
     "rope.rotary_dim: 7: must be even, at least 2 and at most head_dim = 20"},
    {{.layout = KV_ROPE_HALF, .rotary_dim = 22},
     "rope.rotary_dim: 22: must be even, at least 2 and at most head_dim = 20"},
    {{.layout = KV_ROPE_HALF, .base = 0.5}, "rope.base: 0.5: must be a number above 1"},
    {{.layout = KV_ROPE_HALF, .scaling = 9}, "rope.scaling: 9 is no scaling"},
    {{.layout = KV_ROPE_HALF, .scaling = KV_ROPE_SCALING_LINEAR},
     "rope.factor: 0: scaling linear needs a factor of 1 or more"},
    {{.layout = KV_ROPE_HALF, .rotary_dim = 2, .scaling = KV_ROPE_SCALING_NTK, .factor = 2},
     "rope.rotary_dim: 2: scaling ntk needs 4 or more"},
    {{.layout = KV_ROPE_HALF, .scaling = KV_ROPE_SCALING_YARN, .factor = 2},
     "rope.original_length: 0: scaling yarn needs the length the model was first trained on"},
    {{.layout = KV_ROPE_HALF,
      .scaling = KV_ROPE_SCALING_LLAMA3,
      .factor = 8,
      .original_length = 8192,
      .low_freq_factor = 4,
      .high_freq_factor = 4},
     "rope.high_freq_factor: 4: must be above low_freq_factor = 4, and both above 0"},
    {{.layout = KV_ROPE_HALF,
      .scaling = KV_ROPE_SCALING_YARN,
      .factor = 8,
      .original_length = 8192,
      .beta_fast = 1,
      .beta_slow = 2},
     "rope.beta_fast: 1: must be above beta_slow = 2, and both above 0"},
};

int main(void)
{
    check_rotation("half", &(kv_rope_settings){.layout = KV_ROPE_HALF}, 0);
    check_rotation("half far", &(kv_rope_settings){.layout = KV_ROPE_HALF, .base = 5e5}, 1000037);
    check_rotation("interleaved", &(kv_rope_settings){.layout = KV_ROPE_INTERLEAVED}, 33);
    check_rotation("partial", &(kv_rope_settings){.layout = KV_ROPE_HALF, .rotary_dim = 12}, 5);
    check_rotation("partial interleaved",
                   &(kv_rope_settings){.layout = KV_ROPE_INTERLEAVED, .rotary_dim = 12}, 5);
    check_rotation("none", &(kv_rope_settings){.layout = KV_ROPE_NONE}, 0);
    check_rotation("yarn",
                   &(kv_rope_settings){.layout = KV_ROPE_HALF,
                                       .scaling = KV_ROPE_SCALING_YARN,
                                       .factor = 4,
                                       .original_length = 100},
                   64);

    for (size_t i = 0; i < sizeof scaled / sizeof *scaled; i++) {
        kv_error err = {0};
        kv_rope *rope = NULL;
        CHECK(kv_rope_create(&rope, &scaled[i].settings, 128, &err) == KV_OK, "%s", err.message);
        for (size_t k = 0; rope && k < 5; k++) {
            double const found = kv_rope_frequency(rope, scaled[i].golden[k].pair);
            double const wanted = scaled[i].golden[k].frequency;
            CHECK(fabs(found - wanted) <= 1e-14 * wanted, "%s: pair %d: %.17g, expected %.17g",
                  scaled[i].name, (int)scaled[i].golden[k].pair, found, wanted);
        }
        kv_rope_free(rope);
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        kv_error err = {0};
        kv_rope *rope = NULL;
        CHECK(kv_rope_create(&rope, &refused[i].settings, DIM, &err) == KV_EREQUEST, "row %zu", i);
        CHECK_TEXT(err.message, refused[i].message);
    }
    return check_done();
}
