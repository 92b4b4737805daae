/* descriptors: a descriptor works in all threads, as in one process: files,
 * pipes, sockets, event counters, locks of files, directories; numbers are the lowest free ones. */
#include "verdict.h"
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum { LINES = 100, LONG = 3 << 20 };

static char folder[4096], path[4200];
static int lines, ends[2], back[2], pair[2], event, epoll;
static unsigned char *large;

/* Appends lines to a file of main. */
static void *appends(void *number) {
    char line[64];
    for (int i = 0; i < LINES; i++) {
        int bytes = snprintf(line, sizeof line, "%02d %03d\n", (int)(intptr_t)number, i);
        CHECK(write(lines, line, (size_t)bytes) == bytes);
    }
    return NULL;
}

/* Answers each byte of one pipe in the other one, until its end. */
static void *echoes(void *unused) {
    char byte;
    (void)unused;
    while (read(ends[0], &byte, 1) == 1) {
        byte++;
        CHECK(write(back[1], &byte, 1) == 1);
    }
    CHECK(close(back[1]) == 0);
    return NULL;
}

/* Has a descriptor, which comes with a message, and answers with a part of its file. */
static void *receives(void *unused) {
    char text[8] = {0}, room[CMSG_SPACE(sizeof(int))];
    struct iovec pieces[2] = {{text, 3}, {text + 3, 4}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2, .msg_control = room, .msg_controllen = sizeof room};
    (void)unused;
    CHECK(recvmsg(pair[1], &message, 0) == 5 && memcmp(text, "hello\0\0", 8) == 0);
    CHECK(message.msg_iov == pieces && message.msg_iovlen == 2);
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    int file = -1;
    CHECK(control != NULL && control->cmsg_type == SCM_RIGHTS);
    memcpy(&file, CMSG_DATA(control), sizeof file);
    CHECK(pread(file, text, 6, 7) == 6 && text[2] == ' ');
    CHECK(close(file) == 0 && fcntl(file, F_GETFD) == -1 && errno == EBADF);
    CHECK(send(pair[1], text, 6, MSG_NOSIGNAL) == 6);
    return NULL;
}

static void *waits(void *unused) {
    struct pollfd files[2] = {{.fd = event, .events = POLLIN}, {.fd = back[0], .events = POLLIN}};
    struct epoll_event events[4];
    uint64_t count = 0;
    (void)unused;
    CHECK(poll(files, 2, -1) == 1 && files[0].revents == POLLIN && files[1].revents == 0);
    CHECK(epoll_wait(epoll, events, 4, -1) == 1 && events[0].data.ptr == &epoll);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(event, &set);
    struct timeval second = {1, 0};
    CHECK(select(event + 1, &set, NULL, NULL, &second) == 1 && FD_ISSET(event, &set));
    CHECK(read(event, &count, sizeof count) == sizeof count && count == 7);
    CHECK(poll(files, 2, 1) == 0);
    return NULL;
}

static void *looks(void *unused) {
    char text[4200], link[4200];
    struct stat about;
    int ready = -1, bytes = -1;
    (void)unused;
    snprintf(text, sizeof text, "%s/made", folder);
    CHECK(mkdir(text, 0755) == 0 && mkdir(text, 0755) == -1 && errno == EEXIST);
    CHECK(stat(text, &about) == 0 && S_ISDIR(about.st_mode) && rmdir(text) == 0);
    CHECK(stat(text, &about) == -1 && errno == ENOENT && access(path, W_OK) == 0);
    snprintf(link, sizeof link, "%s/link", folder);
    CHECK(symlink(path, link) == 0 && readlink(link, text, sizeof text) == (ssize_t)strlen(path));
    CHECK(memcmp(text, path, strlen(path)) == 0);
    DIR *all = opendir(folder);
    int names = 0;
    for (struct dirent *entry; all != NULL && (entry = readdir(all)) != NULL;) {
        names += entry->d_name[0] != '.';
    }
    CHECK(names == 2 && closedir(all) == 0 && unlink(link) == 0);
    CHECK(ioctl(ends[0], FIONREAD, &bytes) == 0 && bytes == 0);
    CHECK(isatty(lines) == 0 && errno == ENOTTY);
    socklen_t room = sizeof ready;
    CHECK(getsockopt(pair[0], SOL_SOCKET, SO_TYPE, &ready, &room) == 0 && ready == SOCK_STREAM);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    CHECK(fcntl(lines, F_SETLK, &lock) == 0 && fcntl(lines, F_GETLK, &lock) == 0);
    /* Kernel and program agree on wrong addresses, of which valgrind would tell. */
    const char *preloaded = getenv("LD_PRELOAD");
    void *volatile wrong = (void *)8;
    if (preloaded == NULL || strstr(preloaded, "valgrind") == NULL) {
        CHECK(write(lines, wrong, 4) == -1 && errno == EFAULT);
    }
    CHECK(read(lines, NULL, 0) == -1 && errno == EBADF);
    CHECK(open("/dev/null/none", O_RDONLY) == -1 && errno == ENOTDIR);
    return NULL;
}

