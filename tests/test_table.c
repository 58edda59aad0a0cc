/* Tables: what is shown of a record, to the letter, in every format. */
#include <stdlib.h>

#include "kernels/memory.h"
#include "results/table.h"
#include "tests/check.h"

#define MUST(call)     CHECK((call) == KV_OK, "%s", err.message)
#define DIMENSION(...) MUST(kv_record_add_dimension(r, &(kv_dimension_spec){__VA_ARGS__}, &err))
#define ARRAY(...)     MUST(kv_record_add_array(r, &(kv_array_spec){__VA_ARGS__}, &err))

static const char *const schemes[] = {"K+V per-tensor INT8", "K per-channel, V per-token"};
static const char *const keys[] = {"int8/tensor", "int8/channel"};
static const char *const values[] = {"int8/tensor", "int8/token"};
static const char *const classes[] = {"all", "needle"};
static const double counts[] = {0, 1, 2, 3};
static const double tokens[] = {1024, 4096};

/* One seed: the published table's two rows. */
static kv_record *published(void)
{
    static const double out_err[] = {0.104926, 0.0192113}, logit[] = {0.862169, 0.0990441};
    static const double ratio[] = {129.65017};
    kv_error err = {0};
    kv_record *r = NULL;
    MUST(kv_record_create(&r, &err));
    DIMENSION(.name = "scheme", .length = 2, .texts = schemes);
    DIMENSION(.name = "heads.tokens", .length = 1, .numbers = tokens + 1);
    DIMENSION(.name = "layer", .length = 1, .numbers = counts);
    DIMENSION(.name = "head", .length = 1, .numbers = counts);
    DIMENSION(.name = "seed", .length = 1, .numbers = counts);
    DIMENSION(.name = "class", .length = 1, .texts = classes);
    ARRAY(.name = "key_scheme", .dimensions = {"scheme"}, .texts = keys);
    ARRAY(.name = "value_scheme", .dimensions = {"scheme"}, .texts = values);
    ARRAY(.name = "out_err", .units = "1", .long_name = "relative output error",
          .dimensions = {"scheme", "heads.tokens", "layer", "seed", "head", "class"},
          .numbers = out_err);
    ARRAY(.name = "logit_err_max", .units = "nat", .combine = "max", .numbers = logit,
          .dimensions = {"scheme", "heads.tokens", "layer", "seed", "head", "class"});
    ARRAY(.name = "key_absmax_over_median", .units = "1", .numbers = ratio,
          .dimensions = {"heads.tokens", "layer", "seed", "head"});
    MUST(kv_record_set_text(r, "title", "Why keys break first", &err));
    MUST(kv_record_set_number(r, "complete", 1, &err));
    MUST(kv_record_set_text(r, "config", "a: 1\nb: 2\n", &err));
    return r;
}

/* 2 schemes x 2 tokens x 2 layers x 3 seeds x 2 heads x 2 classes; `m` is mean, `x` is max. */
static kv_record *swept(void)
{
    enum { COUNT = 2 * 2 * 2 * 3 * 2 * 2 };
    double m[COUNT];
    for (int i = 0; i < COUNT; i++) {
        int const class = i % 2, head = i / 2 % 2, seed = i / 4 % 3, layer = i / 12 % 2;
        int const t = i / 24 % 2, scheme = i / 48;
        m[i] = (scheme + 1) * (t + 1) * (0.1 + 0.01 * (seed - 1)) + 0.02 * head - 0.01 +
               0.04 * layer - 0.02 + 1000 * class;
        if (scheme == 1 && t == 1) m[i] = (double)NAN;
    }
    kv_error err = {0};
    kv_record *r = NULL;
    MUST(kv_record_create(&r, &err));
    DIMENSION(.name = "heads.tokens", .length = 2, .numbers = tokens);
    DIMENSION(.name = "scheme", .length = 2, .texts = schemes);
    DIMENSION(.name = "layer", .length = 2, .numbers = counts);
    DIMENSION(.name = "seed", .length = 3, .numbers = counts);
    DIMENSION(.name = "head", .length = 2, .numbers = counts);
    DIMENSION(.name = "class", .length = 2, .texts = classes);
    ARRAY(.name = "m", .units = "1", .numbers = m,
          .dimensions = {"scheme", "heads.tokens", "layer", "seed", "head", "class"});
    ARRAY(.name = "x", .units = "nat", .combine = "max", .numbers = m,
          .dimensions = {"scheme", "heads.tokens", "layer", "seed", "head", "class"});
    return r;
}

