/* Problems from tables measured elsewhere: see problem.h. All that is wrong with a file is told at
 * once. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/memory.h"
#include "kernels/shorthand.h"
#include "tuner/names.h"
#include "tuner/problem_parts.h"
#include "tuner/rows.h"

enum { LAYER, KEY, VALUE, TENSOR, SCHEME, ERROR, BYTES, N_COLUMNS };
static const char *const column_names[N_COLUMNS] = {"layer",  "key",   "value", "tensor",
                                                    "scheme", "error", "bytes"};
static const bool column_sets[2][N_COLUMNS] = {
    {[LAYER] = true, [KEY] = true, [VALUE] = true, [ERROR] = true, [BYTES] = true},
    {[LAYER] = true, [TENSOR] = true, [SCHEME] = true, [ERROR] = true, [BYTES] = true}};
/* Of layers what a policy takes, of bytes the whole numbers up to which a double holds all. */
static const int64_t most[N_COLUMNS] = {[LAYER] = 1000000000000000, [BYTES] = INT64_C(1) << 53};

typedef struct {
    int64_t layer, bytes;
    double error;
    int32_t key, value; /* schemes; -1 where the row has none */
    int64_t row;        /* of the file; -1: the row is no good */
} entry;

typedef struct {
    kv_rows rows;
    kv_complaints complaints;
    int64_t columns[N_COLUMNS]; /* -1: not there */
    bool is_separable;
    entry *entries; /* [n_rows] in the order of the file, then sorted by layer */
    kv_problem *problem;
} loader;

static const char *cell(const loader *l, int64_t row, int column)
{
    return l->rows.cells[row * l->rows.n_columns + l->columns[column]];
}

/* ---- columns ---- */

static kv_status find_columns(loader *l, kv_error *err)
{
    kv_status status = KV_OK;
    for (int c = 0; c < N_COLUMNS; c++) l->columns[c] = -1;
    for (int64_t i = 0; i < l->rows.n_columns; i++) {
        for (int64_t k = 0; k < i; k++)
            if (strcmp(l->rows.names[i], l->rows.names[k]) == 0)
                KV_TRY(kv_complain(&l->complaints, err, -1, "column \"%.80s\" is there twice",
                                   l->rows.names[i]));
        for (int c = 0; c < N_COLUMNS; c++)
            if (strcmp(l->rows.names[i], column_names[c]) == 0) l->columns[c] = i;
    }
done:
    return status;
}

/* The name in the file that may have been meant by a missing column. */
static const char *meant(const loader *l, const char *column)
{
    return kv_closest_name(column, l->rows.names, (size_t)l->rows.n_columns);
}

static bool has(const loader *l, int column)
{
    return l->columns[column] >= 0;
}

/* Which of the two layouts it is, and that it is whole. */
static kv_status check_columns(loader *l, kv_error *err)
{
    static const char *const both =
        "layer,key,value,error,bytes or layer,tensor,scheme,error,bytes";
    kv_status status = KV_OK;
    kv_complaints *const c = &l->complaints;
    bool const is_pairs = has(l, KEY) || has(l, VALUE);
    l->is_separable = has(l, TENSOR) || has(l, SCHEME);
    if (is_pairs && l->is_separable) {
        KV_TRY(kv_complain(c, err, -1, "columns %s and %s: a table has key,value or tensor,scheme",
                           column_names[has(l, KEY) ? KEY : VALUE],
                           column_names[has(l, TENSOR) ? TENSOR : SCHEME]));
        goto done;
    }
    if (!is_pairs && !l->is_separable) {
        const char *const key = meant(l, "key"), *const scheme = meant(l, "scheme");
        l->is_separable = scheme && !key;
        if (!key && !scheme) {
            bool const is_one = l->rows.n_columns == 1;
            KV_TRY(kv_complain(c, err, -1, "columns %s are needed%s", both,
                               is_one && l->rows.has_lines ? ", separated by commas" : ""));
            goto done;
        }
    }
    for (int i = 0; i < N_COLUMNS; i++) {
        if (!column_sets[l->is_separable][i] || has(l, i)) continue;
        const char *const near = meant(l, column_names[i]);
        KV_TRY(kv_complain(c, err, -1, "column %s is missing%s%.80s%s", column_names[i],
                           near ? "; is it \"" : "", near ? near : "", near ? "\"?" : ""));
    }
done:
    return status;
}

