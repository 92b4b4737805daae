/*
 * Requests to the shards of the cache, and their responses.
 *
 * Each worker thread is attached, which makes it a trustee, and entrusts its shard: the thread-local variables of
 * assoc.c, items.c and slabs.c, which only this thread can name. A delegated function runs on the thread of its shard,
 * so those variables are the right ones there, and memcached's own functions (do_item_get, do_store_item and the rest)
 * need no change.
 *
 * A connection's state machine sends requests and goes on with the next command (delegate_get, delegate_store). Before
 * it transmits, it waits for the outstanding responses, so replies leave in the order of the commands. Commands that
 * are rare run on the shard as a whole while the connection waits (delegate_meta).
 *
 * Who owns what: an item is part of one shard, or private to the thread that has it (ITEM_PRIVATE, from malloc). What
 * travels from shard to shard is a private copy.
 */
#include "memcached.h"
#include "base64.h"
#include <assert.h>
#include <poll.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <trust.h>

/* What proto_text.c splits a command into. */
struct token_s {
    char *value;
    size_t length;
};

static trust_t *shards;                 /* one trust for each worker, shared by all */
static __thread unsigned int me;        /* this worker's shard */
static __thread bool owner;             /* the running code may touch this thread's shard as it likes */
static __thread conn shard_conn;        /* stands for the connection in functions that run for another worker */
static __thread conn *ready;            /* connections that can go on */
static __thread int descriptor;         /* readable when there is something to do for the library */
static __thread unsigned int outstanding; /* requests of this thread's connections */
static __thread bool stopping;
static atomic_uint stopped;             /* workers that ask for nothing any more */

__thread struct stats_state shard_stats_state;
__thread uint64_t shard_oldest_cas;
__thread uint64_t shard_total_items;

static bool slabs_preallocated;
static const uint32_t *slabs_sizes;

unsigned int delegate_shards(void) { return settings.num_threads; }
unsigned int delegate_me(void) { return me; }

/* High bits choose the shard, low bits the bucket in it. */
static unsigned int shard_of(uint32_t hv) {
    return ((uint64_t)hv * settings.num_threads) >> 32;
}

static bool is_mine(uint32_t hv) { return owner && shard_of(hv) == me; }

static void must(trust_status status, const char *what) {
    if (status != TRUST_OK) {
        fprintf(stderr, "memcached: %s: %s\n", what, trust_error_message());
        abort();
    }
}

/* Runs a function on a shard, and waits. The pointer is to memory of this thread, which does nothing meanwhile. */
struct call {
    void (*function)(void *argument);
    void *argument;
};

static void run_call(void *unused, const void *arguments, size_t length, trust_result *result) {
    const struct call *call = arguments;
    call->function(call->argument);
}

static void on_shard(unsigned int shard, void (*function)(void *), void *argument) {
    if (owner && shard == me) {
        function(argument);
        return;
    }
    struct call call = {function, argument};
    must(trust_apply(shards[shard], run_call, &call, sizeof(call), NULL, NULL), "delegation to a shard");
}

void delegate_all(void (*function)(void *), void *argument) {
    for (unsigned int i = 0; i < delegate_shards(); i++)
        on_shard(i, function, argument);
}

/* ---- the life of a worker ---- */

static void init_slabs(size_t limit, bool preallocate) {
    slabs_init(limit, settings.factor, preallocate, slabs_sizes, NULL, false);
}

void delegate_init(bool preallocate, const uint32_t *slab_sizes) {
    slabs_preallocated = preallocate;
    slabs_sizes = slab_sizes;
    /* The main thread has no shard, but asks for the class of a size. */
    init_slabs(0, false);
    shards = calloc(delegate_shards(), sizeof(*shards));
    if (shards == NULL) {
        perror("Can't allocate the list of shards");
        exit(EXIT_FAILURE);
    }
    /* What moves items between shards' lists, or whole slabs, behind the shards' backs. */
    settings.slab_reassign = false;
    settings.slab_automove = 0;
    if (settings.memory_file != NULL) {
        fprintf(stderr, "-e (--memory-file) is not part of the delegated build\n");
        exit(EX_USAGE);
    }
}

