/* Frames: see frame.h. */
#include "results/frame.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/memory.h"

enum { SAMPLE_LENGTH = 400 };

typedef struct {
    kv_frame *frame;
    kv_selection *choices; /* [n_dimensions] which coordinates take part */
    double *replicates;    /* [most seeds] */
} builder;

const char *kv_coordinate_text(char buffer[KV_REAL_TEXT], const kv_dimension *dimension, int64_t i)
{
    return dimension->texts ? dimension->texts[i] : kv_real_text(buffer, dimension->numbers[i]);
}

static int is_one_of(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(name, *names) == 0) return 1;
    return 0;
}

/* A list for messages: "a, b, c", cut where it gets long. */
static void list_more(char text[SAMPLE_LENGTH], const char *name)
{
    size_t const used = strlen(text);
    if (used + strlen(name) + 8 < SAMPLE_LENGTH)
        snprintf(text + used, SAMPLE_LENGTH - used, "%s%s", used ? ", " : "", name);
    else if (used < 4 || strcmp(text + used - 3, "...") != 0)
        snprintf(text + used, SAMPLE_LENGTH - used, ", ...");
}

static kv_status fail_dimension(const kv_record *record, const char *name, kv_error *err)
{
    char names[SAMPLE_LENGTH] = "";
    for (int i = 0; i < record->n_dimensions; i++) list_more(names, record->dimensions[i].name);
    return KV_FAIL(err, KV_EREQUEST, "no dimension \"%s\"; there are: %s", name, names);
}

static kv_status fail_metric(const kv_record *record, const char *name, kv_error *err)
{
    char names[SAMPLE_LENGTH] = "";
    for (int i = 0; i < record->n_arrays; i++)
        if (record->arrays[i].numbers) list_more(names, record->arrays[i].name);
    return KV_FAIL(err, KV_EREQUEST, "no metric \"%s\"; there are: %s", name, names);
}

static int equals(const kv_dimension *d, int64_t i, const char *value)
{
    if (d->texts) return strcmp(d->texts[i], value) == 0;
    char *end;
    double const number = strtod(value, &end);
    if (end == value || *end) return 0;
    return fabs(number - d->numbers[i]) <= 1e-12 * fabs(d->numbers[i]);
}

/* Adds the coordinates that "dimension=value" means to the dimension's choice. */
static kv_status choose(kv_selection *choices, const kv_record *record, const char *where,
                        kv_error *err)
{
    kv_status status = KV_OK;
    char *name = NULL, names[SAMPLE_LENGTH] = "", buffer[KV_REAL_TEXT];
    const char *const equal = strchr(where, '=');
    if (!equal) KV_TRY(KV_FAIL(err, KV_EREQUEST, "\"%s\" is not dimension=value", where));
    KV_TRY(kv_duplicate_part(&name, where, (size_t)(equal - where), err));
    const kv_dimension *const d = kv_record_dimension(record, name);
    if (!d) KV_TRY(fail_dimension(record, name, err));
    kv_selection *const c = &choices[d - record->dimensions];
    int64_t n_found = 0;
    for (int64_t i = 0; i < d->length; i++) {
        list_more(names, kv_coordinate_text(buffer, d, i));
        int known = !equals(d, i, equal + 1);
        for (int64_t k = 0; !known && k < c->count; k++) known = c->items[k] == i;
        n_found += equals(d, i, equal + 1);
        if (!known) c->items[c->count++] = i;
    }
    if (!n_found)
        KV_TRY(KV_FAIL(err, KV_EREQUEST, "%s has no value \"%s\"; there are: %s", name, equal + 1,
                       names));
done:
    kv_free(name);
    return status;
}

kv_status kv_selections_create(kv_selection **out, const kv_record *r, int n_where,
                               const char *const *where, kv_error *err)
{
    kv_status status = KV_OK;
    kv_selection *selections = NULL;
    void *memory = NULL;
    KV_TRY(kv_allocate(&memory, (size_t)r->n_dimensions, sizeof *selections, err));
    selections = memory;
    for (int i = 0; i < r->n_dimensions; i++) {
        KV_TRY(kv_allocate(&memory, (size_t)r->dimensions[i].length, sizeof(int64_t), err));
        selections[i].items = memory;
    }
    for (int i = 0; i < n_where; i++) KV_TRY(choose(selections, r, where[i], err));
    *out = selections, selections = NULL;
done:
    kv_selections_free(selections, r);
    return status;
}

void kv_selections_free(kv_selection *selections, const kv_record *record)
{
    for (int i = 0; selections && i < record->n_dimensions; i++) kv_free(selections[i].items);
    kv_free(selections);
}

static int is_axis(const builder *b, int dimension)
{
    for (int i = 0; i < b->frame->n_axes; i++)
        if (b->frame->axes[i] == dimension) return 1;
    return 0;
}

/* Dimensions without a choice get all their coordinates; `class`, unless it is an axis, its first.
 */
