/* stdin: a thread reads standard input to its end. */
#include <pthread.h>
#include <stdio.h>

static long lines;
static void *rd(void *a) {
    int c;
    while ((c = getchar()) != EOF)
        lines += c == '\n';
    return NULL;
}

int main(void) {
    pthread_t t;
    pthread_create(&t, NULL, rd, NULL);
    pthread_join(t, NULL);
    printf("%ld lines\n", lines);
    return 0;
}
