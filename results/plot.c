/* Figures: see plot.h. A frame becomes a gnuplot script; here it is decided what is drawn and
 * where. */
#include "results/plot.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "kernels/file.h"
#include "kernels/memory.h"
#include "results/figure.h"
#include "results/gnuplot.h"
#include "results/table_group.h"

enum { MOST_LINES = 16 };

static const struct {
    const char *ending, *terminal; /* which the height and its unit follow */
    double height;
    const char *unit;
    int is_text, title_size, font_size;
} terminal_table[] = {
    {"-", "dumb noenhanced mono size 100,", 32, "", 1, 0, 0},
    {".svg", "svg noenhanced background rgb 'white' font 'Helvetica,15' size 860,", 540, "", 0, 18,
     15},
    {".png", "pngcairo noenhanced font 'Helvetica,30' linewidth 2 pointscale 2 size 1720,", 1080,
     "", 0, 36, 30},
    {".pdf", "pdfcairo noenhanced font 'Helvetica,11' size 17.2cm,", 10.8, "cm", 0, 13, 11},
};

/* Whether a metric is a share: its values all lie in 0 ... 1 and some are exactly 1. */
static int is_share(const kv_array *a)
{
    int reaches_one = 0;
    if (a->units && strcmp(a->units, "1") != 0) return 0;
    for (int64_t i = 0; i < a->count; i++) {
        if (a->numbers[i] < 0 || a->numbers[i] > 1) return 0;
        reaches_one |= a->numbers[i] == 1;
    }
    return reaches_one;
}

/* The range of the values. Zeros, which exact schemes have, do not keep an axis from being
 * logarithmic. */
static void measure(kv_figure *g)
{
    const kv_frame *const f = g->frame;
    double positive = (double)INFINITY;
    g->smallest = (double)INFINITY, g->largest = -(double)INFINITY;
    for (int64_t row = 0; row < f->n_rows; row++) {
        const kv_interval *const x = &f->cells[row];
        if (!isfinite(x->mean)) continue;
        g->smallest = fmin(g->smallest, x->mean), g->largest = fmax(g->largest, x->mean);
        if (x->mean > 0) positive = fmin(positive, x->mean);
        g->n_zeros += x->mean == 0;
        g->has_interval |= isfinite(x->low) && x->high > x->low;
        if (x->n > g->most_replicates) g->most_replicates = x->n;
    }
    g->is_share = is_share(g->metric);
    g->is_log = g->smallest >= 0 && g->largest >= 100 * positive;
    if (g->is_log) g->smallest = positive;
}

/* The asked axis; else the first parameter of numbers with several values, then any, then scheme.
 */
static int choose_x(const kv_frame *f, const char *asked)
{
    if (asked) return kv_frame_axis(f, asked);
    int const scheme = kv_frame_axis(f, "scheme");
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < f->n_axes; i++)
            if (i != scheme && f->extents[i] > 1 && (pass || kv_frame_dimension(f, i)->numbers))
                return i;
    return scheme >= 0 ? scheme : f->n_axes - 1;
}

/* How much higher than usual: room for a long legend and for many bars. */
static double stretch_of(const kv_figure *g, int is_bars)
{
    if (g->is_matrix) return kv_figure_stretch_matrix(g);
    int const rows = kv_figure_legend_rows(g); /* gnuplot wants the plot at least as high */
    double const legend = 0.04 * fmax(0, rows - 3) + 0.05 * fmax(0, rows - 13);
    double const bars = is_bars ? fmax(0, (double)(g->n_x * (g->n_series + 1)) / 24 - 1) : 0;
    return fmin(1 + legend + bars, 10);
}

/* A key x value matrix is drawn as one where nothing else varies. Beside a sweep it would be a line
 * for each pair: too many are refused unless the x axis was asked for. */
static kv_status find_matrix(kv_figure *g, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_frame *const f = g->frame;
    char point[256] = "";
    size_t used = 0;
    KV_TRY(kv_pairs_find(&g->pairs, f, err));
    const kv_pairs *const p = &g->pairs;
    if (p->count[KV_PART_KEY] < 2 || p->count[KV_PART_VALUE] < 2 || !p->n_schemes) goto done;
    g->is_matrix = f->n_rows == p->n_schemes;
    if (g->is_matrix || p->n_schemes <= MOST_LINES) goto done;
    for (int i = 1; i < f->n_axes; i++) {
        char buffer[KV_REAL_TEXT];
        const kv_dimension *const d = kv_frame_dimension(f, i);
        if (f->extents[i] > 1 && used < sizeof point)
            used += (size_t)snprintf(point + used, sizeof point - used, " --where %s=%s", d->name,
                                     kv_coordinate_text(buffer, d, f->index[i]));
    }
    KV_TRY(KV_FAIL(err, KV_EREQUEST,
                   "a matrix of %lld keys and %lld values at %lld points would be %lld lines; draw "
                   "one point of it, as with%s, or give the x axis",
                   (long long)p->count[KV_PART_KEY], (long long)p->count[KV_PART_VALUE],
                   (long long)(f->n_rows / p->n_schemes), (long long)p->n_schemes, point));
done:
    return status;
}

