/* dump: runs quantizers on a tensor and writes everything they make, for compare_codes.py.
 *
 *     dump IN OUT < SHORTHANDS
 *
 * IN holds int64 G, T, D, rotary_dim, is_interleaved and float x [G][T][D]. For each line of the
 * standard input OUT receives int64 stored bits (-1: refused, the reason is on standard error),
 * float values [G][T][D] and uint32 codes [G][T][D]. Tokens are decoded in ragged pieces. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/memory.h"
#include "kernels/quantize.h"
#include "kernels/shorthand.h"

enum { PIECE = 37 };

typedef struct {
    int64_t heads, tokens, head_dim, rotary_dim, is_interleaved;
} layout;

typedef struct {
    const float *x;
    float *values;
    uint32_t *codes;
} tensors;

/* Fits the heads [first, first + shape->heads) and decodes them; adds to *bits. */
static kv_status run_fit(int64_t *bits, const tensors *t, const kv_quantizer *q,
                         const kv_tensor_shape *shape, int64_t first, kv_error *err)
{
    kv_status status = KV_OK;
    kv_fit *fit = NULL;
    float *scratch = NULL;
    int64_t const size = shape->tokens * shape->head_dim;
    KV_TRY(kv_fit_create(&fit, q, shape, err));
    while (kv_fit_next(fit) != KV_FIT_READY) {
        for (int64_t h = 0; h < shape->heads; h++)
            KV_TRY(kv_fit_absorb(fit, h, t->x + (first + h) * size, err));
        KV_TRY(kv_fit_end_pass(fit, err));
    }
    KV_TRY(kv_allocate((void **)&scratch, (size_t)kv_fit_scratch_floats(fit, PIECE) + 1,
                       sizeof *scratch, err));
    for (int64_t h = 0; h < shape->heads; h++)
        for (int64_t at = 0; at < shape->tokens; at += PIECE) {
            int64_t const count = shape->tokens - at < PIECE ? shape->tokens - at : PIECE;
            int64_t const from = (first + h) * size;
            int64_t const to = from + at * shape->head_dim;
            kv_fit_decode(fit, h, t->x + from, at, count, t->values + to, scratch);
            kv_fit_codes(fit, h, t->x + from, at, count, t->codes + to, scratch);
        }
    *bits += kv_fit_bits(fit);
done:
    kv_free(scratch);
    kv_fit_free(fit);
    return status;
}

static kv_status run_quantizer(int64_t *bits, const tensors *t, const layout *size,
                               const char *text, kv_error *err)
{
    kv_status status = KV_OK;
    kv_quantizer q = {0};
    KV_TRY(kv_quantizer_parse(&q, text, true, err));
    bool const is_wide = kv_quantizer_is_layer_wide(&q);
    kv_tensor_shape const shape = {.heads = is_wide ? size->heads : 1,
                                   .tokens = size->tokens,
                                   .head_dim = size->head_dim,
                                   .rotary_dim = q.is_pre_rope ? 0 : size->rotary_dim,
                                   .is_rope_interleaved = size->is_interleaved != 0};
    KV_TRY(kv_quantizer_check(&q, &shape, err));
    for (int64_t first = 0; first < size->heads; first += shape.heads)
        KV_TRY(run_fit(bits, t, &q, &shape, first, err));
done:
    return status;
}

/* 0, or 1 where a file cannot be read or written. */
static int run(FILE *in, FILE *out)
{
    int failed = 1;
    layout size;
    kv_error err = {0};
    float *x = NULL;
    tensors t = {0};
    char line[512];
    if (fread(&size, sizeof size, 1, in) != 1) return 1;
    size_t const n = (size_t)(size.heads * size.tokens * size.head_dim);
    if (kv_allocate((void **)&x, n, sizeof *x, &err) ||
        kv_allocate((void **)&t.values, n, sizeof *t.values, &err) ||
        kv_allocate((void **)&t.codes, n, sizeof *t.codes, &err) || fread(x, sizeof *x, n, in) != n)
        goto done;
    t.x = x;
    while (fgets(line, sizeof line, stdin)) {
        int64_t bits = 0;
        err = (kv_error){0};
        line[strcspn(line, "\n")] = '\0';
        if (run_quantizer(&bits, &t, &size, line, &err) != KV_OK) {
            fprintf(stderr, "%s: %s\n", line, err.message);
            bits = -1;
        }
        if (fwrite(&bits, sizeof bits, 1, out) != 1 ||
            fwrite(t.values, sizeof *t.values, n, out) != n ||
            fwrite(t.codes, sizeof *t.codes, n, out) != n)
            goto done;
    }
    failed = 0;
done:
    kv_free(x), kv_free(t.values), kv_free(t.codes);
    return failed;
}

int main(int count, char **arguments)
{
    int failed = 1;
    FILE *const in = count == 3 ? fopen(arguments[1], "rb") : NULL;
    FILE *const out = in ? fopen(arguments[2], "wb") : NULL;
    if (out) failed = run(in, out);
    if (out && fclose(out)) failed = 1;
    if (in) fclose(in);
    if (failed) fprintf(stderr, "usage: dump IN OUT < SHORTHANDS\n");
    return failed;
}
