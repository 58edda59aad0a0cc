/* Runs: every unit whose put returned survives kill -9 at any moment, a torn or damaged record
 * costs only its own unit, a full disk keeps what is finished, and a run of something else is
 * refused. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kernels/file.h"
#include "kernels/memory.h"
#include "results/run.h"
#include "tests/check.h"

#define MUST(call) CHECK((call) == KV_OK, "%s", err.message)

enum { UNITS = 4000, VALUES = 37, THREADS = 4, KILLS = 25 };

static char final_path[64], log_path[80];

static double value_of(int64_t unit, int i)
{
    return i == 3 ? (double)NAN : (double)(unit * 1000 + i);
}

static void fill(double values[VALUES], int64_t unit)
{
    for (int i = 0; i < VALUES; i++) values[i] = value_of(unit, i);
}

static kv_run_spec spec_of(int resume)
{
    return (kv_run_spec){.final_path = final_path,
                         .identity = "title: x\nseed: 1\n",
                         .n_units = UNITS,
                         .values_per_unit = VALUES,
                         .resume = resume};
}

static kv_run *open_run(int resume)
{
    kv_error err = {0};
    kv_run *run = NULL;
    kv_run_spec const spec = spec_of(resume);
    MUST(kv_run_open(&run, &spec, &err));
    return run;
}

/* Every unit is either done with its values or not done and NaN. */
static void check_contents(kv_run *run)
{
    kv_error err = {0};
    double *const all = malloc(sizeof *all * UNITS * VALUES);
    int64_t bad = 0, done = 0;
    MUST(kv_run_collect(all, run, &err));
    for (int64_t unit = 0; unit < UNITS; unit++) {
        int const is_done = kv_run_is_done(run, unit);
        done += is_done;
        for (int i = 0; i < VALUES; i++) {
            double const x = all[unit * VALUES + i], want = value_of(unit, i);
            bad += is_done && !isnan(want) ? x != want : !isnan(x);
        }
    }
    CHECK(bad == 0, "%lld values are wrong", (long long)bad);
    CHECK(done == kv_run_count_done(run), "%lld done", (long long)done);
    free(all);
}

/* Threads put the units; after each put the unit's number goes through the pipe. */
typedef struct {
    kv_run *run;
    int first, pipe;
} worker;

static void *work(void *context)
{
    const worker *const w = context;
    double values[VALUES];
    for (int64_t unit = w->first; unit < UNITS; unit += THREADS) {
        kv_error err = {0};
        if (kv_run_is_done(w->run, unit)) continue;
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL); /* the work */
        fill(values, unit);
        if (kv_run_put(w->run, unit, values, &err) != KV_OK) _exit(3);
        int32_t const number = (int32_t)unit;
        if (write(w->pipe, &number, sizeof number) != sizeof number) _exit(4);
    }
    return NULL;
}

static void child(int pipe)
{
    kv_error err = {0};
    kv_run *run = NULL;
    kv_run_spec const spec = spec_of(1);
    pthread_t threads[THREADS];
    worker workers[THREADS];
    if (kv_run_open(&run, &spec, &err) != KV_OK) _exit(5);
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){run, i, pipe};
        pthread_create(&threads[i], NULL, work, &workers[i]);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    _exit(0);
}

static void kills(void)
{
    static uint8_t acknowledged[UNITS];
    int n_acknowledged = 0, n_killed = 0;
    srand(12345);
    for (int k = 0; k < KILLS; k++) {
        int ends[2], state;
        CHECK(pipe(ends) == 0, "pipe");
        pid_t const pid = fork();
        if (pid == 0) {
            close(ends[0]);
            child(ends[1]);
        }
        close(ends[1]);
        int const how_many = rand() % 120; /* acknowledgements to wait for, then a moment more */
        int32_t unit;
        for (int i = 0; i < how_many && read(ends[0], &unit, sizeof unit) == sizeof unit; i++)
            acknowledged[unit] = 1, n_acknowledged++;
        nanosleep(&(struct timespec){.tv_nsec = rand() % 2000000}, NULL);
        kill(pid, SIGKILL);
        waitpid(pid, &state, 0);
        n_killed += WIFSIGNALED(state);
        CHECK(WIFSIGNALED(state) || WEXITSTATUS(state) == 0, "child ended with %d",
              WEXITSTATUS(state));
        while (read(ends[0], &unit, sizeof unit) == sizeof unit)
            acknowledged[unit] = 1, n_acknowledged++;
        close(ends[0]);
        kv_run *const run = open_run(1);
        int lost = 0;
        for (int64_t u = 0; u < UNITS; u++) lost += acknowledged[u] && !kv_run_is_done(run, u);
        CHECK(lost == 0, "kill %d lost %d units", k, lost);
        if (k % 8 == 0) check_contents(run);
        kv_run_close(run);
    }
    printf("%d children killed, %d units acknowledged, none lost\n", n_killed, n_acknowledged);
    CHECK(n_killed > KILLS / 2 && n_acknowledged > 200, "%d %d", n_killed, n_acknowledged);
    kv_error err = {0};
    kv_run *run = open_run(1);
    check_contents(run);
    MUST(kv_run_finish(run, &err));
    kv_run_close(run);
    CHECK(access(log_path, F_OK) != 0, "the log is gone");
}

static void put_units(kv_run *run, int64_t first, int64_t last)
{
    double values[VALUES];
    for (int64_t unit = first; unit < last; unit++) {
        kv_error err = {0};
        fill(values, unit);
        MUST(kv_run_put(run, unit, values, &err));
    }
}

