/* The table: what each scheme of each tensor, alone in one layer, adds at the end of the stack.
 *
 * First the local powers of all schemes, which cost a run one layer each. A scheme that another of
 * the same layer and tensor beats in bytes and local power cannot be chosen by what follows and is
 * not run further: its error is its local power times the gain of that layer and tensor, found from
 * one representative run to the end. At effort `estimate` all other schemes are filled in the same
 * way; else they are run to the end, and at `exhaustive` the pairs that no other beats are run as
 * pairs, which replaces the sum of their parts. */
#include <math.h>
#include <string.h>

#include "kernels/memory.h"
#include "tuner/tune_state.h"

/* Assignments that leave the exact one in a single layer. */
typedef struct {
    kv_tuning *t;
    int64_t n;
    int32_t (*assignment)[2]; /* [room][L] */
    int64_t *last, *layer;    /* [room] */
    int32_t (*pair)[2];       /* [room] */
    double *power;            /* [room] */
} singles;

static kv_status singles_create(singles *s, kv_tuning *t, int64_t room, kv_error *err)
{
    kv_status status = KV_OK;
    size_t const n = (size_t)room;
    *s = (singles){.t = t};
    KV_TRY(
        kv_allocate3((void **)&s->assignment, n, (size_t)t->layers, 1, sizeof *s->assignment, err));
    KV_TRY(kv_allocate((void **)&s->last, n, sizeof *s->last, err));
    KV_TRY(kv_allocate((void **)&s->layer, n, sizeof *s->layer, err));
    KV_TRY(kv_allocate((void **)&s->pair, n, sizeof *s->pair, err));
    KV_TRY(kv_allocate((void **)&s->power, n, sizeof *s->power, err));
done:
    return status;
}

static void singles_free(singles *s)
{
    kv_free(s->assignment), kv_free(s->last), kv_free(s->layer), kv_free(s->pair);
    kv_free(s->power);
}

static void add(singles *s, int64_t layer, int32_t key, int32_t value)
{
    int64_t const layers = s->t->layers;
    int32_t(*const row)[2] = s->assignment + s->n * layers;
    for (int64_t l = 0; l < layers; l++) row[l][0] = row[l][1] = -1;
    row[layer][0] = key, row[layer][1] = value;
    s->pair[s->n][0] = key, s->pair[s->n][1] = value;
    s->last[s->n] = s->layer[s->n] = layer;
    s->n++;
}

/* power [n]: means over the search seeds. */
static kv_status measure(singles *s, bool is_local, kv_error *err)
{
    kv_status status = KV_OK;
    void *all = NULL;
    int64_t const seeds = s->t->n_search;
    kv_tune_batch const batch = {.n = s->n,
                                 .assignment = (const int32_t(*)[2])s->assignment,
                                 .last = s->last,
                                 .is_local = is_local,
                                 .n_seeds = seeds,
                                 .seeds = s->t->search_seeds};
    KV_TRY(kv_allocate3(&all, (size_t)s->n, (size_t)seeds, 1, sizeof(double), err));
    KV_TRY(kv_tune_measure(all, s->t, &batch, err));
    for (int64_t r = 0; r < s->n; r++) {
        double sum = 0;
        for (int64_t i = 0; i < seeds; i++) sum += ((double *)all)[r * seeds + i];
        s->power[r] = sum / (double)seeds;
    }
done:
    kv_free(all);
    return status;
}

/* ---- local powers, gains ---- */

static double *place(const singles *s, int64_t run, double *(*field)(kv_tune_side *))
{
    bool const is_key = s->pair[run][0] >= 0;
    kv_tune_side *const side = is_key ? &s->t->keys : &s->t->values;
    return &field(side)[s->layer[run] * side->n + s->pair[run][is_key ? 0 : 1]];
}

static double *local_of(kv_tune_side *side)
{
    return side->local;
}

static double *error_of(kv_tune_side *side)
{
    return side->error;
}

static void add_all(singles *s)
{
    for (int64_t l = 0; l < s->t->layers; l++) {
        for (int64_t k = 0; k < s->t->keys.n_choices; k++) add(s, l, (int32_t)k, -1);
        for (int64_t v = 0; v < s->t->values.n_choices; v++) add(s, l, -1, (int32_t)v);
    }
}

