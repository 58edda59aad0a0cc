/* What a file holds, as text: see kv_table_write_summary in table.h. */
#include <math.h>
#include <string.h>

#include "results/frame.h"
#include "results/table.h"

enum { NAME_WIDTH = 24, MOST_VALUES = 8 };

static void print_values(FILE *out, const kv_dimension *d)
{
    char buffer[KV_REAL_TEXT];
    int64_t const shown = d->length <= MOST_VALUES ? d->length : MOST_VALUES / 2;
    for (int64_t i = 0; i < shown; i++)
        fprintf(out, "%s%s", i ? ", " : "", kv_coordinate_text(buffer, d, i));
    if (shown < d->length) fprintf(out, ", ..., %s", kv_coordinate_text(buffer, d, d->length - 1));
}

static void print_array(FILE *out, const kv_record *r, const kv_array *a)
{
    fprintf(out, "  %-*s", NAME_WIDTH, a->name);
    if (a->units && *a->units) fprintf(out, " [%s]", a->units);
    if (a->long_name) fprintf(out, " %s", a->long_name);
    fputs(" (", out);
    for (int i = 0; i < a->rank; i++)
        fprintf(out, "%s%s", i ? ", " : "", r->dimensions[a->dimensions[i]].name);
    fputs(")", out);
    int64_t missing = 0;
    for (int64_t i = 0; a->numbers && i < a->count; i++) missing += isnan(a->numbers[i]);
    if (missing)
        fprintf(out, ", %lld of %lld values missing", (long long)missing, (long long)a->count);
    fputs("\n", out);
}

/* A text of many lines is shown by its size; the file holds it whole. */
static void print_attribute(FILE *out, const kv_attribute *a)
{
    char buffer[KV_REAL_TEXT];
    if (!a->text) kv_real_text(buffer, a->number);
    const char *const text = a->text ? a->text : buffer;
    int lines = 0;
    for (const char *s = text; *s; s++) lines += *s == '\n';
    fprintf(out, "  %-*s ", NAME_WIDTH, a->name);
    if (lines > 0)
        fprintf(out, "(%d lines)\n", lines + (text[strlen(text) - 1] != '\n'));
    else
        fprintf(out, "%s\n", text);
}

kv_status kv_table_write_summary(FILE *out, const kv_record *record, kv_error *err)
{
    const kv_attribute *const title = kv_record_attribute(record, "title");
    const kv_attribute *const complete = kv_record_attribute(record, "complete");
    if (title && title->text) fprintf(out, "%s\n", title->text);
    if (complete && !complete->text)
        fprintf(out, "%s\n",
                complete->number != 0 ? "complete" : "NOT COMPLETE: values are missing");
    fputs("\ndimensions\n", out);
    for (int i = 0; i < record->n_dimensions; i++) {
        const kv_dimension *const d = &record->dimensions[i];
        fprintf(out, "  %-*s %lld: ", NAME_WIDTH, d->name, (long long)d->length);
        print_values(out, d);
        fputs("\n", out);
    }
    fputs("\nmetrics\n", out);
    for (int i = 0; i < record->n_arrays; i++)
        if (record->arrays[i].numbers) print_array(out, record, &record->arrays[i]);
    fputs("\nprovenance\n", out);
    for (int i = 0; i < record->n_attributes; i++) {
        const kv_attribute *const a = &record->attributes[i];
        if (a != title && a != complete) print_attribute(out, a);
    }
    return ferror(out) ? KV_FAIL(err, KV_EIO, "writing the summary failed") : KV_OK;
}
