/* Options of a command line: every kind, in any order, and each refusal to the letter. */
#include "kernels/options.h"

#include <getopt.h>
#include <stdlib.h>

#include "tests/check.h"

typedef struct {
    const char *text;
    kv_option_whole whole;
    kv_option_real real;
    kv_option_list list;
    bool flag;
} options;

static const kv_option_row rows[] = {
    {'t', "text", "TEXT", "any text", KV_OPTION(TEXT, options, text)},
    {'w', "whole", "N", "a whole number",
     KV_OPTION_NUMBER(WHOLE, options, whole, -2, 7, "a number from -2 to 7")},
    {'r', "real", "X", "a number", KV_OPTION_NUMBER(REAL, options, real, 0.5, 2, "0.5 to 2")},
    {'l', "list", "ITEM", "an item", KV_OPTION(LIST, options, list)},
    {'f', "flag", NULL, "a flag", KV_OPTION(FLAG, options, flag)},
    {'z', "other", NULL, "another command's", KV_OPTION(FLAG, options, flag)},
};
static const kv_option_set set = {"run", "twrlf", rows, sizeof rows / sizeof rows[0]};

/* Words [n], of which the first is the command. */
static kv_status read_words(options *o, char **words, int *n, char ***left, kv_error *err)
{
    *o = (options){0};
    *err = (kv_error){0};
    *left = words;
    optind = 0; /* getopt starts again */
    return kv_options_read(o, &set, n, left, err);
}

static void read_all(void)
{
    char *words[] = {"run", "one",         "--text", "a b", "-w-2",
                     "two", "--real=5e-1", "--list", "x",   NULL};
    kv_error err;
    options o;
    char **left;
    int n = 9;
    CHECK(read_words(&o, words, &n, &left, &err) == KV_OK, "%s", err.message);
    CHECK_TEXT(o.text, "a b");
    CHECK(o.whole.is_given && o.whole.value == -2 && o.real.is_given && o.real.value == 0.5,
          "numbers");
    CHECK(o.list.n == 1 && strcmp(o.list.items[0], "x") == 0 && !o.flag, "list, flag");
    CHECK(n == 2 && strcmp(left[0], "one") == 0 && strcmp(left[1], "two") == 0, "%d left", n);
    char *end[] = {"run", "-f", "-w", "7", "-w", "0", "--", "-x", NULL};
    n = 8;
    CHECK(read_words(&o, end, &n, &left, &err) == KV_OK, "%s", err.message);
    CHECK(o.flag && o.whole.value == 0 && !o.real.is_given && !o.text, "the last one counts");
    CHECK(n == 1 && strcmp(left[0], "-x") == 0, "after --");
    char *none[] = {"run", NULL};
    n = 1;
    CHECK(read_words(&o, none, &n, &left, &err) == KV_OK && n == 0, "nothing");
}

static void refuse(void)
{
    static const struct {
        const char *words[3];
        const char *message;
    } cases[] = {
        {{"run", "-w", "8"}, "--whole: expected a number from -2 to 7, found \"8\""},
        {{"run", "-w", "-3"}, "--whole: expected a number from -2 to 7, found \"-3\""},
        {{"run", "-w", "1.0"}, "--whole: expected a number from -2 to 7, found \"1.0\""},
        {{"run", "--whole="}, "--whole: expected a number from -2 to 7, found \"\""},
        {{"run", "-w", "99999999999999999999"},
         "--whole: expected a number from -2 to 7, found \"99999999999999999999\""},
        {{"run", "-r", "0.4999"}, "--real: expected 0.5 to 2, found \"0.4999\""},
        {{"run", "-r", "nan"}, "--real: expected 0.5 to 2, found \"nan\""},
        {{"run", "-r", "inf"}, "--real: expected 0.5 to 2, found \"inf\""},
        {{"run", "-r", "1x"}, "--real: expected 0.5 to 2, found \"1x\""},
        {{"run", "--text"}, "--text needs a value; see kvant help run"},
        {{"run", "-t"}, "-t needs a value; see kvant help run"},
        {{"run", "--flag=1"}, "run does not take \"--flag=1\"; see kvant help run"},
        {{"run", "--other"}, "run does not take \"--other\"; see kvant help run"},
        {{"run", "-z", "x"}, "run does not take \"-z\"; see kvant help run"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *words[4] = {0};
        options o;
        kv_error err;
        char **left;
        int n = 0;
        for (; n < 3 && cases[i].words[n]; n++) words[n] = (char *)(uintptr_t)cases[i].words[n];
        CHECK(read_words(&o, words, &n, &left, &err) == KV_EREQUEST, "case %zu", i);
        CHECK_TEXT(err.message, cases[i].message);
    }
}

static void lists(void)
{
    char *words[2 * KV_OPTION_MOST + 4] = {"run"};
    kv_error err;
    options o;
    char **left;
    int n = 1;
    for (int i = 0; i < KV_OPTION_MOST + 1; i++) words[n++] = "-l", words[n++] = "x";
    int most = n - 2;
    CHECK(read_words(&o, words, &most, &left, &err) == KV_OK && o.list.n == KV_OPTION_MOST, "%d",
          o.list.n);
    CHECK(read_words(&o, words, &n, &left, &err) == KV_EREQUEST, "one more");
    CHECK_TEXT(err.message, "an option is given more than 64 times");
}

static void documentation(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *const out = open_memstream(&text, &size);
    kv_options_list(out, &set);
    fclose(out);
    CHECK_TEXT(text, "  -t, --text TEXT          any text\n"
                     "  -w, --whole N            a whole number\n"
                     "  -r, --real X             a number\n"
                     "  -l, --list ITEM          an item\n"
                     "  -f, --flag               a flag\n");
    free(text);
}

int main(void)
{
    read_all();
    refuse();
    lists();
    documentation();
    return check_done();
}
