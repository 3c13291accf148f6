#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#ifndef BLKGETDISKSEQ /* before the headers of Linux 5.15 */
#define BLKGETDISKSEQ _IOR(0x12, 128, uint64_t)
#endif

static int32_t refuse(wl_error *error, int code, const char *what, const wl_file *file,
                      uint64_t offset) {
    return wl_fail(error, code, file->path, offset, "%s: %s", what, strerror(code));
}

static int32_t look(int fd, wl_file *file, struct stat *status, wl_file_state *state,
                    wl_error *error) {
    if (fstat(fd, status))
        return refuse(error, errno, "stat", file, WL_NOWHERE);
    file->is_regular = S_ISREG(status->st_mode);
    if (!file->is_regular && !S_ISBLK(status->st_mode))
        return wl_fail(error, EINVAL, file->path, WL_NOWHERE,
                       "open: neither a regular file nor a block device");
    *state = (wl_file_state){
        .size = (uint64_t)status->st_size,
        .mtime_s = status->st_mtim.tv_sec,
        .mtime_ns = (uint32_t)status->st_mtim.tv_nsec,
        .ctime_s = status->st_ctim.tv_sec,
        .ctime_ns = (uint32_t)status->st_ctim.tv_nsec,
    };
    return WL_OK;
}

/* A name may have gone to another drive since the plan was made. What was opened stays the same
 * device as long as it is open: if it is exchanged later, operations on it fail. */
static int32_t check_device(int fd, const wl_file *file, const wl_plan *plan,
                            const struct stat *status, wl_error *error) {
    uint64_t sequence = 0, bytes = 0;
    bool is_block = S_ISBLK(status->st_mode);
    if (!(plan->flags & WL_DEVICE))
        return is_block && plan->kind == WL_WRITE
                   ? wl_fail(error, WL_OTHER_DEVICE, file->path, WL_NOWHERE,
                             "is a block device, and the plan to write to it does not identify it")
                   : WL_OK;
    if (!is_block)
        return wl_fail(error, WL_OTHER_DEVICE, file->path, WL_NOWHERE,
                       "is not a block device any more");
    unsigned major_now = major(status->st_rdev), minor_now = minor(status->st_rdev);
    if (major_now != plan->device_major || minor_now != plan->device_minor)
        return wl_fail(error, WL_OTHER_DEVICE, file->path, WL_NOWHERE,
                       "is another device (%u:%u, now %u:%u)", plan->device_major,
                       plan->device_minor, major_now, minor_now);
    if (plan->device_sequence) {
        if (ioctl(fd, BLKGETDISKSEQ, &sequence))
            return refuse(error, errno, "disk sequence", file, WL_NOWHERE);
        if (sequence != plan->device_sequence)
            return wl_fail(error, WL_OTHER_DEVICE, file->path, WL_NOWHERE,
                           "was exchanged (disk sequence %llu, now %llu)",
                           (unsigned long long)plan->device_sequence,
                           (unsigned long long)sequence);
    }
    if (ioctl(fd, BLKGETSIZE64, &bytes))
        return refuse(error, errno, "size", file, WL_NOWHERE);
    if (bytes != plan->device_bytes)
        return wl_fail(error, WL_OTHER_DEVICE, file->path, WL_NOWHERE,
                       "has another size (%llu bytes, now %llu)",
                       (unsigned long long)plan->device_bytes, (unsigned long long)bytes);
    return WL_OK;
}

/* A file of several names or of another user may be somebody's that was put in the place of ours;
 * nothing of it has been changed yet. */
static int32_t check_ours(const wl_file *file, const struct stat *status, wl_error *error) {
    if (S_ISREG(status->st_mode) && status->st_nlink > 1)
        return wl_fail(error, EPERM, file->path, WL_NOWHERE,
                       "open: the file has %u names (hard links)", (unsigned)status->st_nlink);
    if (S_ISREG(status->st_mode) && status->st_uid && status->st_uid != geteuid())
        return wl_fail(error, EPERM, file->path, WL_NOWHERE,
                       "open: the file belongs to user %u", (unsigned)status->st_uid);
    return WL_OK;
}

/* O_NONBLOCK lets open return from a FIFO; it must not stay, since reads would then fail rather
 * than wait. Some layers drop O_DIRECT without an error: it is read back. */
static int32_t check_flags(int fd, const wl_file *file, const wl_plan *plan, wl_error *error) {
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK))
        return refuse(error, errno, "open", file, WL_NOWHERE);
    if (plan->flags & WL_DIRECT && !(flags & O_DIRECT))
        return wl_fail(error, WL_NOT_DIRECT, file->path, WL_NOWHERE,
                       "open: O_DIRECT was dropped");
    return WL_OK;
}

/* Reserves the file's blocks, so that writes neither extend it nor find the target full. */
static int32_t preallocate(int fd, const wl_file *file, const wl_plan *plan, uint32_t *extending,
                           wl_error *error) {
    uint64_t bytes = wl_round_up(file->end, plan->align);
    if (!bytes || !file->is_regular)
        return WL_OK;
    int code;
    do
        code = fallocate(fd, 0, 0, (off_t)bytes) ? errno : 0;
    while (code == EINTR);
    if (code == EOPNOTSUPP || code == ENOSYS || code == EINVAL) {
        ++*extending;
        return WL_OK;
    }
    return code ? refuse(error, code, "preallocation", file, bytes) : WL_OK;
}

