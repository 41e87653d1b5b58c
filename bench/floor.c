/* Bare loop that drives one prepared statement without any bookkeeping. It uses epoll, or io_uring if compiled
 * with -DIO_URING -luring.
 *
 * Its cost is the lower bound for any driver on this machine in its present state. It is not a driver: it does
 * not measure, check or report single transactions.
 *
 *     floor SOCKET USER DATABASE STATEMENT ID_MAX CLIENTS THREADS SECONDS
 *
 * STATEMENT has one int4 parameter, drawn uniformly from 1..ID_MAX; with epoll, one without $1 is sent as text, unprepared.
 * With epoll, @FILE instead of a statement replays recorded messages again and again (bench/recording.py has the format).
 * The file has a recording for each of CLIENTS. A transaction is then one request up to ReadyForQuery.
 * Prints the number of transactions.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { REPLY_BYTES = 8192, EVENTS = 256, MESSAGE_BYTES = 16384, CLIENTS_MAX = 2000, THREADS_MAX = 64 };

static const char *socket_path, *user, *database, *statement;
static int clients, threads;
static uint32_t id_max;
static volatile int stopped;
static pthread_barrier_t connected;
static long transactions;

/* The requests of a session: lengths and messages, the first `setup` of which are sent once. */
struct recording {
    uint32_t setup, count, *lengths;
    const char **messages;
};
static struct recording *recordings; /* one per client; NULL with a statement */

static void die(const char *what) {
    perror(what);
    exit(1);
}

static char *put(char *at, const void *bytes, size_t n) { return (char *)memcpy(at, bytes, n) + n; }
static char *put_text(char *at, const char *text) { return put(at, text, strlen(text) + 1); }
static char *put_int16(char *at, uint16_t value) { value = htons(value); return put(at, &value, 2); }
static char *put_int32(char *at, uint32_t value) { value = htonl(value); return put(at, &value, 4); }

/* The length of a message includes itself, but not the type byte before it. */
static void close_message(char *length, const char *end) { put_int32(length, (uint32_t)(end - length)); }

/* Every response ends with ReadyForQuery: 'Z', its length 5, one byte of status. */
static int is_ready(const char *reply, ssize_t n) { return n >= 6 && reply[n - 6] == 'Z'; }

static void ask(int fd, const char *message, size_t n) {
    char reply[65536];
    if (write(fd, message, n) != (ssize_t)n) die("write");
    ssize_t got;
    do {
        got = read(fd, reply, sizeof reply);
        if (got <= 0) die("the server closed the connection");
        if (reply[0] == 'E') { fprintf(stderr, "floor: the server refused\n"); exit(1); }
    } while (!is_ready(reply, got));
}

static int connect_client(int client) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, socket_path, sizeof address.sun_path - 1);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) die("connect");

    char message[MESSAGE_BYTES], *at = put_int32(message + 4, 3 << 16);
    at = put_text(put_text(at, "user"), user);
    at = put_text(put_text(at, "database"), database);
    *at++ = 0;
    close_message(message, at);
    ask(fd, message, (size_t)(at - message));

    for (uint32_t i = 0; recordings && i < recordings[client].setup; i++)
        ask(fd, recordings[client].messages[i], recordings[client].lengths[i]);
    if (recordings || !strstr(statement, "$1")) {
        fcntl(fd, F_SETFL, O_NONBLOCK);
        return fd;
    }
    at = message;
    *at++ = 'P';
    char *length = at;
    at = put_text(put_text(at + 4, "s"), statement);
    at = put_int32(put_int16(at, 1), 23); /* one parameter, int4 */
    close_message(length, at);
    at = put(at, "S\0\0\0\4", 5);
    ask(fd, message, (size_t)(at - message));
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

/* Write Bind, Execute, Sync, or Query. Returns the end of the message, and the position of the id. */
static char *write_request(char *at, char **id) {
    static char unused[4];
    int is_prepared = strstr(statement, "$1") != NULL;
    *at++ = is_prepared ? 'B' : 'Q';
    char *length = at;
    if (!is_prepared) {
        *id = unused;
        at = put_text(at + 4, statement);
        close_message(length, at);
        return at;
    }
    at = put_text(put_text(at + 4, ""), "s");
    at = put_int16(put_int16(put_int16(at, 1), 1), 1); /* one parameter, binary */
    *id = at = put_int32(at, 4);
    at = put_int16(put_int16(at + 4, 1), 1); /* all results binary */
    close_message(length, at);
    return put(at, "E\0\0\0\11\0\0\0\0\0S\0\0\0\4", 15);
}

