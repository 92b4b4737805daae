/*
 * What makes the state of a file one of each shard's: included last by assoc.c, items.c and slabs.c.
 *
 * A shard is the thread-local state of one worker. Only that worker touches it, in delegated functions or in its own
 * code, so the locks of these files have nothing left to guard.
 */
#ifndef SHARD_H
#define SHARD_H

#define SHARD __thread

extern __thread struct stats_state shard_stats_state;
#define stats_state shard_stats_state

#define pthread_mutex_lock(mutex) ((void)(mutex))
#define pthread_mutex_unlock(mutex) ((void)(mutex))
#define STATS_LOCK() ((void)0)
#define STATS_UNLOCK() ((void)0)

#endif
