/* Finds workers by the names of this process's threads: "iou-wrk-" and the number of the thread
 * that they work for. It is the number in the outermost PID namespace, which is unknown in a
 * container, so the workers of all rings of the process are counted. Linux ends a worker after 5 s
 * without work: reading more often than that misses no CPU time. */
#include "workers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_EVERY_NS 2000000000u

void wl_workers_init(wl_workers *workers, int has_any) {
    pthread_mutex_init(&workers->mutex, NULL);
    workers->threads = has_any ? opendir("/proc/self/task") : NULL;
}

void wl_workers_free(wl_workers *workers) {
    if (workers->threads)
        closedir(workers->threads);
    free(workers->seen);
    pthread_mutex_destroy(&workers->mutex);
}

/* Reads a thread's file into `text`; "" if the thread has ended. */
static void read_text(const wl_workers *workers, long thread, const char *name, char text[64]) {
    char path[64];
    snprintf(path, sizeof path, "%ld/%s", thread, name);
    int fd = openat(dirfd(workers->threads), path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? 0 : read(fd, text, 63);
    text[length < 0 ? 0 : length] = 0;
    if (fd >= 0)
        close(fd);
}

/* Threads are listed in the order of their start, so those seen before come in the same order. */
static wl_seen recall(const wl_workers *workers, uint32_t *at, long thread) {
    for (uint32_t i = *at; i < workers->seen_count; i++)
        if (workers->seen[i].thread == thread) {
            *at = i + 1;
            return workers->seen[i];
        }
    return (wl_seen){.thread = thread, .is_worker = -1};
}

/* A worker bears the name of the poller that started it until it runs: such a one stays unknown. */
static int is_worker(const wl_workers *workers, long thread) {
    char name[64];
    read_text(workers, thread, "comm", name);
    if (!strncmp(name, "iou-wrk-", 8))
        return 1;
    return strncmp(name, "wl-poller-", 10) ? 0 : -1;
}

static void look_at(wl_workers *workers, wl_seen *seen) {
    char times[64];
    if (seen->is_worker < 0)
        seen->is_worker = is_worker(workers, seen->thread);
    if (seen->is_worker <= 0)
        return;
    read_text(workers, seen->thread, "schedstat", times);
    uint64_t cpu_ns = strtoull(times, NULL, 10);
    if (cpu_ns > seen->cpu_ns) {
        workers->cpu_ns += cpu_ns - seen->cpu_ns;
        seen->cpu_ns = cpu_ns;
    }
}

static void look(wl_workers *workers) {
    wl_seen *seen = NULL;
    uint32_t count = 0, room = 0, at = 0;
    rewinddir(workers->threads);
    for (struct dirent *entry; (entry = readdir(workers->threads));) {
        long thread = strtol(entry->d_name, NULL, 10);
        if (!thread) /* "." and ".." */
            continue;
        if (count == room) {
            room = room ? 2 * room : workers->seen_count + 16;
            wl_seen *more = realloc(seen, room * sizeof *seen);
            if (!more) { /* what was seen before stays */
                free(seen);
                return;
            }
            seen = more;
        }
        seen[count] = recall(workers, &at, thread);
        look_at(workers, &seen[count++]);
    }
    free(workers->seen);
    workers->seen = seen;
    workers->seen_count = count;
}

uint64_t wl_workers_look(wl_workers *workers, uint64_t now_ns) {
    if (!workers->threads)
        return 0;
    pthread_mutex_lock(&workers->mutex);
    look(workers);
    uint64_t cpu_ns = workers->cpu_ns;
    atomic_store_explicit(&workers->looked_ns, now_ns, memory_order_relaxed);
    pthread_mutex_unlock(&workers->mutex);
    return cpu_ns;
}

void wl_workers_keep(wl_workers *workers, uint64_t now_ns) {
    uint64_t looked_ns = atomic_load_explicit(&workers->looked_ns, memory_order_relaxed);
    if (workers->threads && now_ns > looked_ns + LOOK_EVERY_NS)
        wl_workers_look(workers, now_ns);
}
