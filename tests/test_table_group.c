/* Tables of arrays that belong together by name: to the letter, in every format. */
#include <stdlib.h>

#include "kernels/memory.h"
#include "results/table.h"
#include "tests/check.h"

#define MUST(call)     CHECK((call) == KV_OK, "%s", err.message)
#define DIMENSION(...) MUST(kv_record_add_dimension(r, &(kv_dimension_spec){__VA_ARGS__}, &err))
#define ARRAY(...)     MUST(kv_record_add_array(r, &(kv_array_spec){__VA_ARGS__}, &err))

static kv_record *frontier(void)
{
    static const char *const choices[] = {"f16 | f16", "int8/channel, | q\"4"};
    static const double layers[] = {0, 7}, points[] = {0, 1, 2}, x[] = {0, 0, 0, 0, 0, 0, 0, 0};
    static const double bytes[] = {4096, 0x1p53, 10}, error[] = {1.0 / 3, 1e-9, 0};
    static const double choice[] = {0, 1, 1, 1, 2, (double)NAN};
    static const char *const names[] = {"a", "", "c"};
    kv_error err = {0};
    kv_record *r = NULL;
    MUST(kv_record_create(&r, &err));
    DIMENSION(.name = "layer", .length = 2, .numbers = layers);
    DIMENSION(.name = "point", .length = 3, .numbers = points);
    DIMENSION(.name = "choice", .length = 2, .texts = choices);
    ARRAY(.name = "table_error", .dimensions = {"layer", "choice", "point"});
    ARRAY(.name = "table_bytes", .dimensions = {"layer", "choice", "point"});
    ARRAY(.name = "frontier_bytes", .units = "byte", .dimensions = {"point"}, .numbers = bytes);
    ARRAY(.name = "frontier_error", .units = "1", .dimensions = {"point"}, .numbers = error);
    ARRAY(.name = "frontier_of_layer", .dimensions = {"layer"}, .numbers = x);
    ARRAY(.name = "frontier_choice", .dimensions = {"point", "layer"}, .numbers = choice,
          .labels = "choice");
    ARRAY(.name = "frontier_name", .dimensions = {"point"}, .texts = names);
    ARRAY(.name = "lonely_one", .dimensions = {"point"}, .numbers = x);
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

static const char *const frontier_name[] = {"frontier", "frontier_error"};

static void formats(void)
{
    kv_record *r = frontier();
    kv_table_request request = {.n_metrics = 1, .metrics = frontier_name};
    check_table(r, &request,
                "point      bytes [byte]    error  layer_0              layer_7              name\n"
                "    0              4096   0.3333  f16 | f16            int8/channel, | q\"4  a\n"
                "    1  9007199254740992  1.0e-09  int8/channel, | q\"4  int8/channel, | q\"4\n"
                "    2                10   0.0000  -                    -                    c\n");
    request.format = KV_TABLE_CSV;
    check_table(r, &request,
                "point,bytes,error,layer_0,layer_7,name\n"
                "0,4096,0.3333333333333333,f16 | f16,\"int8/channel, | q\"\"4\",a\n"
                "1,9007199254740992,1e-09,\"int8/channel, | q\"\"4\",\"int8/channel, | q\"\"4\",\n"
                "2,10,0,,,c\n");
    request.n_where = 2, request.where = (const char *[]){"layer=7", "point=1"};
    check_table(r, &request,
                "point,bytes,error,layer_7,name\n"
                "1,9007199254740992,1e-09,\"int8/channel, | q\"\"4\",\n");
    request.format = KV_TABLE_JSON;
    check_table(r, &request,
                "[\n {\"point\": 1, \"bytes\": 9007199254740992, \"error\": 1e-09, "
                "\"layer_7\": \"int8/channel, | q\\\"4\", \"name\": \"\"}\n]\n");
    request.format = KV_TABLE_MARKDOWN;
    check_table(r, &request,
                "| point |     bytes [byte] |     error | layer_7             | name |\n"
                "|---:|---:|---:|:---|:---|\n"
                "|     1 | 9007199254740992 | 1.000e-09 | int8/channel, \\| q\"4 |      |\n");
    kv_error err = {0};
    ARRAY(.name = "frontier_more", .dimensions = {"point", "layer"});
    request.format = KV_TABLE_CSV, request.n_where = 1;
    check_table(r, &request,
                "point,bytes,error,choice_layer_7,name,more_layer_7\n"
                "0,4096,0.3333333333333333,\"int8/channel, | q\"\"4\",a,\n"
                "1,9007199254740992,1e-09,\"int8/channel, | q\"\"4\",,\n"
                "2,10,0,,c,\n");
    kv_record_free(r);
}

static void refusals(void)
{
    static const char *const lonely[] = {"lonely"}, *const table[] = {"table"};
    const struct {
        kv_table_request request;
        const char *message;
    } rows[] = {
        {{.n_metrics = 2, .metrics = frontier_name},
         "frontier and frontier_error are tables of their own; show one at a time"},
        {{.n_metrics = 1, .metrics = frontier_name, .rows = "layer"},
         "frontier is a table as it is, without rows and cols"},
        {{.n_metrics = 1,
          .metrics = frontier_name,
          .n_where = 1,
          .where = (const char *[]){"choice=f16 | f16"}},
         "frontier does not depend on choice"},
        {{.n_metrics = 1,
          .metrics = frontier_name,
          .n_where = 1,
          .where = (const char *[]){"point=9"}},
         "point has no value \"9\"; there are: 0, 1, 2"},
        {{.n_metrics = 1, .metrics = lonely}, NULL},
        {{.n_metrics = 1, .metrics = table}, NULL},
    };
    kv_record *r = frontier();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char no_metric[400];
        snprintf(no_metric, sizeof no_metric,
                 "no metric \"%s\"; there are: table_error, table_bytes, frontier_bytes, "
                 "frontier_error, frontier_of_layer, frontier_choice, lonely_one",
                 rows[i].request.metrics[0]);
        check_table(r, &rows[i].request, rows[i].message ? rows[i].message : no_metric);
    }
    kv_record_free(r);
}

static void out_of_memory(void)
{
    kv_record *r = frontier();
    for (long k = 0, more = 1; more; k++) {
        kv_error err = {0};
        char *text = NULL;
        size_t size = 0;
        FILE *const f = open_memstream(&text, &size);
        kv_fail_allocation(k);
        kv_status const status = kv_table_write(
            f, r, &(kv_table_request){.n_metrics = 1, .metrics = frontier_name}, &err);
        kv_fail_allocation(-1);
        more = status != KV_OK;
        CHECK(status == KV_OK || status == KV_ENOMEM, "allocation %ld: %s", k, err.message);
        fclose(f);
        free(text);
    }
    kv_record_free(r);
}

int main(void)
{
    formats();
    refusals();
    out_of_memory();
    return check_done();
}
