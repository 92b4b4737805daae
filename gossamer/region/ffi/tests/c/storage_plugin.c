/* storage_plugin: a library with thread-local variables, which `storage` loads. SMALL leaves room for the threads'
 * storage from their start. */
#ifdef SMALL
enum { COUNT = 8 };
#else
enum { COUNT = 3000 };
#endif

static int one;
static __thread int calls = 5;
static __thread long many[COUNT];
static __thread int *pointer = &one;
__thread int shown __attribute__((aligned(64))) = 7;

/* Returns the number of calls by the calling thread so far, and 5. */
int count(void) {
    calls++;
    many[COUNT - 1]++;
    return pointer == &one && many[COUNT - 1] == calls - 5 && many[0] == 0 ? calls : -1;
}

/* Returns the address of a variable for the calling thread. */
int *place_of_shown(void) {
    return &shown;
}
