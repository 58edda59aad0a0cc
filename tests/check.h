/* The test programs' one tool: CHECK(condition) and CHECK_TEXT count failures, check_done() ends.
 */
#ifndef KVANT_TESTS_CHECK_H
#define KVANT_TESTS_CHECK_H

#include <math.h>
#include <stdio.h>
#include <string.h>

static int check_failures;

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            check_failures++;                                                                      \
            printf("%s:%d: not true: %s: ", __FILE__, __LINE__, #condition);                       \
            printf(__VA_ARGS__);                                                                   \
            printf("\n");                                                                          \
        }                                                                                          \
    } while (0)

/* Two strings equal to the letter. */
#define CHECK_TEXT(found, expected)                                                                \
    do {                                                                                           \
        const char *const found_ = (found), *const expected_ = (expected);                         \
        CHECK(strcmp(found_, expected_) == 0, "\n  found    %s\n  expected %s", found_,            \
              expected_);                                                                          \
    } while (0)

static inline int check_done(void)
{
    if (check_failures) printf("%d checks failed\n", check_failures);
    return check_failures != 0;
}

#endif
