/* Tables: see table.h. Text and Markdown are one grid of cells, printed in two ways. */
#include "results/table.h"

#include <math.h>
#include <string.h>

#include "kernels/memory.h"
#include "results/frame.h"
#include "results/grid.h"
#include "results/pairs.h"
#include "results/table_group.h"

static const struct {
    const char *name;
    kv_table_format format;
} format_table[] = {{"table", KV_TABLE_TEXT},
                    {"csv", KV_TABLE_CSV},
                    {"json", KV_TABLE_JSON},
                    {"markdown", KV_TABLE_MARKDOWN}};

kv_status kv_table_find_format(kv_table_format *out, const char *name, kv_error *err)
{
    for (size_t i = 0; i < sizeof format_table / sizeof *format_table; i++)
        if (strcmp(name, format_table[i].name) == 0) {
            *out = format_table[i].format;
            return KV_OK;
        }
    return KV_FAIL(err, KV_EREQUEST, "format \"%s\": there are table, csv, json and markdown",
                   name);
}

/* mean and half width to two digits of the half width: 0.105 ± 0.012 */
static void format_interval(char text[KV_CELL_SIZE], const kv_interval *x, int decimals)
{
    double const half = (x->high - x->low) / 2;
    if (isnan(x->mean) || !isfinite(half) || !(half > 0)) {
        kv_cell_number(text, x->mean, decimals);
    } else {
        int const exponent = (int)floor(log10(half)), places = 1 - exponent;
        if (places > 8 || exponent > 8)
            snprintf(text, KV_CELL_SIZE, "%.3e ± %.1e", x->mean, half);
        else
            snprintf(text, KV_CELL_SIZE, "%.*f ± %.*f", places > 0 ? places : 0, x->mean,
                     places > 0 ? places : 0, half);
    }
}

static double largest_of(const kv_frame *f, int metric)
{
    double largest = 0;
    for (int64_t row = 0; row < f->n_rows; row++)
        largest = fmax(largest, fabs(f->cells[row * f->n_metrics + metric].mean));
    return largest;
}

/* What is spread over columns: an axis, or a part of a key x value matrix. */
typedef struct {
    int cols, across; /* axis, part; -1 where it is not that */
    int64_t n_blocks; /* how many coordinates it has */
    kv_pairs pairs;   /* where across >= 0 */
} layout;

/* Which axes are columns of texts, in which order: the asked one first, `cols` not at all, and none
 * that has a single value unless it was asked for or is the scheme. */
static int text_axes(int axes[KV_RECORD_MAX_RANK], const kv_frame *f, const char *rows, int cols)
{
    int n = 0;
    int const first = kv_frame_axis(f, rows);
    if (first >= 0 && first != cols) axes[n++] = first;
    for (int i = 0; i < f->n_axes; i++) {
        int const is_needed = i == kv_frame_axis(f, "scheme") || f->extents[i] > 1;
        if (i != first && i != cols && is_needed) axes[n++] = i;
    }
    return n;
}

/* Rows that differ only in what is spread over columns share a line: where row `row` goes. */
static void place_of(int64_t *line, int64_t *block, const kv_frame *f, const layout *l, int64_t row)
{
    *line = row, *block = 0;
    int64_t below = 1;
    if (l->across >= 0) {
        below = f->n_rows / l->pairs.n_schemes; /* the scheme is the first axis */
        *block = l->pairs.number[l->across][row / below];
        *line = l->pairs.number[!l->across][row / below] * below + row % below;
    } else if (l->cols >= 0) {
        for (int i = l->cols + 1; i < f->n_axes; i++) below *= f->extents[i];
        *block = row / below % l->n_blocks;
        *line = row / (below * l->n_blocks) * below + row % below;
    }
}

/* The coordinate of `row` on the axis, or the scheme's part that is not spread out. */
static const char *axis_text(char buffer[KV_REAL_TEXT], const kv_frame *f, const layout *l,
                             int axis, int64_t row)
{
    if (l->across >= 0 && axis == 0) return kv_pairs_text(f, !l->across, row);
    return kv_coordinate_text(buffer, kv_frame_dimension(f, axis),
                              f->index[row * f->n_axes + axis]);
}