/* Whether another choice of the layer takes no more bytes and has no more local power. */
static bool is_dominated(const kv_tune_side *side, int64_t layer, int64_t i)
{
    const int64_t *const bytes = side->bytes + layer * side->n;
    const double *const local = side->local + layer * side->n;
    for (int64_t j = 0; j < side->n_choices; j++) {
        if (j == i || bytes[j] > bytes[i] || local[j] > local[i]) continue;
        if (bytes[j] < bytes[i] || local[j] < local[i] || j < i) return true;
    }
    return false;
}

/* The choice whose local power is the middle one of those that are not dominated; -1 where all are
 * exact. */
static int64_t representative(const kv_tune_side *side, int64_t layer)
{
    const double *const local = side->local + layer * side->n;
    int64_t count = 0, found = -1;
    for (int64_t i = 0; i < side->n_choices; i++)
        count += local[i] > 0 && !is_dominated(side, layer, i);
    for (int64_t i = 0; i < side->n_choices; i++) {
        if (!(local[i] > 0) || is_dominated(side, layer, i)) continue;
        int64_t smaller = 0; /* of equal ones none is left by dominance */
        for (int64_t j = 0; j < side->n_choices; j++)
            smaller += local[j] > 0 && local[j] < local[i] && !is_dominated(side, layer, j);
        if (smaller == (count - 1) / 2) found = i;
    }
    return found;
}

static void add_representatives(singles *s)
{
    for (int64_t l = 0; l < s->t->layers; l++) {
        int64_t const k = representative(&s->t->keys, l), v = representative(&s->t->values, l);
        if (k >= 0) add(s, l, (int32_t)k, -1);
        if (v >= 0) add(s, l, -1, (int32_t)v);
    }
}

static void add_undominated(singles *s)
{
    const kv_tuning *const t = s->t;
    for (int64_t l = 0; l < t->layers; l++) {
        for (int64_t k = 0; k < t->keys.n_choices; k++)
            if (!is_dominated(&t->keys, l, k) || k == representative(&t->keys, l))
                add(s, l, (int32_t)k, -1);
        for (int64_t v = 0; v < t->values.n_choices; v++)
            if (!is_dominated(&t->values, l, v) || v == representative(&t->values, l))
                add(s, l, -1, (int32_t)v);
    }
}

/* What was measured goes into the table, the rest of it is estimated. */
static void fill_side(kv_tune_side *side, const kv_tuning *t)
{
    for (int64_t l = 0; l < t->layers; l++) {
        int64_t const r = representative(side, l);
        double const gain =
            r >= 0 ? side->error[l * side->n + r] / side->local[l * side->n + r] : 0;
        for (int64_t i = l * side->n; i < l * side->n + side->n_choices; i++) {
            if (side->state[i] == KV_TABLE_MEASURED) continue;
            side->error[i] = gain * side->local[i];
            side->state[i] = KV_TABLE_ESTIMATED;
        }
    }
}

static void take_measured(const singles *s)
{
    for (int64_t r = 0; r < s->n; r++) {
        bool const is_key = s->pair[r][0] >= 0;
        kv_tune_side *const side = is_key ? &s->t->keys : &s->t->values;
        *place(s, r, error_of) = s->power[r];
        side->state[s->layer[r] * side->n + s->pair[r][is_key ? 0 : 1]] = KV_TABLE_MEASURED;
    }
}

/* ---- the problem ---- */

/* [L][n] of the choices only. */
static kv_status compact(kv_problem_side *out, const kv_tune_side *side, int64_t layers,
                         kv_error *err)
{
    kv_status status = KV_OK;
    size_t const n = (size_t)side->n_choices;
    *out = (kv_problem_side){.n = side->n_choices, .schemes = side->texts};
    KV_TRY(kv_allocate3((void **)&out->error, (size_t)layers, n, 1, sizeof *out->error, err));
    KV_TRY(kv_allocate3((void **)&out->bytes, (size_t)layers, n, 1, sizeof *out->bytes, err));
    for (int64_t l = 0; l < layers; l++) {
        memcpy(out->error + l * out->n, side->error + l * side->n, n * sizeof *out->error);
        memcpy(out->bytes + l * out->n, side->bytes + l * side->n, n * sizeof *out->bytes);
    }
done:
    return status;
}

