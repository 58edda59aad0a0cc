/* Figures of a tuning: see figure.h. The record's arrays frontier_*, candidate_* and policy_* say
 * all that is drawn; what they lack is left out. */
#include <math.h>
#include <string.h>

#include "kernels/memory.h"
#include "kernels/text.h"
#include "results/figure.h"
#include "results/gnuplot.h"

enum { LABEL_SIZE = 256, MOST_MARKED = 60, MOST_TICS = 24 };

static const char *text_of(const kv_record *record, const char *name, const char *otherwise)
{
    const kv_attribute *const a = kv_record_attribute(record, name);
    return a && a->text ? a->text : otherwise;
}

static double number_of(const kv_record *record, const char *name)
{
    const kv_attribute *const a = kv_record_attribute(record, name);
    return a && !a->text ? a->number : (double)NAN;
}

/* An array of numbers over `count` elements; NULL where there is none such. */
static const double *numbers_of(const kv_record *record, const char *name, int64_t count)
{
    const kv_array *const a = kv_record_array(record, name);
    return a && a->numbers && a->count == count ? a->numbers : NULL;
}

static char *const *texts_of(const kv_record *record, const char *name, int64_t count)
{
    const kv_array *const a = kv_record_array(record, name);
    return a && a->texts && a->count == count ? a->texts : NULL;
}

/* The unit of an axis up to `largest`, so that it spans four of them. */
static kv_byte_unit axis_unit(double largest)
{
    kv_byte_unit unit = kv_byte_unit_for(largest / 4);
    if (unit.bytes == 1) unit.name = "byte"; /* as units are written on axes */
    return unit;
}

/* ---- the frontier ---- */

/* The candidates: the policy and what it is compared with. */
typedef struct {
    int64_t count;
    const double *bytes, *error, *verified, *held_out;
    char *const *family;
    int64_t n_families;
    const char **families; /* [n_families] of them, in their order */
} candidates;

static kv_status find_candidates(candidates *c, const kv_record *record, kv_error *err)
{
    const kv_dimension *const d = kv_record_dimension(record, "candidate");
    c->count = d ? d->length : 0;
    c->bytes = numbers_of(record, "candidate_bytes", c->count);
    c->error = numbers_of(record, "candidate_error", c->count);
    c->verified = numbers_of(record, "candidate_verified", c->count);
    c->held_out = numbers_of(record, "candidate_held_out", c->count);
    c->family = texts_of(record, "candidate_family", c->count);
    if (!c->bytes || !c->error || !c->family) c->count = 0;
    kv_status const status =
        kv_allocate((void **)&c->families, (size_t)c->count, sizeof *c->families, err);
    for (int64_t i = 0; status == KV_OK && i < c->count; i++) {
        bool is_known = strcmp(c->family[i], "policy") == 0;
        for (int64_t k = 0; k < c->n_families; k++)
            is_known |= strcmp(c->families[k], c->family[i]) == 0;
        if (!is_known) c->families[c->n_families++] = c->family[i];
    }
    return status;
}

/* As it was measured, where it was. */
static double measured(const candidates *c, int64_t i)
{
    if (c->held_out && !isnan(c->held_out[i])) return c->held_out[i];
    return c->verified && !isnan(c->verified[i]) ? c->verified[i] : c->error[i];
}

static bool is_any_measured(const candidates *c)
{
    for (int64_t i = 0; i < c->count; i++)
        if ((c->held_out && !isnan(c->held_out[i])) || (c->verified && !isnan(c->verified[i])))
            return true;
    return false;
}

/* Ranges of what is drawn; errors of zero cannot be, on the logarithmic axis. */
typedef struct {
    double low, high, least, most; /* bytes, errors */
    int64_t n_zeros;
    kv_byte_unit unit; /* of the x axis */
} ranges;

