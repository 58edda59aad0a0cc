/* Options of a command line: one table says which there are, and reads, checks and documents them.
 *
 * A row describes a field of a plain struct, which starts as zero. A command takes the rows whose
 * letters it names; options and arguments may come in any order, `--` ends the options.
 *
 *     typedef struct { const char *output; kv_option_whole threads; } options;
 *     static const kv_option_row rows[] = {
 *         {'o', "output", "FILE", "where the result goes", KV_OPTION(TEXT, options, output)},
 *         {'t', "threads", "N", "threads", KV_OPTION_NUMBER(WHOLE, options, threads, 1, 4096,
 *                                                           "a number from 1 to 4096")}};
 *     kv_option_set const set = {"sweep", "ot", rows, 2};
 *     KV_TRY(kv_options_read(&o, &set, &argc, &argv, err));        argv: what is left */
#ifndef KVANT_KERNELS_OPTIONS_H
#define KVANT_KERNELS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "kernels/error.h"

/* Fields; texts are those of the command line. */
enum { KV_OPTION_MOST = 64 };
typedef struct {
    int n;
    const char *items[KV_OPTION_MOST];
} kv_option_list; /* of an option that may be given again */
typedef struct {
    bool is_given;
    int64_t value;
} kv_option_whole;
typedef struct {
    bool is_given;
    double value;
} kv_option_real;

typedef enum {
    KV_OPTION_FLAG, /* bool; takes no value */
    KV_OPTION_TEXT, /* const char * */
    KV_OPTION_LIST,
    KV_OPTION_WHOLE,
    KV_OPTION_REAL
} kv_option_kind;

typedef struct {
    char letter;
    const char *name, *argument, *help; /* argument: what its value is called; NULL for a flag */
    kv_option_kind kind;
    size_t offset;
    double least, most;   /* of numbers */
    const char *expected; /* "--NAME: expected ..., found ..." */
} kv_option_row;

#define KV_OPTION(kind, type, field) KV_OPTION_##kind, offsetof(type, field), 0, 0, NULL
#define KV_OPTION_NUMBER(kind, type, field, least, most, expected)                                 \
    KV_OPTION_##kind, offsetof(type, field), least, most, expected

typedef struct {
    const char *command; /* for messages */
    const char *letters; /* of the rows it takes */
    const kv_option_row *rows;
    size_t n_rows;
} kv_option_set;

/* Reads argv [argc], whose first item is the command; leaves in them the arguments that are no
 * options. May change their order. KV_EREQUEST for an option that the command does not take, one
 * without its value, or a number out of range. Not thread-safe, as getopt is not. */
kv_status kv_options_read(void *out, const kv_option_set *set, int *argc, char ***argv,
                          kv_error *err);

/* A line for each option the command takes. */
void kv_options_list(FILE *out, const kv_option_set *set);

#endif
