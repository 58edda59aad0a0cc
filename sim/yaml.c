/* Strict YAML: see yaml.h.
 *
 * Built from libyaml's events rather than its documents, because a document no longer tells where
 * an anchor stood or that a tag was written. The tree is made with an explicit stack, so depth
 * costs no C stack here. */
#include "sim/yaml.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "kernels/memory.h"
#include "kernels/text.h"

struct kv_yaml {
    char *name;
    kv_yaml_node *root;
    kv_yaml_node *nodes; /* all of them, chained for release */
};

/* ---- problems ---- */

void kv_problem_add(kv_problems *problems, const kv_yaml_node *node, const char *format, ...)
{
    problems->count++;
    if (problems->shown == KV_PROBLEMS_SHOWN || problems->shown + 1 < problems->count) return;
    char line[1024];
    int used = 0;
    if (node && node->line)
        used =
            snprintf(line, sizeof line, "%.300s:%zu:%zu: ", node->file, node->line, node->column);
    else if (node && *node->file)
        used = snprintf(line, sizeof line, "%.300s: ", node->file);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + used, sizeof line - (size_t)used, format, arguments);
    va_end(arguments);
    size_t const length = strlen(line);
    if (problems->used + length + 2 > sizeof problems->text) return;
    if (problems->used) problems->text[problems->used++] = '\n';
    memcpy(problems->text + problems->used, line, length + 1);
    problems->used += length;
    problems->shown++;
}

kv_status kv_problems_raise(const kv_problems *problems, kv_error *err)
{
    size_t const hidden = problems->count - problems->shown;
    if (!problems->count) return KV_OK;
    if (!hidden) return KV_FAIL(err, KV_EREQUEST, "%s", problems->text);
    return KV_FAIL(err, KV_EREQUEST, "%s\n... and %zu more", problems->text, hidden);
}

/* ---- nodes ---- */

const char *kv_yaml_kind_name(const kv_yaml_node *node)
{
    static const char *const names[] = {"a scalar", "a list", "a mapping"};
    return names[node->kind];
}

static kv_status make_node(kv_yaml_node **out, kv_yaml *file, kv_yaml_kind kind, yaml_mark_t mark,
                           kv_error *err)
{
    kv_yaml_node *node = NULL;
    kv_status const status = kv_allocate((void **)&node, 1, sizeof *node, err);
    if (status != KV_OK) return status;
    node->kind = kind, node->file = file->name;
    node->line = mark.line + 1, node->column = mark.column + 1;
    node->next = file->nodes, file->nodes = node;
    *out = node;
    return KV_OK;
}

static kv_status add_entry(kv_yaml_node *parent, kv_yaml_node *key, kv_yaml_node *value,
                           kv_error *err)
{
    kv_status const status = kv_grow((void **)&parent->entries, &parent->room, parent->count,
                                     parent->count + 1, sizeof *parent->entries, err);
    if (status == KV_OK) parent->entries[parent->count++] = (kv_yaml_entry){key, value};
    return status;
}

kv_yaml_node *kv_yaml_root(const kv_yaml *file)
{
    return file->root;
}

static kv_yaml_entry *find_entry(const kv_yaml_node *mapping, const char *key)
{
    if (!mapping || mapping->kind != KV_YAML_MAPPING) return NULL;
    for (size_t i = 0; i < mapping->count; i++)
        if (strcmp(mapping->entries[i].key->text, key) == 0) return &mapping->entries[i];
    return NULL;
}

kv_yaml_node *kv_yaml_get(const kv_yaml_node *mapping, const char *key)
{
    const kv_yaml_entry *const entry = find_entry(mapping, key);
    return entry ? entry->value : NULL;
}

void kv_yaml_free(kv_yaml *file)
{
    if (!file) return;
    for (kv_yaml_node *node = file->nodes, *next; node; node = next) {
        next = node->next;
        kv_free(node->text);
        kv_free(node->entries);
        kv_free(node);
    }
    kv_free(file->name);
    kv_free(file);
}

