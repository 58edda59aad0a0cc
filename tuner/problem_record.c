/* A problem's tables as arrays: kv_problem_record of problem.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/memory.h"
#include "kernels/text.h"
#include "tuner/problem.h"

static const int64_t most_cells = INT64_C(1) << 27; /* 1 GiB of doubles */

static kv_status add_dimensions(kv_record *record, const kv_problem *p, kv_error *err)
{
    kv_status status = KV_OK;
    double *numbers = NULL;
    KV_TRY(kv_allocate((void **)&numbers, (size_t)p->n_layers, sizeof *numbers, err));
    for (int64_t i = 0; i < p->n_layers; i++) numbers[i] = (double)p->layers[i].number;
    KV_TRY(kv_record_add_dimension(
        record, &(kv_dimension_spec){.name = "layer", .length = p->n_layers, .numbers = numbers},
        err));
    KV_TRY(
        kv_record_add_dimension(record,
                                &(kv_dimension_spec){.name = "key_scheme",
                                                     .length = p->keys.n,
                                                     .texts = (const char *const *)p->keys.schemes},
                                err));
    KV_TRY(kv_record_add_dimension(
        record,
        &(kv_dimension_spec){.name = "value_scheme",
                             .length = p->values.n,
                             .texts = (const char *const *)p->values.schemes},
        err));
done:
    kv_free(numbers);
    return status;
}

static kv_status add_tables(kv_record *record, const kv_problem *p, kv_error *err)
{
    static const kv_array_spec specs[] = {{.name = "table_error",
                                           .units = "1",
                                           .long_name = "error power that this choice alone adds",
                                           .dimensions = {"layer", "key_scheme", "value_scheme"}},
                                          {.name = "table_bytes",
                                           .units = "byte",
                                           .long_name = "stored bytes",
                                           .dimensions = {"layer", "key_scheme", "value_scheme"}}};
    kv_status status = KV_OK;
    int64_t cells = 0;
    if (!kv_multiply_sizes(p->n_layers, p->keys.n, &cells) ||
        !kv_multiply_sizes(cells, p->values.n, &cells) || cells > most_cells)
        KV_TRY(KV_FAIL(err, KV_EREQUEST,
                       "a table of %" PRId64 " layers, %" PRId64 " key and %" PRId64
                       " value schemes is too large for a result file",
                       p->n_layers, p->keys.n, p->values.n));
    for (int which = 0; which < 2; which++) {
        KV_TRY(kv_record_add_array(record, &specs[which], err));
        double *const numbers = record->arrays[record->n_arrays - 1].numbers;
        for (int64_t i = 0; i < p->n_layers; i++)
            for (int64_t c = 0; c < p->layers[i].n_choices; c++) {
                const kv_choice *const x = &p->layers[i].choices[c];
                numbers[(i * p->keys.n + x->key) * p->values.n + x->value] =
                    which ? (double)x->bytes : x->error;
            }
    }
done:
    return status;
}

/* Where the errors come from; of tables measured elsewhere that is not said. */
static kv_status add_sources(kv_record *record, const kv_problem *p, kv_error *err)
{
    static const char *const names[KV_ERROR_SOURCES] = {"given", "estimated", "summed", "measured"};
    kv_status status = KV_OK;
    bool is_any = false;
    for (int64_t i = 0; i < p->n_layers; i++)
        for (int64_t c = 0; c < p->layers[i].n_choices; c++)
            is_any |= p->layers[i].choices[c].source != KV_ERROR_GIVEN;
    if (!is_any) return KV_OK;
    KV_TRY(kv_record_add_dimension(
        record, &(kv_dimension_spec){.name = "source", .length = KV_ERROR_SOURCES, .texts = names},
        err));
    KV_TRY(
        kv_record_add_array(record,
                            &(kv_array_spec){.name = "table_source",
                                             .long_name = "where the error comes from",
                                             .dimensions = {"layer", "key_scheme", "value_scheme"},
                                             .labels = "source"},
                            err));
    double *const numbers = record->arrays[record->n_arrays - 1].numbers;
    for (int64_t i = 0; i < p->n_layers; i++)
        for (int64_t c = 0; c < p->layers[i].n_choices; c++) {
            const kv_choice *const x = &p->layers[i].choices[c];
            numbers[(i * p->keys.n + x->key) * p->values.n + x->value] = x->source;
        }
done:
    return status;
}

