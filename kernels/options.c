/* Options of a command line: see options.h. */
#include "kernels/options.h"

#include <getopt.h>
#include <string.h>

#include "kernels/text.h"

enum { MOST_ROWS = 64 };

static bool is_taken(const kv_option_set *set, const kv_option_row *row)
{
    return strchr(set->letters, row->letter) != NULL;
}

static kv_status set_field(void *out, const kv_option_row *row, const char *text, kv_error *err)
{
    void *const field = (char *)out + row->offset;
    kv_option_list *const list = field;
    kv_option_whole *const whole = field;
    kv_option_real *const real = field;
    switch (row->kind) {
    case KV_OPTION_FLAG: *(bool *)field = true; return KV_OK;
    case KV_OPTION_TEXT: *(const char **)field = text; return KV_OK;
    case KV_OPTION_LIST:
        if (list->n == KV_OPTION_MOST)
            return KV_FAIL(err, KV_EREQUEST, "an option is given more than %d times",
                           KV_OPTION_MOST);
        list->items[list->n++] = text;
        return KV_OK;
    case KV_OPTION_WHOLE:
        whole->is_given = kv_parse_int(text, &whole->value) && (double)whole->value >= row->least &&
                          (double)whole->value <= row->most;
        if (whole->is_given) return KV_OK;
        break;
    case KV_OPTION_REAL:
        real->is_given = kv_parse_real(text, &real->value) && real->value >= row->least &&
                         real->value <= row->most;
        if (real->is_given) return KV_OK;
        break;
    }
    return KV_FAIL(err, KV_EREQUEST, "--%s: expected %s, found \"%s\"", row->name, row->expected,
                   text);
}

/* getopt's two descriptions of the options that are taken. */
static void describe(struct option *names, char *letters, const kv_option_set *set)
{
    *letters++ = ':';
    for (size_t i = 0; i < set->n_rows && i < MOST_ROWS; i++) {
        const kv_option_row *const row = &set->rows[i];
        int const has_value = row->argument ? required_argument : no_argument;
        if (!is_taken(set, row)) continue;
        *names++ = (struct option){row->name, has_value, NULL, row->letter};
        *letters++ = row->letter;
        if (row->argument) *letters++ = ':';
    }
    *names = (struct option){0};
    *letters = 0;
}

kv_status kv_options_read(void *out, const kv_option_set *set, int *argc, char ***argv,
                          kv_error *err)
{
    struct option names[MOST_ROWS + 1];
    char letters[2 * MOST_ROWS + 2], **const words = *argv;
    describe(names, letters, set);
    opterr = 0;
    for (int letter; (letter = getopt_long(*argc, words, letters, names, NULL)) != -1;) {
        if (letter == '?')
            return KV_FAIL(err, KV_EREQUEST, "%s does not take \"%s\"; see kvant help %s",
                           set->command, words[optind - 1], set->command);
        if (letter == ':')
            return KV_FAIL(err, KV_EREQUEST, "%s needs a value; see kvant help %s",
                           words[optind - 1], set->command);
        const kv_option_row *row = set->rows;
        while (row->letter != letter) row++;
        kv_status const status = set_field(out, row, optarg, err);
        if (status != KV_OK) return status;
    }
    *argv += optind, *argc -= optind;
    return KV_OK;
}

void kv_options_list(FILE *out, const kv_option_set *set)
{
    for (size_t i = 0; i < set->n_rows; i++) {
        const kv_option_row *const row = &set->rows[i];
        char left[64];
        if (!is_taken(set, row)) continue;
        snprintf(left, sizeof left, "--%s%s%s", row->name, row->argument ? " " : "",
                 row->argument ? row->argument : "");
        fprintf(out, "  -%c, %-20s %s\n", row->letter, left, row->help);
    }
}
