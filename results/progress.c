/* The progress of a run on a terminal: see progress.h. */
#include "results/progress.h"

#include <time.h>

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void kv_progress_start(kv_progress *progress, FILE *out, kv_run *run, int64_t n_units)
{
    *progress = (kv_progress){out, run, n_units, kv_run_count_done(run), now_s()};
    kv_progress_show(progress);
}

void kv_progress_bar(FILE *out, double share, const char *text)
{
    static const char bar[] = "##############################";
    int const width = (int)sizeof bar - 1, filled = (int)(width * share);
    fprintf(out, "\r[%.*s%*s] %s\033[K", filled, bar, width - filled, "", text);
}

void kv_progress_wipe(FILE *out)
{
    fputs("\r\033[K", out);
}

void kv_progress_show(const kv_progress *p)
{
    if (!p->out || p->n_units < 1) return;
    int64_t const done = kv_run_count_done(p->run), fresh = done - p->n_before;
    double const elapsed_s = now_s() - p->start_s;
    char rate[64] = "", text[160];
    if (fresh > 0)
        snprintf(rate, sizeof rate, "  %.2f/s  ETA %.0f s", (double)fresh / elapsed_s,
                 elapsed_s / (double)fresh * (double)(p->n_units - done));
    snprintf(text, sizeof text, "%lld/%lld units%s", (long long)done, (long long)p->n_units, rate);
    kv_progress_bar(p->out, (double)done / (double)p->n_units, text);
}

void kv_progress_clear(const kv_progress *progress)
{
    if (progress->out) kv_progress_wipe(progress->out);
}
