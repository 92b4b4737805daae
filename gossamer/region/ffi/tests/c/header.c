/* header: gossamer_region.h compiles as C11 and as C++ with POSIX alone, and works as one process. */
#include "gossamer_region.h"

static gsm_mutex_t mutex;
static gsm_barrier_t barrier;

int main(void) {
    struct timespec past = {0, 0};
    int is_well = gsm_region_share(&mutex, 1) == EINVAL;
    is_well &= gsm_mutex_init(&mutex) == 0 && gsm_mutex_lock(&mutex) == 0 && gsm_mutex_trylock(&mutex) == EBUSY;
    is_well &= gsm_mutex_unlock(&mutex) == 0 && gsm_mutex_timedlock(&mutex, &past) == 0;
    is_well &= gsm_mutex_unlock(&mutex) == 0;
    is_well &= gsm_mutex_unlock(&mutex) == EPERM && gsm_mutex_destroy(&mutex) == 0;
    is_well &= gsm_barrier_init(&barrier, 1) == 0 && gsm_barrier_wait(&barrier) == GSM_BARRIER_SERIAL_THREAD;
    is_well &= gsm_barrier_wait_fetch(&barrier, &mutex, 1) == GSM_BARRIER_SERIAL_THREAD;
    is_well &= gsm_barrier_destroy(&barrier) == 0;
    puts(is_well ? "header: ok" : "header: failed");
    return !is_well;
}