/* Columns of HDF5 may differ in length. */
static kv_status check_lengths(loader *l, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t lengths[N_COLUMNS] = {0}, longest = 0;
    for (int c = 0; c < N_COLUMNS; c++) {
        if (!column_sets[l->is_separable][c]) continue;
        while (lengths[c] < l->rows.n_rows && cell(l, lengths[c], c)) lengths[c]++;
        if (lengths[c] > longest) longest = lengths[c];
    }
    for (int c = 0; c < N_COLUMNS; c++)
        if (column_sets[l->is_separable][c] && lengths[c] != lengths[LAYER])
            KV_TRY(kv_complain(&l->complaints, err, -1,
                               "%s has %" PRId64 " values, but layer has %" PRId64, column_names[c],
                               lengths[c], lengths[LAYER]));
    l->rows.n_rows = longest;
done:
    return status;
}

/* ---- rows ---- */

static kv_status read_whole(int64_t *out, bool *is_good, loader *l, int64_t row, int column,
                            kv_error *err)
{
    const char *const text = cell(l, row, column);
    bool const is_whole = kv_parse_int(text, out) && *out >= 0;
    if (is_whole && *out <= most[column]) return KV_OK;
    *is_good = false;
    if (is_whole)
        return kv_complain(&l->complaints, err, l->rows.lines[row],
                           "%s: at most %" PRId64 " is possible, found %.80s", column_names[column],
                           most[column], text);
    return kv_complain(&l->complaints, err, l->rows.lines[row],
                       "%s: expected a whole number, 0 or more, found \"%.80s\"",
                       column_names[column], text);
}

static kv_status read_name(bool *is_good, loader *l, int64_t row, int column, kv_error *err)
{
    if (*cell(l, row, column)) return KV_OK;
    *is_good = false;
    return kv_complain(&l->complaints, err, l->rows.lines[row], "%s: is empty",
                       column_names[column]);
}

/* 1 key, 0 value, -1 neither. */
static int tensor_of(const char *text)
{
    return strcmp(text, "key") == 0 ? 1 : strcmp(text, "value") == 0 ? 0 : -1;
}

static kv_status read_row(loader *l, int64_t row, kv_error *err)
{
    kv_status status = KV_OK;
    entry *const e = &l->entries[row];
    bool is_good = true;
    *e = (entry){.key = -1, .value = -1};
    KV_TRY(read_whole(&e->layer, &is_good, l, row, LAYER, err));
    if (l->is_separable) {
        const char *const tensor = cell(l, row, TENSOR);
        if (tensor_of(tensor) < 0) {
            is_good = false;
            KV_TRY(kv_complain(&l->complaints, err, l->rows.lines[row],
                               "tensor: expected key or value, found \"%.80s\"", tensor));
        }
        KV_TRY(read_name(&is_good, l, row, SCHEME, err));
    } else {
        KV_TRY(read_name(&is_good, l, row, KEY, err));
        KV_TRY(read_name(&is_good, l, row, VALUE, err));
    }
    const char *const error = cell(l, row, ERROR);
    if (!kv_parse_real(error, &e->error) || !(e->error >= 0)) {
        is_good = false;
        KV_TRY(kv_complain(&l->complaints, err, l->rows.lines[row],
                           "error: expected a finite number, 0 or more, found \"%.80s\"", error));
    }
    e->error = fabs(e->error); /* -0 */
    KV_TRY(read_whole(&e->bytes, &is_good, l, row, BYTES, err));
    e->row = is_good ? row : -1;
done:
    return status;
}

static kv_status read_rows(loader *l, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t const n = l->rows.n_rows;
    if (n == 0 && l->complaints.count == 0)
        KV_TRY(kv_complain(&l->complaints, err, -1, "the table has no rows"));
    if (n > INT32_MAX) KV_TRY(kv_complain(&l->complaints, err, -1, "the table has too many rows"));
    KV_TRY(kv_allocate((void **)&l->entries, (size_t)n, sizeof *l->entries, err));
    for (int64_t row = 0; row < n; row++) KV_TRY(read_row(l, row, err));
done:
    return status;
}

