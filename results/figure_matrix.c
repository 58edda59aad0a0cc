/* Figures: the key x value matrix as a heat map. See figure.h. */
#include <math.h>
#include <string.h>

#include "kernels/memory.h"
#include "results/figure.h"
#include "results/gnuplot.h"

/* How many distinct texts there are; places[i], where wanted, says which of them text i is, in the
 * order in which they come. */
static int number_texts(int *places, char *const *texts, int64_t n)
{
    int count = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t k = 0;
        while (strcmp(texts[k], texts[i]) != 0) k++;
        if (places) places[i] = k < i ? places[k] : count;
        count += k == i;
    }
    return count;
}

static void set_matrix_axis(const kv_figure *g, const char *axis, const int *places,
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
static void draw_matrix(const kv_figure *g, const int *key, int n_keys, const int *value,
                        int n_values)
{
    const kv_record *const r = g->frame->record;
    int64_t const n = g->frame->n_rows;
    double const span = g->is_log ? log(g->largest / g->smallest) : g->largest - g->smallest;
    int const size = n_values > 6 ? n_values : 6; /* smaller numbers in narrower cells */
    set_matrix_axis(g, "y", key, kv_record_array(r, "key_scheme")->texts, n, -1);
    set_matrix_axis(g, "x", value, kv_record_array(r, "value_scheme")->texts, n, 1);
    fputs("set xlabel 'value'\nset ylabel 'key'\nunset key\nunset grid\nset border 0\n", g->script);
    if (n_values > 5) fputs("set xtics rotate by -35 left\n", g->script);
    fprintf(g->script, "set xrange [-0.5:%g]\nset yrange [%g:0.5]\n", n_values - 0.5, 0.5 - n_keys);
    fputs("set palette defined (0 '#f7fbff', 1 '#c6dbef', 2 '#6baed6', 3 '#2171b5', 4 '#08306b')\n",
          g->script);
    kv_figure_set_label(g, "cblabel", g->metric->name, g->metric->units);
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
            fprintf(g->script,
                    "set label '%.*g' at %d,%d center front textcolor rgb '%s' font ',%d'\n",
                    n_values > 5 ? 2 : 3, x, value[i], -key[i],
                    depth > 0.5 * span ? "#ffffff" : "#222222", g->title_size * 5 / size);
    }
    fputs(g->is_text
              ? "plot $m using 1:2 with points pt 0\n"
              : "plot $m using 1:2:(0.49):(0.49):3 with boxxyerror fs solid noborder fc palette\n",
          g->script);
}

int kv_figure_is_matrix(const kv_figure *g)
{
    const kv_frame *const f = g->frame;
    const kv_array *const key = kv_record_array(f->record, "key_scheme");
    const kv_array *const value = kv_record_array(f->record, "value_scheme");
    int const axis = kv_frame_axis(f, "scheme");
    int64_t const n = f->n_rows;
    if (axis < 0 || f->extents[axis] != n || !key || !value || !key->texts || !value->texts)
        return 0;
    if (key->count != n || value->count != n) return 0;
    int64_t const n_keys = number_texts(NULL, key->texts, n);
    int64_t const n_values = number_texts(NULL, value->texts, n);
    return n_keys > 1 && n_values > 1 && n_keys * n_values == n;
}

kv_status kv_figure_draw_matrix(const kv_figure *g, kv_error *err)
{
    void *memory = NULL;
    const kv_record *const r = g->frame->record;
    int64_t const n = g->frame->n_rows;
    kv_status const status = kv_allocate3(&memory, 2, (size_t)n, 1, sizeof(int), err);
    if (status != KV_OK) return status;
    int *const keys = memory, *const values = keys + n;
    int const n_keys = number_texts(keys, kv_record_array(r, "key_scheme")->texts, n);
    int const n_values = number_texts(values, kv_record_array(r, "value_scheme")->texts, n);
    draw_matrix(g, keys, n_keys, values, n_values);
    kv_free(memory);
    return KV_OK;
}
