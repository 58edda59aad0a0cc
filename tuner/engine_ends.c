/* The search of KV_SHAPE_ENDS (ik_llama.cpp): per tensor a base type, another in the first N and
 * another in the last M layers, that is, any sequence of at most three runs.
 *
 * Where errors and bytes of keys and of values add up, each tensor's sequences are enumerated with
 * prefix sums (t types, L layers: about t^3 L^2 / 2), cut down to the Pareto front, and the two
 * fronts are combined by one pass: exact. Where they do not, all pairs of sequences are tried if
 * that is at most MAX_JOINT; else keys and values are improved in turn, each exactly given the
 * other, from every pair of uniform types, and the result is not called exact. */
#include <math.h>
#include <stdlib.h>

#include "kernels/memory.h"
#include "tuner/engine_state.h"

enum { MAX_FRONT_BUFFER = 1 << 16 };
static const double MAX_JOINT = 4e8;

/* A sequence of at most three runs: layers [0, first) have row a, [first, last) b, the rest c. */
typedef struct {
    int64_t size, error;
    int32_t first, last;
    int8_t a, b, c;
} sequence;

static int row_at(const sequence *s, int64_t layer)
{
    return layer < s->first ? s->a : layer < s->last ? s->b : s->c;
}

/* What a row costs in a layer; choice -1 where it cannot stand there. */
typedef struct {
    int64_t size, error;
    int32_t choice;
} cell;

/* ---- enumeration ---- */

/* Prefix sums of one tensor's costs: sum[row][l] of layers before l, and how many are missing. */
typedef struct {
    int64_t n_layers;
    int n_rows;
    uint32_t usable; /* rows with a cost in some layer */
    const int *modes;
    int64_t *size, *error;
    int32_t *missing; /* [n_rows][L + 1] */
} sums;

static void sums_free(sums *s)
{
    kv_free(s->size), kv_free(s->error), kv_free(s->missing);
}

static kv_status sums_create(sums *out, const int *modes, int64_t n_layers, int n_rows,
                             kv_error *err)
{
    kv_status status = KV_OK;
    sums s = {.n_layers = n_layers, .n_rows = n_rows, .modes = modes};
    size_t const rows = (size_t)n_rows, length = (size_t)n_layers + 1;
    KV_TRY(kv_allocate3((void **)&s.size, rows, length, 1, sizeof *s.size, err));
    KV_TRY(kv_allocate3((void **)&s.error, rows, length, 1, sizeof *s.error, err));
    KV_TRY(kv_allocate3((void **)&s.missing, rows, length, 1, sizeof *s.missing, err));
    *out = s, s = (sums){0};
done:
    sums_free(&s);
    return status;
}

/* cost(row, layer) of `cells`, at cells[layer * n_rows + row]. */
static void sums_fill(sums *s, const cell *cells)
{
    int64_t const length = s->n_layers + 1;
    s->usable = 0;
    for (int row = 0; row < s->n_rows; row++)
        for (int64_t l = 0; l < s->n_layers; l++) {
            const cell *const c = &cells[l * s->n_rows + row];
            int64_t const at = row * length + l;
            bool const is_missing = c->choice < 0;
            if (!is_missing) s->usable |= UINT32_C(1) << row;
            s->size[at + 1] = s->size[at] + (is_missing ? 0 : c->size);
            s->error[at + 1] = s->error[at] + (is_missing ? 0 : c->error);
            s->missing[at + 1] = s->missing[at] + is_missing;
        }
}

/* Adds layers [from, to) of a row to a sequence's cost; false where one is missing. */
static bool add_run(sequence *q, const sums *s, int row, int64_t from, int64_t to)
{
    int64_t const at = row * (s->n_layers + 1);
    q->size += s->size[at + to] - s->size[at + from];
    q->error += s->error[at + to] - s->error[at + from];
    return s->missing[at + to] == s->missing[at + from];
}

typedef kv_status (*visitor)(void *context, const sequence *q, kv_error *err);

