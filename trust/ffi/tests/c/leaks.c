/* leaks: a delegated function loses memory, and nothing else is wrong. valgrind reports it, despite suppressions. */
#include <stdio.h>
#include <stdlib.h>
#include <trust.h>

enum { BLOCKS = 100, BYTES = 100 };

static void check(trust_status status, const char *call) {
    if (status != TRUST_OK) {
        fprintf(stderr, "%s: %s: %s\n", call, trust_status_name(status), trust_error_message());
        exit(1);
    }
}

/* Runs at the trustee. Of many blocks some have left no trace on any stack. */
static void lose(void *property, const void *arguments, size_t length, trust_result *result) {
    (void)arguments, (void)length, (void)result;
    volatile char *volatile block = malloc(BYTES);
    if (block) {
        block[0] = 1;
        ++*(long *)property;
    }
    block = NULL;
}

int main(void) {
    trust_pool_options options = {.size = sizeof options, .workers = 1, .name = "leaks"};
    trust_pool *pool = NULL;
    trust_trustee trustee = 0;
    trust_t property;
    check(trust_attach(NULL), "trust_attach");
    check(trust_pool_start(&options, &pool), "trust_pool_start");
    check(trust_pool_trustee(pool, 0, &trustee), "trust_pool_trustee");
    check(trust_entrust(trustee, calloc(1, sizeof(long)), free, &property), "trust_entrust");
    for (int i = 0; i < BLOCKS; i++) {
        check(trust_apply(property, lose, NULL, 0, NULL, NULL), "trust_apply");
    }
    trust_drop(property);
    check(trust_pool_stop(pool), "trust_pool_stop");
    check(trust_detach(), "trust_detach");
    return 0;
}
