/* The heads that are on the device: see wave.h. */
#include "kernels/cuda/wave.h"

#include "kernels/memory.h"
#include "kernels/random.h"

/* ---- RoPE ---- */

static kv_status upload_rope(kv_cuda_wave *w, const kv_rope *rope, int64_t tokens, kv_error *err)
{
    kv_status status = KV_OK;
    kv_rope_tables const tables = kv_rope_tables_of(rope);
    int64_t const offsets = KV_ROPE_OFFSETS * tables.pairs;
    int64_t const blocks = (tokens + KV_ROPE_OFFSETS - 1) / KV_ROPE_OFFSETS;
    double *cosine = NULL, *sine = NULL;
    void *on_device[4];
    if (tables.pairs == 0) return KV_OK;
    KV_TRY(kv_allocate3((void **)&cosine, (size_t)blocks, (size_t)tables.pairs, 1, sizeof *cosine,
                        err));
    KV_TRY(
        kv_allocate3((void **)&sine, (size_t)blocks, (size_t)tables.pairs, 1, sizeof *sine, err));
    kv_rope_blocks(rope, blocks, cosine, sine);
    const double *const from[] = {tables.cosine, tables.sine, cosine, sine};
    for (int i = 0; i < 4; i++)
        KV_TRY(kv_cuda_take_copy(&on_device[i], &w->memory, from[i],
                                 i < 2 ? offsets : blocks * tables.pairs, sizeof(double), err));
    w->rope = (kv_cuda_rope){.pairs = tables.pairs,
                             .is_interleaved = tables.is_interleaved,
                             .magnitude = tables.magnitude,
                             .cosine = on_device[0],
                             .sine = on_device[1],
                             .block_cosine = on_device[2],
                             .block_sine = on_device[3]};
done:
    kv_free(cosine);
    kv_free(sine);
    return status;
}

/* ---- recipes ---- */

/* What the device needs to make the heads' tensors itself. */
static kv_status upload_recipe(kv_cuda_wave *w, const kv_recipe *recipe, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_layer *const l = w->layer;
    int64_t const channels = l->kv_heads * l->head_dim;
    double *gain = NULL;
    KV_TRY(kv_allocate((void **)&gain, (size_t)l->tokens, sizeof *gain, err));
    for (int i = 0; i < KV_RECIPE_TENSORS; i++) {
        for (int64_t t = 0; t < l->tokens; t++) gain[t] = recipe->gain(l->source.context, i, t);
        KV_TRY(kv_cuda_take_copy((void **)&w->gain[i], &w->memory, gain, l->tokens, sizeof *gain,
                                 err));
        KV_TRY(kv_cuda_take_copy((void **)&w->mean[i], &w->memory, recipe->mean[i], channels,
                                 sizeof *gain, err));
        KV_TRY(kv_cuda_take_copy((void **)&w->spread[i], &w->memory, recipe->spread[i], channels,
                                 sizeof *gain, err));
    }
done:
    kv_free(gain);
    return status;
}

static kv_status generate(float *x, kv_cuda_wave *w, kv_tensor tensor, int64_t calibration,
                          kv_error *err)
{
    const kv_layer *const l = w->layer;
    const kv_recipe *const recipe = l->source.recipe;
    int const of = tensor == KV_VALUE ? KV_RECIPE_VALUE : KV_RECIPE_KEY;
    int64_t const channel = w->first * l->head_dim;
    kv_cuda_generate const a = {.x = x,
                                .heads = w->heads,
                                .tokens = l->tokens,
                                .head_dim = l->head_dim,
                                .seed = recipe->seed,
                                .stream = kv_stream_id(recipe->layer, (uint64_t)calibration,
                                                       (uint64_t)w->first, (uint64_t)of),
                                .stream_step = kv_stream_id(0, 0, 1, 0),
                                .gain = w->gain[of],
                                .mean = w->mean[of] + channel,
                                .spread = w->spread[of] + channel,
                                .is_uniform = recipe->is_uniform};
    kv_cuda_rotate const turn = {.y = x,
                                 .x = x,
                                 .heads = w->heads,
                                 .tokens = l->tokens,
                                 .head_dim = l->head_dim,
                                 .rope = w->rope};
    kv_status const status = w->cuda->generate(&a, err);
    return status == KV_OK && tensor == KV_KEY && w->rope.pairs > 0 ? w->cuda->rotate(&turn, err)
                                                                    : status;
}