static kv_status visit(const sums *s, sequence q, visitor on, void *context, kv_error *err)
{
    q.size = q.error = 0;
    if (!add_run(&q, s, q.a, 0, q.first) || !add_run(&q, s, q.b, q.first, q.last) ||
        !add_run(&q, s, q.c, q.last, s->n_layers))
        return KV_OK;
    return on(context, &q, err);
}

static bool is_together(const sums *s, int x, int y)
{
    return !s->modes[x] || !s->modes[y] || s->modes[x] == s->modes[y];
}

/* Every sequence once: one run, two runs, three runs with neighbours that differ. */
static kv_status enumerate(const sums *s, visitor on, void *context, kv_error *err)
{
    kv_status status = KV_OK;
    int32_t const layers = (int32_t)s->n_layers;
    for (int a = 0; a < s->n_rows; a++) {
        if (!(s->usable >> a & 1)) continue;
        sequence const one = {
            .first = layers, .last = layers, .a = (int8_t)a, .b = (int8_t)a, .c = (int8_t)a};
        KV_TRY(visit(s, one, on, context, err));
        for (int b = 0; b < s->n_rows; b++) {
            if (b == a || !(s->usable >> b & 1) || !is_together(s, a, b)) continue;
            for (int32_t first = 1; first < layers; first++) {
                sequence q = one;
                q.first = first, q.b = q.c = (int8_t)b;
                KV_TRY(visit(s, q, on, context, err));
                for (int c = 0; c < s->n_rows; c++) {
                    if (c == b || !(s->usable >> c & 1)) continue;
                    if (!is_together(s, a, c) || !is_together(s, b, c)) continue;
                    q.c = (int8_t)c;
                    for (q.last = first + 1; q.last < layers; q.last++)
                        KV_TRY(visit(s, q, on, context, err));
                }
                q.last = layers;
            }
        }
    }
done:
    return status;
}

static kv_status count_one(void *context, const sequence *q, kv_error *err)
{
    (void)q, (void)err;
    ++*(int64_t *)context;
    return KV_OK;
}

/* ---- Pareto fronts ---- */

typedef struct {
    sequence *points;
    size_t count, capacity, cut; /* cut down when there are `cut` */
    bool keep_all;
} front;

static int by_size(const void *x, const void *y)
{
    const sequence *const a = x, *const b = y;
    if (a->size != b->size) return a->size < b->size ? -1 : 1;
    if (a->error != b->error) return a->error < b->error ? -1 : 1;
    if (a->first != b->first) return a->first < b->first ? -1 : 1;
    if (a->last != b->last) return a->last < b->last ? -1 : 1;
    if (a->a != b->a) return a->a - b->a;
    return a->b != b->b ? a->b - b->b : a->c - b->c;
}

static void front_cut(front *f)
{
    size_t n = 0;
    if (f->count) qsort(f->points, f->count, sizeof *f->points, by_size);
    for (size_t i = 0; i < f->count; i++)
        if (!n || f->points[i].error < f->points[n - 1].error) f->points[n++] = f->points[i];
    f->count = n;
    f->cut = 2 * n > MAX_FRONT_BUFFER ? 2 * n : MAX_FRONT_BUFFER;
}

static kv_status front_add(void *context, const sequence *q, kv_error *err)
{
    front *const f = context;
    if (!f->keep_all && f->count >= f->cut && f->cut) front_cut(f);
    kv_status const status =
        kv_grow((void **)&f->points, &f->capacity, f->count, f->count + 1, sizeof *f->points, err);
    if (status == KV_OK) f->points[f->count++] = *q;
    return status;
}

static kv_status front_of(front *f, const sums *s, kv_error *err)
{
    f->cut = MAX_FRONT_BUFFER;
    kv_status const status = enumerate(s, front_add, f, err);
    front_cut(f);
    return status;
}

/* ---- what was found ---- */

