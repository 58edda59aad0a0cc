/* The module libkvant_cuda.so as the library sees it: a table of calls, one per kernel.
 *
 * The library is C17 and knows no CUDA: it plans (fit.c, evaluate.c, attend.c), and the module, one
 * .cu file per kernel, does the work. The module is opened with dlopen and linked with
 * cudart_static, so that a machine without any CUDA library runs the same program on the CPU.
 *
 * Rules of every call:
 *  - it returns kv_status; a failure names the CUDA call or the kernel. Launches are asynchronous:
 *    what a kernel breaks while it runs is reported by the next download or finish.
 *  - pointers of arguments are device memory unless said; sizes count elements unless named bytes.
 *  - nothing to do (an extent of 0) is no launch.
 * Arithmetic is that of the headers kernels/, with --fmad=false; sums of floats have a fixed order,
 * so that the bits depend on nothing but the arguments. Tensors are [heads][tokens][head_dim]. */
#ifndef KVANT_KERNELS_CUDA_DEVICE_H
#define KVANT_KERNELS_CUDA_DEVICE_H

#include "kernels/cuda/scheme.h"
#include "kernels/error.h"
#include "kernels/pull.h"

KV_EXTERN_C_BEGIN

/* Changes whenever this header does, or what of scheme.h, scale.h and pull.h kernels read. */
enum { KV_CUDA_VERSION = 4 };

typedef struct {
    char name[256];
    int32_t major, minor; /* compute capability */
    int32_t multiprocessors;
    int64_t shared_bytes; /* that one block may ask for */
    int64_t total_bytes;
    double clock_hz; /* of the multiprocessors; 0 where not known */
} kv_cuda_about;

/* A kernel met what must not be: bits of *flags. The CPU's own rules then say what and where. */
enum {
    KV_CUDA_NOT_FINITE = 1, /* NaN or infinity in the tensor, or after the transforms */
    KV_CUDA_UNFIT = 2,      /* a number that its 16-bit or block storage cannot hold */
    KV_CUDA_OVERFLOW = 4    /* a range or a dequantized value beyond float */
};

/* ---- generate.cu, rotate.cu ---- */

/* x[head][t][c] = float(gain[t] * (mean[head][c] + spread[head][c] * z)) in double; z is element
 * t * D + c of Philox stream `stream + head * stream_step`: a normal, or with is_uniform
 * sqrt(3) * (2 word / 2^32 - 1). Words come from curand_kernel.h. */
typedef struct {
    float *x;
    int64_t heads, tokens, head_dim;
    uint64_t seed, stream, stream_step;
    const double *gain, *mean, *spread;
    int32_t is_uniform;
} kv_cuda_generate;

/* Tables of kernels/rope.c: cosine and sine [64][pairs] of the offset in a block of 64 tokens, and
 * [blocks][pairs] of a block's first token, block 0 at token 0. */
typedef struct {
    int64_t pairs; /* 0: no rotation */
    int32_t is_interleaved;
    double magnitude;
    const double *cosine, *sine, *block_cosine, *block_sine;
} kv_cuda_rope;

/* y = x with RoPE applied at position[t] of each token, or at 0, 1, ... where it is NULL; y may be
 * x. Tables hold every position's block. */
typedef struct {
    float *y;
    const float *x;
    const int64_t *position;
    int64_t heads, tokens, head_dim;
    kv_cuda_rope rope;
} kv_cuda_rotate;

/* ---- queries: covariance.cu, pull.cu ---- */

/* covariance[head][i][j], j <= i, of key [heads][T][D]: sum of (key_i - mean_i) * (key_j - mean_j)
 * in double and in token order; mean = sum / T, with sum [heads][D]. */
typedef struct {
    double *covariance;
    const float *key;
    const double *sum;
    int64_t heads, tokens, head_dim;
} kv_cuda_covariance;

/* Pulls rows [first_row, first_row + n) of each head as pull.h says: query [heads][rows][D] in
 * place, result and pulls [heads][rows][KV_PULLS], factor [heads][D][D] of the covariance, scratch
 * [heads][n][kv_pull_scratch(T, D)]. */
typedef struct {
    float *query;
    kv_pull_result *result;
    double *scratch;
    const kv_pull *pulls;
    const float *key;
    const double *sum, *factor;
    int64_t heads, rows, first_row, n, tokens, head_dim;
    double softmax_scale;
} kv_cuda_pull;

/* ---- fits: prepare.cu, channels.cu, extremes.cu, select.cu, search.cu, scales.cu ---- */

