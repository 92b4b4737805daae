/* hangs: threads that wait for one another for ever, until the program is ended by SIGALRM; and programs that only wait
 * for something else for longer than it takes to tell a hang, and then print that they are right. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER, second = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t written = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t both, all;
static sem_t none, posted;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void *locks(void *turned) {
    pthread_mutex_t *one = turned ? &second : &first, *other = turned ? &first : &second;
    pthread_mutex_lock(one);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(other);
    return NULL;
}

static void *waits(void *unused) {
    pthread_mutex_lock(&first);
    for (;;)
        pthread_cond_wait(&never, &first);
    return unused;
}

static void *takes(void *unused) {
    sem_wait(&none);
    return unused;
}

static void *reads(void *unused) {
    pthread_rwlock_rdlock(&written);
    return unused;
}

static void *meets(void *unused) {
    pthread_barrier_wait(&all);
    return unused;
}

static void takes_in_once(void) {
    takes(NULL);
}

static void *runs_once(void *unused) {
    pthread_once(&once, takes_in_once);
    return unused;
}

static void post(int signal) {
    (void)signal;
    sem_post(&posted);
}

int main(int argc, char **argv) {
    enum { END_S = 9, LONG_S = 8 };
    const char *how = argc > 1 ? argv[1] : "";
    void *(*kinds[])(void *) = {waits, takes, reads, meets, runs_once, runs_once};
    int has_locks = strcmp(how, "locks") == 0, has_kinds = strcmp(how, "kinds") == 0;
    int count = has_kinds ? 6 : has_locks ? 2 : 3;
    pthread_t threads[6];
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGALRM);
    if (strcmp(how, "signal") == 0)
        pthread_sigmask(SIG_BLOCK, &signals, NULL);
    pthread_barrier_init(&both, NULL, 2);
    pthread_barrier_init(&all, NULL, 7);
    sem_init(&none, 0, 0);
    sem_init(&posted, 0, 0);
    pthread_rwlock_wrlock(&written);
    for (long i = 0; i < count; i++) {
        void *(*run)(void *) = has_locks ? locks : has_kinds ? kinds[i] : waits;
        pthread_create(&threads[i], NULL, run, (void *)(has_locks ? i : 0));
    }
    if (has_locks || has_kinds || strcmp(how, "condvar") == 0) {
        alarm(END_S);
        for (int i = 0; i < count; i++)
            pthread_join(threads[i], NULL);
    } else if (strcmp(how, "sleep") == 0) {
        sleep(LONG_S);
    } else if (strcmp(how, "input") == 0) {
        FILE *input = popen("sleep 8; echo word", "r");
        char word[8];
        if (fscanf(input, "%7s", word) != 1 || pclose(input) != 0)
            return 1;
    } else if (strcmp(how, "signal") == 0) {
        int came;
        alarm(LONG_S);
        if (sigwait(&signals, &came) != 0 || came != SIGALRM)
            return 1;
    } else if (strcmp(how, "handler") == 0) {
        signal(SIGALRM, post);
        alarm(LONG_S);
        while (sem_wait(&posted) != 0)
            ;
    } else if (strcmp(how, "time") == 0) {
        struct timespec end;
        clock_gettime(CLOCK_REALTIME, &end);
        end.tv_sec += LONG_S;
        while (sem_timedwait(&none, &end) == 0)
            ;
    }
    puts("right");
    return 0;
}
