/* Figures: lines and bars. See figure.h; the script is data blocks of numbers, then styles; texts
 * go in as quoted strings only. */
#include "results/figure.h"

#include <math.h>
#include <string.h>

#include "results/gnuplot.h"

enum { LABEL_SIZE = 256, N_COLORS = 8, MOST_TICS = 12, MOST_BANDS = 10 };

/* Okabe and Ito's colors, which readers with any color vision can tell apart. */
static const char *const color_table[N_COLORS] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                                  "#E69F00", "#56B4E9", "#000000", "#8A7A00"};
static const int point_table[N_COLORS] = {7, 5, 9, 13, 11, 6, 4, 8};

/* The row of series `series` at position `i` of the x axis. */
static int64_t row_of(const kv_figure *g, int64_t series, int64_t i)
{
    if (g->x < 0) return series;
    int64_t below = 1;
    for (int k = g->x + 1; k < g->frame->n_axes; k++) below *= g->frame->extents[k];
    return series / below * (below * g->n_x) + i * below + series % below;
}

static int64_t x_index(const kv_figure *g, int64_t i)
{
    return g->frame->index[row_of(g, 0, i) * g->frame->n_axes + g->x];
}

/* "scheme, heads.tokens = 1024": the coordinates in which series differ; the scheme, the others, or
 * both. */
static void label_series(char label[LABEL_SIZE], const kv_figure *g, int64_t series, int has_scheme,
                         int has_others)
{
    const kv_frame *const f = g->frame;
    size_t used = 0;
    label[0] = 0;
    for (int i = 0; i < f->n_axes; i++) {
        char buffer[KV_REAL_TEXT];
        const kv_dimension *const d = kv_frame_dimension(f, i);
        int const is_scheme = strcmp(d->name, "scheme") == 0;
        if (i == g->x || f->extents[i] < 2 || !(is_scheme ? has_scheme : has_others)) continue;
        int64_t const at = f->index[row_of(g, series, 0) * f->n_axes + i];
        snprintf(label + used, LABEL_SIZE - used, "%s%.60s%s%.120s", used ? ", " : "",
                 is_scheme ? "" : d->name, is_scheme ? "" : " = ",
                 kv_coordinate_text(buffer, d, at));
        used = strlen(label);
    }
}

/* Entries of the legend: one for each series or, where several series share a scheme, one for each
 * color and then one for each kind of dashes. */
static int64_t count_entries(const kv_figure *g)
{
    return g->n_same > 1 ? g->n_series / g->n_same + g->n_same : g->n_series;
}

static void label_entry(char label[LABEL_SIZE], const kv_figure *g, int64_t entry)
{
    int64_t const n_colors = g->n_series / g->n_same;
    if (g->n_same == 1)
        label_series(label, g, entry, 1, 1);
    else if (entry < n_colors)
        label_series(label, g, entry * g->n_same, 1, 0);
    else
        label_series(label, g, entry - n_colors, 0, 1);
}

static void axis_label(char label[LABEL_SIZE], const char *name, const char *units)
{
    int const has_unit = units && *units && strcmp(units, "1") != 0;
    snprintf(label, LABEL_SIZE, "%.180s%s%.40s%s", name, has_unit ? " [" : "",
             has_unit ? units : "", has_unit ? "]" : "");
}

void kv_figure_set_label(const kv_figure *g, const char *what, const char *name, const char *units)
{
    char label[LABEL_SIZE];
    axis_label(label, name, units);
    fprintf(g->script, "set %s ", what);
    kv_gnuplot_quote(g->script, label);
    fputs("\n", g->script);
}

/* How much smaller than usual a text is written where there is room for so many characters. */
static double fitted(size_t characters, double room)
{
    return fmax(0.5, fmin(1, room / (double)characters));
}

/* Title and subtitle, left of everything, above the plot. */
static void set_head_line(const kv_figure *g, const char *text, double height, double size,
                          double room, const char *color)
{
    fputs("set label ", g->script);
    kv_gnuplot_quote(g->script, text);
    fprintf(g->script, " at screen 0.02, graph 1 offset 0, char %g left", height);
    if (!g->is_text)
        fprintf(g->script, " font ',%.3g' textcolor rgb '%s'", size * fitted(strlen(text), room),
                color);
    fputs("\n", g->script);
}

