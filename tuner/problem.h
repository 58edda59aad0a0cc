/* The problem of a tuning: for every layer the choices, a key scheme and a value scheme each, with
 * the bytes they store and the error power they add.
 *
 * It is measured by the tuner (tune.h), or read from a table measured elsewhere. Error is a power:
 * what this choice alone adds at the output; powers of layers add up. Bytes are whole numbers.
 *
 *     kv_problem_load(&problem, "table.csv", &err);
 *     kv_problem_restrict(problem, &restrictions, &err);
 *     kv_problem_knapsack(&knapsack, problem, &err);      then tuner/frontier.h
 *
 * A table from elsewhere is CSV (RFC 4180, a header row) or an HDF5 file with one 1-D dataset per
 * column. Columns, in any order: layer,key,value,error,bytes (one row a choice), or
 * layer,tensor,scheme,error,bytes with tensor `key` or `value` (separable: every key scheme of a
 * layer with every value scheme, errors and bytes added). Further columns are kept. layer is a
 * whole number; error a finite number >= 0; bytes a whole number >= 0; schemes are names, in
 * kvant's shorthand where kvant is to know more of them than the name. */
#ifndef KVANT_TUNER_PROBLEM_H
#define KVANT_TUNER_PROBLEM_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/record.h"
#include "tuner/frontier.h"

/* Where the error of a choice comes from. */
typedef enum {
    KV_ERROR_GIVEN,     /* by a table measured elsewhere */
    KV_ERROR_ESTIMATED, /* from what key or value does in its own layer, at least one of them */
    KV_ERROR_SUMMED,    /* of key and value, each measured alone */
    KV_ERROR_MEASURED,  /* both at once */
    KV_ERROR_SOURCES
} kv_error_source;

typedef struct {
    int32_t key, value; /* indices into key_schemes, value_schemes */
    int64_t bytes;
    double error; /* power */
    kv_error_source source;
} kv_choice;

typedef struct {
    int64_t number; /* of the layer in its model; rising */
    int64_t n_choices;
    kv_choice *choices;
} kv_problem_layer;

/* One number per layer and scheme of one tensor; NaN (-1 in bytes) where the table has none. */
typedef struct {
    int64_t n;
    char **schemes; /* [n] texts, canonical where they are shorthand */
    double *error;  /* [L][n], NULL unless is_separable */
    int64_t *bytes; /* [L][n], NULL unless is_separable */
} kv_problem_side;

typedef struct {
    int64_t n_layers;
    kv_problem_layer *layers;
    kv_problem_side keys, values;
    bool is_separable; /* a choice's error and bytes are its key's plus its value's */
    bool is_split;     /* the sides were found from the choices: only sums mean something */
    /* Columns of the file beyond those above, as text, in file order; n_rows is 0 without them. */
    int64_t n_rows, n_extra;
    char **extra_names;           /* [n_extra] */
    char **extra_values;          /* [n_rows][n_extra], within extra_text */
    char *extra_text;             /* owns the texts of extra_values */
    int64_t *row_layer;           /* [n_rows] number of the layer */
    int32_t *row_key, *row_value; /* [n_rows] scheme of the row, -1 for none */
} kv_problem;

/* KV_EIO, or KV_EINPUT with file:line and every problem at once (the first 20): a missing column, a
 * choice given twice, a layer without key or without value rows, a bad number. */
kv_status kv_problem_load(kv_problem **out, const char *path, kv_error *err);
void kv_problem_free(kv_problem *problem);

/* Builds a separable problem from arrays: keys and values filled [L][n], numbers [L]; choices are
 * all pairs, or those listed in pairs [n_pairs] for every layer (n_pairs 0: all). Copies. */
kv_status kv_problem_create(kv_problem **out, int64_t n_layers, const int64_t *numbers,
                            const kv_problem_side *keys, const kv_problem_side *values,
                            const int32_t (*pairs)[2], int64_t n_pairs, kv_error *err);

/* What may be chosen. Scheme texts compare as canonical shorthand where they are shorthand, else
 * letter by letter. */
typedef struct {
    int64_t layer;           /* number; -1 in a ban: every layer */
    const char *key, *value; /* NULL in a ban: any */
} kv_choice_name;
typedef struct {
    int64_t n_pins, n_bans;
    const kv_choice_name *pins, *bans;
    bool key_at_least_value; /* the key's stored bytes must not be below the value's; a table of
                                pairs must then hold kvant's shorthand */
} kv_restrictions;

/* Removes choices. KV_EREQUEST names the layer that would have none left, or a pin or ban that
 * matches nothing (with the nearest name). */
kv_status kv_problem_restrict(kv_problem *problem, const kv_restrictions *restrictions,
                              kv_error *err);

/* Integers for the solver: errors as multiples of `unit`, in the order of the choices. Where all
 * errors are decimals of few digits, as tables hold them, the unit is a power of ten and nothing is
 * rounded (0.1 + 0.2 ties with 0.3); else the smallest power of two for which the layers' largest
 * errors add up to less than 2^61, and errors are rounded to it: those that differ by less do not
 * count beside the largest. KV_EREQUEST where bytes add up to 2^61 or more or errors to infinity.
 * Freed with kv_problem_integers_free. */
typedef struct {
    kv_knapsack knapsack;
    double unit;
    int64_t *n_options;
    kv_option **options;
} kv_problem_integers;
kv_status kv_problem_integers_create(kv_problem_integers *out, const kv_problem *problem,
                                     kv_error *err);
void kv_problem_integers_free(kv_problem_integers *integers);

/* The index of a scheme among a side's, -1 for none; compares as restrictions do. */
int32_t kv_problem_scheme(const kv_problem *problem, const char *text, bool is_key);

/* The position of a layer by its number, -1 for none. */
int64_t kv_problem_layer_at(const kv_problem *problem, int64_t number);

/* The choice of a layer (by position) with this key and value; -1 for none. */
int64_t kv_problem_find(const kv_problem *problem, int64_t layer, const char *key,
                        const char *value);

/* The first choice of the layer that dominates this one: no larger and no worse, and better in one
 * of the two or equal and earlier. -1 for none. */
int64_t kv_problem_dominator(const kv_problem_layer *layer, int64_t choice);

/* The pairs of schemes that every layer may have, layers with only one choice aside, which take
 * that: assignments uniform [n][L]. The caller frees. */
kv_status kv_problem_uniform(int32_t **uniform, int64_t *n, const kv_problem *problem,
                             kv_error *err);
/* The layer whose choice names the pair of such a row: the first with several choices. */
int64_t kv_problem_free_layer(const kv_problem *problem);

/* Bytes and additive error of an assignment: choice index per layer; -1 and NaN where one is -1.
 * Errors are added in the order of the layers. */
int64_t kv_problem_bytes(const kv_problem *problem, const int32_t *assignment);
double kv_problem_error(const kv_problem *problem, const int32_t *assignment);

/* Adds the tables to a record: dimensions layer, key_scheme, value_scheme; table_error and
 * table_bytes [layer][key_scheme][value_scheme], NaN where there is no such choice; where errors
 * are not given table_source, positions in the dimension `source` (given, estimated, summed,
 * measured); of separable ones also table_key_error [layer][key_scheme] and so on. Further columns
 * of the file become row_NAME over `row`, beside row_layer, row_key and row_value. KV_EREQUEST
 * where a sparse table would become too large so. */
kv_status kv_problem_record(kv_record *record, const kv_problem *problem, kv_error *err);

#endif
