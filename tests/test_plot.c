/* Figures: every kind is drawn in every format, hostile names stay texts, and what cannot be drawn
 * says so. With an argument: leaves the figures in that folder, to be looked at. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/memory.h"
#include "results/file.h"
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

/* `wide` spans three decades; `flat` does not; both lack a value. */
static kv_record *example(int n_tokens)
{
    double wide[SCHEMES * TOKENS * SEEDS], flat[SCHEMES * TOKENS * SEEDS];
    int n = 0;
    for (int s = 0; s < SCHEMES; s++)
        for (int t = 0; t < n_tokens; t++)
            for (int k = 0; k < SEEDS; k++, n++) {
                double const noise = 0.15 * sin(12.9898 * n);
                wide[n] = pow(10, -s) * (1 + 0.3 * t) * (1 + noise);
                flat[n] = (1 + s + 0.2 * t) * 0.02 * (1 + noise);
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
    {"matrix", "flat", NULL, 1, 0, {0}},
    {"matrix-log", "wide", NULL, 1, 0, {0}},
    {"one-scheme", "flat", "heads.tokens", TOKENS, 1, {"scheme=kivi-2"}},
};

/* The beginnings of the formats. */
static const struct {
    const char *ending, *start;
} kinds[] = {{".svg", "<?xml"}, {".png", "\x89PNG"}, {".pdf", "%PDF"}};

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
            if (bytes && k == 0 && strcmp(figures[i].name, "lines") == 0)
                CHECK(strstr(bytes, "`touch hacked`") && strstr(bytes, "`date`"),
                      "names stay as they are");
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
                  "no metric \"wid\"; there are: wide, flat, none");
    check_refused(r, "x.svg", (kv_plot_request){.x = "layer"}, KV_EREQUEST,
                  "no dimension \"layer\"; there are: scheme, heads.tokens, seed");
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
    refusals();
    setenv("PATH", "/usr/bin:/bin", 1);
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0, "%s", command);
    return check_done();
}
