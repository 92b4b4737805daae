/* Threads change several variables under one mutex. */
static pthread_mutex_t lock@K =
    PTHREAD_@{MUTEX_INITIALIZER|RECURSIVE_MUTEX_INITIALIZER_NP|ERRORCHECK_MUTEX_INITIALIZER_NP};
static struct { unsigned long count; char pad[@[0..5000]+1]; unsigned long sum; } both@K;
static void *body@K(void *number) {
    unsigned state = @S + (unsigned)(intptr_t)number;
    for (int i = 0; i < @R; i++) {
        unsigned value = draw(&state) % 1000;
        MUST(pthread_mutex_@{lock|lock|trylock}(&lock@K) == 0 || (pthread_mutex_lock(&lock@K) == 0));
        both@K.count++;
        both@K.sum += value;
        @{|sched_yield();|usleep(1);}
        MUST(pthread_mutex_unlock(&lock@K) == 0);
    }
    return NULL;
}
static void scene@K(void) {
    run(@T, body@K);
    say(@K, "count %lu sum %lu\n", both@K.count, both@K.sum);
}
