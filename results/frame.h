/* A frame: the rows and intervals that tables and plots show of a record.
 *
 * An axis is a dimension that is spread out into rows; the others are taken together. Replicates
 * are the values of `seed`: within each, the remaining dimensions (`layer`, `head`) are combined as
 * the array says, and the cell is the mean and interval over the replicates. `class` stands at its
 * first value ("all") unless it is an axis or chosen. */
#ifndef KVANT_RESULTS_FRAME_H
#define KVANT_RESULTS_FRAME_H

#include "kernels/record.h"
#include "kernels/text.h"
#include "results/interval.h"

typedef struct {
    int n_metrics, n_where;
    const char *const *metrics; /* none = all arrays of numbers over the sweep's dimensions; a name
                                 * that comes twice counts once */
    const char *const *where;   /* "dimension=value" */
    const char *extra[2];       /* dimensions to make axes beside the usual ones, or NULL */
} kv_frame_request;

typedef struct {
    const kv_record *record; /* not owned */
    int n_axes, n_metrics;
    int axes[KV_RECORD_MAX_RANK]; /* dimension indices: scheme first, then as in the record */
    int64_t extents[KV_RECORD_MAX_RANK]; /* how many coordinates take part on each axis */
    int64_t n_rows;                      /* their product */
    int64_t *index;                      /* [n_rows][n_axes] coordinate of each row on each axis */
    const kv_array **metrics;            /* [n_metrics] */
    kv_interval *cells;                  /* [n_rows][n_metrics] */
} kv_frame;

/* KV_EREQUEST for a metric, dimension or value that the record does not have. */
kv_status kv_frame_create(kv_frame **out, const kv_record *record, const kv_frame_request *request,
                          kv_error *err);
void kv_frame_free(kv_frame *frame);

/* Which coordinates of each dimension "dimension=value" texts mean, [n_dimensions]; count 0 where a
 * dimension is not named. KV_EREQUEST for a dimension or value that the record does not have. */
typedef struct {
    int64_t *items, count;
} kv_selection;
kv_status kv_selections_create(kv_selection **out, const kv_record *record, int n_where,
                               const char *const *where, kv_error *err);
void kv_selections_free(kv_selection *selections, const kv_record *record);

/* Position of a dimension among the axes, -1 where it is none. */
int kv_frame_axis(const kv_frame *frame, const char *name);

/* The dimension of an axis. */
const kv_dimension *kv_frame_dimension(const kv_frame *frame, int axis);

/* A coordinate as text: its own, or its number in `buffer`. */
const char *kv_coordinate_text(char buffer[KV_REAL_TEXT], const kv_dimension *dimension, int64_t i);

#endif
