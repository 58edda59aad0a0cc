/* Arrays that belong together by their names, as one table: see table.h. */
#include "results/table_group.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/memory.h"
#include "kernels/text.h"
#include "results/frame.h"
#include "results/grid.h"

typedef struct {
    const kv_array *array;
    const kv_dimension *labels; /* the texts its numbers stand for, or NULL */
    int64_t at;                 /* element of the second dimension, 0 where there is none */
    char *name;
} column;

typedef struct {
    const kv_record *record;
    const kv_dimension *dimension; /* of the rows */
    kv_selection *selections;      /* [n_dimensions] */
    int64_t n_rows, n_columns;
    column *columns;
} group;

/* The rest of an array's name where it is of the group whose rows are `dimension` (-1: any). */
static const char *rest_of(const kv_array *a, const char *name, int dimension)
{
    size_t const length = strlen(name);
    bool const is_it = strncmp(a->name, name, length) == 0 && a->name[length] == '_' &&
                       a->name[length + 1] && (a->rank == 1 || a->rank == 2) &&
                       (dimension < 0 || a->dimensions[0] == dimension);
    return is_it ? a->name + length + 1 : NULL;
}

/* The first array of a group, NULL where there are not several. */
static const kv_array *first_of(const kv_record *record, const char *name)
{
    const kv_array *first = NULL;
    int n = 0;
    if (kv_record_array(record, name)) return NULL;
    for (int i = 0; i < record->n_arrays; i++) {
        const kv_array *const a = &record->arrays[i];
        if (!rest_of(a, name, first ? first->dimensions[0] : -1)) continue;
        first = first ? first : a;
        n++;
    }
    return n > 1 ? first : NULL;
}

bool kv_table_is_group(const kv_record *record, const char *name)
{
    return first_of(record, name) != NULL;
}

/* The chosen elements of a dimension: all where none is named. */
static int64_t count_of(const group *g, int dimension)
{
    int64_t const chosen = g->selections[dimension].count;
    return chosen ? chosen : g->record->dimensions[dimension].length;
}

static int64_t element(const group *g, int dimension, int64_t i)
{
    const kv_selection *const s = &g->selections[dimension];
    return s->count ? s->items[i] : i;
}

/* How many arrays of the group have this second dimension. */
static int n_over(const kv_record *r, const char *name, int rows, int dimension)
{
    int n = 0;
    for (int i = 0; i < r->n_arrays; i++)
        n += rest_of(&r->arrays[i], name, rows) && r->arrays[i].rank == 2 &&
             r->arrays[i].dimensions[1] == dimension;
    return n;
}

/* The rest of the array's name; of two dimensions "layer_0", behind the rest where several arrays
 * are over that dimension. */
static kv_status name_column(column *c, const kv_record *r, const char *rest, bool is_shared,
                             kv_error *err)
{
    kv_status status = KV_OK;
    kv_text name = {0};
    char buffer[KV_REAL_TEXT];
    const kv_array *const a = c->array;
    if (a->rank == 1 || is_shared)
        KV_TRY(kv_text_add(&name, err, "%s%s", rest, a->rank == 1 ? "" : "_"));
    if (a->rank == 2) {
        const kv_dimension *const d = &r->dimensions[a->dimensions[1]];
        KV_TRY(kv_text_add(&name, err, "%s_%s", d->name, kv_coordinate_text(buffer, d, c->at)));
    }
    c->name = kv_text_take(&name);
done:
    kv_text_free(&name);
    return status;
}

static kv_status add_columns(group *g, const char *name, int rows, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_record *const r = g->record;
    int64_t n = 0;
    for (int i = 0; i < r->n_arrays; i++)
        if (rest_of(&r->arrays[i], name, rows))
            n += r->arrays[i].rank == 2 ? count_of(g, r->arrays[i].dimensions[1]) : 1;
    KV_TRY(kv_allocate((void **)&g->columns, (size_t)n, sizeof *g->columns, err));
    for (int i = 0; i < r->n_arrays; i++) {
        const kv_array *const a = &r->arrays[i];
        const char *const rest = rest_of(a, name, rows);
        bool const is_shared = rest && a->rank == 2 && n_over(r, name, rows, a->dimensions[1]) > 1;
        int64_t const blocks = !rest ? 0 : a->rank == 2 ? count_of(g, a->dimensions[1]) : 1;
        for (int64_t b = 0; b < blocks; b++) {
            column *const c = &g->columns[g->n_columns++];
            c->array = a;
            c->labels = a->labels ? kv_record_dimension(r, a->labels) : NULL;
            if (a->rank == 2) c->at = element(g, a->dimensions[1], b);
            KV_TRY(name_column(c, r, rest, is_shared, err));
        }
    }
done:
    return status;
}

