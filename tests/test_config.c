/* Configurations: every message to the letter (data/config/NAME.yaml beside NAME.txt), the
 * effective configuration reads back to itself, presets and models load, overrides and their order,
 * and a load that runs out of memory anywhere ends clean. `test_config update` writes the .txt
 * files anew. */
#include <dirent.h>
#include <stdlib.h>

#include "kernels/memory.h"
#include "sim/config.h"
#include "sim/heads_keys.h"
#include "tests/check.h"

enum { MOST = 1 << 16 };
#define FOLDER KVANT_SOURCE_DIR "/tests/data/config/"

static const char *const data_dirs[] = {KVANT_SOURCE_DIR "/configs"};
static const kv_config_sources sources = {.data_dirs = data_dirs, .n_data_dirs = 1};

static size_t read_file(char *out, const char *path)
{
    FILE *const file = fopen(path, "rb");
    size_t length = 0;
    if (file) length = fread(out, 1, MOST - 1, file), fclose(file);
    out[length] = '\0';
    return length;
}

/* ---- broken files ---- */

static void check_broken(const char *name, size_t stem, int is_update)
{
    static char text[MOST], expected[MOST], path[1024];
    kv_config config = {0};
    kv_error err = {0};
    snprintf(path, sizeof path, FOLDER "%s", name);
    size_t const length = read_file(text, path);
    kv_status const status = kv_config_read(&config, text, length, name, &sources, &err);
    CHECK(status == KV_EREQUEST, "%s: status %d", name, (int)status);
    kv_config_free_contents(&config);
    strncat(err.message, "\n", sizeof err.message - strlen(err.message) - 1);
    snprintf(path, sizeof path, FOLDER "%.*s.txt", (int)stem, name);
    if (is_update) {
        FILE *const file = fopen(path, "wb");
        if (file) fputs(err.message, file), fclose(file);
    }
    read_file(expected, path);
    CHECK_TEXT(err.message, expected);
}

static void check_all_broken(int is_update)
{
    int n = 0;
    DIR *const folder = opendir(FOLDER);
    CHECK(folder, "%s", FOLDER);
    if (!folder) return;
    for (struct dirent *entry; (entry = readdir(folder));) {
        const char *const suffix = strrchr(entry->d_name, '.');
        if (!suffix || strcmp(suffix, ".yaml") != 0) continue;
        check_broken(entry->d_name, (size_t)(suffix - entry->d_name), is_update);
        n++;
    }
    closedir(folder);
    CHECK(n >= 38, "%d broken files", n);
}

/* Sources that no file can show. */
static void check_other_messages(void)
{
    kv_config config = {0};
    kv_error err = {0};
    CHECK(kv_config_load(&config, "no/such.yaml", NULL, &err) == KV_EREQUEST,
          "a file that is not there");
    CHECK_TEXT(err.message, "no/such.yaml: cannot open: No such file or directory");
    err = (kv_error){0};
    CHECK(kv_config_load(&config, "/", NULL, &err) == KV_EREQUEST, "a directory");
    CHECK_TEXT(err.message, "/: cannot read: Is a directory");

    static const char *const sets[] = {"heads.tokens=4abc", "foo",       "=3", "heads.tokns=3",
                                       "heads.tokens=[1",   "heads..x=1"};
    kv_config_sources const broken = {.sets = sets, .n_sets = 6};
    char *const big = calloc(1, KV_YAML_MAX_BYTES + 1);
    err = (kv_error){0};
    static const char small[] = "kvant: 1\nschemes: [int8/token]\n";
    CHECK(kv_config_read(&config, small, strlen(small), "x.yaml", &broken, &err) == KV_EREQUEST,
          "broken sets");
    CHECK_TEXT(err.message,
               "--set foo: expected KEY=VALUE\n"
               "--set =3: expected KEY=VALUE with a key like heads.tokens\n"
               "--set heads.tokens=[1: the value is not plain YAML, as 3, [1, 2] or {a: 1}\n"
               "--set heads..x=1: expected KEY=VALUE with a key like heads.tokens\n"
               "--set heads.tokens=4abc: heads.tokens: expected an integer, found 4abc\n"
               "--set heads.tokns=3: heads.tokns: unknown key, did you mean \"heads.tokens\"?");
    if (big) {
        memset(big, ' ', KV_YAML_MAX_BYTES + 1);
        err = (kv_error){0};
        CHECK(kv_config_read(&config, big, KV_YAML_MAX_BYTES + 1, "big.yaml", NULL, &err) ==
                  KV_EREQUEST,
              "too large");
        CHECK_TEXT(err.message, "big.yaml: larger than 1 MiB");
    }
    free(big);
}

/* ---- good ones ---- */

