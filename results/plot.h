/* Figures from a record, drawn by gnuplot.
 *
 * A line with a 95 % interval per scheme over a swept parameter, layer or head; bars when x is the
 * scheme; a heat map when the schemes are a full key x value matrix. Axes are logarithmic where
 * the values ask for it; zeros, which exact schemes have, are then left out and counted in the
 * subtitle. Shares end at 1.
 * Of a tuning's record also `frontier`, bytes against error with the policy and the candidates
 * beside it, and `policy`, what each layer stores.
 *
 *     kv_plot(stdout, "fig.svg", record, &(kv_plot_request){.metric = "out_err"}, &err);
 */
#ifndef KVANT_RESULTS_PLOT_H
#define KVANT_RESULTS_PLOT_H

#include <stdio.h>

#include "kernels/record.h"

/* All zero: the frontier or the first metric, over the first swept parameter with several values
 * (else schemes). */
typedef struct {
    const char *metric, *x;
    int n_where;
    const char *const *where; /* as in table.h */
} kv_plot_request;

/* Draws to `path`, whose ending says how: .svg, .png or .pdf; "-" draws with characters to
 * `terminal`. The file appears when it is whole. KV_EUNSUPPORTED where gnuplot is missing;
 * KV_EREQUEST for what the record does not have, and for a large key x value matrix at several
 * points without an x axis. */
kv_status kv_plot(FILE *terminal, const char *path, const kv_record *record,
                  const kv_plot_request *request, kv_error *err);

#endif