static uint64_t next_random(uint64_t random) {
    random ^= random << 13, random ^= random >> 7, random ^= random << 17;
    return random;
}

static int connect_share(int number, int *fds) {
    int n = 0;
    for (int client = number; client < clients; client += threads) fds[n++] = connect_client(client);
    pthread_barrier_wait(&connected);
    return n;
}

/* Every useful driver reads the clock per transaction. */
static void read_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
}

#ifdef IO_URING
#include <liburing.h>

enum { RECEIVE, SEND, KINDS, TIMEOUT_NS = 100000000 };

struct client {
    char request[128], reply[REPLY_BYTES], *id;
    size_t length;
};

static void ask_again(struct io_uring *ring, struct client *of, int number, int fd, uint32_t id) {
    put_int32(of->id, id);
    struct io_uring_sqe *entry = io_uring_get_sqe(ring);
    io_uring_prep_send(entry, fd, of->request, of->length, MSG_NOSIGNAL | MSG_DONTWAIT | MSG_WAITALL);
    entry->flags |= IOSQE_CQE_SKIP_SUCCESS;
    entry->user_data = (uint64_t)number * KINDS + SEND;
    entry = io_uring_get_sqe(ring);
    io_uring_prep_recv(entry, fd, of->reply, REPLY_BYTES, 0);
    entry->ioprio |= IORING_RECVSEND_POLL_FIRST;
    entry->user_data = (uint64_t)number * KINDS + RECEIVE;
}

static void *drive(void *number) {
    static __thread int fds[CLIENTS_MAX];
    int n = connect_share((int)(uintptr_t)number, fds);
    struct client *all = calloc((size_t)n, sizeof *all);
    struct io_uring_params parameters = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN};
    struct io_uring ring;
    if (!all || io_uring_queue_init_params(2 * CLIENTS_MAX, &ring, &parameters)) die("io_uring");
    uint64_t random = 88172645463325252u + (uintptr_t)number;
    long done = 0;
    for (int i = 0; i < n; i++) {
        all[i].length = (size_t)(write_request(all[i].request, &all[i].id) - all[i].request);
        ask_again(&ring, &all[i], i, fds[i], 1);
    }
    while (!stopped) {
        struct __kernel_timespec timeout = {.tv_nsec = TIMEOUT_NS};
        struct io_uring_cqe *event;
        unsigned head, events = 0;
        io_uring_submit_and_wait_timeout(&ring, &event, 1, &timeout, NULL);
        io_uring_for_each_cqe(&ring, head, event) {
            int i = (int)(event->user_data / KINDS);
            events++;
            if (event->user_data % KINDS == SEND || event->res <= 0) die("the server closed the connection");
            if (!is_ready(all[i].reply, event->res)) die("an answer in pieces");
            done++;
            random = next_random(random);
            read_clock();
            ask_again(&ring, &all[i], i, fds[i], 1 + (uint32_t)(random % id_max));
        }
        io_uring_cq_advance(&ring, events);
    }
    __atomic_add_fetch(&transactions, done, __ATOMIC_RELAXED);
    return NULL;
}
#else
#include <sys/epoll.h>

static uint32_t next_number(FILE *file) {
    uint32_t number;
    if (fread(&number, sizeof number, 1, file) != 1) die("the recording ends early");
    return number;
}

static void read_recordings(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) die(path);
    recordings = calloc((size_t)clients, sizeof *recordings);
    for (int i = 0; i < clients; i++) {
        struct recording *of = &recordings[i];
        of->setup = next_number(file), of->count = next_number(file);
        if (of->setup >= of->count) die("a recording without requests");
        of->lengths = calloc(of->count, sizeof *of->lengths);
        of->messages = calloc(of->count, sizeof *of->messages);
        for (uint32_t j = 0; j < of->count; j++) {
            char *message = malloc(of->lengths[j] = next_number(file));
            if (fread(message, 1, of->lengths[j], file) != of->lengths[j]) die("the recording ends early");
            of->messages[j] = message;
        }
    }
    fclose(file);
}

enum { TAIL = 6 };

struct session {
    uint32_t next;
    char tail[TAIL]; /* of the received part of the response */
};

