/* A policy file in the words of a serving engine: see export_file.h. */
#include "tuner/export_file.h"

#include "kernels/file.h"

static kv_status check_outputs(const kv_export_request *r, const kv_policy *policy, kv_error *err)
{
    kv_status status = KV_OK;
    const char *const outputs[] = {r->output, r->options.scales};
    const char *const inputs[] = {r->policy, r->options.table, policy->result};
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 3 && outputs[i]; k++)
            KV_TRY(kv_file_refuse_input(outputs[i], inputs[k], err));
done:
    return status;
}

kv_status kv_export_file(FILE *out, FILE *notes, bool *is_feasible,
                         const kv_export_request *request, kv_error *err)
{
    kv_status status = KV_OK;
    kv_policy policy = {0};
    kv_text text = {0};
    KV_TRY(kv_policy_read(&policy, request->policy, err));
    KV_TRY(check_outputs(request, &policy, err));
    KV_TRY(kv_engine_export(&text, notes, is_feasible, request->engine, &policy, &request->options,
                            err));
    if (request->output)
        KV_TRY(kv_file_replace(request->output, text.data, text.length, err));
    else
        fputs(text.data, out);
done:
    kv_text_free(&text);
    kv_policy_free_contents(&policy);
    return status;
}
