/* Small pieces that the engines' writers, readers and warnings share. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kernels/formats.h"
#include "kernels/shorthand.h"
#include "tuner/engine_state.h"

int32_t kv_engine_type_find(const kv_engine *engine, const char *words, size_t length)
{
    for (size_t t = 0; t < engine->n_types; t++)
        if (strlen(engine->types[t].words) == length &&
            memcmp(engine->types[t].words, words, length) == 0)
            return (int32_t)t;
    return -1;
}

int kv_engine_split(char *text, char **pieces, int room)
{
    int n = 0;
    for (char *at = text; *(at += strspn(at, " \t\r\n"));) {
        if (n == room) return -1;
        pieces[n++] = at;
        at += strcspn(at, " \t\r\n");
        if (*at) *at++ = '\0';
    }
    return n;
}

int64_t kv_engine_number(const kv_policy *policy, int64_t i)
{
    return policy && i < policy->n_layers ? policy->layers[i].layer : i;
}

int64_t kv_engine_window(const kv_policy *policy, int64_t number)
{
    const kv_policy_layer *const layer = policy ? kv_policy_find(policy, number) : NULL;
    return layer ? layer->window : -1;
}

int64_t kv_engine_head_dim(const kv_policy *policy, int64_t number)
{
    const kv_policy_layer *const layer = policy ? kv_policy_find(policy, number) : NULL;
    return layer ? layer->head_dim : 0;
}

kv_status kv_engine_warn(kv_engine_fit *fit, kv_error *err, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    kv_status const status = kv_text_add_list(&fit->warnings, err, format, arguments);
    va_end(arguments);
    return status == KV_OK ? kv_text_add(&fit->warnings, err, "\n") : status;
}

kv_status kv_engine_fill(int32_t *key, int32_t *value, int64_t n_layers, int32_t key_type,
                         int32_t value_type)
{
    for (int64_t l = 0; l < n_layers; l++) key[l] = key_type, value[l] = value_type;
    return KV_OK;
}

kv_status kv_engine_scale(float *out, const kv_policy *policy, const kv_engine_layer *layer,
                          bool is_key, kv_error *err)
{
    kv_status status = KV_OK;
    kv_quantizer q;
    const kv_policy_layer *const known = policy ? kv_policy_find(policy, layer->number) : NULL;
    const char *const tensor = is_key ? "key" : "value";
    kv_error ignored = {0};
    /* What is no shorthand was measured in the engine itself, with scales of its own. */
    if (kv_quantizer_parse(&q, is_key ? layer->key_scheme : layer->value_scheme, is_key,
                           &ignored) != KV_OK)
        q = (kv_quantizer){.format = KV_FORMAT_E4M3};
    if (q.range == KV_RANGE_UNIT) return *out = 1.0f, KV_OK;
    double const absmax = !known ? NAN : is_key ? known->key_absmax : known->value_absmax;
    if (!isfinite(absmax) || absmax < 0)
        KV_TRY(KV_FAIL(err, KV_EREQUEST,
                       "layer %" PRId64 ": the policy does not say the largest |%s| "
                       "(%s_absmax), so that no static scale is known",
                       layer->number, tensor, tensor));
    /* An all-zero tensor has no scale; 1 leaves it zero. */
    float const scale = (float)absmax / KV_E4M3_MAXIMUM;
    float const levels = q.format == KV_FORMAT_E2M1 ? KV_E2M1_MAXIMUM : 1.0f;
    *out = scale > 0 ? scale / levels : 1.0f;
done:
    return status;
}