void kv_figure_set_titles(const kv_figure *g, const char *title, const char *subtitle)
{
    if (title && *title)
        set_head_line(g, title, g->is_text ? 3 : 2.5, g->title_size, 66, "#000000");
    set_head_line(g, subtitle, g->is_text ? 2 : 1.1, g->font_size, 90, "#555555");
    fputs(g->is_text ? "set tmargin 4.5\n" : "set tmargin 5\n", g->script);
}

void kv_figure_set_head(const kv_figure *g)
{
    const kv_attribute *const title = kv_record_attribute(g->frame->record, "title");
    const kv_array *const m = g->metric;
    const char *const about = m->long_name ? m->long_name : m->name;
    const char *const colon = strstr(about, ": "); /* what comes after is the formula */
    char text[2 * LABEL_SIZE];
    int const shows_interval = !g->is_matrix && g->n_series <= MOST_BANDS;
    int used = snprintf(text, sizeof text, "%.*s", colon ? (int)(colon - about) : 300, about);
    if (g->has_interval)
        used += snprintf(text + used, sizeof text - (size_t)used, "; mean%s, %lld seeds",
                         shows_interval ? " and 95 % interval" : "", (long long)g->most_replicates);
    if (g->is_log && g->n_zeros && !g->is_matrix)
        snprintf(text + used, sizeof text - (size_t)used, "; %lld zero%s left out",
                 (long long)g->n_zeros, g->n_zeros > 1 ? "s" : "");
    kv_figure_set_titles(g, title ? title->text : NULL, text);
}

/* How the value axis runs: logarithmic, from zero, to one, or where the values are. */
static void set_value_axis(const kv_figure *g, const char *axis, int from_zero)
{
    int const has_zero = g->smallest >= 0 && (from_zero || g->smallest < 0.5 * g->largest);
    if (g->is_log) fprintf(g->script, "set logscale %s\nset format %s '%%g'\n", axis, axis);
    if (g->is_share || (has_zero && !g->is_log))
        fprintf(g->script, "set %srange [%s:%s]\n", axis, has_zero && !g->is_log ? "0" : "*",
                g->is_share ? "1" : "*");
}

/* A line of a data block: position, mean, low, high. A missing value is an empty line, which breaks
 * lines and bands, and so is a zero on a logarithmic axis; a low end that such an axis cannot show
 * stops short of it. */
static void print_row(const kv_figure *g, double position, const kv_interval *x)
{
    double low = isfinite(x->low) ? x->low : x->mean, high = isfinite(x->high) ? x->high : x->mean;
    if (g->is_share) low = fmax(low, 0), high = fmin(high, 1);
    if (g->is_log && !(low > 0)) low = fmin(x->mean, g->smallest) / 2;
    if (isfinite(x->mean) && !(g->is_log && x->mean == 0))
        fprintf(g->script, "%.17g %.17g %.17g %.17g", position, x->mean, low, high);
    fputs("\n", g->script);
}

/* Two columns, or one where labels are long and few or very long; letters become smaller before
 * labels are cut. */
kv_figure_legend kv_figure_legend_for(const kv_figure *g, int64_t n, size_t longest)
{
    size_t const two = g->is_text ? 40 : n <= 6 ? 36 : 62;
    int const columns = longest > two ? 1 : 2;
    return (kv_figure_legend){.rows = n < 2 ? 0 : (int)(n + columns - 1) / columns,
                              .columns = columns,
                              .scale = fitted(longest, longest > two ? 60 : 31)};
}

static kv_figure_legend legend_of(const kv_figure *g)
{
    size_t longest = 1;
    int64_t const n = count_entries(g);
    for (int64_t i = 0; i < n; i++) {
        char label[LABEL_SIZE];
        label_entry(label, g, i);
        if (strlen(label) > longest) longest = strlen(label);
    }
    return kv_figure_legend_for(g, n, longest);
}

int kv_figure_legend_rows(const kv_figure *g)
{
    return legend_of(g).rows;
}

void kv_figure_set_legend(const kv_figure *g, const kv_figure_legend *l)
{
    if (l->rows == 0) {
        fputs(g->is_text ? "unset key\n" : "unset key\nset bmargin 4.5\n", g->script);
        return;
    }
    fprintf(g->script,
            "set key at screen 0.02, screen 0.02 left bottom Left reverse samplen 3 "
            "maxrows %d maxcols %d",
            l->rows, l->columns);
    if (!g->is_text) fprintf(g->script, " font ',%.3g'", l->scale * g->font_size);
    fprintf(g->script, "\nset bmargin %g\n", (g->is_text ? 4 : 4.8) + 1.1 * l->scale * l->rows);
}

