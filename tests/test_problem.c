/* Problems: tables from files (good, bad, damaged), restrictions, integers, records. */
#include <hdf5.h>
#include <inttypes.h>
#include <stdlib.h>

#include "kernels/memory.h"
#include "kernels/text.h"
#include "tests/check.h"
#include "tuner/problem.h"

#define MUST(call) CHECK((call) == KV_OK, "%s", err.message)

static void write_file(const char *path, const char *bytes, size_t size)
{
    FILE *const f = fopen(path, "wb");
    CHECK(f && fwrite(bytes, 1, size, f) == size && fclose(f) == 0, "%s", path);
}

static kv_problem *load_text(const char *text, kv_error *err)
{
    kv_problem *p = NULL;
    *err = (kv_error){0};
    write_file("t.csv", text, strlen(text));
    return kv_problem_load(&p, "t.csv", err) == KV_OK ? p : NULL;
}

/* ---- what is wrong ---- */

#define PAIRS     "layer,key,value,error,bytes\n"
#define SEPARABLE "layer,tensor,scheme,error,bytes\n"

static void refusals(void)
{
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"", "t.csv: is empty"},
        {"\n\n", "t.csv: is empty"},
        {PAIRS, "t.csv: the table has no rows"},
        {"a\n1\n",
         "t.csv: columns layer,key,value,error,bytes or layer,tensor,scheme,error,bytes are "
         "needed, separated by commas"},
        {"layer;key;value;error;bytes\n1;a;b;0;1\n",
         "t.csv: columns layer,key,value,error,bytes or layer,tensor,scheme,error,bytes are "
         "needed, separated by commas"},
        {"a,b\n1,2\n",
         "t.csv: columns layer,key,value,error,bytes or layer,tensor,scheme,error,bytes are "
         "needed"},
        {"layr,key,value,eror,bytes\n", "t.csv: column layer is missing; is it \"layr\"?\n"
                                        "t.csv: column error is missing; is it \"eror\"?"},
        {"layer,key,error,bytes\n", "t.csv: column value is missing"},
        {"layer,tensor,shceme,error,bytes\n", "t.csv: column scheme is missing; is it \"shceme\"?"},
        {"layer,key,value,scheme,error,bytes\n1,a,b,c,0,1\n",
         "t.csv: columns key and scheme: a table has key,value or tensor,scheme"},
        {"layer,key,value,error,bytes,error\n0,a,b,0,1,0\n",
         "t.csv: column \"error\" is there twice"},
        {PAIRS "0,a,b,0\n1,a,b,0,1,2\n", "t.csv:2: 4 fields, but the header has 5\n"
                                         "t.csv:3: 6 fields, but the header has 5"},
        {PAIRS "4abc,a,b,-1,2.5\n-1,,,nan,-3\n1.0,a,b,inf,1e3\n,a,b,,\n",
         "t.csv:2: layer: expected a whole number, 0 or more, found \"4abc\"\n"
         "t.csv:2: error: expected a finite number, 0 or more, found \"-1\"\n"
         "t.csv:2: bytes: expected a whole number, 0 or more, found \"2.5\"\n"
         "t.csv:3: layer: expected a whole number, 0 or more, found \"-1\"\n"
         "t.csv:3: key: is empty\n"
         "t.csv:3: value: is empty\n"
         "t.csv:3: error: expected a finite number, 0 or more, found \"nan\"\n"
         "t.csv:3: bytes: expected a whole number, 0 or more, found \"-3\"\n"
         "t.csv:4: layer: expected a whole number, 0 or more, found \"1.0\"\n"
         "t.csv:4: error: expected a finite number, 0 or more, found \"inf\"\n"
         "t.csv:4: bytes: expected a whole number, 0 or more, found \"1e3\"\n"
         "t.csv:5: layer: expected a whole number, 0 or more, found \"\"\n"
         "t.csv:5: error: expected a finite number, 0 or more, found \"\"\n"
         "t.csv:5: bytes: expected a whole number, 0 or more, found \"\""},
        {PAIRS "0,a,b,1e999,9007199254740993\n",
         "t.csv:2: error: expected a finite number, 0 or more, found \"1e999\"\n"
         "t.csv:2: bytes: at most 9007199254740992 is possible, found 9007199254740993"},
        {PAIRS "1000000000000001,a,b,0,1\n",
         "t.csv:2: layer: at most 1000000000000000 is possible, found 1000000000000001"},
        {PAIRS "0,a,b,0,1\n1,\xFF,b,0,1\n", "t.csv:3: is not text in UTF-8"},
        {PAIRS "0,\xED\xA0\x80,b,0,1\n", "t.csv:2: is not text in UTF-8"},
        {PAIRS "0,\xC3", "t.csv:2: is not text in UTF-8"},
        {SEPARABLE "0,kay,f16,0,1\n0,Value,,0,1\n",
         "t.csv:2: tensor: expected key or value, found \"kay\"\n"
         "t.csv:3: tensor: expected key or value, found \"Value\"\n"
         "t.csv:3: scheme: is empty"},
        {PAIRS "0,int8/token,b,1,2\n1,a,b,1,2\n\n0,int8/1xall,b,3,4\n0, int8/token ,b,5,6\n",
         "t.csv:5: layer 0: int8/token | b is given twice, first on line 2\n"
         "t.csv:6: layer 0: int8/token | b is given twice, first on line 5"},
        {SEPARABLE "3,key,a,1,2\n3,value,a,1,2\n3,key,a,1,2\n",
         "t.csv:4: layer 3: key a is given twice, first on line 2"},
        {SEPARABLE "3,key,a,1,2\n4,value,a,1,2\n", "t.csv: layer 3 has no row of tensor value\n"
                                                   "t.csv: layer 4 has no row of tensor key"},
        {PAIRS "0,\"a,b,1,2\n", "t.csv:2: the quote opened here is never closed"},
        {PAIRS "0,\"a\"x,b,1,2\n",
         "t.csv:2: text after a quoted field; a quote within one is written twice"},
        {PAIRS "0,a\"b,b,1,2\n", "t.csv:2: a quote within a field that does not begin with one"},
        {PAIRS "0,a,b,1,2\r0,a,c,1,2\n", "t.csv:2: a carriage return without a line feed"},
    };
    kv_error err;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kv_problem *const p = load_text(rows[i].text, &err);
        CHECK(!p && err.status == KV_EINPUT, "row %zu: status %d", i, (int)err.status);
        CHECK_TEXT(err.message, rows[i].message);
        kv_problem_free(p);
    }
    kv_problem *p = NULL;
    err = (kv_error){0};
    CHECK(kv_problem_load(&p, "nowhere.csv", &err) == KV_EINPUT, "%d", (int)err.status);
    CHECK_TEXT(err.message, "nowhere.csv: No such file or directory");
    err = (kv_error){0};
    write_file("t.csv", "layer\0,", 7);
    CHECK(kv_problem_load(&p, "t.csv", &err) == KV_EINPUT, "%d", (int)err.status);
    CHECK_TEXT(err.message, "t.csv:1: is not text in UTF-8");
}

