/* Key tables: see keys.h. Reading and checking here; printing, copying and release in keys_text.c.
 */
#include "sim/keys.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/memory.h"
#include "kernels/shorthand.h"

enum { MAX_NAMES = 96, MOST_COUNTED = 1000000 };

/* Every problem of a key starts with its full path. */
#define SECTION_FORMAT    "%s%s%s: "
#define SECTION_OF(table) (table)->section, *(table)->section ? "." : ""

static void *field(void *out, const kv_key_spec *row)
{
    return (char *)out + row->offset;
}

/* ---- finding ---- */

const kv_key_spec *kv_keys_find(const kv_key_table *table, const char *path)
{
    for (size_t i = 0; i < table->count; i++)
        if (strcmp(table->rows[i].path, path) == 0) return &table->rows[i];
    return NULL;
}

static bool is_below(const char *path, const char *section)
{
    size_t const length = strlen(section);
    return strncmp(path, section, length) == 0 && path[length] == '.';
}

bool kv_keys_join(char path[KV_KEY_PATH], const char *prefix, const kv_yaml_node *key,
                  kv_problems *problems)
{
    int const length = snprintf(path, KV_KEY_PATH, "%s%s%s", prefix, *prefix ? "." : "", key->text);
    if (length >= 0 && length < KV_KEY_PATH) return true;
    kv_problem_add(problems, key, "a key longer than %d bytes", KV_KEY_PATH - 1);
    return false;
}

const kv_key_spec *kv_keys_target(const kv_key_table *table, const char *path)
{
    const kv_key_spec *const row = kv_keys_find(table, path);
    size_t const length = strlen(path);
    for (size_t i = 0; !row && i < table->count; i++) {
        const kv_key_spec *const r = &table->rows[i];
        if ((r->flags & KV_KEY_SECTION) && is_below(r->path, path) &&
            !strchr(r->path + length + 1, '.'))
            return r;
    }
    return row;
}

bool kv_keys_is_section(const kv_key_table *table, const char *path)
{
    for (size_t i = 0; i < table->count; i++)
        if (is_below(table->rows[i].path, path)) return true;
    return false;
}

void kv_keys_unknown(const kv_key_table *table, const char *path, const char *const *others,
                     size_t n_others, const kv_yaml_node *at, kv_problems *problems)
{
    const char *names[MAX_NAMES] = {0};
    size_t count = 0;
    for (size_t i = 0; i < table->count && count < MAX_NAMES; i++)
        names[count++] = table->rows[i].path;
    for (size_t i = 0; i < n_others && count < MAX_NAMES; i++) names[count++] = others[i];
    const char *closest = kv_closest_name(path, names, count);
    /* "scale" at the wrong level: the rows that end so */
    for (size_t i = 0; !closest && i < count; i++) {
        size_t const tail = strlen(names[i]), length = strlen(path);
        if (tail > length && names[i][tail - length - 1] == '.' &&
            strcmp(names[i] + tail - length, path) == 0)
            closest = names[i];
    }
    if (closest)
        kv_problem_add(problems, at, SECTION_FORMAT "unknown key, did you mean \"%s%s%s\"?",
                       SECTION_OF(table), path, SECTION_OF(table), closest);
    else
        kv_problem_add(problems, at, SECTION_FORMAT "unknown key; see `kvant list keys`",
                       SECTION_OF(table), path);
}

/* ---- one value ---- */

typedef struct {
    const kv_key_table *table;
    const kv_key_spec *row;
    const kv_yaml_node *node;
    kv_problems *problems;
} assignment;

static void expected(const assignment *a, const kv_yaml_node *node, const char *what)
{
    if (node->kind != KV_YAML_SCALAR)
        kv_problem_add(a->problems, node, SECTION_FORMAT "expected %s, found %s",
                       SECTION_OF(a->table), a->row->path, what, kv_yaml_kind_name(node));
    else if (node->is_quoted)
        kv_problem_add(a->problems, node, SECTION_FORMAT "expected %s, found the text \"%.80s\"",
                       SECTION_OF(a->table), a->row->path, what, node->text);
    else
        kv_problem_add(a->problems, node, SECTION_FORMAT "expected %s, found %.80s",
                       SECTION_OF(a->table), a->row->path, what, node->text);
}

static bool in_range(const assignment *a, const kv_yaml_node *node, double value)
{
    if (value >= a->row->min && value <= a->row->max) return true;
    kv_problem_add(a->problems, node, SECTION_FORMAT "%.80s is outside %.16g to %.16g%s%s",
                   SECTION_OF(a->table), a->row->path, node->text, a->row->min, a->row->max,
                   *a->row->unit ? " " : "", a->row->unit);
    return false;
}