static void check_table(const kv_record *r, const kv_table_request *request, const char *expected)
{
    kv_error err = {0};
    char *text = NULL;
    size_t size = 0;
    FILE *const f = open_memstream(&text, &size);
    kv_status const status = kv_table_write(f, r, request, &err);
    fclose(f);
    CHECK_TEXT(status == KV_OK ? text : err.message, expected);
    free(text);
}

static void formats(void)
{
    kv_record *r = published();
    static const char *const two[] = {"out_err", "logit_err_max"};
    check_table(
        r, &(kv_table_request){0},
        "scheme                      out_err  logit_err_max [nat]  key_absmax_over_median\n"
        "K+V per-tensor INT8          0.1049                0.862                  129.65\n"
        "K per-channel, V per-token   0.0192                0.099                  129.65\n");
    check_table(r, &(kv_table_request){.n_metrics = 1, .metrics = two, .format = KV_TABLE_MARKDOWN},
                "| scheme                     | out_err |\n"
                "|:---|---:|\n"
                "| K+V per-tensor INT8        |  0.1049 |\n"
                "| K per-channel, V per-token |  0.0192 |\n");
    check_table(
        r, &(kv_table_request){.n_metrics = 2, .metrics = two, .format = KV_TABLE_CSV},
        "scheme,key,value,heads.tokens,out_err,out_err_lo,out_err_hi,"
        "logit_err_max,logit_err_max_lo,logit_err_max_hi\n"
        "K+V per-tensor INT8,int8/tensor,int8/tensor,4096,0.104926,,,0.862169,,\n"
        "\"K per-channel, V per-token\",int8/channel,int8/token,4096,0.0192113,,,0.0990441,,\n");
    check_table(r,
                &(kv_table_request){.n_metrics = 1,
                                    .metrics = two,
                                    .format = KV_TABLE_JSON,
                                    .n_where = 1,
                                    .where = (const char *[]){"scheme=K+V per-tensor INT8"}},
                "[\n {\"scheme\": \"K+V per-tensor INT8\", \"key\": \"int8/tensor\", "
                "\"value\": \"int8/tensor\", \"heads.tokens\": 4096, \"out_err\": 0.104926, "
                "\"out_err_lo\": null, \"out_err_hi\": null}\n]\n");
    kv_record_free(r);
}

/* Over seeds 0.09 0.10 0.11 (mean over layers and heads adds 0): the interval's half width is
 * t(0.975, 2) * 0.01 / sqrt 3 = 4.303 * 0.005774 = 0.02484. */