/* ---- schemes ---- */

/* The scheme text of a row for one tensor as written; NULL where the row has none. */
static const char *scheme_of(const loader *l, int64_t row, bool is_key)
{
    if (l->entries[row].row < 0) return NULL;
    if (!l->is_separable) return cell(l, row, is_key ? KEY : VALUE);
    return tensor_of(cell(l, row, TENSOR)) == is_key ? cell(l, row, SCHEME) : NULL;
}

/* Fills a side's schemes and each row's number of it: texts as written are numbered, each made
 * canonical once, and the canonical ones numbered again. */
static kv_status number_schemes(loader *l, bool is_key, kv_error *err)
{
    kv_status status = KV_OK;
    kv_problem_side *const side = is_key ? &l->problem->keys : &l->problem->values;
    int64_t const n = l->rows.n_rows;
    int64_t n_written = 0, n_distinct = 0;
    const char **texts = NULL;
    char **canonical = NULL;
    int32_t *written = NULL, *ids = NULL;
    int64_t *first_written = NULL, *first = NULL;
    KV_TRY(kv_allocate((void **)&texts, (size_t)n, sizeof *texts, err));
    for (int64_t i = 0; i < n; i++) texts[i] = scheme_of(l, i, is_key);
    KV_TRY(kv_number_texts(&written, &first_written, &n_written, texts, n, err));
    KV_TRY(kv_allocate((void **)&canonical, (size_t)n_written, sizeof *canonical, err));
    for (int64_t i = 0; i < n_written; i++)
        KV_TRY(kv_scheme_canonical(&canonical[i], texts[first_written[i]], is_key, err));
    KV_TRY(
        kv_number_texts(&ids, &first, &n_distinct, (const char *const *)canonical, n_written, err));
    KV_TRY(kv_allocate((void **)&side->schemes, (size_t)n_distinct, sizeof *side->schemes, err));
    side->n = n_distinct;
    for (int64_t i = 0; i < n_distinct; i++)
        side->schemes[i] = canonical[first[i]], canonical[first[i]] = NULL;
    for (int64_t i = 0; i < n; i++) {
        int32_t const id = written[i] < 0 ? -1 : ids[written[i]];
        *(is_key ? &l->entries[i].key : &l->entries[i].value) = id;
    }
done:
    for (int64_t i = 0; canonical && i < n_written; i++) kv_free(canonical[i]);
    kv_free(canonical), kv_free(texts);
    kv_free(written), kv_free(ids), kv_free(first_written), kv_free(first);
    return status;
}

/* ---- layers ---- */

