/* What a file holds, for `kvant show`: a result (results/store.h), or the outlier statistics of a
 * capture (sim/capture.h), layer by layer. */
#ifndef KVANT_TUNER_SHOW_FILE_H
#define KVANT_TUNER_SHOW_FILE_H

#include "results/table.h"

/* The table that is asked for; request NULL: a summary. KV_EREQUEST where the file cannot be read,
 * KV_EINPUT where it is neither, with what it lacks to be either. */
kv_status kv_show_file(FILE *out, FILE *notes, const char *path, const kv_table_request *request,
                       kv_error *err);

#endif
