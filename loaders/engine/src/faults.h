/* Failed reads of mapped files, which arrive as SIGBUS on the thread that touched the page. */
#ifndef WL_FAULTS_H
#define WL_FAULTS_H

#include <setjmp.h>
#include <stdbool.h>

/* Where a thread of ours goes on after a failed read; NULL on threads that have no such place. */
extern _Thread_local sigjmp_buf *wl_escape;

/* Handles faults until it is told to stop, once for each start. A fault of a thread without
 * wl_escape and outside guarded memory is repeated under the action that was there before. */
void wl_handle_faults(bool handle);

#endif
