/* Heads, random numbers: which numbers belong to which tensor and head, by generator.
 *
 * philox   element e of a head is a function of (seed, layer, tensor, head, calibration, e) alone
 * numpy    one stream default_rng(seed).standard_normal, layer after layer: keys [G][T][D],
 *          values [G][T][D], queries [H][Q][D]; the generator's state is kept at each head's
 *          start that was reached, so a head is made again from there
 * torch    one manual_seed(seed), then one torch.randn call per layer and tensor in the same
 *          order; a head is cut out of its whole tensor, which is made again for it
 *
 * Layers before this one are skipped by drawing their numbers; they are taken to have this layer's
 * shape. Calibration k of the two sequential generators is the stream of the largest configured
 * seed plus k. */
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "kernels/memory.h"
#include "kernels/random.h"
#include "sim/heads_state.h"

enum { BUFFER = 1024, MAX_CALIBRATION = KV_RECIPE_CALIBRATIONS, MAX_HEADS = 65536 };

/* One sequential stream: its states at the boundaries, the starts of heads (numpy) or of tensors
 * (torch) in stream order. states[0 ... reached] are known; one array is used, by generator. */
typedef struct {
    int64_t calibration, reached;
    kv_numpy_stream *numpy;
    kv_torch_stream *torch;
} track;

struct kv_streams {
    int64_t generator, distribution, layer, seed, largest_seed;
    int64_t heads[KV_STREAM_COUNT], size[KV_STREAM_COUNT]; /* of a layer; numbers of one head */
    pthread_mutex_t lock;                                  /* guards what follows */
    size_t n_tracks, capacity;
    track *tracks;
    kv_ziggurat ziggurat; /* of the numpy streams */
};

struct kv_cursor {
    kv_streams *streams;
    kv_stream_tensor tensor;
    int64_t head, calibration, at;
    kv_numpy_stream numpy;
    float *drawn; /* torch: the whole tensor [heads][size] */
};

/* ---- philox ---- */

_Static_assert((int)KV_CHOICE_VALUE_MEAN < (int)KV_HEADS_STREAMS, "heads keep to their streams");

/* The stream of a tensor (kv_stream_tensor) or of a choice (kv_choice) of one head. */
static uint64_t stream_of(int64_t layer, int64_t calibration, int64_t head, unsigned purpose)
{
    return kv_stream_id((uint64_t)layer, (uint64_t)calibration, (uint64_t)head, purpose);
}

/* Unit variance each, from u in [0, 1): inverse distribution functions. */
static double uniform(double u)
{
    return sqrt(3) * (2 * u - 1);
}

static double laplace(double u)
{
    double const x = u < 0.5 ? 2 * u : 2 * (1 - u); /* tail beyond |z|, doubled */
    double const magnitude = -log(fmax(x, 0x1p-25)) / sqrt(2);
    return u < 0.5 ? -magnitude : magnitude;
}

static void philox_next(double *z, const kv_cursor *cursor, int64_t count)
{
    const kv_streams *const s = cursor->streams;
    uint64_t const stream =
        stream_of(s->layer, cursor->calibration, cursor->head, (unsigned)cursor->tensor);
    float normals[BUFFER];
    double uniforms[BUFFER];
    for (int64_t done = 0; done < count; done += BUFFER) {
        int64_t const n = count - done < BUFFER ? count - done : BUFFER;
        uint64_t const first = (uint64_t)(cursor->at + done);
        if (s->distribution == KV_NORMAL)
            kv_philox_normals(normals, (uint64_t)s->seed, stream, first, (size_t)n);
        else
            kv_philox_uniforms(uniforms, (uint64_t)s->seed, stream, first, (size_t)n);
        for (int64_t i = 0; i < n; i++)
            z[done + i] = s->distribution == KV_NORMAL    ? (double)normals[i]
                          : s->distribution == KV_UNIFORM ? uniform(uniforms[i])
                                                          : laplace(uniforms[i]);
    }
}

void kv_choice_normals(double *z, int64_t count, int64_t seed, int64_t layer, int64_t head,
                       kv_choice purpose)
{
    for (int64_t i = 0; i < count; i++) {
        float one;
        kv_philox_normals(&one, (uint64_t)seed, stream_of(layer, 0, head, purpose), (uint64_t)i, 1);
        z[i] = (double)one;
    }
}

void kv_choice_uniforms(double *u, int64_t count, int64_t seed, int64_t layer, int64_t head,
                        kv_choice purpose)
{
    for (int64_t i = 0; i < count; i++) {
        kv_philox_uniforms(&u[i], (uint64_t)seed, stream_of(layer, 0, head, purpose), (uint64_t)i,
                           1);
    }
}

/* ---- the sequential generators ---- */

/* Boundary at which a head (numpy) or its tensor (torch) starts. */
static int64_t boundary_of(const kv_streams *s, kv_stream_tensor tensor, int64_t head)
{
    if (s->generator == KV_GENERATOR_TORCH) return tensor;
    for (int k = 0; k < (int)tensor; k++) head += s->heads[k];
    return head;
}