static kv_status head_cells(kv_grid *g, const kv_frame *f, const layout *l, int n_texts,
                            const int *texts, int64_t row, int64_t block, kv_error *err)
{
    kv_status status = KV_OK;
    char buffer[KV_REAL_TEXT], head[512];
    for (int i = 0; i < n_texts; i++) {
        const kv_dimension *const d = kv_frame_dimension(f, texts[i]);
        static const char *const parts[] = {"key (columns: value)", "value (columns: key)"};
        int const is_part = l->across >= 0 && texts[i] == 0;
        g->columns[i].is_number = d->numbers != NULL;
        KV_TRY(kv_grid_set(g, 0, i, is_part ? parts[!l->across] : d->name, err));
    }
    for (int m = 0; m < f->n_metrics; m++) {
        const kv_array *const a = f->metrics[m];
        int const has_unit = a->units && *a->units && strcmp(a->units, "1") != 0;
        int used = snprintf(head, sizeof head, "%.200s%s%.40s%s", a->name, has_unit ? " [" : "",
                            has_unit ? a->units : "", has_unit ? "]" : "");
        if (l->cols >= 0 || l->across >= 0) {
            const char *const name = l->cols >= 0 ? kv_frame_dimension(f, l->cols)->name : "scheme";
            int const is_scheme = strcmp(name, "scheme") == 0; /* the coordinate says it */
            if (f->n_metrics == 1) used = 0;
            snprintf(head + used, sizeof head - (size_t)used, "%s%.100s%s%.100s", used ? ", " : "",
                     is_scheme ? "" : name, is_scheme ? "" : "=",
                     l->across >= 0 ? l->pairs.text[l->across][block]
                                    : axis_text(buffer, f, l, l->cols, row));
        }
        int64_t const place = n_texts + block * f->n_metrics + m;
        g->columns[place].is_number = 1;
        KV_TRY(kv_grid_set(g, 0, place, head, err));
    }
done:
    return status;
}

static kv_status make_grid(kv_grid *g, const kv_frame *f, const layout *l, const char *rows,
                           kv_error *err)
{
    kv_status status = KV_OK;
    int texts[KV_RECORD_MAX_RANK];
    int const n_texts = text_axes(texts, f, rows, l->cols);
    void *memory = NULL;
    int *decimals = NULL;
    KV_TRY(
        kv_grid_create(g, 1 + f->n_rows / l->n_blocks, n_texts + l->n_blocks * f->n_metrics, err));
    KV_TRY(kv_allocate(&memory, (size_t)f->n_metrics, sizeof *decimals, err));
    decimals = memory;
    for (int m = 0; m < f->n_metrics; m++)
        decimals[m] = kv_usual_decimals(f->metrics[m]->units, largest_of(f, m));
    for (int64_t row = 0; row < f->n_rows; row++) {
        char buffer[KV_CELL_SIZE];
        int64_t line, block;
        place_of(&line, &block, f, l, row);
        if (line == 0) KV_TRY(head_cells(g, f, l, n_texts, texts, row, block, err));
        for (int i = 0; i < n_texts && block == 0; i++)
            KV_TRY(kv_grid_set(g, 1 + line, i, axis_text(buffer, f, l, texts[i], row), err));
        for (int m = 0; m < f->n_metrics; m++) {
            format_interval(buffer, &f->cells[row * f->n_metrics + m], decimals[m]);
            KV_TRY(kv_grid_set(g, 1 + line, n_texts + block * f->n_metrics + m, buffer, err));
        }
    }
done:
    kv_free(decimals);
    return status;
}