void delegate_attach(void) { must(trust_attach(NULL), "attaching a thread"); }

void delegate_worker_init(LIBEVENT_THREAD *thread, int index) {
    me = index;
    owner = true;
    shard_conn.thread = thread;
    shard_conn.sfd = -1;
    assoc_init(settings.hashpower_init);
    init_slabs(settings.maxbytes / delegate_shards(), slabs_preallocated);
    trust_trustee trustee;
    must(trust_attach(&descriptor), "attaching a worker");
    must(trust_local_trustee(&trustee), "finding a worker's trustee");
    must(trust_entrust(trustee, &shard_conn, NULL, &shards[index]), "entrusting a shard");
}

static void on_readable(evutil_socket_t fd, short which, void *arg) { }

static void drive_ready(void) {
    while (ready != NULL) {
        conn *c = ready;
        ready = c->delegated_next;
        c->delegated_ready = false;
        if (c->delegated_deaf) {
            c->delegated_deaf = false;
            if (event_add(&c->event, 0) == -1)
                fprintf(stderr, "Can't watch a connection again\n");
        }
        drive_machine(c);
    }
}

void delegate_event_loop(LIBEVENT_THREAD *thread) {
    struct event event;
    event_set(&event, descriptor, EV_READ | EV_PERSIST, on_readable, NULL);
    event_base_set(thread->base, &event);
    if (event_add(&event, 0) == -1) {
        fprintf(stderr, "Can't monitor the descriptor for delegated requests\n");
        exit(EXIT_FAILURE);
    }
    bool busy = false;
    while (!stopping) {
        /* While requests come and go it does not sleep. */
        event_base_loop(thread->base, EVLOOP_ONCE | (busy ? EVLOOP_NONBLOCK : 0));
        must(trust_poll(&busy), "serving other workers");
        drive_ready();
    }
    event_del(&event);
    /* Until all workers have what they asked for, each has to serve: none may end, or hang, before the others. */
    struct pollfd readable = {.fd = descriptor, .events = POLLIN};
    bool counted = false;
    while (!counted || atomic_load(&stopped) < delegate_shards()) {
        if (!counted && outstanding == 0) {
            counted = true;
            atomic_fetch_add(&stopped, 1);
        }
        poll(&readable, 1, 1);
        must(trust_poll(NULL), "serving other workers at the end");
    }
}

void delegate_stop(void) { stopping = true; }

/* ---- connections that wait ---- */

bool delegate_must_wait(conn *c) {
    if (c->delegated == 0 && !c->delegated_ready)
        return false;
    /*
     * An event drives the connection while it waits: it cannot handle the event of its socket yet. Until it can, the
     * socket is not watched, or the loop would never sleep. A connection on the list is driven from there alone: a
     * close from here would leave it on the list.
     */
    if ((c->delegated_wait || c->delegated_ready) && !c->delegated_deaf) {
        c->delegated_deaf = true;
        event_del(&c->event);
    }
    c->delegated_wait = !c->delegated_ready;
    return true;
}

static void request_goes(conn *c) {
    c->delegated++;
    outstanding++;
}

static void response_came(conn *c) {
    outstanding--;
    c->delegated--;
    if (c->delegated == 0 && c->delegated_wait) {
        c->delegated_wait = false;
        c->delegated_ready = true;
        c->delegated_next = ready;
        ready = c;
    }
}

void delegate_wait(conn *c) {
    while (c->delegated != 0)
        must(trust_yield(), "waiting for a shard");
}

/* ---- private items ---- */

