/* Stands in for the real header in the comparison of `gossamer-bench region`: pages of 4 KiB that a handler of SIGSEGV
 * fetches by MPI, for `mpirun -n 2` of a program of examples/c/region.
 *
 * Both processes run the program up to its threads, so unshared memory is the same in both. Process 0 is the home of
 * all shared pages: it has them at hand, and in a window as they were when they were shared. In process 1 they are
 * PROT_NONE: a read of one gets it from the window and makes it readable, a write makes it writable too. Threads begin
 * in the processes in turn. When the last was waited for, process 1 sends the pages that it has written, and ends;
 * process 0 goes on with them in place.
 *
 * This suffices for programs whose threads read data from before their start and write pages that no other thread
 * touches, as these do. It costs less than a full protocol would: nothing is invalidated. x86-64, Linux. */
#ifndef GOSSAMER_REGION_H
#define GOSSAMER_REGION_H

#include <errno.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { FAULTS_PAGE = 4096, FAULTS_RANGES = 8, FAULTS_PROCESSES = 2 };
/* State of a page in process 1. */
enum { FAULTS_ABSENT, FAULTS_READABLE, FAULTS_WRITTEN };

struct faults_range {
    char *at;    /* address in the program */
    char *alias; /* the same pages, for MPI to write while the program cannot access them */
    size_t pages;
    unsigned char *states;
    MPI_Win window;
};

static struct faults_range faults_ranges[FAULTS_RANGES];
static int faults_count, faults_rank, faults_created, faults_joined;
/* Held by the handler: its holder never faults on shared pages. */
static pthread_mutex_t faults_mutex = PTHREAD_MUTEX_INITIALIZER;

static inline void faults_bring(struct faults_range *range, size_t page, int is_write) {
    unsigned char *state = &range->states[page], wanted = is_write ? FAULTS_WRITTEN : FAULTS_READABLE;
    size_t offset = page * FAULTS_PAGE;
    pthread_mutex_lock(&faults_mutex);
    if (*state == FAULTS_ABSENT) {
        MPI_Get(range->alias + offset, FAULTS_PAGE, MPI_BYTE, 0, (MPI_Aint)offset, FAULTS_PAGE, MPI_BYTE,
                range->window);
        MPI_Win_flush(0, range->window);
    }
    if (*state < wanted) {
        *state = wanted;
        if (mprotect(range->at + offset, FAULTS_PAGE, is_write ? PROT_READ | PROT_WRITE : PROT_READ) != 0) {
            perror("mprotect");
            _exit(1);
        }
    }
    pthread_mutex_unlock(&faults_mutex);
}

static inline void faults_handle(int number, siginfo_t *info, void *context) {
    enum { WRITE = 2 }; /* of the processor's error code */
    long long error = ((ucontext_t *)context)->uc_mcontext.gregs[REG_ERR];
    char *at = info->si_addr;
    int saved = errno;
    for (struct faults_range *range = faults_ranges; range < faults_ranges + faults_count; range++) {
        if (at >= range->at && at < range->at + range->pages * FAULTS_PAGE) {
            faults_bring(range, (size_t)(at - range->at) / FAULTS_PAGE, (error & WRITE) != 0);
            errno = saved;
            return;
        }
    }
    signal(number, SIG_DFL); /* the program's own fault: it happens again */
}

/* At the end of both processes, unless one fails before its threads have ended: then mpirun ends the other. */
static inline void faults_end(void) {
    if (faults_joined == 0 || faults_joined != faults_created) {
        return;
    }
    for (int i = 0; i < faults_count; i++) {
        MPI_Win_unlock_all(faults_ranges[i].window);
        MPI_Win_free(&faults_ranges[i].window);
    }
    MPI_Finalize();
}

static inline int faults_begin(void) {
    struct sigaction action = {.sa_sigaction = faults_handle, .sa_flags = SA_SIGINFO};
    int threads, size;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &threads);
    MPI_Comm_rank(MPI_COMM_WORLD, &faults_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != FAULTS_PROCESSES || threads < MPI_THREAD_SERIALIZED) {
        fprintf(stderr, "to be started by mpirun -n %d, of an MPI with MPI_THREAD_SERIALIZED\n", FAULTS_PROCESSES);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    sigemptyset(&action.sa_mask);
    return atexit(faults_end) != 0 || sigaction(SIGSEGV, &action, NULL) != 0 ? ENOMEM : 0;
}

/* Maps inaccessible pages at these addresses, and the same ones for MPI elsewhere. */
static inline int faults_cover(struct faults_range *range, size_t bytes) {
    int file = memfd_create("faults", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)bytes) != 0) {
        return errno;
    }
    range->alias = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    range->states = calloc(range->pages, 1);
    if (range->alias == MAP_FAILED || range->states == NULL) {
        return ENOMEM;
    }
    if (mmap(range->at, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
        return errno;
    }
    return close(file) != 0 ? errno : 0;
}

static inline int gsm_region_share(void *at, size_t bytes) {
    struct faults_range *range = &faults_ranges[faults_count];
    void *home;
    int error = faults_count == 0 ? faults_begin() : 0;
    if (error || faults_count == FAULTS_RANGES || (size_t)at % FAULTS_PAGE || bytes % FAULTS_PAGE || bytes == 0) {
        return error ? error : EINVAL;
    }
    range->at = at;
    range->pages = bytes / FAULTS_PAGE;
    MPI_Win_allocate(faults_rank == 0 ? (MPI_Aint)bytes : 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &home, &range->window);
    MPI_Win_lock_all(0, range->window);
    if (faults_rank == 0) {
        memcpy(home, at, bytes);
    } else {
        error = faults_cover(range, bytes);
    }
    MPI_Win_sync(range->window);
    MPI_Barrier(MPI_COMM_WORLD);
    faults_count++;
    return error;
}

/* Both processes come here in the same order. */
static inline int faults_create(pthread_t *id, const pthread_attr_t *attributes, void *(*body)(void *),
                                void *argument) {
    int is_here = faults_created++ % FAULTS_PROCESSES == faults_rank;
    *id = 0;
    return is_here ? pthread_create(id, attributes, body, argument) : 0;
}

/* Sends the pages that process 1 has written, each with its number as tag; an empty message ends a range. */
static inline void faults_release(void) {
    for (int i = 0; i < faults_count; i++) {
        struct faults_range *range = &faults_ranges[i];
        if (faults_rank != 0) {
            for (size_t page = 0; page < range->pages; page++) {
                if (range->states[page] == FAULTS_WRITTEN) {
                    MPI_Send(range->alias + page * FAULTS_PAGE, FAULTS_PAGE, MPI_BYTE, 0, (int)page, MPI_COMM_WORLD);
                }
            }
            MPI_Send(NULL, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
            continue;
        }
        for (;;) {
            MPI_Status status;
            int bytes;
            MPI_Probe(1, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            MPI_Get_count(&status, MPI_BYTE, &bytes);
            char *to = range->at + (size_t)status.MPI_TAG * FAULTS_PAGE;
            MPI_Recv(to, bytes, MPI_BYTE, 1, status.MPI_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (bytes == 0) {
                break;
            }
        }
    }
}

static inline int faults_join(pthread_t id, void **answer) {
    int error = id != 0 ? pthread_join(id, answer) : 0;
    if (++faults_joined == faults_created) {
        faults_release();
        if (faults_rank != 0) {
            exit(0);
        }
    }
    return error;
}

#define pthread_create faults_create
#define pthread_join faults_join

#endif