/* Each tensor's own numbers, where the table tells them apart. */
static kv_status add_sides(kv_record *record, const kv_problem *p, kv_error *err)
{
    static const struct {
        bool is_key, is_bytes;
        kv_array_spec spec;
    } rows[] = {
        {true,
         false,
         {.name = "table_key_error", .units = "1", .dimensions = {"layer", "key_scheme"}}},
        {true,
         true,
         {.name = "table_key_bytes", .units = "byte", .dimensions = {"layer", "key_scheme"}}},
        {false,
         false,
         {.name = "table_value_error", .units = "1", .dimensions = {"layer", "value_scheme"}}},
        {false,
         true,
         {.name = "table_value_bytes", .units = "byte", .dimensions = {"layer", "value_scheme"}}}};
    kv_status status = KV_OK;
    for (size_t k = 0; p->is_separable && !p->is_split && k < sizeof rows / sizeof rows[0]; k++) {
        const kv_problem_side *const side = rows[k].is_key ? &p->keys : &p->values;
        KV_TRY(kv_record_add_array(record, &rows[k].spec, err));
        double *const numbers = record->arrays[record->n_arrays - 1].numbers;
        for (int64_t i = 0; i < p->n_layers * side->n; i++)
            if (!isnan(side->error[i]))
                numbers[i] = rows[k].is_bytes ? (double)side->bytes[i] : side->error[i];
    }
done:
    return status;
}

/* A name the record does not have yet, without what names must not hold. The caller frees. */
static kv_status free_name(char **out, const kv_record *record, const char *column, kv_error *err)
{
    kv_status status = KV_OK;
    for (int i = 1; status == KV_OK; i++) {
        kv_text name = {0};
        status = kv_text_add(&name, err, "row_%s", column);
        if (status == KV_OK && i > 1) status = kv_text_add(&name, err, "_%d", i);
        for (char *c = name.data; c && *c; c++)
            if (*c == '/') *c = '_';
        if (status == KV_OK && !kv_record_array(record, name.data)) {
            *out = kv_text_take(&name);
            return KV_OK;
        }
        kv_text_free(&name);
    }
    return status;
}

static kv_status add_row_names(kv_record *record, const kv_problem *p, bool is_key, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_problem_side *const side = is_key ? &p->keys : &p->values;
    const char **texts = NULL;
    KV_TRY(kv_allocate((void **)&texts, (size_t)p->n_rows, sizeof *texts, err));
    for (int64_t i = 0; i < p->n_rows; i++) {
        int32_t const id = is_key ? p->row_key[i] : p->row_value[i];
        texts[i] = id < 0 ? "" : side->schemes[id];
    }
    KV_TRY(kv_record_add_array(record,
                               &(kv_array_spec){.name = is_key ? "row_key" : "row_value",
                                                .dimensions = {"row"},
                                                .texts = texts},
                               err));
done:
    kv_free(texts);
    return status;
}

/* The further columns of the file, row by row. */
static kv_status add_rows(kv_record *record, const kv_problem *p, kv_error *err)
{
    kv_status status = KV_OK;
    double *numbers = NULL;
    const char **texts = NULL;
    char *name = NULL;
    if (p->n_extra == 0) return KV_OK;
    KV_TRY(kv_allocate((void **)&numbers, (size_t)p->n_rows, sizeof *numbers, err));
    KV_TRY(kv_allocate((void **)&texts, (size_t)p->n_rows, sizeof *texts, err));
    for (int64_t i = 0; i < p->n_rows; i++) numbers[i] = (double)i;
    KV_TRY(kv_record_add_dimension(
        record, &(kv_dimension_spec){.name = "row", .length = p->n_rows, .numbers = numbers}, err));
    for (int64_t i = 0; i < p->n_rows; i++) numbers[i] = (double)p->row_layer[i];
    KV_TRY(kv_record_add_array(
        record, &(kv_array_spec){.name = "row_layer", .dimensions = {"row"}, .numbers = numbers},
        err));
    KV_TRY(add_row_names(record, p, true, err));
    KV_TRY(add_row_names(record, p, false, err));
    for (int64_t c = 0; c < p->n_extra; c++) {
        for (int64_t i = 0; i < p->n_rows; i++) texts[i] = p->extra_values[i * p->n_extra + c];
        kv_free(name), name = NULL;
        KV_TRY(free_name(&name, record, p->extra_names[c], err));
        KV_TRY(kv_record_add_array(
            record, &(kv_array_spec){.name = name, .dimensions = {"row"}, .texts = texts}, err));
    }
done:
    kv_free(numbers), kv_free(texts), kv_free(name);
    return status;
}

kv_status kv_problem_record(kv_record *record, const kv_problem *problem, kv_error *err)
{
    kv_status status = KV_OK;
    KV_TRY(add_dimensions(record, problem, err));
    KV_TRY(add_tables(record, problem, err));
    KV_TRY(add_sources(record, problem, err));
    KV_TRY(add_sides(record, problem, err));
    KV_TRY(add_rows(record, problem, err));
done:
    return status;
}
