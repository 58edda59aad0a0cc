/* Figures: the key x value matrix as a heat map. See figure.h. Margins follow from the lengths of
 * the names, so that nothing is cut; lengths are shares of the figure's width. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "results/figure.h"
#include "results/gnuplot.h"

/* Of one character of the usual font: wide ones count as if a little narrower, digits exactly. */
static const double letter = 0.0115, digit = 0.0129;
static const double usual_height = 1080.0 / 1720;

enum { NUMBER_SIZE = 24 };

/* Where the cells are, and how what stands at them is written. */
typedef struct {
    double left, right, bottom, top; /* shares of width and height */
    int is_slanted;                  /* the names of the values, which then end at their column */
    double number_scale;
} layout;

static double longest_name(const kv_figure *g, int part)
{
    double longest = 0;
    for (int64_t i = 0; i < g->pairs.count[part]; i++)
        longest = fmax(longest, (double)strlen(g->pairs.text[part][i]));
    return longest;
}

/* As few characters as show so many digits: 0.042, 8.4e-4, 12, 1.2e6. */
static void number_text(char text[NUMBER_SIZE], double x, int digits)
{
    snprintf(text, NUMBER_SIZE, "%.*e", digits - 1, x);
    int const exponent = (int)strtol(strchr(text, 'e') + 1, NULL, 10); /* after rounding */
    int const decimals = exponent < digits ? digits - 1 - exponent : 0;
    if (exponent >= -3 && exponent < 5)
        snprintf(text, NUMBER_SIZE, "%.*f", x == 0 ? 0 : decimals, x);
    else
        snprintf(strchr(text, 'e'), 6, "e%d", exponent);
}

static int digits_of(const kv_figure *g)
{
    return g->pairs.count[KV_PART_VALUE] > 5 ? 2 : 3;
}

static layout lay_out(const kv_figure *g)
{
    int64_t const n = g->pairs.count[KV_PART_VALUE];
    double const names = longest_name(g, KV_PART_VALUE);
    size_t longest = 1;
    layout l = {.left = fmin(0.07 + letter * longest_name(g, KV_PART_KEY), 0.6), .right = 0.82};
    l.is_slanted = names * digit > (l.right - l.left) / (double)n;
    for (int64_t i = 0; i < n && l.is_slanted;
         i++) /* these names reach to the left of their column */
        l.left =
            fmax(l.left,
                 fmin(0.6, 0.02 + 0.82 * letter * (double)strlen(g->pairs.text[KV_PART_VALUE][i]) -
                               (l.right - l.left) * ((double)i + 0.5) / (double)n));
    double const height = usual_height * g->stretch;
    l.bottom = (0.075 + (l.is_slanted ? 0.58 * letter * names : 0.02)) / height;
    l.top = 1 - 0.12 / height;
    for (int64_t i = 0; i < g->frame->n_rows; i++) {
        char text[NUMBER_SIZE];
        if (!isfinite(g->frame->cells[i].mean)) continue;
        number_text(text, g->frame->cells[i].mean, digits_of(g));
        if (strlen(text) > longest) longest = strlen(text);
    }
    double const across = 0.92 * (l.right - l.left) / (double)n / ((double)longest * digit);
    double const down = (l.top - l.bottom) * height / (double)g->pairs.count[KV_PART_KEY] / 0.03;
    l.number_scale = fmin(1, fmin(across, down));
    return l;
}

/* Slanted names hang down from the cells, and many keys need lines to stand on. */
double kv_figure_stretch_matrix(const kv_figure *g)
{
    double const slanted = 0.58 * letter * fmin(longest_name(g, KV_PART_VALUE), 60);
    double const rows = 0.035 * (double)g->pairs.count[KV_PART_KEY];
    return fmin(fmax(1, (0.2 + slanted + rows) / usual_height), 10);
}

static void set_axis(const kv_figure *g, const char *axis, int part, int sign)
{
    fprintf(g->script, "set %stics scale 0 (", axis);
    for (int64_t i = 0; i < g->pairs.count[part]; i++) {
        fputs(i ? ", " : "", g->script);
        kv_gnuplot_quote(g->script, g->pairs.text[part][i]);
        fprintf(g->script, " %lld", (long long)(sign * i));
    }
    fputs(")\n", g->script);
}