static kv_status check_request(const kv_table_request *request, kv_error *err)
{
    if (request->n_metrics > 1)
        return KV_FAIL(err, KV_EREQUEST, "%s and %s are tables of their own; show one at a time",
                       request->metrics[0], request->metrics[1]);
    if (request->rows || request->cols)
        return KV_FAIL(err, KV_EREQUEST, "%s is a table as it is, without rows and cols",
                       request->metrics[0]);
    return KV_OK;
}

/* A dimension named in `where` must be one of the table. */
static kv_status check_where(const group *g, const char *name, kv_error *err)
{
    for (int i = 0; i < g->record->n_dimensions; i++) {
        bool is_used = &g->record->dimensions[i] == g->dimension;
        for (int64_t c = 0; c < g->n_columns; c++)
            is_used |= g->columns[c].array->rank == 2 && g->columns[c].array->dimensions[1] == i;
        if (!is_used && g->selections[i].count)
            return KV_FAIL(err, KV_EREQUEST, "%s does not depend on %s", name,
                           g->record->dimensions[i].name);
    }
    return KV_OK;
}

static kv_status make_group(group *g, const kv_record *record, const kv_table_request *request,
                            kv_error *err)
{
    kv_status status = KV_OK;
    const char *const name = request->metrics[0];
    *g = (group){.record = record};
    KV_TRY(check_request(request, err));
    int const rows = first_of(record, name)->dimensions[0];
    g->dimension = &record->dimensions[rows];
    KV_TRY(kv_selections_create(&g->selections, record, request->n_where, request->where, err));
    g->n_rows = count_of(g, rows);
    KV_TRY(add_columns(g, name, rows, err));
    KV_TRY(check_where(g, name, err));
done:
    return status;
}

/* A cell: a text, or (text NULL) a number. */
typedef struct {
    const char *text;
    double number;
} value;

static value value_at(const group *g, int64_t row, const column *c)
{
    const kv_array *const a = c->array;
    int64_t const i = element(g, a->dimensions[0], row);
    int64_t const width = a->rank == 2 ? g->record->dimensions[a->dimensions[1]].length : 1;
    int64_t const at = i * width + c->at;
    if (a->texts) return (value){.text = a->texts[at]};
    double const number = a->numbers[at];
    if (!c->labels) return (value){.number = number};
    bool const is_there = number >= 0 && number < (double)c->labels->length;
    return is_there ? (value){.text = c->labels->texts[(int64_t)number]} : (value){.number = NAN};
}

static const char *row_name(char buffer[KV_REAL_TEXT], const group *g, int64_t row)
{
    int const dimension = (int)(g->dimension - g->record->dimensions);
    return kv_coordinate_text(buffer, g->dimension, element(g, dimension, row));
}

/* ---- the ways to print ---- */

static void print_csv(FILE *out, const group *g)
{
    char buffer[KV_REAL_TEXT];
    kv_csv_text(out, g->dimension->name);
    for (int64_t c = 0; c < g->n_columns; c++) {
        fputc(',', out);
        kv_csv_text(out, g->columns[c].name);
    }
    fputc('\n', out);
    for (int64_t row = 0; row < g->n_rows; row++) {
        kv_csv_text(out, row_name(buffer, g, row));
        for (int64_t c = 0; c < g->n_columns; c++) {
            value const v = value_at(g, row, &g->columns[c]);
            fputc(',', out);
            if (v.text)
                kv_csv_text(out, v.text);
            else
                kv_csv_number(out, v.number);
        }
        fputc('\n', out);
    }
}

static bool print_json_name(FILE *out, const char *name)
{
    bool const is_good = kv_json_text(out, name);
    fputs(": ", out);
    return is_good;
}