/* ---- life ---- */

kv_status kv_cuda_wave_create(kv_cuda_wave *w, const kv_cuda_module *cuda, const kv_layer *layer,
                              int64_t heads, bool wants_pre_rope, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t const size = layer->tokens * layer->head_dim;
    *w = (kv_cuda_wave){.cuda = cuda, .layer = layer, .memory = {.cuda = cuda}};
    KV_TRY(kv_cuda_take_zeros((void **)&w->flags, &w->memory, 1, sizeof *w->flags, err));
    if (layer->source.rope) KV_TRY(upload_rope(w, layer->source.rope, layer->tokens, err));
    if (layer->source.recipe) KV_TRY(upload_recipe(w, layer->source.recipe, err));
    KV_TRY(kv_cuda_take((void **)&w->key, &w->memory, heads * size, sizeof *w->key, err));
    if (wants_pre_rope)
        KV_TRY(kv_cuda_take((void **)&w->key_pre_rope, &w->memory, heads * size,
                            sizeof *w->key_pre_rope, err));
    KV_TRY(kv_cuda_take((void **)&w->value, &w->memory, heads * size, sizeof *w->value, err));
done:
    return status;
}

void kv_cuda_wave_free(kv_cuda_wave *w)
{
    if (w->memory.cuda) kv_cuda_give_back(&w->memory, 0);
    kv_free(w->host);
    *w = (kv_cuda_wave){0};
}

/* ---- tensors ---- */

/* Head by head through the host. */
static kv_status load(float *x, kv_cuda_wave *w, kv_tensor tensor, int64_t calibration,
                      kv_error *err)
{
    kv_status status = KV_OK;
    const kv_source *const source = &w->layer->source;
    int64_t const size = w->layer->tokens * w->layer->head_dim;
    if (!w->host)
        KV_TRY(kv_allocate3_unset((void **)&w->host, (size_t)size, 1, 1, sizeof *w->host, err));
    for (int64_t h = 0; h < w->heads; h++) {
        KV_TRY(source->load(source->context, tensor, w->first + h, calibration, w->host, err));
        KV_TRY(w->cuda->upload(x + h * size, w->host, size * (int64_t)sizeof *x, err));
    }
done:
    return status;
}

kv_status kv_cuda_wave_tensor(float *x, kv_cuda_wave *w, kv_tensor tensor, int64_t calibration,
                              kv_error *err)
{
    bool const is_made = w->layer->source.recipe && calibration <= KV_RECIPE_CALIBRATIONS;
    return is_made ? generate(x, w, tensor, calibration, err)
                   : load(x, w, tensor, calibration, err);
}

kv_status kv_cuda_wave_load(kv_cuda_wave *w, int64_t first, int64_t heads, kv_error *err)
{
    kv_status status = KV_OK;
    w->first = first, w->heads = heads;
    KV_TRY(kv_cuda_wave_tensor(w->key, w, KV_KEY, 0, err));
    if (w->key_pre_rope) KV_TRY(kv_cuda_wave_tensor(w->key_pre_rope, w, KV_KEY_PRE_ROPE, 0, err));
    KV_TRY(kv_cuda_wave_tensor(w->value, w, KV_VALUE, 0, err));
done:
    return status;
}

kv_status kv_cuda_wave_flags(uint32_t *flags, kv_cuda_wave *w, kv_error *err)
{
    return w->cuda->download(flags, w->flags, sizeof *flags, err);
}