static void set_frame(const kv_figure *g, const layout *l)
{
    set_axis(g, "y", KV_PART_KEY, -1);
    set_axis(g, "x", KV_PART_VALUE, 1);
    fputs("set xlabel 'value'\nset ylabel 'key'\nunset key\nunset grid\nset border 0\n", g->script);
    fprintf(g->script, "set xrange [-0.5:%g]\nset yrange [%g:0.5]\n",
            (double)g->pairs.count[KV_PART_VALUE] - 0.5, 0.5 - (double)g->pairs.count[KV_PART_KEY]);
    if (g->is_text) return;
    if (l->is_slanted) fputs("set xtics rotate by 35 right\n", g->script);
    fprintf(g->script,
            "set lmargin at screen %.4f\nset rmargin at screen %.4f\nset bmargin at screen %.4f\n"
            "set tmargin at screen %.4f\n",
            l->left, l->right, l->bottom, l->top);
    fputs("unset xlabel\nunset ylabel\n", g->script); /* gnuplot guesses how long names are */
    fprintf(g->script,
            "set label 'value' at screen %.4f, screen %.4f center\n"
            "set label 'key' at screen 0.025, screen %.4f center rotate\n",
            (l->left + l->right) / 2, 0.025 / usual_height / g->stretch, (l->bottom + l->top) / 2);
    fprintf(g->script,
            "set colorbox user origin screen %.4f, screen %.4f size screen 0.02, screen %.4f\n",
            l->right + 0.02, l->bottom, l->top - l->bottom);
}

/* Key schemes down, value schemes across; each cell has its color and its number. A zero beside a
 * logarithmic scale has the color of the smallest number. */
void kv_figure_draw_matrix(const kv_figure *g)
{
    const int64_t *const key = g->pairs.number[KV_PART_KEY];
    const int64_t *const value = g->pairs.number[KV_PART_VALUE];
    int64_t const n = g->frame->n_rows;
    double const span = g->is_log ? log(g->largest / g->smallest) : g->largest - g->smallest;
    layout const l = lay_out(g);
    set_frame(g, &l);
    fputs("set palette defined (0 '#f7fbff', 1 '#c6dbef', 2 '#6baed6', 3 '#2171b5', 4 '#08306b')\n",
          g->script);
    kv_figure_set_label(g, "cblabel", g->metric->name, g->metric->units);
    if (!g->is_text) fputs("set cblabel offset 0.7\n", g->script);
    if (g->is_log) fputs("set logscale cb\nset format cb '%g'\n", g->script);
    fputs("$m << EOD\n", g->script);
    for (int64_t i = 0; i < n; i++)
        if (isfinite(g->frame->cells[i].mean))
            fprintf(g->script, "%lld %lld %.17g\n", (long long)value[i], (long long)-key[i],
                    fmax(g->frame->cells[i].mean, g->smallest));
    fputs("EOD\n", g->script);
    for (int64_t i = 0; i < n; i++) {
        char text[NUMBER_SIZE];
        double const x = g->frame->cells[i].mean, shown = fmax(x, g->smallest);
        double const depth = g->is_log ? log(shown / g->smallest) : shown - g->smallest;
        if (!isfinite(x)) continue;
        number_text(text, x, digits_of(g));
        fprintf(g->script, "set label '%s' at %lld,%lld center front", text, (long long)value[i],
                (long long)-key[i]);
        if (!g->is_text)
            fprintf(g->script, " textcolor rgb '%s' font ',%.3g'",
                    depth > 0.5 * span ? "#ffffff" : "#222222", l.number_scale * g->font_size);
        fputs("\n", g->script);
    }
    fputs(g->is_text
              ? "plot $m using 1:2 with points pt 0\n"
              : "plot $m using 1:2:(0.49):(0.49):3 with boxxyerror fs solid noborder fc palette\n",
          g->script);
}
