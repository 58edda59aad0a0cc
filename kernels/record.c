/* Records: see record.h. Lists grow by doubling; their capacity follows from their length. */
#include "kernels/record.h"

#include <math.h>
#include <string.h>

#include "kernels/memory.h"
#include "kernels/text.h"

static kv_status copy_text(char **out, const char *text, kv_error *err)
{
    kv_status const status = kv_duplicate(out, text, err);
    if (status != KV_OK) return status;
    for (char *s = *out; *s;) {
        size_t const n = kv_utf8_length(s);
        if (n == 0) *s = '?';
        s += n ? n : 1;
    }
    return KV_OK;
}

static kv_status copy_text_or_null(char **out, const char *text, kv_error *err)
{
    return text ? copy_text(out, text, err) : KV_OK;
}

static void free_texts(char **texts, int64_t count)
{
    for (int64_t i = 0; texts && i < count; i++) kv_free(texts[i]);
    kv_free(texts);
}

/* numbers or texts [count], whichever is given. */
static kv_status copy_values(double **numbers, char ***texts, const double *given_numbers,
                             const char *const *given_texts, int64_t count, kv_error *err)
{
    kv_status status = KV_OK;
    void *memory = NULL;
    if (given_texts) {
        KV_TRY(kv_allocate(&memory, (size_t)count, sizeof **texts, err));
        *texts = memory;
        for (int64_t i = 0; i < count; i++) {
            const char *const text = given_texts[i] ? given_texts[i] : "";
            KV_TRY(copy_text(&(*texts)[i], text, err));
        }
    } else {
        KV_TRY(kv_allocate(&memory, (size_t)count, sizeof **numbers, err));
        *numbers = memory;
        for (int64_t i = 0; i < count; i++)
            (*numbers)[i] = given_numbers ? given_numbers[i] : (double)NAN;
    }
done:
    return status;
}

static void free_dimension(kv_dimension *d)
{
    kv_free(d->name), kv_free(d->units), kv_free(d->long_name);
    kv_free(d->numbers), free_texts(d->texts, d->length);
}

static void free_array(kv_array *a)
{
    kv_free(a->name), kv_free(a->units), kv_free(a->long_name);
    kv_free(a->combine), kv_free(a->labels);
    kv_free(a->numbers), free_texts(a->texts, a->count);
}

static void free_attribute(kv_attribute *a)
{
    kv_free(a->name), kv_free(a->text);
}

kv_status kv_record_create(kv_record **out, kv_error *err)
{
    void *memory = NULL;
    kv_status const status = kv_allocate(&memory, 1, sizeof **out, err);
    if (status == KV_OK) *out = memory;
    return status;
}

void kv_record_free(kv_record *record)
{
    if (!record) return;
    for (int i = 0; i < record->n_dimensions; i++) free_dimension(&record->dimensions[i]);
    for (int i = 0; i < record->n_arrays; i++) free_array(&record->arrays[i]);
    for (int i = 0; i < record->n_attributes; i++) free_attribute(&record->attributes[i]);
    kv_free(record->dimensions), kv_free(record->arrays), kv_free(record->attributes);
    kv_free(record);
}

/* Room for one more of `count` elements; lists only ever grow one by one, so the capacity is the
 * power of two that holds them. */
static kv_status make_room(void **list, int count, size_t size, kv_error *err)
{
    size_t capacity = count > 0;
    while (capacity < (size_t)count) capacity *= 2;
    return kv_grow(list, &capacity, (size_t)count, (size_t)count + 1, size, err);
}

static int find_dimension(const kv_record *record, const char *name)
{
    for (int i = 0; i < record->n_dimensions; i++)
        if (strcmp(record->dimensions[i].name, name) == 0) return i;
    return -1;
}

static kv_status check_name(const kv_record *record, const char *name, kv_error *err)
{
    if (!name || !*name || strchr(name, '/') || strcmp(name, ".") == 0)
        return KV_FAIL(err, KV_EREQUEST, "\"%s\" cannot name a dimension or an array",
                       name ? name : "");
    if (record && (find_dimension(record, name) >= 0 || kv_record_array(record, name)))
        return KV_FAIL(err, KV_EREQUEST, "%s: the record already has this name", name);
    return KV_OK;
}

kv_status kv_record_add_dimension(kv_record *record, const kv_dimension_spec *spec, kv_error *err)
{
    kv_status status = KV_OK;
    void *list = record->dimensions;
    kv_dimension d = {.length = spec->length};
    KV_TRY(check_name(record, spec->name, err));
    if (spec->length < 1 || !spec->numbers == !spec->texts) {
        d.length = 0;
        KV_TRY(KV_FAIL(err, KV_EREQUEST,
                       "%s: a dimension needs at least one coordinate, as numbers or as texts",
                       spec->name));
    }
    KV_TRY(copy_text(&d.name, spec->name, err));
    KV_TRY(copy_text_or_null(&d.units, spec->units, err));
    KV_TRY(copy_text_or_null(&d.long_name, spec->long_name, err));
    KV_TRY(copy_values(&d.numbers, &d.texts, spec->numbers, spec->texts, spec->length, err));
    KV_TRY(make_room(&list, record->n_dimensions, sizeof d, err));
    record->dimensions = list;
    record->dimensions[record->n_dimensions++] = d;
    d = (kv_dimension){0};
done:
    free_dimension(&d);
    return status;
}

