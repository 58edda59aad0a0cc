/* Tables of arrays that belong together by their names: see table.h; inside results/ only. */
#ifndef KVANT_RESULTS_TABLE_GROUP_H
#define KVANT_RESULTS_TABLE_GROUP_H

#include <stdbool.h>

#include "results/table.h"

/* Whether `name` is no array, but NAME_ begins the names of several arrays of one or two
 * dimensions that share the first. */
bool kv_table_is_group(const kv_record *record, const char *name);

/* KV_EREQUEST for several metrics, rows or cols, and what --where does not find. */
kv_status kv_table_write_group(FILE *out, const kv_record *record, const kv_table_request *request,
                               kv_error *err);

#endif