typedef struct {
    kv_engine_pick *pick;
    const kv_engine_limit *limit;
    const cell *cells; /* [L][rows][rows], key row first */
    int64_t n_layers;
    int n_rows;
    const sequence *key; /* of the joint search: the keys' sequence, and the best so far */
    sequence best_key, best_value;
} best;

static void offer(best *b, const sequence *key, const sequence *value, int64_t size, int64_t error)
{
    if (!kv_engine_is_better(b->limit, size, error, b->pick)) return;
    b->pick->is_found = true, b->pick->size = size, b->pick->error = error;
    b->pick->is_feasible = size <= b->limit->size && error <= b->limit->error;
    b->best_key = *key, b->best_value = *value;
}

static void write_pick(const best *b)
{
    for (int64_t l = 0; b->pick->is_found && l < b->n_layers; l++) {
        int const key = row_at(&b->best_key, l), value = row_at(&b->best_value, l);
        b->pick->key[l] = key, b->pick->value[l] = value;
        b->pick->choice[l] = b->cells[(l * b->n_rows + key) * b->n_rows + value].choice;
    }
}

/* For each key sequence the best value sequence: what is left of the limit only grows. */
static void combine(best *b, const front *keys, const front *values)
{
    bool const by_error = b->limit->error != INT64_MAX;
    size_t const n = values->count;
    if (!keys->count || !n) return;
    size_t const last_key = keys->count - 1;
    const sequence *const k = by_error ? &keys->points[last_key] : keys->points;
    const sequence *const v = by_error ? &values->points[n - 1] : values->points;
    offer(b, k, v, k->size + v->size, k->error + v->error); /* the nearest */
    size_t at = by_error ? n : 0; /* values from `at` on (or before it) fit */
    for (size_t i = 0; i < keys->count; i++) {
        const sequence *const key = &keys->points[by_error ? i : last_key - i];
        if (by_error)
            while (at > 0 && key->error + values->points[at - 1].error <= b->limit->error) at--;
        else
            while (at < n && key->size + values->points[at].size <= b->limit->size) at++;
        if (by_error ? at == n : at == 0) continue;
        const sequence *const value = &values->points[by_error ? at : at - 1];
        offer(b, key, value, key->size + value->size, key->error + value->error);
    }
}

/* ---- costs ---- */

/* The cheapest choice of each layer for each pair of rows (of least error, then bytes). */
static void fill_cells(cell *cells, const kv_engine_match *m, const kv_problem_integers *integers)
{
    int const n = (int)m->engine->n_types;
    const kv_problem *const p = m->problem;
    for (int64_t i = 0; i < p->n_layers * n * n; i++) cells[i].choice = -1;
    for (int64_t l = 0; l < p->n_layers; l++)
        for (int64_t c = 0; c < p->layers[l].n_choices; c++) {
            const kv_choice *const choice = &p->layers[l].choices[c];
            const kv_option *const o = &integers->options[l][c];
            for (int pair = 0; pair < n * n; pair++) {
                int const key = pair / n, value = pair % n;
                if (!(m->keys[l * p->keys.n + choice->key] >> key & 1) ||
                    !(m->values[l * p->values.n + choice->value] >> value & 1) ||
                    !kv_engine_pair_fits(m, choice, key, value))
                    continue;
                cell *const at = &cells[l * n * n + pair];
                bool const is_less =
                    o->error < at->error || (o->error == at->error && o->size < at->size);
                if (at->choice < 0 || is_less) *at = (cell){o->size, o->error, (int32_t)c};
            }
        }
}

/* One tensor's cost of a scheme in the solver's integers. */
static cell scheme_cost(const kv_problem_side *side, int64_t layer, int32_t scheme, double unit)
{
    int64_t const at = layer * side->n + scheme;
    return (cell){side->bytes[at], (int64_t)llround(side->error[at] / unit), scheme};
}

/* Splits the cells into a cost of the key's row and one of the value's. False unless they add up
 * and every key row that is there in a layer is there with every value row. */
