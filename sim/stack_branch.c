/* The decode stack's bookkeeping: runs that agree so far are one state, computed once. */
#include <stdlib.h>

#include "kernels/memory.h"
#include "sim/stack_state.h"

kv_status kv_branches_create(kv_branches *out, const kv_stack_runs *runs, int64_t layers,
                             kv_error *err)
{
    kv_status status = KV_OK;
    kv_branches b = {.n_runs = runs->n_runs, .layers = layers, .runs = runs, .n_states = 1};
    void *state = NULL, *branches = NULL;
    KV_TRY(kv_allocate(&state, (size_t)b.n_runs, sizeof *b.state, err));
    KV_TRY(kv_allocate(&branches, (size_t)b.n_runs + 1, sizeof *b.branches, err));
    b.state = state, b.branches = branches;
    *out = b, state = branches = NULL;
done:
    kv_free(state);
    kv_free(branches);
    return status;
}

void kv_branches_free_contents(kv_branches *b)
{
    kv_free(b->state);
    kv_free(b->branches);
    *b = (kv_branches){0};
}

/* The exact streams, {0, -1, -1, -1}, come first. */
static int by_triple(const void *one, const void *other)
{
    const kv_branch *const a = one, *const b = other;
    if (a->from != b->from) return a->from < b->from ? -1 : 1;
    if (a->key != b->key) return a->key < b->key ? -1 : 1;
    if (a->value != b->value) return a->value < b->value ? -1 : 1;
    return (a->run > b->run) - (a->run < b->run);
}

static bool is_same(const kv_branch *a, const kv_branch *b)
{
    return a->from == b->from && a->key == b->key && a->value == b->value;
}

void kv_branches_step(kv_branches *b, int64_t layer)
{
    kv_branch *const all = b->branches;
    int64_t n = 0;
    all[n++] = (kv_branch){.key = -1, .value = -1, .run = -1};
    for (int64_t r = 0; r < b->n_runs; r++) {
        const int32_t *const pair = b->runs->assignment[r * b->layers + layer];
        if (b->runs->last && b->runs->last[r] < layer) b->state[r] = -1;
        if (b->state[r] >= 0) all[n++] = (kv_branch){b->state[r], pair[0], pair[1], r};
    }
    qsort(all, (size_t)n, sizeof *all, by_triple);
    b->n_states = 1;
    for (int64_t i = 1; i < n; i++) {
        kv_branch const next = all[i];
        if (!is_same(&next, &all[b->n_states - 1])) all[b->n_states++] = next;
        b->state[next.run] = b->n_states - 1;
    }
}
