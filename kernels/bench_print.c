/* The rows of a benchmark as text: see bench.h. */
#include "kernels/bench.h"

static void print_json(FILE *out, const kv_bench_row *row, bool is_last)
{
    fprintf(out,
            "  {\"kernel\": \"%s\", \"shape\": \"%s\", \"seconds\": %.9g, \"rate\": %.6g, "
            "\"unit\": \"%s\", \"bound\": \"%s\", \"peak\": %.6g, \"fraction\": %.4f}%s\n",
            row->kernel, row->shape, row->seconds, row->rate, row->unit, row->bound, row->peak,
            row->fraction, is_last ? "" : ",");
}

void kv_bench_print(FILE *out, const kv_bench_row *rows, int n_rows, bool is_json)
{
    if (is_json) fputs("[\n", out);
    for (int i = 0; i < n_rows; i++) {
        const kv_bench_row *const row = &rows[i];
        if (is_json)
            print_json(out, row, i == n_rows - 1);
        else
            fprintf(out, "%-26s %-34s %10.3f ms %8.1f %-7s %5.1f %% of %s\n", row->kernel,
                    row->shape, 1e3 * row->seconds, row->rate, row->unit, 100 * row->fraction,
                    row->bound);
    }
    if (is_json) fputs("]\n", out);
}
