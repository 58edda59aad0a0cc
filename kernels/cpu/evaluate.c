/* The CPU backend's entry: fits that span heads, then heads in parallel, or one head after the
 * other with all threads inside. */
#include <omp.h>

#include "kernels/cpu/work.h"
#include "kernels/memory.h"

#define KV_ROW(isa) extern const kv_cpu_kernels kv_cpu_kernels_##isa;
KV_ISA_TABLE(KV_ROW)
#undef KV_ROW

const kv_cpu_kernels *kv_cpu_kernels_of(kv_isa isa)
{
#define KV_ROW(isa) &kv_cpu_kernels_##isa,
    static const kv_cpu_kernels *const tables[] = {KV_ISA_TABLE(KV_ROW)};
#undef KV_ROW
    return tables[isa];
}

static kv_status all_heads(const kv_cpu_plan *plan, int threads, kv_error *err)
{
    kv_status status = KV_OK;
    int64_t const heads = plan->layer->kv_heads;
    int const workers = heads >= threads ? threads : 1, team = heads >= threads ? 1 : threads;
    kv_cpu_work **works = NULL;
    kv_first_error first = {.index = INT64_MAX};
    KV_TRY(kv_allocate((void **)&works, (size_t)workers, sizeof *works, err));
    for (int i = 0; i < workers; i++) KV_TRY(kv_cpu_work_create(&works[i], plan, team, err));
#pragma omp parallel for num_threads(workers) schedule(dynamic) if (workers > 1)
    for (int64_t head = 0; head < heads; head++) {
        int const worker = workers > 1 ? omp_get_thread_num() : 0;
        kv_error error = {0};
        if (kv_first_error_before(&first, head)) continue;
        if (kv_cpu_head(works[worker], head, &error) != KV_OK)
            kv_first_error_keep(&first, head, &error);
    }
    KV_TRY(kv_first_error_end(&first, err));
done:
    for (int i = 0; works && i < workers; i++) kv_cpu_work_free(works[i]);
    kv_free(works);
    return status;
}

static void set_bits(double *out, const int64_t *bits, kv_fit *const *layer_fits, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = (double)(layer_fits[i] ? kv_fit_bits(layer_fits[i]) : bits[i]);
}

kv_status kv_cpu_evaluate_with(const kv_cpu_options *options, const kv_layer *layer,
                               const kv_evaluation *evaluation, int threads, kv_measurements *out,
                               kv_error *err)
{
    kv_status status = KV_OK;
    kv_cpu_plan plan = {0};
    if (threads < 1) threads = 1;
    KV_TRY(kv_cpu_plan_create(&plan, options, layer, evaluation, out, err));
    KV_TRY(kv_fit_layer(plan.layer_keys, &plan.keys, layer, threads, err));
    KV_TRY(kv_fit_layer(plan.layer_values, &plan.values, layer, threads, err));
    KV_TRY(all_heads(&plan, threads, err));
    for (int64_t i = 0; i < out->rows; i++) {
        int64_t const position = layer->query_position[i % layer->queries];
        kv_visible const seen = kv_layer_visible(layer, position);
        out->visible[i] = seen.end - seen.begin;
    }
    set_bits(out->key_bits, plan.key_bits, plan.layer_keys, plan.keys.n);
    set_bits(out->value_bits, plan.value_bits, plan.layer_values, plan.values.n);
done:
    kv_cpu_plan_free(&plan);
    return status;
}

kv_status kv_cpu_evaluate(const kv_layer *layer, const kv_evaluation *evaluation, int threads,
                          kv_measurements *out, kv_error *err)
{
    return kv_cpu_evaluate_with(&(kv_cpu_options){.isa = kv_isa_best()}, layer, evaluation, threads,
                                out, err);
}