/* z[head][u][c]: the quantized tokens, `transforms` first transforms of the scheme applied, kept
 * outliers NaN where `marks`. Sets flags: NOT_FINITE where x (any quantized token, or with
 * `checks_kept` any other token too) or the transformed number is not finite, UNFIT where a kept
 * token or (with marks) outlier does not fit into f16. Adds kept elements to kept[head]. z
 * [heads][span][D]; NULL only checks; kept NULL does not count. */
typedef struct {
    float *z;
    const float *x;
    int64_t heads, tokens, head_dim;
    kv_cuda_scheme scheme;
    int32_t transforms, marks, checks_kept;
    uint32_t *flags;
    unsigned long long *kept;
} kv_cuda_prepare;

/* sum[head][c] = sum over u of z[head][u][c] in double, in token order. z is [heads][tokens][D]
 * with head_stride floats per head. */
typedef struct {
    double *sum;
    const float *z;
    int64_t heads, tokens, head_dim, head_stride;
} kv_cuda_channels;

/* Tiles of a tensor that may come in several draws (calibration): z of (head, draw) begins at z +
 * head * head_stride + draw * draw_stride and has `tokens` rows of D; NaN elements do not count.
 * Tile t of head h (of heads, or of 1 where tiles span heads and draws) has number h * rows *
 * columns + t. */
typedef struct {
    const float *z;
    int64_t heads, draws, tokens, head_dim, head_stride, draw_stride;
    int64_t tile_tokens, tile_channels, rows, columns;
    int32_t spans_heads;
} kv_cuda_tiles;

/* low and high of every tile: 0 and max |x|, or min and max (INFINITY and -INFINITY of none). */
typedef struct {
    float *low, *high;
    kv_cuda_tiles tiles;
    int32_t is_asymmetric;
} kv_cuda_extremes;

static inline int64_t kv_cuda_tile_count(const kv_cuda_tiles *t)
{
    return (t->spans_heads ? 1 : t->heads) * t->rows * t->columns;
}

/* Most elements of a tile. */
static inline int64_t kv_cuda_tile_elements(const kv_cuda_tiles *t)
{
    const int64_t tokens = t->tile_tokens < t->tokens ? t->tile_tokens : t->tokens;
    return (t->spans_heads ? t->heads : 1) * t->draws * tokens * t->tile_channels;
}

/* Of every tile the order statistics beside percentiles p[n] of x or |x| (order.h), [tiles][n][2],
 * and how many elements it has. `parts` blocks share a tile; more than one meet in work [tiles],
 * zeros. */
enum { KV_CUDA_PERCENTILES = 2, KV_CUDA_TARGETS = 2 * KV_CUDA_PERCENTILES, KV_CUDA_DIGITS = 256 };
typedef struct {
    uint32_t rank;   /* among the elements that share `prefix` */
    uint32_t prefix; /* the leading digits found so far */
} kv_cuda_target;
typedef struct {
    uint32_t counts[KV_CUDA_TARGETS][KV_CUDA_DIGITS];
    kv_cuda_target found[KV_CUDA_TARGETS];
} kv_cuda_select_work;
typedef struct {
    float *statistics;
    int64_t *elements;
    kv_cuda_select_work *work;
    kv_cuda_tiles tiles;
    int32_t is_absolute, n, parts;
    double p[KV_CUDA_PERCENTILES];
} kv_cuda_select;

/* From those statistics: the range low and high of each tile as ranges/percentile.c has it (a tile
 * without elements keeps the range 0, or INFINITY and -INFINITY), or with is_outliers the
 * thresholds as floats that decide as the doubles do (kv_float_below, kv_float_above). n = 1: low
 * is 0. */
typedef struct {
    float *low, *high;
    const float *statistics;
    const int64_t *elements;
    int64_t tiles;
    int32_t n, is_outliers;
    double p[KV_CUDA_PERCENTILES];
} kv_cuda_percentiles;

/* range=mse: multiplies low and high of every tile by the clip factor with the least error; rule
 * and order of sums are ranges/mse.c's and clip.h's. global may be NULL (not e4m3 storage). */
typedef struct {
    float *low, *high;
    double *error; /* [tiles] of the best factor, or NULL */
    kv_cuda_tiles tiles;
    int32_t format;
    kv_scale_rule rule;
    const float *global;
} kv_cuda_search;

/* *global = largest kv_scale_plain of all tiles / 448 (e4m3 storage); flags OVERFLOW where one is
 * not finite. *global is set to 0 first. Other storages only check. */
