/* Batches of neighbours, drawn by threads: what a batch has depends on the seed and the number of the
 * batch alone, not on the threads. See wl_sampler_open. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "errors.h"
#include "permutation.h"

enum { MISS = 0, AHEAD = 12 };
#define NEW ((uint32_t)1 << 31) /* of a reference: the place of an edge instead of a node's */
#define NODE_LIMIT (NEW - 1)

/* Nodes of one partition of a type and their places in the batch: open addressing. */
typedef struct {
    uint32_t key; /* node + 1; MISS: empty */
    uint32_t place;
} slot;

typedef struct {
    slot *slots;
    uint32_t mask, used;
} table;

typedef struct {
    uint32_t *nodes;
    uint64_t room;
    uint32_t *counts; /* when each layer begins, and at the end */
} node_list;

typedef struct {
    uint32_t *offsets; /* one more than destinations */
    uint32_t *sources;
    uint64_t offset_room, source_room;
} edge_list;

typedef struct {
    wl_sampler *sampler;
    uint32_t number;
    uint32_t meetings; /* of this batch so far */
    uint32_t *fresh;   /* nodes that are new in its tables */
    uint64_t fresh_room;
    uint64_t sum;
} worker;

struct wl_sampler {
    uint32_t threads, type_count, relation_count, layer_count;
    uint64_t seed;
    uint64_t *node_counts;
    wl_relation *relations;
    uint32_t *fanouts;
    node_list *lists; /* by type */
    edge_list *edges; /* by layer and relation */
    table *tables;    /* by thread and type */
    uint32_t *places; /* of one relation's sources, by edge */
    uint64_t place_room;
    worker *workers; /* number 0 is the caller of wl_sampler_draw */
    pthread_t *started;
    uint32_t started_count;
    pthread_mutex_t mutex;
    pthread_cond_t begins;
    pthread_barrier_t barrier;
    uint64_t begun; /* batches; under the mutex, as ends */
    int ends;
    /* Of the batch that is drawn. */
    uint64_t batch;
    const uint32_t *seeds;
    uint32_t seed_count;
    _Atomic int32_t code;
    _Atomic uint32_t failed_meeting; /* all threads end at this one */
    _Atomic uint32_t doubled;        /* 1 + a seed that was given twice */
};

static uint32_t hash_of(uint32_t node) { return node * 0x9e3779b1u ^ (node * 0x85ebca6bu >> 15); }

static uint32_t part_of(const wl_sampler *sampler, uint32_t node) {
    return (uint32_t)((uint64_t)(node * 0xc2b2ae35u) * sampler->threads >> 32);
}

static slot *slot_of(const table *found, uint32_t node) {
    uint32_t at = hash_of(node) & found->mask;
    while (found->slots[at].key != MISS && found->slots[at].key != node + 1)
        at = (at + 1) & found->mask;
    return found->slots + at;
}

/* Makes room for one more; slots move. */
static int reserve_slot(table *grown) {
    uint64_t room = grown->slots ? (uint64_t)grown->mask + 1 : 0, needed = room ? 2 * room : 1024;
    if (2 * ((uint64_t)grown->used + 1) <= room)
        return 1;
    table larger = {.mask = (uint32_t)(needed - 1), .used = grown->used};
    larger.slots = calloc(needed, sizeof *larger.slots);
    if (!larger.slots)
        return 0;
    for (uint64_t at = 0; at < room; at++)
        if (grown->slots[at].key != MISS)
            *slot_of(&larger, grown->slots[at].key - 1) = grown->slots[at];
    free(grown->slots);
    *grown = larger;
    return 1;
}

static void prefetch(const table *in, uint32_t node) {
    if (in->slots)
        __builtin_prefetch(in->slots + (hash_of(node) & in->mask));
}

static int reserve(uint32_t **memory, uint64_t *room, uint64_t count) {
    if (count <= *room)
        return 1;
    uint64_t larger = count + count / 4 + 64;
    uint32_t *moved = realloc(*memory, larger * sizeof **memory);
    if (!moved)
        return 0;
    *memory = moved;
    *room = larger;
    return 1;
}

