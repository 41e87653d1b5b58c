/* Server that answers the protocol of PostgreSQL with fixed messages, for loads of 100,000 clients on one
 * machine. Every statement returns one row with the text 1. It accepts any user without authentication.
 *
 *     fake_server SOCKET PROCESSES
 *
 * A process accepts as many clients as it may have open files. Prints the number of executed statements when its
 * standard input is closed, and ends.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MESSAGE_BYTES = 16384, EVENTS = 512, BACKLOG = 4096, OTHER_FILES = 16, PROTOCOL_3 = 3 << 16 };

/* Messages with their lengths. The value of a parameter follows its name. */
#define TEXT(text) text, sizeof text - 1
#define PARAMETER(length, name, value) "S\0\0\0" length name "\0" value "\0"

static const char login[] =
    "R\0\0\0\10\0\0\0\0" PARAMETER("\30", "server_version", "15.0") PARAMETER("\31", "client_encoding", "UTF8")
    PARAMETER("\43", "standard_conforming_strings", "on") "K\0\0\0\14\0\0\0\1\0\0\0\1" "Z\0\0\0\5I";
static const char parsed[] = "1\0\0\0\4", bound[] = "2\0\0\0\4", closed[] = "3\0\0\0\4", ready[] = "Z\0\0\0\5I";
static const char empty[] = "I\0\0\0\4", parameters[] = "t\0\0\0\6\0\0";
static const char columns[] = "T\0\0\0\32\0\1" "c\0" "\0\0\0\0\0\0" "\0\0\0\31" "\377\377" "\377\377\377\377" "\0\0";
static const char row[] = "D\0\0\0\13\0\1\0\0\0\1" "1", complete[] = "C\0\0\0\15SELECT 1\0";

static atomic_long *executed; /* shared by the processes */

static void die(const char *what) {
    perror(what);
    exit(1);
}

static char *put(char *at, const void *bytes, size_t n) { return (char *)memcpy(at, bytes, n) + n; }

static uint32_t int32_at(const char *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return ntohl(value);
}

/* Append the response to one message. Returns the end of the response; NULL after a Terminate. */
static char *answer(char *at, const char *message) {
    switch (message[0]) {
    case 'P': return put(at, TEXT(parsed));
    case 'B': return put(at, TEXT(bound));
    case 'C': return put(at, TEXT(closed));
    case 'S': return put(at, TEXT(ready));
    case 'D':
        if (message[5] == 'S') at = put(at, TEXT(parameters));
        return put(at, TEXT(columns));
    case 'E':
        ++*executed;
        return put(put(at, TEXT(row)), TEXT(complete));
    case 'Q':
        if (!message[5]) return put(put(at, TEXT(empty)), TEXT(ready));
        ++*executed;
        return put(put(put(put(at, TEXT(columns)), TEXT(row)), TEXT(complete)), TEXT(ready));
    case 'X': return NULL;
    case 'H': return at;
    default: fprintf(stderr, "fake_server: unknown message %d\n", message[0]); exit(1);
    }
}

/* Answer what a client has sent. Clients wait for the response, so every read ends with a whole message. */
static void serve(int client) {
    char asked[MESSAGE_BYTES], response[8 * MESSAGE_BYTES], *end = response;
    ssize_t n = recv(client, asked, sizeof asked, 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
        close(client);
        return;
    }
    for (const char *at = asked, *until = asked + n; at < until;) {
        int is_startup = !*at; /* a startup message has no type, and begins with its length */
        if (until - at < 5 || (until - at) < (ssize_t)int32_at(at + !is_startup) + !is_startup) {
            fprintf(stderr, "fake_server: a message in pieces\n");
            exit(1);
        }
        if (!is_startup) end = answer(end, at);
        else if (int32_at(at + 4) == PROTOCOL_3) end = put(end, TEXT(login));
        else end = put(end, "N", 1); /* no encryption */
        if (!end) {
            close(client);
            return;
        }
        at += int32_at(at + !is_startup) + !is_startup;
    }
    if (send(client, response, (size_t)(end - response), MSG_NOSIGNAL) != end - response) die("send");
}

static int listen_at(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address)) die("bind");
    if (listen(listener, BACKLOG)) die("listen");
    return listener;
}

static rlim_t max_clients(void) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files)) die("getrlimit");
    files.rlim_cur = files.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &files)) die("setrlimit");
    return files.rlim_cur - OTHER_FILES;
}

static void watch(int epoll, int fd, uint32_t events) {
    struct epoll_event event = {.events = events, .data.fd = fd};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)) die("epoll_ctl");
}

/* Serve until the standard input is closed. */
static void run(int listener, rlim_t left) {
    int epoll = epoll_create1(0);
    watch(epoll, listener, EPOLLIN | EPOLLEXCLUSIVE);
    watch(epoll, STDIN_FILENO, EPOLLIN);
    for (;;) {
        struct epoll_event happened[EVENTS];
        int n = epoll_wait(epoll, happened, EVENTS, -1);
        if (n < 0 && errno != EINTR) die("epoll_wait");
        for (int i = 0; i < n; i++) {
            int fd = happened[i].data.fd;
            if (fd == STDIN_FILENO) return;
            if (fd != listener) {
                serve(fd);
                continue;
            }
            for (int client; left && (client = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0; left--)
                watch(epoll, client, EPOLLIN);
            if (!left) epoll_ctl(epoll, EPOLL_CTL_DEL, listener, NULL);
        }
    }
}

int main(int count, char **arguments) {
    if (count != 3) { fprintf(stderr, "fake_server: two arguments, see its source\n"); return 2; }
    executed = mmap(NULL, sizeof *executed, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (executed == MAP_FAILED) die("mmap");
    rlim_t clients = max_clients();
    int listener = listen_at(arguments[1]), processes = atoi(arguments[2]);
    puts("listening");
    fflush(stdout);
    for (int i = 0; i < processes; i++) {
        pid_t pid = fork();
        if (pid < 0) die("fork");
        if (!pid) {
            run(listener, clients);
            _exit(0);
        }
    }
    int status, is_failed = 0;
    while (wait(&status) > 0) is_failed |= status;
    printf("%ld\n", *executed);
    return !!is_failed;
}
