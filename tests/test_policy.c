/* Policies: every message to the letter (data/policy/NAME.yaml beside NAME.txt), what is written
 * reads back to itself with every digit, unknown numbers stay unknown, layers are sorted, paths and
 * shorthands are made canonical, and reading and writing out of memory end clean. `test_policy
 * update` writes the .txt files anew. */
#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/memory.h"
#include "sim/policy.h"
#include "tests/check.h"

enum { MOST = 1 << 16 };
#define FOLDER KVANT_SOURCE_DIR "/tests/data/policy/"

static size_t read_file(char *out, const char *path)
{
    FILE *const file = fopen(path, "rb");
    size_t length = 0;
    if (file) length = fread(out, 1, MOST - 1, file), fclose(file);
    out[length] = '\0';
    return length;
}

static void write_file(const char *path, const char *text)
{
    FILE *const file = fopen(path, "wb");
    if (file) fputs(text, file), fclose(file);
}

/* ---- broken files ---- */

static void check_broken(const char *name, size_t stem, int is_update)
{
    static char text[MOST], expected[MOST], path[1024];
    kv_policy policy = {0};
    kv_error err = {0};
    snprintf(path, sizeof path, FOLDER "%s", name);
    size_t const length = read_file(text, path);
    kv_status const status = kv_policy_parse(&policy, text, length, name, &err);
    CHECK(status == KV_EREQUEST, "%s: status %d", name, (int)status);
    CHECK(!policy.layers && !policy.title, "%s: set in spite of problems", name);
    kv_policy_free_contents(&policy);
    strncat(err.message, "\n", sizeof err.message - strlen(err.message) - 1);
    snprintf(path, sizeof path, FOLDER "%.*s.txt", (int)stem, name);
    if (is_update) write_file(path, err.message);
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
    CHECK(n >= 11, "%d broken files", n);
}

/* ---- good ones ---- */

/* To the letter what the writer makes of it, except for the order and spelling mended below. */
static const char full[] =
    "kvant_policy: 1\n"
    "title: \"Llama, within 1 %: \\\"tuned\\\"\"\n"
    "model: llama-3.1-8b\n"
    "context: 8192\n"
    "bytes_per_token: 0.2679443359375\n"
    "budget: max_error 0.01\n"
    "budget_met: false\n"
    "complete: false\n"
    "result: /results/out.h5\n"
    "error: {kind: stack_err, budget: 0.01, additive: 0.009300000000000001, verified: 0.0091, "
    "low: 0, high: 4.94065645841247e-324}\n"
    "layers:\n"
    "  - {layer: 0, key: int8/channel, value: int4/token:zero, bytes: 1234, error: 1.2e-05, "
    "kv_heads: 8, head_dim: 128, window: 0, key_absmax: 91.25, value_absmax: 0}\n"
    "  - {layer: 7, key: int2/32x1:zero:scale=f16:flush=128, value: q4_0, bytes: 961, "
    "error: -0.1, window: 512}\n"
    "  - {layer: 1000, key: theirs 4-bit, value: \"a: b\"}\n"
    "provenance: {kvant: 0.1.0, git: 1234abc, config_sha256: 00ff}\n";

static kv_policy parse(const char *text, const char *name)
{
    kv_policy policy = {0};
    kv_error err = {0};
    kv_status const status = kv_policy_parse(&policy, text, strlen(text), name, &err);
    CHECK(status == KV_OK, "%s", err.message);
    return policy;
}

static void check_text(const kv_policy *policy, const char *expected)
{
    kv_error err = {0};
    char *text = NULL;
    CHECK(kv_policy_text(&text, policy, &err) == KV_OK, "%s", err.message);
    if (text) CHECK_TEXT(text, expected);
    kv_free(text);
}

static void check_full(void)
{
    kv_policy p = parse(full, "p.yaml");
    if (!p.n_layers) return;
    check_text(&p, full);
    CHECK(p.n_layers == 3 && p.context == 8192, "%lld layers", (long long)p.n_layers);
    CHECK(kv_policy_bytes(&p) == 2195, "%lld", (long long)kv_policy_bytes(&p));
    CHECK(!p.is_budget_met && !p.is_complete, "flags");
    CHECK(p.additive_error == 0.0093000000000000011 && p.verified_high == 5e-324, "digits");
    const kv_policy_layer *const middle = kv_policy_find(&p, 7), *const last = &p.layers[2];
    CHECK(middle == &p.layers[1] && !kv_policy_find(&p, 6) && !kv_policy_find(&p, -1), "find");
    CHECK(middle->window == 512 && middle->kv_heads == 0 && isnan(middle->key_absmax), "unknown");
    CHECK(last->bytes == 0 && isnan(last->error) && last->window == -1, "unknown");
    CHECK_TEXT(last->key, "theirs 4-bit");
    CHECK_TEXT(p.error_kind, "stack_err");
    kv_policy_free_contents(&p);
    CHECK(!kv_policy_find(&p, 0), "empty");
}