static uint64_t slice(uint64_t count, uint32_t number, uint32_t threads) {
    return count * number / threads;
}

/* Ends the batch at the next meeting: a thread that still leaves the last one goes there too. */
static void fail(worker *self, int32_t code) {
    atomic_store(&self->sampler->code, code);
    atomic_store(&self->sampler->failed_meeting, self->meetings + 1);
}

/* Waits for all threads; whether to go on. */
static int meet(worker *self) {
    pthread_barrier_wait(&self->sampler->barrier);
    return ++self->meetings < atomic_load(&self->sampler->failed_meeting);
}

/* Without replacement (Floyd; Bentley 1987): number j of `count` is below limit = degree - count + j
 * + 1, and where it was drawn before it is limit - 1. All edges in their order if there are no more. */
static void pick(const uint32_t *list, uint64_t degree, uint32_t count, uint64_t seed,
                 uint32_t *picked) {
    if (degree == count) {
        memcpy(picked, list, count * sizeof *picked);
        return;
    }
    uint64_t places[WL_FANOUT_LIMIT];
    for (uint32_t j = 0; j < count; j++) {
        uint64_t limit = degree - count + j + 1, place = wl_scale(wl_draw(seed, j), limit);
        for (uint32_t before = 0; before < j; before++)
            if (places[before] == place) {
                place = limit - 1;
                break;
            }
        places[j] = place;
        picked[j] = list[place];
    }
}

/* Draws the edges into the destinations of this thread's slice, in place. */
static int draw_edges(worker *self, uint32_t layer, uint32_t relation_number) {
    wl_sampler *sampler = self->sampler;
    uint32_t number = self->number;
    const wl_relation *relation = sampler->relations + relation_number;
    uint32_t place = layer * sampler->relation_count + relation_number;
    uint32_t fanout = sampler->fanouts[place];
    edge_list *edges = sampler->edges + place;
    const node_list *list = sampler->lists + relation->destination;
    const uint64_t *indptr = relation->indptr;
    uint32_t count = list->counts[layer];
    if (number == 0 && !reserve(&edges->offsets, &edges->offset_room, (uint64_t)count + 1))
        fail(self, ENOMEM);
    if (!meet(self))
        return 0;
    uint32_t first = (uint32_t)slice(count, number, sampler->threads);
    uint32_t end = (uint32_t)slice(count, number + 1, sampler->threads);
    uint64_t sum = 0;
    for (uint32_t i = first; i < end; i++) {
        if (i + AHEAD < end)
            __builtin_prefetch(indptr + list->nodes[i + AHEAD]);
        uint64_t degree = indptr[list->nodes[i] + 1] - indptr[list->nodes[i]];
        uint32_t drawn = degree < fanout ? (uint32_t)degree : fanout;
        edges->offsets[i] = drawn;
        sum += drawn;
    }
    self->sum = sum;
    if (!meet(self))
        return 0;
    if (number == 0) {
        uint64_t whole = 0;
        for (uint32_t t = 0; t < sampler->threads; t++) {
            uint64_t own = sampler->workers[t].sum;
            sampler->workers[t].sum = whole;
            whole += own;
        }
        if (whole > NODE_LIMIT)
            fail(self, WL_BAD_SETUP);
        else if (!reserve(&edges->sources, &edges->source_room, whole) ||
                 !reserve(&sampler->places, &sampler->place_room, whole))
            fail(self, ENOMEM);
        edges->offsets[count] = (uint32_t)whole;
    }
    if (!meet(self))
        return 0;
    uint64_t key = wl_draw(wl_draw(sampler->seed, sampler->batch), place);
    uint32_t at = (uint32_t)self->sum;
    for (uint32_t i = first; i < end; i++) {
        if (i + AHEAD < end)
            __builtin_prefetch(relation->indices + indptr[list->nodes[i + AHEAD]]);
        uint32_t node = list->nodes[i], drawn = edges->offsets[i];
        pick(relation->indices + indptr[node], indptr[node + 1] - indptr[node], drawn,
             wl_draw(key, node), edges->sources + at);
        edges->offsets[i] = at;
        at += drawn;
    }
    return 1;
}

