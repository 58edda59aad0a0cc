/* The store: what is written comes back; equal records give equal bytes; damaged, truncated and
 * foreign files give one clean error; a failed write leaves the old file and no rubbish. */
#include <dirent.h>
#include <hdf5.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/file.h"
#include "kernels/hdf5_lock.h"
#include "kernels/memory.h"
#include "results/interval.h"
#include "results/provenance.h"
#include "results/sha256.h"
#include "results/store.h"
#include "tests/check.h"

#define MUST(call) CHECK((call) == KV_OK, "%s", err.message)

static kv_record *example(int64_t tokens)
{
    static const char *const schemes[] = {"K+V per-tensor INT8", "", "2\xc3\xa9"};
    kv_error err = {0};
    kv_record *r = NULL;
    double *t = calloc((size_t)tokens, sizeof *t);
    for (int64_t i = 0; i < tokens; i++) t[i] = (double)(1024 + i);
    MUST(kv_record_create(&r, &err));
    MUST(kv_record_add_dimension(
        r, &(kv_dimension_spec){.name = "scheme", .length = 3, .texts = schemes}, &err));
    MUST(kv_record_add_dimension(
        r,
        &(kv_dimension_spec){.name = "heads.tokens", .units = "1", .length = tokens, .numbers = t},
        &err));
    MUST(kv_record_add_dimension(
        r, &(kv_dimension_spec){.name = "a", .long_name = "last", .length = 1, .numbers = t},
        &err));
    MUST(kv_record_add_array(r,
                             &(kv_array_spec){.name = "z",
                                              .units = "nats",
                                              .long_name = "first array",
                                              .combine = "max",
                                              .dimensions = {"scheme", "heads.tokens", "a"}},
                             &err));
    kv_array *const z = &r->arrays[0];
    for (int64_t i = 0; i < z->count; i++) z->numbers[i] = i % 7 ? 0.1 * (double)i : (double)NAN;
    MUST(kv_record_add_array(
        r, &(kv_array_spec){.name = "key_scheme", .dimensions = {"scheme"}, .texts = schemes},
        &err));
    MUST(kv_record_add_array(r, &(kv_array_spec){.name = "scalar", .units = "s"}, &err));
    MUST(kv_record_add_array(
        r, &(kv_array_spec){.name = "which", .dimensions = {"a"}, .numbers = t, .labels = "scheme"},
        &err));
    static char *const arguments[] = {"kvant", "sweep", "it's.yaml", "", "\xff"};
    static char config[100001];
    memset(config, 'x', sizeof config - 1); /* more than an object header holds */
    kv_provenance const p = {.title = "A title",
                             .config_text = config,
                             .argc = 5,
                             .argv = arguments,
                             .seeds = "0",
                             .is_complete = 1};
    MUST(kv_provenance_add(r, &p, &err));
    MUST(kv_record_set_number(r, "wall_time_s", 0.25, &err));
    MUST(kv_record_set_text(r, "end", "", &err));
    MUST(kv_record_set_text(r, "start", "", &err));
    free(t);
    return r;
}

static int same_text(const char *a, const char *b)
{
    return (!a && !b) || (a && b && strcmp(a, b) == 0);
}

static int same_values(const double *a, const double *b, char *const *s, char *const *t, int64_t n)
{
    if (!a != !b || !s != !t) return 0;
    int same = !a || memcmp(a, b, (size_t)n * sizeof *a) == 0;
    for (int64_t i = 0; s && i < n; i++) same &= same_text(s[i], t[i]);
    return same;
}

static void check_same(const kv_record *a, const kv_record *b)
{
    CHECK(a->n_dimensions == b->n_dimensions && a->n_arrays == b->n_arrays &&
              a->n_attributes == b->n_attributes,
          "%d %d %d", b->n_dimensions, b->n_arrays, b->n_attributes);
    for (int i = 0; i < a->n_dimensions; i++) {
        const kv_dimension *const x = &a->dimensions[i], *const y = &b->dimensions[i];
        CHECK(same_text(x->name, y->name) && same_text(x->units, y->units) &&
                  same_text(x->long_name, y->long_name) && x->length == y->length &&
                  same_values(x->numbers, y->numbers, x->texts, y->texts, x->length),
              "%s", x->name);
    }
    for (int i = 0; i < a->n_arrays; i++) {
        const kv_array *const x = &a->arrays[i], *const y = &b->arrays[i];
        CHECK(same_text(x->name, y->name) && same_text(x->units, y->units) &&
                  same_text(x->long_name, y->long_name) && same_text(x->combine, y->combine) &&
                  same_text(x->labels, y->labels) && x->count == y->count && x->rank == y->rank &&
                  memcmp(x->dimensions, y->dimensions, sizeof x->dimensions) == 0 &&
                  same_values(x->numbers, y->numbers, x->texts, y->texts, x->count),
              "%s", x->name);
    }
    for (int i = 0; i < a->n_attributes; i++) {
        const kv_attribute *const x = &a->attributes[i], *const y = &b->attributes[i];
        CHECK(same_text(x->name, y->name) && same_text(x->text, y->text) && x->number == y->number,
              "%s", x->name);
    }
}

