/* Figures: see plot.h. A frame becomes a gnuplot script: data blocks of numbers, and styles. Texts
 * go in as quoted strings only. */
#include "results/plot.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/memory.h"
#include "results/file.h"
#include "results/frame.h"
#include "results/gnuplot.h"

enum { LABEL_SIZE = 256, N_COLORS = 8, MOST_TICS = 12 };

static const struct {
    const char *ending, *terminal;
    int is_text;
} terminal_table[] = {
    {"-", "dumb noenhanced mono size 100,32", 1},
    {".svg", "svg noenhanced size 860,540 background rgb 'white' font 'Helvetica,15'", 0},
    {".png", "pngcairo noenhanced size 1720,1080 font 'Helvetica,30' linewidth 2 pointscale 2", 0},
    {".pdf", "pdfcairo noenhanced size 17.2cm,10.8cm font 'Helvetica,11'", 0},
};

/* Okabe and Ito's colors, which readers with any color vision can tell apart. */
static const char *const color_table[N_COLORS] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                                  "#E69F00", "#56B4E9", "#000000", "#8A7A00"};
static const int point_table[N_COLORS] = {7, 5, 9, 13, 11, 6, 4, 8};

typedef struct {
    FILE *script;
    const kv_frame *frame;
    const kv_array *metric;
    int is_text;
    int x;                    /* axis, or -1 */
    int64_t n_x;              /* extent of x, 1 where there is none */
    int64_t n_series;         /* rows / n_x */
    double smallest, largest; /* of the means */
    int is_log, has_interval;
    int64_t most_replicates;
} figure;

static const kv_dimension *axis_dimension(const kv_frame *f, int axis)
{
    return &f->record->dimensions[f->axes[axis]];
}

/* The row of series `series` at position `i` of the x axis. */
static int64_t row_of(const figure *g, int64_t series, int64_t i)
{
    if (g->x < 0) return series;
    int64_t below = 1;
    for (int k = g->x + 1; k < g->frame->n_axes; k++) below *= g->frame->extents[k];
    return series / below * (below * g->n_x) + i * below + series % below;
}

static int64_t x_index(const figure *g, int64_t i)
{
    return g->frame->index[row_of(g, 0, i) * g->frame->n_axes + g->x];
}

/* "scheme, heads.tokens=1024": the coordinates of a series that differ between series. */
static void label_series(char label[LABEL_SIZE], const figure *g, int64_t series)
{
    const kv_frame *const f = g->frame;
    size_t used = 0;
    label[0] = 0;
    for (int i = 0; i < f->n_axes; i++) {
        char buffer[32];
        const kv_dimension *const d = axis_dimension(f, i);
        if (i == g->x || f->extents[i] < 2) continue;
        const char *const text =
            kv_coordinate_text(buffer, d, f->index[row_of(g, series, 0) * f->n_axes + i]);
        int const is_named = strcmp(d->name, "scheme") != 0;
        snprintf(label + used, LABEL_SIZE - used, "%s%.60s%s%.120s", used ? ", " : "",
                 is_named ? d->name : "", is_named ? " = " : "", text);
        used = strlen(label);
    }
}

static void measure(figure *g)
{
    const kv_frame *const f = g->frame;
    g->smallest = (double)INFINITY, g->largest = -(double)INFINITY;
    for (int64_t row = 0; row < f->n_rows; row++) {
        const kv_interval *const x = &f->cells[row];
        if (!isfinite(x->mean)) continue;
        g->smallest = fmin(g->smallest, x->mean), g->largest = fmax(g->largest, x->mean);
        g->has_interval |= isfinite(x->low) && x->high > x->low;
        if (x->n > g->most_replicates) g->most_replicates = x->n;
    }
    g->is_log = g->smallest > 0 && g->largest >= 100 * g->smallest;
}

static void axis_label(char label[LABEL_SIZE], const char *name, const char *units)
{
    int const has_unit = units && *units && strcmp(units, "1") != 0;
    snprintf(label, LABEL_SIZE, "%.180s%s%.40s%s", name, has_unit ? " [" : "",
             has_unit ? units : "", has_unit ? "]" : "");
}

