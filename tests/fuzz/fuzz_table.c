/* A table of choices from any bytes: read without harm, and where it is one, what the solver needs
 * of it holds and it is solved, and what it stores is read back to the same choices. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tuner/problem_result.h"
#include "tuner/solution.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds, const char *what, const char *detail)
{
    if (holds) return;
    printf("%s: %s\n", what, detail);
    abort();
}

/* A new file each time: cutting an old one to nothing makes some file systems write to the disk. */
static void write_table(const uint8_t *data, size_t size)
{
    remove("fuzz_table.csv");
    FILE *const file = fopen("fuzz_table.csv", "wb");
    require(file && fwrite(data, 1, size, file) == size && fclose(file) == 0, "fuzz_table.csv",
            "cannot be written");
}

static void check_problem(const kv_problem *p)
{
    require(p->n_layers > 0, "a table", "without layers");
    for (int64_t l = 0; l < p->n_layers; l++) {
        const kv_problem_layer *const layer = &p->layers[l];
        require(layer->n_choices > 0 && layer->n_choices <= KV_KNAPSACK_MAX_OPTIONS, "a layer",
                "has no choices or too many");
        require(l == 0 || layer->number > layer[-1].number, "layers", "do not rise");
        for (int64_t c = 0; c < layer->n_choices; c++) {
            const kv_choice *const x = &layer->choices[c];
            require(x->error >= 0 && x->bytes >= 0, "a choice", "is negative");
            require(x->key >= 0 && x->key < p->keys.n && x->value >= 0 && x->value < p->values.n,
                    "a choice", "of no scheme");
        }
    }
}

/* Through a record and back. */
static void check_record(const kv_problem *p)
{
    kv_record *record = NULL;
    kv_problem *again = NULL;
    kv_error err = {0};
    require(kv_record_create(&record, &err) == KV_OK, "record", err.message);
    require(kv_problem_record(record, p, &err) == KV_OK, "record", err.message);
    require(kv_problem_of_record(&again, record, "again", &err) == KV_OK, "again", err.message);
    require(again->n_layers == p->n_layers, "again", "other layers");
    for (int64_t l = 0; l < p->n_layers; l++) {
        require(again->layers[l].n_choices == p->layers[l].n_choices, "again", "other choices");
        for (int64_t c = 0; c < p->layers[l].n_choices; c++) {
            const kv_choice *const x = &p->layers[l].choices[c];
            int64_t const at =
                kv_problem_find(again, l, p->keys.schemes[x->key], p->values.schemes[x->value]);
            require(at >= 0 && again->layers[l].choices[at].bytes == x->bytes &&
                        again->layers[l].choices[at].error == x->error,
                    "again", "another choice");
        }
    }
    kv_problem_free(again);
    kv_record_free(record);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kv_problem *p = NULL;
    kv_solution *solution = NULL;
    kv_error err = {0};
    kv_solution_request const request = {.is_power = true,
                                         .budget = {.kind = KV_BUDGET_ERROR, .limit = 1}};
    write_table(data, size);
    kv_status status = kv_problem_load(&p, "fuzz_table.csv", &err);
    require(status == KV_OK || (status == KV_EINPUT && *err.message), "a failure without a reason",
            err.message);
    if (status != KV_OK) return 0;
    check_problem(p);
    check_record(p);
    status = kv_solution_create(&solution, p, &request, &err);
    require(status == KV_OK || (status == KV_EREQUEST && *err.message), "not solved", err.message);
    if (status == KV_OK)
        require(!solution->outcome.is_feasible || solution->outcome.policy.additive <= 1 + 1e-11,
                "a policy", "beyond its budget");
    kv_solution_free(solution);
    kv_problem_free(p);
    return 0;
}
