/* The queue between requesters and pollers: what both agree on. CUDA's runtime compiler reads
 * this header too.
 *
 * A requester is a lane of a warp, on a GPU or on a thread that stands for one. It has one
 * request in flight, one completion word and one slot of host memory, all its own: nothing is
 * allocated, and no slot is waited for. The lanes of a warp that are answered ask again together,
 * without those that still wait. A queue pair is a ring of requests of a power of two of places,
 * with a lap number beside each; it has room for all requesters that may meet on it, so it is
 * never full. One poller serves it, in order.
 *
 * Submission: the leader of a warp takes positions from the pair's head, in the requester's own
 * memory, one for each lane that asks. Each of them writes its request,
 * fences at system scope, and writes the lap of its position, from 1 on: a fence of the leader
 * would release no other lane's writes. The poller loads the lap with acquire, copies the
 * request, and the place is free. Positions wrap at 2^32, which a ring's size divides, and laps
 * with them: a ring has 2^16 laps or more, so that none is taken for the last one at its place.
 * Who takes a position knows that its place is free: a ring has room for a request of each
 * requester, so in the lap before it one lane has submitted twice, and so was answered in
 * between, after the poller had copied what it took earlier. On a CPU the head is taken with
 * acquire and release, so that this order reaches the warp that now writes. A GPU has
 * it without that: it issues no atomic before the answer is there and no store before the atomic
 * has returned its place.
 * Completion: one word of 4 bytes per slot, 20 bits of the request's generation and 12 of an
 * errno. Words of 8 bytes cost 7 to 10 % of what a link carries with blocks of 512 bytes. */
#ifndef WL_QUEUE_ABI_H
#define WL_QUEUE_ABI_H

#include "types.h"

enum { WL_WARP = 32, WL_ERRNO_BITS = 12, WL_GENERATION_BITS = 20 };
#define WL_GENERATION_MASK 0xfffffu
#define WL_ERRNO_MASK 0xfffu
/* Heads of pairs are this far apart, so that warps on different pairs do not meet in a cache
 * line. */
enum { WL_HEAD_STRIDE = 32 };
/* Files carry a stamp per unit: what a warp reads at once, 16 bytes a lane. */
enum { WL_UNIT_BYTES = 512, WL_LANE_BYTES = 16 };
/* Pages of a set of the cache in a GPU's memory; see cache.cuh. */
enum { WL_WAYS = 16 };

/* How a block reaches a requester once its request is completed. */
enum {
    WL_DELIVER_NOTHING = 0, /* `null`: the queue alone */
    WL_DELIVER_TABLE = 1,   /* `memory`: from a stamped table in host memory, in place */
    WL_DELIVER_SLOT = 2     /* from the requester's slot, where a drive has written it */
};

/* Zipf's law with exponent 1, in steps of an octave: each of [1, 2), [2, 4), [4, 8) ... has the
 * same share of the requests, over 1 + the number of a block. It is for tests of the cache. */
enum { WL_PATTERN_UNIFORM = 0, WL_PATTERN_REGIONS = 1, WL_PATTERN_ZIPF = 2 };

/* The block of [0, count) that a draw of 64 bits stands for. */
static inline uint64_t wl_block_of(uint32_t pattern, uint64_t draw, uint64_t count) {
    if (pattern != WL_PATTERN_ZIPF)
        return draw % count;
    uint32_t octave = (uint32_t)(draw >> 56) % (64 - wl_leading_zeros(count));
    uint64_t first = (uint64_t)1 << octave, end = 2 * first <= count ? 2 * first : count + 1;
    return first + draw % (end - first) - 1;
}

/* What a control word asks of requesters. */
enum { WL_GO_ON = 0, WL_STOP = 1, WL_ABANDON = 2 };

typedef struct {
    uint64_t block; /* of `block_bytes`, in the pair's target */
    uint32_t slot;
    uint32_t generation;
} wl_request;

/* A target as requesters see it. */
typedef struct {
    uint64_t blocks;
    uint64_t nonce, word, first_block; /* of its stamps */
} wl_source;

/* What the requesters of a warp have counted: `requests` by lane. `asked` is what went through the
 * queue: without a cache all requests, with one those that missed it or `bypassed` it; the others
 * are `coalesced` with another lane's, `hits`, or `merged` to another warp's read. `wrong_block`
 * is the first with another stamp, of `wrong_target`; it is valid if `wrong` is not 0. The first
 * warp of a GPU that pulls without the queue has the step of the clock of `latencies`. */
typedef struct {
    uint64_t requests[WL_WARP];
    uint64_t asked, delivered, failed, wrong;
    uint64_t coalesced, hits, merged, bypassed;
    uint64_t wrong_block, clock_step_ns;
    uint32_t wrong_target, unanswered;
} wl_warp_counts;

/* All addresses are valid for the requesters. `slots` holds the table with WL_DELIVER_TABLE. */
typedef struct {
    uint64_t requests;    /* wl_request[pairs][queue_size]  host memory */
    uint64_t laps;        /* uint32_t[pairs][queue_size]    host memory */
    uint64_t completions; /* uint32_t[requesters]           host memory */
    uint64_t slots;       /* uint8_t[requesters][slot_bytes] host memory */
    uint64_t output;      /* uint8_t[requesters][block_bytes] */
    uint64_t heads;       /* uint32_t[pairs][WL_HEAD_STRIDE] */
    uint64_t control;     /* uint32_t */
    uint64_t sources;     /* wl_source[targets] */
    uint64_t counts;      /* wl_warp_counts[warps] */
    uint64_t latencies;   /* uint64_t[WL_BUCKETS], of one request in `sample_every` */
    uint64_t cache_words; /* uint64_t[cache_sets][WL_WAYS] */
    uint64_t cache_hands; /* uint32_t[cache_sets] */
    uint64_t cache_pages; /* uint8_t[cache_sets][WL_WAYS][block_bytes] */
    uint64_t cache_sets;  /* 0: no cache; of random reads a power of two */
    uint64_t seed;
    uint64_t first_number; /* of each requester's requests */
    uint64_t table_blocks;
    uint32_t first_position; /* of each pair's requests: a multiple of 32 */
    uint32_t delivery, pattern;
    uint32_t pairs, queue_shift; /* of each target; the binary logarithm of the size of a ring */
    uint32_t warps_per_target, warps;
    uint32_t block_bytes, slot_bytes;
    uint32_t sample_every;
    uint32_t wait_limit_ms; /* after so long a requester leaves without its answer */
} wl_queue_view;

#endif