static void set_label(const figure *g, const char *what, const char *name, const char *units)
{
    char label[LABEL_SIZE];
    axis_label(label, name, units);
    fprintf(g->script, "set %s ", what);
    kv_gnuplot_quote(g->script, label);
    fputs("\n", g->script);
}

/* Title and subtitle, left of everything, above the plot. */
static void set_head_line(const figure *g, const char *text, double height, const char *style)
{
    fputs("set label ", g->script);
    kv_gnuplot_quote(g->script, text);
    fprintf(g->script, " at screen 0.02, graph 1 offset 0, char %g left %s\n", height,
            g->is_text ? "" : style);
}

static void set_head(const figure *g)
{
    const kv_attribute *const title = kv_record_attribute(g->frame->record, "title");
    const kv_array *const m = g->metric;
    char text[2 * LABEL_SIZE];
    if (title && title->text && *title->text)
        set_head_line(g, title->text, g->is_text ? 3 : 2.3, "font ',' . TITLE_SIZE");
    int const used = snprintf(text, sizeof text, "%.300s", m->long_name ? m->long_name : m->name);
    if (g->has_interval)
        snprintf(text + used, sizeof text - (size_t)used, "; mean and 95 %% interval, %lld seeds",
                 (long long)g->most_replicates);
    set_head_line(g, text, g->is_text ? 2 : 0.9, "textcolor rgb '#555555'");
    fputs("set tmargin 4.5\n", g->script);
}

/* How the value axis runs: logarithmic, from zero, or where the values are. */
static void set_value_axis(const figure *g, const char *axis, int from_zero)
{
    if (g->is_log)
        fprintf(g->script, "set logscale %s\nset format %s '%%g'\n", axis, axis);
    else if (g->smallest >= 0 && (from_zero || g->smallest < 0.5 * g->largest))
        fprintf(g->script, "set %srange [0:*]\n", axis);
}

/* A line of a data block: position, mean, low, high. A missing value is an empty line, which breaks
 * lines and bands; a low end that a logarithmic axis cannot show stops short of it. */
static void print_row(const figure *g, double position, const kv_interval *x)
{
    double low = isfinite(x->low) ? x->low : x->mean;
    if (g->is_log && !(low > 0)) low = fmin(x->mean, g->smallest) / 2;
    if (isfinite(x->mean))
        fprintf(g->script, "%.17g %.17g %.17g %.17g", position, x->mean, low,
                isfinite(x->high) ? x->high : x->mean);
    fputs("\n", g->script);
}

/* The legend: under the plot in two columns, or right of it where it is long. */
static void set_key(const figure *g)
{
    if (g->n_series < 2)
        fputs("unset key\n", g->script);
    else if (g->n_series > 10)
        fputs("set key outside right top Left reverse samplen 2\n", g->script);
    else
        fprintf(g->script,
                "set key at screen 0.02, screen 0.02 left bottom Left reverse samplen 2 maxcols 2 "
                "maxrows %d\nset bmargin %g\n",
                (int)(g->n_series + 1) / 2, 4 + 1.1 * (double)((g->n_series + 1) / 2));
}

static void print_style(const figure *g, int64_t series)
{
    int const i = (int)(series % N_COLORS), round = (int)(series / N_COLORS);
    fprintf(g->script, "lc rgb '%s' pt %d ps 1 lw 2 dt %d", color_table[i],
            g->is_text ? 1 + (int)series : point_table[i], round + 1);
}

static int is_whole_power(double x, double base)
{
    double const power = log(x) / log(base);
    return x > 0 && fabs(power - rint(power)) < 1e-9;
}

/* The x axis of numbers: logarithmic where it spans a factor of 20 or more, to base 2 for powers of
 * two; with few values each has its tic. */
static void set_number_axis(const figure *g, const kv_dimension *d)
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
        char text[32];
        kv_format_number(text, d->numbers[x_index(g, i)]);
        fprintf(g->script, "%s'%s' %s", i ? ", " : "", text, text);
    }
    fputs(")\n", g->script);
}

