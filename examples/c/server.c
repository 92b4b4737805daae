/* server: a key-value server whose threads each have an epoll loop of their own. Each thread holds one shard of the
 * table and is client of all others; requests of a connection go to shards by key, and replies leave in the order of
 * the requests.
 *
 *     cc server.c $(pkg-config --cflags --libs trust) -pthread
 *     ./a.out 7777 &  printf 'set a 1\nget a\nget b\n' | nc -q1 localhost 7777     answers OK, VALUE 1, NONE
 *     ./a.out --self-test                                                          checks answers to its own clients
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <trust.h>
#include <unistd.h>

enum { THREADS = 3, BUCKETS = 1024, LINE = 512, ROOM = 16 * 1024 };

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void check(trust_status status, const char *call) {
    if (status != TRUST_OK) {
        fprintf(stderr, "%s: %s: %s\n", call, trust_status_name(status), trust_error_message());
        exit(1);
    }
}

/* ---- The table: delegated functions. Each runs on the thread that holds the shard. ---- */

struct entry {
    struct entry *next;
    uint16_t key_length, value_length;
    char bytes[]; /* the key, then the value */
};

struct shard {
    int stopped; /* its thread is to leave its loop */
    struct entry *buckets[BUCKETS];
};

/* The argument block: this, then the key, then the value. */
struct request {
    uint32_t hash;
    uint16_t key_length, value_length;
};

static struct entry **find(struct shard *shard, const struct request *request) {
    struct entry **at = &shard->buckets[request->hash / THREADS % BUCKETS];
    const char *key = (const char *)(request + 1);
    while (*at && ((*at)->key_length != request->key_length || memcmp((*at)->bytes, key, request->key_length) != 0)) {
        at = &(*at)->next;
    }
    return at;
}

static void get(void *property, const void *arguments, size_t length, trust_result *result) {
    struct entry *entry = *find(property, arguments);
    (void)length;
    if (!entry) {
        trust_result_put(result, "NONE\n", 5);
        return;
    }
    char *room = trust_result_room(result, 7 + (size_t)entry->value_length);
    memcpy(room, "VALUE ", 6);
    memcpy(room + 6, entry->bytes + entry->key_length, entry->value_length);
    room[6 + entry->value_length] = '\n';
}

static void set(void *property, const void *arguments, size_t length, trust_result *result) {
    const struct request *request = arguments;
    struct entry **at = find(property, request), *old = *at;
    size_t bytes = (size_t)request->key_length + request->value_length;
    struct entry *entry = malloc(sizeof *entry + bytes);
    (void)length;
    if (!entry) {
        trust_result_put(result, "ERROR out of memory\n", 20);
        return;
    }
    entry->next = old ? old->next : NULL;
    entry->key_length = request->key_length;
    entry->value_length = request->value_length;
    memcpy(entry->bytes, request + 1, bytes);
    *at = entry;
    free(old);
    trust_result_put(result, "OK\n", 3);
}

static void stop(void *property, const void *arguments, size_t length, trust_result *result) {
    (void)arguments;
    (void)length;
    (void)result;
    ((struct shard *)property)->stopped = 1;
}

static void destroy(void *property) {
    struct shard *shard = property;
    for (int i = 0; i < BUCKETS; i++) {
        for (struct entry *entry = shard->buckets[i], *next; entry; entry = next) {
            next = entry->next;
            free(entry);
        }
    }
    free(shard);
}

/* ---- Connections: each belongs to one thread. ---- */

struct reply {
    struct reply *next;
    struct connection *connection;
    int done;
    size_t length;
    char *bytes;
};

struct connection {
    struct connection *next, **link; /* its links in the thread's list */
    struct connection *next_done;
    int socket, epoll, closed, waits_to_write, done;
    int outstanding; /* replies still to come; the connection stays until there are none */
    size_t read, made, written;
    struct reply *first, **last;
    char in[ROOM], out[ROOM];
};

