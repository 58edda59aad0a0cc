/* Figures: every kind is drawn in every format, hostile names stay texts, and what cannot be drawn
 * says so. With an argument: leaves the figures in that folder, to be looked at. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/file.h"
#include "kernels/memory.h"
#include "results/plot.h"
#include "tests/check.h"

#define MUST(call)     CHECK((call) == KV_OK, "%s", err.message)
#define DIMENSION(...) MUST(kv_record_add_dimension(r, &(kv_dimension_spec){__VA_ARGS__}, &err))
#define ARRAY(...)     MUST(kv_record_add_array(r, &(kv_array_spec){__VA_ARGS__}, &err))

enum { SCHEMES = 4, TOKENS = 5, SEEDS = 6 };

static const char *const schemes[SCHEMES] = {"K+V per-tensor INT8", "K per-channel, V per-token",
                                             "it's `touch hacked` \"2\" @x", "kivi-2"};
static const char *const keys[SCHEMES] = {"int8/tensor", "int8/channel", "int8/tensor",
                                          "int8/channel"};
static const char *const values[SCHEMES] = {"int8/tensor", "int8/tensor", "int4/token",
                                            "int4/token"};
static const double tokens[TOKENS] = {1024, 2048, 4096, 8192, 16384};
static const double seeds[SEEDS] = {0, 1, 2, 3, 4, 5};

/* `wide` spans three decades; `flat` does not; both lack a value. `exact` is `wide` with a scheme
 * of zeros, `share` has an interval that would pass 1. */
static kv_record *example(int n_tokens)
{
    double wide[SCHEMES * TOKENS * SEEDS], flat[SCHEMES * TOKENS * SEEDS];
    double exact[SCHEMES * TOKENS * SEEDS], share[SCHEMES * TOKENS * SEEDS];
    int n = 0;
    for (int s = 0; s < SCHEMES; s++)
        for (int t = 0; t < n_tokens; t++)
            for (int k = 0; k < SEEDS; k++, n++) {
                double const noise = 0.15 * sin(12.9898 * n);
                wide[n] = pow(10, -s) * (1 + 0.3 * t) * (1 + noise);
                flat[n] = (1 + s + 0.2 * t) * 0.02 * (1 + noise);
                exact[n] = s == 3 ? 0 : wide[n];
                share[n] = s == 0 ? 1 : s == 3 ? 1 - 0.3 * (k == 0) : 0.4 + 0.1 * t + 0.1 * noise;
                if (s == 2 && t == 1) wide[n] = flat[n] = (double)NAN;
            }
    kv_error err = {0};
    kv_record *r = NULL;
    MUST(kv_record_create(&r, &err));
    DIMENSION(.name = "scheme", .length = SCHEMES, .texts = schemes);
    DIMENSION(.name = "heads.tokens", .length = n_tokens, .numbers = tokens);
    DIMENSION(.name = "seed", .length = SEEDS, .numbers = seeds);
    ARRAY(.name = "key_scheme", .dimensions = {"scheme"}, .texts = keys);
    ARRAY(.name = "value_scheme", .dimensions = {"scheme"}, .texts = values);
    ARRAY(.name = "wide", .units = "nat",
          .long_name = "largest |l^-l| over queries and visible tokens",
          .dimensions = {"scheme", "heads.tokens", "seed"}, .numbers = wide);
    ARRAY(.name = "flat", .units = "1", .long_name = "relative error of the attention output",
          .dimensions = {"scheme", "heads.tokens", "seed"}, .numbers = flat);
    ARRAY(.name = "exact", .units = "nat", .long_name = "error",
          .dimensions = {"scheme", "heads.tokens", "seed"}, .numbers = exact);
    ARRAY(.name = "share", .units = "1", .dimensions = {"scheme", "heads.tokens", "seed"},
          .numbers = share);
    ARRAY(.name = "none", .dimensions = {"scheme"});
    MUST(kv_record_set_text(r, "title", "Why keys break first: `date` isn't run", &err));
    return r;
}

