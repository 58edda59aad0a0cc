/* Errors and allocation: first failure wins, context reads from task to cause, sizes are checked.
 */
#include "kernels/file.h"
#include "kernels/memory.h"
#include "kernels/text.h"
#include "tests/check.h"

static void bytes_texts(void)
{
    static const struct {
        double bytes;
        const char *text;
    } rows[] = {{0, "0 bytes"},           {1, "1 bytes"},      {1023, "1023 bytes"},
                {1024, "1 KiB"},          {1272, "1.242 KiB"}, {0x1p20, "1 MiB"},
                {456654848, "435.5 MiB"}, {0x1p30, "1 GiB"},   {3e15, "2728 TiB"}};
    char text[KV_BYTES_TEXT];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        CHECK_TEXT(kv_bytes_text(text, rows[i].bytes), rows[i].text);
}

static void file_names(void)
{
    static const char *const rows[][2] = {{"dir/name.yaml", "name.h5"}, {"name", "name.h5"},
                                          {"a.b/name", "name.h5"},      {"a.b.c", "a.b.h5"},
                                          {".hidden", ".hidden.h5"},    {"/", ".h5"}};
    kv_error err = {0};
    char *text = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CHECK(kv_file_name_after(&text, rows[i][0], ".h5", &err) == KV_OK, "%s", err.message);
        CHECK_TEXT(text, rows[i][1]);
        kv_free(text);
    }
    CHECK(kv_file_whole_path(&text, "/a/b", &err) == KV_OK && strcmp(text, "/a/b") == 0, "whole");
    kv_free(text);
    CHECK(kv_file_whole_path(&text, "a/b", &err) == KV_OK && *text == '/' &&
              strcmp(text + strlen(text) - 4, "/a/b") == 0,
          "%s", text);
    kv_free(text);
    CHECK(kv_file_replace("foundation.txt", "x", 1, &err) == KV_OK, "%s", err.message);
    CHECK(kv_file_refuse_input("foundation.txt", NULL, &err) == KV_OK, "no input");
    CHECK(kv_file_refuse_input("foundation.h5", "foundation.txt", &err) == KV_OK, "not there");
    CHECK(kv_file_refuse_input("./foundation.txt", "foundation.txt", &err) == KV_EREQUEST, "same");
    CHECK_TEXT(err.message, "./foundation.txt is read by this run; name another output");
    remove("foundation.txt");
}

int main(void)
{
    bytes_texts();
    file_names();

    kv_error err = {0};
    CHECK(KV_FAIL(&err, KV_EIO, "disk %d", 7) == KV_EIO, "status");
    KV_FAIL(&err, KV_ENOMEM, "later");
    kv_error_prepend(&err, "writing %s", "x.h5");
    CHECK_TEXT(err.message, "writing x.h5: disk 7");
    CHECK(err.status == KV_EIO, "%d", (int)err.status);

    void *memory = NULL;
    err = (kv_error){0};
    CHECK(kv_allocate(&memory, SIZE_MAX / 2, 4, &err) == KV_ENOMEM, "an overflowing size");
    err = (kv_error){0};
    CHECK(kv_allocate3(&memory, 1u << 31, 1u << 31, 1u << 31, 1, &err) == KV_ENOMEM,
          "three extents");
    kv_fail_allocation(1);
    err = (kv_error){0};
    CHECK(kv_allocate(&memory, 0, 8, &err) == KV_OK && memory, "%s", err.message);
    kv_free(memory);
    CHECK(kv_allocate(&memory, 8, 8, &err) == KV_ENOMEM, "the injected failure");
    CHECK(kv_fail_allocation(-1) == 2, "allocations are counted");

    int64_t product = 0;
    CHECK(kv_multiply_sizes(3, 5, &product) && product == 15, "%lld", (long long)product);
    CHECK(!kv_multiply_sizes(INT64_MAX, 2, &product), "overflow");
    return check_done();
}
