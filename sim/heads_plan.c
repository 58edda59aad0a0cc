/* Heads, the plan: which channels are outliers and how, token gains, positions and query classes.
 *
 * Choices and signs come from Philox streams of their own, keyed by (seed, layer, head), whatever
 * generator makes the numbers: planting never shifts the numbers themselves. */
#include <math.h>

#include "kernels/memory.h"
#include "sim/heads_state.h"

static const double pi = 3.14159265358979323846;

/* ---- gains ---- */

double kv_heads_key_gain(const kv_heads_config *config, int64_t token)
{
    double gain = 1;
    if (config->drift == KV_DRIFT_LINEAR) gain = 1 + config->drift_rate * (double)token;
    if (config->drift == KV_DRIFT_LOG) gain = 1 + config->drift_rate * log1p((double)token);
    return token < config->sink_count ? gain * config->sink_key_gain : gain;
}

double kv_heads_value_gain(const kv_heads_config *config, int64_t token)
{
    return token < config->sink_count ? config->sink_value_gain : 1;
}

/* ---- outlier channels ---- */

/* `count` of `width` channels, each set equally likely: channel [count] (partial Fisher-Yates). */
static kv_status choose_any(int64_t *channel, int64_t count, int64_t width, const double *u,
                            kv_error *err)
{
    int64_t *order = NULL;
    kv_status const status = kv_allocate((void **)&order, (size_t)width, sizeof *order, err);
    if (status != KV_OK) return status;
    for (int64_t c = 0; c < width; c++) order[c] = c;
    for (int64_t i = 0; i < count; i++) {
        int64_t const pick = i + (int64_t)(u[i] * (double)(width - i));
        channel[i] = order[pick];
        order[pick] = order[i];
    }
    kv_free(order);
    return KV_OK;
}

/* One coordinate, chosen at random, of each of the first `count` pairs whose wavelength exceeds the
 * training length: pairs that never finish a turn in training, where real caches have their
 * outliers (Jonasson 2025, arXiv 2503.01832). */
static kv_status choose_low(int64_t *channel, int64_t count, const kv_heads *heads, const double *u,
                            const char *key, kv_error *err)
{
    const kv_rope_settings *const rope = &heads->config.rope;
    int64_t const length = rope->training_length ? rope->training_length : heads->layer.tokens;
    int64_t const pairs = heads->layer.rotary_dim / 2;
    int64_t found = 0;
    for (int64_t i = 0; i < pairs && found < count; i++) {
        if (2 * pi / kv_rope_frequency(heads->rope, i) <= (double)length) continue;
        int64_t const second = u[found] < 0.5 ? 0 : 1;
        channel[found++] = heads->layer.is_rope_interleaved ? 2 * i + second : i + second * pairs;
    }
    if (found < count)
        return KV_FAIL(err, KV_EREQUEST,
                       "heads.%s.count: %lld: placement rope-low finds only %lld RoPE pairs "
                       "with a wavelength above %lld tokens",
                       key, (long long)count, (long long)found, (long long)length);
    return KV_OK;
}

/* Plants one head's outliers into mean [D] and spread [D]. */
static kv_status plant(double *mean, double *spread, const kv_outliers *outliers,
                       const kv_heads *heads, int64_t head, kv_choice purpose, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t const width = heads->layer.head_dim;
    const char *const key = purpose == KV_CHOICE_KEY ? "outliers" : "value_outliers";
    bool const is_listed = outliers->channels.count > 0;
    int64_t const count = is_listed ? outliers->channels.count : outliers->count;
    double *u = NULL;
    int64_t *channel = NULL;
    if (count < 0 || count > width)
        KV_TRY(KV_FAIL(err, KV_EREQUEST, "heads.%s.count: %lld: must be 0 to head_dim = %lld", key,
                       (long long)count, (long long)width));
    KV_TRY(kv_allocate((void **)&u, 2 * (size_t)width, sizeof *u, err));
    KV_TRY(kv_allocate((void **)&channel, (size_t)count, sizeof *channel, err));
    kv_choice_uniforms(u, 2 * width, heads->seed, heads->index, head, purpose);
    for (int64_t i = 0; is_listed && i < count; i++) channel[i] = outliers->channels.items[i];
    if (!is_listed && count > 0)
        KV_TRY(outliers->placement == KV_PLACEMENT_ROPE_LOW
                   ? choose_low(channel, count, heads, u, key, err)
                   : choose_any(channel, count, width, u, err));
    for (int64_t i = 0; i < count; i++) {
        if (channel[i] < 0 || channel[i] >= width)
            KV_TRY(KV_FAIL(err, KV_EREQUEST,
                           "heads.%s.channels: %lld: must be 0 to head_dim - 1 = %lld", key,
                           (long long)channel[i], (long long)width - 1));
        if (outliers->scale != 0) spread[channel[i]] = outliers->scale;
        mean[channel[i]] += u[width + i] < 0.5 ? -outliers->bias : outliers->bias;
    }
done:
    kv_free(u);
    kv_free(channel);
    return status;
}