static const char rich[] =
    "kvant: 1\n"
    "title: \"every: kind # of thing \\u0085 \\\" \\\\ \\ttab ü\"\n"
    "model: llama-3.1-8b\n"
    "heads:\n"
    "  generator: numpy-pcg64\n"
    "  distribution: laplace\n"
    "  seeds: 5\n"
    "  tokens: 300\n"
    "  layers: 6\n"
    "  queries: 2\n"
    "  outliers: {channels: [7, 23], count: 0, scale: 20.1, bias: -0.30000000000000004}\n"
    "  rope: {layout: interleaved, base: 500000, rotary_dim: 64,\n"
    "         scaling: {type: llama3, factor: 8, original_length: 8192}}\n"
    "  query: {gain: 2, position: [100, 299], classes: {isotropic: 1, needle: 1}}\n"
    "  sinks: {count: 4, key_gain: 0.1, value_gain: 0.2, mass: 0.5}\n"
    "  drift: {kind: log, rate: 0.1}\n"
    "  profile:\n"
    "    - {layers: 0-1, window: 64}\n"
    "    - {layers: [2, 4], outliers: {bias: {from: 1, to: 3}}, outliers.channels: [5]}\n"
    "    - {layers: all, query.gain: {from: 1, to: 2}}\n"
    "schemes:\n"
    "  - kivi-2\n"
    "  - {name: \"a, b\", key: \"int4/1x64:hadamard=64+signs:zero\", value: q4_0}\n"
    "  - int8/token\n"
    "  - int8/channel:pre-rope | f16\n"
    "  - {layers: {4: [f16, f16], 0-1: [int8/channel, \"int4/1xall:zero\"], 2: [int8/channel,\n"
    "      int4/token:zero], 3: [int8/channel, f16], 5-7: [f16, f16]}, name: by layer}\n"
    "baseline: a, b\n"
    "sweep:\n"
    "  heads.outliers.scale: [1, 5.5, 1e3]\n"
    "  heads.distribution: [normal, uniform]\n"
    "  heads.query.position: [[1, 2], []]\n"
    "metrics: all\n";

/* Reads, prints, reads that and prints again. */
static void check_round_trip(const char *text, const char *name, const kv_config_sources *from)
{
    kv_config first = {0}, second = {0};
    kv_error err = {0};
    char *once = NULL, *twice = NULL;
    CHECK(kv_config_read(&first, text, strlen(text), name, from, &err) == KV_OK, "%s", err.message);
    if (err.status == KV_OK) {
        CHECK(kv_config_text(&once, &first, &err) == KV_OK, "%s", err.message);
        CHECK(kv_config_read(&second, once, strlen(once), "again.yaml", NULL, &err) == KV_OK, "%s",
              err.message);
        CHECK(kv_config_text(&twice, &second, &err) == KV_OK, "%s", err.message);
        if (once && twice) CHECK_TEXT(twice, once);
    }
    kv_free(once), kv_free(twice);
    kv_config_free_contents(&first), kv_config_free_contents(&second);
}

static void check_values(void)
{
    kv_config c = {0};
    kv_heads_config h = {0};
    kv_error err = {0};
    CHECK(kv_config_read(&c, rich, strlen(rich), "rich.yaml", &sources, &err) == KV_OK, "%s",
          err.message);
    if (err.status != KV_OK) return;
    CHECK_TEXT(c.title, "every: kind # of thing \xc2\x85 \" \\ \ttab ü");
    CHECK_TEXT(c.model, "llama-3.1-8b");
    CHECK(c.heads.seeds.count == 5 && c.heads.seeds.items[4] == 4, "seeds: 5");
    CHECK(c.heads.kv_heads == 8 && c.heads.query_heads == 32, "from the model");
    CHECK(c.n_schemes == 5 && c.baseline == 1, "schemes");
    CHECK_TEXT(c.schemes[0].name, "kivi-2");
    CHECK_TEXT(c.schemes[2].name, "int8/token | int8/token");
    CHECK_TEXT(c.schemes[3].name, "int8/channel:pre-rope | f16");
    CHECK_TEXT(c.schemes[4].key_text, "per layer");
    CHECK_TEXT(kv_scheme_at(&c.schemes[4], 1).value_text, "int4/token:zero");
    CHECK(c.schemes[4].n_layers == 8 && !kv_scheme_at(&c.schemes[4], 8).key, "layers");
    CHECK(kv_scheme_at(&c.schemes[2], 8).key == &c.schemes[2].key, "all layers alike");
    CHECK(c.n_axes == 3 && c.axes[0].numbers && !c.axes[1].numbers && !c.axes[2].numbers, "axes");
    CHECK_TEXT(c.axes[0].texts[2], "1000");
    CHECK_TEXT(c.axes[2].texts[0], "[1, 2]");
    CHECK_TEXT(c.axes[0].unit, "sigma");
    CHECK(kv_config_points(&c) == 12, "points");
    int64_t index[KV_CONFIG_MAX_AXES];
    kv_config_point(&c, 7, index);
    CHECK(index[0] == 1 && index[1] == 1 && index[2] == 1, "the last axis runs fastest");
    CHECK(kv_config_layer(&h, &c, index, 4, &err) == KV_OK, "%s", err.message);
    CHECK(h.outliers.scale == 5.5 && h.distribution == KV_UNIFORM && !h.query_position.count,
          "the point");
    CHECK(h.outliers.bias == 3 && h.outliers.channels.count == 1 && h.window == 0, "the layer");
    CHECK(h.query_gain == 1.8, "a line from layer 0 to 5: %g", h.query_gain);
    kv_heads_config_free_contents(&h);
    CHECK(kv_config_layer(&h, &c, index, 1, &err) == KV_OK, "%s", err.message);
    CHECK(h.window == 64 && h.outliers.bias == -0.30000000000000004, "another layer");
    kv_heads_config_free_contents(&h);
    kv_config_free_contents(&c);
}

