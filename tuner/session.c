/* Notes of a run from files to files: see session.h. */
#include "tuner/session.h"

void kv_session_note(const kv_session *session)
{
    if (session->is_quiet || !*session->why) return;
    fprintf(session->notes, "backend %s (%s)\n", session->backend->name, session->why);
}