static void widen(ranges *r, double bytes, double error)
{
    if (isnan(bytes) || isnan(error)) return;
    r->low = fmin(r->low, bytes), r->high = fmax(r->high, bytes);
    r->n_zeros += error == 0;
    if (error > 0) r->least = fmin(r->least, error), r->most = fmax(r->most, error);
}

/* A line where the budget is: across at an error, upright at bytes. */
static void draw_budget(const kv_figure *g, const kv_record *record, const kv_byte_unit *unit)
{
    static const struct {
        const char *name;
        bool is_on_error, is_per_token;
    } kinds[] = {{"max_error ", true, false},
                 {"match ", true, false},
                 {"max_bytes ", false, false},
                 {"max_bytes_per_token ", false, true}};
    const char *const budget = text_of(record, "budget", "");
    double limit = number_of(record, "budget_limit");
    double const context = number_of(record, "context");
    for (size_t i = 0; limit > 0 && i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strncmp(budget, kinds[i].name, strlen(kinds[i].name)) != 0) continue;
        if (kinds[i].is_per_token && context > 0) limit *= context;
        if (kinds[i].is_on_error)
            fprintf(g->script, "set arrow from graph 0, first %.17g to graph 1, first %.17g", limit,
                    limit);
        else
            fprintf(g->script, "set arrow from first %.17g, graph 0 to first %.17g, graph 1",
                    limit / unit->bytes, limit / unit->bytes);
        fprintf(g->script, " nohead back%s\n", g->is_text ? "" : " lc rgb '#888888' lw 1.5 dt 2");
    }
}

static void print_points(const kv_figure *g, const candidates *c, int64_t family,
                         const kv_byte_unit *unit)
{
    const char *const name = family < 0 ? "policy" : c->families[family];
    fprintf(g->script, "$c%lld << EOD\n", (long long)(family + 1));
    for (int64_t i = 0; i < c->count; i++)
        if (strcmp(c->family[i], name) == 0 && measured(c, i) > 0 && !isnan(c->bytes[i]))
            fprintf(g->script, "%.17g %.17g\n", c->bytes[i] / unit->bytes, measured(c, i));
    fputs("EOD\n", g->script);
}

static void set_frontier_axes(const kv_figure *g, const ranges *r)
{
    bool const is_log = r->low > 0 && r->high >= 20 * r->low;
    double const margin = is_log ? pow(r->high / r->low, 0.03) : fmax((r->high - r->low) * 0.03, 1);
    double const from = is_log ? r->low / margin : r->low - margin;
    double const to = is_log ? r->high * margin : r->high + margin;
    kv_figure_set_label(g, "xlabel", "stored", r->unit.name);
    kv_figure_set_label(g, "ylabel", "error", "1");
    fprintf(g->script, "%sset xrange [%.17g:%.17g]\n", is_log ? "set logscale x 10\n" : "",
            from / r->unit.bytes, to / r->unit.bytes);
    fputs("set format x '%.12g'\nset logscale y 10\nset format y '%g'\n", g->script);
    double const span = fmax(pow(r->most / r->least, 0.05), 1.2);
    fprintf(g->script, "set yrange [%.17g:%.17g]\n", r->least / span, r->most * span);
}

static void set_frontier_titles(const kv_figure *g, const kv_record *record, const candidates *c,
                                const ranges *r, int64_t n_points)
{
    char text[2 * LABEL_SIZE];
    int used = snprintf(text, sizeof text, "exact frontier, %lld points; budget %.80s%s",
                        (long long)n_points, text_of(record, "budget", "not known"),
                        number_of(record, "budget_met") == 0 ? ", not met" : "");
    if (is_any_measured(c))
        used += snprintf(text + used, sizeof text - (size_t)used,
                         "; line: additive error, marks: measured");
    if (r->n_zeros)
        snprintf(text + used, sizeof text - (size_t)used, "; %lld zero%s left out",
                 (long long)r->n_zeros, r->n_zeros > 1 ? "s" : "");
    kv_figure_set_titles(g, text_of(record, "title", NULL), text);
}

