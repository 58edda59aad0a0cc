/* Ends high: one pair of schemes for the first k and the last k layers, a cheaper one between (the
 * rule of thumb of ik_llama.cpp's -ctk-first, -ctk-last and of vLLM's skip layers). For each k = 1,
 * 2, 4, ... the best two pairs in the additive model, for allowances around the budget because the
 * model is not exact; all of them are measured. */
#include <math.h>

#include "kernels/memory.h"
#include "tuner/strategies.h"

static const double allowances[] = {0.5, 0.7, 0.85, 1, 1.2};
enum { N_ALLOWANCES = sizeof allowances / sizeof allowances[0] };

typedef struct {
    const kv_strategy_task *task;
    int64_t layers, n;
    int32_t *uniform; /* [n][L] */
    int64_t *bytes;   /* [n][2] sums over the ends, over the middle, for the k at hand */
    double *error;    /* [n][2] */
    int32_t *found;   /* [count][L] */
    int64_t *k_of, count;
} search;

static bool is_end(const search *s, int64_t layer, int64_t k)
{
    return layer < k || layer >= s->layers - k;
}

static void sum_parts(const search *s, int64_t k)
{
    for (int64_t i = 0; i < 2 * s->n; i++) s->bytes[i] = 0, s->error[i] = 0;
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t l = 0; l < s->layers; l++) {
            const kv_choice *const c =
                &s->task->problem->layers[l].choices[s->uniform[i * s->layers + l]];
            int64_t const part = 2 * i + !is_end(s, l, k);
            s->bytes[part] += c->bytes, s->error[part] += c->error;
        }
}

/* The best two pairs for ends of k layers: fewest bytes within the error, or least error within the
 * bytes. False where there is none. */
static bool best_pairs(int64_t *high, int64_t *low, const search *s, double allowance)
{
    bool const is_error = !isnan(s->task->error);
    double best = INFINITY, second = INFINITY;
    for (int64_t h = 0; h < s->n; h++)
        for (int64_t i = 0; i < s->n; i++) {
            int64_t const bytes = s->bytes[2 * h] + s->bytes[2 * i + 1];
            double const error = s->error[2 * h] + s->error[2 * i + 1];
            bool const fits =
                is_error ? error <= allowance * s->task->error : bytes <= s->task->limit;
            double const cost = is_error ? (double)bytes : error;
            double const other = is_error ? error : (double)bytes;
            if (!fits || cost > best || (!(cost < best) && other >= second)) continue;
            best = cost, second = other, *high = h, *low = i;
        }
    return best < INFINITY;
}

static void add(search *s, int64_t k, int64_t high, int64_t low)
{
    int32_t *const row = s->found + s->count * s->layers;
    for (int64_t l = 0; l < s->layers; l++)
        row[l] = s->uniform[(is_end(s, l, k) ? high : low) * s->layers + l];
    for (int64_t i = 0; i < s->count; i++) {
        bool is_same = true;
        for (int64_t l = 0; l < s->layers; l++) is_same &= s->found[i * s->layers + l] == row[l];
        if (is_same) return;
    }
    s->k_of[s->count++] = k;
}

static kv_status keep_all(const search *s, const double *power, kv_error *err)
{
    kv_status status = KV_OK;
    kv_text name = {0};
    for (int64_t i = 0; i < s->count; i++) {
        kv_text_free(&name);
        KV_TRY(kv_text_add(&name, err, "first and last %lld high", (long long)s->k_of[i]));
        KV_TRY(s->task->keep(s->task->context, name.data, s->found + i * s->layers, power[i],
                             s->count, err));
    }
done:
    kv_text_free(&name);
    return status;
}

kv_status kv_strategy_propose_ends_high(const kv_strategy_task *task, kv_error *err)
{
    kv_status status = KV_OK;
    search s = {.task = task, .layers = task->problem->n_layers};
    void *power = NULL, *bytes = NULL, *error = NULL, *found = NULL, *k_of = NULL;
    size_t most = 0;
    for (int64_t k = 1; 2 * k < s.layers; k *= 2) most += N_ALLOWANCES;
    KV_TRY(kv_problem_uniform(&s.uniform, &s.n, task->problem, err));
    KV_TRY(kv_allocate3(&bytes, (size_t)s.n, 2, 1, sizeof *s.bytes, err));
    KV_TRY(kv_allocate3(&error, (size_t)s.n, 2, 1, sizeof *s.error, err));
    KV_TRY(kv_allocate3(&found, most + 1, (size_t)s.layers, 1, sizeof *s.found, err));
    KV_TRY(kv_allocate(&k_of, most + 1, sizeof *s.k_of, err));
    KV_TRY(kv_allocate(&power, most + 1, sizeof(double), err));
    s.bytes = bytes, s.error = error, s.found = found, s.k_of = k_of;
    for (int64_t k = 1; 2 * k < s.layers; k *= 2) {
        sum_parts(&s, k);
        for (int a = 0; a < (isnan(task->error) ? 1 : N_ALLOWANCES); a++) {
            int64_t high = 0, low = 0;
            if (best_pairs(&high, &low, &s, allowances[a])) add(&s, k, high, low);
        }
    }
    KV_TRY(task->measure(task->context, power, s.found, s.count, err));
    KV_TRY(keep_all(&s, power, err));
done:
    kv_free(s.uniform), kv_free(power), kv_free(bytes), kv_free(error), kv_free(found);
    kv_free(k_of);
    return status;
}
