/* Problems from result files and policies: see problem_result.h. */
#include "tuner/problem_result.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "kernels/memory.h"
#include "kernels/shorthand.h"
#include "results/store.h"
#include "tuner/problem_parts.h"

kv_status kv_problem_load_any(kv_problem **out, const char *path, kv_error *err)
{
    kv_status status = KV_OK;
    kv_record *record = NULL;
    if (!kv_store_is_sealed(path)) return kv_problem_load(out, path, err);
    KV_TRY(kv_store_read(&record, path, err));
    KV_TRY(kv_problem_of_record(out, record, path, err));
done:
    kv_record_free(record);
    return status;
}

/* ---- from a record ---- */

/* An array over layer, key_scheme and value_scheme; NULL for anything else. */
static const kv_array *find_table(const kv_record *record, const char *name)
{
    static const char *const axes[] = {"layer", "key_scheme", "value_scheme"};
    const kv_array *const a = kv_record_array(record, name);
    bool is_good = a && a->numbers && a->rank == 3;
    for (int i = 0; is_good && i < 3; i++)
        is_good = strcmp(record->dimensions[a->dimensions[i]].name, axes[i]) == 0;
    return is_good ? a : NULL;
}

static kv_status copy_schemes(kv_problem_side *side, const kv_dimension *from, bool is_key,
                              kv_error *err)
{
    kv_status status = KV_OK;
    KV_TRY(kv_allocate((void **)&side->schemes, (size_t)from->length, sizeof *side->schemes, err));
    for (; side->n < from->length; side->n++)
        KV_TRY(kv_scheme_canonical(&side->schemes[side->n], from->texts[side->n], is_key, err));
done:
    return status;
}

static bool is_whole(double x)
{
    return x >= 0 && x <= 0x1p53 && x == floor(x);
}

static kv_status copy_layer(kv_problem *p, int64_t l, const double *errors, const double *bytes,
                            const char *name, kv_error *err)
{
    kv_status status = KV_OK;
    kv_problem_layer *const layer = &p->layers[l];
    KV_TRY(kv_allocate3((void **)&layer->choices, (size_t)p->keys.n, (size_t)p->values.n, 1,
                        sizeof *layer->choices, err));
    for (int64_t i = 0; i < p->keys.n * p->values.n; i++) {
        if (isnan(errors[i]) && isnan(bytes[i])) continue;
        if (!(errors[i] >= 0) || isinf(errors[i]) || !is_whole(bytes[i]))
            KV_TRY(KV_FAIL(err, KV_EINPUT,
                           "%s: layer %" PRId64 ", key %s, value %s: error %g and %g bytes: errors "
                           "must be finite and not negative, bytes whole numbers",
                           name, layer->number, p->keys.schemes[i / p->values.n],
                           p->values.schemes[i % p->values.n], errors[i], bytes[i]));
        layer->choices[layer->n_choices++] =
            (kv_choice){(int32_t)(i / p->values.n), (int32_t)(i % p->values.n), (int64_t)bytes[i],
                        errors[i], KV_ERROR_GIVEN};
    }
    if (layer->n_choices == 0)
        KV_TRY(
            KV_FAIL(err, KV_EINPUT, "%s: layer %" PRId64 " has no choices", name, layer->number));
done:
    return status;
}

/* Numbers of one layer as a key's and a value's: of the first key there is, the value of least
 * error carries 0. False unless all pairs are there and add up. */