/* ---- events to tree ---- */

typedef struct {
    kv_yaml_node *node, *key; /* an open list or mapping; the key whose value is awaited */
} open_node;

typedef struct {
    kv_yaml *file;
    kv_problems *problems;
    open_node open[KV_YAML_MAX_DEPTH];
    size_t depth, documents;
    bool is_broken; /* the rest cannot be understood */
} builder;

static void problem_at(builder *b, yaml_mark_t mark, bool is_fatal, const char *what)
{
    kv_yaml_node const place = {
        .file = b->file->name, .line = mark.line + 1, .column = mark.column + 1};
    kv_problem_add(b->problems, &place, "%s", what);
    b->is_broken |= is_fatal;
}

/* A node is complete as a value of what is open (a list or mapping is added when it opens). */
static kv_status place(builder *b, kv_yaml_node *node, yaml_mark_t mark, kv_error *err)
{
    if (!b->depth) return b->file->root = node, KV_OK;
    open_node *const top = &b->open[b->depth - 1];
    if (top->node->kind == KV_YAML_LIST) return add_entry(top->node, NULL, node, err);
    if (top->key) {
        kv_yaml_node *const key = top->key;
        top->key = NULL;
        return add_entry(top->node, key, node, err);
    }
    if (node->kind != KV_YAML_SCALAR)
        return problem_at(b, mark, true, "a key must be plain text"), KV_OK;
    const kv_yaml_entry *const first = find_entry(top->node, node->text);
    if (first)
        kv_problem_add(b->problems, node, "%s: given twice, first on line %zu", node->text,
                       first->key->line);
    if (top->node->count >= KV_YAML_MAX_KEYS)
        problem_at(b, mark, true, "more than 1024 keys in one mapping");
    top->key = node;
    return KV_OK;
}

static kv_status open_collection(builder *b, kv_yaml_kind kind, yaml_mark_t mark, kv_error *err)
{
    if (b->depth == KV_YAML_MAX_DEPTH)
        return problem_at(b, mark, true, "nested deeper than 24 levels"), KV_OK;
    kv_yaml_node *node = NULL;
    kv_status status = make_node(&node, b->file, kind, mark, err);
    if (status == KV_OK) status = place(b, node, mark, err);
    if (status == KV_OK && !b->is_broken) b->open[b->depth++] = (open_node){node, NULL};
    return status;
}

static kv_status add_scalar(builder *b, const yaml_event_t *event, kv_error *err)
{
    const char *const text = (const char *)event->data.scalar.value;
    size_t const length = event->data.scalar.length;
    kv_yaml_node *node = NULL;
    kv_status status = KV_OK;
    KV_TRY(make_node(&node, b->file, KV_YAML_SCALAR, event->start_mark, err));
    KV_TRY(kv_duplicate_part(&node->text, text, length, err));
    if (strlen(node->text) != length)
        problem_at(b, event->start_mark, true, "a text holds the character 0");
    node->is_quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    KV_TRY(place(b, node, event->start_mark, err));
done:
    return status;
}

static void refuse_extras(builder *b, const yaml_event_t *event, const yaml_char_t *anchor,
                          const yaml_char_t *tag)
{
    if (anchor)
        problem_at(b, event->start_mark, false, "anchors (&name) are not part of this YAML subset");
    if (tag)
        problem_at(b, event->start_mark, false, "tags (!name) are not part of this YAML subset");
}

static kv_status take_event(builder *b, const yaml_event_t *event, kv_error *err)
{
    yaml_mark_t const mark = event->start_mark;
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (b->documents++) problem_at(b, mark, true, "a second document (---) is not read");
        return KV_OK;
    case YAML_ALIAS_EVENT:
        problem_at(b, mark, true, "aliases (*name) are not part of this YAML subset");
        return KV_OK;
    case YAML_SCALAR_EVENT:
        refuse_extras(b, event, event->data.scalar.anchor, event->data.scalar.tag);
        return add_scalar(b, event, err);
    case YAML_SEQUENCE_START_EVENT:
        refuse_extras(b, event, event->data.sequence_start.anchor, event->data.sequence_start.tag);
        return open_collection(b, KV_YAML_LIST, mark, err);
    case YAML_MAPPING_START_EVENT:
        refuse_extras(b, event, event->data.mapping_start.anchor, event->data.mapping_start.tag);
        return open_collection(b, KV_YAML_MAPPING, mark, err);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT: b->depth--; return KV_OK;
    default: return KV_OK;
    }
}