/* Tics that are texts; `axis` x or y. The first is at `first` and they go in steps of `step`. */
static void set_text_axis(const figure *g, const char *axis, const kv_dimension *d, int64_t n,
                          double first, double step)
{
    fprintf(g->script, "set %stics scale 0 (", axis);
    for (int64_t i = 0; i < n; i++) {
        char buffer[32];
        fputs(i ? ", " : "", g->script);
        kv_gnuplot_quote(g->script, kv_coordinate_text(buffer, d, x_index(g, i)));
        fprintf(g->script, " %g", first + step * (double)i);
    }
    fputs(")\n", g->script);
}

static void draw_lines(const figure *g)
{
    const kv_dimension *const d = axis_dimension(g->frame, g->x);
    set_label(g, "xlabel", d->name, d->units);
    set_label(g, "ylabel", g->metric->name, g->metric->units);
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
    fputs("plot ", g->script);
    for (int64_t s = 0; s < g->n_series && g->has_interval && !g->is_text; s++)
        fprintf(g->script,
                "$s%lld using 1:3:4 with filledcurves fc rgb '%s' fs transparent solid 0.15"
                " noborder notitle, ",
                (long long)s, color_table[s % N_COLORS]);
    for (int64_t s = 0; s < g->n_series; s++) {
        char label[LABEL_SIZE];
        label_series(label, g, s);
        fprintf(g->script, "%s$s%lld using 1:2 with linespoints ", s ? ", " : "", (long long)s);
        print_style(g, s);
        fputs(" title ", g->script);
        kv_gnuplot_quote(g->script, label);
    }
    fputs("\n", g->script);
}

/* Schemes from top to bottom, a bar for each series; points where the axis is logarithmic, for a
 * bar has no length there. */
static void draw_bars(const figure *g)
{
    double const thickness = 0.8 / (double)g->n_series;
    set_label(g, "xlabel", g->metric->name, g->metric->units);
    set_value_axis(g, "x", 1);
    set_text_axis(g, "y", axis_dimension(g->frame, g->x), g->n_x, 0, -1);
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
        label_series(label, g, s);
        if (g->is_log || g->is_text)
            fprintf(g->script, "%s$s%lld using 2:1 with points ", s ? ", " : "", (long long)s);
        else
            fprintf(
                g->script,
                "%s$s%lld using (0.5*$2):1:(0.5*$2):(%g) with boxxyerror fs solid 0.8 noborder ",
                s ? ", " : "", (long long)s, 0.45 * thickness);
        if (g->is_log || g->is_text)
            print_style(g, s);
        else
            fprintf(g->script, "fc rgb '%s'", color_table[s % N_COLORS]);
        fputs(" title ", g->script);
        kv_gnuplot_quote(g->script, label);
        if (g->has_interval)
            fprintf(g->script,
                    ", $s%lld using 2:1:3:4 with xerrorbars pt 0 lc rgb '%s' lw 1.5 notitle",
                    (long long)s, g->is_log ? color_table[s % N_COLORS] : "#333333");
    }
    fputs("\n", g->script);
}

/* Distinct texts in the order in which they come: places[i] says which text i is. */
static int number_texts(int *places, char *const *texts, int64_t n)
{
    int count = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t k = 0;
        while (strcmp(texts[k], texts[i]) != 0) k++;
        places[i] = k < i ? places[k] : count++;
    }
    return count;
}

static void set_matrix_axis(const figure *g, const char *axis, const int *places,
                            char *const *texts, int64_t n, int sign)
{
    int next = 0;
    fprintf(g->script, "set %stics scale 0 (", axis);
    for (int64_t i = 0; i < n; i++) {
        if (places[i] != next) continue;
        fputs(next ? ", " : "", g->script);
        kv_gnuplot_quote(g->script, texts[i]);
        fprintf(g->script, " %d", sign * next++);
    }
    fputs(")\n", g->script);
}