/* As number_nodes, by the only thread: the first edge of a new node gives it its place at once. */
static int number_alone(worker *self, edge_list *edges, uint32_t edge_count, node_list *list,
                        table *own, uint32_t *count) {
    uint64_t most = (uint64_t)*count + edge_count;
    if (!reserve(&list->nodes, &list->room, most < NODE_LIMIT ? most : NODE_LIMIT)) {
        fail(self, ENOMEM);
        return meet(self);
    }
    uint32_t next = *count;
    for (uint32_t edge = 0; edge < edge_count; edge++) {
        if (edge + AHEAD < edge_count)
            prefetch(own, edges->sources[edge + AHEAD]);
        uint32_t node = edges->sources[edge];
        if (!reserve_slot(own)) {
            fail(self, ENOMEM);
            break;
        }
        slot *found = slot_of(own, node);
        if (found->key == MISS) {
            if (next == NODE_LIMIT) {
                fail(self, WL_BAD_SETUP);
                break;
            }
            *found = (slot){node + 1, next};
            own->used++;
            list->nodes[next++] = node;
        }
        edges->sources[edge] = found->place;
    }
    *count = next;
    return meet(self);
}

/* Replaces sources by their places in the list of their type, and appends new ones in the order of
 * their first edge. Each thread looks up the nodes of its own partition; a node that is new leads to
 * its first edge until places are given out. */
static int number_nodes(worker *self, uint32_t layer, uint32_t relation_number) {
    wl_sampler *sampler = self->sampler;
    uint32_t number = self->number;
    uint32_t place = layer * sampler->relation_count + relation_number;
    uint32_t type = sampler->relations[relation_number].source;
    edge_list *edges = sampler->edges + place;
    node_list *list = sampler->lists + type;
    table *own = sampler->tables + number * sampler->type_count + type;
    uint32_t *places = sampler->places, *count = list->counts + layer + 1;
    uint32_t edge_count =
        edges->offsets[sampler->lists[sampler->relations[relation_number].destination].counts[layer]];
    uint32_t fresh_count = 0;
    if (sampler->threads == 1)
        return number_alone(self, edges, edge_count, list, own, count);
    if (!meet(self))
        return 0;
    for (uint32_t edge = 0; edge < edge_count; edge++) {
        if (edge + AHEAD < edge_count && part_of(sampler, edges->sources[edge + AHEAD]) == number)
            prefetch(own, edges->sources[edge + AHEAD]);
        uint32_t node = edges->sources[edge];
        if (part_of(sampler, node) != number)
            continue;
        if (!reserve_slot(own) ||
            !reserve(&self->fresh, &self->fresh_room, (uint64_t)fresh_count + 1)) {
            fail(self, ENOMEM);
            break;
        }
        slot *found = slot_of(own, node);
        if (found->key == MISS) {
            *found = (slot){node + 1, NEW | edge};
            own->used++;
            self->fresh[fresh_count++] = node;
        }
        places[edge] = found->place;
    }
    if (!meet(self))
        return 0;
    uint32_t first = (uint32_t)slice(edge_count, number, sampler->threads);
    uint32_t end = (uint32_t)slice(edge_count, number + 1, sampler->threads);
    uint64_t sum = 0;
    for (uint32_t edge = first; edge < end; edge++)
        sum += places[edge] == (NEW | edge);
    self->sum = sum;
    if (!meet(self))
        return 0;
    uint64_t before = *count;
    for (uint32_t t = 0; t < number; t++)
        before += sampler->workers[t].sum;
    uint64_t whole = before;
    for (uint32_t t = number; t < sampler->threads; t++)
        whole += sampler->workers[t].sum;
    if (number == 0) {
        if (whole > NODE_LIMIT)
            fail(self, WL_BAD_SETUP);
        else if (!reserve(&list->nodes, &list->room, whole))
            fail(self, ENOMEM);
    }
    if (!meet(self))
        return 0;
    /* The first edge of a new node gives it its place; that of other edges is found afterwards, as
     * their nodes' first edges may be in another thread's slice. */
    uint32_t next = (uint32_t)before;
    for (uint32_t edge = first; edge < end; edge++)
        if (places[edge] == (NEW | edge)) {
            list->nodes[next] = edges->sources[edge];
            edges->sources[edge] = next++;
        }
    if (!meet(self))
        return 0;
    if (number == 0)
        *count = (uint32_t)whole;
    for (uint32_t i = 0; i < fresh_count; i++) {
        if (i + AHEAD < fresh_count)
            prefetch(own, self->fresh[i + AHEAD]);
        slot *found = slot_of(own, self->fresh[i]);
        found->place = edges->sources[found->place & ~NEW];
    }
    for (uint32_t edge = first; edge < end; edge++)
        if (!(places[edge] & NEW))
            edges->sources[edge] = places[edge];
        else if (places[edge] != (NEW | edge))
            edges->sources[edge] = edges->sources[places[edge] & ~NEW];
    return meet(self);
}