static void *writes_much(void *unused) {
    int file = open(path, O_RDWR | O_TRUNC);
    (void)unused;
    CHECK(write(file, large, LONG) == LONG);
    CHECK(lseek(file, 0, SEEK_END) == LONG && lseek(file, 1, SEEK_SET) == 1);
    memset(large, 0, LONG);
    struct iovec pieces[2] = {{large, 10}, {large + 10, LONG - 11}};
    CHECK(readv(file, pieces, 2) == LONG - 1 && large[LONG - 1] == 0);
    unsigned char *map = mmap(NULL, LONG, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    CHECK(map != MAP_FAILED && memcmp(map + 1, large, LONG - 1) == 0 && munmap(map, LONG) == 0);
    return (void *)(intptr_t)file;
}

static int lowest;

/* Opens and closes as a program that keeps its numbers in order. */
static void *numbers(void *unused) {
    int first = open("/dev/null", O_RDONLY), second = dup(first);
    (void)unused;
    CHECK(first == lowest && second == lowest + 1);
    CHECK(close(first) == 0 && open("/dev/zero", O_RDONLY) == first);
    CHECK(dup2(first, second) == second && close(first) == 0 && close(second) == 0);
    /* Also those where a library might have some of its own. */
    for (int number = lowest; number < 1100; number += number < 30 || number >= 1000 ? 1 : 97) {
        close(number);
    }
    return NULL;
}

static void *starts_process(void *unused) {
    int status = -1;
    (void)unused;
    FILE *out = popen("echo from a child; exit 3", "r");
    char line[64] = "";
    CHECK(out != NULL && fgets(line, sizeof line, out) != NULL && strcmp(line, "from a child\n") == 0);
    status = pclose(out);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    status = system("exit 4");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 4);
    CHECK(waitpid(-1, &status, WNOHANG) == -1 && errno == ECHILD);
    return NULL;
}

static pid_t first_process;

static void *has_id(void *unused) {
    (void)unused;
    CHECK(getpid() == first_process);
    return NULL;
}

/* One thread after the other, on all machines. */
static void each(void *(*body)(void *)) {
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, body, NULL) == 0 && pthread_join(thread, NULL) == 0);
    }
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    snprintf(folder, sizeof folder, "%s/descriptors-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/lines", folder);
    lines = open(path, O_CREAT | O_WRONLY | O_APPEND, 0600);
    run_threads(threads, appends);
    struct stat about;
    CHECK(fstat(lines, &about) == 0 && about.st_size == threads * LINES * 7);

    CHECK(pipe(ends) == 0 && pipe(back) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, echoes, NULL) == 0);
    for (char byte = 0; byte < 20; byte++) {
        char answer = 0;
        CHECK(write(ends[1], &byte, 1) == 1 && read(back[0], &answer, 1) == 1 && answer == byte + 1);
    }
    CHECK(close(ends[1]) == 0 && pthread_join(thread, NULL) == 0);
    char none;
    CHECK(read(back[0], &none, 1) == 0 && close(back[0]) == 0 && close(ends[0]) == 0);

    CHECK(pipe(ends) == 0 && pipe(back) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    each(looks);
    for (int i = 0; i < threads; i++) {
        CHECK(pthread_create(&thread, NULL, receives, NULL) == 0);
        int file = open(path, O_RDONLY);
        char text[] = "hello", room[CMSG_SPACE(sizeof(int))] = {0};
        struct iovec piece = {text, 5};
        struct msghdr message = {
            .msg_iov = &piece, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
        struct cmsghdr *control = CMSG_FIRSTHDR(&message);
        control->cmsg_level = SOL_SOCKET;
        control->cmsg_type = SCM_RIGHTS;
        control->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(control), &file, sizeof file);
        CHECK(sendmsg(pair[0], &message, 0) == 5 && recv(pair[0], text, 6, MSG_WAITALL) == 6);
        CHECK(close(file) == 0 && pthread_join(thread, NULL) == 0);
    }
    for (int i = 0; i < threads; i++) {
        uint64_t seven = 7;
        struct epoll_event interest = {.events = EPOLLIN, .data.ptr = &epoll};
        CHECK((event = eventfd(0, 0)) >= 0 && (epoll = epoll_create1(0)) >= 0);
        CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, event, &interest) == 0);
        CHECK(pthread_create(&thread, NULL, waits, NULL) == 0);
        CHECK(write(event, &seven, sizeof seven) == sizeof seven && pthread_join(thread, NULL) == 0);
        CHECK(close(event) == 0 && close(epoll) == 0);
    }
    each(starts_process);
    first_process = getpid();
    each(has_id);

    large = malloc(LONG);
    for (int i = 0; i < threads; i++) {
        void *file = NULL;
        for (size_t at = 0; at < LONG; at++) {
            large[at] = (unsigned char)(at * 31 + at / 251);
        }
        CHECK(pthread_create(&thread, NULL, writes_much, NULL) == 0 && pthread_join(thread, &file) == 0);
        for (size_t at = 0; at + 1 < LONG; at++) {
            if (large[at] != (unsigned char)((at + 1) * 31 + (at + 1) / 251)) {
                CHECK(!"the bytes are those written");
                break;
            }
        }
        CHECK(lseek((int)(intptr_t)file, 0, SEEK_CUR) == LONG && close((int)(intptr_t)file) == 0);
    }
    free(large);
    lowest = open("/dev/null", O_RDONLY);
    CHECK(close(lowest) == 0);
    each(numbers);
    CHECK(unlink(path) == 0 && rmdir(folder) == 0);
    return verdict("descriptors");
}