static bool split_layer(kv_problem *p, int64_t l, const double *errors, const double *bytes)
{
    int64_t const n_keys = p->keys.n, n_values = p->values.n;
    int64_t first = 0, least = -1;
    double largest = 0;
    while (isnan(errors[first])) first++;
    first = first / n_values * n_values;
    for (int64_t v = 0; v < n_values; v++)
        if (!isnan(errors[first + v]) && (least < 0 || errors[first + v] < errors[first + least]))
            least = v;
    for (int64_t i = 0; i < n_keys * n_values; i++) largest = fmax(largest, errors[i]);
    for (int64_t k = 0; k < n_keys; k++) {
        bool const is_there = !isnan(errors[k * n_values + least]);
        p->keys.error[l * n_keys + k] = errors[k * n_values + least];
        p->keys.bytes[l * n_keys + k] = is_there ? (int64_t)bytes[k * n_values + least] : -1;
    }
    for (int64_t v = 0; v < n_values; v++) {
        bool const is_there = !isnan(errors[first + v]);
        p->values.error[l * n_values + v] = errors[first + v] - errors[first + least];
        p->values.bytes[l * n_values + v] =
            is_there ? (int64_t)(bytes[first + v] - bytes[first + least]) : -1;
    }
    for (int64_t i = 0; i < n_keys * n_values; i++) {
        int64_t const k = l * n_keys + i / n_values, v = l * n_values + i % n_values;
        double const sum = p->keys.error[k] + p->values.error[v];
        if (isnan(sum) != isnan(errors[i])) return false;
        if (isnan(sum)) continue;
        if (fabs(sum - errors[i]) > 1e-12 * largest) return false;
        if ((double)(p->keys.bytes[k] + p->values.bytes[v]) != bytes[i]) return false;
    }
    return true;
}

/* One tensor's numbers as they were stored; false where they are not there or no such numbers. */
static bool copy_stored(kv_problem_side *side, int64_t n_layers, const kv_record *record,
                        const char *error_name, const char *bytes_name, const char *axis)
{
    const kv_array *const arrays[] = {kv_record_array(record, error_name),
                                      kv_record_array(record, bytes_name)};
    for (int k = 0; k < 2; k++) {
        const kv_array *const a = arrays[k];
        if (!a || !a->numbers || a->rank != 2 ||
            strcmp(record->dimensions[a->dimensions[0]].name, "layer") != 0 ||
            strcmp(record->dimensions[a->dimensions[1]].name, axis) != 0)
            return false;
    }
    for (int64_t i = 0; i < n_layers * side->n; i++) {
        double const error = arrays[0]->numbers[i], bytes = arrays[1]->numbers[i];
        if (isnan(error) && isnan(bytes)) continue;
        if (!(error >= 0) || isinf(error) || !is_whole(bytes)) return false;
        side->error[i] = error, side->bytes[i] = (int64_t)bytes;
    }
    return true;
}

/* True where both tensors' numbers are stored and every choice is their sum. */
static bool take_stored(kv_problem *p, const kv_record *record)
{
    if (!copy_stored(&p->keys, p->n_layers, record, "table_key_error", "table_key_bytes",
                     "key_scheme") ||
        !copy_stored(&p->values, p->n_layers, record, "table_value_error", "table_value_bytes",
                     "value_scheme"))
        return false;
    for (int64_t l = 0; l < p->n_layers; l++)
        for (int64_t c = 0; c < p->layers[l].n_choices; c++) {
            const kv_choice *const x = &p->layers[l].choices[c];
            int64_t const k = l * p->keys.n + x->key, v = l * p->values.n + x->value;
            if (p->keys.error[k] + p->values.error[v] != x->error ||
                p->keys.bytes[k] + p->values.bytes[v] != x->bytes)
                return false;
        }
    return true;
}

static kv_status split(kv_problem *p, const kv_record *record, const double *errors,
                       const double *bytes, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t const cells = p->keys.n * p->values.n;
    KV_TRY(kv_problem_make_sides(p, err));
    p->is_separable = take_stored(p, record);
    if (p->is_separable) goto done;
    p->is_separable = true;
    for (int64_t l = 0; l < p->n_layers && p->is_separable; l++)
        p->is_separable = split_layer(p, l, errors + l * cells, bytes + l * cells);
    p->is_split = p->is_separable;
    if (p->is_separable) goto done;
    kv_free(p->keys.error), kv_free(p->keys.bytes);
    kv_free(p->values.error), kv_free(p->values.bytes);
    p->keys.error = p->values.error = NULL, p->keys.bytes = p->values.bytes = NULL;
done:
    return status;
}

