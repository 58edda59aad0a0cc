/* HDF5's errors as ours: see hdf5_call.h. */
#include "results/hdf5_call.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    char text[256];
} reason;

static herr_t take_first(unsigned n, const H5E_error2_t *entry, void *context)
{
    reason *const r = context;
    if (n == 0 && entry->desc) snprintf(r->text, sizeof r->text, "%s", entry->desc);
    return 0;
}

kv_status kv_hdf5_failed(kv_status status, const char *call, const char *name, kv_error *err)
{
    reason r = {"no reason given"};
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_first, &r);
    int const length = (int)strcspn(call, "("); /* the function's name without its arguments */
    return KV_FAIL(err, status, "%s: %.*s: %s", name, length, call, r.text);
}

hid_t kv_hdf5_text_type(void)
{
    hid_t const type = H5Tcopy(H5T_C_S1);
    if (type < 0) return type;
    if (H5Tset_size(type, H5T_VARIABLE) >= 0 && H5Tset_cset(type, H5T_CSET_UTF8) >= 0) return type;
    H5Tclose(type);
    return -1;
}