/* Key schemes down, value schemes across; each cell has its color and its number. */
static void draw_matrix(const figure *g, const int *key, int n_keys, const int *value, int n_values)
{
    const kv_record *const r = g->frame->record;
    int64_t const n = g->frame->n_rows;
    double const span = g->is_log ? log(g->largest / g->smallest) : g->largest - g->smallest;
    set_matrix_axis(g, "y", key, kv_record_array(r, "key_scheme")->texts, n, -1);
    set_matrix_axis(g, "x", value, kv_record_array(r, "value_scheme")->texts, n, 1);
    fputs("set xlabel 'value'\nset ylabel 'key'\nunset key\nunset grid\nset border 0\n", g->script);
    if (n_values > 5) fputs("set xtics rotate by -35 left\n", g->script);
    fprintf(g->script, "set xrange [-0.5:%g]\nset yrange [%g:0.5]\n", n_values - 0.5, 0.5 - n_keys);
    fputs("set palette defined (0 '#f7fbff', 1 '#c6dbef', 2 '#6baed6', 3 '#2171b5', 4 '#08306b')\n",
          g->script);
    set_label(g, "cblabel", g->metric->name, g->metric->units);
    if (g->is_log) fputs("set logscale cb\nset format cb '%g'\n", g->script);
    fputs("$m << EOD\n", g->script);
    for (int64_t i = 0; i < n; i++)
        if (isfinite(g->frame->cells[i].mean))
            fprintf(g->script, "%d %d %.17g\n", value[i], -key[i], g->frame->cells[i].mean);
    fputs("EOD\n", g->script);
    for (int64_t i = 0; i < n; i++) {
        double const x = g->frame->cells[i].mean;
        double const depth = g->is_log ? log(x / g->smallest) : x - g->smallest;
        if (isfinite(x))
            fprintf(g->script, "set label '%.3g' at %d,%d center front textcolor rgb '%s'\n", x,
                    value[i], -key[i], depth > 0.5 * span ? "#ffffff" : "#222222");
    }
    fputs(g->is_text
              ? "plot $m using 1:2 with points pt 0\n"
              : "plot $m using 1:2:(0.49):(0.49):3 with boxxyerror fs solid noborder fc palette\n",
          g->script);
}

/* A full key x value matrix is drawn as one; *is_drawn tells. */
static kv_status try_matrix(int *is_drawn, const figure *g, kv_error *err)
{
    kv_status status = KV_OK;
    void *memory = NULL;
    const kv_frame *const f = g->frame;
    const kv_array *const key = kv_record_array(f->record, "key_scheme");
    const kv_array *const value = kv_record_array(f->record, "value_scheme");
    int const axis = kv_frame_axis(f, "scheme");
    if (!key || !value || !key->texts || !value->texts || axis < 0 || key->count != f->n_rows ||
        value->count != f->n_rows || f->extents[axis] != f->n_rows)
        return KV_OK;
    KV_TRY(kv_allocate3(&memory, 2, (size_t)f->n_rows, 1, sizeof(int), err));
    int *const keys = memory, *const values = keys + f->n_rows;
    int const n_keys = number_texts(keys, key->texts, f->n_rows);
    int const n_values = number_texts(values, value->texts, f->n_rows);
    if (n_keys > 1 && n_values > 1 && (int64_t)n_keys * n_values == f->n_rows) {
        draw_matrix(g, keys, n_keys, values, n_values);
        *is_drawn = 1;
    }
done:
    kv_free(memory);
    return status;
}

/* The asked axis; else the first parameter of numbers with several values, then any, then scheme.
 */
static int choose_x(const kv_frame *f, const char *asked)
{
    if (asked) return kv_frame_axis(f, asked);
    int const scheme = kv_frame_axis(f, "scheme");
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < f->n_axes; i++)
            if (i != scheme && f->extents[i] > 1 && (pass || axis_dimension(f, i)->numbers))
                return i;
    return scheme >= 0 ? scheme : f->n_axes - 1;
}

