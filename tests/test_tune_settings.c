/* What a tuning is told and what it keeps: the `tune:` section, and the cache of measurements. */
#include <fcntl.h>
#include <sys/stat.h>

#include "tests/tune_bench.h"
#include "tuner/cache.h"

/* ---- the cache ---- */

static void test_cache(void)
{
    kv_error err = {0};
    kv_cache *cache = NULL, *other = NULL;
    char path[128];
    uint8_t key[4][KV_CACHE_KEY];
    double values[3] = {1.5, -0.0, INFINITY}, found[3];
    path_of(path, "small.cache");
    unlink(path);
    for (int i = 0; i < 4; i++) {
        char text[16];
        snprintf(text, sizeof text, "%d", i);
        kv_cache_key(key[i], text);
    }
    CHECK(kv_cache_open(&cache, path, &err) == KV_OK, "%s", err.message);
    CHECK(!kv_cache_get(found, cache, key[0], 3), "empty");
    for (int i = 0; i < 3; i++)
        CHECK(kv_cache_put(cache, key[i], values, i + 1, &err) == KV_OK, "%s", err.message);
    CHECK(kv_cache_get(found, cache, key[2], 3) && memcmp(found, values, sizeof found) == 0, "3");
    CHECK(!kv_cache_get(found, cache, key[2], 2), "another length");
    CHECK(kv_cache_put(cache, key[3], values, 0, &err) == KV_EREQUEST, "nothing");
    CHECK_TEXT(err.message, "0 numbers cannot be kept");
    err = (kv_error){0};
    CHECK(kv_cache_open(&other, path, &err) == KV_EREQUEST, "locked");
    CHECK(strstr(err.message, ": another process is working on this tuning"), "%s", err.message);
    kv_cache_close(cache), cache = NULL;
    struct stat info;
    CHECK(stat(path, &info) == 0, "size");
    for (off_t size = info.st_size; size >= 0; size--) { /* torn everywhere */
        err = (kv_error){0};
        CHECK(truncate(path, size) == 0, "truncate");
        CHECK(kv_cache_open(&cache, path, &err) == KV_OK, "%lld: %s", (long long)size, err.message);
        int64_t const records = size >= 200 ? 3 : size >= 128 ? 2 : size >= 64 ? 1 : 0;
        CHECK(kv_cache_count(cache) == records, "%lld bytes: %lld", (long long)size,
              (long long)kv_cache_count(cache));
        kv_cache_close(cache), cache = NULL;
    }
    /* what is put after a torn record is found again */
    CHECK(kv_cache_open(&cache, path, &err) == KV_OK, "%s", err.message);
    CHECK(kv_cache_put(cache, key[0], values, 1, &err) == KV_OK, "%s", err.message);
    CHECK(kv_cache_put(cache, key[1], values, 2, &err) == KV_OK, "%s", err.message);
    kv_cache_close(cache), cache = NULL;
    CHECK(truncate(path, 8 + 56 + 60) == 0, "truncate");
    CHECK(kv_cache_open(&cache, path, &err) == KV_OK, "%s", err.message);
    CHECK(kv_cache_put(cache, key[3], values, 3, &err) == KV_OK, "%s", err.message);
    kv_cache_close(cache), cache = NULL;
    CHECK(kv_cache_open(&cache, path, &err) == KV_OK, "%s", err.message);
    CHECK(kv_cache_count(cache) == 2 && kv_cache_get(found, cache, key[3], 3), "appended");
    kv_cache_close(cache), cache = NULL;
    /* a damaged record in the middle costs only itself */
    unlink(path), err = (kv_error){0};
    CHECK(kv_cache_open(&cache, path, &err) == KV_OK, "%s", err.message);
    for (int i = 0; i < 3; i++) CHECK(kv_cache_put(cache, key[i], values, 1, &err) == KV_OK, "put");
    kv_cache_close(cache), cache = NULL;
    int const fd = open(path, O_RDWR);
    CHECK(fd >= 0 && pwrite(fd, "x", 1, 8 + 56 + 30) == 1, "damage");
    close(fd);
    CHECK(kv_cache_open(&cache, path, &err) == KV_OK, "%s", err.message);
    CHECK(kv_cache_count(cache) == 2 && !kv_cache_get(found, cache, key[1], 1) &&
              kv_cache_get(found, cache, key[2], 1),
          "damaged");
    kv_cache_close(cache), cache = NULL;
    FILE *const f = fopen(path, "w");
    CHECK(f && fputs("not a cache of mine", f) >= 0 && fclose(f) == 0, "write");
    CHECK(kv_cache_open(&cache, path, &err) == KV_EINPUT, "no cache");
    CHECK(strstr(err.message, " is in the way: not the measurements of a tuning"), "%s",
          err.message);
    CHECK(stat(path, &info) == 0 && info.st_size == 19, "never overwritten");
    unlink(path), err = (kv_error){0};
    CHECK(kv_cache_open(&cache, "no/such/folder/x", &err) == KV_EIO, "no folder");
    CHECK_TEXT(err.message, "opening no/such/folder/x: No such file or directory");
    err = (kv_error){0};
    CHECK(kv_cache_open(&cache, NULL, &err) == KV_OK, "in memory");
    CHECK(kv_cache_put(cache, key[0], values, 3, &err) == KV_OK && kv_cache_count(cache) == 1, "1");
    for (int i = 0; i < 2000; i++) {
        char text[16];
        snprintf(text, sizeof text, "n%d", i);
        kv_cache_key(key[3], text);
        values[0] = i;
        CHECK(kv_cache_put(cache, key[3], values, 1, &err) == KV_OK, "put");
    }
    bool is_all = kv_cache_count(cache) == 2001;
    for (int i = 0; i < 2000; i++) {
        char text[16];
        snprintf(text, sizeof text, "n%d", i);
        kv_cache_key(key[3], text);
        is_all &= kv_cache_get(found, cache, key[3], 1) && found[0] < i + 0.5 && found[0] > i - 0.5;
    }
    CHECK(is_all, "two thousand");
    kv_cache_close(cache);
}