/* Each thread takes the seeds of its partition into its own table. */
static int take_seeds(worker *self) {
    wl_sampler *sampler = self->sampler;
    uint32_t number = self->number;
    for (uint32_t type = 0; type < sampler->type_count; type++) {
        table *own = sampler->tables + number * sampler->type_count + type;
        if (own->slots)
            memset(own->slots, 0, ((size_t)own->mask + 1) * sizeof *own->slots);
        own->used = 0;
        if (number == 0)
            sampler->lists[type].counts[0] = type ? 0 : sampler->seed_count;
    }
    node_list *list = sampler->lists;
    if (number == 0) {
        if (reserve(&list->nodes, &list->room, sampler->seed_count))
            memcpy(list->nodes, sampler->seeds, sampler->seed_count * sizeof *list->nodes);
        else
            fail(self, ENOMEM);
    }
    table *own = sampler->tables + number * sampler->type_count;
    for (uint32_t i = 0; i < sampler->seed_count; i++) {
        uint32_t node = sampler->seeds[i];
        if (part_of(sampler, node) != number)
            continue;
        if (!reserve_slot(own)) {
            fail(self, ENOMEM);
            break;
        }
        slot *found = slot_of(own, node);
        if (found->key != MISS) {
            atomic_store(&sampler->doubled, node + 1);
            fail(self, WL_BAD_SETUP);
            break;
        }
        *found = (slot){node + 1, i};
        own->used++;
    }
    return meet(self);
}

static void draw_layers(worker *self) {
    wl_sampler *sampler = self->sampler;
    if (!take_seeds(self))
        return;
    for (uint32_t layer = 0; layer < sampler->layer_count; layer++) {
        if (self->number == 0)
            for (uint32_t type = 0; type < sampler->type_count; type++)
                sampler->lists[type].counts[layer + 1] = sampler->lists[type].counts[layer];
        for (uint32_t relation = 0; relation < sampler->relation_count; relation++)
            if (!draw_edges(self, layer, relation) || !number_nodes(self, layer, relation))
                return;
    }
}

/* All threads have left their last meeting when it returns: the next batch may begin. */
static void draw_batch(worker *self) {
    self->meetings = 0;
    draw_layers(self);
    pthread_barrier_wait(&self->sampler->barrier);
}

static void *serve(void *argument) {
    worker *self = argument;
    wl_sampler *sampler = self->sampler;
    for (uint64_t served = 0;; served++) {
        pthread_mutex_lock(&sampler->mutex);
        while (sampler->begun == served && !sampler->ends)
            pthread_cond_wait(&sampler->begins, &sampler->mutex);
        int ends = sampler->ends;
        pthread_mutex_unlock(&sampler->mutex);
        if (ends)
            return NULL;
        draw_batch(self);
    }
}

