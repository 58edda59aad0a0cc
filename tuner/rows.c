/* Tables of texts from CSV: see rows.h. Fields are cut and unquoted inside the file's own bytes:
 * what is left of a field is never longer than what stood there. */
#include "tuner/rows.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kernels/file.h"
#include "kernels/memory.h"

static int64_t kept(const kv_complaints *c)
{
    return c->count < KV_MOST_COMPLAINTS ? c->count : KV_MOST_COMPLAINTS;
}

kv_status kv_complain(kv_complaints *complaints, kv_error *err, int64_t where, const char *format,
                      ...)
{
    char sentence[512], *copy = NULL;
    int64_t at = kept(complaints);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    while (at > 0 && complaints->where[at - 1] > where) at--;
    if (at == KV_MOST_COMPLAINTS) {
        complaints->count++;
        return KV_OK;
    }
    kv_status const status = kv_duplicate(&copy, sentence, err);
    if (status != KV_OK) return status;
    int64_t last = kept(complaints);
    if (last == KV_MOST_COMPLAINTS) kv_free(complaints->sentences[--last]);
    for (; last > at; last--) {
        complaints->where[last] = complaints->where[last - 1];
        complaints->sentences[last] = complaints->sentences[last - 1];
    }
    complaints->where[at] = where, complaints->sentences[at] = copy;
    complaints->count++;
    return KV_OK;
}

kv_status kv_complaints_raise(const kv_complaints *complaints, kv_error *err)
{
    kv_status status = KV_OK;
    kv_text all = {0};
    if (complaints->count == 0) return KV_OK;
    for (int64_t i = 0; i < kept(complaints); i++) {
        int64_t const where = complaints->where[i];
        KV_TRY(kv_text_add(&all, err, "%s%s:", i ? "\n" : "", complaints->path));
        if (where >= 0)
            KV_TRY(kv_text_add(
                &all, err, complaints->has_lines ? "%" PRId64 ":" : " row %" PRId64 ":", where));
        KV_TRY(kv_text_add(&all, err, " %s", complaints->sentences[i]));
    }
    if (complaints->count > KV_MOST_COMPLAINTS)
        KV_TRY(kv_text_add(&all, err, "\nand %" PRId64 " more",
                           complaints->count - KV_MOST_COMPLAINTS));
    status = KV_FAIL(err, KV_EINPUT, "%s", all.data);
done:
    kv_text_free(&all);
    return status;
}

void kv_complaints_free_contents(kv_complaints *complaints)
{
    for (int64_t i = 0; i < kept(complaints); i++) kv_free(complaints->sentences[i]);
    *complaints = (kv_complaints){0};
}

void kv_rows_free_contents(kv_rows *rows)
{
    kv_free(rows->names), kv_free(rows->cells), kv_free(rows->lines), kv_free(rows->text);
    *rows = (kv_rows){0};
}

/* ---- CSV ---- */

/* Fields of the record being read, and where it began. */
typedef struct {
    char *at, *end;
    int64_t line, first_line;
    const char **fields;
    size_t n_fields, capacity;
    bool is_blank; /* an empty line */
} scanner;

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static void skip_blanks(scanner *s)
{
    while (s->at < s->end && is_blank(*s->at)) s->at++;
}

static bool is_at_line_end(const scanner *s)
{
    return s->at == s->end || *s->at == '\n' ||
           (*s->at == '\r' && s->at + 1 < s->end && s->at[1] == '\n');
}

/* *end is where the field's terminator goes, once what stands there has been looked at. NULL, or
 * what is wrong on line s->line. */
static const char *scan_quoted(char **end, scanner *s)
{
    char *w = ++s->at;
    int64_t const opened = s->line;
    for (;; s->at++) {
        if (s->at == s->end) {
            s->line = opened;
            return "the quote opened here is never closed";
        }
        if (*s->at == '"' && s->at + 1 < s->end && s->at[1] == '"')
            s->at++;
        else if (*s->at == '"')
            break;
        s->line += *s->at == '\n';
        *w++ = *s->at;
    }
    s->at++, *end = w;
    skip_blanks(s);
    return is_at_line_end(s) || *s->at == ',' ? NULL
                                              : "text after a quoted field; a quote within one is "
                                                "written twice";
}

static const char *scan_plain(char **end, scanner *s)
{
    char *const start = s->at;
    for (; !is_at_line_end(s) && *s->at != ','; s->at++) {
        if (*s->at == '"') return "a quote within a field that does not begin with one";
        if (*s->at == '\r') return "a carriage return without a line feed";
    }
    *end = s->at;
    while (*end > start && is_blank((*end)[-1])) --*end;
    return NULL;
}