typedef struct {
    float *global;
    const float *low, *high;
    int64_t tiles;
    kv_scale_rule rule;
    uint32_t *flags;
} kv_cuda_global;

/* scale and minimum of every tile (kv_scale_store); flags OVERFLOW where limit * scale + minimum is
 * not finite. */
typedef struct {
    float *scale, *minimum;
    const float *low, *high, *global;
    int64_t tiles;
    kv_scale_rule rule;
    uint32_t *flags;
} kv_cuda_scales;

/* ---- decode.cu, codes.cu ---- */

/* Tokens of a tile, by which errors are summed. */
enum { KV_CUDA_TOKENS = 32 };

/* What n schemes make of a tensor, as attention uses it: values [n][heads][T][D], or NULL. Schemes
 * in pre-RoPE position decode x_pre_rope (NULL where none is) and are rotated; the others decode x.
 * error[scheme][head][tile] = sum of (value - x)^2 in double over a tile of KV_CUDA_TOKENS tokens,
 * or NULL. flags UNFIT where a value is not finite. */
typedef struct {
    float *values;
    double *error;
    const float *x, *x_pre_rope;
    const kv_cuda_scheme *schemes;
    int64_t n, heads, tokens, head_dim;
    kv_cuda_rope rope;
    uint32_t *flags;
} kv_cuda_decode;

/* Codes of one scheme: codes [heads][T][D] (KV_CODE_KEPT where kept at 16 bit), or NULL; and in
 * used [heads][D][words], words of 32 bits, bit `code` of every code seen in a channel, or NULL. x
 * is in the scheme's position. */
typedef struct {
    uint32_t *codes, *used;
    int64_t words;
    const float *x;
    int64_t heads, tokens, head_dim;
    kv_cuda_scheme scheme;
} kv_cuda_codes;

/* ---- attention: logits.cu, rows.cu, compare.cu, outputs.cu, finish.cu ---- */

/* Rows [first, first + n) under one scheme, which one block works on; n is at most KV_CUDA_ROWS.
 * scheme is a number in what decode made, or KV_CUDA_EXACT for the tensor itself. */
enum { KV_CUDA_ROWS = 64 };
typedef struct {
    int32_t scheme, n;
    int64_t first;
} kv_cuda_chunk;

/* logits[head][row][t - first_token] = softmax_scale * (query . key), each product summed over
 * channels in order with fmaf, for tokens [first_token, end_token); a row of logits has `stride`
 * columns. key [heads][T][D], decoded [schemes][heads][T][D], query [heads][queries][D]; row_query
 * [rows] says which. */
typedef struct {
    float *logits;
    const float *key, *decoded, *query;
    const int32_t *row_query;
    const kv_cuda_chunk *chunks;
    int64_t n_chunks, rows, queries;
    int64_t heads, tokens, head_dim, first_token, end_token, stride;
    float softmax_scale;
} kv_cuda_logits;

/* What is known of each row of logits. */
enum { KV_CUDA_TOPS = 3 }; /* kv_top_k: 1, 8, 64 */
typedef struct {
    float max;                    /* of visible logits */
    int32_t is_finite;            /* sum is: no visible logit NaN or +inf, nor all -inf */
    double sum;                   /* of kv_expf(l - max) */
    double needle_margin;         /* NaN without a visible needle; INFINITY where it is alone */
    uint64_t least[KV_CUDA_TOPS]; /* kv_top_entry of the k-th best, or of the last of fewer */
} kv_cuda_row;

/* row_seen [heads][rows][2]: visible tokens [begin, end) of each row (inside first_token ...);
 * row_needle [heads][rows] or NULL. least is set with want_top. */
typedef struct {
    kv_cuda_row *out; /* [heads][rows] */
    const float *logits;
    const int64_t *row_seen, *row_needle;
    int64_t heads, rows, first_token, stride;
    int32_t want_top;
} kv_cuda_rows;

/* Row i (first_row <= i) against its exact row row_exact[i], both visible over the same tokens. */
typedef struct {
    double logit_err_max, logit_err_square;
    double cross;     /* sum of exact weight * (l^ - l), weights exp(l - max) */
    double variation; /* sum |p - p^|; p = float(weight * float(1 / sum)) as on the CPU */
    int64_t common[KV_CUDA_TOPS]; /* tokens among the k best of both */
} kv_cuda_comparison;
typedef struct {
    kv_cuda_comparison *out; /* [heads][rows], from first_row on */
    const float *logits;
    const kv_cuda_row *row;
    const int64_t *row_seen;
    const int32_t *row_exact;
    int64_t heads, rows, first_row, first_token, stride;
    int32_t want_rows; /* variation and common */
} kv_cuda_compare;

