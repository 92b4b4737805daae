/* print: printf from every thread. Lines of one thread come in order, and none is lost, cut or repeated; sort them to
 * compare. */
#include "verdict.h"

enum { LINES = 50 };

static void *work(void *number) {
    int thread = (int)(intptr_t)number;
    for (int line = 0; line < LINES; line++) {
        CHECK(printf("thread %02d line %02d\n", thread, line) == 18);
    }
    return NULL;
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    run_threads(threads, work);
    return verdict("print");
}
