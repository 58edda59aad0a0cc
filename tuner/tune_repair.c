/* Repair: what the additive model cannot see is measured around the policy itself.
 *
 * Moves change the key or the value of one layer to the next cheaper or next dearer scheme that no
 * other beats there. Each is run end to end on the search seeds; its change of power and bytes is
 * an option of a small knapsack (stay, or one of the moves, per layer), solved exactly. The result
 * is run as a whole, and taken where it is better and still holds on the held-out seeds; where it
 * is not, a little less of the promised change is tried. Until there is no gain, ROUNDS at most. */
#include <math.h>
#include <string.h>

#include "kernels/memory.h"
#include "tuner/tune_state.h"

enum { MOVES = 4, ROUNDS = 4, TRIES = 3 };

typedef struct {
    kv_tuning *t;
    int32_t *current; /* [L] choices */
    int64_t n;
    int64_t *layer;   /* [n] */
    int32_t *choice;  /* [n] */
    int32_t *rows;    /* [n][L] */
    double *power;    /* [n] */
    int32_t *tried;   /* [L] */
    double *held_out; /* [n_held_out] */
} repair;

static bool beats(const kv_choice *a, const kv_choice *b)
{
    return a->bytes <= b->bytes && a->error <= b->error &&
           (a->bytes < b->bytes || a->error < b->error);
}

/* The next cheaper (-1) or dearer (+1) choice of a layer that differs in one tensor only; -1 for
 * none. */
static int64_t neighbour(const kv_problem_layer *layer, int32_t from, bool is_key, int direction)
{
    const kv_choice *const c = layer->choices, *const at = &c[from];
    int64_t best = -1;
    for (int64_t i = 0; i < layer->n_choices; i++) {
        bool const is_move = is_key ? c[i].value == at->value && c[i].key != at->key
                                    : c[i].key == at->key && c[i].value != at->value;
        bool const is_side = direction < 0 ? c[i].bytes < at->bytes : c[i].bytes > at->bytes;
        if (!is_move || !is_side) continue;
        bool is_beaten = false;
        for (int64_t j = 0; j < layer->n_choices && !is_beaten; j++) {
            bool const is_peer = is_key ? c[j].value == at->value : c[j].key == at->key;
            is_beaten = is_peer && beats(&c[j], &c[i]);
        }
        if (is_beaten) continue;
        bool const is_nearer =
            best < 0 || (direction < 0 ? c[i].bytes > c[best].bytes : c[i].bytes < c[best].bytes);
        if (is_nearer) best = i;
    }
    return best;
}

static kv_status measure_moves(repair *r, kv_error *err)
{
    kv_tuning *const t = r->t;
    r->n = 0;
    for (int64_t l = 0; l < t->layers; l++)
        for (int m = 0; m < MOVES; m++) {
            int64_t const c =
                neighbour(&t->problem->layers[l], r->current[l], m < 2, m % 2 ? 1 : -1);
            if (c < 0) continue;
            int32_t *const row = r->rows + r->n * t->layers;
            memcpy(row, r->current, (size_t)t->layers * sizeof *row);
            row[l] = r->choice[r->n] = (int32_t)c;
            r->layer[r->n++] = l;
        }
    return kv_tune_measure_choices(r->power, t, r->rows, r->n, err);
}

/* The best combination of moves: within `error`, a change of power, or within `bytes`, the limit on
 * all layers' bytes. *is_found false where it is to stay. */
static kv_status combine(bool *is_found, repair *r, double error, int64_t bytes, kv_error *err)
{
    kv_status status = KV_OK;
    kv_tuning *const t = r->t;
    size_t const layers = (size_t)t->layers;
    void *options = NULL, *counts = NULL, *lists = NULL, *ids = NULL;
    kv_frontier *found = NULL;
    double const now = t->policy_power;
    double most = fabs(error);
    *is_found = false;
    KV_TRY(kv_allocate3(&options, layers, MOVES + 1, 1, sizeof(kv_option), err));
    KV_TRY(kv_allocate3(&ids, layers, MOVES + 1, 1, sizeof(int32_t), err));
    KV_TRY(kv_allocate(&counts, layers, sizeof(int64_t), err));
    KV_TRY(kv_allocate(&lists, layers, sizeof(kv_option *), err));
    for (int64_t i = 0; i < r->n; i++)
        if (fabs(r->power[i] - now) > most) most = fabs(r->power[i] - now);
    double const unit = most > 0 ? ldexp(1, ilogb(most) - 40) : 1;
    for (int64_t l = 0; l < t->layers; l++) {
        kv_option *const o = (kv_option *)options + l * (MOVES + 1);
        int32_t *const id = (int32_t *)ids + l * (MOVES + 1);
        int64_t n = 0;
        id[n] = r->current[l];
        o[n++] = (kv_option){t->problem->layers[l].choices[r->current[l]].bytes, 0};
        for (int64_t i = 0; i < r->n; i++) {
            if (r->layer[i] != l) continue;
            id[n] = r->choice[i];
            o[n++] = (kv_option){t->problem->layers[l].choices[r->choice[i]].bytes,
                                 (int64_t)ceil((r->power[i] - now) / unit)};
        }
        ((int64_t *)counts)[l] = n;
        ((const kv_option **)lists)[l] = o;
    }
    kv_knapsack const knapsack = {t->layers, counts, lists};
    if (isnan(t->limit))
        KV_TRY(kv_knapsack_within_size(&found, &knapsack, bytes, err));
    else
        KV_TRY(kv_knapsack_within_error(&found, &knapsack, (int64_t)floor(error / unit), err));
    if (!found->count) goto done;
    for (int64_t l = 0; l < t->layers; l++) {
        r->tried[l] = ((int32_t *)ids)[l * (MOVES + 1) + found->option[l]];
        *is_found |= r->tried[l] != r->current[l];
    }
done:
    kv_frontier_free(found);
    kv_free(options), kv_free(counts), kv_free(lists), kv_free(ids);
    return status;
}