/* partial[head][split][out][c] = sum over the split's tokens of weight * value, weight =
 * kv_expf(logit - max) of row out_row[out], 0 for tokens it does not see and, with zeroes_small,
 * below KV_LEAST_WEIGHT; summed with fmaf in token order within KV_CUDA_SUM tokens (counted from
 * token 0), those sums added in order. first_token is a multiple of KV_CUDA_SUM, and so is
 * split_tokens: split s begins at first_token + s * split_tokens. Chunks are of out rows. */
enum { KV_CUDA_SUM = 256 };
typedef struct {
    float *partial;
    const float *value, *decoded, *logits;
    const kv_cuda_row *row;
    const int64_t *row_seen;
    const int32_t *out_row;
    const kv_cuda_chunk *chunks;
    int64_t n_chunks, rows, outs;
    int64_t heads, tokens, head_dim, first_token, end_token, stride, splits, split_tokens;
    int32_t zeroes_small;
} kv_cuda_outputs;

/* Sums of splits in order, then, for every out row: attention [heads][outs][D] = float(product /
 * sum) or NULL; square[heads][outs] = |product / sum|^2, or its distance from the exact out row
 * out_exact[out] (-1: none) squared, in double, or NULL. */
typedef struct {
    float *attention;
    double *square;
    const float *partial;
    const kv_cuda_row *row;
    const int32_t *out_row, *out_exact;
    int64_t heads, rows, outs, splits, head_dim;
} kv_cuda_finish;

/* ---- squares.cu ---- */

/* sum[head] = sum of x^2 in double; absmax[head] = max |x| as bits (kv_float_bits), above those of
 * any finite number where one is not finite. n floats per head. */
typedef struct {
    double *sum;
    uint32_t *absmax;
    const float *x;
    int64_t heads, n;
} kv_cuda_squares;

/* X(name): a kernel's launch, kv_status (*name)(const kv_cuda_NAME *, kv_error *). */
#define KV_CUDA_KERNEL_TABLE(X)                                                                    \
    X(generate)                                                                                    \
    X(rotate)                                                                                      \
    X(covariance)                                                                                  \
    X(pull)                                                                                        \
    X(prepare)                                                                                     \
    X(channels)                                                                                    \
    X(extremes)                                                                                    \
    X(select)                                                                                      \
    X(percentiles)                                                                                 \
    X(search)                                                                                      \
    X(global)                                                                                      \
    X(scales)                                                                                      \
    X(decode)                                                                                      \
    X(codes)                                                                                       \
    X(logits)                                                                                      \
    X(rows)                                                                                        \
    X(compare)                                                                                     \
    X(outputs)                                                                                     \
    X(finish)                                                                                      \
    X(squares)

typedef struct {
    int32_t version; /* KV_CUDA_VERSION */
    /* How many devices; KV_EUNSUPPORTED with CUDA's reason where it cannot say. */
    kv_status (*count)(int32_t *devices, kv_error *err);
    /* Makes a device this thread's current one and describes it. */
    kv_status (*use)(kv_cuda_about *about, int32_t device, kv_error *err);
    kv_status (*free_bytes)(int64_t *bytes, kv_error *err);
    kv_status (*allocate)(void **out, int64_t bytes, kv_error *err); /* KV_ENOMEM; 256-aligned */
    void (*release)(void *memory);                                   /* NULL is fine */
    kv_status (*upload)(void *to, const void *from, int64_t bytes, kv_error *err);
    kv_status (*download)(void *to, const void *from, int64_t bytes, kv_error *err);
    kv_status (*zero)(void *memory, int64_t bytes, kv_error *err);
    kv_status (*finish_all)(kv_error *err); /* waits; errors of everything before */
#define KV_ROW(name) kv_status (*name)(const kv_cuda_##name *arguments, kv_error *err);
    KV_CUDA_KERNEL_TABLE(KV_ROW)
#undef KV_ROW
} kv_cuda_module;

/* The module's one symbol. */
const kv_cuda_module *kv_cuda_module_table(void);
typedef const kv_cuda_module *kv_cuda_module_function(void);

/* kv_cuda_launch_NAME, defined in the kernel's file. */
#define KV_ROW(name) kv_status kv_cuda_launch_##name(const kv_cuda_##name *a, kv_error *err);
KV_CUDA_KERNEL_TABLE(KV_ROW)
#undef KV_ROW

KV_EXTERN_C_END

#endif
