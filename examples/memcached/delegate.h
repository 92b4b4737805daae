/*
 * memcached's cache, delegated: each worker thread is the trustee of one shard (hash table, slabs, LRU lists,
 * statistics), and client of all others. docs/port-a-c-server.md has the method.
 */
#ifndef DELEGATE_H
#define DELEGATE_H

/* Once, in main(): the slab classes, the same for all shards. Then by each worker: its shard. */
void delegate_init(bool preallocate, const uint32_t *slab_sizes);
void delegate_worker_init(LIBEVENT_THREAD *thread, int index);
/* Once by each other thread that asks shards for something. */
void delegate_attach(void);
/* In place of event_base_loop(): also serves other workers, and takes their responses. */
void delegate_event_loop(LIBEVENT_THREAD *thread);
void delegate_stop(void);

/* How many shards there are, and which is this thread's. */
unsigned int delegate_shards(void);
unsigned int delegate_me(void);
extern __thread uint64_t shard_oldest_cas;
extern __thread uint64_t shard_total_items;

/* Requests of a connection's state machine, which goes on at once; the response comes to the same thread later. */
void delegate_get(conn *c, const char *key, size_t nkey, rel_time_t exptime, bool touch, bool cas, bool last);
void delegate_store(conn *c, item *it, int comm);
/* True if responses are outstanding: the state machine stops, and is driven again when they have come. */
bool delegate_must_wait(conn *c);
/* Waits for them here. */
void delegate_wait(conn *c);

/* Runs a command as a whole on the shard of its key, and waits. */
typedef struct token_s token_t;
typedef void (*command_fn)(conn *c, token_t *tokens, const size_t ntokens);
void delegate_meta(conn *c, token_t *tokens, size_t ntokens, command_fn command);
void delegate_bin(conn *c, const char *key, size_t nkey, void (*command)(conn *c));

/* Runs a function on every shard, one after the other, and waits. */
void delegate_all(void (*function)(void *argument), void *argument);
void delegate_flush(void *unused);
void delegate_sum_stats(void);
bool delegate_mem_limit(size_t bytes);
char *delegate_cachedump(unsigned int id, unsigned int limit, unsigned int *bytes);
int delegate_juggle(int id);

/* In memcached's own files. */
void complete_get_ascii(conn *c, mc_resp *resp, item *it, bool cas, bool touch, bool last);
void drive_machine(conn *c);
int store_item_copy_chunks(item *to, item *from, const int len);
int lru_maintainer_juggle(const int id);
void item_stats_all(void (*print)(ADD_STAT add_stats, void *c), ADD_STAT add_stats, void *c);
void slabs_stats_all(ADD_STAT add_stats, void *c);

#endif
