/* trust.h: delegation instead of locks, for C. Made from the sources of trust/ffi by its test `header`; do not edit.
 *
 * Put an object into the care of a thread, its trustee, and keep a trust_t to it. To touch the object, send the trustee
 * a function. docs/c-api.md has the rules: which thread may call what, where functions run, who owns which bytes.
 *
 * Functions that are delegated and callbacks must return: longjmp, C++ exceptions, pthread_exit and cancellation that
 * leave them are undefined behaviour. A process that forks has no library in the child, until it executes another
 * program.
 */


#ifndef TRUST_H
#define TRUST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 Major version of this header. A program runs with a library of the same major version, and while that is 0, of the
 same minor version.
 */
#define TRUST_VERSION_MAJOR 0

/*
 Minor version of this header.
 */
#define TRUST_VERSION_MINOR 1

/*
 Patch version of this header.
 */
#define TRUST_VERSION_PATCH 0

/*
 Bytes of arguments that travel without an allocation of their own. Results likewise, up to 256 bytes.
 */
#define TRUST_INLINE_BYTES 248

/*
 Status of a call. `trust_error_message` gives details.
 */
typedef enum {
  /*
   The call succeeded.
   */
  TRUST_OK = 0,
  /*
   An argument is null, or out of range.
   */
  TRUST_INVALID = 1,
  /*
   The calling thread is not attached: see `trust_attach`.
   */
  TRUST_NOT_ATTACHED = 2,
  /*
   The calling thread is attached already.
   */
  TRUST_ATTACHED = 3,
  /*
   The call waits, and nothing may wait inside a delegated function, a destructor or a callback.
   */
  TRUST_MAY_NOT_WAIT = 4,
  /*
   The trustee's thread has ended, and its properties with it.
   */
  TRUST_GONE = 5,
  /*
   The property is latched where a plain one is needed, or the other way round.
   */
  TRUST_WRONG_KIND = 6,
  /*
   More bytes than one request carries, or than the caller has room for.
   */
  TRUST_TOO_LARGE = 7,
  /*
   The system had no memory, thread or descriptor for the call.
   */
  TRUST_REFUSED = 8,
  /*
   Error in the library; please report it.
   */
  TRUST_INTERNAL = 9,
} trust_status;

/*
 A fiber that can be waited for.
 */
typedef struct trust_fiber trust_fiber;

/*
 Worker threads with nothing else to do: each is a trustee and runs fibers.
 */
typedef struct trust_pool trust_pool;

/*
 Destination of a delegated function's result. Valid until the function returns.
 */
typedef struct trust_result trust_result;

/*
 Id of a trustee, of a pool's worker or of an attached thread.
 */
typedef uint64_t trust_trustee;

/*
 Settings of a pool. Zero stands for the default.
 */
typedef struct {
  /*
   sizeof(trust_pool_options): so that later versions can have more fields.
   */
  size_t size;
  /*
   Number of workers; by default as many as there are cores.
   */
  uint32_t workers;
  /*
   Number of them that only serve: trust_pool_spawn starts no fibers there.
   */
  uint32_t dedicated;
  /*
   Bytes of each fiber's stack; by default 256 KiB.
   */
  size_t stack_bytes;
  /*
   Longest time that an idle worker polls before it sleeps, in nanoseconds; by default 500,000, nothing if there
   are more workers than cores, and nothing unless set under a CPU quota of the process' cgroups.
   */
  uint64_t spin_ns;
  /*
   Name of the threads, followed by a number; by default "trust".
   */
  const char *name;
  /*
   Leaves workers unpinned. By default they are pinned, where there is a core for each and no CPU quota.
   */
  bool unpinned;
} trust_pool_options;

/*
 A function that runs in a fiber.
 */
typedef void (*trust_main)(void *argument);

/*
 Function that is called with an entrusted pointer after the last trust was dropped, on the trustee's thread.
 */
typedef void (*trust_destroy)(void *property);

/*
 Counted handle to a property: each handle made by entrusting or cloning must be dropped. It is a plain value, which
 may be copied as bytes, for instance into arguments, as long as each is dropped once. All zero is no trust.
 */
typedef struct {
  uint64_t property;
  uint64_t trustee;
} trust_t;

/*
 Function that runs at the trustee, on the entrusted property. The arguments are a copy of the caller's bytes at a
 multiple of 8, valid until it returns. It puts its result with `trust_result_put` or `trust_result_room`, or has
 none.
 */
typedef void (*trust_function)(void *property, const void *arguments, size_t length, trust_result *result);

/*
 Function that is called with the outcome, on the thread that made the request. The result lies at a multiple of 8
 and is valid until the function returns. If the status is not `TRUST_OK` there is no result.
 */