static void set_key(const kv_figure *g)
{
    kv_figure_legend const legend = legend_of(g);
    kv_figure_set_legend(g, &legend);
}

const char *kv_figure_color(int64_t i)
{
    return color_table[i % N_COLORS];
}

int kv_figure_point(const kv_figure *g, int64_t i)
{
    return g->is_text ? 1 + (int)i : point_table[i % N_COLORS];
}

/* A scheme has its color; what else differs between series has its dashes and points. */
static const char *color_of(const kv_figure *g, int64_t series)
{
    return color_table[series / g->n_same % N_COLORS];
}

static void print_style(const kv_figure *g, const char *color, int64_t series)
{
    int64_t const scheme = series / g->n_same;
    int const other = (int)(series % g->n_same + scheme / N_COLORS);
    int const point = point_table[(g->n_same > 1 ? other : scheme) % N_COLORS];
    fprintf(g->script, "lc rgb '%s' pt %d ps 1 lw 2 dt %d", color,
            g->is_text ? 1 + (int)series : point, 1 + other % 5);
}

/* The legend's entries; a series has its own even where none of its points can be drawn. */
static void print_entries(const kv_figure *g)
{
    int64_t const n_colors = g->n_series / g->n_same;
    for (int64_t i = 0; g->n_series > 1 && i < count_entries(g); i++) {
        char label[LABEL_SIZE];
        label_entry(label, g, i);
        if (g->n_same > 1 && i < n_colors) {
            fprintf(g->script, ", keyentry with lines lw 4 lc rgb '%s'",
                    color_of(g, i * g->n_same));
        } else {
            fputs(", keyentry with linespoints ", g->script);
            print_style(g, g->n_same > 1 ? "#444444" : color_of(g, i),
                        g->n_same > 1 ? i - n_colors : i);
        }
        fputs(" title ", g->script);
        kv_gnuplot_quote(g->script, label);
    }
}

static int is_whole_power(double x, double base)
{
    double const power = log(x) / log(base);
    return x > 0 && fabs(power - rint(power)) < 1e-9;
}

/* The x axis of numbers: logarithmic where it spans a factor of 20 or more, to base 2 for powers of
 * two; with few values each has its tic. */
static void set_number_axis(const kv_figure *g, const kv_dimension *d)
{
    double low = (double)INFINITY, high = -(double)INFINITY;
    int powers_of_two = 1;
    for (int64_t i = 0; i < g->n_x; i++) {
        double const x = d->numbers[x_index(g, i)];
        low = fmin(low, x), high = fmax(high, x);
        powers_of_two &= is_whole_power(x, 2);
    }
    int const is_log = low > 0 && high >= (powers_of_two ? 4 : 20) * low;
    if (is_log) fprintf(g->script, "set logscale x %d\n", powers_of_two ? 2 : 10);
    double const margin = is_log ? pow(high / low, 0.03) : (high - low) * 0.03;
    if (is_log)
        fprintf(g->script, "set xrange [%.17g:%.17g]\n", low / margin, high * margin);
    else if (high > low)
        fprintf(g->script, "set xrange [%.17g:%.17g]\n", low - margin, high + margin);
    fputs("set format x '%g'\n", g->script);
    if (g->n_x > MOST_TICS) return;
    fputs("set xtics (", g->script);
    for (int64_t i = 0; i < g->n_x; i++) {
        char text[KV_REAL_TEXT];
        kv_real_text(text, d->numbers[x_index(g, i)]);
        fprintf(g->script, "%s'%s' %s", i ? ", " : "", text, text);
    }
    fputs(")\n", g->script);
}

/* Tics that are texts; `axis` x or y. The first is at `first` and they go in steps of `step`. */
static void set_text_axis(const kv_figure *g, const char *axis, const kv_dimension *d, int64_t n,
                          double first, double step)
{
    fprintf(g->script, "set %stics scale 0 (", axis);
    for (int64_t i = 0; i < n; i++) {
        char buffer[KV_REAL_TEXT];
        fputs(i ? ", " : "", g->script);
        kv_gnuplot_quote(g->script, kv_coordinate_text(buffer, d, x_index(g, i)));
        fprintf(g->script, " %g", first + step * (double)i);
    }
    fputs(")\n", g->script);
}

