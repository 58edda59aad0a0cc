/* Key tables: printing, copying and release; see keys.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/memory.h"
#include "sim/keys.h"

static const void *field(const void *in, size_t offset)
{
    return (const char *)in + offset;
}

static kv_status print_ints(kv_text *text, const kv_int_list *list, kv_error *err)
{
    kv_status status = KV_OK;
    KV_TRY(kv_text_add(text, err, "["));
    for (int64_t i = 0; i < list->count; i++)
        KV_TRY(kv_text_add(text, err, "%s%" PRId64, i ? ", " : "", list->items[i]));
    KV_TRY(kv_text_add(text, err, "]"));
done:
    return status;
}

/* 0 ... n-1 is written as n, a single 0 as [0]. */
static bool is_count(const kv_int_list *list)
{
    for (int64_t i = 0; i < list->count; i++)
        if (list->items[i] != i) return false;
    return list->count > 1;
}

kv_status kv_keys_value(kv_text *text, const void *in, const kv_key_spec *row, kv_error *err)
{
    const void *const at = field(in, row->offset);
    char number[KV_REAL_TEXT];
    switch (row->type) {
    case KV_TYPE_INT:
        if (row->list_offset) {
            const kv_int_list *const list = field(in, row->list_offset);
            if (list->count) return print_ints(text, list, err);
        }
        return kv_text_add(text, err, "%" PRId64, *(const int64_t *)at);
    case KV_TYPE_REAL:
        return kv_text_add(text, err, "%s", kv_real_text(number, *(const double *)at));
    case KV_TYPE_BOOL: return kv_text_add(text, err, *(const bool *)at ? "true" : "false");
    case KV_TYPE_CHOICE: return kv_text_add(text, err, "%s", row->choices[*(const int64_t *)at]);
    case KV_TYPE_TEXT:
    case KV_TYPE_PATH: {
        const char *const value = *(char *const *)at;
        return kv_yaml_quote(text, value ? value : "", err);
    }
    case KV_TYPE_INTS: return print_ints(text, at, err);
    case KV_TYPE_COUNT_OR_INTS:
        if (is_count(at))
            return kv_text_add(text, err, "%" PRId64, ((const kv_int_list *)at)->count);
        return print_ints(text, at, err);
    }
    return KV_OK;
}

/* The length of what both paths have in common, in whole components with their dots. */
static size_t common_sections(const char *a, const char *b)
{
    size_t common = 0;
    for (size_t i = 0; a[i] && a[i] == b[i]; i++)
        if (a[i] == '.') common = i + 1;
    return common;
}

static int depth_of(const char *path, size_t length)
{
    int depth = 0;
    for (size_t i = 0; i < length; i++) depth += path[i] == '.';
    return depth;
}

kv_status kv_keys_print(kv_text *text, const void *in, const kv_key_table *table, int indent,
                        kv_error *err)
{
    kv_status status = KV_OK;
    const char *before = "";
    for (size_t i = 0; i < table->count; i++) {
        const char *const path = table->rows[i].path;
        if (table->rows[i].flags & KV_KEY_BY_HAND) continue;
        size_t at = common_sections(before, path);
        for (const char *dot; (dot = strchr(path + at, '.')); at = (size_t)(dot - path) + 1)
            KV_TRY(kv_text_add(text, err, "%*s%.*s:\n", indent + 2 * depth_of(path, at), "",
                               (int)(dot - path - (ptrdiff_t)at), path + at));
        KV_TRY(kv_text_add(text, err, "%*s%s: ", indent + 2 * depth_of(path, at), "", path + at));
        KV_TRY(kv_keys_value(text, in, &table->rows[i], err));
        KV_TRY(kv_text_add(text, err, "\n"));
        before = path;
    }
done:
    return status;
}

/* ---- ownership ---- */

/* The list and the text that a row owns, or NULL. */
static kv_int_list *owned_list(void *in, const kv_key_spec *row)
{
    bool const is_list = row->type == KV_TYPE_INTS || row->type == KV_TYPE_COUNT_OR_INTS;
    size_t const offset = is_list ? row->offset : row->list_offset;
    return is_list || row->list_offset ? (kv_int_list *)(void *)((char *)in + offset) : NULL;
}

static char **owned_text(void *in, const kv_key_spec *row)
{
    bool const is_text = row->type == KV_TYPE_TEXT || row->type == KV_TYPE_PATH;
    return is_text ? (char **)(void *)((char *)in + row->offset) : NULL;
}

void kv_keys_free(void *in, const kv_key_table *table)
{
    for (size_t i = 0; i < table->count; i++) {
        kv_int_list *const list = owned_list(in, &table->rows[i]);
        char **const text = owned_text(in, &table->rows[i]);
        if (list) kv_free(list->items), *list = (kv_int_list){0};
        if (text) kv_free(*text), *text = NULL;
    }
}

kv_status kv_keys_copy(void *out, const void *in, const kv_key_table *table, kv_error *err)
{
    kv_status status = KV_OK;
    memcpy(out, in, table->size);
    for (size_t i = 0; i < table->count; i++) { /* first let go, so that a failure can be freed */
        kv_int_list *const list = owned_list(out, &table->rows[i]);
        char **const text = owned_text(out, &table->rows[i]);
        if (list) *list = (kv_int_list){0};
        if (text) *text = NULL;
    }
    for (size_t i = 0; i < table->count; i++) {
        const kv_key_spec *const row = &table->rows[i];
        kv_int_list *const list = owned_list(out, row);
        char **const text = owned_text(out, row);
        if (list) {
            size_t const offset = (size_t)((char *)list - (char *)out);
            const kv_int_list *const from = field(in, offset);
            if (!from->count) continue;
            KV_TRY(
                kv_allocate((void **)&list->items, (size_t)from->count, sizeof *list->items, err));
            memcpy(list->items, from->items, (size_t)from->count * sizeof *list->items);
            list->count = from->count;
        }
        if (text) {
            const char *const from = *(char *const *)field(in, row->offset);
            if (from) KV_TRY(kv_duplicate(text, from, err));
        }
    }
done:
    if (status != KV_OK) kv_keys_free(out, table);
    return status;
}

/* ---- documentation ---- */

const char *kv_keys_type_name(const kv_key_spec *row)
{
    static const char *const names[] = {
        [KV_TYPE_INT] = "integer",
        [KV_TYPE_REAL] = "number",
        [KV_TYPE_BOOL] = "true or false",
        [KV_TYPE_CHOICE] = "choice",
        [KV_TYPE_TEXT] = "text",
        [KV_TYPE_PATH] = "path",
        [KV_TYPE_INTS] = "list of integers",
        [KV_TYPE_COUNT_OR_INTS] = "list of integers, or how many",
    };
    return row->list_offset ? "integer, or list of integers" : names[row->type];
}

void kv_keys_range(char *range, size_t room, const kv_key_spec *row)
{
    size_t used = 0;
    range[0] = '\0';
    if (row->type == KV_TYPE_CHOICE) {
        for (size_t i = 0; row->choices[i] && used < room; i++)
            used +=
                (size_t)snprintf(range + used, room - used, "%s%s", i ? ", " : "", row->choices[i]);
    } else if (row->type != KV_TYPE_BOOL && row->type != KV_TYPE_TEXT && row->type != KV_TYPE_PATH)
        snprintf(range, room, "%.16g to %.16g", row->min, row->max);
}
