/* Engines looked up and listed; their table is KV_ENGINES in engine_state.h. */
#include <string.h>

#include "kernels/memory.h"
#include "kernels/shorthand.h"
#include "tuner/engine_state.h"

#define KV_ROW(name) &kv_engine_##name,
static const kv_engine *const engines[] = {KV_ENGINES(KV_ROW)};
#undef KV_ROW
enum { N_ENGINES = sizeof engines / sizeof engines[0] };

const kv_engine *kv_engine_at(size_t index)
{
    return index < N_ENGINES ? engines[index] : NULL;
}

kv_status kv_engine_find(const kv_engine **out, const char *name, kv_error *err)
{
    kv_status status = KV_OK;
    kv_text all = {0};
    const char *names[N_ENGINES];
    for (size_t i = 0; i < N_ENGINES; i++) {
        names[i] = engines[i]->name;
        if (strcmp(names[i], name) == 0) return *out = engines[i], KV_OK;
    }
    const char *const near = kv_closest_name(name, names, N_ENGINES);
    for (size_t i = 0; i < N_ENGINES; i++)
        KV_TRY(kv_text_add(&all, err, "%s%s", i ? ", " : "", names[i]));
    status =
        KV_FAIL(err, KV_EREQUEST, "unknown engine \"%s\"%s%s%s engines: %s", name,
                near ? ", did you mean \"" : ";", near ? near : "", near ? "\"?" : "", all.data);
done:
    kv_text_free(&all);
    return status;
}

const char *kv_engine_shape_about(kv_engine_shape shape)
{
    static const char *const about[] = {
        "one key and one value type for all layers",
        "one type, and 16 bit in a chosen set of layers",
        "one type, another in the first N and another in the last M layers, keys and values apart",
        "any type in any layer"};
    return about[shape];
}

static void list_schemes(FILE *out, const char *tensor, const char *const *schemes)
{
    fprintf(out, "%s", tensor);
    for (size_t i = 0; schemes[i]; i++) fprintf(out, "%s%s", i ? ", " : "", schemes[i]);
}

static void list_type(FILE *out, const kv_engine_type *type)
{
    fprintf(out, "  %-20s ", type->words);
    if (type->refusal) {
        fprintf(out, "refused: %s\n", type->refusal);
        return;
    }
    bool const is_split = type->value[0] != NULL;
    list_schemes(out, is_split ? "keys " : "", type->key);
    if (is_split) list_schemes(out, "; values ", type->value);
    fprintf(out, "\n");
    if (type->note) fprintf(out, "%23snot the same arithmetic: %s\n", "", type->note);
    if (type->needs) fprintf(out, "%23sneeds %s\n", "", type->needs);
}

void kv_engine_list(FILE *out)
{
    for (size_t i = 0; i < N_ENGINES; i++) {
        const kv_engine *const e = engines[i];
        fprintf(out, "%s%s: %s\n  %s%s\n  source: %s\n", i ? "\n" : "", e->name, e->about,
                kv_engine_shape_about(e->shape),
                e->is_tied && e->shape != KV_SHAPE_FREE ? "; keys and values have the same type"
                                                        : "",
                e->source);
        for (size_t t = 0; t < e->n_types; t++) list_type(out, &e->types[t]);
    }
}

void kv_engine_fit_free_contents(kv_engine_fit *fit)
{
    for (int64_t l = 0; fit->layers && l < fit->n_layers; l++) {
        kv_free(fit->layers[l].key_scheme);
        kv_free(fit->layers[l].value_scheme);
    }
    kv_free(fit->layers);
    kv_text_free(&fit->warnings), kv_text_free(&fit->absent);
    *fit = (kv_engine_fit){0};
}