static const struct {
    const char *name, *metric, *x;
    int n_tokens, n_where;
    const char *where[1];
} figures[] = {
    {"lines", "flat", NULL, TOKENS, 0, {0}},
    {"lines-log", "wide", NULL, TOKENS, 0, {0}},
    {"bars", "flat", "scheme", TOKENS, 1, {"heads.tokens=4096"}},
    {"bars-groups", "flat", "scheme", 3, 0, {0}},
    {"bars-log", "wide", "scheme", 3, 0, {0}},
    {"dashes", "flat", "seed", 3, 0, {0}},
    {"over-seeds", "flat", "seed", TOKENS, 1, {"heads.tokens=4096"}},
    {"lines-zeros", "exact", NULL, TOKENS, 0, {0}},
    {"bars-zeros", "exact", "scheme", 1, 0, {0}},
    {"lines-share", "share", NULL, TOKENS, 0, {0}},
    {"bars-share", "share", "scheme", 2, 0, {0}},
    {"matrix-zeros", "exact", NULL, 1, 0, {0}},
    {"matrix-of-point", "flat", NULL, TOKENS, 1, {"heads.tokens=2048"}},
    {"matrix", "flat", NULL, 1, 0, {0}},
    {"matrix-log", "wide", NULL, 1, 0, {0}},
    {"one-scheme", "flat", "heads.tokens", TOKENS, 1, {"scheme=kivi-2"}},
};

/* A full matrix of six schemes with long names, at two points. */
static kv_record *long_names(int n_tokens)
{
    enum { SIDE = 6, COUNT = SIDE * SIDE };
    static const char *const ends[SIDE] = {"f16",     "int8/channel", "int4/32x1:zero:scale=f16",
                                           "W@:M=80", "q4_0",         "int2/token:zero:scale=f16"};
    static char names[COUNT][80];
    const char *all[COUNT], *key[COUNT], *value[COUNT];
    double m[COUNT * TOKENS];
    for (int i = 0; i < COUNT; i++) {
        key[i] = ends[i / SIDE], value[i] = ends[i % SIDE];
        snprintf(names[i], sizeof names[i], "%s | %s", key[i], value[i]);
        all[i] = names[i];
        for (int t = 0; t < n_tokens; t++) m[i * n_tokens + t] = 0.00123 * (i + 1) * (t + 1);
    }
    kv_error err = {0};
    kv_record *r = NULL;
    MUST(kv_record_create(&r, &err));
    DIMENSION(.name = "scheme", .length = COUNT, .texts = all);
    DIMENSION(.name = "heads.tokens", .length = n_tokens, .numbers = tokens);
    ARRAY(.name = "key_scheme", .dimensions = {"scheme"}, .texts = key);
    ARRAY(.name = "value_scheme", .dimensions = {"scheme"}, .texts = value);
    ARRAY(.name = "out_err", .units = "1", .dimensions = {"scheme", "heads.tokens"}, .numbers = m,
          .long_name =
              "a sentence of some length that says with many words what this number is and "
              "over what it was taken, on and on");
    return r;
}

/* The beginnings of the formats. */
static const struct {
    const char *ending, *start;
} kinds[] = {{".svg", "<?xml"}, {".png", "\x89PNG"}, {".pdf", "%PDF"}};

