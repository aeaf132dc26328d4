/* One host: lwIP with an interface of its own. The program holds two copies, all symbols of which
 * but these functions are local, so that each end has its own lists and pools, as in our rows. */
#ifndef HOST_H
#define HOST_H

#include <stddef.h>
#include <stdint.h>

struct pbuf;
struct connection;

struct host {
    /* Its number (1 or 2) is its address's last part; `buffer` bytes for what a connection reads.
     * `peer` takes what it sends. */
    void (*start)(int number, int v6, size_t buffer, const struct host *peer);
    /* Copies a packet of the other host's into memory of this one, as a driver would. */
    void (*take)(const struct pbuf *packet);
    /* Everything that was taken, then the timers. */
    void (*run)(void);
    struct connection *(*connect)(uint16_t port);
    /* The next that opened, or NULL. */
    struct connection *(*accept)(void);
    /* Bytes taken of these. */
    size_t (*send)(struct connection *connection, const char *bytes, size_t len);
    /* Bytes that arrived, all of which are then read; -1 without any, 0 at the end. */
    long (*receive)(struct connection *connection, const char **bytes);
    void (*close)(struct connection *connection);
    void (*send_datagram)(const char *bytes, size_t len);
    /* Datagrams that arrived are compared with these; returns how many were equal so far. */
    size_t (*datagrams)(const char *expected, size_t len);
};

extern const struct host FIRST, SECOND;

/* The simulated time, advanced by the driver. */
extern uint64_t now_nanos;

#endif