/* Whether what was tried is better than the policy and holds; then it is the policy. */
static kv_status judge(bool *is_taken, repair *r, double target, kv_error *err)
{
    kv_status status = KV_OK;
    kv_tuning *const t = r->t;
    const kv_outcome *const o = &t->solution->outcome;
    double power;
    *is_taken = false;
    KV_TRY(kv_tune_measure_choices(&power, t, r->tried, 1, err));
    int64_t const bytes = kv_problem_bytes(t->problem, r->tried);
    bool const is_better =
        isnan(t->limit) ? power < t->policy_power : power <= target && bytes < o->policy.bytes;
    if (!is_better) goto done;
    kv_tune_set_task(t, "repair: held-out seeds");
    KV_TRY(kv_tune_measure_held_out(r->held_out, t, r->tried, 1, err));
    double const upper = kv_tune_upper(t, r->held_out);
    if (!isnan(t->limit) && !(upper <= kv_tune_held_out_limit(t))) goto done;
    if (isnan(t->limit) && !(upper < t->policy_upper)) goto done;
    KV_TRY(kv_tune_set_policy(t, r->tried, power, r->held_out, err));
    memcpy(r->current, r->tried, (size_t)t->layers * sizeof *r->current);
    *is_taken = true;
done:
    return status;
}

static kv_status run_round(bool *is_taken, repair *r, kv_error *err)
{
    kv_status status = KV_OK;
    kv_tuning *const t = r->t;
    const kv_outcome *const o = &t->solution->outcome;
    double const now = t->policy_power;
    /* What the search seeds may show for the held-out ones to hold. */
    double const target = kv_tune_held_out_limit(t) * now / t->policy_upper;
    bool is_found = true;
    *is_taken = false;
    kv_tune_set_task(t, "repair: moves");
    KV_TRY(measure_moves(r, err));
    double allowance = isnan(target) ? 0 : target - now;
    for (int i = 0; i < TRIES && !*is_taken && is_found; i++) {
        KV_TRY(combine(&is_found, r, allowance, kv_solution_byte_limit(o), err));
        if (is_found) KV_TRY(judge(is_taken, r, target, err));
        if (isnan(target)) break;
        allowance -= 0.02 * target;
    }
done:
    return status;
}

kv_status kv_tune_repair(kv_tuning *t, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_outcome *const o = &t->solution->outcome;
    size_t const layers = (size_t)t->layers, most = MOVES * layers;
    repair r = {.t = t};
    if (!o->is_verified || !o->is_budget_met) return KV_OK;
    KV_TRY(kv_allocate((void **)&r.current, layers, sizeof *r.current, err));
    KV_TRY(kv_allocate((void **)&r.tried, layers, sizeof *r.tried, err));
    KV_TRY(kv_allocate((void **)&r.layer, most, sizeof *r.layer, err));
    KV_TRY(kv_allocate((void **)&r.choice, most, sizeof *r.choice, err));
    KV_TRY(kv_allocate((void **)&r.power, most, sizeof *r.power, err));
    KV_TRY(kv_allocate3((void **)&r.rows, most, layers, 1, sizeof *r.rows, err));
    KV_TRY(kv_allocate((void **)&r.held_out, (size_t)t->n_held_out, sizeof *r.held_out, err));
    memcpy(r.current, o->policy.assignment, layers * sizeof *r.current);
    bool is_taken = true;
    for (int i = 0; i < ROUNDS && is_taken; i++) KV_TRY(run_round(&is_taken, &r, err));
done:
    kv_free(r.current), kv_free(r.tried), kv_free(r.layer), kv_free(r.choice), kv_free(r.power);
    kv_free(r.rows), kv_free(r.held_out);
    return status;
}
