/* NSGA-II (Deb, Pratap, Agarwal and Meyarivan 2002, IEEE Trans. Evol. Comput. 6(2)), a small one of
 * ours, as a baseline: it is what KVTuner searches with. Objectives: bytes and error power, both
 * measured end to end; the budget is a constraint in Deb's sense (within it beats outside it,
 * outside it the smaller violation). As in KVTuner, a layer's choices are first pruned to those
 * that no other of the layer beats in bytes and error. Binary tournament, uniform crossover,
 * mutation of one gene in expectation, elitist survival by rank and crowding distance. It may use
 * as many runs as the tuner has; populations are large, because runs that are measured together
 * share the prefix. */
#include <math.h>
#include <stdlib.h>

#include "kernels/memory.h"
#include "tuner/strategies.h"

enum { GENERATIONS = 8, LEAST = 8, MOST = 128 };

typedef struct {
    double bytes, power, violation, crowding;
    int64_t rank, row; /* row of genes */
} member;

typedef struct {
    const kv_strategy_task *task;
    int64_t layers, size; /* of the population */
    int32_t *allowed;     /* [L][most] choices that are not dominated */
    int64_t *n_allowed, most;
    int32_t *genes, *next_genes; /* [2 size][L] choices: parents, then children */
    member *members;             /* [2 size] */
    double *power;               /* [size] */
    kv_strategy_random random;
} population;

/* ---- order ---- */

static bool is_better(const member *a, const member *b)
{
    if (a->violation > 0 || b->violation > 0) return a->violation < b->violation;
    return a->bytes <= b->bytes && a->power <= b->power &&
           (a->bytes < b->bytes || a->power < b->power);
}

/* Ranks by repeated peeling; populations are small. */
static void rank_all(member *m, int64_t n)
{
    for (int64_t i = 0; i < n; i++) m[i].rank = -1, m[i].crowding = 0;
    int64_t left = n;
    for (int64_t rank = 0; left > 0; rank++) {
        for (int64_t i = 0; i < n; i++) {
            if (m[i].rank >= 0) continue;
            bool is_front = true;
            for (int64_t j = 0; j < n && is_front; j++)
                is_front = (m[j].rank >= 0 && m[j].rank != rank) || !is_better(&m[j], &m[i]);
            if (is_front) m[i].rank = rank, left--;
        }
    }
}