kv_status kv_heads_plan_channels(kv_heads *heads, const kv_heads_config *config, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t const width = heads->layer.head_dim;
    size_t const count = (size_t)(heads->layer.kv_heads * width);
    KV_TRY(kv_allocate((void **)&heads->key_mean, count, sizeof(double), err));
    KV_TRY(kv_allocate((void **)&heads->key_spread, count, sizeof(double), err));
    KV_TRY(kv_allocate((void **)&heads->value_mean, count, sizeof(double), err));
    KV_TRY(kv_allocate((void **)&heads->value_spread, count, sizeof(double), err));
    for (size_t i = 0; i < count; i++) heads->key_spread[i] = heads->value_spread[i] = 1;
    for (int64_t g = 0; g < heads->layer.kv_heads; g++) {
        double *const value_mean = heads->value_mean + g * width;
        if (config->value_mean != 0)
            kv_choice_normals(value_mean, width, heads->seed, heads->index, g,
                              KV_CHOICE_VALUE_MEAN);
        for (int64_t c = 0; c < width; c++) value_mean[c] *= config->value_mean;
        KV_TRY(plant(heads->key_mean + g * width, heads->key_spread + g * width, &config->outliers,
                     heads, g, KV_CHOICE_KEY, err));
        KV_TRY(plant(value_mean, heads->value_spread + g * width, &config->value_outliers, heads, g,
                     KV_CHOICE_VALUE, err));
    }
done:
    return status;
}

/* ---- queries ---- */

static kv_status plan_positions(kv_heads *heads, const kv_heads_config *config, kv_error *err)
{
    int64_t const n = heads->layer.queries, tokens = heads->layer.tokens;
    const kv_int_list *const given = &config->query_position;
    if (given->count > 0 && given->count != n)
        return KV_FAIL(err, KV_EREQUEST, "heads.query.position: %lld positions for queries = %lld",
                       (long long)given->count, (long long)n);
    if (given->count == 0 && n > tokens)
        return KV_FAIL(err, KV_EREQUEST,
                       "heads.queries: %lld: more than tokens = %lld; give heads.query.position",
                       (long long)n, (long long)tokens);
    kv_status const status =
        kv_allocate((void **)&heads->query_position, (size_t)n, sizeof(int64_t), err);
    if (status != KV_OK) return status;
    heads->layer.query_position = heads->query_position;
    for (int64_t i = 0; i < n; i++) {
        int64_t const position = given->count > 0 ? given->items[i] : tokens - n + i;
        if (position < 0 || position >= tokens)
            return KV_FAIL(err, KV_EREQUEST,
                           "heads.query.position: %lld: must be 0 to tokens - 1 = %lld",
                           (long long)position, (long long)tokens - 1);
        heads->query_position[i] = position;
    }
    return KV_OK;
}

/* Queries per class by the shares (largest remainder, ties to the earlier class). */
static kv_status count_classes(int64_t count[KV_CLASS_COUNT], const double share[KV_CLASS_COUNT],
                               int64_t n, kv_error *err)
{
    double sum = 0, remainder[KV_CLASS_COUNT];
    int64_t given = 0;
    for (int k = 0; k < KV_CLASS_COUNT; k++) {
        if (!(share[k] >= 0 && isfinite(share[k])))
            return KV_FAIL(err, KV_EREQUEST,
                           "heads.query.classes: a share of %g: must be 0 or "
                           "more",
                           share[k]);
        sum += share[k];
    }
    for (int k = 0; k < KV_CLASS_COUNT; k++) {
        double const exact = sum > 0 ? (double)n * share[k] / sum : k == 0 ? (double)n : 0;
        count[k] = (int64_t)floor(exact);
        remainder[k] = exact - floor(exact);
        given += count[k];
    }
    for (; given < n; given++) {
        int best = 0;
        for (int k = 1; k < KV_CLASS_COUNT; k++)
            if (remainder[k] > remainder[best]) best = k;
        count[best]++, remainder[best] = -1;
    }
    return KV_OK;
}

