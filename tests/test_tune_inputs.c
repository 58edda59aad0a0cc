/* Tunings that run no stack: captures, whose errors are local, against plain attention in double;
 * and tables that were measured elsewhere. */
#include <stdlib.h>

#include "tests/tune_bench.h"

enum { G = 2, H = 4, T = 40, D = 32, Q = 6, LAYERS = 2 };

/* ---- captures ---- */

static float number(uint64_t *state) /* in (-1, 1) */
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(*state >> 11) * 0x1p-52 - 1);
}

/* Version 1.0 of the .npy format: magic, length of the header, header, numbers. */
static void write_npy(const char *path, const float *x, int heads, int rows)
{
    char header[119], text[119];
    int const n = snprintf(text, sizeof text,
                           "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d, %d), }",
                           heads, rows, D);
    memset(header, ' ', 118);
    memcpy(header, text, (size_t)n);
    header[117] = '\n';
    FILE *const f = fopen(path, "wb");
    CHECK(f != NULL, "%s", path);
    if (!f) return;
    size_t const count = (size_t)(heads * rows * D);
    CHECK(fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, f) == 10 && fwrite(header, 1, 118, f) == 118 &&
              fwrite(x, sizeof *x, count, f) == count && fclose(f) == 0,
          "%s", path);
}

typedef struct {
    float key[G * T * D], value[G * T * D], query[H * Q * D];
    char paths[3][128];
} tensors;

static void make_layer(tensors *t, int layer)
{
    static const char *const names[] = {"key", "value", "query"};
    uint64_t state = (uint64_t)layer + 1;
    for (int i = 0; i < G * T * D; i++) t->key[i] = 2 * number(&state);
    for (int i = 0; i < G * T * D; i++) t->value[i] = (float)(layer + 1) * number(&state);
    for (int i = 0; i < H * Q * D; i++) t->query[i] = 3 * number(&state);
    for (int i = 0; i < 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s%d.npy", names[i], layer);
        path_of(t->paths[i], name);
    }
    write_npy(t->paths[0], t->key, G, T);
    write_npy(t->paths[1], t->value, G, T);
    write_npy(t->paths[2], t->query, H, Q);
}

/* int8 per tensor: s = amax / 127, round(x / s). */
static void round_all(double *y, const float *x, int n)
{
    double most = 0;
    for (int i = 0; i < n; i++) most = fmax(most, fabs((double)x[i]));
    double const s = most / 127;
    for (int i = 0; i < n; i++) y[i] = rint((double)x[i] / s) * s;
}

static void attend(double *out, const float *query, const double *key, const double *value)
{
    for (int h = 0; h < H; h++)
        for (int i = 0; i < Q; i++) {
            const float *const q = query + (h * Q + i) * D;
            const double *const k = key + h / (H / G) * T * D, *const v =
                                                                   value + h / (H / G) * T * D;
            double p[T], sum = 0, *const o = out + (h * Q + i) * D;
            int const seen = T - Q + i + 1;
            for (int t = 0; t < seen; t++) {
                p[t] = 0;
                for (int c = 0; c < D; c++) p[t] += (double)q[c] * k[t * D + c];
                p[t] = exp(p[t] / sqrt(D)), sum += p[t];
            }
            for (int c = 0; c < D; c++) {
                o[c] = 0;
                for (int t = 0; t < seen; t++) o[c] += p[t] / sum * v[t * D + c];
            }
        }
}

/* Error powers of int8/tensor keys and values, over the number of layers. */
static void find_powers(double powers[2], const tensors *t)
{
    static double exact[2][G * T * D], rounded[2][G * T * D], o[H * Q * D], other[H * Q * D];
    double square = 0;
    for (int i = 0; i < G * T * D; i++)
        exact[0][i] = (double)t->key[i], exact[1][i] = (double)t->value[i];
    round_all(rounded[0], t->key, G * T * D);
    round_all(rounded[1], t->value, G * T * D);
    attend(o, t->query, exact[0], exact[1]);
    for (int i = 0; i < H * Q * D; i++) square += o[i] * o[i];
    for (int side = 0; side < 2; side++) {
        attend(other, t->query, side ? exact[0] : rounded[0], side ? rounded[1] : exact[1]);
        powers[side] = 0;
        for (int i = 0; i < H * Q * D; i++) powers[side] += (other[i] - o[i]) * (other[i] - o[i]);
        powers[side] /= square * LAYERS;
    }
}

