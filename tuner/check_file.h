/* What `kvant check` does: a configuration, of a sweep or a tuning, is validated and printed
 * with every default filled in and policies written out, so that it can be run as it is; a policy
 * in its canonical form. */
#ifndef KVANT_TUNER_CHECK_FILE_H
#define KVANT_TUNER_CHECK_FILE_H

#include "sim/config.h"

/* Prints to `out`; `notes` hears what of a policy cannot be simulated. KV_EREQUEST with everything
 * that is wrong. */
kv_status kv_check_file(FILE *out, FILE *notes, const char *path, const kv_config_sources *sources,
                        kv_error *err);

#endif
