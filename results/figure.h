/* A figure on its way into a gnuplot script; inside results/ only. */
#ifndef KVANT_RESULTS_FIGURE_H
#define KVANT_RESULTS_FIGURE_H

#include <stdio.h>

#include "results/frame.h"
#include "results/pairs.h"

typedef struct {
    FILE *script;
    const kv_frame *frame;
    const kv_array *metric;
    int is_text;
    int title_size, font_size; /* of the fonts */
    double stretch;            /* how much higher than usual it is */
    int x;                     /* axis, or -1 */
    int64_t n_x;               /* extent of x, 1 where there is none */
    int64_t n_series;          /* rows / n_x */
    int64_t n_same;            /* series of one scheme: they share a color */
    double smallest, largest;  /* of the means; on a logarithmic axis without the zeros */
    int is_log, has_interval;
    int is_share;  /* all values lie in 0 ... 1 and 1 occurs: the axis ends there */
    int is_matrix; /* key x value, of `pairs` */
    int64_t n_zeros, most_replicates;
    kv_pairs pairs;
} kv_figure;

/* Title and subtitle, left above the plot. */
void kv_figure_set_titles(const kv_figure *figure, const char *title, const char *subtitle);

/* The same of a metric; an axis' label with its unit (`what`: xlabel, ylabel, cblabel). */
void kv_figure_set_head(const kv_figure *figure);
void kv_figure_set_label(const kv_figure *figure, const char *what, const char *name,
                         const char *units);

/* Lines over the x axis with bands; bars or, on a logarithmic axis, points for each scheme. */
void kv_figure_draw_lines(const kv_figure *figure);
void kv_figure_draw_bars(const kv_figure *figure);

/* Rows of the legend under the plot; 0 where there is none. */
int kv_figure_legend_rows(const kv_figure *figure);

/* The heat map of a key x value matrix, and how much higher than usual it wants to be. */
void kv_figure_draw_matrix(const kv_figure *figure);
double kv_figure_stretch_matrix(const kv_figure *figure);

/* How the legend under a plot is laid out for `n` entries of at most `longest` characters: rows,
 * columns, and how much smaller than usual its letters are. */
typedef struct {
    int rows, columns;
    double scale;
} kv_figure_legend;
kv_figure_legend kv_figure_legend_for(const kv_figure *figure, int64_t n, size_t longest);
void kv_figure_set_legend(const kv_figure *figure, const kv_figure_legend *legend);

/* Colors that readers with any color vision can tell apart, and points; they repeat. */
const char *kv_figure_color(int64_t i);
int kv_figure_point(const kv_figure *figure, int64_t i);

/* Figures of a tuning's record, which stands in place of a frame: the frontier with the policy and
 * the candidates beside it, and what each layer stores. */
kv_status kv_figure_draw_frontier(kv_figure *figure, const kv_record *record, kv_error *err);
kv_status kv_figure_draw_policy(kv_figure *figure, const kv_record *record, kv_error *err);
double kv_figure_stretch_tuning(const kv_figure *figure, const kv_record *record,
                                const char *metric);

#endif