static void syntax_problem(builder *b, const yaml_parser_t *parser)
{
    char sentence[256];
    /* The reader's errors (bad UTF-8) have an offset instead of a mark. */
    yaml_mark_t const mark =
        parser->error == YAML_READER_ERROR ? parser->mark : parser->problem_mark;
    snprintf(sentence, sizeof sentence, "not YAML: %s%s%s",
             parser->problem ? parser->problem : "unknown error", parser->context ? ", " : "",
             parser->context ? parser->context : "");
    problem_at(b, mark, true, sentence);
}

kv_status kv_yaml_read(kv_yaml **out, const char *text, size_t length, const char *name,
                       kv_problems *problems, kv_error *err)
{
    kv_status status = KV_OK;
    yaml_parser_t parser = {0};
    bool is_open = false, is_end = false;
    size_t const before = problems->count;
    builder b = {.problems = problems};
    *out = NULL;
    KV_TRY(kv_allocate((void **)&b.file, 1, sizeof *b.file, err));
    KV_TRY(kv_duplicate(&b.file->name, name, err));
    kv_yaml_node const whole = {.file = name};
    if (length > KV_YAML_MAX_BYTES) {
        kv_problem_add(problems, &whole, "larger than 1 MiB");
        goto done;
    }
    if (!yaml_parser_initialize(&parser)) KV_TRY(KV_FAIL(err, KV_ENOMEM, "out of memory"));
    is_open = true;
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, length);
    while (!is_end && !b.is_broken) {
        yaml_event_t event;
        if (!yaml_parser_parse(&parser, &event)) {
            if (parser.error == YAML_MEMORY_ERROR) KV_TRY(KV_FAIL(err, KV_ENOMEM, "out of memory"));
            syntax_problem(&b, &parser);
            break;
        }
        is_end = event.type == YAML_STREAM_END_EVENT;
        status = take_event(&b, &event, err);
        yaml_event_delete(&event);
        if (status != KV_OK) goto done;
    }
    if (problems->count == before && !b.file->root) kv_problem_add(problems, &whole, "is empty");
    if (problems->count == before) *out = b.file, b.file = NULL;
done:
    if (is_open) yaml_parser_delete(&parser);
    kv_yaml_free(b.file);
    return status;
}

kv_status kv_yaml_load(kv_yaml **out, const char *path, kv_problems *problems, kv_error *err)
{
    enum { PIECE = 1 << 14 };
    kv_status status = KV_OK;
    char *text = NULL;
    size_t length = 0, capacity = 0;
    FILE *const stream = fopen(path, "rb");
    if (!stream) return KV_FAIL(err, KV_EREQUEST, "%s: cannot open: %s", path, strerror(errno));
    for (size_t found = 1; found && length <= KV_YAML_MAX_BYTES; length += found) {
        KV_TRY(kv_grow((void **)&text, &capacity, length, length + PIECE, 1, err));
        found = fread(text + length, 1, PIECE, stream);
    }
    if (ferror(stream))
        KV_TRY(KV_FAIL(err, errno == EISDIR ? KV_EREQUEST : KV_EIO, "%s: cannot read: %s", path,
                       strerror(errno)));
    KV_TRY(kv_yaml_read(out, text, length, path, problems, err));
done:
    fclose(stream);
    kv_free(text);
    return status;
}

/* ---- changing the tree ---- */

void kv_yaml_forget_places(kv_yaml *file)
{
    for (kv_yaml_node *node = file->nodes; node; node = node->next) node->line = node->column = 0;
}