static kv_status print_json(FILE *out, const group *g, kv_error *err)
{
    int const rows = (int)(g->dimension - g->record->dimensions);
    bool is_good = true;
    fputs("[", out);
    for (int64_t row = 0; row < g->n_rows; row++) {
        int64_t const i = element(g, rows, row);
        fputs(row ? ",\n {" : "\n {", out);
        is_good &= print_json_name(out, g->dimension->name);
        if (g->dimension->texts)
            is_good &= kv_json_text(out, g->dimension->texts[i]);
        else
            kv_json_number(out, g->dimension->numbers[i]);
        for (int64_t c = 0; c < g->n_columns; c++) {
            value const v = value_at(g, row, &g->columns[c]);
            fputs(", ", out);
            is_good &= print_json_name(out, g->columns[c].name);
            if (v.text)
                is_good &= kv_json_text(out, v.text);
            else
                kv_json_number(out, v.number);
        }
        fputs("}", out);
    }
    fputs("\n]\n", out);
    return is_good ? KV_OK : KV_FAIL(err, KV_ENOMEM, "out of memory: a row as JSON");
}

/* Decimals of a column: none where all its numbers are whole. */
static int decimals_of(const group *g, const column *c)
{
    double largest = 0;
    bool is_whole = true;
    for (int64_t row = 0; row < g->n_rows; row++) {
        value const v = value_at(g, row, c);
        if (v.text || isnan(v.number)) continue;
        largest = fmax(largest, fabs(v.number));
        is_whole &= rint(v.number) == v.number;
    }
    return is_whole && largest <= 0x1p53 ? 0 : kv_usual_decimals(c->array->units, largest);
}

static kv_status print_grid(FILE *out, const group *g, bool is_markdown, kv_error *err)
{
    kv_status status = KV_OK;
    kv_grid grid = {0};
    kv_text head = {0};
    char buffer[KV_CELL_SIZE];
    KV_TRY(kv_grid_create(&grid, 1 + g->n_rows, 1 + g->n_columns, err));
    grid.columns[0].is_number = g->dimension->numbers != NULL;
    KV_TRY(kv_grid_set(&grid, 0, 0, g->dimension->name, err));
    for (int64_t row = 0; row < g->n_rows; row++)
        KV_TRY(kv_grid_set(&grid, 1 + row, 0, row_name(buffer, g, row), err));
    for (int64_t c = 0; c < g->n_columns; c++) {
        const column *const col = &g->columns[c];
        const char *const units = col->array->units;
        bool const has_unit = units && *units && strcmp(units, "1") != 0;
        int const decimals = decimals_of(g, col);
        kv_text_free(&head);
        KV_TRY(kv_text_add(&head, err, "%s%s%s%s", col->name, has_unit ? " [" : "",
                           has_unit ? units : "", has_unit ? "]" : ""));
        KV_TRY(kv_grid_set(&grid, 0, 1 + c, head.data, err));
        grid.columns[1 + c].is_number = !col->labels && col->array->numbers;
        for (int64_t row = 0; row < g->n_rows; row++) {
            value const v = value_at(g, row, col);
            if (!v.text) kv_cell_number(buffer, v.number, decimals);
            KV_TRY(kv_grid_set(&grid, 1 + row, 1 + c, v.text ? v.text : buffer, err));
        }
    }
    kv_grid_print(out, &grid, is_markdown);
done:
    kv_grid_free_contents(&grid);
    kv_text_free(&head);
    return status;
}

kv_status kv_table_write_group(FILE *out, const kv_record *record, const kv_table_request *request,
                               kv_error *err)
{
    kv_status status = KV_OK;
    group g = {0};
    KV_TRY(make_group(&g, record, request, err));
    if (request->format == KV_TABLE_CSV)
        print_csv(out, &g);
    else if (request->format == KV_TABLE_JSON)
        KV_TRY(print_json(out, &g, err));
    else
        KV_TRY(print_grid(out, &g, request->format == KV_TABLE_MARKDOWN, err));
    if (ferror(out)) KV_TRY(KV_FAIL(err, KV_EIO, "writing the table failed"));
done:
    if (g.selections) kv_selections_free(g.selections, record);
    for (int64_t c = 0; c < g.n_columns; c++) kv_free(g.columns[c].name);
    kv_free(g.columns);
    return status;
}
