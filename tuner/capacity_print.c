/* Capacity as a table or as JSON: see capacity.h. */
#include <inttypes.h>
#include <string.h>

#include "kernels/text.h"
#include "results/grid.h"
#include "tuner/capacity.h"

static bool same_layer(const kv_capacity_layer *a, const kv_capacity_layer *b)
{
    return a->kv_heads == b->kv_heads && a->head_dim == b->head_dim && a->window == b->window &&
           strcmp(a->key, b->key) == 0 && strcmp(a->value, b->value) == 0;
}

static double gib(int64_t bytes)
{
    return (double)bytes / 0x1p30;
}

/* ---- table ---- */

static int width_of(const kv_capacity *c, bool is_key)
{
    size_t width = 5;
    for (int64_t i = 0; i < c->n_layers; i++) {
        size_t const n = strlen(is_key ? c->layers[i].key : c->layers[i].value);
        if (n > width) width = n;
    }
    return (int)width;
}

static void print_layers(FILE *out, const kv_capacity *c)
{
    int const key = width_of(c, true), value = width_of(c, false);
    fprintf(out, "%-9s %8s %8s %8s  %-*s  %-*s %15s\n", "layers", "kv heads", "head_dim", "window",
            key, "key", value, "value", "bytes per token");
    for (int64_t first = 0, end; first < c->n_layers; first = end) {
        const kv_capacity_layer *const l = &c->layers[first];
        char range[48], window[24] = "-";
        for (end = first + 1; end < c->n_layers && same_layer(l, &c->layers[end]);) end++;
        snprintf(range, sizeof range, "%" PRId64 "-%" PRId64, first, end - 1);
        if (end == first + 1) snprintf(range, sizeof range, "%" PRId64, first);
        if (l->window) snprintf(window, sizeof window, "%" PRId64, l->window);
        fprintf(out, "%-9s %8" PRId64 " %8" PRId64 " %8s  %-*s  %-*s %15.8g\n", range, l->kv_heads,
                l->head_dim, window, key, l->key, value, l->value,
                (double)l->bytes / (double)c->context);
    }
}

static const char *tokens_text(char out[32], int64_t tokens)
{
    if (tokens == KV_CAPACITY_ENDLESS)
        snprintf(out, 32, "over %d", KV_CAPACITY_MAX_CONTEXT);
    else
        snprintf(out, 32, "%" PRId64, tokens);
    return out;
}

static void print_pages(FILE *out, const char *name, const kv_capacity_side *side)
{
    fprintf(out, "%s: pages of %" PRId64 " bytes hold %" PRId64 " tokens", name, side->page_bytes,
            side->block);
    if (side->padded)
        fprintf(out,
                ", of larger layers %" PRId64 ": %.8g bytes a token, %.1f %% more than they take",
                side->padded, (double)side->page_bytes / (double)side->padded, 100 * side->waste);
    fprintf(out, "\n");
}

static void print_table(FILE *out, const kv_capacity *c)
{
    const kv_capacity_side *const a = &c->scheme_side, *const b = &c->f16_side;
    char left[32], right[32];
    double const context = (double)c->context;
    fprintf(out, "%s%s%s, %" PRId64 " tokens; GiB = 2^30 bytes\n\n", c->model ? c->model : "",
            c->model ? ", " : "", c->scheme, c->context);
    print_layers(out, c);
    fprintf(out, "\n%-32s %16s %16s\n", "", "this", "f16");
    fprintf(out, "%-32s %16.8g %16.8g\n", "bytes per token, all layers", (double)a->bytes / context,
            (double)b->bytes / context);
    fprintf(out, "%-32s %16.4f %16.4f\n", "cache of one sequence, GiB", gib(a->bytes),
            gib(b->bytes));
    if (c->cache_bytes >= 0) {
        fprintf(out, "%-32s %16.4f\n", "memory for caches, GiB", gib(c->cache_bytes));
        fprintf(out, "%-32s %16" PRId64 " %16" PRId64 "\n", "sequences that fit", a->sequences,
                b->sequences);
        fprintf(out, "%-32s %16s %16s\n", "longest one sequence, tokens",
                tokens_text(left, a->longest), tokens_text(right, b->longest));
    }
    if (!c->has_pages) return;
    fprintf(out, "\nvLLM's pages, %" PRId64 " tokens of a step in flight\n", c->in_flight);
    print_pages(out, "this", a), print_pages(out, "f16", b);
}

/* ---- JSON ---- */

static void print_side(FILE *out, const char *name, const kv_capacity *c, const kv_capacity_side *s)
{
    char number[KV_REAL_TEXT];
    fprintf(out, ",\n  \"%s\": {\"bytes\": %" PRId64 ", \"bytes_per_token\": %s", name, s->bytes,
            kv_real_text(number, (double)s->bytes / (double)c->context));
    if (c->cache_bytes >= 0) {
        fprintf(out, ", \"sequences\": %" PRId64 ", \"longest\": ", s->sequences);
        if (s->longest == KV_CAPACITY_ENDLESS)
            fprintf(out, "null");
        else
            fprintf(out, "%" PRId64, s->longest);
    }
    if (c->has_pages)
        fprintf(out, ", \"page_bytes\": %" PRId64 ", \"block\": %" PRId64, s->page_bytes, s->block);
    if (s->padded)
        fprintf(out, ", \"padded_block\": %" PRId64 ", \"padding\": %s", s->padded,
                kv_real_text(number, s->waste));
    fprintf(out, "}");
}

/* False when memory runs out. */
static bool print_json(FILE *out, const kv_capacity *c)
{
    fprintf(out, "{\n  \"model\": ");
    bool is_good = true;
    if (c->model)
        is_good = kv_json_text(out, c->model);
    else
        fprintf(out, "null");
    fprintf(out, ",\n  \"scheme\": ");
    is_good &= kv_json_text(out, c->scheme);
    fprintf(out, ",\n  \"context\": %" PRId64, c->context);
    if (c->cache_bytes >= 0) fprintf(out, ",\n  \"cache_bytes\": %" PRId64, c->cache_bytes);
    if (c->has_pages) fprintf(out, ",\n  \"in_flight\": %" PRId64, c->in_flight);
    print_side(out, "cache", c, &c->scheme_side), print_side(out, "f16", c, &c->f16_side);
    fprintf(out, ",\n  \"layers\": [");
    for (int64_t i = 0; i < c->n_layers; i++) {
        const kv_capacity_layer *const l = &c->layers[i];
        fprintf(out,
                "%s\n    {\"layer\": %" PRId64 ", \"kv_heads\": %" PRId64 ", \"head_dim\": %" PRId64
                ", \"window\": %" PRId64 ", \"key\": \"%s\", \"value\": \"%s\", \"bytes\": %" PRId64
                ", \"f16_bytes\": %" PRId64 "}",
                i ? "," : "", i, l->kv_heads, l->head_dim, l->window, l->key, l->value, l->bytes,
                l->f16_bytes);
    }
    fprintf(out, "\n  ]\n}\n");
    return is_good;
}

kv_status kv_capacity_print(FILE *out, const kv_capacity *capacity, bool is_json, kv_error *err)
{
    if (!is_json)
        print_table(out, capacity);
    else if (!print_json(out, capacity))
        return KV_FAIL(err, KV_ENOMEM, "out of memory");
    return ferror(out) ? KV_FAIL(err, KV_EIO, "writing the capacity failed") : KV_OK;
}