static void round_trip(const char *path)
{
    static const int64_t tokens[] = {1, 5, 1000, 70000};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        kv_error err = {0};
        kv_record *a = example(tokens[i]), *b = NULL, *again = example(tokens[i]);
        char *first = NULL, *second = NULL;
        size_t n = 0, m = 0;
        MUST(kv_store_write(path, a, &err));
        MUST(kv_store_read(&b, path, &err));
        if (b) check_same(a, b);
        MUST(kv_file_read(&first, &n, path, &err));
        MUST(kv_store_write(path, again, &err));
        MUST(kv_file_read(&second, &m, path, &err));
        CHECK(n == m && memcmp(first, second, n) == 0, "%zu and %zu bytes", n, m);
        if (b) MUST(kv_store_write(path, b, &err));
        kv_free(second);
        MUST(kv_file_read(&second, &m, path, &err));
        CHECK(n == m && memcmp(first, second, n) == 0, "read and written again");
        kv_free(first), kv_free(second);
        kv_record_free(a), kv_record_free(b), kv_record_free(again);
    }
}

static void check_refused(const char *path, const char *bytes, size_t size, const char *what)
{
    kv_error err = {0};
    kv_record *r = NULL;
    FILE *const f = fopen(path, "wb");
    fwrite(bytes, 1, size, f);
    fclose(f);
    kv_status const status = kv_store_read(&r, path, &err);
    CHECK(status == KV_EINPUT && !r && err.message[0], "%s: status %d", what, (int)status);
    kv_record_free(r);
}

static void damaged(const char *path)
{
    kv_error err = {0};
    kv_record *a = example(3);
    char *bytes = NULL, broken[128];
    size_t size = 0;
    snprintf(broken, sizeof broken, "%s.broken", path);
    MUST(kv_store_write(path, a, &err));
    MUST(kv_file_read(&bytes, &size, path, &err));
    for (size_t n = 0; n < size - 40; n += n < 2048 ? 7 : 997) {
        char what[32];
        snprintf(what, sizeof what, "cut at %zu", n);
        check_refused(broken, bytes, n, what);
    }
    for (size_t n = 0; n < size - 40; n += n < 1024 ? 11 : 3001) {
        char what[32];
        snprintf(what, sizeof what, "flipped at %zu", n);
        bytes[n] = (char)(bytes[n] ^ 1 << (n % 8));
        check_refused(broken, bytes, size, what);
        bytes[n] = (char)(bytes[n] ^ 1 << (n % 8));
    }
    check_refused(broken, "\x89HDF\r\n\x1a\n", 8, "only the signature");
    check_refused(broken, "not HDF5", 8, "text");
    check_refused(broken, "", 0, "empty");
    CHECK(kv_store_read(&a, "/nowhere/x.h5", &err) == KV_EINPUT, "no such file");
    CHECK_TEXT(err.message, "/nowhere/x.h5: No such file or directory");
    unlink(broken);
    kv_free(bytes), kv_record_free(a);
}