/* A family as the legend names it: points of the frontier that were run are not its line. */
static const char *family_title(const char *family)
{
    return strcmp(family, "frontier") == 0 ? "frontier, run end to end" : family;
}

static kv_figure_legend frontier_legend(const kv_figure *g, const candidates *c)
{
    size_t longest = strlen("frontier");
    for (int64_t k = 0; k < c->n_families; k++)
        if (strlen(family_title(c->families[k])) > longest)
            longest = strlen(family_title(c->families[k]));
    return kv_figure_legend_for(g, 2 + c->n_families, longest);
}

/* The frontier as stairs: within so many bytes, the error of the last point below. */
static void plot_frontier(const kv_figure *g, const candidates *c, int64_t n_points)
{
    fprintf(g->script, "plot $frontier using 1:2 with %s %s title 'frontier'",
            g->is_text ? "points" : "steps", g->is_text ? "pt 1" : "lc rgb '#0072B2' lw 2");
    if (n_points <= MOST_MARKED && !g->is_text)
        fputs(", $frontier using 1:2 with points pt 7 ps 0.6 lc rgb '#0072B2' notitle", g->script);
    for (int64_t k = 0; k < c->n_families; k++) {
        fprintf(g->script, ", $c%lld using 1:2 with points pt %d", (long long)(k + 1),
                kv_figure_point(g, k + 2));
        if (!g->is_text) fprintf(g->script, " ps 1.1 lw 1.5 lc rgb '%s'", kv_figure_color(k + 2));
        fputs(" title ", g->script);
        kv_gnuplot_quote(g->script, family_title(c->families[k]));
    }
    if (c->count)
        fprintf(g->script, ", $c0 using 1:2 with points pt %d%s title 'policy'",
                g->is_text ? 16 : 7, g->is_text ? "" : " ps 1.8 lc rgb '#D55E00'");
    fputs("\n", g->script);
}

kv_status kv_figure_draw_frontier(kv_figure *g, const kv_record *record, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_array *const size = kv_record_array(record, "frontier_bytes");
    int64_t const n = size ? size->count : 0;
    const double *const bytes = numbers_of(record, "frontier_bytes", n);
    const double *const error = numbers_of(record, "frontier_error", n);
    double const none = (double)INFINITY;
    ranges r = {none, -none, none, -none, 0, {0}};
    candidates c = {0};
    if (!bytes || !error)
        KV_TRY(KV_FAIL(err, KV_EREQUEST, "the frontier needs frontier_bytes and frontier_error"));
    KV_TRY(find_candidates(&c, record, err));
    for (int64_t i = 0; i < n; i++) widen(&r, bytes[i], error[i]);
    for (int64_t i = 0; i < c.count; i++) widen(&r, c.bytes[i], measured(&c, i));
    if (!(r.least <= r.most))
        KV_TRY(KV_FAIL(err, KV_EREQUEST, "the frontier's errors are all zero: nothing to draw"));
    r.unit = axis_unit(r.high);
    set_frontier_titles(g, record, &c, &r, n);
    set_frontier_axes(g, &r);
    draw_budget(g, record, &r.unit);
    kv_figure_legend const legend = frontier_legend(g, &c);
    kv_figure_set_legend(g, &legend);
    fputs("$frontier << EOD\n", g->script);
    for (int64_t i = 0; i < n; i++)
        if (error[i] > 0) fprintf(g->script, "%.17g %.17g\n", bytes[i] / r.unit.bytes, error[i]);
    fputs("EOD\n", g->script);
    for (int64_t k = -1; k < c.n_families; k++) print_points(g, &c, k, &r.unit);
    plot_frontier(g, &c, n);
done:
    kv_free(c.families);
    return status;
}

/* ---- the policy ---- */

/* What is drawn in one panel: a bar a layer, in the color of its scheme. */
typedef struct {
    const char *label;
    const double *bytes;  /* [n_layers] */
    char *const *schemes; /* [n_layers] */
} panel;

