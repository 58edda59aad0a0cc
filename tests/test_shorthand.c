/* The shorthand: canonical texts read back to the same settings, spellings meet in one canonical
 * text, and every message to the letter. Strict numbers and names, too. */
#include <stdlib.h>

#include "kernels/memory.h"
#include "kernels/shorthand.h"
#include "kernels/text.h"
#include "tests/check.h"

static const struct {
    const char *text, *canonical; /* NULL: as it is */
} good[] = {
    {"f32", NULL},
    {"f16:sinks=4:window=128", NULL},
    {"q4_0:hadamard=64", NULL},
    {"q8_0", NULL},
    {"int8", "int8/tensor"},
    {"int8/head", NULL},
    {"int8/channel", NULL},
    {"int4/token:zero", NULL},
    {"int4/token-all:zero", NULL},
    {"int2/32x1:zero:scale=f16:flush=128", NULL},
    {"int4/1x64", NULL},
    {"int4/64xall", NULL},
    {"int4/allx64", NULL},
    {"int4/allxall", "int4/head"},
    {"int4/allx1", "int4/channel"},
    {"int4/1xall", "int4/token"},
    {"e4m3/tensor:unit", NULL},
    {"e4m3/tensor:static=512", NULL},
    {"e4m3/tensor:static=seed:4:window=3", NULL},
    {"int3/channel:pre-rope:outliers=1:zero", NULL},
    {"int3/channel:zero:outliers=1.0:pre-rope", "int3/channel:pre-rope:outliers=1:zero"},
    {"int3/channel:outliers=0.1", NULL},
    {"int4/token:hadamard", NULL},
    {"int4/token:hadamard+signs", NULL},
    {"int4/token:hadamard=32+signs", NULL},
    {"int4/token:smooth=0.5", "int4/token:smooth"},
    {"int4/token:smooth=0.25", NULL},
    {"int4/token:hadamard:smooth:center", "int4/token:center:smooth:hadamard"},
    {"int4/token:mse", NULL},
    {"int4/token:percentile=99.9", NULL},
    {"int8/token:scale=f32", "int8/token"},
    {"int8/token:scale=e8m0", NULL},
    {"int8/token:flush=32:window=64:sinks=1", "int8/token:sinks=1:window=64:flush=32"},
};

/* Lists that a new row makes longer: the message may go on after the first names. */
#define FORMATS "f32, f16, bf16, "
#define OPTIONS "center, smooth, "
#define TILES                                                                                      \
    "tensor, head, channel, token, token-all, or TOKENSxCHANNELS like 32x1, with \"all\" allowed"
#define COUNT "expected a whole number of at least 1"

