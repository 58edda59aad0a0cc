/* Figures of a tuning: drawn in every format, hostile names stay texts, and what cannot be drawn
 * says so. */
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/memory.h"
#include "results/plot.h"
#include "tests/check.h"

#define MUST(call)     CHECK((call) == KV_OK, "%s", err.message)
#define DIMENSION(...) MUST(kv_record_add_dimension(r, &(kv_dimension_spec){__VA_ARGS__}, &err))
#define ARRAY(...)     MUST(kv_record_add_array(r, &(kv_array_spec){__VA_ARGS__}, &err))

enum { POINTS = 5, LAYERS = 3, CANDIDATES = 4 };

/* `is_apart`: keys and values have bytes of their own. */
static kv_record *example(bool is_apart, bool is_measured)
{
    static const double points[POINTS] = {0, 1, 2, 3, 4}, layers[LAYERS] = {0, 4, 11};
    static const double bytes[POINTS] = {100, 120, 160, 300, 400}, some[LAYERS] = {10, 20, 0};
    static const double error[POINTS] = {1, 0.1, 0.01, 1e-4, 0};
    static const char *const schemes[LAYERS] = {"int8/channel", "it's `touch hacked` \"2\" @x",
                                                "b"};
    static const char *const names[CANDIDATES] = {"policy", "a", "b", "c"};
    static const char *const families[CANDIDATES] = {"policy", "it's `touch hacked`", "random",
                                                     "random"};
    static const double sizes[CANDIDATES] = {160, 200, (double)NAN, 400};
    static const double errors[CANDIDATES] = {0.01, 0.5, (double)NAN, 0};
    static const double held_out[CANDIDATES] = {0.02, (double)NAN, (double)NAN, 0.3};
    kv_error err = {0};
    kv_record *r = NULL;
    MUST(kv_record_create(&r, &err));
    DIMENSION(.name = "point", .length = POINTS, .numbers = points);
    DIMENSION(.name = "layer", .length = LAYERS, .numbers = layers);
    DIMENSION(.name = "candidate", .length = CANDIDATES, .texts = names);
    ARRAY(.name = "frontier_bytes", .dimensions = {"point"}, .numbers = bytes);
    ARRAY(.name = "frontier_error", .dimensions = {"point"}, .numbers = error);
    ARRAY(.name = "policy_key", .dimensions = {"layer"}, .texts = schemes);
    ARRAY(.name = "policy_value", .dimensions = {"layer"}, .texts = schemes);
    ARRAY(.name = "policy_bytes", .dimensions = {"layer"}, .numbers = some);
    if (is_apart) ARRAY(.name = "policy_key_bytes", .dimensions = {"layer"}, .numbers = some);
    if (is_apart) ARRAY(.name = "policy_value_bytes", .dimensions = {"layer"}, .numbers = some);
    ARRAY(.name = "candidate_family", .dimensions = {"candidate"}, .texts = families);
    ARRAY(.name = "candidate_bytes", .dimensions = {"candidate"}, .numbers = sizes);
    ARRAY(.name = "candidate_error", .dimensions = {"candidate"}, .numbers = errors);
    if (is_measured)
        ARRAY(.name = "candidate_held_out", .dimensions = {"candidate"}, .numbers = held_out);
    MUST(kv_record_set_text(r, "title", "A `touch hacked` title", &err));
    MUST(kv_record_set_text(r, "budget", is_apart ? "max_error 0.05" : "max_bytes 170", &err));
    MUST(kv_record_set_number(r, "budget_limit", is_apart ? 0.05 : 170, &err));
    return r;
}

static void check_drawn(const kv_record *r, const char *metric, const char *path)
{
    kv_error err = {0};
    struct stat info;
    remove(path);
    MUST(kv_plot(stdout, path, r, &(kv_plot_request){.metric = metric}, &err));
    CHECK(stat(path, &info) == 0 && info.st_size > 1000, "%s: %s", path, metric ? metric : "");
    remove(path);
}

static char *drawn_text(const kv_record *r, const char *metric)
{
    kv_error err = {0};
    char *text = NULL;
    size_t size = 0;
    FILE *const f = tmpfile();
    MUST(kv_plot(f, "-", r, &(kv_plot_request){.metric = metric}, &err));
    rewind(f);
    FILE *const out = open_memstream(&text, &size);
    for (int c; (c = fgetc(f)) != EOF;) fputc(c, out);
    fclose(f), fclose(out);
    return text;
}

static void check_has(const char *text, const char *part)
{
    CHECK(strstr(text, part) != NULL, "\"%s\" is not in\n%s", part, text);
}

static void drawings(void)
{
    for (int i = 0; i < 4; i++) {
        kv_record *const r = example(i & 1, i & 2);
        check_drawn(r, "frontier", "tuning.svg");
        check_drawn(r, "frontier", "tuning.png");
        check_drawn(r, "policy", "tuning.svg");
        check_drawn(r, "policy", "tuning.pdf");
        check_drawn(r, NULL, "tuning.svg");
        kv_record_free(r);
    }
    CHECK(access("hacked", F_OK) != 0, "a name was run as a command");
    kv_record *const r = example(true, true);
    char *text = drawn_text(r, NULL);
    check_has(text, "A `touch hacked` title");
    check_has(text, "exact frontier, 5 points; budget max_error 0.05; line: additive error, marks: "
                    "measured; 1 zero left");
    check_has(text, "it's `touch hacked`");
    free(text);
    text = drawn_text(r, "policy");
    check_has(text, "key [byte]");
    check_has(text, "value [byte]");
    check_has(text, "it's `touch hacked` \"2\" @x");
    free(text);
    kv_record_free(r);
}

static void refusals(void)
{
    const struct {
        kv_plot_request request;
        const char *message;
    } rows[] = {
        {{.metric = "candidate"}, "candidate is a table; figures are known of frontier and policy"},
        {{.metric = "frontier", .x = "layer"}, "frontier is drawn whole, without --x and --where"},
        {{.metric = "policy", .n_where = 1, .where = (const char *[]){"layer=0"}},
         "policy is drawn whole, without --x and --where"},
    };
    kv_record *r = example(true, false);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kv_error err = {0};
        CHECK(kv_plot(stdout, "x.svg", r, &rows[i].request, &err) == KV_EREQUEST, "row %zu", i);
        CHECK_TEXT(err.message, rows[i].message);
    }
    kv_error err = {0};
    double *const errors = r->arrays[1].numbers;
    for (int i = 0; i < POINTS; i++) errors[i] = 0;
    double *const others = r->arrays[9].numbers;
    CHECK_TEXT(r->arrays[9].name, "candidate_error");
    for (int i = 0; i < CANDIDATES; i++) others[i] = 0;
    CHECK(kv_plot(stdout, "x.svg", r, &(kv_plot_request){0}, &err) == KV_EREQUEST, "zeros");
    CHECK_TEXT(err.message, "the frontier's errors are all zero: nothing to draw");
    CHECK(access("x.svg", F_OK) != 0, "a refused figure was left");
    kv_record_free(r);
}

int main(void)
{
    kv_error err = {0};
    kv_record *const r = example(true, true);
    if (kv_plot(stdout, "probe.svg", r, &(kv_plot_request){0}, &err) == KV_EUNSUPPORTED) {
        printf("skipped: %s\n", err.message);
        return 77;
    }
    remove("probe.svg");
    kv_record_free(r);
    drawings();
    refusals();
    return check_done();
}
