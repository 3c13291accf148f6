/* CPU time of the kernel's workers: threads of this process that do what would block a ring,
 * such as writes that extend a file. */
#ifndef WL_WORKERS_H
#define WL_WORKERS_H

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

typedef struct {
    long thread;
    int is_worker;
    uint64_t cpu_ns;
} wl_seen;

typedef struct {
    pthread_mutex_t mutex;
    DIR *threads; /* NULL if nothing is counted */
    wl_seen *seen;
    uint32_t seen_count;
    uint64_t cpu_ns;
    _Atomic uint64_t looked_ns;
} wl_workers;

void wl_workers_init(wl_workers *workers, int has_any);
void wl_workers_free(wl_workers *workers);
/* CPU time of all workers since the first reading, exited ones included. */
uint64_t wl_workers_look(wl_workers *workers, uint64_t now_ns);
/* Reads again if the last reading is old. */
void wl_workers_keep(wl_workers *workers, uint64_t now_ns);

#endif
