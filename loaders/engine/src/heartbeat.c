/* Counts for how long this process did not run: stopped, frozen, or without a CPU.
 *
 * A thread wakes up at a fixed pace. It does no I/O and takes no lock of an interpreter's, so
 * nothing makes it late but a process that does not run: no stalled drive, and no sleeping or
 * computing thread beside it. */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>

#include "errors.h"
#include "wattload_engine.h"

#define NS_PER_S 1000000000ull
#define PERIOD_NS (NS_PER_S / 20)
/* A busy host, or one that limits CPU time, wakes up any thread late by so much. */
#define TOLERATED_NS (NS_PER_S / 4)

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static bool is_started;
static uint64_t last_ns;
static uint64_t missed_ns;

/* How long the next beat is overdue, with the mutex held. */
static uint64_t overdue_ns(uint64_t *now_ns) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *now_ns = (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
    uint64_t since_ns = *now_ns - last_ns;
    return since_ns > PERIOD_NS + TOLERATED_NS ? since_ns - PERIOD_NS : 0;
}

static void *beat(void *unused) {
    (void)unused;
    const struct timespec period = {.tv_sec = 0, .tv_nsec = PERIOD_NS};
    for (;;) {
        nanosleep(&period, NULL);
        uint64_t now_ns;
        pthread_mutex_lock(&mutex);
        missed_ns += overdue_ns(&now_ns);
        last_ns = now_ns;
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

int32_t wl_heartbeat_start(wl_error *error) {
    int failed = 0;
    pthread_mutex_lock(&mutex);
    if (!is_started) {
        sigset_t all, before;
        pthread_t thread;
        (void)overdue_ns(&last_ns);
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, &before);
        failed = pthread_create(&thread, NULL, beat, NULL);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (!failed) {
            pthread_detach(thread);
            is_started = true;
        }
    }
    pthread_mutex_unlock(&mutex);
    return failed ? wl_fail(error, failed, NULL, WL_NOWHERE, "start of the heartbeat") : WL_OK;
}

uint64_t wl_heartbeat_missed_ns(void) {
    uint64_t now_ns;
    pthread_mutex_lock(&mutex);
    uint64_t total_ns = missed_ns + (is_started ? overdue_ns(&now_ns) : 0);
    pthread_mutex_unlock(&mutex);
    return total_ns;
}