static bool split_cells(cell *keys, cell *values, const cell *cells, const kv_problem *problem,
                        double unit, int n)
{
    for (int64_t i = 0; i < problem->n_layers * n; i++) keys[i].choice = values[i].choice = -1;
    for (int64_t l = 0; problem->is_separable && l < problem->n_layers; l++) {
        const cell *const at = &cells[l * n * n];
        for (int i = 0; i < n * n; i++) {
            if (at[i].choice < 0) continue;
            const kv_choice *const c = &problem->layers[l].choices[at[i].choice];
            keys[l * n + i / n] = scheme_cost(&problem->keys, l, c->key, unit);
            values[l * n + i % n] = scheme_cost(&problem->values, l, c->value, unit);
        }
        for (int i = 0; i < n * n; i++) {
            bool const is_both =
                keys[l * n + i / n].choice >= 0 && values[l * n + i % n].choice >= 0;
            if (is_both != (at[i].choice >= 0)) return false;
        }
    }
    return problem->is_separable;
}

/* Costs of one tensor's rows given the other tensor's sequence. */
static void given(cell *out, const best *b, const sequence *other, bool other_is_key)
{
    int const n = b->n_rows;
    for (int64_t l = 0; l < b->n_layers; l++)
        for (int i = 0; i < n; i++) {
            int const o = row_at(other, l);
            int const pair = other_is_key ? o * n + i : i * n + o;
            out[l * n + i] = b->cells[l * n * n + pair];
        }
}

/* ---- searches ---- */

static kv_status search_split(best *b, sums *key_sums, sums *value_sums, const cell *keys,
                              const cell *values, kv_error *err)
{
    kv_status status = KV_OK;
    front key_front = {0}, value_front = {0};
    sums_fill(key_sums, keys), sums_fill(value_sums, values);
    KV_TRY(front_of(&key_front, key_sums, err));
    KV_TRY(front_of(&value_front, value_sums, err));
    combine(b, &key_front, &value_front);
    b->pick->is_exact = true;
done:
    kv_free(key_front.points), kv_free(value_front.points);
    return status;
}

static kv_status offer_value(void *context, const sequence *q, kv_error *err)
{
    best *const b = context;
    (void)err;
    offer(b, b->key, q, q->size, q->error);
    return KV_OK;
}

static kv_status offer_key(void *context, const sequence *q, kv_error *err)
{
    best *const b = context;
    (void)err;
    offer(b, q, b->key, q->size, q->error);
    return KV_OK;
}

/* Sums in which every row that is there in some pair counts as there in each layer. */
static void sums_of_any(sums *s, cell *scratch, const best *b, bool is_key)
{
    int const n = b->n_rows;
    for (int64_t l = 0; l < b->n_layers; l++)
        for (int i = 0; i < n; i++) {
            scratch[l * n + i] = (cell){0, 0, -1};
            for (int o = 0; o < n; o++) {
                int const pair = is_key ? i * n + o : o * n + i;
                if (b->cells[l * n * n + pair].choice >= 0) scratch[l * n + i].choice = 0;
            }
        }
    sums_fill(s, scratch);
}

static kv_status search_joint(best *b, const front *all_keys, sums *s, cell *scratch, kv_error *err)
{
    kv_status status = KV_OK;
    for (size_t i = 0; i < all_keys->count; i++) {
        b->key = &all_keys->points[i];
        given(scratch, b, b->key, true);
        sums_fill(s, scratch);
        KV_TRY(enumerate(s, offer_value, b, err));
    }
    b->pick->is_exact = true;
done:
    return status;
}