static int64_t boundaries(const kv_streams *s)
{
    return s->generator == KV_GENERATOR_TORCH
               ? KV_STREAM_COUNT
               : s->heads[KV_STREAM_KEY] + s->heads[KV_STREAM_VALUE] + s->heads[KV_STREAM_QUERY];
}

static kv_status torch_skip(kv_torch_stream *state, int64_t count, kv_error *err)
{
    float *drawn = NULL; /* one call of torch.randn must be made whole */
    kv_status const status = kv_allocate((void **)&drawn, (size_t)count, sizeof *drawn, err);
    if (status == KV_OK) kv_torch_normals(state, drawn, (size_t)count);
    kv_free(drawn);
    return status;
}

/* Starts a stream and skips the layers before this one. */
static kv_status start_track(track *t, const kv_streams *s, int64_t calibration, kv_error *err)
{
    kv_status status = KV_OK;
    size_t const n = (size_t)boundaries(s) + 1;
    uint64_t const seed = (uint64_t)(calibration == 0 ? s->seed : s->largest_seed + calibration);
    t->calibration = calibration, t->reached = 0;
    if (s->generator == KV_GENERATOR_TORCH) {
        KV_TRY(kv_allocate((void **)&t->torch, n, sizeof *t->torch, err));
        kv_torch_stream_seed(&t->torch[0], seed);
    } else {
        KV_TRY(kv_allocate((void **)&t->numpy, n, sizeof *t->numpy, err));
        kv_numpy_stream_seed(&t->numpy[0], &s->ziggurat, seed);
    }
    for (int64_t layer = 0; layer < s->layer; layer++)
        for (int k = 0; k < KV_STREAM_COUNT; k++) {
            int64_t const count = s->heads[k] * s->size[k];
            if (t->torch)
                KV_TRY(torch_skip(&t->torch[0], count, err));
            else
                kv_numpy_normals(&t->numpy[0], NULL, (size_t)count);
        }
done:
    return status;
}

/* Numbers between boundary b and the next. */
static int64_t step_size(const kv_streams *s, int64_t b)
{
    if (s->generator == KV_GENERATOR_TORCH) return s->heads[b] * s->size[b];
    int64_t const keys_and_values = s->heads[KV_STREAM_KEY] + s->heads[KV_STREAM_VALUE];
    return s->size[b < keys_and_values ? KV_STREAM_KEY : KV_STREAM_QUERY];
}

/* The track of a calibration, with boundary b reached; the lock is held. */
static kv_status reach(track **out, kv_streams *s, int64_t calibration, int64_t b, kv_error *err)
{
    kv_status status = KV_OK;
    track fresh = {0}, *t = NULL;
    for (size_t i = 0; i < s->n_tracks; i++)
        if (s->tracks[i].calibration == calibration) t = &s->tracks[i];
    if (!t) {
        KV_TRY(kv_grow((void **)&s->tracks, &s->capacity, s->n_tracks, s->n_tracks + 1,
                       sizeof *s->tracks, err));
        KV_TRY(start_track(&fresh, s, calibration, err));
        t = &s->tracks[s->n_tracks++];
        *t = fresh, fresh = (track){0};
    }
    for (; t->reached < b; t->reached++) {
        int64_t const from = t->reached;
        if (t->torch) {
            kv_torch_stream next = t->torch[from];
            KV_TRY(torch_skip(&next, step_size(s, from), err));
            t->torch[from + 1] = next;
        } else {
            t->numpy[from + 1] = t->numpy[from];
            kv_numpy_normals(&t->numpy[from + 1], NULL, (size_t)step_size(s, from));
        }
    }
    *out = t;
done:
    kv_free(fresh.numpy);
    kv_free(fresh.torch);
    return status;
}

/* Gives the cursor its start. */
static kv_status open_sequential(kv_cursor *cursor, kv_error *err)
{
    kv_status status = KV_OK;
    kv_streams *const s = cursor->streams;
    int64_t const count = s->heads[cursor->tensor] * s->size[cursor->tensor];
    int64_t const b = boundary_of(s, cursor->tensor, cursor->head);
    bool const is_torch = s->generator == KV_GENERATOR_TORCH;
    kv_torch_stream torch = {0};
    track *t = NULL;
    pthread_mutex_lock(&s->lock);
    status = reach(&t, s, cursor->calibration, b, err);
    if (status == KV_OK && is_torch) torch = t->torch[b];
    if (status == KV_OK && !is_torch) cursor->numpy = t->numpy[b];
    pthread_mutex_unlock(&s->lock);
    if (status != KV_OK || !is_torch) return status;
    KV_TRY(kv_allocate((void **)&cursor->drawn, (size_t)count, sizeof(float), err));
    kv_torch_normals(&torch, cursor->drawn, (size_t)count);
done:
    return status;
}

