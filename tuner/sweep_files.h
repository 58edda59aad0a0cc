/* A sweep from a configuration to its result file: what `kvant sweep` does once its command line is
 * read. Finished units are kept beside the result (results/run.h), so that it can be stopped and
 * taken up again. It is here because only this room may use both the simulator and the results. */
#ifndef KVANT_TUNER_SWEEP_FILES_H
#define KVANT_TUNER_SWEEP_FILES_H

#include "tuner/session.h"

/* result NULL: NAME.h5 in this folder, NAME the configuration's. is_resumed: take up what is kept.
 * Prints the table. KV_EINTERRUPTED where it was cancelled: what is done is kept. */
typedef struct {
    const char *config, *result;
    bool is_resumed;
} kv_sweep_request;
kv_status kv_sweep_files(const kv_sweep_request *request, const kv_session *session, kv_error *err);

#endif