static item *private_item(const char *key, size_t nkey, uint32_t flags, rel_time_t exptime, int nbytes) {
    size_t ntotal = sizeof(item) + nkey + 1 + (flags ? sizeof(flags) : 0) + nbytes
        + (settings.use_cas ? sizeof(uint64_t) : 0);
    unsigned int id = slabs_clsid(ntotal);
    if (nbytes < 2 || id == 0)
        return NULL;
    item *it = malloc(ntotal);
    if (it == NULL)
        return NULL;
    memset(it, 0, sizeof(*it));
    it->refcount = 1;
    it->slabs_clsid = id;
    it->it_flags = ITEM_PRIVATE | (settings.use_cas ? ITEM_CAS : 0) | (flags ? ITEM_CFLAGS : 0);
    it->nkey = nkey;
    it->nbytes = nbytes;
    it->exptime = exptime;
    memcpy(ITEM_key(it), key, nkey);
    ITEM_key(it)[nkey] = 0;
    ITEM_set_cas(it, 0);
    if (flags)
        memcpy(ITEM_suffix(it), &flags, sizeof(flags));
    return it;
}

/* An item with the key, flags, times and length of another, private or of this shard. The caller copies the value. */
static item *item_like(item *from, bool private) {
    uint32_t flags;
    FLAGS_CONV(from, flags);
    item *it = private ? private_item(ITEM_key(from), from->nkey, flags, from->exptime, from->nbytes)
                       : do_item_alloc(ITEM_key(from), from->nkey, flags, from->exptime, from->nbytes);
    if (it != NULL) {
        ITEM_set_cas(it, ITEM_get_cas(from));
    }
    return it;
}

/* A copy of an item of this shard, in one piece. */
static item *private_copy(item *from) {
    item *it = item_like(from, true);
    if (it == NULL)
        return NULL;
    it->slabs_clsid = from->slabs_clsid;
    it->time = from->time;
    it->it_flags |= from->it_flags & ~(ITEM_LINKED | ITEM_SLABBED | ITEM_CHUNKED | ITEM_CHUNK);
    if (from->it_flags & ITEM_CHUNKED) {
        int done = 0;
        for (item_chunk *chunk = (item_chunk *)ITEM_schunk(from); chunk != NULL; chunk = chunk->next) {
            memcpy(ITEM_data(it) + done, chunk->data, chunk->used);
            done += chunk->used;
        }
    } else {
        memcpy(ITEM_data(it), ITEM_data(from), from->nbytes);
    }
    return it;
}

/* An item of this shard with what a private one holds. */
static item *shard_copy(item *from) {
    item *it = item_like(from, false);
    if (it == NULL)
        return NULL;
    it->it_flags |= from->it_flags & (ITEM_KEY_BINARY | ITEM_STALE | ITEM_TOKEN_SENT);
    if ((it->it_flags & ITEM_CHUNKED) == 0) {
        memcpy(ITEM_data(it), ITEM_data(from), from->nbytes);
    } else if (store_item_copy_chunks(it, from, from->nbytes) == -1) {
        do_item_remove(it);
        return NULL;
    }
    return it;
}

static item *find_anywhere(const char *key, size_t nkey, uint32_t exptime, bool touch, bool update, conn *c);

/* ---- get ---- */

struct get {
    uint32_t hv;
    rel_time_t exptime;
    int sfd;            /* for the log of memcached's watchers */
    bool touch;
    uint8_t nkey;
    char key[KEY_MAX_LENGTH];
};

/* What the response needs, at the client. */
struct got {
    conn *c;
    mc_resp *resp;
    bool touch, cas, last;
};

static item *find(const char *key, size_t nkey, uint32_t hv, rel_time_t exptime, bool touch, bool update, conn *c) {
    return touch ? do_item_touch(key, nkey, exptime, hv, c) : do_item_get(key, nkey, hv, c, update);
}

static void run_get(void *property, const void *arguments, size_t length, trust_result *result) {
    const struct get *get = arguments;
    shard_conn.sfd = get->sfd;
    item *copy = NULL, *it = find(get->key, get->nkey, get->hv, get->exptime, get->touch, DO_UPDATE, property);
    if (it != NULL) {
        copy = private_copy(it);
        do_item_remove(it);
    }
    trust_result_put(result, &copy, sizeof(copy));
}