static void test_capture(void)
{
    static tensors layers[LAYERS];
    static const int numbers[] = {3, 7};
    char here[1024], yaml[8192];
    CHECK(getcwd(here, sizeof here) != NULL, "folder");
    int n = snprintf(yaml, sizeof yaml,
                     "kvant: 1\nheads:\n  generator: capture\n  capture: {layers: {");
    for (int l = 0; l < LAYERS; l++) {
        make_layer(&layers[l], numbers[l]);
        n += snprintf(yaml + n, sizeof yaml - (size_t)n,
                      "%s%d: {key: %s/%s, value: %s/%s, query: %s/%s}", l ? ", " : "", numbers[l],
                      here, layers[l].paths[0], here, layers[l].paths[1], here, layers[l].paths[2]);
    }
    snprintf(yaml + n, sizeof yaml - (size_t)n,
             "}}\nschemes: {keys: [f32, int8/tensor], values: [f32, int8/tensor]}\n");
    bench b = {0};
    const kv_outcome *o = tune(&b, yaml, "tune: {max_bits: 20}\n");
    if (o) {
        CHECK_TEXT(o->error_kind, "out_err");
        CHECK_TEXT(o->why_not,
                   "a capture holds no weights: errors are local, those of each layer's attention "
                   "output for the captured queries with exact inputs, and there is nothing to run "
                   "end to end");
        CHECK(!o->is_verified && isnan(o->policy.verified) && o->is_budget_met, "local only");
        CHECK(o->context == T && o->problem->n_layers == LAYERS, "shape");
        for (int l = 0; l < LAYERS; l++) {
            double powers[2], most[2] = {0, 0};
            find_powers(powers, &layers[l]);
            CHECK(o->problem->layers[l].number == numbers[l], "number");
            /* floats: 1e-7 of outputs against errors of 1e-2 of them */
            CHECK(fabs(o->problem->keys.error[l * 2 + 1] / powers[0] - 1) < 1e-3, "key %d: %g %g",
                  l, o->problem->keys.error[l * 2 + 1], powers[0]);
            CHECK(fabs(o->problem->values.error[l * 2 + 1] / powers[1] - 1) < 1e-3,
                  "value %d: %g %g", l, o->problem->values.error[l * 2 + 1], powers[1]);
            CHECK(!(o->problem->keys.error[l * 2] > 0), "f32 is exact");
            CHECK(o->problem->keys.bytes[l * 2] == 4 * G * T * D, "f32 bytes");
            CHECK(o->problem->values.bytes[l * 2 + 1] == G * T * D + 4, "int8 and one scale");
            for (int i = 0; i < G * T * D; i++) {
                most[0] = fmax(most[0], fabs((double)layers[l].key[i]));
                most[1] = fmax(most[1], fabs((double)layers[l].value[i]));
            }
            CHECK(fabs(o->key_absmax[l] - most[0]) <= 0 && fabs(o->value_absmax[l] - most[1]) <= 0,
                  "maxima of layer %d", l);
        }
    }
    finish(&b);
    o = tune(&b, yaml, "tune: {match: int8/tensor}\n");
    if (o) CHECK(o->is_budget_met && o->policy.bytes <= LAYERS * 2 * (G * T * D + 4), "match");
    finish(&b);
    layers[1].key[1] = 1e6f; /* beyond f16, in the layer numbered 7 */
    write_npy(layers[1].paths[0], layers[1].key, G, T);
    CHECK(load(&b, yaml, "tune: {match: f16}\n") && !run(&b, 1, NULL), "what does not fit");
    CHECK_TEXT(b.err.message,
               "layer 7: kv head 0, token 0, channel 1: 1e+06 does not fit into f16");
    finish(&b);
    for (int l = 0; l < LAYERS; l++)
        for (int i = 0; i < 3; i++) unlink(layers[l].paths[i]);
}

/* ---- tables ---- */

static void test_table(void)
{
    static const char csv[] = "layer,tensor,scheme,error,bytes\n"
                              "0,key,wide,0.001,100\n0,key,narrow,0.02,50\n"
                              "0,value,wide,0.001,100\n0,value,narrow,0.004,50\n"
                              "5,key,wide,0.001,100\n5,key,narrow,0.5,50\n"
                              "5,value,wide,0.001,100\n5,value,narrow,0.003,50\n";
    static const struct {
        const char *tune;
        int64_t bytes;
        bool is_met;
    } cases[] = {
        {"max_error: 0.03", 250, true},   /* all narrow but layer 5's key */
        {"max_error: 0.0101", 300, true}, /* both values narrow: 0.009 */
        {"max_error: 0.001", 400, false},
        {"max_bytes_per_token: 349", 300, true},
        {"max_bytes_per_token: 10", 200, false},
        {"match: narrow | wide", 250, true}, /* 0.522: but the key of layer 5 must be wide */
        {"max_error: 0.03, pin: {0: [wide, wide]}", 350, true},
        {"max_error: 0.03, forbid: [{key: narrow}]", 300, true},
        {"max_error: 0.03, forbid: [narrow]", 400, true},
    };
    char path[128], here[1024], yaml[2048];
    path_of(path, "table.csv");
    FILE *const f = fopen(path, "w");
    CHECK(f && fputs(csv, f) >= 0 && fclose(f) == 0 && getcwd(here, sizeof here), "write");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bench b = {0};
        snprintf(yaml, sizeof yaml, "tune: {table: %s/%s, %s}\n", here, path, cases[i].tune);
        const kv_outcome *const o = tune(&b, "kvant: 1\n", yaml);
        if (o) {
            CHECK(o->is_budget_met == cases[i].is_met, "%s", cases[i].tune);
            CHECK(i == 5 || o->policy.bytes == cases[i].bytes, "%s: %lld", cases[i].tune,
                  (long long)o->policy.bytes);
            CHECK_TEXT(o->error_kind, "error");
            CHECK(o->is_power && !o->is_verified && o->runs == 0, "%s", cases[i].tune);
            CHECK_TEXT(o->why_not,
                       "the table was measured elsewhere: there is nothing to run end to end");
        }
        finish(&b);
    }
    bench b = {0};
    snprintf(yaml, sizeof yaml, "tune: {table: %s/%s, match: narow | wide}\n", here, path);
    if (load(&b, "kvant: 1\n", yaml)) {
        run(&b, 1, NULL);
        CHECK(b.status == KV_EREQUEST, "no such scheme");
        CHECK_TEXT(b.err.message,
                   "tune.match: layer 0 of the table has no choice \"narow | wide\"");
    }
    finish(&b);
    unlink(path);
}

int main(void)
{
    test_capture();
    test_table();
    return check_done();
}