int32_t wl_sampler_draw(wl_sampler *sampler, uint64_t batch, const uint32_t *seeds,
                        uint32_t seed_count, wl_error *error) {
    for (uint32_t i = 0; i < seed_count; i++)
        if (seeds[i] >= sampler->node_counts[0])
            return wl_fail(error, WL_BAD_SETUP, NULL, WL_NOWHERE,
                           "seed %u is node %u, but there are only %llu nodes", i, seeds[i],
                           (unsigned long long)sampler->node_counts[0]);
    sampler->batch = batch;
    sampler->seeds = seeds;
    sampler->seed_count = seed_count;
    atomic_store(&sampler->code, WL_OK);
    atomic_store(&sampler->failed_meeting, UINT32_MAX);
    atomic_store(&sampler->doubled, 0);
    pthread_mutex_lock(&sampler->mutex);
    sampler->begun++;
    pthread_cond_broadcast(&sampler->begins);
    pthread_mutex_unlock(&sampler->mutex);
    draw_batch(sampler->workers);
    uint32_t doubled = atomic_load(&sampler->doubled);
    if (doubled)
        return wl_fail(error, WL_BAD_SETUP, NULL, WL_NOWHERE, "node %u is twice among the seeds",
                       doubled - 1);
    int32_t code = atomic_load(&sampler->code);
    if (code == WL_BAD_SETUP)
        return wl_fail(error, code, NULL, WL_NOWHERE, "a batch has more than %u nodes or edges",
                       NODE_LIMIT);
    return code ? wl_fail(error, code, NULL, WL_NOWHERE, "sampling a batch") : WL_OK;
}

static int32_t check_setup(const wl_sampler_setup *setup, wl_error *error) {
    if (setup->struct_bytes != sizeof *setup)
        return wl_fail(error, WL_BAD_SETUP, NULL, WL_NOWHERE, "struct_bytes is %u, not %zu",
                       setup->struct_bytes, sizeof *setup);
    if (!setup->threads || setup->threads > WL_SAMPLER_THREADS)
        return wl_fail(error, WL_BAD_SETUP, NULL, WL_NOWHERE, "threads must be 1 to %u, got %u",
                       WL_SAMPLER_THREADS, setup->threads);
    if (!setup->type_count || !setup->relation_count || !setup->layer_count)
        return wl_fail(error, WL_BAD_SETUP, NULL, WL_NOWHERE,
                       "a sampler needs a type of nodes, a relation and a layer");
    for (uint32_t i = 0; i < setup->type_count; i++)
        if (setup->node_counts[i] > NODE_LIMIT)
            return wl_fail(error, WL_BAD_SETUP, NULL, WL_NOWHERE,
                           "a type must have at most %u nodes, got %llu", NODE_LIMIT,
                           (unsigned long long)setup->node_counts[i]);
    for (uint32_t i = 0; i < setup->relation_count; i++)
        if (setup->relations[i].source >= setup->type_count ||
            setup->relations[i].destination >= setup->type_count)
            return wl_fail(error, WL_BAD_SETUP, NULL, WL_NOWHERE,
                           "relation %u is of a type of nodes that is not there", i);
    for (uint64_t i = 0; i < (uint64_t)setup->layer_count * setup->relation_count; i++)
        if (setup->fanouts[i] > WL_FANOUT_LIMIT)
            return wl_fail(error, WL_BAD_SETUP, NULL, WL_NOWHERE,
                           "a fan-out must be at most %u, got %u", WL_FANOUT_LIMIT,
                           setup->fanouts[i]);
    return WL_OK;
}

static void *copy_of(const void *from, size_t count, size_t bytes) {
    void *made = calloc(count, bytes);
    if (made && from)
        memcpy(made, from, count * bytes);
    return made;
}

