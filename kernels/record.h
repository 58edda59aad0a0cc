/* A record: labelled N-dimensional arrays in memory, what every run leaves.
 *
 * The simulator and the tuner make records; results/ stores, prints and plots them without knowing
 * what they mean. An array's axes are named dimensions of the record, in row-major order. A
 * dimension carries its coordinate (numbers or texts). NaN means "not run". Names are not empty and
 * hold no '/'; dimensions and arrays share one set of names, attributes have their own. Texts are
 * UTF-8; bytes that are not become '?'.
 *
 *     kv_record *r;
 *     kv_record_create(&r, &err);
 *     kv_dimension_spec seed = {.name = "seed", .length = 3, .numbers = s};
 *     kv_array_spec error = {.name = "out_err", .dimensions = {"seed"}, .numbers = v};
 *     kv_record_add_dimension(r, &seed, &err);
 *     kv_record_add_array(r, &error, &err);
 */
#ifndef KVANT_KERNELS_RECORD_H
#define KVANT_KERNELS_RECORD_H

#include <stdint.h>

#include "kernels/error.h"

KV_EXTERN_C_BEGIN

enum { KV_RECORD_MAX_RANK = 16 };

/* Exactly one of numbers and texts is set. */
typedef struct {
    char *name, *units, *long_name;
    int64_t length;
    double *numbers; /* [length] */
    char **texts;    /* [length] */
} kv_dimension;

/* `combine` says how the values of layers and heads become one: NULL or "mean", "rms" (the root of
 * the mean of squares), "max", "min". `labels` names a dimension of texts that the numbers are
 * positions in; NULL: they are numbers. */
typedef struct {
    char *name, *units, *long_name, *combine, *labels;
    int rank;
    int dimensions[KV_RECORD_MAX_RANK]; /* indices into kv_record.dimensions, outermost first */
    int64_t count;                      /* product of the extents; 1 for a scalar */
    double *numbers;                    /* [count], or NULL */
    char **texts;                       /* [count], or NULL */
} kv_array;

typedef struct {
    char *name;
    char *text; /* an attribute is a text, or (text NULL) a number */
    double number;
} kv_attribute;

typedef struct {
    int n_dimensions, n_arrays, n_attributes;
    kv_dimension *dimensions;
    kv_array *arrays;
    kv_attribute *attributes;
} kv_record;

/* What a caller gives to add a dimension; everything is copied. units and long_name may be NULL. */
typedef struct {
    const char *name, *units, *long_name;
    int64_t length;
    const double *numbers;
    const char *const *texts;
} kv_dimension_spec;

/* What a caller gives to add an array. `dimensions` ends with NULL. With numbers and texts both
 * NULL the array is made of NaN, to be filled in place. */
typedef struct {
    const char *name, *units, *long_name;
    const char *dimensions[KV_RECORD_MAX_RANK + 1];
    const double *numbers;
    const char *const *texts;
    const char *combine; /* as in kv_array; NULL = mean */
    const char *labels;  /* as in kv_array */
} kv_array_spec;

kv_status kv_record_create(kv_record **out, kv_error *err);
void kv_record_free(kv_record *record);

/* Adding a name twice, an unknown dimension or a size that overflows is an error. Adding moves
 * kv_dimension and kv_array structs; the values they point to stay where they are. Setting an
 * attribute again replaces it. */
kv_status kv_record_add_dimension(kv_record *record, const kv_dimension_spec *spec, kv_error *err);
kv_status kv_record_add_array(kv_record *record, const kv_array_spec *spec, kv_error *err);
kv_status kv_record_set_text(kv_record *record, const char *name, const char *text, kv_error *err);
kv_status kv_record_set_number(kv_record *record, const char *name, double number, kv_error *err);

/* NULL where there is none. */
const kv_dimension *kv_record_dimension(const kv_record *record, const char *name);
const kv_array *kv_record_array(const kv_record *record, const char *name);
const kv_attribute *kv_record_attribute(const kv_record *record, const char *name);

KV_EXTERN_C_END

#endif
