/* plugin: a library that `loads` loads. Its constructor allocates, and counts how often it runs. */
#include <stdlib.h>

int constructed, shown = 5;
static int calls;
static int *block;

__attribute__((constructor)) static void construct(void) {
    block = malloc(2 * sizeof *block);
    block[0] = 100;
    block[1] = 0;
    constructed++;
}

/* Returns the number of calls so far, by all threads. */
int plug(void) {
    block[1]++;
    calls++;
    return block[0] == 100 && block[1] == calls ? calls : -1;
}
