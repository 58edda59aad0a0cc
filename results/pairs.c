/* Key x value matrices: see pairs.h. */
#include "results/pairs.h"

#include <string.h>

#include "kernels/memory.h"

static const struct {
    const char *name, *array;
} part_table[KV_N_PARTS] = {{"key", "key_scheme"}, {"value", "value_scheme"}};

/* The texts of each scheme's part, NULL where the record has none. */
static const kv_array *part_array(const kv_record *r, int part)
{
    const kv_array *const a = kv_record_array(r, part_table[part].array);
    const kv_dimension *const scheme = kv_record_dimension(r, "scheme");
    int const is_good = a && a->texts && a->rank == 1 && scheme &&
                        a->dimensions[0] == (int)(scheme - r->dimensions);
    return is_good ? a : NULL;
}

int kv_pairs_part(const kv_record *record, const char *name)
{
    for (int part = 0; name && part < KV_N_PARTS; part++)
        if (strcmp(name, part_table[part].name) == 0 && !kv_record_dimension(record, name) &&
            part_array(record, part))
            return part;
    return -1;
}

const char *kv_pairs_text(const kv_frame *f, int part, int64_t row)
{
    const kv_array *const a = part_array(f->record, part);
    int const axis = kv_frame_axis(f, "scheme");
    return a && axis >= 0 ? a->texts[f->index[row * f->n_axes + axis]] : NULL;
}

static int64_t number_texts(int64_t *number, const char **distinct, const kv_frame *f, int part,
                            int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        const char *const text = kv_pairs_text(f, part, i * (f->n_rows / n)); /* schemes first */
        int64_t k = 0;
        while (k < count && strcmp(distinct[k], text) != 0) k++;
        if (k == count) distinct[count++] = text;
        number[i] = k;
    }
    return count;
}

static int is_twice(const kv_pairs *p, int64_t n, int64_t i)
{
    for (int64_t k = i + 1; k < n; k++)
        if (p->number[KV_PART_KEY][i] == p->number[KV_PART_KEY][k] &&
            p->number[KV_PART_VALUE][i] == p->number[KV_PART_VALUE][k])
            return 1;
    return 0;
}

kv_status kv_pairs_find(kv_pairs *out, const kv_frame *f, kv_error *err)
{
    kv_status status = KV_OK;
    kv_pairs p = {0};
    void *memory = NULL;
    int const axis = kv_frame_axis(f, "scheme");
    int64_t const n = axis == 0 ? f->extents[0] : 0;
    if (n < 1 || !part_array(f->record, KV_PART_KEY) || !part_array(f->record, KV_PART_VALUE))
        goto done;
    for (int part = 0; part < KV_N_PARTS; part++) {
        KV_TRY(kv_allocate(&memory, (size_t)n, sizeof *p.number[part], err));
        p.number[part] = memory;
        KV_TRY(kv_allocate(&memory, (size_t)n, sizeof *p.text[part], err));
        p.text[part] = memory;
        p.count[part] = number_texts(p.number[part], p.text[part], f, part, n);
    }
    int is_matrix = p.count[KV_PART_KEY] * p.count[KV_PART_VALUE] == n;
    for (int64_t i = 0; i < n && is_matrix; i++) is_matrix = !is_twice(&p, n, i);
    p.n_schemes = is_matrix ? n : 0;
done:
    if (status != KV_OK) kv_pairs_free_contents(&p);
    *out = p;
    return status;
}

void kv_pairs_free_contents(kv_pairs *p)
{
    for (int part = 0; part < KV_N_PARTS; part++) {
        kv_free(p->number[part]), p->number[part] = NULL;
        kv_free(p->text[part]), p->text[part] = NULL;
    }
}