void kv_figure_draw_lines(const kv_figure *g)
{
    const kv_dimension *const d = kv_frame_dimension(g->frame, g->x);
    kv_figure_set_label(g, "xlabel", d->name, d->units);
    kv_figure_set_label(g, "ylabel", g->metric->name, g->metric->units);
    set_value_axis(g, "y", 0);
    if (d->numbers) {
        set_number_axis(g, d);
    } else {
        set_text_axis(g, "x", d, g->n_x, 0, 1);
        fprintf(g->script, "set xrange [-0.3:%g]\n", (double)g->n_x - 0.7);
    }
    set_key(g);
    for (int64_t s = 0; s < g->n_series; s++) {
        fprintf(g->script, "$s%lld << EOD\n", (long long)s);
        for (int64_t i = 0; i < g->n_x; i++)
            print_row(g, d->numbers ? d->numbers[x_index(g, i)] : (double)i,
                      &g->frame->cells[row_of(g, s, i)]);
        fputs("EOD\n", g->script);
    }
    int const draws_bands = g->has_interval && !g->is_text && g->n_series <= MOST_BANDS;
    fputs("plot ", g->script);
    for (int64_t s = 0; s < g->n_series && draws_bands; s++)
        fprintf(g->script,
                "$s%lld using 1:3:4 with filledcurves fc rgb '%s' fs transparent solid 0.15"
                " noborder notitle, ",
                (long long)s, color_of(g, s));
    for (int64_t s = 0; s < g->n_series; s++) {
        fprintf(g->script, "%s$s%lld using 1:2 with linespoints ", s ? ", " : "", (long long)s);
        print_style(g, color_of(g, s), s);
        fputs(" notitle", g->script);
    }
    print_entries(g);
    fputs("\n", g->script);
}

/* Where long names leave little room: few tics. */
static void set_bar_tics(const kv_figure *g)
{
    size_t longest = 1;
    for (int64_t i = 0; i < g->n_x; i++) {
        char buffer[KV_REAL_TEXT];
        const char *const name =
            kv_coordinate_text(buffer, kv_frame_dimension(g->frame, g->x), x_index(g, i));
        if (strlen(name) > longest) longest = strlen(name);
    }
    if (g->is_text || longest <= 30) return;
    double const third = g->largest / 3, ten = pow(10, floor(log10(third)));
    double const step = third < 2 * ten ? ten : third < 5 * ten ? 2 * ten : 5 * ten;
    if (g->is_log && g->largest > 1e4 * g->smallest)
        fputs("set xtics 100\n", g->script);
    else if (!g->is_log && g->largest > 0)
        fprintf(g->script, "set xtics %g\n", step);
}

/* Schemes from top to bottom, a bar for each series; points where the axis is logarithmic, for a
 * bar has no length there. */
void kv_figure_draw_bars(const kv_figure *g)
{
    double const thickness = 0.8 / (double)g->n_series;
    kv_figure_set_label(g, "xlabel", g->metric->name, g->metric->units);
    set_value_axis(g, "x", 1);
    set_text_axis(g, "y", kv_frame_dimension(g->frame, g->x), g->n_x, 0, -1);
    set_bar_tics(g);
    fprintf(g->script, "set yrange [%g:0.6]\n", 0.4 - (double)g->n_x);
    set_key(g);
    for (int64_t s = 0; s < g->n_series; s++) {
        fprintf(g->script, "$s%lld << EOD\n", (long long)s);
        for (int64_t i = 0; i < g->n_x; i++)
            print_row(g, thickness * (0.5 * (double)(g->n_series - 1) - (double)s) - (double)i,
                      &g->frame->cells[row_of(g, s, i)]);
        fputs("EOD\n", g->script);
    }
    fputs("plot ", g->script);
    for (int64_t s = 0; s < g->n_series; s++) {
        char label[LABEL_SIZE];
        label_series(label, g, s, 1, 1);
        if (g->is_log || g->is_text)
            fprintf(g->script, "%s$s%lld using 2:1 with points ", s ? ", " : "", (long long)s);
        else
            fprintf(
                g->script,
                "%s$s%lld using (0.5*$2):1:(0.5*$2):(%g) with boxxyerror fs solid 0.8 noborder ",
                s ? ", " : "", (long long)s, 0.45 * thickness);
        if (g->is_log || g->is_text)
            print_style(g, color_of(g, s), s);
        else
            fprintf(g->script, "fc rgb '%s'", color_of(g, s));
        fputs(" title ", g->script);
        kv_gnuplot_quote(g->script, label);
        if (g->has_interval)
            fprintf(g->script,
                    ", $s%lld using 2:1:3:4 with xerrorbars pt 0 lc rgb '%s' lw 1.5 notitle",
                    (long long)s, g->is_log ? color_of(g, s) : "#333333");
    }
    fputs("\n", g->script);
}