/* Of every choice, from the states of its key and value. */
static void set_sources(const kv_tuning *t)
{
    for (int64_t l = 0; l < t->layers; l++)
        for (int64_t c = 0; c < t->problem->layers[l].n_choices; c++) {
            kv_choice *const x = &t->problem->layers[l].choices[c];
            bool const is_measured =
                t->keys.state[l * t->keys.n + x->key] == KV_TABLE_MEASURED &&
                t->values.state[l * t->values.n + x->value] == KV_TABLE_MEASURED;
            x->source = is_measured ? KV_ERROR_SUMMED : KV_ERROR_ESTIMATED;
        }
}

kv_status kv_tune_make_problem(kv_tuning *t, kv_error *err)
{
    kv_status status = KV_OK;
    kv_problem_side keys = {0}, values = {0};
    int64_t *numbers = NULL;
    KV_TRY(compact(&keys, &t->keys, t->layers, err));
    KV_TRY(compact(&values, &t->values, t->layers, err));
    KV_TRY(kv_allocate((void **)&numbers, (size_t)t->layers, sizeof *numbers, err));
    for (int64_t l = 0; l < t->layers; l++) numbers[l] = t->geometry[l].number;
    KV_TRY(kv_problem_create(&t->problem, t->layers, numbers, &keys, &values,
                             (const int32_t(*)[2])t->pairs, t->n_pairs, err));
    set_sources(t);
done:
    kv_free(keys.error), kv_free(keys.bytes), kv_free(values.error), kv_free(values.bytes);
    kv_free(numbers);
    return status;
}

/* ---- pairs ---- */

kv_status kv_tune_pairs(kv_tuning *t, kv_error *err)
{
    kv_status status = KV_OK;
    kv_problem *const p = t->problem;
    singles s = {0};
    int64_t room = 0, r = 0;
    for (int64_t l = 0; l < t->layers; l++) room += p->layers[l].n_choices;
    KV_TRY(singles_create(&s, t, room, err));
    for (int64_t l = 0; l < t->layers; l++)
        for (int64_t c = 0; c < p->layers[l].n_choices; c++)
            if (kv_problem_dominator(&p->layers[l], c) < 0)
                add(&s, l, p->layers[l].choices[c].key, p->layers[l].choices[c].value);
    kv_tune_set_task(t, "table: pairs");
    KV_TRY(measure(&s, false, err));
    for (; r < s.n; r++)
        for (int64_t c = 0; c < p->layers[s.layer[r]].n_choices; c++) {
            kv_choice *const choice = &p->layers[s.layer[r]].choices[c];
            if (choice->key == s.pair[r][0] && choice->value == s.pair[r][1])
                choice->error = s.power[r], choice->source = KV_ERROR_MEASURED;
        }
    /* A choice is no longer the sum of its sides. */
    p->is_separable = false;
    kv_free(p->keys.error), kv_free(p->keys.bytes), kv_free(p->values.error);
    kv_free(p->values.bytes);
    p->keys.error = p->values.error = NULL, p->keys.bytes = p->values.bytes = NULL;
done:
    singles_free(&s);
    return status;
}

/* ---- the whole ---- */

kv_status kv_tune_table(kv_tuning *t, kv_error *err)
{
    kv_status status = KV_OK;
    singles s = {0}, further = {0};
    bool const is_estimate = t->settings->effort == KV_EFFORT_ESTIMATE;
    int64_t const most = t->layers * (t->keys.n_choices + t->values.n_choices);
    memset(t->keys.state, 0, (size_t)(t->layers * t->keys.n));
    memset(t->values.state, 0, (size_t)(t->layers * t->values.n));
    KV_TRY(singles_create(&s, t, most, err));
    KV_TRY(singles_create(&further, t, most, err));
    add_all(&s);
    kv_tune_set_task(t, "table: local errors");
    KV_TRY(measure(&s, true, err));
    for (int64_t r = 0; r < s.n; r++) *place(&s, r, local_of) = s.power[r];
    if (is_estimate)
        add_representatives(&further);
    else
        add_undominated(&further);
    kv_tune_set_task(t, is_estimate ? "table: gains" : "table: errors");
    KV_TRY(measure(&further, false, err));
    take_measured(&further);
    fill_side(&t->keys, t), fill_side(&t->values, t);
    KV_TRY(kv_tune_make_problem(t, err));
done:
    singles_free(&s), singles_free(&further);
    return status;
}
