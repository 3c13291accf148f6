/* The folders of a plan's files, each once. */
#include <stdlib.h>
#include <string.h>

#include "engine.h"

static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash)
        return strdup(".");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

static int by_path(const void *left, const void *right) {
    return strcmp(((const wl_file *)left)->path, ((const wl_file *)right)->path);
}

int wl_folders_find(wl_job *job) {
    uint32_t count = job->plan.file_count, kept = 0;
    bool creates = job->plan.flags & WL_FSYNC && !(job->plan.flags & WL_DEVICE);
    if (!creates || job->is_diskless || !count)
        return 1;
    job->folders = calloc(count, sizeof *job->folders);
    if (!job->folders)
        return 0;
    for (; job->folder_count < count; job->folder_count++) {
        wl_file *folder = &job->folders[job->folder_count];
        folder->is_folder = 1;
        atomic_init(&folder->fd, -1);
        if (!(folder->path = folder_of(job->plan.files[job->folder_count].path)))
            return 0;
    }
    qsort(job->folders, count, sizeof *job->folders, by_path);
    for (uint32_t i = 0; i < count; i++) {
        if (kept && !by_path(&job->folders[kept - 1], &job->folders[i]))
            free((void *)(uintptr_t)job->folders[i].path);
        else
            job->folders[kept++] = job->folders[i];
    }
    job->folder_count = kept;
    return 1;
}

void wl_folders_free(wl_job *job) {
    for (uint32_t i = 0; i < job->folder_count; i++)
        free((void *)(uintptr_t)job->folders[i].path);
    free(job->folders);
}