typedef struct {
    int64_t n_layers;
    const double *layers;
    int n_panels;
    panel panels[2];
    int64_t n_schemes;
    const char **schemes; /* [n_schemes] of all panels, in the order in which they come */
    size_t longest;
    kv_byte_unit unit;
} allocation;

static int64_t scheme_number(const allocation *a, const char *scheme)
{
    int64_t i = 0;
    while (i < a->n_schemes && strcmp(a->schemes[i], scheme) != 0) i++;
    return i;
}

static kv_status find_allocation(allocation *a, const kv_record *record, kv_error *err)
{
    const kv_dimension *const d = kv_record_dimension(record, "layer");
    int64_t const n = d ? d->length : 0;
    const double *const all = numbers_of(record, "policy_bytes", n);
    panel const key = {"key", numbers_of(record, "policy_key_bytes", n),
                       texts_of(record, "policy_key", n)};
    panel const value = {"value", numbers_of(record, "policy_value_bytes", n),
                         texts_of(record, "policy_value", n)};
    if (!d || !d->numbers || !all || !key.schemes || !value.schemes)
        return KV_FAIL(err, KV_EREQUEST,
                       "the policy needs policy_key, policy_value and policy_bytes over layer");
    a->n_layers = n, a->layers = d->numbers, a->n_panels = 2;
    a->panels[0] = key, a->panels[1] = value;
    bool const is_apart = key.bytes && value.bytes; /* else both panels show the whole layer */
    if (!is_apart) a->panels[0].bytes = a->panels[1].bytes = all;
    if (!is_apart) a->panels[0].label = "all, by key", a->panels[1].label = "all, by value";
    kv_status const status =
        kv_allocate((void **)&a->schemes, 2 * (size_t)n, sizeof *a->schemes, err);
    for (int k = 0; status == KV_OK && k < 2; k++)
        for (int64_t i = 0; i < n; i++) {
            const char *const scheme = a->panels[k].schemes[i];
            if (scheme_number(a, scheme) < a->n_schemes) continue;
            a->schemes[a->n_schemes++] = scheme;
            if (strlen(scheme) > a->longest) a->longest = strlen(scheme);
        }
    return status;
}

static double largest_of(const allocation *a)
{
    double largest = 0;
    for (int k = 0; k < a->n_panels; k++)
        for (int64_t i = 0; i < a->n_layers; i++) largest = fmax(largest, a->panels[k].bytes[i]);
    return largest > 0 ? largest : 1;
}

static void set_layer_axis(const kv_figure *g, const allocation *a, bool has_numbers)
{
    int64_t const step = 1 + a->n_layers / MOST_TICS;
    fprintf(g->script, "set xrange [-0.7:%g]\nset xtics scale 0 (", (double)a->n_layers - 0.3);
    for (int64_t i = 0; i < a->n_layers; i += step) {
        fprintf(g->script, "%s'", i ? ", " : "");
        if (has_numbers) fprintf(g->script, "%.0f", a->layers[i]);
        fprintf(g->script, "' %lld", (long long)i);
    }
    fputs(")\n", g->script);
}