/* The asked layout; rows by key are columns by value and the other way round. */
static kv_status make_layout(layout *l, const kv_frame *f, const kv_table_request *request,
                             kv_error *err)
{
    kv_status status = KV_OK;
    int const down = kv_pairs_part(f->record, request->rows);
    l->across = kv_pairs_part(f->record, request->cols);
    l->cols = kv_frame_axis(f, request->cols), l->n_blocks = 1;
    if (l->cols >= 0) l->n_blocks = f->extents[l->cols];
    if (down >= 0 && (request->cols ? l->across != !down : 0))
        return KV_FAIL(err, KV_EREQUEST, "rows by %s go with columns by %s, not by %s",
                       request->rows, down == KV_PART_KEY ? "value" : "key", request->cols);
    if (down >= 0) l->across = !down;
    if (l->across < 0) return KV_OK;
    KV_TRY(kv_pairs_find(&l->pairs, f, err));
    if (l->pairs.n_schemes == 0)
        KV_TRY(
            KV_FAIL(err, KV_EREQUEST,
                    "rows and columns by key and value need a scheme for every pair of the two"));
    l->n_blocks = l->pairs.count[l->across];
done:
    return status;
}

static kv_status print_texts(FILE *out, const kv_frame *f, const kv_table_request *request,
                             kv_error *err)
{
    kv_status status = KV_OK;
    kv_grid g = {0};
    layout l = {0};
    KV_TRY(make_layout(&l, f, request, err));
    KV_TRY(make_grid(&g, f, &l, request->rows, err));
    kv_grid_print(out, &g, request->format == KV_TABLE_MARKDOWN);
done:
    kv_pairs_free_contents(&l.pairs);
    kv_grid_free_contents(&g);
    return status;
}

static const char *const part_columns[KV_N_PARTS] = {"key", "value"};

static void print_csv(FILE *out, const kv_frame *f)
{
    char buffer[KV_REAL_TEXT];
    for (int64_t row = -1; row < f->n_rows; row++) { /* -1: the head */
        for (int i = 0; i < f->n_axes; i++) {
            const kv_dimension *const d = kv_frame_dimension(f, i);
            if (i) fputc(',', out);
            kv_csv_text(out, row < 0
                                 ? d->name
                                 : kv_coordinate_text(buffer, d, f->index[row * f->n_axes + i]));
            for (int k = 0; k < KV_N_PARTS && i == kv_frame_axis(f, "scheme"); k++) {
                const char *const part = kv_pairs_text(f, k, row < 0 ? 0 : row);
                if (!part) continue;
                fputc(',', out);
                kv_csv_text(out, row < 0 ? part_columns[k] : part);
            }
        }
        for (int m = 0; m < f->n_metrics; m++) {
            static const char *const endings[] = {"", "_lo", "_hi"};
            const kv_interval *const x = row < 0 ? NULL : &f->cells[row * f->n_metrics + m];
            for (int k = 0; k < 3; k++) {
                if (f->n_axes || m || k) fputc(',', out);
                if (x)
                    kv_csv_number(out, k == 0 ? x->mean : k == 1 ? x->low : x->high);
                else
                    fprintf(out, "%s%s", f->metrics[m]->name, endings[k]);
            }
        }
        fputc('\n', out);
    }
}

/* `, "name": `, to be followed by the value. */
static int print_json_name(FILE *out, const char *name, const char *ending, int is_first)
{
    char whole[512];
    snprintf(whole, sizeof whole, "%.500s%s", name, ending);
    fputs(is_first ? "" : ", ", out);
    int const is_good = kv_json_text(out, whole);
    fputs(": ", out);
    return is_good;
}

static int print_json_row(FILE *out, const kv_frame *f, int64_t row)
{
    int is_good = 1;
    for (int i = 0; i < f->n_axes; i++) {
        const kv_dimension *const d = kv_frame_dimension(f, i);
        int64_t const at = f->index[row * f->n_axes + i];
        is_good &= print_json_name(out, d->name, "", i == 0);
        if (d->texts)
            is_good &= kv_json_text(out, d->texts[at]);
        else
            kv_json_number(out, d->numbers[at]);
        for (int k = 0; k < KV_N_PARTS && i == kv_frame_axis(f, "scheme"); k++) {
            const char *const part = kv_pairs_text(f, k, row);
            if (!part) continue;
            is_good &= print_json_name(out, part_columns[k], "", 0);
            is_good &= kv_json_text(out, part);
        }
    }
    for (int m = 0; m < f->n_metrics; m++) {
        const kv_interval *const x = &f->cells[row * f->n_metrics + m];
        const char *const name = f->metrics[m]->name;
        is_good &= print_json_name(out, name, "", f->n_axes + m == 0);
        kv_json_number(out, x->mean);
        is_good &= print_json_name(out, name, "_lo", 0);
        kv_json_number(out, x->low);
        is_good &= print_json_name(out, name, "_hi", 0);
        kv_json_number(out, x->high);
    }
    return is_good;
}