/* The log cut at every length, and every byte of it flipped: at most the touched record is lost. */
static void damage(void)
{
    enum { PUT = 3, RECORD = 8 + 8 * VALUES + 8 };
    kv_error err = {0};
    char *bytes = NULL;
    size_t size = 0;
    kv_run *run = open_run(0);
    put_units(run, 0, PUT);
    kv_run_close(run);
    MUST(kv_file_read(&bytes, &size, log_path, &err));
    size_t const header = size - PUT * RECORD;
    for (size_t n = 0; n <= size; n += 13) {
        MUST(kv_file_replace(log_path, bytes, n, &err));
        run = open_run(1);
        int64_t const want = n < header ? 0 : (int64_t)((n - header) / RECORD);
        CHECK(run && kv_run_count_done(run) == want, "cut at %zu", n);
        if (n % 8 == 0) put_units(run, want, want + 1);
        kv_run_close(run);
    }
    for (size_t n = 0; n < size; n += 7) {
        bytes[n] = (char)(bytes[n] ^ 1 << (n % 8));
        MUST(kv_file_replace(log_path, bytes, size, &err));
        bytes[n] = (char)(bytes[n] ^ 1 << (n % 8));
        kv_error refused = {0};
        kv_run_spec const spec = spec_of(1);
        run = NULL;
        kv_status const status = kv_run_open(&run, &spec, &refused);
        if (n >= header)
            CHECK(status == KV_OK && kv_run_count_done(run) == PUT - 1, "flipped at %zu", n);
        else
            CHECK(status == KV_EREQUEST, "flipped at %zu: %d", n, (int)status);
        kv_run_close(run);
    }
    kv_free(bytes);
    unlink(log_path);
}

static void check_open(int expected, const kv_run_spec *spec, const char *part)
{
    kv_error err = {0};
    kv_run *run = NULL;
    CHECK((int)kv_run_open(&run, spec, &err) == expected, "%s", err.message);
    CHECK(strstr(err.message, part), "\n  found    %s\n  expected %s", err.message, part);
    kv_run_close(run);
}

static void refusals(void)
{
    kv_error err = {0};
    kv_run *run = open_run(1); /* nothing there: it starts */
    kv_run_spec spec = spec_of(1);
    check_open(KV_EREQUEST, &spec, "another process is working on this run");
    kv_run_close(run);
    spec = spec_of(0);
    check_open(KV_OK, &spec, ""); /* nothing finished: no need to ask */
    run = open_run(0);
    put_units(run, 5, 6);
    double values[VALUES] = {0};
    CHECK(kv_run_put(run, 5, values, &err) == KV_EREQUEST, "a unit twice");
    CHECK(kv_run_put(run, UNITS, values, &err) == KV_EREQUEST, "a unit that is not there");
    kv_run_close(run);
    check_open(KV_EREQUEST, &spec,
               "holds finished work of an earlier run: use --resume, or delete");
    spec = spec_of(1), spec.identity = "title: x\nseed: 2\n";
    check_open(KV_EREQUEST, &spec, "by another configuration: \"seed: 1\" there, \"seed: 2\" now");
    spec.identity = "title: x\nseed: 1\nmore: 1\n";
    check_open(KV_EREQUEST, &spec, "by another configuration: \"\" there, \"more: 1\" now");
    spec = spec_of(1), spec.values_per_unit++;
    check_open(KV_EREQUEST, &spec, "has other units of work");
    spec = spec_of(1), spec.values_per_unit = INT64_MAX / 4;
    check_open(KV_EREQUEST, &spec, "units of");
    unlink(log_path);
    MUST(kv_file_replace(log_path, "precious", 8, &err));
    spec = spec_of(1);
    check_open(KV_EREQUEST, &spec, "is in the way");
    unlink(log_path);
    spec.final_path = "/nowhere/x.h5";
    check_open(KV_EIO, &spec, "opening /nowhere/x.h5.run: No such file or directory");
}

static void no_room(void)
{
    kv_error err = {0};
    double values[VALUES];
    struct rlimit limit, small;
    struct stat info;
    kv_run *run = open_run(0);
    put_units(run, 0, 10);
    stat(log_path, &info);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    small = limit, small.rlim_cur = (rlim_t)info.st_size + 100; /* a part of the next record */
    setrlimit(RLIMIT_FSIZE, &small);
    fill(values, 10);
    CHECK(kv_run_put(run, 10, values, &err) == KV_EIO, "no room");
    CHECK(strstr(err.message, "the 10 finished units are kept, make room and use --resume"), "%s",
          err.message);
    setrlimit(RLIMIT_FSIZE, &limit);
    struct stat after;
    stat(log_path, &after);
    CHECK(after.st_size == info.st_size, "no torn record stays");
    err = (kv_error){0};
    MUST(kv_run_put(run, 10, values, &err)); /* there is room again */
    kv_run_close(run);
    run = open_run(1);
    CHECK(kv_run_count_done(run) == 11, "11 units");
    check_contents(run);
    MUST(kv_run_finish(run, &err));
    kv_run_close(run);
}

int main(void)
{
    char folder[] = "/tmp/kvant-run-XXXXXX";
    CHECK(mkdtemp(folder) != NULL, "mkdtemp");
    snprintf(final_path, sizeof final_path, "%s/out.h5", folder);
    snprintf(log_path, sizeof log_path, "%s.run", final_path);
    refusals();
    damage();
    no_room();
    kills();
    CHECK(rmdir(folder) == 0, "the folder is empty in the end");
    return check_done();
}