static int compare(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int by_choice(const void *a, const void *b)
{
    const entry *const x = a, *const y = b;
    int order = compare(x->row < 0, y->row < 0);
    if (!order) order = compare(x->layer, y->layer);
    if (!order) order = compare(x->key, y->key);
    if (!order) order = compare(x->value, y->value);
    return order ? order : compare(x->row, y->row);
}

static int by_layer(const void *a, const void *b)
{
    const entry *const x = a, *const y = b;
    int const order = compare(x->layer, y->layer);
    return order ? order : compare(x->row, y->row);
}

/* Complains of choices given twice; leaves the n_good good entries sorted by layer and row. */
static kv_status sort_entries(int64_t *n_good, loader *l, kv_error *err)
{
    kv_status status = KV_OK;
    size_t const n = (size_t)l->rows.n_rows;
    int64_t n_twice = 0;
    *n_good = 0;
    if (n) qsort(l->entries, n, sizeof *l->entries, by_choice);
    while (*n_good < (int64_t)n && l->entries[*n_good].row >= 0) ++*n_good;
    for (int64_t i = 1; i < *n_good; i++) {
        const entry *const a = &l->entries[i - 1], *const b = &l->entries[i];
        if (a->layer != b->layer || a->key != b->key || a->value != b->value) continue;
        const char *const key = b->key < 0 ? NULL : l->problem->keys.schemes[b->key];
        const char *const value = b->value < 0 ? NULL : l->problem->values.schemes[b->value];
        n_twice++;
        KV_TRY(kv_complain(&l->complaints, err, l->rows.lines[b->row],
                           "layer %" PRId64 ": %s%.80s%s%.80s is given twice, first %s %" PRId64,
                           b->layer, l->is_separable ? key ? "key " : "value " : "", key ? key : "",
                           key && value ? " | " : "", value ? value : "",
                           l->rows.has_lines ? "on line" : "in row", l->rows.lines[a->row]));
    }
    if (*n_good) qsort(l->entries, (size_t)*n_good, sizeof *l->entries, by_layer);
done:
    return status;
}

static kv_status check_count(loader *l, int64_t layer, int64_t n_choices, kv_error *err)
{
    if (n_choices <= KV_KNAPSACK_MAX_OPTIONS) return KV_OK;
    return kv_complain(&l->complaints, err, -1,
                       "layer %" PRId64 ": %" PRId64 " choices, at most %d are possible", layer,
                       n_choices, KV_KNAPSACK_MAX_OPTIONS);
}

/* Layers of the sorted entries: their numbers, and of separable tables that both tensors are there
 * and do not make more choices than are possible, before these are made. */
static kv_status find_layers(loader *l, int64_t n_good, kv_error *err)
{
    kv_status status = KV_OK;
    kv_problem *const p = l->problem;
    int64_t n_layers = 0;
    for (int64_t i = 0; i < n_good; i++)
        n_layers += i == 0 || l->entries[i].layer != l->entries[i - 1].layer;
    KV_TRY(kv_allocate((void **)&p->layers, (size_t)n_layers, sizeof *p->layers, err));
    p->n_layers = n_layers;
    for (int64_t i = 0, layer = -1; i < n_good; i++) {
        layer += i == 0 || l->entries[i].layer != l->entries[i - 1].layer;
        p->layers[layer].number = l->entries[i].layer;
    }
    /* rows that are no good may be the missing ones */
    bool const is_checked = l->is_separable && l->complaints.count == 0;
    for (int64_t i = 0; is_checked && i < n_good;) {
        int64_t n_keys = 0, n_values = 0;
        int64_t const layer = l->entries[i].layer;
        for (; i < n_good && l->entries[i].layer == layer; i++)
            n_keys += l->entries[i].key >= 0, n_values += l->entries[i].value >= 0;
        if (!n_keys || !n_values)
            KV_TRY(kv_complain(&l->complaints, err, -1, "layer %" PRId64 " has no row of tensor %s",
                               layer, n_keys ? "value" : "key"));
        KV_TRY(check_count(l, layer, n_keys * n_values, err));
    }
done:
    return status;
}

static kv_status fill_separable(loader *l, int64_t n_good, kv_error *err)
{
    kv_status status = KV_OK;
    kv_problem *const p = l->problem;
    KV_TRY(kv_problem_make_sides(p, err));
    for (int64_t i = 0, layer = -1; i < n_good; i++) {
        const entry *const e = &l->entries[i];
        layer += i == 0 || e->layer != e[-1].layer;
        kv_problem_side *const side = e->key >= 0 ? &p->keys : &p->values;
        int64_t const at = layer * side->n + (e->key >= 0 ? e->key : e->value);
        side->error[at] = e->error, side->bytes[at] = e->bytes;
    }
    KV_TRY(kv_problem_pair_choices(p, NULL, 0, err));
done:
    return status;
}

static kv_status fill_pairs(loader *l, int64_t n_good, kv_error *err)
{
    kv_status status = KV_OK;
    for (int64_t i = 0, end, layer = 0; i < n_good; i = end, layer++) {
        kv_problem_layer *const to = &l->problem->layers[layer];
        for (end = i; end < n_good && l->entries[end].layer == to->number;) end++;
        KV_TRY(check_count(l, to->number, end - i, err));
        KV_TRY(kv_allocate((void **)&to->choices, (size_t)(end - i), sizeof *to->choices, err));
        for (int64_t k = i; k < end; k++) {
            const entry *const e = &l->entries[k];
            to->choices[to->n_choices++] =
                (kv_choice){e->key, e->value, e->bytes, e->error, KV_ERROR_GIVEN};
        }
    }
done:
    return status;
}

/* ---- further columns ---- */

/* Columns beyond the five that are as long as these. */
static bool is_extra(const loader *l, int64_t column)
{
    for (int c = 0; c < N_COLUMNS; c++)
        if (column_sets[l->is_separable][c] && l->columns[c] == column) return false;
    for (int64_t row = 0; row < l->rows.n_rows; row++)
        if (!l->rows.cells[row * l->rows.n_columns + column]) return false;
    return true;
}

static kv_status keep_extra(loader *l, kv_error *err)
{
    kv_status status = KV_OK;
    kv_problem *const p = l->problem;
    int64_t const n_columns = l->rows.n_columns, n_rows = l->rows.n_rows;
    int64_t *extra = NULL, n_extra = 0;
    KV_TRY(kv_allocate((void **)&extra, (size_t)n_columns, sizeof *extra, err));
    for (int64_t c = 0; c < n_columns; c++)
        if (is_extra(l, c)) extra[n_extra++] = c;
    if (n_extra == 0) goto done;
    KV_TRY(kv_allocate((void **)&p->extra_names, (size_t)n_extra, sizeof *p->extra_names, err));
    for (p->n_extra = 0; p->n_extra < n_extra; p->n_extra++)
        KV_TRY(kv_duplicate(&p->extra_names[p->n_extra], l->rows.names[extra[p->n_extra]], err));
    KV_TRY(kv_allocate3((void **)&p->extra_values, (size_t)n_rows, (size_t)n_extra, 1,
                        sizeof *p->extra_values, err));
    KV_TRY(kv_allocate((void **)&p->row_layer, (size_t)n_rows, sizeof *p->row_layer, err));
    KV_TRY(kv_allocate((void **)&p->row_key, (size_t)n_rows, sizeof *p->row_key, err));
    KV_TRY(kv_allocate((void **)&p->row_value, (size_t)n_rows, sizeof *p->row_value, err));
    p->n_rows = n_rows;
    for (int64_t i = 0; i < n_rows; i++) {
        const entry *const e = &l->entries[i];
        p->row_layer[e->row] = e->layer;
        p->row_key[e->row] = e->key, p->row_value[e->row] = e->value;
        for (int64_t c = 0; c < n_extra; c++) /* extra_text is the owner, and ours to write */
            p->extra_values[i * n_extra + c] =
                l->rows.text + (l->rows.cells[i * n_columns + extra[c]] - l->rows.text);
    }
    p->extra_text = l->rows.text, l->rows.text = NULL;
done:
    kv_free(extra);
    return status;
}

static kv_status make_problem(loader *l, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t n_good;
    KV_TRY(kv_allocate((void **)&l->problem, 1, sizeof *l->problem, err));
    l->problem->is_separable = l->is_separable;
    KV_TRY(number_schemes(l, true, err));
    KV_TRY(number_schemes(l, false, err));
    KV_TRY(sort_entries(&n_good, l, err));
    KV_TRY(find_layers(l, n_good, err));
    KV_TRY(kv_complaints_raise(&l->complaints, err));
    KV_TRY(l->is_separable ? fill_separable(l, n_good, err) : fill_pairs(l, n_good, err));
    KV_TRY(keep_extra(l, err));
done:
    return status;
}

kv_status kv_problem_load(kv_problem **out, const char *path, kv_error *err)
{
    kv_status status = KV_OK;
    loader l = {.complaints = {.path = path}};
    KV_TRY(kv_rows_read(&l.rows, &l.complaints, path, err));
    if (!l.rows.names) KV_TRY(kv_complaints_raise(&l.complaints, err));
    KV_TRY(find_columns(&l, err));
    KV_TRY(check_columns(&l, err));
    for (int c = 0; c < N_COLUMNS; c++) /* without its columns nothing more can be said */
        if (column_sets[l.is_separable][c] && !has(&l, c))
            KV_TRY(kv_complaints_raise(&l.complaints, err));
    if (!l.rows.has_lines) KV_TRY(check_lengths(&l, err));
    if (!l.rows.has_lines) KV_TRY(kv_complaints_raise(&l.complaints, err));
    KV_TRY(read_rows(&l, err));
    KV_TRY(make_problem(&l, err));
    KV_TRY(kv_complaints_raise(&l.complaints, err));
    *out = l.problem, l.problem = NULL;
done:
    kv_problem_free(l.problem);
    kv_rows_free_contents(&l.rows);
    kv_complaints_free_contents(&l.complaints);
    kv_free(l.entries);
    return status;
}
