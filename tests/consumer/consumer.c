/* What another project writes to use the installed library: reads a quantizer's shorthand. */
#include <stdio.h>

#include "kernels/shorthand.h"
#include "results/interval.h"

int main(void)
{
    kv_quantizer quantizer;
    kv_error err = {0};
    double const values[] = {1, 2, 3};
    if (kv_quantizer_parse(&quantizer, "int4/32x1:zero", true, &err) != KV_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    printf("%d bits, mean %g\n", kv_format_at(quantizer.format)->bits,
           kv_interval_of(values, 3).mean);
    return 0;
}
