/* gnuplot: see gnuplot.h. Script and answers go through files, so nothing can block. */
#include "results/gnuplot.h"

#include <errno.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

void kv_gnuplot_quote(FILE *script, const char *text)
{
    fputc('\'', script);
    for (; *text; text++) {
        if (*text == '\'') fputc('\'', script);
        fputc((unsigned char)*text < ' ' ? ' ' : *text, script);
    }
    fputc('\'', script);
}

/* The first line of gnuplot's complaint that says something. */
static void read_complaint(char *text, size_t size, FILE *answers)
{
    snprintf(text, size, "it did not say why");
    rewind(answers);
    char line[512];
    while (fgets(line, sizeof line, answers)) {
        line[strcspn(line, "\n")] = 0;
        if (strspn(line, " \t^") == strlen(line) || line[0] == 'p') continue; /* echo of the line */
        snprintf(text, size, "%s", line);
        return;
    }
}

static kv_status start(pid_t *child, FILE *script, FILE *printed, FILE *answers, kv_error *err)
{
    char *const arguments[] = {(char[]){"gnuplot"}, (char[]){"-d"}, (char[]){"-"}, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fileno(script), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, fileno(printed), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, fileno(answers), STDERR_FILENO);
    int const number = posix_spawnp(child, "gnuplot", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (number == ENOENT)
        return KV_FAIL(err, KV_EUNSUPPORTED,
                       "figures are drawn by gnuplot, which is not installed "
                       "(Debian and Ubuntu: apt install gnuplot-nox)");
    return number ? KV_FAIL(err, KV_EIO, "starting gnuplot: %s", strerror(number)) : KV_OK;
}

kv_status kv_gnuplot_run(FILE *output, FILE *script, kv_error *err)
{
    kv_status status = KV_OK;
    FILE *const printed = tmpfile(), *const answers = tmpfile();
    pid_t child;
    int state = 0;
    if (!printed || !answers) KV_TRY(KV_FAIL(err, KV_EIO, "a temporary file: %s", strerror(errno)));
    if (fflush(script) != 0 || lseek(fileno(script), 0, SEEK_SET) != 0)
        KV_TRY(KV_FAIL(err, KV_EIO, "writing the script: %s", strerror(errno)));
    KV_TRY(start(&child, script, printed, answers, err));
    while (waitpid(child, &state, 0) < 0 && errno == EINTR) {
    }
    if (!WIFEXITED(state) || WEXITSTATUS(state) != 0) {
        char complaint[512];
        read_complaint(complaint, sizeof complaint, answers);
        KV_TRY(KV_FAIL(err, KV_EIO, "gnuplot failed: %s", complaint));
    }
    rewind(printed);
    for (int c; output && (c = fgetc(printed)) != EOF;) fputc(c, output);
done:
    if (printed) fclose(printed);
    if (answers) fclose(answers);
    return status;
}
