/* Running gnuplot on a script. */
#ifndef KVANT_RESULTS_GNUPLOT_H
#define KVANT_RESULTS_GNUPLOT_H

#include <stdio.h>

#include "kernels/error.h"

/* Runs gnuplot, without anyone's start files, on `script` from its beginning. What it prints goes
 * to `output` (NULL: nowhere). KV_EUNSUPPORTED where there is no gnuplot; KV_EIO with its own words
 * where it fails. */
kv_status kv_gnuplot_run(FILE *output, FILE *script, kv_error *err);

/* Writes a text as a single-quoted gnuplot string, in which nothing is ever substituted. */
void kv_gnuplot_quote(FILE *script, const char *text);

#endif
