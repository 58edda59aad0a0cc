/* hadamard=n: every block of n consecutive channels times the orthonormal Sylvester-Hadamard matrix
 * H[i][j] = (-1)^popcount(i & j) / sqrt(n), by a float butterfly with strides 1, 2, 4 ... n / 2 and
 * one multiplication by float(1 / sqrt(n)) at the end. H is its own inverse, so undo is the same.
 * With signs, channel c is first multiplied by +1 or -1 (a randomized Hadamard transform), and last
 * when undone. (Ashkboos et al. 2024, QuaRot, section 4.) */
#include <inttypes.h>
#include <math.h>

#include "kernels/memory.h"
#include "kernels/quantize_fit.h"

int64_t kv_hadamard_size(const kv_transform_setting *s, const kv_tensor_shape *shape)
{
    return s->value != 0 ? (int64_t)s->value : shape->head_dim;
}

static kv_status check(const kv_transform_setting *s, const kv_tensor_shape *shape, kv_error *err)
{
    int64_t const n = kv_hadamard_size(s, shape);
    if (n < 2 || (n & (n - 1)) != 0 || shape->head_dim % n != 0)
        return KV_FAIL(err, KV_EREQUEST,
                       "hadamard: size %" PRId64 " is not a power of two that divides head_dim "
                       "%" PRId64,
                       n, shape->head_dim);
    return KV_OK;
}

/* Sign of channel c: the top bit of splitmix64's output c + 1 from `seed` (Steele et al. 2014). */
static float sign_of(uint64_t seed, int64_t c)
{
    uint64_t z = seed + ((uint64_t)c + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) >> 63 ? -1.0f : 1.0f;
}

static kv_status create(kv_fit *fit, kv_error *err)
{
    if (!fit->q.transforms[KV_TRANSFORM_HADAMARD].has_signs) return KV_OK;
    float *signs = NULL;
    int64_t const d = fit->shape.head_dim;
    kv_status const status = kv_allocate((void **)&signs, (size_t)d, sizeof *signs, err);
    if (status != KV_OK) return status;
    for (int64_t c = 0; c < d; c++) signs[c] = sign_of(fit->shape.seed, c);
    fit->transforms[KV_TRANSFORM_HADAMARD].channel = signs;
    return KV_OK;
}

static void rotate(const kv_fit *fit, int64_t count, float *z, float *swap)
{
    int64_t const n = kv_hadamard_size(&fit->q.transforms[KV_TRANSFORM_HADAMARD], &fit->shape);
    fit->rows->hadamard(z, swap, count, fit->shape.head_dim, n, (float)(1.0 / sqrt((double)n)));
}

static void apply(const kv_fit *fit, int64_t head, int64_t count, float *z, float *swap)
{
    (void)head;
    const float *const signs = fit->transforms[KV_TRANSFORM_HADAMARD].channel;
    if (signs) fit->rows->multiply(z, signs, count, fit->shape.head_dim);
    rotate(fit, count, z, swap);
}

static void undo(const kv_fit *fit, int64_t head, int64_t count, float *z, float *swap)
{
    (void)head;
    const float *const signs = fit->transforms[KV_TRANSFORM_HADAMARD].channel;
    rotate(fit, count, z, swap);
    if (signs) fit->rows->multiply(z, signs, count, fit->shape.head_dim);
}

const kv_transform kv_transform_hadamard = {
    .check = check, .create = create, .apply = apply, .undo = undo};
