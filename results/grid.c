/* Cells: see grid.h. */
#include "results/grid.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "kernels/memory.h"
#include "kernels/text.h"

/* How numbers of a unit are usually written: decimals while values stay below 10. */
static const struct {
    const char *units;
    int decimals;
} unit_table[] = {{"1", 4}, {"nat", 3}, {"bit", 3}, {"byte", 1}};

/* Characters as a terminal counts them, wide ones aside. */
static int width_of(const char *text)
{
    int n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

kv_status kv_grid_create(kv_grid *out, int64_t n_rows, int64_t n_columns, kv_error *err)
{
    kv_status status = KV_OK;
    void *memory = NULL;
    out->n_rows = n_rows, out->n_columns = n_columns;
    KV_TRY(kv_allocate3(&memory, (size_t)n_rows, (size_t)n_columns, 1, sizeof *out->cells, err));
    out->cells = memory;
    KV_TRY(kv_allocate(&memory, (size_t)n_columns, sizeof *out->columns, err));
    out->columns = memory;
done:
    return status;
}

void kv_grid_free_contents(kv_grid *g)
{
    for (int64_t i = 0; g->cells && i < g->n_rows * g->n_columns; i++) kv_free(g->cells[i]);
    kv_free(g->cells), kv_free(g->columns);
    *g = (kv_grid){0};
}

kv_status kv_grid_set(kv_grid *g, int64_t row, int64_t column, const char *text, kv_error *err)
{
    char **const cell = &g->cells[row * g->n_columns + column];
    kv_free(*cell), *cell = NULL;
    return kv_duplicate(cell, text, err);
}

static void pad(FILE *out, int n)
{
    for (; n > 0; n--) fputc(' ', out);
}

/* A line break or a bar would break a Markdown cell. */
static void print_cell(FILE *out, const char *text, bool is_markdown)
{
    for (; *text; text++) {
        if (is_markdown && *text == '|') fputc('\\', out);
        fputc(*text == '\n' ? ' ' : *text, out);
    }
}

static bool is_empty(const char *cell)
{
    return !cell || !*cell;
}

void kv_grid_print(FILE *out, kv_grid *g, bool is_markdown)
{
    for (int64_t i = 0; i < g->n_rows * g->n_columns; i++) {
        int *const width = &g->columns[i % g->n_columns].width;
        int const own = g->cells[i] ? width_of(g->cells[i]) : 0;
        if (own > *width) *width = own;
    }
    for (int64_t row = 0; row < g->n_rows; row++) {
        int64_t last = g->n_columns - 1; /* no blanks behind what is there */
        while (!is_markdown && last > 0 && is_empty(g->cells[row * g->n_columns + last])) last--;
        for (int64_t i = 0; i <= last; i++) {
            const kv_grid_column *const c = &g->columns[i];
            const char *const cell = g->cells[row * g->n_columns + i];
            const char *const text = cell ? cell : "";
            int const space = c->width - width_of(text);
            fputs(is_markdown ? "| " : i ? "  " : "", out);
            if (c->is_number) pad(out, space);
            print_cell(out, text, is_markdown);
            if (!c->is_number && (is_markdown || i < last)) pad(out, space);
            if (is_markdown) fputc(' ', out);
        }
        fputs(is_markdown ? "|\n" : "\n", out);
        for (int64_t i = 0; row == 0 && is_markdown && i < g->n_columns; i++)
            fputs(g->columns[i].is_number ? "|---:" : "|:---", out);
        if (row == 0 && is_markdown) fputs("|\n", out);
    }
}

int kv_usual_decimals(const char *units, double largest)
{
    int decimals = 4;
    for (size_t i = 0; i < sizeof unit_table / sizeof *unit_table; i++)
        if (units && strcmp(units, unit_table[i].units) == 0) decimals = unit_table[i].decimals;
    if (!(largest > 0) || isinf(largest)) return decimals;
    int const exponent = (int)floor(log10(largest));
    if (exponent > 6) return -1;
    if (exponent > 0) return decimals > exponent ? decimals - exponent : 0;
    if (decimals + exponent >= 2 || decimals < 2) return decimals;
    return 2 - exponent <= 6 ? 2 - exponent : -1;
}

void kv_cell_number(char text[KV_CELL_SIZE], double number, int decimals)
{
    if (isnan(number))
        snprintf(text, KV_CELL_SIZE, "-");
    else if (decimals < 0)
        snprintf(text, KV_CELL_SIZE, "%.3e", number);
    else if (number != 0 && fabs(number) < 0.5 * pow(10, -decimals)) /* not 0 */
        snprintf(text, KV_CELL_SIZE, "%.1e", number);
    else
        snprintf(text, KV_CELL_SIZE, "%.*f", decimals, number);
}

void kv_csv_text(FILE *out, const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"') fputc('"', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

/* Doubles hold every whole number up to 2^53. */
static void print_number(FILE *out, double number)
{
    char text[KV_REAL_TEXT];
    bool const is_whole = fabs(number) <= 0x1p53 && rint(number) == number;
    if (is_whole && !(number == 0 && signbit(number)))
        fprintf(out, "%.0f", number);
    else
        fputs(kv_real_text(text, number), out);
}

void kv_csv_number(FILE *out, double number)
{
    if (!isnan(number)) print_number(out, number);
}

bool kv_json_text(FILE *out, const char *text)
{
    json_t *const string = json_string(text);
    bool const is_good = string && json_dumpf(string, out, JSON_ENCODE_ANY) == 0;
    json_decref(string);
    return is_good;
}

void kv_json_number(FILE *out, double number)
{
    if (isfinite(number))
        print_number(out, number);
    else
        fputs("null", out);
}
