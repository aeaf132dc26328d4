/* lwIP's rows beside those of `benches/tcp` and `benches/udp`: the same loads, both ends in this
 * process over a wire in memory, each byte compared. `driver ROW` reads numbers from its input and
 * answers each by a line of JSON: the nanoseconds of processor time that one took of so many.
 * `driver --count N ROW` does N and measures nothing. `cargo xtask lwip` builds it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "host.h"

enum { TURN = 500, PORT = 7000, MESSAGE = 64, PIECE = 65536, PERIOD = 251, BURST = 32 };

uint64_t now_nanos = 1;

static const struct host *const HOSTS[2] = { &FIRST, &SECOND };

struct pair { struct connection *ends[2]; };

static struct pair *pairs;
static size_t pairs_len, at_once, next_pair, datagram_len;
static uint64_t serial;
static char text[PIECE + PERIOD], datagram[2048];

static void check(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "lwIP: %s\n", what);
        exit(1);
    }
}

/* What was sent arrives at the other end, and what that answers at the first. */
static void turn(void) {
    for (int i = 0; i < 3; i++) {
        now_nanos += TURN;
        HOSTS[i % 2]->run();
    }
}

static struct pair open_pair(void) {
    struct pair pair = { { FIRST.connect(PORT), NULL } };
    for (int i = 0; i < 100 && pair.ends[1] == NULL; i++) {
        turn();
        pair.ends[1] = SECOND.accept();
    }
    check(pair.ends[1] != NULL, "a connection did not open");
    return pair;
}

static void expect(const struct host *host, struct connection *at, const char *message) {
    const char *bytes = NULL;
    check(host->receive(at, &bytes) == MESSAGE, "a message is not whole");
    check(memcmp(bytes, message, MESSAGE) == 0, "a message has changed");
}

static void ping_pong(size_t count) {
    for (size_t i = 0; i < count; i++, next_pair++) {
        struct pair *pair = &pairs[next_pair % pairs_len];
        char message[MESSAGE];
        memset(message, (int)(next_pair & 0xff), sizeof message);
        for (int from = 0; from < 2; from++) {
            check(HOSTS[from]->send(pair->ends[from], message, MESSAGE) == MESSAGE, "no room");
            turn();
            expect(HOSTS[1 - from], pair->ends[1 - from], message);
        }
    }
}

static void message_of(uint64_t number, char *message) {
    for (int i = 0; i < MESSAGE; i += 8) {
        memcpy(message + i, &number, 8);
    }
}

static void generation(void) {
    char message[MESSAGE];
    const char *bytes;
    for (size_t n = 0; n < at_once; n++) {
        pairs[n].ends[0] = FIRST.connect(PORT);
    }
    turn();
    for (size_t n = 0; n < at_once; n++) {
        message_of(serial + n, message);
        check(FIRST.send(pairs[n].ends[0], message, MESSAGE) == MESSAGE, "no room");
    }
    turn();
    for (size_t n = 0; n < at_once; n++) {
        pairs[n].ends[1] = SECOND.accept();
        check(pairs[n].ends[1] != NULL, "all have opened");
        check(SECOND.receive(pairs[n].ends[1], &bytes) == MESSAGE, "a message is not whole");
        check(SECOND.send(pairs[n].ends[1], bytes, MESSAGE) == MESSAGE, "no room");
    }
    turn();
    for (size_t n = 0; n < at_once; n++) {
        message_of(serial + n, message);
        expect(&FIRST, pairs[n].ends[0], message);
        FIRST.close(pairs[n].ends[0]);
    }
    turn();
    for (size_t n = 0; n < at_once; n++) {
        check(SECOND.receive(pairs[n].ends[1], &bytes) == 0, "the peer has not closed");
        SECOND.close(pairs[n].ends[1]);
    }
    turn();
    turn();
    now_nanos += 20000000;
    serial += at_once;
}

static void connections(size_t count) {
    for (size_t n = 0; n < count; n += at_once) {
        generation();
    }
}

