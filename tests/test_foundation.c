/* Errors and allocation: first failure wins, context reads from task to cause, sizes are checked.
 */
#include "kernels/memory.h"
#include "tests/check.h"

int main(void)
{
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