static void intervals(void)
{
    kv_record *r = swept();
    static const char *const x[] = {"x"}, *const m[] = {"m"};
    check_table(r, &(kv_table_request){0},
                "scheme                      heads.tokens              m        x [nat]\n"
                "K+V per-tensor INT8                 1024  0.100 ± 0.025  0.130 ± 0.025\n"
                "K+V per-tensor INT8                 4096  0.200 ± 0.050  0.230 ± 0.050\n"
                "K per-channel, V per-token          1024  0.200 ± 0.050  0.230 ± 0.050\n"
                "K per-channel, V per-token          4096              -              -\n");
    check_table(r, &(kv_table_request){.n_metrics = 1, .metrics = x, .cols = "heads.tokens"},
                "scheme                      heads.tokens=1024  heads.tokens=4096\n"
                "K+V per-tensor INT8             0.130 ± 0.025      0.230 ± 0.050\n"
                "K per-channel, V per-token      0.230 ± 0.050                  -\n");
    check_table(
        r,
        &(kv_table_request){
            .n_metrics = 1,
            .metrics = m,
            .rows = "layer",
            .cols = "head",
            .n_where = 3,
            .where = (const char *[]){"heads.tokens=1024", "scheme=K+V per-tensor INT8", "seed=1"}},
        "layer  scheme               head=0  head=1\n"
        "    0  K+V per-tensor INT8  0.0700  0.0900\n"
        "    1  K+V per-tensor INT8  0.1100  0.1300\n");
    check_table(r,
                &(kv_table_request){.n_metrics = 1,
                                    .metrics = m,
                                    .cols = "class",
                                    .n_where = 2,
                                    .where = (const char *[]){"layer=1", "heads.tokens=1.024e3"}},
                "scheme                          class=all      class=needle\n"
                "K+V per-tensor INT8         0.120 ± 0.025  1000.120 ± 0.025\n"
                "K per-channel, V per-token  0.220 ± 0.050  1000.220 ± 0.050\n");
    kv_record_free(r);
}

/* Two keys by two values over two lengths, not in the matrix' order; `n_schemes` 3 lacks a pair. */
static kv_record *paired(int n_schemes)
{
    static const char *const all[] = {"a | y", "b | x", "a | x", "b | y"};
    static const char *const key[] = {"a", "b", "a", "b"}, *const value[] = {"y", "x", "x", "y"};
    static const double m[] = {12, 120, 21, 210, 11, 110, 22, 220};
    kv_error err = {0};
    kv_record *r = NULL;
    MUST(kv_record_create(&r, &err));
    DIMENSION(.name = "heads.tokens", .length = 2, .numbers = tokens);
    DIMENSION(.name = "scheme", .length = n_schemes, .texts = all);
    ARRAY(.name = "key_scheme", .dimensions = {"scheme"}, .texts = key);
    ARRAY(.name = "value_scheme", .dimensions = {"scheme"}, .texts = value);
    ARRAY(.name = "m", .units = "byte", .numbers = m, .dimensions = {"scheme", "heads.tokens"});
    return r;
}

static void matrices(void)
{
    static const char *const twice[] = {"m", "m"}, *const short_ones[] = {"heads.tokens=1024"};
    kv_record *r = paired(4);
    const char *const matrix = "key (columns: value)   y   x\n"
                               "a                     12  11\n"
                               "b                     22  21\n";
    kv_table_request request = {
        .rows = "key", .cols = "value", .n_where = 1, .where = short_ones, .n_metrics = 0};
    check_table(r, &request, matrix);
    request.cols = NULL;
    check_table(r, &request, matrix);
    request.rows = NULL, request.cols = "value";
    check_table(r, &request, matrix);
    request.cols = "key", request.format = KV_TABLE_MARKDOWN;
    check_table(r, &request,
                "| value (columns: key) |  a |  b |\n"
                "|:---|---:|---:|\n"
                "| y                    | 12 | 22 |\n"
                "| x                    | 11 | 21 |\n");
    request.format = KV_TABLE_CSV, request.rows = "value";
    check_table(r, &request,
                "scheme,key,value,heads.tokens,m,m_lo,m_hi\n"
                "a | y,a,y,1024,12,,\n"
                "b | x,b,x,1024,21,,\n"
                "a | x,a,x,1024,11,,\n"
                "b | y,b,y,1024,22,,\n");
    check_table(r, &(kv_table_request){.rows = "heads.tokens", .cols = "value"},
                "heads.tokens  key (columns: value)    y    x\n"
                "        1024  a                      12   11\n"
                "        4096  a                     120  110\n"
                "        1024  b                      22   21\n"
                "        4096  b                     220  210\n");
    check_table(r, &(kv_table_request){.n_metrics = 2, .metrics = twice, .cols = "heads.tokens"},
                "scheme  heads.tokens=1024  heads.tokens=4096\n"
                "a | y                  12                120\n"
                "b | x                  21                210\n"
                "a | x                  11                110\n"
                "b | y                  22                220\n");
    check_table(r, &(kv_table_request){.rows = "key", .cols = "heads.tokens"},
                "rows by key go with columns by value, not by heads.tokens");
    check_table(r, &(kv_table_request){.rows = "value", .cols = "value"},
                "rows by value go with columns by key, not by value");
    kv_record_free(r);
    r = paired(3);
    check_table(r, &(kv_table_request){.rows = "key"},
                "rows and columns by key and value need a scheme for every pair of the two");
    kv_record_free(r);
    r = swept();
    check_table(r, &(kv_table_request){.rows = "key"},
                "no dimension \"key\"; there are: heads.tokens, scheme, layer, seed, head, class");
    kv_record_free(r);
}