static kv_status check_labels(const kv_record *record, const kv_array_spec *spec, kv_error *err)
{
    const kv_dimension *const d = spec->labels ? kv_record_dimension(record, spec->labels) : NULL;
    if (!spec->labels || (d && d->texts && !spec->texts)) return KV_OK;
    return KV_FAIL(err, KV_EREQUEST,
                   "%s: labels \"%s\": must be a dimension of texts, and the array of numbers",
                   spec->name, spec->labels);
}

kv_status kv_record_add_array(kv_record *record, const kv_array_spec *spec, kv_error *err)
{
    static const char *const rules[] = {"mean", "rms", "max", "min"};
    kv_status status = KV_OK;
    void *list = record->arrays;
    kv_array a = {0};
    int64_t count = 1;
    KV_TRY(check_name(record, spec->name, err));
    if (spec->numbers && spec->texts)
        KV_TRY(KV_FAIL(err, KV_EREQUEST, "%s: numbers and texts at once", spec->name));
    int is_rule = !spec->combine;
    for (size_t i = 0; !is_rule && i < sizeof rules / sizeof *rules; i++)
        is_rule = strcmp(spec->combine, rules[i]) == 0;
    if (!is_rule)
        KV_TRY(KV_FAIL(err, KV_EREQUEST, "%s: combine \"%s\" is none of mean, rms, max, min",
                       spec->name, spec->combine));
    KV_TRY(check_labels(record, spec, err));
    for (; spec->dimensions[a.rank]; a.rank++) {
        const char *const name = spec->dimensions[a.rank];
        int const found = find_dimension(record, name);
        if (a.rank == KV_RECORD_MAX_RANK)
            KV_TRY(KV_FAIL(err, KV_EREQUEST, "%s: more than %d dimensions", spec->name, a.rank));
        if (found < 0)
            KV_TRY(
                KV_FAIL(err, KV_EREQUEST, "%s: the record has no dimension %s", spec->name, name));
        for (int i = 0; i < a.rank; i++)
            if (a.dimensions[i] == found)
                KV_TRY(KV_FAIL(err, KV_EREQUEST, "%s: dimension %s twice", spec->name, name));
        a.dimensions[a.rank] = found;
        if (!kv_multiply_sizes(count, record->dimensions[found].length, &count))
            KV_TRY(KV_FAIL(err, KV_ENOMEM, "%s: its size overflows", spec->name));
    }
    a.count = count;
    KV_TRY(copy_text(&a.name, spec->name, err));
    KV_TRY(copy_text_or_null(&a.units, spec->units, err));
    KV_TRY(copy_text_or_null(&a.long_name, spec->long_name, err));
    KV_TRY(copy_text_or_null(&a.combine, spec->combine, err));
    KV_TRY(copy_text_or_null(&a.labels, spec->labels, err));
    KV_TRY(copy_values(&a.numbers, &a.texts, spec->numbers, spec->texts, count, err));
    KV_TRY(make_room(&list, record->n_arrays, sizeof a, err));
    record->arrays = list;
    record->arrays[record->n_arrays++] = a;
    a = (kv_array){0};
done:
    free_array(&a);
    return status;
}

static kv_status set_attribute(kv_record *record, const char *name, const char *text, double number,
                               kv_error *err)
{
    kv_status status = KV_OK;
    void *list = record->attributes;
    kv_attribute a = {.number = number};
    KV_TRY(check_name(NULL, name, err));
    KV_TRY(copy_text(&a.name, name, err));
    KV_TRY(copy_text_or_null(&a.text, text, err));
    for (int i = 0; i < record->n_attributes; i++) {
        kv_attribute *const old = &record->attributes[i];
        if (strcmp(old->name, a.name) != 0) continue;
        kv_attribute const swap = *old;
        *old = a, a = swap;
        goto done;
    }
    KV_TRY(make_room(&list, record->n_attributes, sizeof a, err));
    record->attributes = list;
    record->attributes[record->n_attributes++] = a;
    a = (kv_attribute){0};
done:
    free_attribute(&a);
    return status;
}

kv_status kv_record_set_text(kv_record *record, const char *name, const char *text, kv_error *err)
{
    return set_attribute(record, name, text ? text : "", 0, err);
}

kv_status kv_record_set_number(kv_record *record, const char *name, double number, kv_error *err)
{
    return set_attribute(record, name, NULL, number, err);
}

const kv_dimension *kv_record_dimension(const kv_record *record, const char *name)
{
    int const found = find_dimension(record, name);
    return found < 0 ? NULL : &record->dimensions[found];
}

const kv_array *kv_record_array(const kv_record *record, const char *name)
{
    for (int i = 0; i < record->n_arrays; i++)
        if (strcmp(record->arrays[i].name, name) == 0) return &record->arrays[i];
    return NULL;
}

const kv_attribute *kv_record_attribute(const kv_record *record, const char *name)
{
    for (int i = 0; i < record->n_attributes; i++)
        if (strcmp(record->attributes[i].name, name) == 0) return &record->attributes[i];
    return NULL;
}