kv_status kv_yaml_put(kv_yaml *file, const char *path, kv_yaml_node *value, kv_problems *problems,
                      kv_error *err)
{
    kv_status status = KV_OK;
    kv_yaml_node *at = file->root;
    for (;;) {
        /* a key may itself hold dots, as those of a sweep do */
        const char *const dot = find_entry(at, path) ? NULL : strchr(path, '.');
        kv_yaml_node *key = NULL;
        yaml_mark_t const nowhere = {0};
        KV_TRY(make_node(&key, file, KV_YAML_SCALAR, nowhere, err));
        key->file = value->file, key->line = value->line, key->column = value->column;
        KV_TRY(kv_duplicate_part(&key->text, path, dot ? (size_t)(dot - path) : strlen(path), err));
        if (!*key->text) {
            kv_problem_add(problems, value, "expected KEY=VALUE with a key like heads.tokens");
            return KV_OK;
        }
        kv_yaml_entry *entry = find_entry(at, key->text);
        kv_yaml_node *next = value;
        if (dot) {
            if (entry && entry->value->kind == KV_YAML_MAPPING) {
                at = entry->value, path = dot + 1;
                continue;
            }
            KV_TRY(make_node(&next, file, KV_YAML_MAPPING, nowhere, err));
            next->file = value->file, next->line = value->line, next->column = value->column;
        }
        if (entry)
            *entry = (kv_yaml_entry){key, next};
        else
            KV_TRY(add_entry(at, key, next, err));
        if (!dot) return KV_OK;
        at = next, path = dot + 1;
    }
done:
    return status;
}

/* ---- writing ---- */

static bool is_alphanumeric(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* Whether the text stays itself without quotes, in block and in flow style. */
static bool is_plain_safe(const char *text)
{
    if (!*text || strcmp(text, "null") == 0 || strcmp(text, "~") == 0) return false;
    if (!is_alphanumeric(text[0]) && !strchr("/._", text[0]) &&
        !((text[0] == '-' || text[0] == '+') && is_alphanumeric(text[1])))
        return false;
    if (strncmp(text, "...", 3) == 0) return false;
    for (const char *at = text; *at; at++) {
        if (is_alphanumeric(*at) || strchr("/._-+=%()|", *at)) continue;
        if (*at == ' ' && at[1] && at[1] != ' ' && at[1] != '#') continue;
        if (*at == ':' && is_alphanumeric(at[1])) continue;
        return false;
    }
    return true;
}

/* Characters that may only be written as an escape: controls, the byte order mark, non-characters.
 * Sets *code and returns the length of the UTF-8 sequence; 0 for one that may stand as it is. */
static size_t must_escape(const unsigned char *at, unsigned *code)
{
    *code = *at;
    if (*at < 0x20 || *at == 0x7f) return 1;
    if (*at == 0xc2 && at[1] < 0xa0) return *code = at[1], 2;
    if (*at != 0xef || !at[1]) return 0;
    *code = 0xf000u | (at[1] & 0x3fu) << 6 | (at[2] & 0x3fu);
    return *code == 0xfeff || *code >= 0xfffe ? 3 : 0;
}

static kv_status quote(kv_text *t, const char *text, kv_error *err)
{
    kv_status status = KV_OK;
    KV_TRY(kv_text_add(t, err, "\""));
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        unsigned code;
        size_t const length = must_escape(at, &code);
        if (length)
            KV_TRY(kv_text_add(t, err, "\\u%04X", code));
        else if (*at == '"' || *at == '\\')
            KV_TRY(kv_text_add(t, err, "\\%c", *at));
        else
            KV_TRY(kv_text_add(t, err, "%c", *at));
        at += length ? length : 1;
    }
    KV_TRY(kv_text_add(t, err, "\""));
done:
    return status;
}

kv_status kv_yaml_quote(kv_text *text, const char *value, kv_error *err)
{
    return is_plain_safe(value) ? kv_text_add(text, err, "%s", value) : quote(text, value, err);
}