static kv_status check_targets(const kv_heads_config *config, const int64_t *count, kv_error *err)
{
    if (count[KV_CLASS_LOCAL] > 0 && !(config->local_mass > 0 && config->local_mass < 1))
        return KV_FAIL(err, KV_EREQUEST, "heads.local.mass: %g: must be between 0 and 1",
                       config->local_mass);
    if (count[KV_CLASS_LOCAL] > 0 && config->local_span < 1)
        return KV_FAIL(err, KV_EREQUEST, "heads.local.span: %lld: must be 1 or more",
                       (long long)config->local_span);
    if (count[KV_CLASS_NEEDLE] > 0 && !(config->needle_depth >= 0 && config->needle_depth <= 1))
        return KV_FAIL(err, KV_EREQUEST, "heads.needle.depth: %g: must be 0 to 1",
                       config->needle_depth);
    if (count[KV_CLASS_NEEDLE] > 0 && !isfinite(config->needle_margin))
        return KV_FAIL(err, KV_EREQUEST, "heads.needle.margin: %g: must be a number",
                       config->needle_margin);
    if (config->sink_count < 0 || config->sink_count > config->tokens)
        return KV_FAIL(err, KV_EREQUEST, "heads.sinks.count: %lld: must be 0 to tokens = %lld",
                       (long long)config->sink_count, (long long)config->tokens);
    if (!(config->sink_mass >= 0 && config->sink_mass < 1))
        return KV_FAIL(err, KV_EREQUEST,
                       "heads.sinks.mass: %g: must be 0 (no target) or between 0 and 1",
                       config->sink_mass);
    if (config->sink_mass > 0 && config->sink_count == 0)
        return KV_FAIL(err, KV_EREQUEST, "heads.sinks.mass: %g: needs heads.sinks.count",
                       config->sink_mass);
    return KV_OK;
}

/* The queries' classes in contiguous blocks, isotropic, local, needle; the same for all heads. */
static kv_status plan_classes(kv_heads *heads, const kv_heads_config *config, kv_error *err)
{
    kv_status status = KV_OK;
    kv_layer *const layer = &heads->layer;
    int64_t const n = layer->queries;
    int64_t count[KV_CLASS_COUNT];
    KV_TRY(count_classes(count, config->class_share, n, err));
    KV_TRY(check_targets(config, count, err));
    KV_TRY(
        kv_allocate3((void **)&heads->classes, (size_t)layer->query_heads, (size_t)n, 1, 1, err));
    if (count[KV_CLASS_NEEDLE] > 0)
        KV_TRY(kv_allocate3((void **)&heads->needle, (size_t)layer->query_heads, (size_t)n, 1,
                            sizeof(int64_t), err));
    layer->needle = heads->needle;
    for (int64_t row = 0; row < layer->query_heads * n; row++) {
        int64_t const i = row % n;
        uint8_t kind = KV_CLASS_ISOTROPIC;
        for (int64_t end = count[0]; i >= end; end += count[kind]) kind++;
        heads->classes[row] = kind;
        if (heads->needle) heads->needle[row] = -1;
        if (kind != KV_CLASS_NEEDLE) continue;
        kv_visible const seen = kv_layer_visible(layer, layer->query_position[i]);
        if (seen.end - seen.begin < 2)
            KV_TRY(KV_FAIL(err, KV_EREQUEST,
                           "heads.query.classes.needle: query %lld sees only one token",
                           (long long)i));
        double const last = (double)(seen.end - seen.begin - 1);
        heads->needle[row] = seen.begin + (int64_t)rint(config->needle_depth * last);
    }
done:
    return status;
}

kv_status kv_heads_plan_queries(kv_heads *heads, const kv_heads_config *config, kv_error *err)
{
    kv_status const status = plan_positions(heads, config, err);
    return status == KV_OK ? plan_classes(heads, config, err) : status;
}

bool kv_heads_is_shaped(const kv_heads *heads)
{
    bool is_shaped = heads->config.sink_mass > 0;
    for (int64_t i = 0; i < heads->layer.queries; i++)
        is_shaped = is_shaped || heads->classes[i] != KV_CLASS_ISOTROPIC;
    return is_shaped;
}