static void get_came(void *context, trust_status status, const void *result, size_t length) {
    struct got *got = context;
    must(status, "a get");
    item *it;
    memcpy(&it, result, sizeof(it));
    complete_get_ascii(got->c, got->resp, it, got->cas, got->touch, got->last);
    response_came(got->c);
    do_cache_free(got->c->thread->io_cache, got);
}

void delegate_get(conn *c, const char *key, size_t nkey, rel_time_t exptime, bool touch, bool cas, bool last) {
    uint32_t hv = hash(key, nkey);
    if (is_mine(hv) || settings.detail_enabled) {
        bool overflow;  /* too many references to it: a miss, as in memcached */
        item *it = limited_get((char *)key, nkey, c, exptime, touch, DO_UPDATE, &overflow);
        if (settings.detail_enabled)
            stats_prefix_record_get(key, nkey, it != NULL);
        complete_get_ascii(c, c->resp, it, cas, touch, last);
        return;
    }
    struct got *got = do_cache_alloc(c->thread->io_cache);
    if (got == NULL) {
        complete_get_ascii(c, c->resp, NULL, cas, touch, last);
        return;
    }
    *got = (struct got){c, c->resp, touch, cas, last};
    struct get get = {.hv = hv, .exptime = exptime, .sfd = c->sfd, .touch = touch, .nkey = nkey};
    memcpy(get.key, key, nkey);
    request_goes(c);
    must(trust_apply_then(shards[shard_of(hv)], run_get, &get, offsetof(struct get, key) + nkey, get_came, got),
         "a get");
}

/* ---- store ---- */

struct store {
    item *it;           /* private; the client frees it */
    uint32_t hv;
    int comm, sfd;
    bool stale;
};

struct stored {
    enum store_item_type status;
    uint64_t cas;
};

static struct stored store_here(item *it, int comm, bool stale, uint32_t hv, conn *c) {
    struct stored stored = {NO_MEMORY, 0};
    item *own = it->it_flags & ITEM_PRIVATE ? shard_copy(it) : it;
    if (own == NULL) {
        /* As memcached does when it has no room: an old value is no longer true. */
        item *old = comm == NREAD_SET ? do_item_get(ITEM_key(it), it->nkey, hv, c, DONT_UPDATE) : NULL;
        if (old != NULL) {
            do_item_unlink(old, hv);
            do_item_remove(old);
        }
        return stored;
    }
    shard_conn.set_stale = stale;
    shard_conn.cas = 0;
    stored.status = do_store_item(own, comm, &shard_conn, hv);
    stored.cas = shard_conn.cas;
    if (own != it)
        do_item_remove(own);
    return stored;
}

static void run_store(void *property, const void *arguments, size_t length, trust_result *result) {
    const struct store *store = arguments;
    shard_conn.sfd = store->sfd;
    struct stored stored = store_here(store->it, store->comm, store->stale, store->hv, property);
    trust_result_put(result, &stored, sizeof(stored));
}

struct storing {
    conn *c;
    mc_resp *resp;
    item *it;
    bool noreply;
};

static void complete_store(conn *c, mc_resp *resp, bool noreply, enum store_item_type status) {
    static const char *const texts[] = {
        [NOT_STORED] = "NOT_STORED\r\n", [STORED] = "STORED\r\n", [EXISTS] = "EXISTS\r\n",
        [NOT_FOUND] = "NOT_FOUND\r\n", [TOO_LARGE] = "SERVER_ERROR object too large for cache\r\n",
        [NO_MEMORY] = "SERVER_ERROR out of memory storing object\r\n",
    };
    if (status == NO_MEMORY) {
        pthread_mutex_lock(&c->thread->stats.mutex);
        c->thread->stats.store_no_memory++;
        pthread_mutex_unlock(&c->thread->stats.mutex);
    }
    if (noreply) {
        resp->skip = true;
    } else {
        resp_add_iov(resp, texts[status], strlen(texts[status]));
    }
}