static trust_t shards[THREADS];
static pthread_barrier_t barrier;
static int listener;
static _Thread_local struct connection *connections, *done;

/* Not freed here: pending events may refer to this connection too. */
static void release(struct connection *connection) {
    if (connection->closed && connection->outstanding == 0 && !connection->done) {
        connection->done = 1;
        connection->next_done = done;
        done = connection;
    }
}

static void forget(struct connection *connection) {
    for (struct reply *reply = connection->first, *next; reply; reply = next) {
        next = reply->next;
        free(reply->bytes);
        free(reply);
    }
    *connection->link = connection->next;
    if (connection->next) {
        connection->next->link = connection->link;
    }
    free(connection);
}

static void forget_done(void) {
    for (struct connection *next; done; done = next) {
        next = done->next_done;
        forget(done);
    }
}

static void hang_up(struct connection *connection) {
    if (!connection->closed) {
        connection->closed = 1;
        close(connection->socket);
    }
}

static void watch(struct connection *connection, int writes) {
    if (connection->waits_to_write != writes) {
        struct epoll_event event = {.events = EPOLLIN | (writes ? EPOLLOUT : 0u), .data.ptr = connection};
        connection->waits_to_write = writes;
        epoll_ctl(connection->epoll, EPOLL_CTL_MOD, connection->socket, &event);
    }
}

/* Sends finished replies, up to the first unfinished one. */
static void send_replies(struct connection *connection) {
    while (!connection->closed) {
        struct reply *reply = connection->first;
        while (reply && reply->done && reply->length <= ROOM - connection->made) {
            memcpy(connection->out + connection->made, reply->bytes, reply->length);
            connection->made += reply->length;
            connection->first = reply->next;
            if (!connection->first) {
                connection->last = &connection->first;
            }
            free(reply->bytes);
            free(reply);
            reply = connection->first;
        }
        if (connection->made == 0) {
            return watch(connection, 0);
        }
        ssize_t sent = send(connection->socket, connection->out + connection->written,
                            connection->made - connection->written, MSG_NOSIGNAL);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
            return watch(connection, 1);
        }
        if (sent < 0) {
            return hang_up(connection);
        }
        connection->written += (size_t)sent;
        if (connection->written == connection->made) {
            connection->written = connection->made = 0;
        }
    }
}

static void finish(struct reply *reply, const void *bytes, size_t length) {
    reply->bytes = malloc(length + 1);
    if (!reply->bytes) {
        fail("malloc");
    }
    memcpy(reply->bytes, bytes, length);
    reply->length = length;
    reply->done = 1;
}

/* The answer of a shard, on the connection's thread: within the call, if the shard is this thread's. */
static void answered(void *context, trust_status status, const void *result, size_t length) {
    struct reply *reply = context;
    struct connection *connection = reply->connection;
    connection->outstanding--;
    if (status == TRUST_OK) {
        finish(reply, result, length);
    } else {
        finish(reply, "ERROR the shard is gone\n", 24);
    }
    if (connection->first == reply) {
        send_replies(connection);
    }
    release(connection);
}

static uint32_t hash(const char *key, size_t length) {
    uint32_t sum = 2166136261u;
    for (size_t i = 0; i < length; i++) {
        sum = (sum ^ (unsigned char)key[i]) * 16777619u;
    }
    return sum;
}