static const struct {
    const char *text, *message; /* what follows `"TEXT": `; a message may go on after it */
} bad[] = {
    {"", "unknown format \"\"; formats: " FORMATS},
    {"int9", "unknown format \"int9\", did you mean \"int8\"? formats: " FORMATS},
    {"INT8", "unknown format \"INT8\"; formats: " FORMATS},
    {"int8/", "unknown tile \"\"; tiles: " TILES},
    {"int8/tokn", "unknown tile \"tokn\", did you mean \"token\"? tiles: " TILES},
    {"int8/0x1", "unknown tile \"0x1\"; tiles: " TILES},
    {"int8/32x", "unknown tile \"32x\"; tiles: " TILES},
    {"int8/32x1x2", "unknown tile \"32x1x2\"; tiles: " TILES},
    {"int8/4abcx1", "unknown tile \"4abcx1\"; tiles: " TILES},
    {"f16/token", "f16 has no scale and takes no tile, found \"token\""},
    {"f32/", "f32 has no scale and takes no tile, found \"\""},
    {"q4_0/token", "q4_0 owns its blocks of 32 channels and takes no tile, found \"token\""},
    {"int8:", "an option is missing after \":\""},
    {"int8::zero", "an option is missing after \":\""},
    {"int8:zeor", "unknown option \"zeor\", did you mean \"zero\"? options: " OPTIONS},
    {"int8:extremes", "unknown option \"extremes\"; options: " OPTIONS},
    {"int8:zero=1", "zero takes no value, found \"1\""},
    {"int8:center=1", "center takes no value, found \"1\""},
    {"int8:mse=1", "mse takes no value, found \"1\""},
    {"int8:zero:zero", "zero is given twice"},
    {"int8:mse:mse", "mse is given twice"},
    {"int8:smooth:smooth=1", "smooth is given twice"},
    {"int8:static=1:static=seed:1", "static is given twice"},
    {"int8:mse:unit", "mse and unit are both range rules: give one"},
    {"int8:window", "window needs a whole number: window=128"},
    {"int8:window=", "window=: " COUNT},
    {"int8:window=4abc", "window=4abc: " COUNT},
    {"int8:sinks=0", "sinks=0: " COUNT},
    {"int8:flush=-1", "flush=-1: " COUNT},
    {"int8:flush=1e3", "flush=1e3: " COUNT},
    {"int8:flush=99999999999999999999", "flush=99999999999999999999: " COUNT},
    {"int8:outliers", "outliers=: expected a percentage above 0 and below 100, as outliers=1"},
    {"int8:outliers=100", "outliers=100: expected a percentage above 0 and below 100, as "
                          "outliers=1"},
    {"int8:outliers=1%", "outliers=1%: expected a percentage above 0 and below 100, as outliers=1"},
    {"int8:static", "static=: expected static=N (ranges from the first N tokens) or static=seed:K "
                    "(from K other seeds)"},
    {"int8:static=seed", "static=seed: expected static=N (ranges from the first N tokens) or "
                         "static=seed:K (from K other seeds)"},
    {"int8:static=seed:", "static=seed:: expected static=N (ranges from the first N tokens) or "
                          "static=seed:K (from K other seeds)"},
    {"int8:scale=f61", "unknown scale \"f61\"; scales: f32, f16, bf16, e8m0, e4m3"},
    {"int8:scale=bf61", "unknown scale \"bf61\", did you mean \"bf16\"? scales: f32, f16, bf16, "
                        "e8m0, e4m3"},
    {"int8:scale", "unknown scale \"\"; scales: f32, f16, bf16, e8m0, e4m3"},
    {"int8:percentile", "percentile needs a value: percentile=99.9"},
    {"int8:percentile=49", "percentile=49: expected a number from 50 to 100"},
    {"int8:percentile=nan", "percentile=nan: expected a number from 50 to 100"},
    {"int8:smooth=2", "smooth=2: expected a number from 0 to 1"},
    {"int8:smooth=0", "smooth=0: expected a number above 0"},
    {"int8:smooth+signs", "smooth takes no +signs, only hadamard does"},
    {"int8:hadamard=48", "hadamard=48: expected a power of two"},
    {"int8:hadamard=2.5", "hadamard=2.5: expected a power of two"},
    {"int8:hadamard=1", "hadamard=1: expected a number from 2 to 65536"},
    {"int8:hadamard=64+sings", "hadamard=64+sings: expected a number from 2 to 65536"},
    {"f16:zero", "zero does not go with f16, which has no scale"},
    {"f32:mse", "mse does not go with f32, which has no scale"},
    {"q4_0:zero", "zero does not go with q4_0, which fixes its own range and scale"},
};

static void check_good(void)
{
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        const char *const expected = good[i].canonical ? good[i].canonical : good[i].text;
        kv_quantizer q = {0}, again = {0};
        kv_error err = {0};
        char *text = NULL, *same = NULL;
        CHECK(kv_quantizer_parse(&q, good[i].text, true, &err) == KV_OK, "%s", err.message);
        CHECK(kv_quantizer_text(&text, &q, &err) == KV_OK, "%s", err.message);
        CHECK_TEXT(text, expected);
        CHECK(kv_quantizer_parse(&again, text, true, &err) == KV_OK, "%s", err.message);
        CHECK(kv_quantizer_text(&same, &again, &err) == KV_OK, "%s", err.message);
        CHECK_TEXT(same, text);
        kv_free(text), kv_free(same);
    }
}

/* All formats, alone and with all tiles they take, and all options alone. */
static void check_tables(void)
{
    for (size_t i = 0; kv_format_at(i); i++) {
        kv_quantizer q = {0};
        kv_error err = {0};
        CHECK(kv_quantizer_parse(&q, kv_format_at(i)->name, false, &err) == KV_OK, "%s",
              err.message);
        CHECK(q.format == (kv_format_id)i && q.tile == KV_TILE_TENSOR, "%s", kv_format_at(i)->name);
    }
    for (size_t i = 0; i < KV_TRANSFORM_COUNT + KV_RANGE_COUNT; i++) {
        bool const is_range = i >= KV_TRANSFORM_COUNT;
        const kv_stage_row *const row =
            is_range ? kv_range_at(i - KV_TRANSFORM_COUNT) : kv_transform_at(i);
        if (is_range && i == KV_TRANSFORM_COUNT) continue; /* extremes, the default, has no word */
        char text[64];
        snprintf(text, sizeof text, "int4/token:%s%s", row->name,
                 row->value == KV_VALUE_REQUIRED ? "=64" : "");
        kv_quantizer q = {0};
        kv_error err = {0};
        CHECK(kv_quantizer_parse(&q, text, false, &err) == KV_OK, "%s", err.message);
    }
    CHECK(true, "tables");
}