/* More than can be shown: the first lines are. */
static void many_refusals(void)
{
    char text[8192] = PAIRS;
    char expected[8192] = "";
    kv_error err;
    for (int i = 0; i < 30; i++) {
        snprintf(text + strlen(text), 64, "%d,a,b,x,1\n", i);
        if (i < 20)
            snprintf(expected + strlen(expected), 100,
                     "t.csv:%d: error: expected a finite number, 0 or more, found \"x\"\n", i + 2);
    }
    strcat(text, "0,a\n"); /* found before the numbers, but stands last */
    strcat(expected, "and 11 more");
    kv_problem *const p = load_text(text, &err);
    CHECK(!p, "loaded");
    CHECK_TEXT(err.message, expected);
}

/* Told before the choices are made: the table of all would be large. */
static void many_choices(void)
{
    enum { N = 256 };
    kv_error err;
    kv_text text = {0};
    CHECK(kv_text_add(&text, &err, SEPARABLE) == KV_OK, "text");
    for (int i = 0; i < 2 * N; i++)
        CHECK(kv_text_add(&text, &err, "4,%s,s%d,0,1\n", i % 2 ? "key" : "value", i) == KV_OK,
              "row");
    CHECK(!load_text(text.data, &err), "loaded");
    CHECK_TEXT(err.message, "t.csv: layer 4: 65536 choices, at most 65535 are possible");
    text.length = 0;
    CHECK(kv_text_add(&text, &err, PAIRS) == KV_OK, "text");
    for (int i = 0; i < N * N; i++)
        CHECK(kv_text_add(&text, &err, "4,k%d,v%d,0,1\n", i / N, i % N) == KV_OK, "row");
    CHECK(!load_text(text.data, &err), "loaded");
    CHECK_TEXT(err.message, "t.csv: layer 4: 65536 choices, at most 65535 are possible");
    /* schemes that only one layer has: 20 times 25 choices, not 20 times 10000 */
    text.length = 0;
    CHECK(kv_text_add(&text, &err, SEPARABLE) == KV_OK, "text");
    for (int i = 0; i < 200; i++)
        CHECK(kv_text_add(&text, &err, "%d,%s,s%d,0,1\n", i / 10, i % 2 ? "key" : "value", i) ==
                  KV_OK,
              "row");
    kv_problem *const p = load_text(text.data, &err);
    CHECK(p && p->n_layers == 20, "%s", err.message);
    for (int64_t l = 0; p && l < p->n_layers; l++)
        CHECK(p->layers[l].n_choices == 25, "%" PRId64 " choices", p->layers[l].n_choices);
    kv_problem_free(p);
    kv_text_free(&text);
}