/* One line: "get KEY" or "set KEY VALUE". */
static void request(struct connection *connection, const char *line, size_t length) {
    struct reply *reply = calloc(1, sizeof *reply);
    if (!reply) {
        fail("calloc");
    }
    reply->connection = connection;
    *connection->last = reply;
    connection->last = &reply->next;

    uint64_t block[(sizeof(struct request) + LINE) / 8 + 1];
    struct request *head = (struct request *)block;
    const char *key = line + 4, *space = length > 4 ? memchr(key, ' ', length - 4) : NULL;
    int sets = length > 4 && memcmp(line, "set ", 4) == 0, gets = length > 4 && memcmp(line, "get ", 4) == 0;
    if ((!sets && !gets) || (sets && !space) || (gets && space)) {
        return finish(reply, "ERROR get KEY, or set KEY VALUE\n", 32);
    }
    head->key_length = (uint16_t)(sets ? space - key : (ptrdiff_t)length - 4);
    head->value_length = (uint16_t)(sets ? length - 5 - head->key_length : 0);
    head->hash = hash(key, head->key_length);
    char *bytes = (char *)(head + 1);
    memcpy(bytes, key, head->key_length);
    if (sets) {
        memcpy(bytes + head->key_length, space + 1, head->value_length);
    }
    connection->outstanding++;
    check(trust_apply_then(shards[head->hash % THREADS], sets ? set : get, block,
                           sizeof *head + head->key_length + head->value_length, answered, reply),
          "trust_apply_then");
}

static void readable(struct connection *connection) {
    ssize_t count = recv(connection->socket, connection->in + connection->read, ROOM - connection->read, 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (count <= 0) {
        return hang_up(connection);
    }
    connection->read += (size_t)count;
    char *at = connection->in, *end = connection->in + connection->read, *line;
    while ((line = memchr(at, '\n', (size_t)(end - at))) && line - at <= LINE) {
        request(connection, at, (size_t)(line - at));
        at = line + 1;
    }
    connection->read = (size_t)(end - at);
    if (connection->read > LINE) {
        return hang_up(connection);
    }
    memmove(connection->in, at, connection->read);
    send_replies(connection);
}

static void accept_all(int epoll) {
    for (;;) {
        int socket = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (socket < 0) {
            return;
        }
        setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        struct connection *connection = calloc(1, sizeof *connection);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
        if (!connection || epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &event) != 0) {
            free(connection);
            close(socket);
            continue;
        }
        connection->socket = socket;
        connection->epoll = epoll;
        connection->last = &connection->first;
        connection->next = connections;
        connection->link = &connections;
        if (connections) {
            connections->link = &connection->next;
        }
        connections = connection;
    }
}

/* ---- Threads. ---- */

static void *serve(void *argument) {
    int number = (int)(intptr_t)argument, descriptor, epoll = epoll_create1(EPOLL_CLOEXEC);
    struct shard *shard = calloc(1, sizeof *shard);
    trust_trustee here;
    check(trust_attach(&descriptor), "trust_attach");
    check(trust_local_trustee(&here), "trust_local_trustee");
    check(trust_entrust(here, shard, destroy, &shards[number]), "trust_entrust");

    struct epoll_event library = {.events = EPOLLIN, .data.ptr = &shards};
    struct epoll_event accepts = {.events = EPOLLIN | EPOLLEXCLUSIVE, .data.ptr = &listener};
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &library) != 0 ||
        epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &accepts) != 0) {
        fail("epoll");
    }
    pthread_barrier_wait(&barrier);
    while (!shard->stopped) {
        struct epoll_event events[64];
        int count = epoll_wait(epoll, events, 64, -1);
        for (int i = 0; i < count; i++) {
            struct connection *connection = events[i].data.ptr;
            if (events[i].data.ptr == &listener) {
                accept_all(epoll);
            } else if (events[i].data.ptr != &shards) {
                /* It must not be freed within its own calls. */
                connection->outstanding++;
                if (events[i].events & EPOLLOUT) {
                    send_replies(connection);
                }
                if (!connection->closed && events[i].events & ~(unsigned)EPOLLOUT) {
                    readable(connection);
                }
                connection->outstanding--;
                release(connection);
            }
        }
        check(trust_poll(NULL), "trust_poll");
        forget_done();
    }
    close(epoll);
    /* All threads have been told to stop; those that still send requests here get the answer that it is gone. */
    check(trust_detach(), "trust_detach");
    while (connections) {
        hang_up(connections);
        forget(connections);
    }
    return NULL;
}