/* A head that was read to its end tells where the next one starts. */
static void keep_end(const kv_cursor *cursor)
{
    kv_streams *const s = cursor->streams;
    int64_t const b = boundary_of(s, cursor->tensor, cursor->head);
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->n_tracks; i++) {
        track *const t = &s->tracks[i];
        if (t->calibration == cursor->calibration && t->reached == b)
            t->numpy[b + 1] = cursor->numpy, t->reached = b + 1;
    }
    pthread_mutex_unlock(&s->lock);
}

/* ---- the functions of heads_state.h ---- */

kv_status kv_streams_create(kv_streams **out, const kv_heads_config *config, int64_t layer,
                            int64_t seed, kv_error *err)
{
    kv_status status = KV_OK;
    kv_streams *s = NULL;
    int64_t const query_heads = config->query_heads ? config->query_heads : config->kv_heads;
    if (config->distribution != KV_NORMAL && config->generator != KV_GENERATOR_PHILOX)
        KV_TRY(KV_FAIL(err, KV_EREQUEST,
                       "heads.distribution: only normal with this generator; uniform and laplace "
                       "need generator philox"));
    if (seed < 0)
        KV_TRY(KV_FAIL(err, KV_EREQUEST, "heads.seeds: %lld: must be 0 or more", (long long)seed));
    if (layer < 0 || layer > INT32_MAX || query_heads > MAX_HEADS || config->kv_heads > MAX_HEADS)
        KV_TRY(KV_FAIL(err, KV_EREQUEST, "heads: at most %d heads, and layers from 0 to %d",
                       MAX_HEADS, INT32_MAX));
    KV_TRY(kv_allocate((void **)&s, 1, sizeof *s, err));
    pthread_mutex_init(&s->lock, NULL);
    kv_ziggurat_fill(&s->ziggurat);
    s->generator = config->generator, s->distribution = config->distribution;
    s->layer = layer, s->seed = s->largest_seed = seed;
    for (int64_t i = 0; i < config->seeds.count; i++)
        if (config->seeds.items[i] > s->largest_seed) s->largest_seed = config->seeds.items[i];
    s->heads[KV_STREAM_KEY] = s->heads[KV_STREAM_VALUE] = config->kv_heads;
    s->heads[KV_STREAM_QUERY] = query_heads;
    s->size[KV_STREAM_KEY] = s->size[KV_STREAM_VALUE] = config->tokens * config->head_dim;
    s->size[KV_STREAM_QUERY] = config->queries * config->head_dim;
    *out = s, s = NULL;
done:
    kv_free(s);
    return status;
}

void kv_streams_free(kv_streams *streams)
{
    if (!streams) return;
    for (size_t i = 0; i < streams->n_tracks; i++) {
        kv_free(streams->tracks[i].numpy);
        kv_free(streams->tracks[i].torch);
    }
    kv_free(streams->tracks);
    pthread_mutex_destroy(&streams->lock);
    kv_free(streams);
}

kv_status kv_cursor_open(kv_cursor **out, kv_streams *streams, kv_stream_tensor tensor,
                         int64_t head, int64_t calibration, kv_error *err)
{
    kv_status status = KV_OK;
    kv_cursor *cursor = NULL;
    if (calibration < 0 || calibration > MAX_CALIBRATION)
        KV_TRY(KV_FAIL(err, KV_EREQUEST, "static=seed:%lld: at most %d other seeds",
                       (long long)calibration, MAX_CALIBRATION));
    KV_TRY(kv_allocate((void **)&cursor, 1, sizeof *cursor, err));
    cursor->streams = streams, cursor->tensor = tensor;
    cursor->head = head, cursor->calibration = calibration;
    if (streams->generator != KV_GENERATOR_PHILOX) KV_TRY(open_sequential(cursor, err));
    *out = cursor, cursor = NULL;
done:
    if (cursor) kv_free(cursor->drawn);
    kv_free(cursor);
    return status;
}

void kv_cursor_next(kv_cursor *cursor, double *z, int64_t count)
{
    const kv_streams *const s = cursor->streams;
    if (s->generator == KV_GENERATOR_NUMPY)
        kv_numpy_normals(&cursor->numpy, z, (size_t)count);
    else if (s->generator == KV_GENERATOR_PHILOX)
        philox_next(z, cursor, count);
    else
        for (int64_t i = 0; i < count; i++)
            z[i] = (double)cursor->drawn[cursor->head * s->size[cursor->tensor] + cursor->at + i];
    cursor->at += count;
}

void kv_cursor_close(kv_cursor *cursor)
{
    if (!cursor) return;
    const kv_streams *const s = cursor->streams;
    if (s->generator == KV_GENERATOR_NUMPY && cursor->at == s->size[cursor->tensor])
        keep_end(cursor);
    kv_free(cursor->drawn);
    kv_free(cursor);
}
