/* A table of texts from a file, as it comes: inside tuner/ only.
 *
 * CSV as RFC 4180 has it: a header row, fields in quotes where they hold commas, quotes or line
 * breaks, lines ending with or without a carriage return; a byte order mark, empty lines and blanks
 * around unquoted fields are let go. HDF5: one 1-D dataset per column in the root group. Nothing is
 * known here of what the columns mean. */
#ifndef KVANT_TUNER_ROWS_H
#define KVANT_TUNER_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/text.h"

typedef struct {
    int64_t n_columns, n_rows;
    const char **names; /* [n_columns] */
    const char **cells; /* [n_rows][n_columns]; NULL in a column of HDF5 that is too short */
    int64_t *lines;     /* [n_rows] the line a row begins at; of HDF5 its index */
    bool has_lines;     /* else indices */
    char *text;         /* owns names and cells */
} kv_rows;

/* What is wrong with a file, so that all of it can be told at once: in the order of the lines,
 * those of the first lines where there are many. */
enum { KV_MOST_COMPLAINTS = 20 };
typedef struct {
    const char *path;
    bool has_lines;
    int64_t count;                     /* of all */
    int64_t where[KV_MOST_COMPLAINTS]; /* rising */
    char *sentences[KV_MOST_COMPLAINTS];
} kv_complaints;

/* Adds "path:line: ..." ("path: row i: ..." for HDF5, "path: ..." for where < 0). */
kv_status kv_complain(kv_complaints *complaints, kv_error *err, int64_t where, const char *format,
                      ...) KV_PRINTF(4, 5);

/* KV_EINPUT with everything that was complained of; KV_OK where that is nothing. */
kv_status kv_complaints_raise(const kv_complaints *complaints, kv_error *err);
void kv_complaints_free_contents(kv_complaints *complaints);

/* Reads a file of either kind. What cannot be read is complained of and left out; names are NULL
 * where not even a header is left. */
kv_status kv_rows_read(kv_rows *out, kv_complaints *complaints, const char *path, kv_error *err);
kv_status kv_rows_read_csv(kv_rows *out, kv_complaints *complaints, char *bytes, size_t size,
                           kv_error *err); /* takes `bytes`, which end with an uncounted 0 */
kv_status kv_rows_read_hdf5(kv_rows *out, const char *path, kv_error *err);
void kv_rows_free_contents(kv_rows *rows);

#endif