static void send_next(int fd, struct session *session, const struct recording *of) {
    uint32_t i = session->next;
    session->next = i + 1 == of->count ? of->setup : i + 1;
    if (send(fd, of->messages[i], of->lengths[i], MSG_NOSIGNAL) != (ssize_t)of->lengths[i]) die("send");
}

/* Receive what has arrived. Returns whether it ends the response. */
static int receive(int fd, struct session *session) {
    static __thread char reply[TAIL + 65536];
    for (;;) {
        ssize_t got = recv(fd, reply + TAIL, sizeof reply - TAIL, 0);
        if (got < 0 && errno == EAGAIN) return 0;
        if (got <= 0) die("the server closed the connection");
        memcpy(reply, session->tail, TAIL);
        memcpy(session->tail, reply + got, TAIL);
        if (!memcmp(session->tail, "Z\0\0\0\5", TAIL - 1)) return 1;
    }
}

static void *replay(void *number) {
    struct session sessions[CLIENTS_MAX];
    struct epoll_event ready[EVENTS];
    long done = 0;
    int first = (int)(uintptr_t)number, fds[CLIENTS_MAX], n = connect_share(first, fds), epoll = epoll_create1(0);
    for (int i = 0; i < n; i++) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u32 = (uint32_t)i};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &event)) die("epoll_ctl");
        sessions[i] = (struct session){.next = recordings[first + i * threads].setup};
        send_next(fds[i], &sessions[i], &recordings[first + i * threads]);
    }
    while (!stopped) {
        int events = epoll_wait(epoll, ready, EVENTS, 100);
        for (int e = 0; e < events; e++) {
            uint32_t i = ready[e].data.u32;
            if (!receive(fds[i], &sessions[i])) continue;
            done++;
            read_clock();
            send_next(fds[i], &sessions[i], &recordings[first + (int)i * threads]);
        }
    }
    __atomic_add_fetch(&transactions, done, __ATOMIC_RELAXED);
    return NULL;
}

static void *drive(void *number) {
    if (recordings) return replay(number);
    char request[MESSAGE_BYTES], reply[REPLY_BYTES], *id, *end = write_request(request, &id);
    struct epoll_event ready[EVENTS];
    uint64_t random = 88172645463325252u + (uintptr_t)number;
    long done = 0;
    int fds[CLIENTS_MAX], n = connect_share((int)(uintptr_t)number, fds), epoll = epoll_create1(0);
    for (int i = 0; i < n; i++) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = fds[i]};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &event)) die("epoll_ctl");
        put_int32(id, 1);
        send(fds[i], request, (size_t)(end - request), MSG_NOSIGNAL);
    }
    while (!stopped) {
        int events = epoll_wait(epoll, ready, EVENTS, 100);
        for (int i = 0; i < events; i++) {
            int fd = ready[i].data.fd;
            if (!is_ready(reply, recv(fd, reply, sizeof reply, 0))) continue;
            done++;
            random = next_random(random);
            put_int32(id, 1 + (uint32_t)(random % id_max));
            read_clock();
            send(fd, request, (size_t)(end - request), MSG_NOSIGNAL);
        }
    }
    __atomic_add_fetch(&transactions, done, __ATOMIC_RELAXED);
    return NULL;
}
#endif

int main(int count, char **arguments) {
    if (count != 9) { fprintf(stderr, "floor: eight arguments, see its source\n"); return 2; }
    socket_path = arguments[1], user = arguments[2], database = arguments[3], statement = arguments[4];
    id_max = (uint32_t)atoi(arguments[5]), clients = atoi(arguments[6]), threads = atoi(arguments[7]);
    if (id_max < 1 || clients < 1 || clients > CLIENTS_MAX || threads < 1 || threads > THREADS_MAX) return 2;
#ifndef IO_URING
    if (statement[0] == '@') read_recordings(statement + 1);
#endif
    pthread_t started[THREADS_MAX];
    pthread_barrier_init(&connected, NULL, (unsigned)threads + 1);
    for (int i = 0; i < threads; i++)
        if (pthread_create(&started[i], NULL, drive, (void *)(uintptr_t)i)) die("pthread_create");
    pthread_barrier_wait(&connected);
    sleep((unsigned)atoi(arguments[8]));
    stopped = 1;
    for (int i = 0; i < threads; i++) pthread_join(started[i], NULL);
    printf("%ld\n", transactions);
    return 0;
}