static void bulk(size_t count) {
    static size_t written, taken;
    size_t goal = taken + count * PIECE;
    while (taken < goal) {
        size_t want = goal - written < PIECE ? goal - written : PIECE;
        written += FIRST.send(pairs[0].ends[0], text + written % PERIOD, want);
        turn();
        const char *bytes;
        long len;
        while ((len = SECOND.receive(pairs[0].ends[1], &bytes)) > 0) {
            for (size_t done = 0; done < (size_t)len;) {
                size_t some = (size_t)len - done < PIECE ? (size_t)len - done : PIECE;
                const char *sent = text + (taken + done) % PERIOD;
                check(memcmp(bytes + done, sent, some) == 0, "bytes have changed");
                done += some;
            }
            taken += (size_t)len;
        }
        check(len < 0, "the stream has ended");
        turn();
    }
}

static void datagrams(size_t bursts) {
    for (size_t n = 0; n < bursts; n++) {
        SECOND.datagrams(datagram, datagram_len);
        for (int i = 0; i < BURST; i++) {
            datagram[0] = (char)i;
            FIRST.send_datagram(datagram, datagram_len);
        }
        now_nanos += 10000;
        SECOND.run();
        FIRST.run();
        check(SECOND.datagrams(datagram, datagram_len) == BURST, "a datagram is lost or changed");
    }
}

static uint64_t own_nanos(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Opens what a row needs; returns what it does. */
static void (*prepare(const char *row, int v6))(size_t) {
    size_t open = 0, room = 0;
    void (*load)(size_t) = NULL;
    if (strcmp(row, "bulk") == 0) {
        open = 1, load = bulk;
    } else if (strcmp(row, "ping-pong") == 0) {
        open = 1, load = ping_pong;
    } else if (strcmp(row, "ping-pong over 64") == 0) {
        open = 64, load = ping_pong;
    } else if (strcmp(row, "ping-pong over many") == 0) {
        open = 10000, load = ping_pong;
    } else if (strcmp(row, "connections") == 0) {
        room = at_once = 1, load = connections;
    } else if (strcmp(row, "connections, 64 at once") == 0) {
        room = at_once = 64, load = connections;
    } else if (sscanf(row, "%zu B", &datagram_len) == 1 && datagram_len < sizeof datagram) {
        load = datagrams;
    } else {
        return NULL;
    }
    size_t buffer = load == bulk ? 262144 + PIECE : 4096;
    FIRST.start(1, v6, buffer, &SECOND);
    SECOND.start(2, v6, buffer, &FIRST);
    pairs = calloc(open + room + 1, sizeof *pairs);
    for (pairs_len = 0; pairs_len < open; pairs_len++) {
        pairs[pairs_len] = open_pair();
    }
    return load;
}

int main(int argc, char **argv) {
    size_t count = 0;
    if (argc == 4 && strcmp(argv[1], "--count") == 0) {
        count = strtoul(argv[2], NULL, 10);
        argv += 2, argc -= 2;
    }
    int v6 = argc == 2 && strncmp(argv[1], "IPv6 ", 5) == 0;
    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = (char)(i % PERIOD);
    }
    for (size_t i = 0; i < sizeof datagram; i++) {
        datagram[i] = (char)i;
    }
    void (*load)(size_t) = argc == 2 && strlen(argv[1]) > 5 ? prepare(argv[1] + 5, v6) : NULL;
    if (load == NULL) {
        fprintf(stderr, "usage: driver [--count N] 'IPv4 ping-pong', or another row\n");
        return 2;
    }
    if (count > 0) {
        load(count);
        return 0;
    }
    while (scanf("%zu", &count) == 1 && count > 0) {
        load(count / 10 + 1);
        uint64_t start = own_nanos();
        load(count);
        double each = (double)(own_nanos() - start) / (double)count;
        printf("{\"row\": \"%s\", \"count\": %zu, \"nanos\": %.2f}\n", argv[1], count, each);
        fflush(stdout);
    }
    return 0;
}