/* A policy written by hand: out of order, schemes in any spelling, a path from its own folder. */
static void check_by_hand(void)
{
    kv_policy p = parse("layers: [{value: f16, key: \"int8/token:scale=f32\", layer: 2},\n"
                        "         {key: int8/1xall, layer: 0, value: int8/chanel}]\n"
                        "kvant_policy: 1\n"
                        "result: out.h5\n",
                        "/some/where/p.yaml");
    if (!p.n_layers) return;
    CHECK_TEXT(p.title, "");
    CHECK(!p.model && !p.budget_text && !p.error_kind && !p.version, "unknown texts");
    CHECK(p.is_budget_met && p.is_complete && isnan(p.budget) && p.context == 0, "unknown");
    check_text(&p, "kvant_policy: 1\n"
                   "budget_met: true\n"
                   "complete: true\n"
                   "result: /some/where/out.h5\n"
                   "layers:\n"
                   "  - {layer: 0, key: int8/token, value: int8/chanel}\n"
                   "  - {layer: 2, key: int8/token, value: f16}\n");
    kv_policy_free_contents(&p);
}

/* ---- files ---- */

static void check_files(const char *folder)
{
    static char path[512], text[MOST];
    kv_error err = {0};
    kv_policy p = parse(full, "p.yaml"), again = {0};
    bool is_policy = false;
    snprintf(path, sizeof path, "%s/p.yaml", folder);
    CHECK(kv_policy_write(path, &p, &err) == KV_OK, "%s", err.message);
    read_file(text, path);
    CHECK_TEXT(text, full);
    CHECK(kv_policy_read(&again, path, &err) == KV_OK, "%s", err.message);
    check_text(&again, full);
    CHECK(kv_policy_probe(&is_policy, path, &err) == KV_OK && is_policy, "is a policy");
    kv_policy_free_contents(&again);

    /* what could not be read back is not written, and the old file stays */
    p.layers[1].layer = 0;
    CHECK(kv_policy_write(path, &p, &err) == KV_EREQUEST, "a layer twice");
    CHECK(strstr(err.message, "p.yaml:13:5: layers: layer 0 is there twice"), "%s", err.message);
    read_file(text, path);
    CHECK_TEXT(text, full);
    p.layers[1].layer = 7;
    err = (kv_error){0};
    kv_free(p.title), p.title = NULL;
    CHECK(kv_duplicate(&p.title, "\xff", &err) == KV_OK, "%s", err.message);
    CHECK(kv_policy_write(path, &p, &err) == KV_EREQUEST, "not UTF-8");
    err = (kv_error){0};
    p.n_layers = 0;
    CHECK(kv_policy_write(path, &p, &err) == KV_EREQUEST, "no layers");
    p.n_layers = 3;
    kv_policy_free_contents(&p);

    err = (kv_error){0};
    p = parse(full, "p.yaml");
    CHECK(kv_policy_write("no/such/p.yaml", &p, &err) == KV_EIO, "no folder");
    kv_policy_free_contents(&p);
    err = (kv_error){0};
    CHECK(kv_policy_read(&p, "no/such.yaml", &err) == KV_EREQUEST, "no file");
    CHECK_TEXT(err.message, "no/such.yaml: cannot open: No such file or directory");
    err = (kv_error){0};
    CHECK(kv_policy_probe(&is_policy, "no/such.yaml", &err) == KV_EREQUEST, "no file");

    static const char *const others[] = {"kvant: 1\n", "[1, 2]\n", "{", ""};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        write_file(path, others[i]);
        err = (kv_error){0}, is_policy = true;
        CHECK(kv_policy_probe(&is_policy, path, &err) == KV_OK && !is_policy, "%s", others[i]);
    }
    unlink(path);
}

/* ---- out of memory ---- */

static void check_memory(const char *folder)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/m.yaml", folder);
    int failures = 0;
    for (long k = 0; k < 100000; k++) {
        kv_error err = {0};
        kv_policy p = {0};
        kv_fail_allocation(k);
        kv_status status = kv_policy_parse(&p, full, strlen(full), "p.yaml", &err);
        if (status == KV_OK) status = kv_policy_write(path, &p, &err);
        kv_fail_allocation(-1);
        CHECK(status == KV_OK || status == KV_ENOMEM, "%d: %s", (int)status, err.message);
        kv_policy_free_contents(&p);
        if (status == KV_OK) break;
        failures++;
    }
    CHECK(failures > 50 && failures < 10000, "%d failures", failures);
    unlink(path);
}

int main(int argc, char **argv)
{
    char folder[] = "/tmp/kvant_test_policy_XXXXXX";
    CHECK(mkdtemp(folder), "no folder");
    check_all_broken(argc > 1 && strcmp(argv[1], "update") == 0);
    check_full();
    check_by_hand();
    check_files(folder);
    check_memory(folder);
    rmdir(folder);
    return check_done();
}