static void check_bad(void)
{
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        kv_quantizer q = {.window = 77};
        kv_error err = {0};
        char expected[1024];
        snprintf(expected, sizeof expected, "\"%s\": %s", bad[i].text, bad[i].message);
        CHECK(kv_quantizer_parse(&q, bad[i].text, true, &err) == KV_EREQUEST, "%s", bad[i].text);
        CHECK(q.window == 77, "%s: the output changed", bad[i].text);
        size_t const length = strlen(expected);
        if (expected[length - 2] == ',' && strlen(err.message) > length) err.message[length] = '\0';
        CHECK_TEXT(err.message, expected);
    }
    kv_quantizer q;
    kv_error err = {0};
    CHECK(kv_quantizer_parse(&q, "int8/token:pre-rope", false, &err) == KV_EREQUEST, "a value");
    CHECK_TEXT(err.message,
               "\"int8/token:pre-rope\": pre-rope is for keys, values are not rotated");
    char longer[400];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    err = (kv_error){0};
    CHECK(kv_quantizer_parse(&q, longer, true, &err) == KV_EREQUEST, "too long");
    CHECK_TEXT(err.message, "a quantizer's text is at most 255 bytes long, found 399");
}

static void check_numbers(void)
{
    static const char *const no_int[] = {
        "", "-", "007", "1.0", "1e3", "4abc", " 4", "4 ", "0x10", "9223372036854775808", "nan"};
    static const char *const no_real[] = {"",    "-",     ".",     "e3", "1e", "1e+", "nan",
                                          "inf", "0x1p3", "1e999", "1 ", " 1", "1,5", "4abc"};
    int64_t n = 0;
    double x = 0;
    for (size_t i = 0; i < sizeof no_int / sizeof no_int[0]; i++)
        CHECK(!kv_parse_int(no_int[i], &n), "\"%s\" is no integer", no_int[i]);
    for (size_t i = 0; i < sizeof no_real / sizeof no_real[0]; i++)
        CHECK(!kv_parse_real(no_real[i], &x), "\"%s\" is no number", no_real[i]);
    CHECK(kv_parse_int("-9223372036854775808", &n) && n == INT64_MIN, "the smallest");
    CHECK(kv_parse_int("9223372036854775807", &n) && n == INT64_MAX, "the largest");
    CHECK(kv_parse_int("0", &n) && n == 0, "zero");
    CHECK(kv_parse_real("-.5e-3", &x) && x == -.5e-3, "%g", x);
    CHECK(kv_parse_real("5.", &x) && x == 5, "%g", x);
    static const double reals[] = {0, -0.0, 1, 0.1, 1.0 / 3, 1e300, 5e-324, -123456789.123456789};
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++) {
        char text[KV_REAL_TEXT];
        CHECK(kv_parse_real(kv_real_text(text, reals[i]), &x) && x == reals[i], "%s", text);
    }
}

static void check_names(void)
{
    static const char *const names[] = {"tokens", "head_dim", "outliers.scale"};
    const char *const none = kv_closest_name("zzzzzz", names, 3);
    CHECK(!none, "nothing is close");
    CHECK(!kv_closest_name("", names, 3) && !kv_closest_name("a", names, 3), "too short");
    const char *const close = kv_closest_name("hed_dmi", names, 3);
    CHECK_TEXT(close ? close : "", "head_dim");
}

static void check_allocation_failures(void)
{
    kv_quantizer q = {0};
    CHECK(kv_quantizer_parse(&q, "int2/32x1:hadamard=64:outliers=1:zero:scale=f16:flush=128", true,
                             NULL) == KV_OK,
          "a long one");
    kv_status status = KV_ENOMEM;
    long k = 0;
    for (; status == KV_ENOMEM; k++) {
        char *text = NULL;
        kv_fail_allocation(k);
        status = kv_quantizer_text(&text, &q, NULL);
        kv_fail_allocation(-1);
        CHECK((status == KV_OK) == (text != NULL), "output only on success");
        kv_free(text);
    }
    CHECK(k > 1, "%ld allocations", k);
}

int main(void)
{
    check_good();
    check_tables();
    check_bad();
    check_numbers();
    check_names();
    check_allocation_failures();
    return check_done();
}