/* ---- what is right ---- */

static void separable(void)
{
    /* BOM, CRLF, other order, blanks, quotes, empty lines, no line end at the end, extra columns */
    static const char text[] = "\xEF\xBB\xBF"
                               "bytes, scheme ,error,note,tensor,layer\r\n"
                               "10,f16,0,\"a \"\"b\"\",\r\nc\",key,7\r\n"
                               "\r\n"
                               "4, int4/1xall:zero ,1e-3,,key,7\r\n"
                               "8,\"my, scheme\",.5,x,value,7\r\n"
                               "9,f16,0,,value,2\r\n"
                               "11,f16,-0,,key,2\r\n"
                               "6,my key,2.25,,key,2\r\n"
                               "7,f16,0,,value,7";
    kv_error err;
    kv_problem *const p = load_text(text, &err);
    CHECK(p, "%s", err.message);
    if (!p) return;
    CHECK(p->is_separable && p->n_layers == 2 && p->layers[0].number == 2 &&
              p->layers[1].number == 7,
          "layers");
    CHECK(p->keys.n == 3 && p->values.n == 2, "%" PRId64 " %" PRId64, p->keys.n, p->values.n);
    CHECK_TEXT(p->keys.schemes[0], "f16");
    CHECK_TEXT(p->keys.schemes[1], "int4/token:zero");
    CHECK_TEXT(p->keys.schemes[2], "my key");
    CHECK_TEXT(p->values.schemes[0], "my, scheme");
    CHECK(p->layers[0].n_choices == 2 && p->layers[1].n_choices == 4, "choices");
    int64_t const at = kv_problem_find(p, 1, "int4/1xall:zero", "my, scheme");
    CHECK(at == 2, "%" PRId64, at);
    CHECK(p->layers[1].choices[at].bytes == 12 && p->layers[1].choices[at].error == 0.501, "sum");
    CHECK(kv_problem_find(p, 0, "int4/token:zero", "f16") == -1, "layer 2 has none");
    CHECK(kv_problem_find(p, 0, "f16", "nothing") == -1, "no such value");
    CHECK(isnan(p->keys.error[1]) && p->keys.bytes[1] == -1, "holes");
    CHECK(!signbit(p->layers[0].choices[0].error), "-0");
    CHECK(p->n_extra == 1 && p->n_rows == 7, "extra");
    CHECK_TEXT(p->extra_names[0], "note");
    CHECK_TEXT(p->extra_values[0], "a \"b\",\r\nc");
    CHECK_TEXT(p->extra_values[1], "");
    CHECK(p->row_layer[2] == 7 && p->row_key[2] == -1 && p->row_value[2] == 0, "row 2");
    CHECK(kv_problem_bytes(p, (int32_t[]){0, 2}) == 32, "bytes");
    CHECK(kv_problem_error(p, (int32_t[]){1, 2}) == 2.25 + 0.501, "error");
    CHECK(kv_problem_bytes(p, (int32_t[]){0, -1}) == -1, "no choice");
    CHECK(isnan(kv_problem_error(p, (int32_t[]){0, -1})), "no choice");

    kv_record *r = NULL;
    MUST(kv_record_create(&r, &err));
    MUST(kv_problem_record(r, p, &err));
    const kv_array *const error = kv_record_array(r, "table_error");
    CHECK(error && error->rank == 3 && error->count == 2 * 3 * 2, "table_error");
    CHECK(error->numbers[(1 * 3 + 1) * 2 + 0] == 0.501 && isnan(error->numbers[1 * 2]), "cells");
    CHECK(kv_record_array(r, "table_bytes")->numbers[(1 * 3 + 1) * 2] == 12, "bytes");
    CHECK(!kv_record_array(r, "table_source"), "errors that are given");
    CHECK_TEXT(kv_record_array(r, "row_note")->texts[2], "x");
    CHECK_TEXT(kv_record_array(r, "row_key")->texts[2], "");
    CHECK_TEXT(kv_record_array(r, "row_value")->texts[2], "my, scheme");
    kv_record_free(r);
    kv_problem_free(p);
}