/* Bars of a panel, a data block a scheme. The legend is the last panel's and names all schemes. */
static void plot_panel(const kv_figure *g, const allocation *a, int k)
{
    const panel *const p = &a->panels[k];
    for (int64_t s = 0; s < a->n_schemes; s++) {
        fprintf(g->script, "$p%ds%lld << EOD\n", k, (long long)s);
        for (int64_t i = 0; i < a->n_layers; i++)
            if (scheme_number(a, p->schemes[i]) == s)
                fprintf(g->script, "%lld %.17g\n", (long long)i, p->bytes[i] / a->unit.bytes);
        fputs("EOD\n", g->script);
    }
    fputs("plot ", g->script);
    for (int64_t s = 0; s < a->n_schemes; s++) {
        if (g->is_text)
            fprintf(g->script, "%s$p%ds%lld using 1:2 with impulses lt %lld notitle", s ? ", " : "",
                    k, (long long)s, (long long)(s + 1));
        else
            fprintf(g->script,
                    "%s$p%ds%lld using 1:(0.5*$2):(0.41):(0.5*$2) with boxxyerror fs solid 0.85 "
                    "noborder fc rgb '%s' notitle",
                    s ? ", " : "", k, (long long)s, kv_figure_color(s));
    }
    for (int64_t s = 0; s < a->n_schemes; s++) { /* also those of the other panel */
        if (g->is_text)
            fprintf(g->script, ", keyentry with impulses lt %lld", (long long)(s + 1));
        else
            fprintf(g->script, ", keyentry with boxes fs solid 0.85 noborder fc rgb '%s'",
                    kv_figure_color(s));
        fputs(" title ", g->script);
        kv_gnuplot_quote(g->script, a->schemes[s]);
    }
    fputs("\n", g->script);
}

static void set_policy_titles(const kv_figure *g, const kv_record *record)
{
    char text[2 * LABEL_SIZE];
    double const bytes = number_of(record, "bytes");
    kv_byte_unit const unit = axis_unit(bytes);
    snprintf(text, sizeof text, "stored by each layer; budget %.80s%s; %.4g %s in all, error %.4g",
             text_of(record, "budget", "not known"),
             number_of(record, "budget_met") == 0 ? ", not met" : "", bytes / unit.bytes, unit.name,
             number_of(record, "additive_error"));
    kv_figure_set_titles(g, text_of(record, "title", NULL), text);
}

/* Height of a line of text as a share of the figure's. */
static double line_height(const kv_figure *g)
{
    return (g->is_text ? 1.0 / 32 : 0.031) / g->stretch;
}

double kv_figure_stretch_tuning(const kv_figure *g, const kv_record *record, const char *metric)
{
    allocation a = {0};
    kv_error err = {0};
    double stretch = 1;
    if (strcmp(metric, "policy") == 0 && find_allocation(&a, record, &err) == KV_OK)
        stretch = 1.25 + 0.031 * kv_figure_legend_for(g, a.n_schemes, a.longest).rows;
    kv_free(a.schemes);
    return stretch;
}

kv_status kv_figure_draw_policy(kv_figure *g, const kv_record *record, kv_error *err)
{
    kv_status status = KV_OK;
    allocation a = {0};
    KV_TRY(find_allocation(&a, record, err));
    a.unit = axis_unit(largest_of(&a));
    kv_figure_legend const legend = kv_figure_legend_for(g, a.n_schemes, a.longest);
    double const line = line_height(g), top = 1 - 5 * line;
    double const bottom = (5.5 + 1.1 * legend.scale * legend.rows) * line;
    double const height = (top - bottom - 1.5 * line) / 2;
    fprintf(g->script, "set multiplot\nset yrange [0:%.17g]\nset lmargin %d\n",
            1.05 * largest_of(&a) / a.unit.bytes, g->is_text ? 12 : 10);
    for (int k = 0; k < a.n_panels; k++) {
        bool const is_last = k == a.n_panels - 1;
        if (k == 0) set_policy_titles(g, record);
        kv_figure_set_label(g, "ylabel", a.panels[k].label, a.unit.name);
        set_layer_axis(g, &a, is_last);
        if (is_last) {
            fputs("unset label\nset xlabel 'layer'\n", g->script);
            kv_figure_set_legend(g, &legend);
        } else {
            fputs("unset key\n", g->script);
        }
        double const high = is_last ? bottom + height : top;
        fprintf(g->script, "set tmargin at screen %g\nset bmargin at screen %g\n", high,
                high - height);
        plot_panel(g, &a, k);
    }
    fputs("unset multiplot\n", g->script);
done:
    kv_free(a.schemes);
    return status;
}
