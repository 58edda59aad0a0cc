/* A configuration from any bytes: read without harm, and where it is one, its effective text reads
 * back to itself. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/memory.h"
#include "sim/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds, const char *what, const char *detail)
{
    if (holds) return;
    printf("%s: %s\n", what, detail);
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kv_config config = {0}, again = {0};
    kv_error err = {0};
    char *text = NULL, *same = NULL;
    kv_status const status =
        kv_config_read(&config, (const char *)data, size, "f.yaml", NULL, &err);
    if (status != KV_OK) {
        require(status == KV_EREQUEST && *err.message, "a failure without a reason", err.message);
        return 0;
    }
    require(kv_config_text(&text, &config, &err) == KV_OK, "no text", err.message);
    require(kv_config_read(&again, text, strlen(text), "again.yaml", NULL, &err) == KV_OK,
            "the effective configuration is refused", err.message);
    require(kv_config_text(&same, &again, &err) == KV_OK, "no text", err.message);
    require(strcmp(text, same) == 0, "the effective configuration changed", same);
    kv_free(text), kv_free(same);
    kv_config_free_contents(&config), kv_config_free_contents(&again);
    return 0;
}