static bool read_int(const assignment *a, const kv_yaml_node *node, const char *what,
                     int64_t *value)
{
    if (node->kind != KV_YAML_SCALAR || node->is_quoted || !kv_parse_int(node->text, value))
        return expected(a, node, what), false;
    return in_range(a, node, (double)*value);
}

static kv_status set_ints(const assignment *a, kv_int_list *list, kv_error *err);

static kv_status set_int(const assignment *a, void *out, kv_error *err)
{
    int64_t value;
    if (a->row->list_offset) {
        kv_int_list *const list = (kv_int_list *)(void *)((char *)out + a->row->list_offset);
        if (a->node->kind == KV_YAML_LIST) {
            kv_key_spec items = *a->row; /* a list holds numbers of things, from 0 */
            items.min = 0;
            assignment const of_items = {a->table, &items, a->node, a->problems};
            return set_ints(&of_items, list, err);
        }
        if (read_int(a, a->node, "an integer or a list of integers", &value)) {
            *(int64_t *)field(out, a->row) = value;
            kv_free(list->items);
            *list = (kv_int_list){0};
        }
        return KV_OK;
    }
    if (read_int(a, a->node, "an integer", &value)) *(int64_t *)field(out, a->row) = value;
    return KV_OK;
}

static kv_status set_real(const assignment *a, void *out, kv_error *err)
{
    double value;
    (void)err;
    if (a->node->kind != KV_YAML_SCALAR || a->node->is_quoted ||
        !kv_parse_real(a->node->text, &value))
        expected(a, a->node, "a number");
    else if (in_range(a, a->node, value))
        *(double *)field(out, a->row) = value;
    return KV_OK;
}

static kv_status set_bool(const assignment *a, void *out, kv_error *err)
{
    (void)err;
    bool const is_true = a->node->kind == KV_YAML_SCALAR && strcmp(a->node->text, "true") == 0;
    if (!is_true && (a->node->kind != KV_YAML_SCALAR || strcmp(a->node->text, "false")))
        return expected(a, a->node, "true or false"), KV_OK;
    *(bool *)field(out, a->row) = is_true;
    return KV_OK;
}

static kv_status set_choice(const assignment *a, void *out, kv_error *err)
{
    (void)err;
    char all[160];
    size_t count = 0;
    kv_keys_range(all, sizeof all, a->row);
    if (a->node->kind != KV_YAML_SCALAR) {
        char what[200];
        snprintf(what, sizeof what, "one of %s", all);
        return expected(a, a->node, what), KV_OK;
    }
    for (; a->row->choices[count]; count++)
        if (strcmp(a->row->choices[count], a->node->text) == 0) {
            *(int64_t *)field(out, a->row) = (int64_t)count;
            return KV_OK;
        }
    const char *const closest = kv_closest_name(a->node->text, a->row->choices, count);
    kv_problem_add(
        a->problems, a->node, SECTION_FORMAT "unknown value \"%.80s\"%s%s%s choose one of: %s",
        SECTION_OF(a->table), a->row->path, a->node->text, closest ? ", did you mean \"" : ";",
        closest ? closest : "", closest ? "\"?" : "", all);
    return KV_OK;
}

static kv_status set_text(const assignment *a, void *out, kv_error *err)
{
    char *copy = NULL;
    if (a->node->kind != KV_YAML_SCALAR) return expected(a, a->node, "a text"), KV_OK;
    kv_status const status = kv_duplicate(&copy, a->node->text, err);
    if (status != KV_OK) return status;
    kv_free(*(char **)field(out, a->row));
    *(char **)field(out, a->row) = copy;
    return KV_OK;
}

static kv_status set_path(const assignment *a, void *out, kv_error *err)
{
    char *path = NULL;
    if (a->node->kind != KV_YAML_SCALAR) return expected(a, a->node, "a path"), KV_OK;
    kv_status const status = kv_keys_resolve(&path, a->node, err);
    if (status != KV_OK) return status;
    kv_free(*(char **)field(out, a->row));
    *(char **)field(out, a->row) = path;
    return KV_OK;
}

/* A file's relative paths start at its directory; those of --set at the current one. */
kv_status kv_keys_resolve(char **out, const kv_yaml_node *node, kv_error *err)
{
    kv_status status = KV_OK;
    kv_text t = {0};
    char here[4096];
    const char *const file = node->line ? node->file : "";
    const char *const slash = strrchr(file, '/');
    if (*node->text && *node->text != '/') {
        if (*file != '/') {
            if (!getcwd(here, sizeof here))
                KV_TRY(KV_FAIL(err, KV_EIO, "the current directory has no readable path"));
            KV_TRY(kv_text_add(&t, err, "%s/", here));
        }
        if (slash) KV_TRY(kv_text_add(&t, err, "%.*s", (int)(slash - file + 1), file));
    }
    KV_TRY(kv_text_add(&t, err, "%s", node->text));
    *out = kv_text_take(&t);
done:
    kv_text_free(&t);
    return status;
}