static kv_status make_choices(builder *b, const kv_frame_request *request, kv_error *err)
{
    const kv_record *const r = b->frame->record;
    kv_status const status =
        kv_selections_create(&b->choices, r, request->n_where, request->where, err);
    for (int i = 0; status == KV_OK && i < r->n_dimensions; i++) {
        kv_selection *const c = &b->choices[i];
        if (c->count) continue;
        int const only_first = strcmp(r->dimensions[i].name, "class") == 0 && !is_axis(b, i);
        c->count = only_first ? 1 : r->dimensions[i].length;
        for (int64_t k = 0; k < c->count; k++) c->items[k] = k;
    }
    return status;
}

/* Without names: in a sweep (it has a scheme) all arrays of numbers; otherwise those that have the
 * same dimensions as the first. */
static int is_usual_metric(const kv_record *r, const kv_array *a, const kv_array *first)
{
    if (!a->numbers) return 0;
    if (!first || kv_record_dimension(r, "scheme")) return 1;
    return a->rank == first->rank &&
           memcmp(a->dimensions, first->dimensions, (size_t)a->rank * sizeof *a->dimensions) == 0;
}

static kv_status find_metrics(kv_frame *f, const kv_frame_request *request, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_record *const r = f->record;
    int const most = request->n_metrics ? request->n_metrics : r->n_arrays;
    void *memory = NULL;
    KV_TRY(kv_allocate(&memory, (size_t)most, sizeof *f->metrics, err));
    f->metrics = memory;
    for (int i = 0; i < most; i++) {
        const char *const name = request->n_metrics ? request->metrics[i] : r->arrays[i].name;
        const kv_array *const a = kv_record_array(r, name);
        if (request->n_metrics && (!a || !a->numbers)) KV_TRY(fail_metric(r, name, err));
        int is_known = 0; /* asked for twice */
        for (int m = 0; m < f->n_metrics; m++) is_known |= f->metrics[m] == a;
        if (is_known) continue;
        if (request->n_metrics || is_usual_metric(r, a, f->n_metrics ? f->metrics[0] : NULL))
            f->metrics[f->n_metrics++] = a;
    }
    if (f->n_metrics == 0) KV_TRY(KV_FAIL(err, KV_EREQUEST, "there are no metrics"));
done:
    return status;
}

static int has_dimension(const kv_frame *f, int dimension)
{
    for (int m = 0; m < f->n_metrics; m++)
        for (int i = 0; i < f->metrics[m]->rank; i++)
            if (f->metrics[m]->dimensions[i] == dimension) return 1;
    return 0;
}

static kv_status find_axes(kv_frame *f, const kv_frame_request *request, kv_error *err)
{
    static const char *const taken_together[] = {"seed", "layer", "head", "class", NULL};
    kv_status status = KV_OK;
    const kv_record *const r = f->record;
    const kv_dimension *const scheme = kv_record_dimension(r, "scheme");
    for (int i = 0; i < 2; i++) {
        const char *const name = request->extra[i];
        const kv_dimension *const d = name ? kv_record_dimension(r, name) : NULL;
        if (name && !d) KV_TRY(fail_dimension(r, name, err));
        if (d && !has_dimension(f, (int)(d - r->dimensions)))
            KV_TRY(
                KV_FAIL(err, KV_EREQUEST, "%s does not depend on %s", f->metrics[0]->name, name));
    }
    for (int pass = 0; pass < 2; pass++) /* scheme first */
        for (int i = 0; i < r->n_dimensions; i++) {
            const kv_dimension *const d = &r->dimensions[i];
            int const is_extra = (request->extra[0] && strcmp(d->name, request->extra[0]) == 0) ||
                                 (request->extra[1] && strcmp(d->name, request->extra[1]) == 0);
            if ((d == scheme) != (pass == 0) || !has_dimension(f, i)) continue;
            if (!is_extra && is_one_of(d->name, taken_together)) continue;
            if (f->n_axes == KV_RECORD_MAX_RANK)
                KV_TRY(KV_FAIL(err, KV_EREQUEST, "more than %d dimensions", KV_RECORD_MAX_RANK));
            f->axes[f->n_axes++] = i;
        }
done:
    return status;
}

/* Every combination of the axes' chosen coordinates, the first axis slowest. */
static kv_status make_rows(builder *b, kv_error *err)
{
    kv_status status = KV_OK;
    kv_frame *const f = b->frame;
    void *memory = NULL;
    f->n_rows = 1;
    for (int i = 0; i < f->n_axes; i++) {
        f->extents[i] = b->choices[f->axes[i]].count;
        if (!kv_multiply_sizes(f->n_rows, f->extents[i], &f->n_rows))
            KV_TRY(KV_FAIL(err, KV_ENOMEM, "too many rows"));
    }
    KV_TRY(kv_allocate3(&memory, (size_t)f->n_rows, (size_t)f->n_axes, 1, sizeof *f->index, err));
    f->index = memory;
    KV_TRY(
        kv_allocate3(&memory, (size_t)f->n_rows, (size_t)f->n_metrics, 1, sizeof *f->cells, err));
    f->cells = memory;
    for (int64_t row = 0; row < f->n_rows; row++) {
        int64_t rest = row;
        for (int i = f->n_axes - 1; i >= 0; i--) {
            const kv_selection *const c = &b->choices[f->axes[i]];
            f->index[row * f->n_axes + i] = c->items[rest % c->count];
            rest /= c->count;
        }
    }
done:
    return status;
}

