/* verbs_library: in place of the library of RDMA devices, without its functions. As libraries that the real one needs
 * do, its constructor frees what the C library has allocated. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

__attribute__((constructor)) static void starts(void) {
    char *line = NULL;
    size_t bytes = 0;
    FILE *file = fopen("/proc/self/comm", "r");
    if (file == NULL || getline(&line, &bytes, file) <= 0 || fclose(file) != 0) {
        abort();
    }
    free(line);
    const char *name = getenv("VERBS_LIBRARY_RAN");
    file = name == NULL ? NULL : fopen(name, "w");
    if (file == NULL || fclose(file) != 0) {
        abort();
    }
}