static void pairs(void)
{
    static const char text[] = PAIRS "1,f16,f16,0,64\n0,b,f16,0.25,32\n0,f16,b,0.5,33\n";
    kv_error err;
    kv_problem *const p = load_text(text, &err);
    CHECK(p, "%s", err.message);
    if (!p) return;
    CHECK(!p->is_separable && !p->keys.error && p->n_layers == 2 && p->n_extra == 0, "layout");
    CHECK(p->layers[0].n_choices == 2 && p->layers[1].n_choices == 1, "choices");
    CHECK(p->layers[0].choices[0].bytes == 32 && p->layers[0].choices[1].error == 0.5, "order");
    CHECK(kv_problem_find(p, 0, "f16", "f16") == -1, "not in layer 0");
    CHECK(kv_problem_layer_at(p, 1) == 1 && kv_problem_layer_at(p, 5) == -1, "positions");
    kv_problem_free(p);
}

/* ---- HDF5 ---- */

static void add(hid_t file, const char *name, hid_t type, hsize_t n, const void *data)
{
    hid_t const space = H5Screate_simple(1, &n, NULL);
    hid_t const set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    CHECK(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0, "%s", name);
    H5Dclose(set), H5Sclose(space);
}

static void write_hdf5(hsize_t n_errors)
{
    static const int32_t layers[] = {0, 0, 1, 1};
    static const double bytes[] = {4, 6, 4, 7}, errors[] = {0.5, 0.25, 1e-300, (double)NAN};
    static const char *const schemes[] = {"f16", "int4/1xall", "f16", "x"};
    static const char tensors[4][8] = {"key", "value", "key", "value"};
    hid_t const file = H5Fcreate("t.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t const variable = H5Tcopy(H5T_C_S1), fixed = H5Tcopy(H5T_C_S1);
    H5Tset_size(variable, H5T_VARIABLE), H5Tset_size(fixed, 8);
    add(file, "layer", H5T_NATIVE_INT32, 4, layers);
    add(file, "bytes", H5T_NATIVE_DOUBLE, 4, bytes);
    add(file, "error", H5T_NATIVE_DOUBLE, n_errors, errors);
    add(file, "scheme", variable, 4, schemes);
    add(file, "tensor", fixed, 4, tensors);
    add(file, "short", H5T_NATIVE_DOUBLE, 2, bytes);
    add(file, "note", variable, 4, schemes);
    H5Tclose(variable), H5Tclose(fixed), H5Fclose(file);
}

static void hdf5(void)
{
    kv_error err = {0};
    kv_problem *p = NULL;
    write_hdf5(4);
    CHECK(kv_problem_load(&p, "t.h5", &err) == KV_EINPUT, "NaN");
    CHECK_TEXT(err.message,
               "t.h5: row 3: error: expected a finite number, 0 or more, found \"nan\"");
    err = (kv_error){0};
    write_hdf5(3);
    CHECK(kv_problem_load(&p, "t.h5", &err) == KV_EINPUT, "lengths");
    CHECK_TEXT(err.message, "t.h5: error has 3 values, but layer has 4");

    hid_t const file = H5Fopen("t.h5", H5F_ACC_RDWR, H5P_DEFAULT);
    static const double errors[] = {0.5, 0.25, 1e-300, 0.1};
    H5Ldelete(file, "error", H5P_DEFAULT);
    add(file, "error", H5T_NATIVE_DOUBLE, 4, errors);
    H5Fclose(file);
    err = (kv_error){0};
    MUST(kv_problem_load(&p, "t.h5", &err));
    if (!p) return;
    CHECK(p->n_layers == 2 && p->is_separable && p->layers[1].n_choices == 1, "layers");
    CHECK(p->layers[1].choices[0].bytes == 11 && p->layers[1].choices[0].error == 0.1, "numbers");
    CHECK_TEXT(p->values.schemes[0], "int4/token");
    CHECK(p->n_extra == 1, "%" PRId64 " extra columns", p->n_extra);
    CHECK_TEXT(p->extra_names[0], "note");
    kv_problem_free(p);

    hid_t const again = H5Fopen("t.h5", H5F_ACC_RDWR, H5P_DEFAULT), latin = H5Tcopy(H5T_C_S1);
    H5Tset_size(latin, 2);
    H5Ldelete(again, "note", H5P_DEFAULT);
    add(again, "note", latin, 4, "ab\xC3\xA4\xE4\0cd");
    H5Tclose(latin), H5Fclose(again);
    CHECK(kv_problem_load(&p, "t.h5", &err) == KV_EINPUT, "Latin-1");
    CHECK_TEXT(err.message, "t.h5: note: value 2 is not text in UTF-8");

    char bytes[600];
    FILE *const f = fopen("t.h5", "rb");
    size_t const n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    write_file("torn.h5", bytes, n);
    err = (kv_error){0};
    CHECK(kv_problem_load(&p, "torn.h5", &err) == KV_EINPUT, "torn");
    CHECK(strncmp(err.message, "torn.h5: ", 9) == 0, "%s", err.message);
}

/* ---- restrictions ---- */

static const char *const small = SEPARABLE "0,key,f16,0,16\n0,key,int8/token,0.1,8\n"
                                           "0,value,f16,0,16\n0,value,int4/token,0.3,4\n"
                                           "5,key,f16,0,16\n5,key,int8/token,0.2,8\n"
                                           "5,value,f16,0,16\n5,value,int4/token,0.4,4\n";

static void restrict_well(void)
{
    static const kv_choice_name pins[] = {{5, "f16", "int4/1xall"}};
    static const kv_choice_name bans[] = {{0, "f16", NULL}, {-1, NULL, "f16"}};
    kv_error err;
    kv_problem *p = load_text(small, &err);
    kv_restrictions const all = {1, 2, pins, bans, true};
    MUST(kv_problem_restrict(p, &all, &err));
    CHECK(p->layers[0].n_choices == 1 && p->layers[1].n_choices == 1, "one left");
    CHECK(p->layers[0].choices[0].bytes == 12 && p->layers[1].choices[0].bytes == 20, "which");
    kv_problem_free(p);
    p = load_text(small, &err);
    MUST(kv_problem_restrict(p, &(kv_restrictions){.key_at_least_value = true}, &err));
    CHECK(p->layers[0].n_choices == 3, "int8 | f16 goes");
    kv_problem_free(p);
    p = load_text(PAIRS "0,int4/token,int8/token,1,1\n0,int8/token,int8/token,1,1\n"
                        "0,int8/token,int4/token,1,1\n",
                  &err);
    MUST(kv_problem_restrict(p, &(kv_restrictions){.key_at_least_value = true}, &err));
    CHECK(p->layers[0].n_choices == 2 && p->layers[0].choices[0].key == 1, "by stored bits");
    kv_problem_free(p);
}

static void restrict_badly(void)
{
    static const struct {
        kv_choice_name pin, ban;
        const char *message;
    } rows[] = {
        {{9, "f16", "f16"}, {0}, "pin: there is no layer 9; the table has 2 layers, 0 to 5"},
        {{5, "f61", "f16"}, {0}, "pin of layer 5: the table has no key scheme \"f61\""},
        {{5, "int8/tokn", "f16"},
         {0},
         "pin of layer 5: the table has no key scheme \"int8/tokn\", did you mean \"int8/token\"?"},
        {{5, "f16", "int8/token"},
         {0},
         "pin of layer 5: the table has no value scheme \"int8/token\", did you mean "
         "\"int4/token\"?"},
        {{0}, {-1, "q4_0", NULL}, "forbid: the table has no key scheme \"q4_0\""},
        {{0}, {3, "f16", NULL}, "forbid: there is no layer 3; the table has 2 layers, 0 to 5"},
        {{0, "f16", "f16"},
         {-1, "f16", NULL},
         "layer 0: pin, forbid and key_at_least_value leave none of its 4 choices"},
    };
    kv_error err;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kv_problem *const p = load_text(small, &err);
        bool const has_ban = rows[i].ban.key || rows[i].ban.value;
        kv_restrictions const r = {rows[i].pin.key != NULL, has_ban, &rows[i].pin, &rows[i].ban,
                                   false};
        CHECK(kv_problem_restrict(p, &r, &err) == KV_EREQUEST, "row %zu", i);
        CHECK_TEXT(err.message, rows[i].message);
        CHECK(p->layers[0].n_choices == 4 && p->layers[1].n_choices == 4, "row %zu: untouched", i);
        kv_problem_free(p);
    }
    kv_problem *p = load_text(PAIRS "0,a,b,1,1\n0,b,c,1,1\n", &err);
    kv_choice_name const absent = {-1, "a", "c"};
    CHECK(kv_problem_restrict(p, &(kv_restrictions){.n_bans = 1, .bans = &absent}, &err) ==
              KV_EREQUEST,
          "a pair that is not there");
    CHECK_TEXT(err.message, "forbid: nothing has key \"a\" and value \"c\"");
    err = (kv_error){0};
    CHECK(kv_problem_restrict(
              p, &(kv_restrictions){.n_pins = 1, .pins = &(kv_choice_name){0, "a", "c"}}, &err) ==
              KV_EREQUEST,
          "a pair that is not there");
    CHECK_TEXT(err.message, "pin of layer 0: the layer has no choice \"a | c\"");
    err = (kv_error){0};
    CHECK(kv_problem_restrict(p, &(kv_restrictions){.key_at_least_value = true}, &err) ==
              KV_EREQUEST,
          "names that are no shorthand");
    CHECK(strncmp(err.message, "key_at_least_value: ", 20) == 0, "%s", err.message);
    kv_problem_free(p);
}