/* One record; *wrong as above. */
static kv_status scan_record(const char **wrong, scanner *s, kv_error *err)
{
    kv_status status = KV_OK;
    s->first_line = s->line, s->n_fields = 0;
    for (bool is_last = false; !is_last;) {
        void *list = s->fields;
        char *end = NULL;
        skip_blanks(s);
        bool const is_quoted = s->at < s->end && *s->at == '"';
        char *const start = s->at + is_quoted;
        *wrong = is_quoted ? scan_quoted(&end, s) : scan_plain(&end, s);
        if (*wrong) goto done;
        is_last = is_at_line_end(s);
        s->is_blank = is_last && s->n_fields == 0 && !is_quoted && end == start;
        if (s->at < s->end && *s->at == '\r') s->at++;
        s->line += s->at < s->end && is_last;
        s->at += s->at < s->end;
        *end = 0;
        KV_TRY(kv_grow(&list, &s->capacity, s->n_fields, s->n_fields + 1, sizeof *s->fields, err));
        s->fields = list;
        s->fields[s->n_fields++] = start;
    }
done:
    return status;
}

/* The first line with bytes that are not UTF-8, or 0, which no text holds; 0 for none. */
static int64_t bad_line(const char *bytes, size_t size)
{
    int64_t line = 1;
    for (size_t i = 0, n; i < size; i += n) {
        n = kv_utf8_length(bytes + i);
        if (n == 0) return line;
        line += bytes[i] == '\n';
    }
    return 0;
}

static kv_status take_header(kv_rows *rows, const scanner *s, kv_error *err)
{
    void *names = NULL;
    kv_status const status = kv_allocate(&names, s->n_fields, sizeof *rows->names, err);
    if (status != KV_OK) return status;
    memcpy(names, s->fields, s->n_fields * sizeof *s->fields);
    rows->names = names, rows->n_columns = (int64_t)s->n_fields;
    return KV_OK;
}

static kv_status take_row(kv_rows *rows, size_t *cell_capacity, size_t *line_capacity,
                          const scanner *s, kv_error *err)
{
    kv_status status = KV_OK;
    void *cells = rows->cells, *lines = rows->lines;
    size_t const n = s->n_fields, used = n * (size_t)rows->n_rows;
    KV_TRY(kv_grow(&cells, cell_capacity, used, used + n, sizeof *rows->cells, err));
    rows->cells = cells;
    KV_TRY(kv_grow(&lines, line_capacity, (size_t)rows->n_rows, (size_t)rows->n_rows + 1,
                   sizeof *rows->lines, err));
    rows->lines = lines;
    memcpy(rows->cells + used, s->fields, n * sizeof *s->fields);
    rows->lines[rows->n_rows++] = s->first_line;
done:
    return status;
}

kv_status kv_rows_read_csv(kv_rows *out, kv_complaints *complaints, char *bytes, size_t size,
                           kv_error *err)
{
    kv_status status = KV_OK;
    kv_rows rows = {.has_lines = true, .text = bytes};
    scanner s = {.at = bytes, .end = bytes + size, .line = 1};
    size_t cell_capacity = 0, line_capacity = 0;
    int64_t const line = bad_line(bytes, size);
    if (line) {
        KV_TRY(kv_complain(complaints, err, line, "is not text in UTF-8"));
        goto done;
    }
    if (size >= 3 && memcmp(bytes, "\xEF\xBB\xBF", 3) == 0) s.at += 3;
    while (s.at < s.end) {
        const char *wrong = NULL;
        KV_TRY(scan_record(&wrong, &s, err));
        if (wrong) {
            KV_TRY(kv_complain(complaints, err, s.line, "%s", wrong));
            break; /* where the next record begins is not known */
        }
        if (s.is_blank) continue;
        if (!rows.names)
            KV_TRY(take_header(&rows, &s, err));
        else if ((int64_t)s.n_fields == rows.n_columns)
            KV_TRY(take_row(&rows, &cell_capacity, &line_capacity, &s, err));
        else
            KV_TRY(kv_complain(complaints, err, s.first_line,
                               "%zu fields, but the header has %" PRId64, s.n_fields,
                               rows.n_columns));
    }
    if (!rows.names && complaints->count == 0) KV_TRY(kv_complain(complaints, err, -1, "is empty"));
    *out = rows, rows = (kv_rows){0};
done:
    kv_free(s.fields);
    kv_rows_free_contents(&rows);
    return status;
}

kv_status kv_rows_read(kv_rows *out, kv_complaints *complaints, const char *path, kv_error *err)
{
    kv_status status = KV_OK;
    char *bytes = NULL;
    size_t size = 0;
    KV_TRY(kv_file_read(&bytes, &size, path, err));
    if (size >= 8 && memcmp(bytes, "\x89HDF\r\n\x1a\n", 8) == 0) {
        kv_free(bytes), bytes = NULL;
        complaints->has_lines = false;
        KV_TRY(kv_rows_read_hdf5(out, path, err));
        goto done;
    }
    complaints->has_lines = true;
    char *const taken = bytes;
    bytes = NULL;
    status = kv_rows_read_csv(out, complaints, taken, size, err);
done:
    kv_free(bytes);
    return status;
}