static void store_came(void *context, trust_status status, const void *result, size_t length) {
    struct storing *storing = context;
    conn *c = storing->c;
    must(status, "a store");
    struct stored stored;
    memcpy(&stored, result, sizeof(stored));
    complete_store(c, storing->resp, storing->noreply, stored.status);
    free(storing->it);
    response_came(c);
    do_cache_free(c->thread->io_cache, storing);
}

/* Both come from the thread's cache of this type. */
_Static_assert(sizeof(struct got) <= sizeof(io_pending_t) && sizeof(struct storing) <= sizeof(io_pending_t),
               "too large");

void delegate_store(conn *c, item *it, int comm) {
    uint32_t hv = hash(ITEM_key(it), it->nkey);
    struct storing *storing = is_mine(hv) ? NULL : do_cache_alloc(c->thread->io_cache);
    if (storing == NULL) {
        complete_store(c, c->resp, c->noreply, store_item(it, comm, c));
        item_remove(it);
        return;
    }
    *storing = (struct storing){c, c->resp, it, c->noreply};
    struct store store = {it, hv, comm, c->sfd, false};
    request_goes(c);
    must(trust_apply_then(shards[shard_of(hv)], run_store, &store, sizeof(store), store_came, storing), "a store");
}

/* ---- memcached's functions on items, for threads that may have to ask another shard, and wait ---- */

void item_lock(uint32_t hv) { }
void item_unlock(uint32_t hv) { }
void *item_trylock(uint32_t hv) { return &shards; }
void item_trylock_unlock(void *lock) { }

struct find_call {
    const char *key;
    size_t nkey;
    uint32_t hv, exptime;
    bool touch, update;
    int sfd;
    item *found;
};

static void run_find(void *argument) {
    struct find_call *f = argument;
    shard_conn.sfd = f->sfd;
    item *it = find(f->key, f->nkey, f->hv, f->exptime, f->touch, f->update, &shard_conn);
    f->found = it ? private_copy(it) : NULL;
    if (it)
        do_item_remove(it);
}

static item *find_anywhere(const char *key, size_t nkey, uint32_t exptime, bool touch, bool update, conn *c) {
    uint32_t hv = hash(key, nkey);
    if (is_mine(hv))
        return find(key, nkey, hv, exptime, touch, update, c);
    struct find_call f = {key, nkey, hv, exptime, touch, update, c->sfd, NULL};
    on_shard(shard_of(hv), run_find, &f);
    return f.found;
}

item *item_get(const char *key, const size_t nkey, conn *c, const bool do_update) {
    return find_anywhere(key, nkey, 0, false, do_update, c);
}

item *item_touch(const char *key, size_t nkey, uint32_t exptime, conn *c) {
    return find_anywhere(key, nkey, exptime, true, DO_UPDATE, c);
}

/* For commands that run on the shard of their key. */
item *item_get_locked(const char *key, const size_t nkey, conn *c, const bool do_update, uint32_t *hv) {
    *hv = hash(key, nkey);
    assert(is_mine(*hv));
    return do_item_get(key, nkey, *hv, c, do_update);
}

item *item_alloc(char *key, size_t nkey, int flags, rel_time_t exptime, int nbytes) {
    if (is_mine(hash(key, nkey)))
        return do_item_alloc(key, nkey, flags, exptime, nbytes);
    return private_item(key, nkey, flags, exptime, nbytes);
}

void item_remove(item *it) { do_item_remove(it); }

static void run_unlink(void *argument) {
    item *like = argument;
    uint32_t hv = hash(ITEM_key(like), like->nkey);
    item *it = do_item_get(ITEM_key(like), like->nkey, hv, &shard_conn, DONT_UPDATE);
    if (it != NULL) {
        do_item_unlink(it, hv);
        do_item_remove(it);
    }
}

void item_unlink(item *it) {
    uint32_t hv = hash(ITEM_key(it), it->nkey);
    if (it->it_flags & ITEM_PRIVATE)
        on_shard(shard_of(hv), run_unlink, it);
    else
        do_item_unlink(it, hv);
}

