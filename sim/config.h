/* The configuration of one experiment: a YAML file, `--set` overrides, presets and model files,
 * read into one checked struct. All errors of a file are reported at once, a line each, as
 * file:line:column: key: what is wrong, what is allowed.
 *
 *     kv_config config = {0};
 *     const char *dirs[] = {"configs"};
 *     kv_config_sources from = {.data_dirs = dirs, .n_data_dirs = 1};
 *     if (kv_config_load(&config, "sweep.yaml", &from, &err) != KV_OK) puts(err.message);
 *     kv_heads_config heads = {0};
 *     int64_t index[KV_CONFIG_MAX_AXES];
 *     kv_config_point(&config, 0, index);
 *     kv_config_layer(&heads, &config, index, layer, &err);   // sweep point, then profile, applied
 *     kv_heads_config_free_contents(&heads);
 *     kv_config_free_contents(&config);
 *
 * Later wins: table defaults, the model file's heads, the file's heads, --set, the sweep point, the
 * layer's profile. A key that a model's profile sets is left alone where the file, --set or the
 * sweep names it. Paths in a file are relative to that file, in --set to the current directory;
 * they are made absolute. Nothing here is thread-local or global; a loaded config is read-only. */
#ifndef KVANT_SIM_CONFIG_H
#define KVANT_SIM_CONFIG_H

#include <stdio.h>

#include "sim/heads.h"
#include "sim/scheme.h"
#include "sim/yaml.h"

enum {
    KV_CONFIG_MAX_AXES = 8,
    KV_CONFIG_MAX_VALUES = 10000, /* of one axis */
    KV_CONFIG_MAX_POINTS = 100000,
    KV_CONFIG_MAX_SCHEMES = 4096,
    KV_CONFIG_MAX_UNITS = 10000000 /* points x layers x seeds */
};

/* One swept key and the values it takes. */
typedef struct {
    char *path; /* "heads.outliers.scale" */
    char *unit; /* from the key table, "" for none */
    int64_t count;
    char **texts;    /* [count] as the effective configuration prints them */
    double *numbers; /* [count], or NULL unless every value is a number */
} kv_axis;

/* One key that a profile sets for some layers: to a value, or along a line between two numbers. */
typedef struct {
    bool is_all;         /* every layer */
    int64_t first, last; /* a range, used where `layers` is empty and not is_all */
    kv_int_list layers;  /* or these */
    char *path;          /* within heads: "outliers.scale" */
    char *text;          /* the value; NULL for a curve */
    double from, to;     /* a curve: `from` at the first of its layers, `to` at the last */
} kv_profile_setting;

typedef struct {
    char *title;
    char *model; /* whose file gave defaults for heads; NULL for none */
    kv_heads_config heads;
    int64_t n_profile;
    kv_profile_setting *profile;
    int64_t n_schemes;
    kv_scheme *schemes;
    int64_t baseline; /* index into schemes; -1 for none */
    int64_t n_axes;
    kv_axis *axes;
    int64_t n_metrics;
    char **metrics; /* names of sim/metrics.h; never empty */
} kv_config;

/* A further top-level section that another room owns (the tuner's `tune:`). `read` adds what is
 * wrong to `problems` and returns a failure only for what is nobody's mistake (memory). */
typedef struct {
    const char *name;
    void *context;
    kv_status (*read)(void *context, const kv_yaml_node *node, kv_problems *problems,
                      kv_error *err);
} kv_config_section;

/* What is read besides the file. Zero is valid. */
typedef struct {
    const char *const *sets; /* "heads.tokens=1024"; values are YAML, lists and mappings too */
    size_t n_sets;
    const char *const *data_dirs; /* each may hold schemes/NAME.yaml and models/NAME.yaml */
    size_t n_data_dirs;
    const kv_config_section *sections;
    size_t n_sections;
} kv_config_sources;

/* KV_EREQUEST with every error of the file, or where it is not there; KV_EIO where reading fails.
 */
kv_status kv_config_load(kv_config *out, const char *path, const kv_config_sources *sources,
                         kv_error *err);

/* The same from memory; `name` stands for the file in messages, relative paths start at its
 * directory. */
kv_status kv_config_read(kv_config *out, const char *text, size_t length, const char *name,
                         const kv_config_sources *sources, kv_error *err);

void kv_config_free_contents(kv_config *config);

/* The number of sweep points (1 without axes), and the axis indices [n_axes] of one; the last axis
 * runs fastest. */
int64_t kv_config_points(const kv_config *config);
void kv_config_point(const kv_config *config, int64_t point, int64_t *index);

/* The heads of one layer at one sweep point, index [n_axes]. Owned by the caller. With a capture,
 * `layer` is the layer's number in the capture file. */
kv_status kv_config_layer(kv_heads_config *out, const kv_config *config, const int64_t *index,
                          int64_t layer, kv_error *err);

/* The effective configuration as YAML: every key, presets and models resolved; it reads back to the
 * same configuration. Caller frees. */
kv_status kv_config_text(char **out, const kv_config *config, kv_error *err);

/* A key that a configuration may hold, as `kvant list keys` prints it. */
typedef struct {
    char path[64];    /* "heads.outliers.scale" */
    const char *type; /* "int", "real", "one of", "list of int" ... */
    char preset[64];  /* the default as text, "required" or "" */
    char range[192];  /* "1 to 1e+09", or the choices */
    const char *unit, *help;
} kv_key_description;

/* Keys in the order of the file; false past the end. */
bool kv_config_describe_key(kv_key_description *out, size_t index);

/* One key, and all of a configuration without sections of other modules, under a heading. */
void kv_key_description_print(FILE *out, const kv_key_description *key);
void kv_config_list_keys(FILE *out);

/* A model file DIR/models/NAME.yaml: `about`, `source` and the `heads` it gives. */
typedef struct {
    char *name, *about, *source;
} kv_model;

/* Those of all data directories, sorted by name. Caller frees. */
kv_status kv_models_load(kv_model **out, size_t *count, const char *const *data_dirs,
                         size_t n_data_dirs, kv_error *err);
void kv_models_free(kv_model *models, size_t count);

/* Their names, what they are and where that is from. */
kv_status kv_models_list(FILE *out, const char *const *data_dirs, size_t n_data_dirs,
                         kv_error *err);

#endif