static kv_status print_json(FILE *out, const kv_frame *f, kv_error *err)
{
    fputs("[", out);
    for (int64_t row = 0; row < f->n_rows; row++) {
        fputs(row ? ",\n {" : "\n {", out);
        if (!print_json_row(out, f, row))
            return KV_FAIL(err, KV_ENOMEM, "out of memory: a row as JSON");
        fputs("}", out);
    }
    fputs("\n]\n", out);
    return KV_OK;
}

kv_status kv_table_write(FILE *out, const kv_record *record, const kv_table_request *request,
                         kv_error *err)
{
    kv_status status = KV_OK;
    kv_frame *f = NULL;
    kv_frame_request const wanted = {
        .n_metrics = request->n_metrics,
        .metrics = request->metrics,
        .n_where = request->n_where,
        .where = request->where,
        .extra = {kv_pairs_part(record, request->rows) >= 0 ? NULL : request->rows,
                  kv_pairs_part(record, request->cols) >= 0 ? NULL : request->cols}};
    for (int i = 0; i < request->n_metrics; i++)
        if (kv_table_is_group(record, request->metrics[i]))
            return kv_table_write_group(out, record, request, err);
    KV_TRY(kv_frame_create(&f, record, &wanted, err));
    if (request->format == KV_TABLE_CSV)
        print_csv(out, f);
    else if (request->format == KV_TABLE_JSON)
        KV_TRY(print_json(out, f, err));
    else
        KV_TRY(print_texts(out, f, request, err));
    if (ferror(out)) KV_TRY(KV_FAIL(err, KV_EIO, "writing the table failed"));
done:
    kv_frame_free(f);
    return status;
}

/* Whether a metric of the table has this dimension. */
static bool is_spanned(const kv_record *record, const kv_table_request *request, int dimension)
{
    bool found = false;
    for (int i = 0; i < record->n_arrays; i++) {
        const kv_array *const a = &record->arrays[i];
        bool is_asked = a->numbers && request->n_metrics == 0;
        for (int m = 0; m < request->n_metrics; m++)
            is_asked |= strcmp(request->metrics[m], a->name) == 0;
        for (int r = 0; r < a->rank && is_asked; r++) found |= a->dimensions[r] == dimension;
    }
    return found;
}

/* Whether the request spreads this dimension out, or keeps only some of it. */
static bool is_named(const kv_table_request *request, const char *dimension)
{
    size_t const length = strlen(dimension);
    bool found = (request->rows && strcmp(request->rows, dimension) == 0) ||
                 (request->cols && strcmp(request->cols, dimension) == 0);
    for (int w = 0; w < request->n_where; w++)
        found |=
            strncmp(request->where[w], dimension, length) == 0 && request->where[w][length] == '=';
    return found;
}

void kv_table_note(FILE *notes, const kv_record *record, const kv_table_request *request)
{
    const char *first = NULL;
    for (int i = 0; i < record->n_dimensions && request->format == KV_TABLE_TEXT; i++) {
        const kv_dimension *const d = &record->dimensions[i];
        if (d->length < 2 || (strcmp(d->name, "layer") && strcmp(d->name, "head"))) continue;
        if (!is_spanned(record, request, i) || is_named(request, d->name)) continue;
        fprintf(notes, "%s %lld %ss", first ? " and" : "each cell is taken over",
                (long long)d->length, d->name);
        first = first ? first : d->name;
    }
    if (first) fprintf(notes, "; kvant show FILE --rows %s spreads them\n", first);
}
