/* names_of_others: main names its threads, and reads and sets what else there is of them. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile int stop;
static void *work(void *own_name) {
    while (!stop)
        usleep(1000);
    pthread_getname_np(pthread_self(), own_name, 16);
    return NULL;
}

int main(void) {
    pthread_t t[3];
    char own[3][16], name[16];
    for (int i = 0; i < 3; i++) {
        pthread_create(&t[i], NULL, work, own[i]);
        snprintf(name, sizeof name, "worker %d", i);
        printf("set %d", pthread_setname_np(t[i], name));
        memset(name, 0, sizeof name);
        int got = pthread_getname_np(t[i], name, sizeof name);
        printf(" get %d %s short %d\n", got, name, pthread_getname_np(t[i], name, 4) == ERANGE);
        printf("long %d\n", pthread_setname_np(t[i], "a name that is too long") == ERANGE);
        struct sched_param p = {.sched_priority = 0};
        int policy = -1;
        printf("set %d", pthread_setschedparam(t[i], SCHED_BATCH, &p));
        printf(" get %d", pthread_getschedparam(t[i], &policy, &p));
        printf(" policy %d priority %d\n", policy == SCHED_BATCH, p.sched_priority);
        p.sched_priority = 5;
        printf("wrong %d\n", pthread_setschedparam(t[i], SCHED_OTHER, &p));
        cpu_set_t all, set;
        pthread_getaffinity_np(pthread_self(), sizeof all, &all);
        printf("processors %d", pthread_getaffinity_np(t[i], sizeof set, &set));
        int is_some = CPU_COUNT(&set) > 0;
        printf(" some %d set %d\n", is_some, pthread_setaffinity_np(t[i], sizeof set, &set));
    }
    stop = 1;
    for (int i = 0; i < 3; i++) {
        pthread_join(t[i], NULL);
        puts(own[i]);
    }
    return 0;
}