/* ---- settings ---- */

static void test_settings_errors(void)
{
    static const struct {
        const char *tune, *message;
    } cases[] = {
        {"tune: {max_eror: 1}", "t.yaml:12:8: tune.max_eror: unknown key, did you mean "
                                "\"tune.max_error\"?"},
        {"tune: {max_error: 0}", "t.yaml:12:19: tune.max_error: 0 is outside 1e-30 to 1e+30"},
        {"tune: {max_error: 1, match: q4_0}",
         "t.yaml:12:29: tune.match: max_error is given already; one budget only"},
        {"tune: {match: kivi-9}",
         "t.yaml:12:15: tune.match: \"kivi-9\": no such preset, did you mean \"kivi-2\"?"},
        {"tune: {effort: all}", "t.yaml:12:16: tune.effort: unknown value \"all\"; choose one of: "
                                "estimate, measure, patient, exhaustive"},
        {"tune: {held_out: 8}", "t.yaml:12:18: tune.held_out: 8 is outside 16 to 4096 seeds"},
        {"tune: {pin: [f16]}",
         "t.yaml:12:13: tune.pin: expected {LAYER: [KEY, VALUE]}, found a list"},
        {"tune: {pin: {x: [f16, f16]}}",
         "t.yaml:12:14: tune.pin: expected the number of a layer, found x"},
        {"tune: {pin: {0: f16}}", "t.yaml:12:17: tune.pin.0: expected [KEY, VALUE]"},
        {"tune: {pin: {0: [f16, [a]]}}", "t.yaml:12:23: tune.pin: expected a scheme, found a list"},
        {"tune: {forbid: f16}",
         "t.yaml:12:16: tune.forbid: expected a list of schemes and {layer, key, value}, found a "
         "scalar"},
        {"tune: {forbid: [{layer: 1}]}",
         "t.yaml:12:17: tune.forbid: needs a key or a value scheme"},
        {"tune: {baselines: [nsga]}",
         "t.yaml:12:20: tune.baselines: unknown baseline \"nsga\", did you mean \"nsga2\"?"},
        {"tune: {baselines: all}",
         "t.yaml:12:19: tune.baselines: expected a list of names, found a "
         "scalar"},
        {"tune: 3", "t.yaml:12:7: tune: expected a mapping of keys, found a scalar"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bench b = {0};
        CHECK(!load(&b, small_heads, cases[i].tune) && b.status == KV_EREQUEST, "%s",
              cases[i].tune);
        CHECK_TEXT(b.err.message, cases[i].message);
        finish(&b);
    }
}

static void test_create_errors(void)
{
    static const struct {
        const char *tune, *message;
    } cases[] = {
        {"tune: {effort: measure}",
         "tune: no budget; give one of max_error, max_bytes_per_token, max_bits or match"},
        {"tune: {max_bits: 4}\nsweep: {heads.tokens: [64, 128]}",
         "sweep: a tuning is of one point; run one for each value with --set"},
        {"tune: {max_bits: 4, baselines: [], pin: {9: [f16, f16]}}",
         "tune: pin: there is no layer 9; the table has 4 layers, 0 to 3"},
        {"tune: {max_bits: 4, baselines: [], forbid: [int5/token]}",
         "tune: forbid: the table has no key scheme \"int5/token\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bench b = {0};
        if (load(&b, small_heads, cases[i].tune)) {
            run(&b, 1, NULL);
            CHECK(b.status == KV_EREQUEST, "%s", cases[i].tune);
            CHECK_TEXT(b.err.message, cases[i].message);
        } else
            CHECK(false, "%s", b.err.message);
        finish(&b);
    }
}

static void test_settings_text(void)
{
    static const char tune_text[] =
        "tune:\n"
        "  match: q4_0\n"
        "  context: 512\n"
        "  effort: patient\n"
        "  streams: 3\n"
        "  held_out: 20\n"
        "  key_at_least_value: true\n"
        "  resolution: 64\n"
        "  pin: {0: [f16, f16], 2: [q8_0, q4_0]}\n"
        "  forbid: ['int2/32x1:zero', q4_0 | q4_0, {layer: 3, key: q4_0}, {value: f16}]\n"
        "  baselines: [random, uniform]\n";
    static const char expected[] = "tune:\n"
                                   "  match: q4_0 | q4_0\n"
                                   "  context: 512\n"
                                   "  effort: patient\n"
                                   "  streams: 3\n"
                                   "  held_out: 20\n"
                                   "  key_at_least_value: true\n"
                                   "  resolution: 64\n"
                                   "  table: \"\"\n"
                                   "  pin:\n"
                                   "    0: [f16, f16]\n"
                                   "    2: [q8_0, q4_0]\n"
                                   "  forbid:\n"
                                   "    - int2/32x1:zero\n"
                                   "    - {key: q4_0, value: q4_0}\n"
                                   "    - {layer: 3, key: q4_0}\n"
                                   "    - {value: f16}\n"
                                   "  baselines: [uniform, random]\n";
    bench b = {0}, again = {0};
    kv_text text = {0}, second = {0};
    CHECK(load(&b, small_heads, tune_text), "%s", b.err.message);
    CHECK(kv_tune_settings_text(&text, &b.settings, &b.err) == KV_OK, "%s", b.err.message);
    CHECK_TEXT(text.data, expected);
    CHECK(load(&again, small_heads, text.data), "%s", again.err.message);
    CHECK(kv_tune_settings_text(&second, &again.settings, &again.err) == KV_OK, "text");
    CHECK_TEXT(second.data, expected);
    kv_text_free(&text), kv_text_free(&second);
    finish(&b), finish(&again);
    kv_key_description key;
    size_t n = 0;
    while (kv_tune_describe_key(&key, n)) n++;
    CHECK(n == 14, "%zu keys", n);
}

int main(void)
{
    test_cache();
    test_settings_errors();
    test_settings_text();
    test_create_errors();
    return check_done();
}