/* A model's profile gives way to what the file, --set or the sweep says. */
static void check_order(void)
{
    static const char plain[] = "kvant: 1\nmodel: gemma-3-1b\nheads: {layers: 12, tokens: 64}\n"
                                "schemes: [int8/token]\n";
    static const char *const sets[] = {"heads.window=7", "heads.tokens=32", "title=a title",
                                       "sweep.heads.outliers.scale=[1, 2]"};
    for (int n = 0; n <= 4; n += 4) {
        kv_config_sources const from = {
            .sets = sets, .n_sets = (size_t)n, .data_dirs = data_dirs, .n_data_dirs = 1};
        kv_config c = {0};
        kv_heads_config h = {0};
        kv_error err = {0};
        int64_t const index[KV_CONFIG_MAX_AXES] = {0};
        CHECK(kv_config_read(&c, plain, strlen(plain), "plain.yaml", &from, &err) == KV_OK, "%s",
              err.message);
        if (err.status != KV_OK) return;
        CHECK(kv_config_layer(&h, &c, index, 5, &err) == KV_OK, "%s", err.message);
        CHECK(h.tokens == (n ? 32 : 64), "tokens %d", (int)h.tokens);
        CHECK(h.window == (n ? 7 : 0), "window %d: layer 5 sees everything", (int)h.window);
        CHECK(kv_config_points(&c) == (n ? 2 : 1), "points");
        CHECK_TEXT(c.title, n ? "a title" : "");
        CHECK(h.head_dim == 256, "from the model");
        kv_heads_config_free_contents(&h);
        CHECK(kv_config_layer(&h, &c, index, 0, &err) == KV_OK, "%s", err.message);
        CHECK(h.window == (n ? 7 : 512), "window %d: layer 0 slides", (int)h.window);
        kv_heads_config_free_contents(&h);
        kv_config_free_contents(&c);
    }
}

/* Captures: paths start at the file's directory, those of --set at the current one. */
static void check_captures(void)
{
    static const char map[] =
        "kvant: 1\nheads:\n  generator: capture\n  layers: [0, 3]\n  capture:\n"
        "    key_position: pre-rope\n    window: 8\n    layers:\n"
        "      3: {key: k3.npy, value: \"m.safetensors:v,3\"}\n"
        "      0: {key: /abs/k.npy, value: v.npy, query: q.npy}\n"
        "schemes: [int8/token]\n";
    kv_config c = {0};
    kv_error err = {0};
    CHECK(kv_config_read(&c, map, strlen(map), "/data/map.yaml", &sources, &err) == KV_OK, "%s",
          err.message);
    if (err.status != KV_OK) return;
    const kv_capture_map *const m = &c.heads.capture_map;
    CHECK(m->count == 2 && m->is_pre_rope && m->window == 8 && m->files[0].layer == 0, "the map");
    CHECK_TEXT(m->files[0].key, "/abs/k.npy");
    CHECK_TEXT(m->files[1].value, "/data/m.safetensors:v,3");
    CHECK(!m->files[1].query && c.heads.capture_layers.count == 2, "the map");
    kv_config_free_contents(&c);
    check_round_trip(map, "/data/map.yaml", &sources);

    static const char *const sets[] = {"heads.capture=/tmp/x.h5"};
    kv_config_sources const from = {.sets = sets, .n_sets = 1};
    CHECK(kv_config_read(&c, map, strlen(map), "map.yaml", &from, &err) == KV_OK, "%s",
          err.message);
    if (err.status != KV_OK) return;
    CHECK(!c.heads.capture_map.count, "a path replaces a map");
    CHECK_TEXT(c.heads.capture, "/tmp/x.h5");
    kv_config_free_contents(&c);
}