static int fill(wl_sampler *made, const wl_sampler_setup *setup) {
    size_t places = (size_t)setup->layer_count * setup->relation_count;
    made->threads = setup->threads;
    made->type_count = setup->type_count;
    made->relation_count = setup->relation_count;
    made->layer_count = setup->layer_count;
    made->seed = setup->seed;
    made->node_counts = copy_of(setup->node_counts, made->type_count, sizeof *made->node_counts);
    made->relations = copy_of(setup->relations, made->relation_count, sizeof *made->relations);
    made->fanouts = copy_of(setup->fanouts, places, sizeof *made->fanouts);
    made->lists = copy_of(NULL, made->type_count, sizeof *made->lists);
    made->edges = copy_of(NULL, places, sizeof *made->edges);
    made->tables = copy_of(NULL, (size_t)made->threads * made->type_count, sizeof *made->tables);
    made->workers = copy_of(NULL, made->threads, sizeof *made->workers);
    made->started = copy_of(NULL, made->threads, sizeof *made->started);
    if (!made->node_counts || !made->relations || !made->fanouts || !made->lists || !made->edges ||
        !made->tables || !made->workers || !made->started)
        return 0;
    for (uint32_t type = 0; type < made->type_count; type++) {
        made->lists[type].counts =
            copy_of(NULL, made->layer_count + (size_t)1, sizeof *made->lists[type].counts);
        if (!made->lists[type].counts)
            return 0;
    }
    return 1;
}

int32_t wl_sampler_open(const wl_sampler_setup *setup, wl_sampler **opened, wl_error *error) {
    int32_t code = check_setup(setup, error);
    if (code)
        return code;
    wl_sampler *made = calloc(1, sizeof *made);
    if (!made)
        return wl_fail(error, ENOMEM, NULL, WL_NOWHERE, "allocating a sampler");
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->begins, NULL);
    pthread_barrier_init(&made->barrier, NULL, setup->threads);
    if (!fill(made, setup)) {
        wl_sampler_close(made);
        return wl_fail(error, ENOMEM, NULL, WL_NOWHERE, "allocating a sampler");
    }
    for (uint32_t i = 0; i < made->threads; i++) {
        made->workers[i] = (worker){.sampler = made, .number = i};
        if (i == 0)
            continue;
        code = pthread_create(made->started + i, NULL, serve, made->workers + i);
        if (code) {
            wl_sampler_close(made);
            return wl_fail(error, code, NULL, WL_NOWHERE, "starting a thread");
        }
        made->started_count = i;
    }
    *opened = made;
    return WL_OK;
}

const uint32_t *wl_sampler_nodes(const wl_sampler *sampler, uint32_t type, const uint32_t **counts) {
    *counts = sampler->lists[type].counts;
    return sampler->lists[type].nodes;
}

const uint32_t *wl_sampler_edges(const wl_sampler *sampler, uint32_t layer, uint32_t relation,
                                 const uint32_t **offsets) {
    const edge_list *edges = sampler->edges + (size_t)layer * sampler->relation_count + relation;
    *offsets = edges->offsets;
    return edges->sources;
}

void wl_sampler_close(wl_sampler *sampler) {
    pthread_mutex_lock(&sampler->mutex);
    sampler->ends = 1;
    pthread_cond_broadcast(&sampler->begins);
    pthread_mutex_unlock(&sampler->mutex);
    for (uint32_t i = 1; i <= sampler->started_count; i++)
        pthread_join(sampler->started[i], NULL);
    for (uint32_t i = 0; sampler->lists && i < sampler->type_count; i++) {
        free(sampler->lists[i].nodes);
        free(sampler->lists[i].counts);
    }
    for (size_t i = 0; sampler->edges && i < (size_t)sampler->layer_count * sampler->relation_count;
         i++) {
        free(sampler->edges[i].offsets);
        free(sampler->edges[i].sources);
    }
    for (size_t i = 0; sampler->tables && i < (size_t)sampler->threads * sampler->type_count; i++)
        free(sampler->tables[i].slots);
    for (uint32_t i = 0; sampler->workers && i < sampler->threads; i++)
        free(sampler->workers[i].fresh);
    free(sampler->node_counts);
    free(sampler->relations);
    free(sampler->fanouts);
    free(sampler->lists);
    free(sampler->edges);
    free(sampler->tables);
    free(sampler->places);
    free(sampler->workers);
    free(sampler->started);
    pthread_barrier_destroy(&sampler->barrier);
    pthread_cond_destroy(&sampler->begins);
    pthread_mutex_destroy(&sampler->mutex);
    free(sampler);
}