/* Where the figure goes and what all figures have. */
static void start_script(const kv_figure *g, size_t kind, const char *path)
{
    fprintf(g->script, "set encoding utf8\nset terminal %s%.5g%s\n", terminal_table[kind].terminal,
            terminal_table[kind].height * g->stretch, terminal_table[kind].unit);
    if (path) {
        fputs("set output ", g->script);
        kv_gnuplot_quote(g->script, path);
        fputs("\n", g->script);
    }
    fputs("set border 3 lc rgb '#444444'\nset tics nomirror\n", g->script);
    if (!g->is_text) fputs("set grid lc rgb '#cccccc' lw 0.8 dt 1\n", g->script);
}

static kv_status draw(kv_figure *g, size_t kind, const char *path, const char *x, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_frame *const f = g->frame;
    int const scheme = kv_frame_axis(f, "scheme");
    g->x = choose_x(f, x);
    if (g->x < 0)
        return KV_FAIL(err, KV_EREQUEST, "%s is one number: nothing to draw", g->metric->name);
    g->n_x = f->extents[g->x];
    g->n_series = f->n_rows / g->n_x;
    g->n_same = 1;
    if (scheme >= 0 && scheme != g->x && f->extents[scheme] > 1 && !g->is_text)
        g->n_same = g->n_series / f->extents[scheme];
    measure(g);
    if (!(g->smallest <= g->largest))
        return KV_FAIL(err, KV_EREQUEST, "%s has no values to draw", g->metric->name);
    if (!x) KV_TRY(find_matrix(g, err));
    g->stretch = stretch_of(g, g->x == scheme);
    start_script(g, kind, path);
    kv_figure_set_head(g);
    if (g->is_matrix)
        kv_figure_draw_matrix(g);
    else if (g->x == scheme)
        kv_figure_draw_bars(g);
    else
        kv_figure_draw_lines(g);
    if (path) fputs("unset output\n", g->script);
done:
    kv_pairs_free_contents(&g->pairs);
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

/* Arrays that belong together by name, of which a figure is known. */
static const struct {
    const char *name;
    kv_status (*draw)(kv_figure *g, const kv_record *record, kv_error *err);
} group_table[] = {{"frontier", kv_figure_draw_frontier}, {"policy", kv_figure_draw_policy}};
enum { N_GROUPS = sizeof group_table / sizeof group_table[0] };

static kv_status draw_group(kv_figure *g, size_t kind, const char *path, const kv_record *record,
                            const kv_plot_request *request, const char *metric, kv_error *err)
{
    kv_status status = KV_OK;
    size_t row = 0;
    while (row < N_GROUPS && strcmp(group_table[row].name, metric) != 0) row++;
    if (row == N_GROUPS)
        return KV_FAIL(err, KV_EREQUEST, "%s is a table; figures are known of frontier and policy",
                       metric);
    if (request->x || request->n_where)
        return KV_FAIL(err, KV_EREQUEST, "%s is drawn whole, without --x and --where", metric);
    g->stretch = kv_figure_stretch_tuning(g, record, metric);
    start_script(g, kind, path);
    KV_TRY(group_table[row].draw(g, record, err));
    if (path) fputs("unset output\n", g->script);
done:
    return status;
}

static const char *first_metric(const kv_record *record)
{
    if (kv_table_is_group(record, "frontier")) return "frontier";
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
    bool const is_group = kv_table_is_group(record, metric);
    if (!is_group) KV_TRY(kv_frame_create(&frame, record, &wanted, err));
    script = tmpfile();
    if (!script) KV_TRY(KV_FAIL(err, KV_EIO, "a temporary file: %s", strerror(errno)));
    if (!terminal_table[kind].is_text) KV_TRY(kv_file_temporary(&temporary, path, err));
    kv_figure g = {.script = script,
                   .frame = frame,
                   .metric = is_group ? NULL : frame->metrics[0],
                   .is_text = terminal_table[kind].is_text,
                   .title_size = terminal_table[kind].title_size,
                   .font_size = terminal_table[kind].font_size};
    KV_TRY(is_group ? draw_group(&g, kind, temporary, record, request, metric, err)
                    : draw(&g, kind, temporary, request->x, err));
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