static int by_rank_bytes(const void *a, const void *b)
{
    const member *const x = a, *const y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    if (x->bytes < y->bytes || x->bytes > y->bytes) return x->bytes < y->bytes ? -1 : 1;
    if (x->power < y->power || x->power > y->power) return x->power < y->power ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

static int by_rank_crowding(const void *a, const void *b)
{
    const member *const x = a, *const y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    if (x->crowding < y->crowding || x->crowding > y->crowding)
        return x->crowding > y->crowding ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

/* Distance to the neighbours in both objectives; on a front one rises while the other falls. */
static void crowd(member *m, int64_t n)
{
    qsort(m, (size_t)n, sizeof *m, by_rank_bytes);
    for (int64_t first = 0, end; first < n; first = end) {
        for (end = first + 1; end < n && m[end].rank == m[first].rank; end++)
            ;
        double const bytes = m[end - 1].bytes - m[first].bytes;
        double const power = fabs(m[first].power - m[end - 1].power);
        m[first].crowding = m[end - 1].crowding = INFINITY;
        for (int64_t i = first + 1; i < end - 1; i++)
            m[i].crowding = (bytes > 0 ? (m[i + 1].bytes - m[i - 1].bytes) / bytes : 0) +
                            (power > 0 ? fabs(m[i - 1].power - m[i + 1].power) / power : 0);
    }
    qsort(m, (size_t)n, sizeof *m, by_rank_crowding);
}

/* ---- genes ---- */

static int32_t draw_gene(population *p, int64_t layer)
{
    uint64_t const i = kv_strategy_draw(&p->random, (uint64_t)p->n_allowed[layer]);
    return p->allowed[layer * p->most + (int64_t)i];
}

static const member *tournament(population *p)
{
    const member *const a = &p->members[kv_strategy_draw(&p->random, (uint64_t)p->size)];
    const member *const b = &p->members[kv_strategy_draw(&p->random, (uint64_t)p->size)];
    return by_rank_crowding(a, b) <= 0 ? a : b;
}

static void make_child(population *p, int32_t *child)
{
    const member *const a = tournament(p), *const b = tournament(p);
    for (int64_t l = 0; l < p->layers; l++) {
        const member *const from = kv_strategy_draw(&p->random, 2) ? a : b;
        bool const is_mutated = kv_strategy_draw(&p->random, (uint64_t)p->layers) == 0;
        child[l] = is_mutated ? draw_gene(p, l) : p->genes[from->row * p->layers + l];
    }
}

/* Measures rows [first, first + size) of the genes into members of the same numbers. */
static kv_status measure(population *p, int64_t first, kv_error *err)
{
    const kv_strategy_task *const t = p->task;
    kv_status const status =
        t->measure(t->context, p->power, p->genes + first * p->layers, p->size, err);
    for (int64_t i = 0; status == KV_OK && i < p->size; i++) {
        int64_t const bytes = kv_problem_bytes(t->problem, p->genes + (first + i) * p->layers);
        double const over =
            isnan(t->error) ? (double)bytes / (double)t->limit - 1 : p->power[i] / t->error - 1;
        p->members[first + i] = (member){.bytes = (double)bytes,
                                         .power = p->power[i],
                                         .violation = over > 0 ? over : 0,
                                         .row = first + i};
    }
    return status;
}

/* The better half of parents and children becomes the first rows, in their order. */
static void survive(population *p)
{
    rank_all(p->members, 2 * p->size);
    crowd(p->members, 2 * p->size);
    for (int64_t i = 0; i < p->size; i++)
        for (int64_t l = 0; l < p->layers; l++)
            p->next_genes[i * p->layers + l] = p->genes[p->members[i].row * p->layers + l];
    for (int64_t i = 0; i < p->size; i++) p->members[i].row = i;
    int32_t *const other = p->genes;
    p->genes = p->next_genes, p->next_genes = other;
}

static kv_status create(population *p, kv_error *err)
{
    kv_status status = KV_OK;
    size_t const rows = 2 * (size_t)p->size, layers = (size_t)p->layers;
    for (int64_t l = 0; l < p->layers; l++)
        if (p->task->problem->layers[l].n_choices > p->most)
            p->most = p->task->problem->layers[l].n_choices;
    KV_TRY(kv_allocate3((void **)&p->allowed, layers, (size_t)p->most, 1, sizeof *p->allowed, err));
    KV_TRY(kv_allocate((void **)&p->n_allowed, layers, sizeof *p->n_allowed, err));
    KV_TRY(kv_allocate3((void **)&p->genes, rows, layers, 1, sizeof *p->genes, err));
    KV_TRY(kv_allocate3((void **)&p->next_genes, rows, layers, 1, sizeof *p->genes, err));
    KV_TRY(kv_allocate((void **)&p->members, rows, sizeof *p->members, err));
    KV_TRY(kv_allocate((void **)&p->power, rows, sizeof *p->power, err));
    for (int64_t l = 0; l < p->layers; l++)
        for (int64_t c = 0; c < p->task->problem->layers[l].n_choices; c++)
            if (kv_problem_dominator(&p->task->problem->layers[l], c) < 0)
                p->allowed[l * p->most + p->n_allowed[l]++] = (int32_t)c;
done:
    return status;
}

/* Where nothing was within the budget, the front is what came nearest. */
static kv_status keep_front(const population *p, int64_t runs, kv_error *err)
{
    kv_status status = KV_OK;
    for (int64_t i = 0; i < p->size; i++)
        if (p->members[i].rank == 0)
            KV_TRY(p->task->keep(p->task->context, "NSGA-II", p->genes + i * p->layers,
                                 p->members[i].power, runs, err));
done:
    return status;
}

kv_status kv_strategy_propose_nsga2(const kv_strategy_task *task, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t const share = task->runs / GENERATIONS;
    population p = {.task = task,
                    .layers = task->problem->n_layers,
                    .size = share < LEAST  ? LEAST
                            : share > MOST ? MOST
                                           : share,
                    .random = {.seed = task->seed}};
    KV_TRY(create(&p, err));
    for (int64_t i = 0; i < p.size; i++)
        for (int64_t l = 0; l < p.layers; l++) p.genes[i * p.layers + l] = draw_gene(&p, l);
    KV_TRY(measure(&p, 0, err));
    rank_all(p.members, p.size);
    crowd(p.members, p.size);
    int64_t runs = p.size;
    for (; runs + p.size <= task->runs || runs < 2 * p.size; runs += p.size) {
        for (int64_t i = 0; i < p.size; i++) make_child(&p, p.genes + (p.size + i) * p.layers);
        KV_TRY(measure(&p, p.size, err));
        survive(&p);
    }
    KV_TRY(keep_front(&p, runs, err));
done:
    kv_free(p.allowed), kv_free(p.n_allowed), kv_free(p.genes), kv_free(p.next_genes);
    kv_free(p.members), kv_free(p.power);
    return status;
}