/* Another program adds attributes, a group, a dataset of another type: still ours. */
static void changed_by_others(const char *path)
{
    kv_error err = {0};
    kv_record *a = example(3), *b = NULL;
    MUST(kv_store_write(path, a, &err));
    kv_hdf5_lock();
    hid_t const f = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    hsize_t const two = 2;
    int const values[2] = {1, 2};
    hid_t const pair = H5Screate_simple(1, &two, NULL), one = H5Screate(H5S_SCALAR);
    hid_t fixed = H5Tcopy(H5T_C_S1);
    H5Tset_size(fixed, 4);
    hid_t const list = H5Acreate2(f, "list", H5T_STD_I32LE, pair, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(list, H5T_NATIVE_INT, values);
    hid_t const note = H5Acreate2(f, "note", fixed, one, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(note, fixed, "four");
    hid_t const object = H5Tcreate(H5T_OPAQUE, 8);
    hid_t const odd = H5Dcreate2(f, "odd", object, one, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t const group = H5Gcreate2(f, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Gclose(group), H5Dclose(odd), H5Tclose(object), H5Aclose(note), H5Aclose(list);
    H5Tclose(fixed), H5Sclose(one), H5Sclose(pair);
    CHECK(H5Fclose(f) >= 0, "H5Fclose");
    kv_hdf5_unlock();
    MUST(kv_store_read(&b, path, &err));
    CHECK(b && b->n_attributes == a->n_attributes + 1, "the note is read");
    if (b) CHECK_TEXT(kv_record_attribute(b, "note")->text, "four");
    kv_record_free(b), b = NULL;

    kv_hdf5_lock();
    hid_t const g = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(g);
    kv_hdf5_unlock();
    CHECK(kv_store_read(&b, path, &err) == KV_EINPUT, "foreign HDF5");
    CHECK(strstr(err.message, "not a result file of kvant"), "%s", err.message);
    kv_record_free(a);
}

static int count_files(const char *folder)
{
    int n = 0;
    DIR *const d = opendir(folder);
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

static void failed_writes(const char *folder, const char *path)
{
    kv_error err = {0};
    kv_record *a = example(3), *b = NULL;
    MUST(kv_store_write(path, a, &err));
    int const n_files = count_files(folder);
    struct rlimit limit, small = {4096, 0};
    getrlimit(RLIMIT_FSIZE, &limit);
    small.rlim_max = limit.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    CHECK(kv_store_write(path, a, &err) == KV_EIO, "a file too large");
    setrlimit(RLIMIT_FSIZE, &limit);
    CHECK(strstr(err.message, "File too large"), "%s", err.message);
    CHECK(count_files(folder) == n_files, "nothing is left behind");
    err = (kv_error){0};
    MUST(kv_store_read(&b, path, &err));
    kv_record_free(b);
    CHECK(kv_store_write("/nowhere/x.h5", a, &err) == KV_EIO, "no such folder");
    CHECK_TEXT(err.message, "writing /nowhere/x.h5: No such file or directory");

    err = (kv_error){0};
    kv_array_spec const bad = {.name = "t", .units = "seconds"};
    MUST(kv_record_add_array(a, &bad, &err));
    CHECK(kv_store_write(path, a, &err) == KV_EREQUEST, "seconds");
    CHECK_TEXT(err.message, "t: units \"seconds\" would be read as dates; write \"s\", \"ms\"");
    kv_record_free(a);

    for (long k = 0, more = 1; more; k++) {
        err = (kv_error){0};
        b = NULL;
        kv_fail_allocation(k);
        kv_status const status = kv_store_read(&b, path, &err);
        more = status != KV_OK;
        CHECK(status == KV_OK || (status == KV_ENOMEM && !b), "allocation %ld: %d %s", k,
              (int)status, err.message);
        kv_record_free(b);
    }
    kv_fail_allocation(-1);
}

static void digests(void)
{
    static const struct {
        const char *text, *digest;
    } rows[] = {
        /* FIPS 180-4 examples, and one of the empty text */
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };
    char text[65], *const million = malloc(1000000);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kv_sha256_hex(text, rows[i].text, strlen(rows[i].text));
        CHECK_TEXT(text, rows[i].digest);
    }
    memset(million, 'a', 1000000);
    kv_sha256_hex(text, million, 1000000);
    CHECK_TEXT(text, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(million);
}

static void intervals(void)
{
    /* quantiles of Student's t in closed form, for one and two degrees of freedom */
    double const t1 = tan(0.475 * 3.14159265358979323846);
    double const t2 = 0.95 * sqrt(2 / (1 - 0.95 * 0.95));
    double const x[] = {1, (double)NAN, 2, 3}, y[] = {0, 1, (double)NAN, 1};
    kv_interval i = kv_interval_of(x, 4);
    CHECK(i.n == 3 && i.mean == 2 && fabs(i.high - 2 - t2 / sqrt(3)) < 1e-12 &&
              fabs(i.high + i.low - 4) < 1e-12,
          "%g %g %g", i.mean, i.low, i.high);
    i = kv_interval_of_difference(x, y, 4);
    CHECK(i.n == 2 && i.mean == 1.5 && fabs(i.high - 1.5 - t1 * 0.5) < 1e-11, "%g %g %g", i.mean,
          i.low, i.high);
    i = kv_interval_of(x, 1);
    CHECK(i.n == 1 && i.mean == 1 && isnan(i.low) && isnan(i.high), "one replicate");
    i = kv_interval_of(x + 1, 1);
    CHECK(i.n == 0 && isnan(i.mean), "none");
}

static void provenance(void)
{
    kv_record *const r = example(1);
    CHECK_TEXT(kv_record_attribute(r, "argv")->text, "kvant sweep 'it'\\''s.yaml' '' '?'");
    CHECK(strlen(kv_record_attribute(r, "config_sha256")->text) == 64, "digest");
    CHECK(kv_record_attribute(r, "complete")->number == 1, "complete");
    CHECK(strstr(kv_record_attribute(r, "libraries")->text, "hdf5 1."), "libraries");
    CHECK(kv_this_build.version[0] && kv_this_build.git_revision[0] && kv_this_build.compiler[0] &&
              strstr(kv_this_build.flags, "-ffp-contract=off"),
          "%s", kv_this_build.flags);
    kv_record_free(r);
}

/* With an argument: writes the example there, for tests/xarray_opens.py. */
int main(int argc, char **argv)
{
    kv_error err = {0};
    if (argc > 1) {
        kv_record *const r = example(5);
        MUST(kv_store_write(argv[1], r, &err));
        kv_record_free(r);
        return check_done();
    }
    char folder[] = "/tmp/kvant-store-XXXXXX", path[64];
    CHECK(mkdtemp(folder) != NULL, "mkdtemp");
    snprintf(path, sizeof path, "%s/x.h5", folder);
    digests();
    intervals();
    provenance();
    round_trip(path);
    damaged(path);
    changed_by_others(path);
    failed_writes(folder, path);
    unlink(path);
    CHECK(rmdir(folder) == 0, "the folder is empty in the end");
    return check_done();
}