/* Whether every text of a figure lies inside it, letters being half as wide as high. */
static void check_texts(const char *name, const char *svg)
{
    double width = 0, height = 0, x, y, size;
    const char *const box = strstr(svg, "viewBox=\"0 0 ");
    CHECK(box && sscanf(box, "viewBox=\"0 0 %lf %lf", &width, &height) == 2, "%s: no size", name);
    int n = 0;
    for (const char *at = svg; (at = strstr(at, "<g transform=\"translate(")) != NULL; at++) {
        const char *const end = strstr(at, "</text>"), *text = strstr(at, "<text>");
        const char *const font = strstr(at, "font-size=\""), *anchor = strstr(at, "text-anchor=\"");
        if (!end || !text || !font || !anchor || text > end || font > text || anchor > text) break;
        if (sscanf(at, "<g transform=\"translate(%lf,%lf)", &x, &y) != 2) continue;
        if (sscanf(font, "font-size=\"%lf", &size) != 1) continue;
        text += strlen("<text>"), anchor += strlen("text-anchor=\"");
        double const length = 0.5 * size * (double)(end - text); /* &...; count too long */
        double const before = *anchor == 'e' ? 1 : *anchor == 'm' ? 0.5 : 0;
        double degrees = 0;
        const char *const turned = strstr(at, "rotate(");
        if (turned && turned < text) sscanf(turned, "rotate(%lf", &degrees);
        double const along = cos(degrees * acos(-1) / 180), across = sin(degrees * acos(-1) / 180);
        for (int i = 0; i < 2; i++) {
            double const place = (i - before) * length;
            double const px = x + place * along, py = y + place * across;
            CHECK(px > 0 && px < width && py > 0 && py < height - 3, "%s: \"%.*s\" at %g %g", name,
                  (int)(end - text), text, px, py);
        }
        n++;
    }
    CHECK(n > 5, "%s: %d texts", name, n);
}

/* What the SVG's texts must say (or, with '!' before it, must not). */
static const struct {
    const char *name, *text;
} sayings[] = {
    {"lines", "`touch hacked`"},
    {"lines", "`date`"},
    {"lines-zeros", "<text>error; mean and 95 % interval, 6 seeds; 5 zeros left out</text>"},
    {"lines-zeros", "<text>0.1</text>"}, /* a logarithmic axis */
    {"lines-zeros", "<text>kivi-2</text>"},
    {"bars-zeros", "<text>error; mean and 95 % interval, 6 seeds; 1 zero left out</text>"},
    {"matrix-zeros", "<text>error; mean, 6 seeds</text>"},
    {"matrix-zeros", "<text>0</text>"},
    {"lines-share", "<text> 1</text>"},
    {"lines-share", "!<text> 1.2</text>"},
    {"lines-share", "!<text> 1.1</text>"},
    {"bars-share", "<text> 1</text>"},
    {"bars-share", "!<text> 1.2</text>"},
    {"matrix-of-point", "<text>int4/token</text>"},
};

static void check_sayings(const char *name, const char *svg)
{
    for (size_t i = 0; i < sizeof sayings / sizeof *sayings; i++) {
        int const is_not = sayings[i].text[0] == '!';
        if (strcmp(sayings[i].name, name) == 0)
            CHECK(is_not == !strstr(svg, sayings[i].text + is_not), "%s: %s", name,
                  sayings[i].text);
    }
}

static void draw_long_names(const char *folder)
{
    static const struct {
        const char *name, *x;
        int n_where;
        const char *where[2];
    } rows[] = {{"long-matrix", NULL, 1, {"heads.tokens=2048"}},
                {"long-lines", "heads.tokens", 0, {0}},
                {"long-few-lines",
                 "heads.tokens",
                 2,
                 {"scheme=f16 | f16", "scheme=int4/32x1:zero:scale=f16 | int8/channel"}},
                {"long-bars", "scheme", 1, {"heads.tokens=2048"}}};
    kv_record *const r = long_names(2);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kv_plot_request const request = {
            .x = rows[i].x, .n_where = rows[i].n_where, .where = rows[i].where};
        for (size_t k = 0; k < 2; k++) {
            char path[256], *bytes = NULL;
            size_t size = 0;
            kv_error err = {0};
            snprintf(path, sizeof path, "%s/%s%s", folder, rows[i].name, k ? ".png" : ".svg");
            MUST(kv_plot(NULL, path, r, &request, &err));
            MUST(kv_file_read(&bytes, &size, path, &err));
            if (bytes && k == 0) check_texts(rows[i].name, bytes);
            kv_free(bytes);
        }
    }
    kv_record_free(r);
}

