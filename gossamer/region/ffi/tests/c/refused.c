/* refused: calls that a program on several machines is refused, and its exit by a thread of another machine than
 * main's. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#include "verdict.h"

static void at_exit(void) {
    printf("at exit\n");
}

static void *end(void *first) {
    CHECK(pthread_cancel(*(pthread_t *)first) == ENOTSUP);
    CHECK(pthread_kill(*(pthread_t *)first, 0) == ENOTSUP);
    clockid_t clock;
    CHECK(pthread_getcpuclockid(*(pthread_t *)first, &clock) == ENOTSUP);
    int is_well = verdict("refused");
    exit(is_well == 0 ? 7 : 1);
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    CHECK(atexit(at_exit) == 0);
    CHECK(sysconf(_SC_NPROCESSORS_ONLN) > 0);

    errno = 0;
    CHECK(fork() == -1 && errno == ENOTSUP);
    CHECK(system("exit 3") == 3 << 8);

    int file = open("/proc/self/exe", O_RDONLY);
    CHECK(file >= 0);
    CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0) == MAP_FAILED && errno == ENOTSUP);
    char *elf = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    CHECK(elf != MAP_FAILED && elf[1] == 'E' && munmap(elf, 4096) == 0);
    CHECK(close(file) == 0);

    char *page = pvalloc(1); /* works; valgrind refuses it, so no other program has it */
    CHECK(page != NULL && (uintptr_t)page % 4096 == 0 && malloc_usable_size(page) >= 4096);
    free(page);

    char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(code != MAP_FAILED && mprotect(code, 4096, PROT_READ | PROT_EXEC) == -1 && errno == ENOTSUP);
    CHECK(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
    errno = 0;
    CHECK(sbrk(4096) == (void *)-1 && errno == ENOTSUP);
    CHECK(sem_open("/refused", O_CREAT, 0600, 0) == SEM_FAILED && errno == ENOTSUP);
    CHECK(mlock(code, 4096) == 0 && mlockall(MCL_CURRENT) == 0 && munlock(code, 4096) == 0);
    struct sched_param most = {.sched_priority = 99};
    CHECK(pthread_setschedparam(pthread_self(), SCHED_FIFO, &most) == 0);
    CHECK(sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &most) == 0);
    CHECK(sched_getscheduler(0) == SCHED_OTHER);
    errno = 0;
    CHECK(shmat(0, NULL, 0) == (void *)-1 && errno == ENOTSUP);
    struct sigevent event = {.sigev_notify = SIGEV_THREAD};
    timer_t timer;
    errno = 0;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == -1 && errno == ENOTSUP);
    event.sigev_notify = SIGEV_NONE;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_delete(timer) == 0);

    pthread_t self = pthread_self(), other;
    CHECK(pthread_setname_np(self, "first") == 0);
    CHECK(pthread_create(&other, NULL, end, &self) == 0);
    CHECK(pthread_join(self, NULL) != 0);
    for (;;) {
        pause();
    }
}