/* Keys and values in turn, from each uniform key row, until nothing changes. */
static kv_status search_in_turn(best *b, sums *s, cell *scratch, kv_error *err)
{
    kv_status status = KV_OK;
    kv_engine_pick held = *b->pick;
    sequence held_key = {0}, held_value = {0};
    for (int row = 0; row < b->n_rows; row++) {
        int32_t const layers = (int32_t)b->n_layers;
        sequence fixed = {
            .first = layers, .last = layers, .a = (int8_t)row, .b = (int8_t)row, .c = (int8_t)row};
        b->pick->is_found = false;
        for (bool is_key_fixed = true;; is_key_fixed = !is_key_fixed) {
            kv_engine_pick const before = *b->pick;
            b->key = &fixed;
            given(scratch, b, &fixed, is_key_fixed);
            sums_fill(s, scratch);
            KV_TRY(enumerate(s, is_key_fixed ? offer_value : offer_key, b, err));
            bool const is_same = before.is_found == b->pick->is_found &&
                                 before.size == b->pick->size && before.error == b->pick->error;
            if (!b->pick->is_found || (is_same && before.is_found)) break;
            fixed = is_key_fixed ? b->best_value : b->best_key;
        }
        if (!b->pick->is_found) continue;
        if (!kv_engine_is_better(b->limit, b->pick->size, b->pick->error, &held)) continue;
        held = *b->pick, held_key = b->best_key, held_value = b->best_value;
    }
    *b->pick = held, b->best_key = held_key, b->best_value = held_value;
    b->pick->is_exact = false;
done:
    return status;
}

static kv_status search_not_split(best *b, sums *key_sums, sums *value_sums, cell *scratch,
                                  kv_error *err)
{
    kv_status status = KV_OK;
    front all_keys = {.keep_all = true};
    int64_t n_keys = 0, n_values = 0;
    sums_of_any(value_sums, scratch, b, false);
    KV_TRY(enumerate(value_sums, count_one, &n_values, err));
    sums_of_any(key_sums, scratch, b, true);
    KV_TRY(enumerate(key_sums, count_one, &n_keys, err));
    bool const is_small = (double)n_keys * (double)n_values <= MAX_JOINT;
    if (!is_small) KV_TRY(search_in_turn(b, value_sums, scratch, err));
    if (b->pick->is_found) goto done;
    KV_TRY(enumerate(key_sums, front_add, &all_keys, err));
    KV_TRY(search_joint(b, &all_keys, value_sums, scratch, err));
done:
    kv_free(all_keys.points);
    return status;
}

kv_status kv_engine_search_ends(kv_engine_pick *pick, const kv_engine_match *match,
                                const kv_problem_integers *integers, const kv_engine_limit *limit,
                                kv_error *err)
{
    kv_status status = KV_OK;
    int64_t const layers = match->problem->n_layers;
    int const n = (int)match->engine->n_types;
    int modes[KV_ENGINE_MAX_TYPES];
    cell *cells = NULL, *keys = NULL, *values = NULL;
    sums key_sums = {0}, value_sums = {0};
    for (int t = 0; t < n; t++) modes[t] = match->engine->types[t].mode;
    KV_TRY(kv_allocate3((void **)&cells, (size_t)layers, (size_t)n, (size_t)n, sizeof *cells, err));
    KV_TRY(kv_allocate3((void **)&keys, (size_t)layers, (size_t)n, 1, sizeof *keys, err));
    KV_TRY(kv_allocate3((void **)&values, (size_t)layers, (size_t)n, 1, sizeof *values, err));
    KV_TRY(sums_create(&key_sums, modes, layers, n, err));
    KV_TRY(sums_create(&value_sums, modes, layers, n, err));
    fill_cells(cells, match, integers);
    best b = {.pick = pick, .limit = limit, .cells = cells, .n_layers = layers, .n_rows = n};
    if (split_cells(keys, values, cells, match->problem, integers->unit, n))
        KV_TRY(search_split(&b, &key_sums, &value_sums, keys, values, err));
    else
        KV_TRY(search_not_split(&b, &key_sums, &value_sums, keys, err));
    write_pick(&b);
done:
    kv_free(cells), kv_free(keys), kv_free(values);
    sums_free(&key_sums), sums_free(&value_sums);
    return status;
}