static void draw_all(const char *folder)
{
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        kv_record *const r = example(figures[i].n_tokens);
        kv_plot_request const request = {.metric = figures[i].metric,
                                         .x = figures[i].x,
                                         .n_where = figures[i].n_where,
                                         .where = figures[i].where};
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            char path[256], *bytes = NULL;
            size_t size = 0;
            kv_error err = {0};
            snprintf(path, sizeof path, "%s/%s%s", folder, figures[i].name, kinds[k].ending);
            MUST(kv_plot(NULL, path, r, &request, &err));
            MUST(kv_file_read(&bytes, &size, path, &err));
            CHECK(size > 2000 && memcmp(bytes, kinds[k].start, strlen(kinds[k].start)) == 0,
                  "%s: %zu bytes", path, size);
            if (bytes && k == 0) check_texts(figures[i].name, bytes);
            if (bytes && k == 0) check_sayings(figures[i].name, bytes);
            kv_free(bytes);
        }
        char *text = NULL;
        size_t size = 0;
        kv_error err = {0};
        FILE *const terminal = open_memstream(&text, &size);
        MUST(kv_plot(terminal, "-", r, &request, &err));
        fclose(terminal);
        CHECK(size > 500 && strstr(text, "Why keys break first"), "%s", text);
        if (strcmp(figures[i].name, "lines") == 0) printf("%s", text);
        free(text);
        kv_record_free(r);
    }
}

static void check_refused(const kv_record *r, const char *path, kv_plot_request request,
                          kv_status status, const char *message)
{
    kv_error err = {0};
    CHECK(kv_plot(NULL, path, r, &request, &err) == status, "%d", (int)err.status);
    CHECK_TEXT(err.message, message);
}

static void refusals(void)
{
    kv_record *const r = example(2);
    check_refused(r, "x.gif", (kv_plot_request){0}, KV_EREQUEST,
                  "x.gif: a figure ends in .svg, .png or .pdf, or is - for the terminal");
    check_refused(r, ".svg", (kv_plot_request){0}, KV_EREQUEST,
                  ".svg: a figure ends in .svg, .png or .pdf, or is - for the terminal");
    check_refused(r, "x.svg", (kv_plot_request){.metric = "none"}, KV_EREQUEST,
                  "none has no values to draw");
    check_refused(r, "x.svg", (kv_plot_request){.metric = "wid"}, KV_EREQUEST,
                  "no metric \"wid\"; there are: wide, flat, exact, share, none");
    check_refused(r, "x.svg", (kv_plot_request){.x = "layer"}, KV_EREQUEST,
                  "no dimension \"layer\"; there are: scheme, heads.tokens, seed");
    kv_record *const matrix = long_names(2);
    check_refused(
        matrix, "x.svg", (kv_plot_request){0}, KV_EREQUEST,
        "a matrix of 6 keys and 6 values at 2 points would be 36 lines; draw one point of "
        "it, as with --where heads.tokens=1024, or give the x axis");
    kv_record_free(matrix);
    kv_error err = {0};
    CHECK(kv_plot(NULL, "/nowhere/x.svg", r, &(kv_plot_request){0}, &err) == KV_EIO, "no folder");
    CHECK(strstr(err.message, "gnuplot failed: "), "%s", err.message);
    setenv("PATH", "/nowhere", 1);
    check_refused(r, "x.svg", (kv_plot_request){0}, KV_EUNSUPPORTED,
                  "figures are drawn by gnuplot, which is not installed "
                  "(Debian and Ubuntu: apt install gnuplot-nox)");
    kv_record_free(r);
}

int main(int argc, char **argv)
{
    if (system("gnuplot --version >/dev/null 2>&1") != 0) {
        printf("skipped: gnuplot is not installed\n");
        return 77;
    }
    char folder[] = "/tmp/kvant-plot-XXXXXX", command[64];
    CHECK(mkdtemp(folder) != NULL, "mkdtemp");
    draw_all(argc > 1 ? argv[1] : folder);
    draw_long_names(argc > 1 ? argv[1] : folder);
    refusals();
    setenv("PATH", "/usr/bin:/bin", 1);
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0, "%s", command);
    return check_done();
}
