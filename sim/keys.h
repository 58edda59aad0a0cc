/* Key tables: one table per module says which keys exist, and reads, checks, prints, copies and
 * documents them.
 *
 * A table describes a plain struct. Each row is a dotted path below the table's section, a type,
 * the offset of the field, the default, range, choices, unit and help.
 *
 *     static const kv_key_spec rows[] = {
 *         {"tokens", KV_TYPE_INT, offsetof(thing, tokens), "4096", 1, 1e9, NULL, "tokens", "…"}};
 *     static const kv_key_table table = {"thing", rows, 1, sizeof(thing)};
 *     KV_TRY(kv_keys_defaults(&t, &table, err));
 *     KV_TRY(kv_keys_read(&t, &table, node, NULL, 0, NULL, &problems, err));
 *
 * Numbers are strict: `4abc`, nan, inf and a number in quotes are not numbers. What a user must
 * mend goes to `problems`; a failure is returned only for memory. A struct that was filled by these
 * functions owns its texts and lists: kv_keys_free releases them. */
#ifndef KVANT_SIM_KEYS_H
#define KVANT_SIM_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/text.h"
#include "sim/yaml.h"

/* The type of the field at the row's offset. */
typedef enum {
    KV_TYPE_INT,          /* int64_t */
    KV_TYPE_REAL,         /* double */
    KV_TYPE_BOOL,         /* bool */
    KV_TYPE_CHOICE,       /* int64_t, index into choices */
    KV_TYPE_TEXT,         /* char * */
    KV_TYPE_PATH,         /* char *, made absolute; "" for none */
    KV_TYPE_INTS,         /* kv_int_list */
    KV_TYPE_COUNT_OR_INTS /* kv_int_list; the number n means 0 ... n-1 */
} kv_key_type;

typedef struct {
    int64_t count;
    int64_t *items;
} kv_int_list;

enum {
    KV_KEY_SECTION = 1,  /* a value in place of the row's whole section is meant for this row */
    KV_KEY_FIXED = 2,    /* the same for every layer and sweep point */
    KV_KEY_DISTINCT = 4, /* a list without repetitions */
    KV_KEY_BY_HAND = 8   /* printed by the module, not by kv_keys_print */
};

typedef struct {
    const char *path;
    kv_key_type type;
    size_t offset;
    const char *preset;         /* as YAML; NULL where the key must be given */
    double min, max;            /* of numbers and of the items of lists */
    const char *const *choices; /* ends with NULL */
    const char *unit, *help;    /* unit "" for none */
    unsigned flags;
    size_t list_offset; /* KV_TYPE_INT: where a list (kv_int_list) in place of the number goes; 0
                           none */
} kv_key_spec;

typedef struct {
    const char *section; /* "heads": the prefix in messages; "" for the top level */
    const kv_key_spec *rows;
    size_t count;
    size_t size; /* of the struct */
} kv_key_table;

/* NULL for an unknown path. */
const kv_key_spec *kv_keys_find(const kv_key_table *table, const char *path);

/* The path of a key below `prefix` ("" for none). False, with a problem, where it is too long. */
enum { KV_KEY_PATH = 128 };
bool kv_keys_join(char path[KV_KEY_PATH], const char *prefix, const kv_yaml_node *key,
                  kv_problems *problems);

/* The row whose path a key of this name would set, following KV_KEY_SECTION: "rope" is the row
 * "rope.layout". NULL for none. */
const kv_key_spec *kv_keys_target(const kv_key_table *table, const char *path);

/* Whether keys lie below this path. */
bool kv_keys_is_section(const kv_key_table *table, const char *path);

/* Sets every row that has a default; *out must be zero or filled before. */
kv_status kv_keys_defaults(void *out, const kv_key_table *table, kv_error *err);

/* Sets the keys of a mapping; first-level names in `others` are left to the caller. given [count],
 * or NULL, receives the node of every key that was there which must start as NULL; a key that is
 * already there is given twice. */
kv_status kv_keys_read(void *out, const kv_key_table *table, const kv_yaml_node *mapping,
                       const char *const *others, size_t n_others, const kv_yaml_node **given,
                       kv_problems *problems, kv_error *err);

/* A problem for each row without default that `given` lacks. */
void kv_keys_require(const kv_key_table *table, const kv_yaml_node *mapping,
                     const kv_yaml_node *const *given, kv_problems *problems);

/* Sets one row from a node, or from a text in YAML ("20", "[7, 23]"); KV_EREQUEST names the key. */
kv_status kv_keys_set(void *out, const kv_key_table *table, const kv_key_spec *row,
                      const kv_yaml_node *node, kv_problems *problems, kv_error *err);
kv_status kv_keys_set_text(void *out, const kv_key_table *table, const char *path, const char *text,
                           kv_error *err);

/* A scalar as an absolute path: relative to the directory of the node's file, or to the current one
 * where the node comes from no file. Caller frees. */
kv_status kv_keys_resolve(char **out, const kv_yaml_node *node, kv_error *err);

/* "heads.tokns: unknown key, did you mean …" */
void kv_keys_unknown(const kv_key_table *table, const char *path, const char *const *others,
                     size_t n_others, const kv_yaml_node *at, kv_problems *problems);

/* The value of a row as YAML that reads back to it, appended to `text`. */
kv_status kv_keys_value(kv_text *text, const void *in, const kv_key_spec *row, kv_error *err);

/* All rows as a nested YAML mapping, each line indented by at least `indent` spaces. */
kv_status kv_keys_print(kv_text *text, const void *in, const kv_key_table *table, int indent,
                        kv_error *err);

/* A copy that owns its texts and lists. */
kv_status kv_keys_copy(void *out, const void *in, const kv_key_table *table, kv_error *err);
void kv_keys_free(void *in, const kv_key_table *table);

/* For documentation: "integer", and "1 to 1e+09" or the choices; `range` holds `room` bytes. */
const char *kv_keys_type_name(const kv_key_spec *row);
void kv_keys_range(char *range, size_t room, const kv_key_spec *row);

#endif