kv_status kv_problem_of_record(kv_problem **out, const kv_record *record, const char *name,
                               kv_error *err)
{
    kv_status status = KV_OK;
    kv_problem *p = NULL;
    const kv_array *const errors = find_table(record, "table_error");
    const kv_array *const bytes = find_table(record, "table_bytes");
    const kv_dimension *const layers = kv_record_dimension(record, "layer");
    const kv_dimension *const keys = kv_record_dimension(record, "key_scheme");
    const kv_dimension *const values = kv_record_dimension(record, "value_scheme");
    if (!errors || !bytes || !layers->numbers || !keys->texts || !values->texts)
        KV_TRY(
            KV_FAIL(err, KV_EINPUT,
                    "%s is not the result of a tuning: it needs table_error and table_bytes over "
                    "layer, key_scheme and value_scheme",
                    name));
    KV_TRY(kv_allocate((void **)&p, 1, sizeof *p, err));
    KV_TRY(kv_allocate((void **)&p->layers, (size_t)layers->length, sizeof *p->layers, err));
    p->n_layers = layers->length;
    KV_TRY(copy_schemes(&p->keys, keys, true, err));
    KV_TRY(copy_schemes(&p->values, values, false, err));
    for (int64_t l = 0; l < p->n_layers; l++) {
        double const number = layers->numbers[l];
        if (!is_whole(number) || (l && number <= layers->numbers[l - 1]))
            KV_TRY(KV_FAIL(err, KV_EINPUT, "%s: layers must be rising whole numbers, found %g",
                           name, number));
        p->layers[l].number = (int64_t)number;
        int64_t const at = l * p->keys.n * p->values.n;
        KV_TRY(copy_layer(p, l, errors->numbers + at, bytes->numbers + at, name, err));
    }
    KV_TRY(split(p, record, errors->numbers, bytes->numbers, err));
    *out = p, p = NULL;
done:
    kv_problem_free(p);
    return status;
}

/* ---- from a policy ---- */

/* The index of a scheme, added where it is new. */
static kv_status number_scheme(int32_t *out, kv_problem_side *side, const char *text, bool is_key,
                               kv_error *err)
{
    kv_status status = KV_OK;
    char *canonical = NULL;
    KV_TRY(kv_scheme_canonical(&canonical, text, is_key, err));
    for (*out = 0; *out < side->n; ++*out)
        if (strcmp(side->schemes[*out], canonical) == 0) goto done;
    side->schemes[side->n++] = canonical, canonical = NULL;
done:
    kv_free(canonical);
    return status;
}

kv_status kv_problem_of_policy(kv_problem **out, const kv_policy *policy, kv_error *err)
{
    kv_status status = KV_OK;
    kv_problem *p = NULL;
    size_t const layers = (size_t)policy->n_layers;
    KV_TRY(kv_allocate((void **)&p, 1, sizeof *p, err));
    KV_TRY(kv_allocate((void **)&p->layers, layers, sizeof *p->layers, err));
    p->n_layers = policy->n_layers;
    KV_TRY(kv_allocate((void **)&p->keys.schemes, layers, sizeof *p->keys.schemes, err));
    KV_TRY(kv_allocate((void **)&p->values.schemes, layers, sizeof *p->values.schemes, err));
    for (int64_t l = 0; l < p->n_layers; l++) {
        const kv_policy_layer *const from = &policy->layers[l];
        kv_problem_layer *const layer = &p->layers[l];
        KV_TRY(kv_allocate((void **)&layer->choices, 1, sizeof *layer->choices, err));
        layer->number = from->layer, layer->n_choices = 1;
        layer->choices[0].bytes = from->bytes;
        layer->choices[0].error = isnan(from->error) ? 0 : from->error;
        KV_TRY(number_scheme(&layer->choices[0].key, &p->keys, from->key, true, err));
        KV_TRY(number_scheme(&layer->choices[0].value, &p->values, from->value, false, err));
    }
    *out = p, p = NULL;
done:
    kv_problem_free(p);
    return status;
}