/* The last block is written rounded up to the alignment: it must not overwrite what follows. */
static int32_t check_end(const wl_file *file, const wl_plan *plan, wl_error *error) {
    int goes_on = !file->is_regular ||
                  (plan->allocation == WL_OVERWRITE && file->state.size > file->end);
    if (!goes_on || file->end % plan->align == 0)
        return WL_OK;
    return wl_fail(error, EINVAL, file->path, file->end,
                   "open: the file continues after the plan's end, which is not a multiple of %u",
                   plan->align);
}

static int32_t lay_out(int fd, const wl_file *file, const wl_plan *plan, uint32_t *extending,
                       wl_error *error) {
    int32_t code = check_end(file, plan, error);
    if (code)
        return code;
    if (plan->allocation == WL_PREALLOCATED)
        return preallocate(fd, file, plan, extending, error);
    if (plan->allocation == WL_OVERWRITE) {
        *extending += file->is_regular && file->state.size < file->end;
    } else if (file->is_regular && file->state.size > file->start) {
        if (ftruncate(fd, (off_t)file->start))
            return refuse(error, errno, "truncation", file, file->start);
    }
    return WL_OK;
}

static int open_flags(const wl_plan *plan) {
    int flags = O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    if (plan->flags & WL_DIRECT)
        flags |= O_DIRECT;
    if (plan->kind == WL_READ)
        return flags | O_RDONLY;
    bool exists = plan->flags & WL_DEVICE || plan->allocation == WL_OVERWRITE;
    return flags | O_WRONLY | (exists ? 0 : O_CREAT);
}

/* Reads leave no access time behind, where that is allowed: to the owner, and to root. */
static int open_file(const wl_file *file, const wl_plan *plan) {
    int flags = open_flags(plan), fd;
    int quiet = plan->kind == WL_READ ? O_NOATIME : 0;
    do {
        fd = open(file->path, flags | quiet, 0644);
        if (fd < 0 && errno == EPERM && quiet) {
            quiet = 0;
            errno = EINTR;
        }
    } while (fd < 0 && errno == EINTR);
    return fd;
}

int32_t wl_file_open(wl_file *file, const wl_plan *plan, uint32_t *extending, wl_error *error) {
    int fd = open_file(file, plan);
    if (fd < 0 && errno == EINVAL && plan->flags & WL_DIRECT)
        return wl_fail(error, WL_NOT_DIRECT, file->path, WL_NOWHERE,
                       "open: the file system refuses O_DIRECT");
    if (fd < 0)
        return refuse(error, errno, "open", file, WL_NOWHERE);
    struct stat status;
    int32_t code = look(fd, file, &status, &file->state, error);
    if (!code)
        code = check_device(fd, file, plan, &status, error);
    if (!code)
        code = check_flags(fd, file, plan, error);
    if (!code && plan->kind == WL_WRITE)
        code = check_ours(file, &status, error);
    if (!code && plan->kind == WL_WRITE)
        code = lay_out(fd, file, plan, extending, error);
    if (code)
        close(fd);
    else
        atomic_store_explicit(&file->fd, fd, memory_order_release);
    return code;
}

int32_t wl_folder_open(wl_file *folder, wl_error *error) {
    int fd = open(folder->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return refuse(error, errno, "open", folder, WL_NOWHERE);
    atomic_store_explicit(&folder->fd, fd, memory_order_release);
    return WL_OK;
}

static int is_same(const wl_file_state *a, const wl_file_state *b) {
    return a->size == b->size && a->mtime_s == b->mtime_s && a->mtime_ns == b->mtime_ns &&
           a->ctime_s == b->ctime_s && a->ctime_ns == b->ctime_ns;
}

int32_t wl_file_settle(wl_file *file, const wl_plan *plan, wl_error *error) {
    if (plan->kind == WL_READ && !(plan->flags & WL_NO_CHANGE))
        return WL_OK;
    int fd = atomic_load_explicit(&file->fd, memory_order_relaxed);
    struct stat status;
    wl_file_state now = {0};
    int32_t code = look(fd, file, &status, &now, error);
    if (code)
        return code;
    if (plan->kind == WL_READ)
        return is_same(&now, &file->state)
                   ? WL_OK
                   : wl_fail(error, WL_CHANGED, file->path, WL_NOWHERE,
                             "the file changed while it was read");
    /* Whoever overwrites a file may extend it meanwhile; only our rounding up is undone. */
    if (plan->allocation == WL_OVERWRITE &&
        (file->state.size > file->end || file->end % plan->align == 0))
        return WL_OK;
    if (file->is_regular && now.size != file->end && ftruncate(fd, (off_t)file->end))
        return refuse(error, errno, "truncation", file, file->end);
    return WL_OK;
}

void wl_file_close(wl_file *file) {
    int fd = atomic_exchange_explicit(&file->fd, -1, memory_order_relaxed);
    if (fd >= 0)
        close(fd);
}