int item_link(item *it) { return do_item_link(it, hash(ITEM_key(it), it->nkey)); }

int item_replace(item *old_it, item *new_it, const uint32_t hv) { return do_item_replace(old_it, new_it, hv); }

struct store_call {
    item *it;
    int comm, sfd;
    bool stale;
    uint32_t hv;
    struct stored stored;
};

static void run_store_call(void *argument) {
    struct store_call *s = argument;
    shard_conn.sfd = s->sfd;
    s->stored = store_here(s->it, s->comm, s->stale, s->hv, &shard_conn);
}

enum store_item_type store_item(item *it, int comm, conn *c) {
    uint32_t hv = hash(ITEM_key(it), it->nkey);
    struct store_call s = {it, comm, c->sfd, c->set_stale, hv};
    on_shard(shard_of(hv), run_store_call, &s);
    if (s.stored.status == STORED) {
        c->cas = s.stored.cas;
        if (it->it_flags & ITEM_PRIVATE)
            ITEM_set_cas(it, s.stored.cas);
    }
    return s.stored.status;
}

struct delta_call {
    const char *key;
    size_t nkey;
    bool incr;
    int64_t delta;
    char *buf;
    uint64_t *cas;
    enum delta_result_type result;
};

static void run_delta(void *argument) {
    struct delta_call *d = argument;
    d->result = do_add_delta(&shard_conn, d->key, d->nkey, d->incr, d->delta, d->buf, d->cas, hash(d->key, d->nkey),
                             NULL);
}

enum delta_result_type add_delta(conn *c, const char *key, const size_t nkey, bool incr, const int64_t delta, char *buf,
                                 uint64_t *cas) {
    struct delta_call d = {key, nkey, incr, delta, buf, cas, OK};
    on_shard(shard_of(hash(key, nkey)), run_delta, &d);
    return d.result;
}

/* ---- whole commands ---- */

struct command_call {
    conn *c;
    token_t *tokens;
    size_t ntokens;
    command_fn text;
    void (*binary)(conn *c);
};

/* The response must not point into the shard: this copies what it holds. */
static void take_private(mc_resp *resp) {
    item *it = resp->item;
    if (it == NULL || (it->it_flags & ITEM_PRIVATE))
        return;
    item *copy = private_copy(it);
    if (copy == NULL) {
        fprintf(stderr, "memcached: no memory for the copy of a value\n");
        abort();
    }
    /* Of an item in chunks only the head, with the key, lies there. */
    const char *end = it->it_flags & ITEM_CHUNKED ? ITEM_data(it) : (char *)it + ITEM_ntotal(it);
    for (int i = 0; i < resp->iovcnt; i++) {
        char *base = resp->iov[i].iov_base;
        if (resp->chunked_total != 0 && i == resp->chunked_data_iov) {
            resp->iov[i].iov_base = ITEM_data(copy);
            resp->iov[i].iov_len = resp->chunked_total;
            resp->chunked_total = 0;
            resp->chunked_data_iov = 0;
        } else if (base >= (char *)it && base < end) {
            resp->iov[i].iov_base = ITEM_data(copy) + (base - ITEM_data(it));
        }
    }
    resp->item = copy;
    do_item_remove(it);
}

static void run_command(void *argument) {
    struct command_call *call = argument;
    if (call->text != NULL)
        call->text(call->c, call->tokens, call->ntokens);
    else
        call->binary(call->c);
    if (call->c->resp != NULL)
        take_private(call->c->resp);
}

static void run_command_for(conn *c, const char *key, size_t nkey, struct command_call *call) {
    unsigned int shard = shard_of(hash(key, nkey));
    if (shard == me && call->text != NULL)
        call->text(c, call->tokens, call->ntokens);
    else if (shard == me)
        call->binary(c);
    else
        on_shard(shard, run_command, call);
}