/* ---- integers ---- */

static uint64_t state = 88172645463325252u;
static double uniform(void)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (double)(state >> 11) * 0x1p-53;
}

static kv_problem *random_problem(int64_t L, double low_exponent, double high_exponent)
{
    enum { N = 4 };
    static const char *const schemes[N] = {"a", "b", "c", "d"};
    kv_error err = {0};
    kv_problem *p = NULL;
    int64_t numbers[64], bytes[64 * N];
    double error[64 * N];
    for (int64_t i = 0; i < L; i++) numbers[i] = 3 * i;
    for (int64_t i = 0; i < L * N; i++) {
        error[i] = i % 7 ? pow(2, low_exponent + uniform() * (high_exponent - low_exponent)) : 0;
        bytes[i] = (int64_t)(uniform() * 1000);
    }
    kv_problem_side const side = {N, (char **)(uintptr_t)schemes, error, bytes};
    MUST(kv_problem_create(&p, L, numbers, &side, &side, NULL, 0, &err));
    return p;
}

static void integers(void)
{
    static const double ranges[][2] = {{-30, 0}, {-1070, -1060}, {900, 1015}, {-500, 500}};
    for (int64_t i = 0; i < 100; i++) {
        const double *const range = ranges[i % 4];
        int64_t const L = 1 + i % 40;
        kv_error err = {0};
        kv_problem_integers n = {0};
        kv_problem *const p = random_problem(L, range[0], range[1]);
        MUST(kv_problem_integers_create(&n, p, &err));
        int64_t sum = 0;
        double largest = 0;
        for (int64_t l = 0; l < L; l++) {
            int64_t most = 0;
            double most_error = 0;
            for (int64_t c = 0; c < n.n_options[l]; c++) {
                double const error = p->layers[l].choices[c].error;
                double const back = n.unit * (double)n.options[l][c].error;
                CHECK(fabs(back - error) <= n.unit / 2 + 0x1p-52 * error, "%g %g", back, error);
                CHECK(n.options[l][c].size == p->layers[l].choices[c].bytes, "bytes");
                most = n.options[l][c].error > most ? n.options[l][c].error : most;
                most_error = fmax(most_error, error);
            }
            sum += most, largest += ldexp(most_error, -60);
        }
        CHECK(sum < INT64_C(1) << 61, "sum %" PRId64, sum);
        bool const is_smallest =
            n.unit == 0x1p-1074 || ldexp(largest, 60) / n.unit >= 0x1p60 || largest / n.unit >= 1;
        CHECK(is_smallest || largest == 0, "unit %g for %g", n.unit, ldexp(largest, 60));
        CHECK(frexp(n.unit, &(int){0}) == 0.5, "a power of two");
        kv_problem_integers_free(&n);
        kv_problem_free(p);
    }
    kv_error err;
    kv_problem_integers n = {0};
    kv_problem *p = load_text(PAIRS "0,a,b,0,0\n", &err);
    MUST(kv_problem_integers_create(&n, p, &err));
    CHECK(n.unit == 1 && n.options[0][0].error == 0, "all zero");
    kv_problem_integers_free(&n);
    kv_problem_free(p);
    p = load_text(PAIRS "0,a,b,0.1,0\n0,a,c,0.3,0\n1,a,b,0.2,1\n1,a,c,7e-13,1\n", &err);
    MUST(kv_problem_integers_create(&n, p, &err));
    CHECK(n.unit == 1e-15 && n.options[0][0].error + n.options[1][0].error == n.options[0][1].error,
          "decimals: %g", n.unit);
    CHECK(n.options[1][1].error == 700, "%" PRId64, n.options[1][1].error);
    kv_problem_integers_free(&n);
    kv_problem_free(p);
    p = load_text(small, &err);
    MUST(kv_problem_integers_create(&n, p, &err));
    CHECK(n.options[0][3].error == 4 * (n.options[0][2].error), "0.1 + 0.3 is 4 times 0.1");
    kv_problem_integers_free(&n);
    kv_problem_free(p);
    p = load_text(PAIRS "0,a,b,0,1\n1,a,b,0,1\n", &err);
    p->layers[0].choices[0].bytes = p->layers[1].choices[0].bytes = INT64_C(1) << 60;
    CHECK(kv_problem_integers_create(&n, p, &err) == KV_EREQUEST, "bytes");
    CHECK_TEXT(err.message, "the layers' bytes add up to 2^61 or more");
    kv_problem_free(p);
    static const char *const huge[] = {PAIRS "0,a,b,1.7e308,1\n1,a,b,1.7e308,1\n",
                                       SEPARABLE "0,key,a,1.7e308,1\n0,value,b,1.7e308,1\n"};
    for (size_t i = 0; i < sizeof huge / sizeof huge[0]; i++) {
        p = load_text(huge[i], &err);
        CHECK(p && kv_problem_integers_create(&n, p, &err) == KV_EREQUEST, "errors");
        CHECK_TEXT(err.message,
                   "the layers' largest errors add up to more than a double holds, 1.8e308");
        kv_problem_free(p);
    }
}

