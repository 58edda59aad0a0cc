/* Pages as vLLM hands them out: see capacity.h. */
#include <inttypes.h>
#include <string.h>

#include "kernels/text.h"
#include "tuner/capacity_parts.h"

enum { KERNEL_BLOCK = 16, MOST_BLOCK = 4096, MOST_IN_FLIGHT = 100000000 };

/* Numbers of tokens that attention kernels take in one block. */
static const int64_t kernel_blocks[] = {16, 32, 64, 128, 256};

static int64_t divide_up(int64_t a, int64_t b)
{
    return a / b + (a % b > 0);
}

kv_status kv_capacity_parse_pages(kv_capacity_request *r, const char *text, kv_error *err)
{
    char first[24] = "";
    int64_t block = 0, in_flight = 0;
    bool is_good = strcmp(text, "vllm") == 0;
    if (strncmp(text, "vllm=", 5) == 0) {
        const char *const number = text + 5, *const comma = strchr(number, ',');
        size_t const length = comma ? (size_t)(comma - number) : strlen(number);
        if (length < sizeof first) memcpy(first, number, length);
        is_good = kv_parse_int(first, &block) && block > 0 && block <= MOST_BLOCK;
        if (comma)
            is_good = is_good && kv_parse_int(comma + 1, &in_flight) && in_flight > 0 &&
                      in_flight <= MOST_IN_FLIGHT;
    }
    if (!is_good)
        return KV_FAIL(err, KV_EREQUEST,
                       "--pages: expected vllm, vllm=BLOCK or vllm=BLOCK,STEP (tokens of a "
                       "page, up to %d, and of a step), found \"%s\"",
                       MOST_BLOCK, text);
    r->has_pages = true, r->block = block, r->in_flight = in_flight;
    return KV_OK;
}

/* What a token adds to a cache that is long already; a page must hold tokens of one size. */
static kv_status find_token_bytes(kv_capacity_class *c, kv_error *err)
{
    enum { LONG = 1 << 20, MORE = 1 << 10 };
    kv_status status = KV_OK;
    int64_t before, after;
    const kv_quantizer *const q[] = {c->key, c->value};
    for (int i = 0; i < 2; i++)
        if (q[i]->sinks || q[i]->window || q[i]->flush)
            return KV_FAIL(err, KV_EREQUEST,
                           "--pages: %s keeps some tokens at 16 bits, a page holds tokens of one "
                           "size",
                           i ? c->value_text : c->key_text);
    KV_TRY(kv_capacity_class_bytes(&before, c, LONG, err));
    KV_TRY(kv_capacity_class_bytes(&after, c, LONG + MORE, err));
    if ((after - before) % MORE != 0)
        KV_TRY(KV_FAIL(err, KV_EREQUEST, "--pages: %s | %s takes no whole number of bytes a token",
                       c->key_text, c->value_text));
    c->token_bytes = (after - before) / MORE;
done:
    return status;
}

kv_status kv_capacity_plan_pages(kv_capacity_model *m, int64_t block, int64_t in_flight,
                                 kv_error *err)
{
    kv_status status = KV_OK;
    int64_t small = INT64_MAX, large = 0;
    for (int64_t i = 0; i < m->n_classes; i++) {
        kv_capacity_class *const c = &m->classes[i];
        KV_TRY(find_token_bytes(c, err));
        if (c->token_bytes < small) small = c->token_bytes;
        if (c->token_bytes > large) large = c->token_bytes;
    }
    for (int64_t i = 0; i < m->n_classes; i++)
        if (m->classes[i].token_bytes != small && m->classes[i].token_bytes != large)
            KV_TRY(KV_FAIL(err, KV_EREQUEST,
                           "--pages: layers store %" PRId64 ", %" PRId64 " and %" PRId64
                           " bytes a token; vLLM has one quantized type and the model's own",
                           small, m->classes[i].token_bytes, large));
    kv_capacity_pages *const p = &m->pages;
    *p = (kv_capacity_pages){
        .block = block, .page_bytes = block * small, .token_bytes = small, .in_flight = in_flight};
    m->has_pages = true;
    if (large == small) goto done;
    int64_t const step = block > KERNEL_BLOCK ? block : KERNEL_BLOCK;
    p->block = step * divide_up(large * KERNEL_BLOCK, step * small);
    p->page_bytes = p->block * small, p->padded_bytes = large;
    for (size_t i = 0; i < sizeof kernel_blocks / sizeof kernel_blocks[0]; i++)
        if (kernel_blocks[i] * large <= p->page_bytes) p->padded_block = kernel_blocks[i];
done:
    return status;
}

int64_t kv_capacity_pages_of(const kv_capacity_pages *p, const kv_capacity_class *c, int64_t tokens)
{
    int64_t const block = c->token_bytes == p->token_bytes ? p->block : p->padded_block;
    int64_t const pages = divide_up(tokens, block);
    if (!c->window) return pages;
    int64_t const held = c->window - 1 + p->in_flight;
    int64_t const bound = divide_up(held < tokens ? held : tokens, block) + 1;
    return bound < pages ? bound : pages;
}

void kv_capacity_describe_pages(kv_capacity_side *side, const kv_capacity_pages *p)
{
    side->page_bytes = p->page_bytes, side->block = p->block, side->padded = p->padded_block;
    if (p->padded_block)
        side->waste = (double)p->page_bytes / (double)(p->padded_block * p->padded_bytes) - 1;
}
