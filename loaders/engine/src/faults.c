/* The handler of SIGBUS: a jump back, or memory in place of a file that can't be read. */
#include "faults.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>

#include "engine.h"

_Thread_local sigjmp_buf *wl_escape;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint32_t users;
static struct sigaction action_before;

static wl_mapping guarded[WL_GUARD_LIMIT];
static _Atomic uint32_t guarded_count;
static _Atomic uint64_t first_fault;

/* Puts zeros in place of the whole file: what has been read of it is not used, and each page of a
 * drive that fails may take half a minute. Threads of others can't be made to leave their loops. */
static bool put_zeros(uint64_t address) {
    uint32_t count = atomic_load_explicit(&guarded_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        const wl_mapping *at = &guarded[i];
        if (address < at->address || address - at->address >= at->bytes)
            continue;
        uint64_t none = 0;
        atomic_compare_exchange_strong(&first_fault, &none, address);
        return mmap((void *)(uintptr_t)at->address, at->bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
                    0) != MAP_FAILED;
    }
    return false;
}

static void on_fault(int number, siginfo_t *info, void *context) {
    (void)context;
    if (wl_escape)
        siglongjmp(*wl_escape, 1);
    if (!put_zeros((uint64_t)(uintptr_t)info->si_addr))
        sigaction(number, &action_before, NULL);
}

void wl_handle_faults(bool handle) {
    pthread_mutex_lock(&mutex);
    if (handle && !users++) {
        struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
        sigaction(SIGBUS, &action, &action_before);
    } else if (!handle && !--users) {
        sigaction(SIGBUS, &action_before, NULL);
    }
    pthread_mutex_unlock(&mutex);
}

int32_t wl_guard_begin(const wl_mapping *mappings, uint32_t count, wl_error *error) {
    if (!count || count > WL_GUARD_LIMIT)
        return wl_fail(error, WL_BAD_SETUP, NULL, WL_NOWHERE, "mappings must be 1 to %u",
                       WL_GUARD_LIMIT);
    if (atomic_load(&guarded_count))
        return wl_fail(error, WL_BAD_SETUP, NULL, WL_NOWHERE, "others are guarded already");
    for (uint32_t i = 0; i < count; i++)
        guarded[i] = mappings[i];
    atomic_store(&first_fault, 0);
    atomic_store_explicit(&guarded_count, count, memory_order_release);
    wl_handle_faults(true);
    return WL_OK;
}

uint64_t wl_guard_end(void) {
    wl_handle_faults(false);
    atomic_store(&guarded_count, 0);
    return atomic_load(&first_fault);
}
