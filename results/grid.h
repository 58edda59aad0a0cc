/* Cells and how they are written: a grid of texts for the terminal and Markdown, and the values of
 * CSV and JSON.
 *
 *     kv_grid g = {0};
 *     KV_TRY(kv_grid_create(&g, 1 + n, 2, &err));
 *     KV_TRY(kv_grid_set(&g, 0, 0, "layer", &err)); ...
 *     kv_grid_print(stdout, &g, false);
 *     kv_grid_free_contents(&g); */
#ifndef KVANT_RESULTS_GRID_H
#define KVANT_RESULTS_GRID_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "kernels/error.h"

enum { KV_CELL_SIZE = 96 };

typedef struct {
    bool is_number; /* aligned to the right */
    int width;      /* set by printing */
} kv_grid_column;

/* Rows of texts; the first row is the head. */
typedef struct {
    int64_t n_rows, n_columns;
    char **cells;            /* [n_rows][n_columns]; NULL is empty */
    kv_grid_column *columns; /* [n_columns] */
} kv_grid;

/* Fills *out, whose contents kv_grid_free_contents frees, also after a failure. */
kv_status kv_grid_create(kv_grid *out, int64_t n_rows, int64_t n_columns, kv_error *err);
void kv_grid_free_contents(kv_grid *grid);
kv_status kv_grid_set(kv_grid *grid, int64_t row, int64_t column, const char *text, kv_error *err);

/* Columns as wide as their cells, two blanks between them; or as a Markdown table. */
void kv_grid_print(FILE *out, kv_grid *grid, bool is_markdown);

/* Decimals that show a column whose largest magnitude is `largest`: those of its unit, fewer where
 * values are large, more where less than three digits would be seen; -1 = scientific. */
int kv_usual_decimals(const char *units, double largest);

/* A number so; "-" for NaN, and never 0 for what is not. */
void kv_cell_number(char text[KV_CELL_SIZE], double number, int decimals);

/* RFC 4180: quoted where it holds a comma, a quote or a line break. */
void kv_csv_text(FILE *out, const char *text);
/* In full precision, whole numbers without an exponent; nothing for NaN. */
void kv_csv_number(FILE *out, double number);

/* A text with JSON's quotes and escapes; false when memory runs out. */
bool kv_json_text(FILE *out, const char *text);
void kv_json_number(FILE *out, double number); /* null for NaN and Inf */

#endif
