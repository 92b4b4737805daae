/* handlers_ask: handlers write a file and post a semaphore, while their threads wait in pthread_join, for a lock, for
   a byte of a pipe: signals of timers, one on each machine, which main blocks. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

enum { WAITERS = 6, SIGNALS = 200 };

static sem_t handles;
static int out;
static int handled;
static int bytes[2];
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_t waiters[WAITERS];
static pthread_t joined[WAITERS];

static void handle(int signal) {
    int saved = errno;
    if (write(out, ".", 1) != 1)
        abort();
    __atomic_fetch_add(&handled, 1, __ATOMIC_SEQ_CST);
    sem_post(&handles);
    errno = saved;
    (void)signal;
}

static void signal_every(long microseconds) {
    struct itimerval timer = {{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void *until_written(void *unused) {
    char byte;
    signal_every(1000);
    while (read(bytes[0], &byte, 1) != 1)
        if (errno != EINTR)
            abort();
    signal_every(0);
    return unused;
}

static void *wait_for(void *number) {
    switch ((long)number % 3) {
    case 0:
        pthread_join(joined[(long)number], NULL);
        break;
    case 1:
        pthread_rwlock_rdlock(&lock);
        pthread_rwlock_unlock(&lock);
        break;
    default:
        until_written(NULL);
    }
    return number;
}

int main(void) {
    char path[] = "/tmp/handlers_askXXXXXX";
    out = mkstemp(path);
    unlink(path);
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    sem_init(&handles, 0, 0);
    if (pipe(bytes))
        return 1;
    pthread_rwlock_wrlock(&lock);
    for (long i = 0; i < WAITERS; i += 3)
        pthread_create(&joined[i], NULL, until_written, NULL);
    for (long i = 0; i < WAITERS; i++)
        pthread_create(&waiters[i], NULL, wait_for, (void *)i);
    sigset_t own;
    sigemptyset(&own);
    sigaddset(&own, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &own, NULL);
    signal_every(1000);
    for (int i = 0; i < SIGNALS; i++)
        while (sem_wait(&handles))
            ;
    signal_every(0);
    pthread_rwlock_unlock(&lock);
    if (write(bytes[1], "1234", 4) != 4)
        return 1;
    for (int i = 0; i < WAITERS; i++)
        pthread_join(waiters[i], NULL);
    puts(handled >= SIGNALS && lseek(out, 0, SEEK_END) == handled ? "all handled" : "some are lost");
    return 0;
}