void delegate_meta(conn *c, token_t *tokens, size_t ntokens, command_fn command) {
    struct command_call call = {c, tokens, ntokens, command, NULL};
    const char *key = ntokens > 1 ? tokens[1].value : "";
    size_t nkey = ntokens > 1 ? tokens[1].length : 0;
    char decoded[KEY_MAX_LENGTH * 2];
    if (nkey > KEY_MAX_LENGTH)
        nkey = 0;   /* refused by the command, on whichever shard */
    for (size_t i = 2; i + 1 < ntokens && nkey != 0; i++) {
        /* As _meta_flag_preparse does it: the first byte alone counts. */
        if (tokens[i].length != 0 && tokens[i].value[0] == 'b' && tokens[0].value[0] == 'm') {
            nkey = base64_decode((const unsigned char *)key, nkey, (unsigned char *)decoded, sizeof(decoded));
            key = decoded;
            break;
        }
    }
    run_command_for(c, key, nkey, &call);
}

void delegate_bin(conn *c, const char *key, size_t nkey, void (*command)(conn *c)) {
    struct command_call call = {c, NULL, 0, NULL, command};
    run_command_for(c, key, nkey, &call);
}

/* ---- what concerns all shards ---- */

void delegate_flush(void *unused) { shard_oldest_cas = get_cas_id(); }

struct sum {
    struct stats_state state;
    uint64_t total_items;
};

static void add_stats(void *argument) {
    struct sum *sum = argument;
    sum->state.curr_items += shard_stats_state.curr_items;
    sum->state.curr_bytes += shard_stats_state.curr_bytes;
    sum->state.hash_bytes += shard_stats_state.hash_bytes;
    sum->state.hash_is_expanding |= shard_stats_state.hash_is_expanding;
    if (sum->state.hash_power_level < shard_stats_state.hash_power_level)
        sum->state.hash_power_level = shard_stats_state.hash_power_level;
    sum->total_items += shard_total_items;
}

void delegate_sum_stats(void) {
    struct sum sum = {{0}};
    delegate_all(add_stats, &sum);
    STATS_LOCK();
    stats_state.curr_items = sum.state.curr_items;
    stats_state.curr_bytes = sum.state.curr_bytes;
    stats_state.hash_bytes = sum.state.hash_bytes;
    stats_state.hash_is_expanding = sum.state.hash_is_expanding;
    stats_state.hash_power_level = sum.state.hash_power_level;
    stats.total_items = sum.total_items;
    STATS_UNLOCK();
}

struct limit {
    size_t bytes;
    bool done;
};

static void set_limit(void *argument) {
    struct limit *limit = argument;
    limit->done &= slabs_adjust_mem_limit(limit->bytes);
}

bool delegate_mem_limit(size_t bytes) {
    struct limit limit = {bytes / delegate_shards(), true};
    delegate_all(set_limit, &limit);
    if (limit.done)
        settings.maxbytes = bytes;
    return limit.done;
}

struct dump {
    unsigned int id, limit, bytes;
    char *text;
};

static void run_dump(void *argument) {
    struct dump *dump = argument;
    unsigned int bytes = 0;
    char *text = item_cachedump(dump->id, dump->limit, &bytes);
    if (text == NULL)
        return;
    char *all = realloc(dump->text, dump->bytes + bytes + 1);
    if (all != NULL) {
        /* Each ends with "END\r\n", which only the last may keep. */
        unsigned int before = dump->bytes >= 5 ? dump->bytes - 5 : 0;
        memcpy(all + before, text, bytes + 1);
        dump->text = all;
        dump->bytes = before + bytes;
    }
    free(text);
}

char *delegate_cachedump(unsigned int id, unsigned int limit, unsigned int *bytes) {
    struct dump dump = {id, limit, 0, NULL};
    delegate_all(run_dump, &dump);
    *bytes = dump.bytes;
    return dump.text;
}

struct juggle {
    int id, moves;
};

static void run_juggle(void *argument) {
    struct juggle *juggle = argument;
    juggle->moves += lru_maintainer_juggle(juggle->id);
}

int delegate_juggle(int id) {
    struct juggle juggle = {id, 0};
    delegate_all(run_juggle, &juggle);
    return juggle.moves;
}