/* ---- A client that checks its answers. ---- */

enum { CLIENTS = 4, ROUNDS = 60, BATCH = 40 };
static uint16_t port;

static int dial(void) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket_ < 0 || connect(socket_, (struct sockaddr *)&address, sizeof address) != 0) {
        fail("connect");
    }
    return socket_;
}

static size_t write_batch(char *batch, int number, int round) {
    size_t length = 0;
    for (int i = 0; i < BATCH; i++) {
        length +=
            (size_t)sprintf(batch + length, "set %d.%d %0*d\nget %d.%d\n", number, i, 1 + i * 7, round, number, i);
    }
    return length;
}

static void *client(void *argument) {
    int number = (int)(intptr_t)argument;
    int socket = dial();
    FILE *replies = fdopen(socket, "r");
    char line[LINE], wanted[LINE];
    for (int round = 0; round < ROUNDS; round++) {
        char batch[BATCH * 2 * LINE];
        /* Another client leaves with half of its batch under way; with keys of its own, since the time of their writes
         * is unknown. */
        if (round % 7 == number) {
            int gone = dial();
            if (send(gone, batch, write_batch(batch, CLIENTS + number, round) / 2, MSG_NOSIGNAL) < 0) {
                fail("send");
            }
            close(gone);
        }
        size_t length = write_batch(batch, number, round);
        for (size_t sent = 0; sent < length;) {
            ssize_t count = send(socket, batch + sent, length - sent, MSG_NOSIGNAL);
            if (count < 0) {
                fail("send");
            }
            sent += (size_t)count;
        }
        for (int i = 0; i < BATCH * 2; i++) {
            sprintf(wanted, i % 2 ? "VALUE %0*d\n" : "OK\n", 1 + i / 2 * 7, round);
            if (!fgets(line, sizeof line, replies) || strcmp(line, wanted) != 0) {
                fprintf(stderr, "client %d, round %d: %s instead of %s", number, round, line, wanted);
                _exit(1);
            }
        }
    }
    fclose(replies);
    return NULL;
}

int main(int count, char **arguments) {
    int tests = count == 2 && strcmp(arguments[1], "--self-test") == 0;
    if (count != 2) {
        fprintf(stderr, "server PORT | server --self-test\n");
        return 2;
    }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    address.sin_port = htons(tests ? 0 : (uint16_t)atoi(arguments[1]));
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(listener, (struct sockaddr *)&address, size) != 0 || listen(listener, 128) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &size) != 0) {
        fail("listen");
    }
    port = ntohs(address.sin_port);
    /* Before there are threads, so that only this one gets the signals. */
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);

    pthread_t threads[THREADS], clients[CLIENTS];
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    for (intptr_t i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, serve, (void *)i) != 0) {
            fail("pthread_create");
        }
    }
    pthread_barrier_wait(&barrier);
    if (tests) {
        for (intptr_t i = 0; i < CLIENTS; i++) {
            if (pthread_create(&clients[i], NULL, client, (void *)i) != 0) {
                fail("pthread_create");
            }
        }
        for (int i = 0; i < CLIENTS; i++) {
            pthread_join(clients[i], NULL);
        }
        printf("%d answers, all right and in order\n", CLIENTS * ROUNDS * BATCH * 2);
    } else {
        int signal;
        printf("serving on port %d with %d threads\n", port, THREADS);
        sigwait(&ends, &signal);
    }
    check(trust_attach(NULL), "trust_attach");
    for (int i = 0; i < THREADS; i++) {
        check(trust_apply_then(shards[i], stop, NULL, 0, NULL, NULL), "stop");
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        trust_drop(shards[i]);
    }
    check(trust_detach(), "trust_detach");
    close(listener);
    return 0;
}