static void refusals(void)
{
    static const char *const no[] = {"out_er"};
    const struct {
        kv_table_request request;
        const char *message;
    } rows[] = {
        {{.n_metrics = 1, .metrics = no},
         "no metric \"out_er\"; there are: out_err, logit_err_max, key_absmax_over_median"},
        {{.rows = "sede"},
         "no dimension \"sede\"; there are: scheme, heads.tokens, layer, head, seed, class"},
        {{.n_where = 1, .where = (const char *[]){"heads.tokens=5"}},
         "heads.tokens has no value \"5\"; there are: 4096"},
        {{.n_where = 1, .where = (const char *[]){"tokens=5"}},
         "no dimension \"tokens\"; there are: scheme, heads.tokens, layer, head, seed, class"},
        {{.n_where = 1, .where = (const char *[]){"5"}}, "\"5\" is not dimension=value"},
    };
    kv_record *r = published();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_table(r, &rows[i].request, rows[i].message);
    kv_error err = {0};
    kv_table_format format;
    MUST(kv_table_find_format(&format, "markdown", &err));
    CHECK(format == KV_TABLE_MARKDOWN, "%d", (int)format);
    CHECK(kv_table_find_format(&format, "xml", &err) == KV_EREQUEST, "xml");
    CHECK_TEXT(err.message, "format \"xml\": there are table, csv, json and markdown");
    kv_record_free(r);
}

static void summary(void)
{
    kv_error err = {0};
    kv_record *r = published();
    char *text = NULL;
    size_t size = 0;
    FILE *const f = open_memstream(&text, &size);
    MUST(kv_table_write_summary(f, r, &err));
    fclose(f);
    CHECK_TEXT(text,
               "Why keys break first\n"
               "complete\n"
               "\n"
               "dimensions\n"
               "  scheme                   2: K+V per-tensor INT8, K per-channel, V per-token\n"
               "  heads.tokens             1: 4096\n"
               "  layer                    1: 0\n"
               "  head                     1: 0\n"
               "  seed                     1: 0\n"
               "  class                    1: all\n"
               "\n"
               "metrics\n"
               "  out_err                  [1] relative output error "
               "(scheme, heads.tokens, layer, seed, head, class)\n"
               "  logit_err_max            [nat] (scheme, heads.tokens, layer, seed, head, class)\n"
               "  key_absmax_over_median   [1] (heads.tokens, layer, seed, head)\n"
               "\n"
               "provenance\n"
               "  config                   (2 lines)\n");
    free(text);
    kv_record_free(r);
}

static void out_of_memory(void)
{
    kv_record *r = paired(4);
    for (long k = 0, more = 1; more; k++) {
        kv_error err = {0};
        FILE *const f = fopen("/dev/null", "w");
        kv_fail_allocation(k);
        kv_status const status = kv_table_write(f, r, &(kv_table_request){.cols = "value"}, &err);
        more = status != KV_OK;
        CHECK(status == KV_OK || status == KV_ENOMEM, "allocation %ld: %s", k, err.message);
        fclose(f);
    }
    kv_fail_allocation(-1);
    kv_record_free(r);
}

int main(void)
{
    formats();
    intervals();
    matrices();
    refusals();
    summary();
    out_of_memory();
    return check_done();
}
