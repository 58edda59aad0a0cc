/* Tables from a record: metrics with intervals, for the terminal, CSV, JSON and Markdown.
 *
 * One row per scheme and swept point. In each row every replicate (a `seed`) gives one value: the
 * metric combined over `layer` and `head` as its array says (mean unless said otherwise); the row
 * shows the mean over the seeds and its 95 % interval. `class` is "all". A dimension named in rows
 * or cols is spread out instead, one named in `where` keeps only the values given. Where the
 * schemes are every pair of a key and a value scheme, rows `key` and cols `value` (or the other way
 * round; one implies the other) show them as a matrix.
 *
 * A metric that is no array but the first part of the names of several (frontier of frontier_bytes,
 * frontier_error, ...) shows them together: one row per element of the first dimension they share,
 * one column per array, named by the rest of its name; an array of one dimension more takes a
 * column per element of that, named DIMENSION_COORDINATE (after the rest of its name and "_" where
 * several have that dimension). Numbers that stand for texts are shown as
 * these.
 *
 *     kv_table_write(stdout, record, &(kv_table_request){.format = KV_TABLE_CSV}, &err);
 */
#ifndef KVANT_RESULTS_TABLE_H
#define KVANT_RESULTS_TABLE_H

#include <stdio.h>

#include "kernels/record.h"

typedef enum { KV_TABLE_TEXT, KV_TABLE_CSV, KV_TABLE_JSON, KV_TABLE_MARKDOWN } kv_table_format;

/* All zero: every metric, every scheme and swept point, as text. */
typedef struct {
    int n_metrics, n_where;
    const char *const *metrics; /* [n_metrics] array names; none = every array of numbers */
    const char *const *where;   /* [n_where] "dimension=value"; several of one dimension: any */
    const char *rows, *cols;    /* dimension names, key, value or NULL; cols shape text and
                                 * Markdown only, so do key and value */
    kv_table_format format;
} kv_table_request;

/* Finds a format by its name (table, csv, json, markdown). */
kv_status kv_table_find_format(kv_table_format *out, const char *name, kv_error *err);

/* Text and Markdown: numbers rounded to what their interval supports (0.105 ± 0.012); without an
 * interval to the usual digits of their unit. CSV and JSON: scheme, key, value, every swept
 * parameter, then NAME, NAME_lo, NAME_hi, in full precision; an empty cell (null) where there is no
 * value. KV_EREQUEST for a metric, dimension or value that the record does not have. */
kv_status kv_table_write(FILE *out, const kv_record *record, const kv_table_request *request,
                         kv_error *err);

/* What the cells of such a table are means over, or largest values, beside the seeds, and how these
 * are spread out; nothing for other formats, or where there is nothing to say. */
void kv_table_note(FILE *notes, const kv_record *record, const kv_table_request *request);

/* What a file holds: title, dimensions, metrics with units, provenance, complete or not. */
kv_status kv_table_write_summary(FILE *out, const kv_record *record, kv_error *err);

#endif