typedef void (*trust_then)(void *context, trust_status status, const void *result, size_t length);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Returns the version of the library: 65536 * major + 256 * minor + patch.
 */
uint32_t trust_version(void);

/*
 Returns cause and remedy of the last failure of a call of this thread, or of the failure passed to the running
 callback; "" if there was none. In English. Valid until the thread's next call.
 */
const char *trust_error_message(void);

/*
 Returns the name of a status, such as "TRUST_GONE"; "unknown" for a number that is none.
 */
const char *trust_status_name(int32_t status);

/*
 Makes the calling thread a client and a trustee, until trust_detach or its end. A thread has to attach before it
 entrusts or applies; workers of a pool are attached from their start.

 With `descriptor` not null, the thread has a loop of its own (epoll, libevent): it gets an eventfd that is readable
 whenever there is work for the library, responses to take or requests to serve. The loop waits for it together with
 its own descriptors, level- or edge-triggered, and calls trust_poll when it is readable. It belongs to the library:
 neither read, write nor close it. Without one, the thread serves its trustee only while it waits in a call of the
 library or calls trust_poll.

 Errors: TRUST_ATTACHED, TRUST_REFUSED.
 */
trust_status trust_attach(int *descriptor);

/*
 Takes responses (and calls back), serves requests, runs fibers and sends pending requests. To be called by an
 attached thread when its descriptor is readable, and as often as it likes besides: a loop that calls it after each
 round of events saves wake-ups. Does not wait, and returns after a bounded number of turns; if there is more work by
 then the descriptor is readable again.

 `busy` may be null; else it tells whether there was any work.

 Errors: TRUST_NOT_ATTACHED; TRUST_MAY_NOT_WAIT inside delegated functions, callbacks and fibers.
 */
trust_status trust_poll(bool *busy);

/*
 Ends the state that trust_attach began: waits for the answers to the thread's requests (5 s at most), serves the
 requests sent to it, drops the properties entrusted to it and closes the descriptor as soon as no other thread may
 want to wake by it: it has to be out of the program's loop by now. Trusts of its properties fail from then on with
 TRUST_GONE. A thread that ends does all that by itself, but for fibers in the middle of their code, with which it
 must not end.

 Errors: TRUST_NOT_ATTACHED; TRUST_MAY_NOT_WAIT inside delegated functions, callbacks and fibers; TRUST_REFUSED if a
 fiber of the thread has begun and has not ended after 5 s: the thread is attached as before.
 */
trust_status trust_detach(void);

/*
 Lets other fibers run; outside of fibers it serves the thread's trustee once.

 Errors: TRUST_NOT_ATTACHED, TRUST_MAY_NOT_WAIT.
 */
trust_status trust_yield(void);

/*
 Gets the number of the calling thread's trustee.

 Errors: TRUST_NOT_ATTACHED, TRUST_INVALID.
 */
trust_status trust_local_trustee(trust_trustee *trustee);

/*
 Starts a pool. `options` may be null.

 Errors: TRUST_INVALID, TRUST_REFUSED.
 */
trust_status trust_pool_start(const trust_pool_options *options, trust_pool **pool);

/*
 Waits until every fiber has ended and every request is answered, then ends the workers, each of which drops its
 properties. The calling thread's trustee, if it has one, serves meanwhile. The pool must not be used again. Nothing
 happens if it is null.

 Errors: TRUST_MAY_NOT_WAIT inside delegated functions and callbacks, in fibers of the pool itself, and in fibers of
 a thread that is attached with a descriptor; the pool runs on.
 */
trust_status trust_pool_stop(trust_pool *pool);

/*
 Returns the number of workers of the pool; 0 if it is null.
 */
size_t trust_pool_workers(const trust_pool *pool);

/*
 Gets the number of the trustee of one worker; workers that only serve are last.

 Errors: TRUST_INVALID if there is no such worker.
 */
trust_status trust_pool_trustee(const trust_pool *pool, size_t worker, trust_trustee *trustee);

/*
 Starts a fiber at a trustee, which calls `function` with `argument`. With `fiber` not null it has to be joined, else
 it goes on by itself. Legal everywhere, on every thread.

 Errors: TRUST_INVALID, TRUST_GONE.
 */
trust_status trust_spawn(trust_trustee trustee, trust_main function, void *argument, trust_fiber **fiber);

/*
 Waits for a fiber's end. Meanwhile other fibers run; on a thread's own stack the thread serves its trustee. The
 handle must not be used again unless this fails with TRUST_MAY_NOT_WAIT or TRUST_NOT_ATTACHED.

 Errors: TRUST_INVALID, TRUST_NOT_ATTACHED, TRUST_MAY_NOT_WAIT; TRUST_GONE if its thread has ended before it.
 */