/* One replicate's values, being combined. */
typedef struct {
    const kv_array *array;
    const kv_selection *choices;
    int64_t stride[KV_RECORD_MAX_RANK], fixed[KV_RECORD_MAX_RANK]; /* fixed: -1 = all chosen */
    int64_t n;
    double sum, squares, largest, smallest;
} collection;

static void collect(collection *c, int axis, int64_t offset)
{
    const kv_array *const a = c->array;
    if (axis == a->rank) {
        double const x = a->numbers[offset];
        if (isnan(x)) return;
        c->largest = c->n == 0 || x > c->largest ? x : c->largest;
        c->smallest = c->n == 0 || x < c->smallest ? x : c->smallest;
        c->n++, c->sum += x, c->squares += x * x;
    } else if (c->fixed[axis] >= 0) {
        collect(c, axis + 1, offset + c->fixed[axis] * c->stride[axis]);
    } else {
        const kv_selection *const all = &c->choices[a->dimensions[axis]];
        for (int64_t i = 0; i < all->count; i++)
            collect(c, axis + 1, offset + all->items[i] * c->stride[axis]);
    }
}

static double combined(const collection *c)
{
    const char *const rule = c->array->combine ? c->array->combine : "mean";
    if (c->n == 0) return (double)NAN;
    if (strcmp(rule, "max") == 0) return c->largest;
    if (strcmp(rule, "min") == 0) return c->smallest;
    if (strcmp(rule, "rms") == 0) return sqrt(c->squares / (double)c->n);
    return c->sum / (double)c->n;
}

static kv_interval cell(const builder *b, const kv_array *a, const int64_t *index)
{
    const kv_frame *const f = b->frame;
    collection c = {.array = a, .choices = b->choices};
    int seed_axis = -1;
    int64_t stride = 1, n = 1;
    for (int i = a->rank - 1; i >= 0; i--) {
        const kv_dimension *const d = &f->record->dimensions[a->dimensions[i]];
        c.stride[i] = stride, c.fixed[i] = -1;
        stride *= d->length;
        if (strcmp(d->name, "seed") == 0) seed_axis = i;
        for (int k = 0; k < f->n_axes; k++)
            if (f->axes[k] == a->dimensions[i]) c.fixed[i] = index[k];
    }
    if (seed_axis >= 0 && c.fixed[seed_axis] >= 0) seed_axis = -1; /* spread out as an axis */
    const kv_selection *const seeds = seed_axis >= 0 ? &b->choices[a->dimensions[seed_axis]] : NULL;
    if (seeds) n = seeds->count;
    for (int64_t i = 0; i < n; i++) {
        if (seeds) c.fixed[seed_axis] = seeds->items[i];
        c.n = 0, c.sum = 0, c.squares = 0;
        collect(&c, 0, 0);
        b->replicates[i] = combined(&c);
    }
    return kv_interval_of(b->replicates, n);
}

kv_status kv_frame_create(kv_frame **out, const kv_record *record, const kv_frame_request *request,
                          kv_error *err)
{
    kv_status status = KV_OK;
    builder b = {0};
    void *memory = NULL;
    const kv_dimension *const seed = kv_record_dimension(record, "seed");
    KV_TRY(kv_allocate(&memory, 1, sizeof *b.frame, err));
    b.frame = memory;
    b.frame->record = record;
    KV_TRY(kv_allocate(&memory, seed ? (size_t)seed->length : 1, sizeof *b.replicates, err));
    b.replicates = memory;
    KV_TRY(find_metrics(b.frame, request, err));
    KV_TRY(find_axes(b.frame, request, err));
    KV_TRY(make_choices(&b, request, err));
    KV_TRY(make_rows(&b, err));
    kv_frame *const f = b.frame;
    for (int64_t row = 0; row < f->n_rows; row++)
        for (int m = 0; m < f->n_metrics; m++)
            f->cells[row * f->n_metrics + m] = cell(&b, f->metrics[m], f->index + row * f->n_axes);
    *out = b.frame, b.frame = NULL;
done:
    kv_selections_free(b.choices, record);
    kv_free(b.replicates);
    kv_frame_free(b.frame);
    return status;
}

void kv_frame_free(kv_frame *frame)
{
    if (!frame) return;
    kv_free(frame->index), kv_free(frame->cells), kv_free(frame->metrics);
    kv_free(frame);
}

int kv_frame_axis(const kv_frame *frame, const char *name)
{
    for (int i = 0; name && i < frame->n_axes; i++)
        if (strcmp(frame->record->dimensions[frame->axes[i]].name, name) == 0) return i;
    return -1;
}

const kv_dimension *kv_frame_dimension(const kv_frame *frame, int axis)
{
    return &frame->record->dimensions[frame->axes[axis]];
}
