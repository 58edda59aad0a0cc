/* Provenance: see provenance.h. */
#include "results/provenance.h"

#include <gsl/gsl_version.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <yaml.h>

#include "kernels/hdf5_lock.h"
#include "kernels/memory.h"
#include "results/hdf5_call.h"
#include "results/sha256.h"

static double seconds_of(clockid_t clock)
{
    struct timespec t = {0};
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void format_time(char text[32], double seconds)
{
    time_t const whole = (time_t)seconds;
    struct tm parts;
    text[0] = 0;
    if (gmtime_r(&whole, &parts)) strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", &parts);
}

/* Arguments as a shell would need them: quoted where they hold more than plain characters. */
static kv_status join_arguments(char **out, int argc, char *const *argv, kv_error *err)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-+=.,:/@%";
    size_t size = 1;
    void *memory = NULL;
    for (int i = 0; i < argc; i++) size += 4 * strlen(argv[i]) + 3;
    kv_status const status = kv_allocate(&memory, size, 1, err);
    if (status != KV_OK) return status;
    char *end = memory;
    for (int i = 0; i < argc; i++) {
        const char *const a = argv[i];
        int const is_plain = *a && strspn(a, plain) == strlen(a);
        if (i) *end++ = ' ';
        if (!is_plain) *end++ = '\'';
        for (const char *s = a; *s; s++) {
            if (*s == '\'')
                memcpy(end, "'\\''", 4), end += 4;
            else
                *end++ = *s;
        }
        if (!is_plain) *end++ = '\'';
    }
    *end = 0;
    *out = memory;
    return KV_OK;
}

static void name_libraries(char *text, size_t size)
{
    unsigned major = 0, minor = 0, release = 0;
    kv_hdf5_lock();
    H5get_libversion(&major, &minor, &release);
    kv_hdf5_unlock();
    snprintf(text, size, "hdf5 %u.%u.%u, gsl %s, libyaml %s, jansson %s", major, minor, release,
             gsl_version, yaml_get_version_string(), JANSSON_VERSION);
}

void kv_provenance_start(kv_provenance *provenance)
{
    provenance->start_s = seconds_of(CLOCK_REALTIME);
    provenance->start_monotonic_s = seconds_of(CLOCK_MONOTONIC);
}

kv_status kv_provenance_add(kv_record *record, const kv_provenance *p, kv_error *err)
{
    kv_status status = KV_OK;
    const kv_build *const b = &kv_this_build;
    char digest[65] = "", host[256] = "", start[32], end[32], libraries[256];
    char *arguments = NULL;
    if (p->config_text) kv_sha256_hex(digest, p->config_text, strlen(p->config_text));
    if (gethostname(host, sizeof host - 1) != 0) host[0] = 0;
    format_time(start, p->start_s);
    format_time(end, seconds_of(CLOCK_REALTIME));
    name_libraries(libraries, sizeof libraries);
    if (p->argc) KV_TRY(join_arguments(&arguments, p->argc, p->argv, err));
    const struct {
        const char *name, *text; /* left out where text is NULL and is_number is 0 */
        double number;
        int is_number;
    } rows[] = {
        {"Conventions", "CF-1.10", 0, 0},
        {"title", p->title, 0, 0},
        {KV_SCHEMA_NAME, NULL, KV_SCHEMA, 1},
        {"kvant_version", b->version, 0, 0},
        {"complete", NULL, p->is_complete != 0, 1},
        {"config", p->config_text, 0, 0},
        {"config_sha256", p->config_text ? digest : NULL, 0, 0},
        {"seeds", p->seeds, 0, 0},
        {"generator", p->generator, 0, 0},
        {"backend", p->backend, 0, 0},
        {"backend_why", p->backend_why, 0, 0},
        {"device", p->device, 0, 0},
        {"git_revision", b->git_revision, 0, 0},
        {"git_dirty", NULL, b->git_dirty, b->git_dirty >= 0},
        {"compiler", b->compiler, 0, 0},
        {"compiler_flags", b->flags, 0, 0},
        {"build_type", b->build_type, 0, 0},
        {"libraries", libraries, 0, 0},
        {"hostname", host, 0, 0},
        {"argv", arguments, 0, 0},
        {"start", start, 0, 0},
        {"end", end, 0, 0},
        {"wall_time_s", NULL, seconds_of(CLOCK_MONOTONIC) - p->start_monotonic_s, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].is_number)
            KV_TRY(kv_record_set_number(record, rows[i].name, rows[i].number, err));
        else if (rows[i].text)
            KV_TRY(kv_record_set_text(record, rows[i].name, rows[i].text, err));
    }
done:
    kv_free(arguments);
    return status;
}
