/* Records: names, shapes and sizes are checked, nothing leaks when memory runs out anywhere. */
#include "kernels/memory.h"
#include "kernels/record.h"
#include "tests/check.h"

static kv_status build(kv_record **out, kv_error *err)
{
    static const double seeds[] = {0, 1, 2}, values[] = {1, 2, 3, 4, 5, 6};
    static const char *const schemes[] = {"a", "b\xff\xc3\xa9\xed\xa0\x80"};
    kv_status status = KV_OK;
    kv_record *r = NULL;
    KV_TRY(kv_record_create(&r, err));
    KV_TRY(kv_record_add_dimension(
        r, &(kv_dimension_spec){.name = "seed", .length = 3, .numbers = seeds}, err));
    KV_TRY(kv_record_add_dimension(
        r, &(kv_dimension_spec){.name = "scheme", .units = "", .length = 2, .texts = schemes},
        err));
    KV_TRY(kv_record_add_array(r,
                               &(kv_array_spec){.name = "x",
                                                .units = "1",
                                                .long_name = "an array",
                                                .combine = "rms",
                                                .dimensions = {"scheme", "seed"},
                                                .numbers = values},
                               err));
    KV_TRY(kv_record_add_array(r, &(kv_array_spec){.name = "empty", .dimensions = {"seed"}}, err));
    KV_TRY(kv_record_add_array(
        r, &(kv_array_spec){.name = "t", .dimensions = {"scheme"}, .texts = schemes}, err));
    KV_TRY(kv_record_add_array(r, &(kv_array_spec){.name = "scalar"}, err));
    KV_TRY(kv_record_add_array(
        r, &(kv_array_spec){.name = "which", .dimensions = {"seed"}, .labels = "scheme"}, err));
    KV_TRY(kv_record_set_text(r, "title", "first", err));
    KV_TRY(kv_record_set_number(r, "n", 7, err));
    KV_TRY(kv_record_set_text(r, "title", "second", err));
    *out = r, r = NULL;
done:
    kv_record_free(r);
    return status;
}

static void contents(void)
{
    kv_error err = {0};
    kv_record *r = NULL;
    CHECK(build(&r, &err) == KV_OK, "%s", err.message);
    const kv_array *const x = kv_record_array(r, "x");
    CHECK(x && x->rank == 2 && x->count == 6 && x->dimensions[0] == 1 && x->dimensions[1] == 0,
          "shape");
    CHECK(x->numbers[5] == 6, "row-major");
    CHECK_TEXT(x->combine, "rms");
    CHECK_TEXT(kv_record_array(r, "which")->labels, "scheme");
    CHECK(!x->labels, "numbers are numbers");
    CHECK(isnan(kv_record_array(r, "empty")->numbers[2]), "NaN until filled");
    CHECK(kv_record_array(r, "scalar")->count == 1, "a scalar");
    CHECK(!kv_record_array(r, "seed") && !kv_record_dimension(r, "x"), "kinds are apart");
    CHECK_TEXT(kv_record_dimension(r, "scheme")->texts[1], "b?\xc3\xa9???");
    CHECK_TEXT(kv_record_attribute(r, "title")->text, "second");
    CHECK(r->n_attributes == 2 && kv_record_attribute(r, "n")->number == 7, "attributes");
    kv_record_free(r);
    kv_record_free(NULL);
}

static void refusals(void)
{
    static const double one[1 << 16] = {0};
    static const char *const text[] = {"t"};
    static const struct {
        kv_dimension_spec dimension;
        kv_array_spec array;
        const char *message;
    } rows[] = {
        {{.name = "seed", .length = 1, .numbers = one},
         {0},
         "seed: the record already has this name"},
        {{.name = "x", .length = 1, .numbers = one}, {0}, "x: the record already has this name"},
        {{.name = "a/b", .length = 1, .numbers = one},
         {0},
         "\"a/b\" cannot name a dimension or an array"},
        {{.name = "", .length = 1, .numbers = one},
         {0},
         "\"\" cannot name a dimension or an array"},
        {{.name = "z", .length = 0, .numbers = one},
         {0},
         "z: a dimension needs at least one coordinate, as numbers or as texts"},
        {{.name = "z", .length = 1, .numbers = one, .texts = text},
         {0},
         "z: a dimension needs at least one coordinate, as numbers or as texts"},
        {{0}, {.name = "seed"}, "seed: the record already has this name"},
        {{0}, {.name = "y", .dimensions = {"sede"}}, "y: the record has no dimension sede"},
        {{0}, {.name = "y", .dimensions = {"seed", "seed"}}, "y: dimension seed twice"},
        {{0}, {.name = "y", .combine = "sum"}, "y: combine \"sum\" is none of mean, rms, max, min"},
        {{0}, {.name = "y", .numbers = one, .texts = text}, "y: numbers and texts at once"},
        {{0},
         {.name = "y", .labels = "seed"},
         "y: labels \"seed\": must be a dimension of texts, and the array of numbers"},
        {{0},
         {.name = "y", .labels = "none"},
         "y: labels \"none\": must be a dimension of texts, and the array of numbers"},
        {{0},
         {.name = "y", .labels = "scheme", .texts = text},
         "y: labels \"scheme\": must be a dimension of texts, and the array of numbers"},
        {{0}, {.name = "y", .dimensions = {"d0", "d1", "d2", "d3"}}, "y: its size overflows"},
    };
    kv_error err = {0};
    kv_record *r = NULL;
    CHECK(build(&r, &err) == KV_OK, "%s", err.message);
    for (int i = 0; i < 4; i++) {
        char name[3] = {'d', (char)('0' + i), 0};
        kv_dimension_spec const d = {.name = name, .length = 1 << 16, .numbers = one};
        CHECK(kv_record_add_dimension(r, &d, &err) == KV_OK, "%s", err.message);
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        err = (kv_error){0};
        kv_status const status = rows[i].dimension.name
                                     ? kv_record_add_dimension(r, &rows[i].dimension, &err)
                                     : kv_record_add_array(r, &rows[i].array, &err);
        CHECK(status != KV_OK, "row %zu", i);
        CHECK_TEXT(err.message, rows[i].message);
    }
    kv_record_free(r);
}

static void out_of_memory(void)
{
    kv_error err = {0};
    kv_record *r = NULL;
    kv_fail_allocation(-1);
    CHECK(build(&r, &err) == KV_OK, "%s", err.message);
    long const n = kv_fail_allocation(-1);
    CHECK(n > 20, "%ld allocations", n);
    kv_record_free(r), r = NULL;
    for (long k = 0; k < n; k++) {
        err = (kv_error){0};
        kv_fail_allocation(k);
        CHECK(build(&r, &err) == KV_ENOMEM && !r, "allocation %ld fails", k);
    }
    kv_fail_allocation(-1);
}

int main(void)
{
    contents();
    refusals();
    out_of_memory();
    return check_done();
}
