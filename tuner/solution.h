/* From a problem and a budget to an outcome (outcome.h): the frontier solved, the policy's point
 * chosen, every uniform scheme beside it. Nothing is measured here; who measures fills the verified
 * fields of the policy and the candidates, adds candidates of its own, and picks again.
 *
 *     kv_solution_create(&solution, problem, &request, &err);
 *     ... measure solution->outcome.policy.assignment; kappa = true power / additive power ...
 *     kv_solution_pick(solution, kv_solution_limit(&solution->outcome) / kappa, &err);
 *     kv_outcome_report(stdout, &solution->outcome, &err); */
#ifndef KVANT_TUNER_SOLUTION_H
#define KVANT_TUNER_SOLUTION_H

#include "tuner/outcome.h"

/* Frontiers of more points than this need a resolution; see frontier.h. */
enum { KV_SOLUTION_MAX_POINTS = 100000 };

/* Titles are copied; all other texts and arrays are used as they are and must outlive the outcome.
 */
typedef struct {
    const char *title, *model; /* NULL: none */
    const char *error_kind;    /* NULL: "error" */
    bool is_power;
    int64_t context, elements_per_token; /* as in kv_outcome */
    kv_budget budget;
    int64_t resolution; /* bytes; 0: every point */
    const char *why_not;
    const int64_t *kv_heads, *head_dims, *windows; /* [L] or NULL */
    double *key_absmax, *value_absmax;             /* [L] or NULL */
} kv_solution_request;

typedef struct {
    kv_outcome outcome; /* owned here: frontier, texts, policy, candidates */
    kv_problem_integers integers;
} kv_solution;

/* The policy is the point of least bytes within an error budget, or of least error within a budget
 * on bytes; where none is within, is_feasible is false and the policy is the nearest: of least
 * error, or of least bytes. is_budget_met says the same until something was verified. Limits hold
 * to a relative 1e-12, as decimals have no exact binary form. `problem` must outlive the outcome.
 * KV_EREQUEST: a frontier of more than KV_SOLUTION_MAX_POINTS points, max_bits without known
 * elements. */
kv_status kv_solution_create(kv_solution **out, const kv_problem *problem,
                             const kv_solution_request *request, kv_error *err);
void kv_solution_free(kv_solution *solution);

/* The budget as the additive model has it: a power for budgets on error (MATCH too), else bytes of
 * the table. */
double kv_solution_limit(const kv_outcome *outcome);
bool kv_budget_is_on_error(kv_budget_kind kind);
/* The bytes that a budget on bytes allows all layers, a whole number. */
int64_t kv_solution_byte_limit(const kv_outcome *outcome);

/* Elements that the context's cache holds; 0 unknown. With windows, those stored. */
int64_t kv_outcome_elements(const kv_outcome *outcome);

/* Chooses the policy anew for a limit in the units of kv_solution_limit; its verified fields are
 * NaN again. */
kv_status kv_solution_pick(kv_solution *solution, double limit, kv_error *err);

/* Makes an assignment [L] the policy that lies beside the frontier (a repaired one): outcome.point
 * stays what the additive model chose. */
kv_status kv_solution_set_policy(kv_solution *solution, const int32_t *assignment, kv_error *err);

/* Adds a candidate, with bytes and additive power of its assignment [L] (copied), verified fields
 * NaN. It is the last of outcome.candidates; pointers to earlier ones do not stay valid. */
kv_status kv_solution_add(kv_solution *solution, const char *name, const char *family,
                          const int32_t *assignment, kv_error *err);

#endif