/* ---- arrays ---- */

static void arrays(void)
{
    static const char *const schemes[] = {"int8/1xall", "x"};
    static const int32_t pair[][2] = {{1, 1}, {0, 1}};
    static const int64_t falling[] = {1, 1};
    double error[] = {0, 1, (double)NAN, 2};
    int64_t numbers[] = {4, 9}, bytes[] = {1, 2, -1, 4};
    kv_problem_side const side = {2, (char **)(uintptr_t)schemes, error, bytes};
    kv_error err = {0};
    kv_problem *p = NULL;
    MUST(kv_problem_create(&p, 2, numbers, &side, &side, pair, 2, &err));
    CHECK(p->layers[0].n_choices == 2 && p->layers[1].n_choices == 1, "pairs");
    CHECK(p->layers[0].choices[0].key == 1 && p->layers[0].choices[1].bytes == 3, "order");
    CHECK_TEXT(p->keys.schemes[0], "int8/token");
    kv_problem_free(p);
    CHECK(kv_problem_create(&p, 2, falling, &side, &side, NULL, 0, &err) == KV_EREQUEST, "order");
    CHECK_TEXT(err.message, "layer 1 after layer 1: numbers must rise");
    err = (kv_error){0};
    CHECK(kv_problem_create(&p, 2, numbers, &side, &side, pair + 1, 1, &err) == KV_EREQUEST,
          "no choice");
    CHECK_TEXT(err.message, "layer 9 has no choices");
    err = (kv_error){0};
    error[1] = -1;
    CHECK(kv_problem_create(&p, 2, numbers, &side, &side, NULL, 0, &err) == KV_EREQUEST,
          "negative");
    CHECK_TEXT(err.message, "layer position 0, key x: error -1 and 2 bytes: must be finite and not "
                            "negative");
}

static void out_of_memory(void)
{
    write_file("t.csv", small, strlen(small));
    long k = 0;
    for (bool more = true; more; k++) {
        kv_error err = {0};
        kv_problem *p = NULL;
        kv_problem_integers n = {0};
        kv_record *r = NULL;
        kv_fail_allocation(-1);
        MUST(kv_record_create(&r, &err));
        kv_fail_allocation(k);
        kv_status status = kv_problem_load(&p, "t.csv", &err);
        if (status == KV_OK) status = kv_problem_integers_create(&n, p, &err);
        if (status == KV_OK) status = kv_problem_record(r, p, &err);
        kv_fail_allocation(-1);
        more = status != KV_OK;
        CHECK(status == KV_OK || status == KV_ENOMEM, "allocation %ld: %s", k, err.message);
        kv_problem_integers_free(&n);
        kv_problem_free(p);
        kv_record_free(r);
    }
    CHECK(k > 30, "%ld allocations", k);
}

int main(void)
{
    refusals();
    many_refusals();
    many_choices();
    separable();
    pairs();
    hdf5();
    restrict_well();
    restrict_badly();
    integers();
    arrays();
    out_of_memory();
    return check_done();
}
