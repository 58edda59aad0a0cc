/* Heads, shaped queries: what each query is pulled to (kernels/pull.h says how).
 *
 *   sinks   softmax mass on the visible sink tokens = sink_mass, all classes; rows that see no sink
 *           or nothing else stay as they are
 *   local   mass on the last local_span visible tokens = local_mass; rows that see no more stay
 *   needle  the needle's logit minus the largest other logit = needle_margin
 *
 * Sinks come first, then the class: where the two conflict the class keeps its target and the
 * sinks' mass moves. Reached to about 1e-6, the rounding of the query to float. */
#include <math.h>

#include "kernels/memory.h"
#include "sim/heads_state.h"

enum { OF_SINKS, OF_CLASS };

static double odds_of(double mass)
{
    return log(mass / (1 - mass));
}

/* What query i of class `kind`, whose needle is token `needle`, is pulled to. */
static void list_row(kv_pull pulls[KV_PULLS], const kv_heads *heads, int64_t i, uint8_t kind,
                     int64_t needle)
{
    const kv_heads_config *const config = &heads->config;
    kv_visible const seen = kv_layer_visible(&heads->layer, heads->layer.query_position[i]);
    int64_t const sinks = config->sink_count < seen.end ? config->sink_count : seen.end;
    int64_t const recent = seen.end - config->local_span;
    pulls[OF_SINKS] = pulls[OF_CLASS] = (kv_pull){.seen_begin = seen.begin, .seen_end = seen.end};
    if (config->sink_mass > 0 && sinks > seen.begin && sinks < seen.end) {
        pulls[OF_SINKS].begin = seen.begin, pulls[OF_SINKS].end = sinks;
        pulls[OF_SINKS].target = odds_of(config->sink_mass);
    }
    if (kind == KV_CLASS_LOCAL && recent > seen.begin) {
        pulls[OF_CLASS].begin = recent, pulls[OF_CLASS].end = seen.end;
        pulls[OF_CLASS].target = odds_of(config->local_mass);
    }
    if (kind == KV_CLASS_NEEDLE) {
        pulls[OF_CLASS].begin = needle, pulls[OF_CLASS].end = needle + 1;
        pulls[OF_CLASS].target = config->needle_margin, pulls[OF_CLASS].is_margin = 1;
    }
}

void kv_heads_list_pulls(const void *context, int64_t kv_head, kv_pull (*pulls)[KV_PULLS])
{
    const kv_heads *const heads = context;
    int64_t const n = heads->layer.queries;
    int64_t const rows = heads->layer.query_heads / heads->layer.kv_heads * n;
    for (int64_t row = 0; row < rows; row++) {
        int64_t const at = kv_head * rows + row;
        list_row(pulls[row], heads, row % n, heads->classes[at],
                 heads->needle ? heads->needle[at] : -1);
    }
}

static kv_status out_of_reach(const kv_heads *heads, int64_t kv_head, int64_t row, int i,
                              const kv_pull *pull, const kv_pull_result *result, kv_error *err)
{
    const kv_heads_config *const config = &heads->config;
    double const closest = pull->target + result->away;
    bool const is_margin = pull->is_margin;
    return KV_FAIL(err, KV_EREQUEST,
                   "heads: layer %lld, kv head %lld, query row %lld: %s %g cannot be reached, only "
                   "%.3g; keys of the target tokens are too close to the others%s",
                   (long long)heads->index, (long long)kv_head, (long long)row,
                   i == OF_SINKS ? "sink mass"
                   : is_margin   ? "needle margin"
                                 : "local mass",
                   i == OF_SINKS ? config->sink_mass
                   : is_margin   ? config->needle_margin
                                 : config->local_mass,
                   is_margin ? closest : 1 / (1 + exp(-closest)),
                   is_margin ? ""
                             : " (a larger key gain, or an outlier bias on slow RoPE pairs, sets "
                               "them apart)");
}

kv_status kv_heads_shape_queries(kv_heads *heads, int64_t kv_head, float *query, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_layer *const l = &heads->layer;
    int64_t const rows = l->query_heads / l->kv_heads * l->queries;
    float *key = NULL;
    kv_pull(*pulls)[KV_PULLS] = NULL;
    kv_pull_result(*result)[KV_PULLS] = NULL;
    KV_TRY(
        kv_allocate3((void **)&key, (size_t)l->tokens, (size_t)l->head_dim, 1, sizeof *key, err));
    KV_TRY(kv_allocate((void **)&pulls, (size_t)rows, sizeof *pulls, err));
    KV_TRY(kv_allocate((void **)&result, (size_t)rows, sizeof *result, err));
    KV_TRY(l->source.load(l->source.context, KV_KEY, kv_head, 0, key, err));
    kv_heads_list_pulls(heads, kv_head, pulls);
    KV_TRY(kv_pull_rows(query, result, key, (const kv_pull(*)[KV_PULLS])pulls, rows, l->tokens,
                        l->head_dim, l->softmax_scale, err));
    for (int64_t row = 0; row < rows; row++)
        for (int i = 0; i < KV_PULLS; i++)
            if (!result[row][i].is_reached)
                KV_TRY(out_of_reach(heads, kv_head, row, i, &pulls[row][i], &result[row][i], err));
done:
    kv_free(key);
    kv_free(pulls);
    kv_free(result);
    return status;
}
