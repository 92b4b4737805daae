/* system_v_memory: a thread adds to a word of System V shared memory. */
#include <pthread.h>
#include <stdio.h>
#include <sys/ipc.h>
#include <sys/shm.h>

static long *p;
static void *add(void *x) {
    *p += 5;
    return NULL;
}

int main(void) {
    int id = shmget(IPC_PRIVATE, 4096, 0600);
    p = shmat(id, NULL, 0);
    shmctl(id, IPC_RMID, NULL);
    if (p == (void *)-1) {
        perror("shmat");
        return 1;
    }
    *p = 1;
    pthread_t t;
    pthread_create(&t, NULL, add, NULL);
    pthread_join(t, NULL);
    printf("%ld\n", *p);
    return 0;
}
