/* Strict reading of a plain YAML subset into a tree that remembers where everything stood.
 *
 * Mappings with plain keys, lists and scalars. Refused, with their position: tags, anchors,
 * aliases, a second document, a key given twice, nesting deeper than KV_YAML_MAX_DEPTH, text longer
 * than KV_YAML_MAX_BYTES. Scalars stay text; what they mean is the key table's business
 * (sim/keys.h).
 *
 *     kv_yaml *file = NULL;
 *     kv_problems problems = {0};
 *     KV_TRY(kv_yaml_load(&file, "sweep.yaml", &problems, err));
 *     if (file) walk(kv_yaml_root(file), &problems);
 *     KV_TRY(kv_problems_raise(&problems, err));
 *
 * Problems collect what the user must mend, in kv_problems, so that one run shows all of it. */
#ifndef KVANT_SIM_YAML_H
#define KVANT_SIM_YAML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/error.h"
#include "kernels/text.h"

enum {
    KV_YAML_MAX_DEPTH = 24,
    KV_YAML_MAX_BYTES = 1 << 20,
    KV_YAML_MAX_KEYS = 1024 /* of one mapping */
};

typedef enum { KV_YAML_SCALAR, KV_YAML_LIST, KV_YAML_MAPPING } kv_yaml_kind;

typedef struct kv_yaml_node kv_yaml_node;
typedef struct kv_yaml kv_yaml;

typedef struct {
    kv_yaml_node *key; /* a scalar; NULL in a list */
    kv_yaml_node *value;
} kv_yaml_entry;

/* Owned by its kv_yaml. */
struct kv_yaml_node {
    kv_yaml_kind kind;
    bool is_quoted; /* a scalar in quotes, or a block of text */
    char *text;     /* of a scalar */
    size_t count, room;
    kv_yaml_entry *entries; /* of a list or mapping */
    const char *file;       /* as messages name it */
    size_t line, column;    /* from 1; line 0 where there is none */
    kv_yaml_node *next;     /* all nodes of one file, for its release */
};

/* What is wrong with the input, a line each; at most KV_PROBLEMS_SHOWN are kept. Started as {0}. */
enum { KV_PROBLEMS_SHOWN = 20 };
typedef struct {
    size_t count, shown, used;
    char text[3800];
} kv_problems;

/* Adds "file:line:column: sentence"; node may be NULL. */
void kv_problem_add(kv_problems *problems, const kv_yaml_node *node, const char *format, ...)
    KV_PRINTF(3, 4);

/* KV_OK without problems, else KV_EREQUEST with all of them and how many more there are. */
kv_status kv_problems_raise(const kv_problems *problems, kv_error *err);

/* Broken YAML goes to `problems` and leaves *out NULL; a failure is returned for a
 * file that is not there or may not be read (KV_EREQUEST), for failed reading (KV_EIO) and memory.
 */
kv_status kv_yaml_load(kv_yaml **out, const char *path, kv_problems *problems, kv_error *err);
kv_status kv_yaml_read(kv_yaml **out, const char *text, size_t length, const char *name,
                       kv_problems *problems, kv_error *err);
void kv_yaml_free(kv_yaml *file);

kv_yaml_node *kv_yaml_root(const kv_yaml *file);

/* The value of a key, or NULL. */
kv_yaml_node *kv_yaml_get(const kv_yaml_node *mapping, const char *key);

/* Messages about these nodes name the file only: for texts that are no file. */
void kv_yaml_forget_places(kv_yaml *file);

/* Sets the value at a dotted path below the root mapping to a node of any file (which must live as
 * long), making mappings on the way and replacing what is there. */
kv_status kv_yaml_put(kv_yaml *file, const char *path, kv_yaml_node *value, kv_problems *problems,
                      kv_error *err);

/* Adds a value as a YAML scalar: plain where that is safe, else in double quotes. */
kv_status kv_yaml_quote(kv_text *text, const char *value, kv_error *err);

/* "a scalar", "a list", "a mapping": for messages. */
const char *kv_yaml_kind_name(const kv_yaml_node *node);

#endif
