/* A cache of blocks in the GPU's memory, shared by all warps: sets of 16 pages, evicted by
 * clock.
 *
 * A warp asks for its 32 blocks together. Lanes that want the same block ask once; the first of
 * them claims a page, one lane after the other. A block that a page holds is a hit; one that
 * another warp is reading is merged; else a page that nobody uses takes it, a miss. If all pages
 * of its set are in use the block is read past the cache: nobody waits for a page. Warps wait
 * for blocks that they wait for only after they have delivered their own misses, so that they
 * never wait in a circle.
 *
 * A page is one word of 64 bits, changed by atomics alone: its users, its state, and the key of
 * its block. A page in use keeps its key. */
#ifndef WL_CACHE_CUH
#define WL_CACHE_CUH

#include "queue_abi.h"
#include "memory.cuh"

#define PAGE_USERS 0x3ffffull       /* users, below 2^18 */
#define PAGE_WAS_HIT (1ull << 18)   /* since the hand of the clock was here */
#define PAGE_IS_FILLED (1ull << 19)
#define PAGE_HAS_FAILED (1ull << 20) /* its read; whoever waits for it fails too */
#define PAGE_IS_READ (1ull << 21)    /* now, by the warp that missed it */
#define PAGE_KEY_SHIFT 22            /* 42 bits: 2^36 blocks of 64 targets; 0 for an empty page */

/* A page that others take meanwhile is looked for so often. */
enum { CLAIM_ATTEMPTS = 4 };

enum { WANT_MISS, WANT_HIT, WANT_MERGED, WANT_BYPASSED };

static __device__ uint64_t page_key(uint32_t target, uint64_t block) {
    return block * 64 + target + 1;
}

static __device__ unsigned long long *page_word(const wl_queue_view &view, uint64_t page) {
    return (unsigned long long *)view.cache_words + page;
}

static __device__ uint64_t page_address(const wl_queue_view &view, uint64_t page) {
    return view.cache_pages + page * view.block_bytes;
}

/* The ways from `hand` on: bit 0 is the way at the hand. */
static __device__ uint32_t from_hand(uint32_t ways, uint32_t hand) {
    return (ways >> hand | ways << (WL_WAYS - hand)) & ((1u << WL_WAYS) - 1);
}

/* Adds a user to a page that holds the key, if it still does; returns how it was found, or
 * WANT_BYPASSED. All lanes call it with the same arguments, and all get the same answer. */
static __device__ uint32_t use_page(unsigned long long *word, uint64_t key) {
    uint64_t before = 0;
    if (threadIdx.x % WL_WARP == 0) {
        before = atomicAdd(word, 1ull);
        if (before >> PAGE_KEY_SHIFT == key && !(before & PAGE_HAS_FAILED))
            atomicOr(word, (unsigned long long)PAGE_WAS_HIT);
        else
            atomicAdd(word, ~0ull);
    }
    before = __shfl_sync(0xffffffffu, before, 0);
    if (before >> PAGE_KEY_SHIFT != key || before & PAGE_HAS_FAILED)
        return WANT_BYPASSED;
    return before & PAGE_IS_READ ? WANT_MERGED : WANT_HIT;
}

/* Takes the page that the clock finds for a key: from its hand on the first that nobody uses and
 * that was not hit since; those hit lose that mark. If all were hit, the first that nobody uses. */
static __device__ bool take_page(const wl_queue_view &view, uint64_t set, uint64_t word,
                                 uint32_t idle, uint64_t key, uint64_t *page) {
    uint32_t lane = threadIdx.x % WL_WARP, *hands = (uint32_t *)view.cache_hands, hand = 0;
    if (!lane)
        hand = load_device((uint64_t)(hands + set));
    hand = __shfl_sync(0xffffffffu, hand, 0);
    uint32_t hit = __ballot_sync(0xffffffffu, (word & PAGE_WAS_HIT) != 0) & idle;
    uint32_t fresh = from_hand(idle & ~hit, hand);
    uint32_t steps = __ffs(fresh ? fresh : from_hand(idle, hand)) - 1;
    uint32_t way = (hand + steps) % WL_WAYS, own = (lane + WL_WAYS - hand) % WL_WAYS;
    if (lane < WL_WAYS && lane != way && hit >> lane & 1 && (!fresh || own < steps))
        atomicAnd(page_word(view, set * WL_WAYS + lane), ~(unsigned long long)PAGE_WAS_HIT);
    uint64_t expected = __shfl_sync(0xffffffffu, word, way), found = 0;
    *page = set * WL_WAYS + way;
    if (!lane) {
        found = atomicCAS(page_word(view, *page), (unsigned long long)expected,
                          (unsigned long long)(key << PAGE_KEY_SHIFT | PAGE_IS_READ | 1));
        if (found == expected)
            store_device((uint64_t)(hands + set), (way + 1) % WL_WAYS);
    }
    return __shfl_sync(0xffffffffu, found, 0) == expected;
}

/* Of a cache that may evict any page that nobody uses. */
struct keep_none {
    static __device__ bool keeps(uint64_t) { return false; }
};

/* Finds or takes a page for a key; `page` is set unless WANT_BYPASSED is returned. All lanes call it
 * with the same key. No page is evicted whose key `kept` keeps. */
template <typename kept_keys>
static __device__ uint32_t claim_page(const wl_queue_view &view, uint64_t set, uint64_t key,
                                      uint64_t *page, const kept_keys &kept) {
    uint32_t lane = threadIdx.x % WL_WARP;
    for (uint32_t attempt = 0; attempt < CLAIM_ATTEMPTS; attempt++) {
        uint64_t word = PAGE_USERS;
        if (lane < WL_WAYS)
            word = load_device_word((uint64_t)page_word(view, set * WL_WAYS + lane));
        bool is_same = word >> PAGE_KEY_SHIFT == key && !(word & PAGE_HAS_FAILED);
        uint32_t same = __ballot_sync(0xffffffffu, is_same);
        if (same) {
            *page = set * WL_WAYS + __ffs(same) - 1;
            uint32_t found = use_page(page_word(view, *page), key);
            if (found != WANT_BYPASSED)
                return found;
            continue;
        }
        bool is_idle = !(word & (PAGE_USERS | PAGE_IS_READ));
        uint32_t idle = __ballot_sync(0xffffffffu, is_idle && !kept.keeps(word >> PAGE_KEY_SHIFT));
        if (!idle)
            return WANT_BYPASSED;
        if (take_page(view, set, word, idle, key, page))
            return WANT_MISS;
    }
    return WANT_BYPASSED;
}

/* By the warp that has missed a page, once its bytes are there or its read has failed. */
static __device__ void end_page(const wl_queue_view &view, uint64_t page, bool is_filled) {
    fence_device();
    __syncwarp();
    if (threadIdx.x % WL_WARP == 0)
        atomicAdd(page_word(view, page),
                  (unsigned long long)((is_filled ? PAGE_IS_FILLED : PAGE_HAS_FAILED) -
                                       PAGE_IS_READ));
}

#endif