/* ---- lists ---- */

static int compare(const void *a, const void *b)
{
    int64_t const x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static kv_status check_distinct(const assignment *a, const int64_t *items, size_t count,
                                kv_error *err)
{
    int64_t *sorted = NULL;
    kv_status const status = kv_allocate((void **)&sorted, count, sizeof *sorted, err);
    if (status != KV_OK) return status;
    if (count) memcpy(sorted, items, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare);
    for (size_t i = 1; i < count; i++)
        if (sorted[i] == sorted[i - 1]) {
            kv_problem_add(a->problems, a->node, SECTION_FORMAT "%" PRId64 " is in the list twice",
                           SECTION_OF(a->table), a->row->path, sorted[i]);
            break;
        }
    kv_free(sorted);
    return KV_OK;
}

static kv_status set_ints(const assignment *a, kv_int_list *list, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t *items = NULL;
    size_t const before = a->problems->count;
    if (a->node->kind != KV_YAML_LIST) return expected(a, a->node, "a list of integers"), KV_OK;
    KV_TRY(kv_allocate((void **)&items, a->node->count, sizeof *items, err));
    for (size_t i = 0; i < a->node->count; i++)
        read_int(a, a->node->entries[i].value, "an integer", &items[i]);
    if (a->row->flags & KV_KEY_DISTINCT && a->problems->count == before)
        KV_TRY(check_distinct(a, items, a->node->count, err));
    if (a->problems->count != before) goto done;
    kv_free(list->items);
    *list = (kv_int_list){(int64_t)a->node->count, items};
    items = NULL;
done:
    kv_free(items);
    return status;
}

static kv_status set_list(const assignment *a, void *out, kv_error *err)
{
    return set_ints(a, field(out, a->row), err);
}

static kv_status set_count_or_ints(const assignment *a, void *out, kv_error *err)
{
    kv_int_list *const list = field(out, a->row);
    int64_t count, *items = NULL;
    if (a->node->kind == KV_YAML_LIST && a->node->count) return set_ints(a, list, err);
    if (a->node->kind != KV_YAML_SCALAR || a->node->is_quoted ||
        !kv_parse_int(a->node->text, &count) || count < 1 || count > MOST_COUNTED)
        return expected(a, a->node, "a list of integers, or how many (1 to 1000000)"), KV_OK;
    kv_status const status = kv_allocate((void **)&items, (size_t)count, sizeof *items, err);
    if (status != KV_OK) return status;
    for (int64_t i = 0; i < count; i++) items[i] = i;
    kv_free(list->items);
    *list = (kv_int_list){count, items};
    return KV_OK;
}

static kv_status (*const setters[])(const assignment *, void *, kv_error *) = {
    [KV_TYPE_INT] = set_int,   [KV_TYPE_REAL] = set_real,
    [KV_TYPE_BOOL] = set_bool, [KV_TYPE_CHOICE] = set_choice,
    [KV_TYPE_TEXT] = set_text, [KV_TYPE_PATH] = set_path,
    [KV_TYPE_INTS] = set_list, [KV_TYPE_COUNT_OR_INTS] = set_count_or_ints,
};

static bool has_no_value(const kv_yaml_node *node)
{
    return node->kind == KV_YAML_SCALAR && !node->is_quoted &&
           (!*node->text || strcmp(node->text, "~") == 0 || strcmp(node->text, "null") == 0);
}

kv_status kv_keys_set(void *out, const kv_key_table *table, const kv_key_spec *row,
                      const kv_yaml_node *node, kv_problems *problems, kv_error *err)
{
    assignment const a = {table, row, node, problems};
    if (has_no_value(node)) {
        kv_problem_add(problems, node, SECTION_FORMAT "has no value", SECTION_OF(table), row->path);
        return KV_OK;
    }
    return setters[row->type](&a, out, err);
}

static kv_status set_from_text(void *out, const kv_key_table *table, const kv_key_spec *row,
                               const char *text, kv_problems *problems, kv_error *err)
{
    kv_status status = KV_OK;
    kv_yaml *file = NULL;
    if (*text != '[' && *text != '"') { /* a plain scalar: the common case, without a parser */
        char *const copy = (char *)(uintptr_t)text; /* nodes never change their text */
        kv_yaml_node const node = {.kind = KV_YAML_SCALAR, .text = copy, .file = ""};
        return kv_keys_set(out, table, row, &node, problems, err);
    }
    KV_TRY(kv_yaml_read(&file, text, strlen(text), "", problems, err));
    if (!file) goto done;
    kv_yaml_forget_places(file);
    KV_TRY(kv_keys_set(out, table, row, kv_yaml_root(file), problems, err));
done:
    kv_yaml_free(file);
    return status;
}

kv_status kv_keys_set_text(void *out, const kv_key_table *table, const char *path, const char *text,
                           kv_error *err)
{
    kv_status status = KV_OK;
    kv_problems problems = {0};
    const kv_key_spec *const row = kv_keys_target(table, path);
    if (row)
        KV_TRY(set_from_text(out, table, row, text, &problems, err));
    else
        kv_keys_unknown(table, path, NULL, 0, NULL, &problems);
    KV_TRY(kv_problems_raise(&problems, err));
done:
    return status;
}

kv_status kv_keys_defaults(void *out, const kv_key_table *table, kv_error *err)
{
    kv_status status = KV_OK;
    for (size_t i = 0; i < table->count; i++) {
        const kv_key_spec *const row = &table->rows[i];
        if (!row->preset) continue;
        if (row->type == KV_TYPE_TEXT || row->type == KV_TYPE_PATH) { /* "" is a value here */
            kv_free(*(char **)field(out, row));
            *(char **)field(out, row) = NULL;
            KV_TRY(kv_duplicate((char **)field(out, row), row->preset, err));
        } else
            KV_TRY(kv_keys_set_text(out, table, row->path, row->preset, err));
    }
done:
    return status;
}

/* ---- mappings ---- */

typedef struct {
    void *out;
    const kv_key_table *table;
    const char *const *others;
    size_t n_others;
    const kv_yaml_node **given;
    kv_problems *problems;
} reading;

static bool is_other(const reading *r, const char *path)
{
    for (size_t i = 0; i < r->n_others; i++)
        if (strcmp(path, r->others[i]) == 0) return true;
    return false;
}

static kv_status read_mapping(const reading *r, const kv_yaml_node *mapping, const char *prefix,
                              kv_error *err);

static kv_status read_entry(const reading *r, const kv_yaml_node *key, const kv_yaml_node *value,
                            const char *path, kv_error *err)
{
    const kv_key_spec *row = kv_keys_find(r->table, path);
    if (!row && kv_keys_is_section(r->table, path)) {
        if (value->kind == KV_YAML_MAPPING) return read_mapping(r, value, path, err);
        row = kv_keys_target(r->table, path);
        if (!row) {
            kv_problem_add(r->problems, value,
                           SECTION_FORMAT "expected a mapping of keys, found %s",
                           SECTION_OF(r->table), path,
                           has_no_value(value) ? "nothing" : kv_yaml_kind_name(value));
            return KV_OK;
        }
    }
    if (!row) {
        kv_keys_unknown(r->table, path, r->others, r->n_others, key, r->problems);
        return KV_OK;
    }
    const kv_yaml_node **const place = r->given ? &r->given[row - r->table->rows] : NULL;
    if (place && *place)
        kv_problem_add(r->problems, key, SECTION_FORMAT "given twice, first on line %zu",
                       SECTION_OF(r->table), row->path, (*place)->line);
    if (place) *place = value;
    return kv_keys_set(r->out, r->table, row, value, r->problems, err);
}

static kv_status read_mapping(const reading *r, const kv_yaml_node *mapping, const char *prefix,
                              kv_error *err)
{
    kv_status status = KV_OK;
    for (size_t i = 0; i < mapping->count; i++) {
        const kv_yaml_node *const key = mapping->entries[i].key;
        char path[KV_KEY_PATH];
        if (!kv_keys_join(path, prefix, key, r->problems)) continue;
        if (*prefix || !is_other(r, path))
            KV_TRY(read_entry(r, key, mapping->entries[i].value, path, err));
    }
done:
    return status;
}

kv_status kv_keys_read(void *out, const kv_key_table *table, const kv_yaml_node *mapping,
                       const char *const *others, size_t n_others, const kv_yaml_node **given,
                       kv_problems *problems, kv_error *err)
{
    reading const r = {out, table, others, n_others, given, problems};
    if (mapping->kind != KV_YAML_MAPPING) {
        kv_problem_add(problems, mapping, "%s%sexpected a mapping of keys, found %s",
                       table->section, *table->section ? ": " : "",
                       has_no_value(mapping) ? "nothing" : kv_yaml_kind_name(mapping));
        return KV_OK;
    }
    return read_mapping(&r, mapping, "", err);
}

void kv_keys_require(const kv_key_table *table, const kv_yaml_node *mapping,
                     const kv_yaml_node *const *given, kv_problems *problems)
{
    for (size_t i = 0; i < table->count; i++)
        if (!table->rows[i].preset && !given[i])
            kv_problem_add(problems, mapping, SECTION_FORMAT "must be given: %s", SECTION_OF(table),
                           table->rows[i].path, table->rows[i].help);
}