static void check_matrix(void)
{
    static const char text[] =
        "kvant: 1\nschemes: {keys: [int8/token, f16], values: [int8/token, q4_0, f32]}\n";
    kv_config c = {0};
    kv_error err = {0};
    CHECK(kv_config_read(&c, text, strlen(text), "m.yaml", NULL, &err) == KV_OK, "%s", err.message);
    if (err.status != KV_OK) return;
    CHECK(c.n_schemes == 6 && c.baseline == -1, "%d schemes", (int)c.n_schemes);
    CHECK_TEXT(c.schemes[5].name, "f16 | f32");
    CHECK(c.n_metrics == 4, "default metrics");
    kv_config_free_contents(&c);
}

/* ---- data ---- */

static void check_data(void)
{
    kv_preset *presets = NULL;
    kv_model *models = NULL;
    size_t n = 0, n_models = 0;
    kv_error err = {0};
    CHECK(kv_presets_load(&presets, &n, data_dirs, 1, &err) == KV_OK, "%s", err.message);
    CHECK(n >= 40, "%zu presets", n);
    for (size_t i = 0; i < n; i++) {
        kv_scheme found = {0};
        CHECK(*presets[i].about && *presets[i].source, "%s", presets[i].scheme.name);
        CHECK(kv_scheme_find(&found, presets[i].scheme.name, data_dirs, 1, &err) == KV_OK, "%s",
              err.message);
        for (int64_t d = 64; d <= 256; d *= 2) { /* the head dimensions of current models */
            kv_tensor_shape const shape = {.heads = 8, .tokens = 1024, .head_dim = d};
            CHECK(kv_quantizer_check(&found.key, &shape, &err) == KV_OK, "%s", err.message);
            CHECK(kv_quantizer_check(&found.value, &shape, &err) == KV_OK, "%s", err.message);
        }
        kv_scheme_free_contents(&found);
    }
    CHECK(kv_models_load(&models, &n_models, data_dirs, 1, &err) == KV_OK, "%s", err.message);
    for (size_t i = 0; i < n_models; i++) {
        char text[256];
        snprintf(text, sizeof text, "kvant: 1\nmodel: %s\nschemes: [kivi-2]\n", models[i].name);
        check_round_trip(text, "model.yaml", &sources);
    }
    kv_presets_free(presets, n);
    kv_models_free(models, n_models);
}

static void check_sweeps(void)
{
    DIR *const folder = opendir(KVANT_SOURCE_DIR "/configs/sweeps");
    if (!folder) return;
    static char text[MOST], path[1024];
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, KVANT_SOURCE_DIR "/configs/sweeps/%s", entry->d_name);
        read_file(text, path);
        check_round_trip(text, path, &sources);
    }
    closedir(folder);
}

static void check_keys(void)
{
    kv_key_description key;
    size_t n = 0;
    for (; kv_config_describe_key(&key, n); n++) CHECK(*key.path && *key.help, "key %zu", n);
    CHECK(n == 5 + KV_HEADS_KEYS + 4, "%zu keys", n);
}

/* ---- memory ---- */

static void check_allocation_failures(void)
{
    static const char *const sets[] = {"heads.seeds=[1, 2, 3]",
                                       "heads.profile=[{layers: 0, window: 3}]"};
    kv_config_sources const from = {
        .sets = sets, .n_sets = 2, .data_dirs = data_dirs, .n_data_dirs = 1};
    kv_status status = KV_ENOMEM;
    long k = 0;
    for (; status == KV_ENOMEM && k < 100000; k++) {
        kv_config c = {0};
        kv_error err = {0};
        char *text = NULL;
        kv_fail_allocation(k);
        status = kv_config_read(&c, rich, strlen(rich), "rich.yaml", &from, &err);
        if (status == KV_OK) status = kv_config_text(&text, &c, &err);
        kv_fail_allocation(-1);
        CHECK(status == KV_OK || status == KV_ENOMEM, "failure %ld: %s", k, err.message);
        kv_free(text);
        kv_config_free_contents(&c);
    }
    CHECK(status == KV_OK && k > 500, "%ld allocations", k);
    for (k = 0, status = KV_ENOMEM; status == KV_ENOMEM; k++) {
        kv_preset *presets = NULL;
        size_t n = 0;
        kv_fail_allocation(k);
        status = kv_presets_load(&presets, &n, data_dirs, 1, NULL);
        kv_fail_allocation(-1);
        kv_presets_free(presets, n);
    }
}

int main(int argc, char **argv)
{
    check_all_broken(argc > 1 && strcmp(argv[1], "update") == 0);
    check_other_messages();
    check_round_trip(rich, "rich.yaml", &sources);
    check_values();
    check_order();
    check_captures();
    check_matrix();
    check_data();
    check_sweeps();
    check_keys();
    check_allocation_failures();
    return check_done();
}
