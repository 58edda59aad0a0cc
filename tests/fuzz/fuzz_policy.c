/* A policy from any bytes: read without harm, and where it is one, its canonical text reads back to
 * itself. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/memory.h"
#include "sim/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds, const char *what, const char *detail)
{
    if (holds) return;
    printf("%s: %s\n", what, detail);
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kv_policy policy = {0}, again = {0};
    kv_error err = {0};
    char *text = NULL, *same = NULL;
    kv_status const status = kv_policy_parse(&policy, (const char *)data, size, "/f.yaml", &err);
    if (status != KV_OK) {
        require(status == KV_EREQUEST && *err.message, "a failure without a reason", err.message);
        return 0;
    }
    require(kv_policy_text(&text, &policy, &err) == KV_OK, "no text", err.message);
    require(kv_policy_parse(&again, text, strlen(text), "/again.yaml", &err) == KV_OK,
            "the canonical policy is refused", err.message);
    require(kv_policy_text(&same, &again, &err) == KV_OK, "no text", err.message);
    require(strcmp(text, same) == 0, "the canonical policy changed", same);
    kv_free(text), kv_free(same);
    kv_policy_free_contents(&policy), kv_policy_free_contents(&again);
    return 0;
}
