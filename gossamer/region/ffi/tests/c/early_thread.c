/* early_thread: a constructor starts a thread, which is refused on several machines. */
#include "verdict.h"

static void *work(void *number) {
    (void)number;
    return NULL;
}

__attribute__((constructor)) static void construct(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, work, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

int main(void) {
    return verdict("early_thread");
}