trust_status trust_join(trust_fiber *fiber);

/*
 Entrusts a pointer to a trustee. From now on only functions that are applied to it may use the object it points to;
 `destroy`, unless null, is called with it on the trustee's thread after the last trust was dropped, or when that
 thread ends (on this thread, if that one ends before it has taken the property). Does not wait.

 Legal everywhere on attached threads. Errors: TRUST_INVALID, TRUST_NOT_ATTACHED, TRUST_GONE; the pointer is the
 caller's still.
 */
trust_status trust_entrust(trust_trustee trustee, void *property, trust_destroy destroy, trust_t *trust);

/*
 Same as trust_entrust, for trust_launch: in a latch, which one fiber at a time may hold, also while it waits.
 */
trust_status trust_entrust_latched(trust_trustee trustee, void *property, trust_destroy destroy, trust_t *trust);

/*
 Makes one more trust of the same property, to be dropped on its own. Legal everywhere, on every thread, attached or
 not; does not wait. All zero if `trust` is.
 */
trust_t trust_clone(trust_t trust);

/*
 Drops a trust, which must not be used again. Legal everywhere, on every thread, attached or not; does not wait.
 Nothing happens if it is all zero.
 */
void trust_drop(trust_t trust);

/*
 Gets the number of the property's trustee. Errors: TRUST_INVALID.
 */
trust_status trust_trustee_of(trust_t trust, trust_trustee *trustee);

/*
 Applies `function` to the property, with a copy of the `length` bytes at `arguments`, and waits for the result.
 Meanwhile other fibers run; on a thread's own stack the thread serves its trustee and calls back.

 If `result_length` is not null, it holds the bytes of room at `result` before, and the length of the result
 afterwards; the result is copied there if there is room for it, else the call returns TRUST_TOO_LARGE. If it is null
 the result is dropped.

 Errors: TRUST_INVALID, TRUST_NOT_ATTACHED, TRUST_MAY_NOT_WAIT, TRUST_GONE, TRUST_WRONG_KIND, TRUST_TOO_LARGE.
 */
trust_status trust_apply(trust_t trust,
                         trust_function function,
                         const void *arguments,
                         size_t length,
                         void *result,
                         size_t *result_length);

/*
 Applies `function` to the property, with a copy of the `length` bytes at `arguments`, and goes on. `then`, unless
 null, is called with `context` and the outcome, on this thread: in trust_poll, in a call of the library that waits,
 or, where the property's trustee is this very thread, before this call returns. It is called once if this returns
 TRUST_OK, and not at all otherwise.

 Legal everywhere on attached threads. Requests of one thread to one trustee run in the order in which they were
 made. While every slot to the trustee is full this call waits as trust_apply does, inside delegated functions and
 callbacks it queues instead.

 Errors: TRUST_INVALID, TRUST_NOT_ATTACHED, TRUST_WRONG_KIND, TRUST_TOO_LARGE. To `then`: TRUST_GONE.
 */
trust_status trust_apply_then(trust_t trust,
                              trust_function function,
                              const void *arguments,
                              size_t length,
                              trust_then then,
                              void *context);

/*
 Same as trust_apply, on a latched property: `function` runs in a fiber at the trustee and may wait (trust_apply,
 trust_launch, trust_yield). No other launched function has the property meanwhile.

 Errors: as trust_apply; TRUST_REFUSED if there is no memory for the fiber's stack.
 */
trust_status trust_launch(trust_t trust,
                          trust_function function,
                          const void *arguments,
                          size_t length,
                          void *result,
                          size_t *result_length);

/*
 Same as trust_launch, without waiting; `then` as for trust_apply_then.

 Errors: as trust_apply_then. To `then`: TRUST_GONE, TRUST_REFUSED.
 */
trust_status trust_launch_then(trust_t trust,
                               trust_function function,
                               const void *arguments,
                               size_t length,
                               trust_then then,
                               void *context);

/*
 Makes room for the result of the delegated function that runs, to be written before it returns: `length` bytes at a
 multiple of 8. For functions whose result is made of several parts. Null if there is a result already, or for more
 than 1 GiB.
 */
void *trust_result_room(trust_result *result, size_t length);

/*
 Copies the `length` bytes at `bytes` as the result of the delegated function that runs. False, and there is no
 result from this call, if there is one already, for more than 1 GiB, and where `result` is null or, with a length,
 `bytes` is.
 */
bool trust_result_put(trust_result *result, const void *bytes, size_t length);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TRUST_H */