static kv_status draw(FILE *script, const kv_frame *f, int is_text, const char *x, kv_error *err)
{
    kv_status status = KV_OK;
    figure g = {.script = script,
                .frame = f,
                .metric = f->metrics[0],
                .is_text = is_text,
                .x = choose_x(f, x)};
    int is_drawn = 0;
    if (g.x < 0)
        return KV_FAIL(err, KV_EREQUEST, "%s is one number: nothing to draw", g.metric->name);
    g.n_x = f->extents[g.x];
    g.n_series = f->n_rows / g.n_x;
    measure(&g);
    if (!(g.smallest <= g.largest))
        return KV_FAIL(err, KV_EREQUEST, "%s has no values to draw", g.metric->name);
    fputs("set border 3 lc rgb '#444444'\nset tics nomirror\n", script);
    if (!is_text) fputs("set grid lc rgb '#cccccc' lw 0.8 dt 1\n", script);
    set_head(&g);
    if (!x && g.x == kv_frame_axis(f, "scheme")) KV_TRY(try_matrix(&is_drawn, &g, err));
    if (is_drawn) goto done;
    if (strcmp(axis_dimension(f, g.x)->name, "scheme") == 0)
        draw_bars(&g);
    else
        draw_lines(&g);
done:
    return status;
}

static kv_status find_terminal(size_t *out, const char *path, kv_error *err)
{
    size_t const length = strlen(path);
    for (size_t i = 0; i < sizeof terminal_table / sizeof *terminal_table; i++) {
        const char *const ending = terminal_table[i].ending;
        size_t const n = strlen(ending);
        int const is_whole = i == 0 ? length == n : length > n;
        if (is_whole && strcmp(path + length - n, ending) == 0) {
            *out = i;
            return KV_OK;
        }
    }
    return KV_FAIL(err, KV_EREQUEST,
                   "%s: a figure ends in .svg, .png or .pdf, or is - for the terminal", path);
}

static const char *first_metric(const kv_record *record)
{
    for (int i = 0; i < record->n_arrays; i++)
        if (record->arrays[i].numbers && record->arrays[i].rank > 0) return record->arrays[i].name;
    return NULL;
}

kv_status kv_plot(FILE *terminal, const char *path, const kv_record *record,
                  const kv_plot_request *request, kv_error *err)
{
    kv_status status = KV_OK;
    kv_frame *frame = NULL;
    FILE *script = NULL;
    char *temporary = NULL;
    size_t kind = 0;
    const char *const metric = request->metric ? request->metric : first_metric(record);
    kv_frame_request const wanted = {.n_metrics = 1,
                                     .metrics = &metric,
                                     .n_where = request->n_where,
                                     .where = request->where,
                                     .extra = {request->x, NULL}};
    KV_TRY(find_terminal(&kind, path, err));
    if (!metric) KV_TRY(KV_FAIL(err, KV_EREQUEST, "there are no metrics to draw"));
    KV_TRY(kv_frame_create(&frame, record, &wanted, err));
    script = tmpfile();
    if (!script) KV_TRY(KV_FAIL(err, KV_EIO, "a temporary file: %s", strerror(errno)));
    fprintf(script, "set encoding utf8\nset terminal %s\n", terminal_table[kind].terminal);
    if (!terminal_table[kind].is_text) {
        const char *const size = strrchr(terminal_table[kind].terminal, ',');
        fprintf(script, "TITLE_SIZE = '%ld'\nset output ", strtol(size + 1, NULL, 10) * 6 / 5);
        KV_TRY(kv_file_temporary(&temporary, path, err));
        kv_gnuplot_quote(script, temporary);
        fputs("\n", script);
    }
    KV_TRY(draw(script, frame, terminal_table[kind].is_text, request->x, err));
    if (temporary) fputs("unset output\n", script);
    status = kv_gnuplot_run(terminal_table[kind].is_text ? terminal : NULL, script, err);
    if (status == KV_OK && temporary)
        status = kv_file_commit(temporary, path, err);
    else if (temporary)
        remove(temporary);
done:
    if (script) fclose(script);
    kv_free(temporary);
    kv_frame_free(frame);
    return status;
}
