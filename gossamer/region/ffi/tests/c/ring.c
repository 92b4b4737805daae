/* ring: a call that only works in threads of the first machine; the others are told so. */
#include "verdict.h"
#include <sys/syscall.h>

static void *sets_up(void *unused) {
    (void)unused;
    char room[120] = {0};
    CHECK(syscall(SYS_io_uring_setup, 4, room) == -1 && errno == ENOSYS);
    CHECK(syscall(SYS_io_uring_setup, 4, room) == -1 && errno == ENOSYS);
    return NULL;
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    run_threads(1, sets_up);
    return verdict("ring");
}
