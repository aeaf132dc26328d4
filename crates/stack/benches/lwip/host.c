/* `host.h` by lwIP's raw API. Compiled once for each end, with HOST as the name of its functions. */
#include "host.h"

#include <string.h>

#include "lwip/init.h"
#include "lwip/ip.h"
#include "lwip/netif.h"
#include "lwip/pbuf.h"
#include "lwip/tcp.h"
#include "lwip/timeouts.h"
#include "lwip/udp.h"

enum { PORT = 7000, INBOX = 65536 };

struct connection {
    struct tcp_pcb *pcb;
    size_t arrived;
    int ended;
    struct connection *next;
    char bytes[];
};

static struct netif netif;
static const struct host *peer;
static int v6, number;
static size_t buffer;
static struct connection *spare, *accepted, **accepted_last = &accepted;
static struct pbuf *inbox[INBOX];
static size_t inbox_first, inbox_len;
static struct udp_pcb *udp;
static const char *expected;
static size_t expected_len, equal;

u32_t sys_now(void) { return (u32_t)(now_nanos / 1000000); }

static void refuse(const char *what) {
    fprintf(stderr, "lwIP, host %d: %s\n", number, what);
    exit(1);
}

static ip_addr_t address(int of) {
    ip_addr_t addr;
    if (v6) {
        IP_ADDR6(&addr, PP_HTONL(0xfd000000), 0, 0, lwip_htonl((u32_t)of));
    } else {
        IP_ADDR4(&addr, 10, 0, 0, of);
    }
    return addr;
}

static err_t depart(struct pbuf *packet) {
    peer->take(packet);
    return ERR_OK;
}

static err_t depart_v4(struct netif *at, struct pbuf *packet, const ip4_addr_t *to) {
    (void)at, (void)to;
    return depart(packet);
}

static err_t depart_v6(struct netif *at, struct pbuf *packet, const ip6_addr_t *to) {
    (void)at, (void)to;
    return depart(packet);
}

static err_t set_up(struct netif *at) {
    at->name[0] = 'w';
    at->name[1] = 'i';
    at->mtu = 1500;
    at->output = depart_v4;
    at->output_ip6 = depart_v6;
    return ERR_OK;
}

static void failed(void *connection, err_t error) {
    (void)connection, (void)error;
    refuse("a connection was reset");
}

static err_t received(void *argument, struct tcp_pcb *pcb, struct pbuf *packet, err_t error) {
    struct connection *connection = argument;
    (void)pcb, (void)error;
    if (packet == NULL) {
        connection->ended = 1;
        return ERR_OK;
    }
    if (connection->arrived + packet->tot_len > buffer) {
        refuse("more arrived than the window allows");
    }
    char *to = connection->bytes + connection->arrived;
    connection->arrived += pbuf_copy_partial(packet, to, packet->tot_len, 0);
    pbuf_free(packet);
    return ERR_OK;
}

static struct connection *connection_of(struct tcp_pcb *pcb) {
    struct connection *connection = spare;
    if (connection != NULL) {
        spare = connection->next;
    } else {
        connection = malloc(sizeof *connection + buffer);
    }
    *connection = (struct connection) { .pcb = pcb };
    tcp_arg(pcb, connection);
    tcp_recv(pcb, received);
    tcp_err(pcb, failed);
    tcp_nagle_disable(pcb);
    return connection;
}

static err_t opened(void *argument, struct tcp_pcb *pcb, err_t error) {
    (void)argument;
    if (error != ERR_OK || pcb == NULL) {
        refuse("a connection was not accepted");
    }
    struct connection *connection = connection_of(pcb);
    *accepted_last = connection;
    accepted_last = &connection->next;
    return ERR_OK;
}

static err_t established(void *argument, struct tcp_pcb *pcb, err_t error) {
    (void)argument, (void)pcb;
    return error;
}

static void datagram(void *argument, struct udp_pcb *pcb, struct pbuf *packet,
                     const ip_addr_t *from, u16_t port) {
    char bytes[2048];
    (void)argument, (void)pcb, (void)from, (void)port;
    size_t len = pbuf_copy_partial(packet, bytes, sizeof bytes, 0);
    int same = len == expected_len && bytes[0] == (char)equal
        && memcmp(bytes + 1, expected + 1, len - 1) == 0;
    equal += same;
    pbuf_free(packet);
}

static void host_start(int of, int family, size_t bytes, const struct host *other) {
    number = of, v6 = family, buffer = bytes, peer = other;
    lwip_init();
    ip4_addr_t addr, mask, gateway;
    IP4_ADDR(&addr, 10, 0, 0, of);
    IP4_ADDR(&mask, 255, 255, 255, 0);
    IP4_ADDR(&gateway, 0, 0, 0, 0);
    netif_add(&netif, &addr, &mask, &gateway, NULL, set_up, ip_input);
    netif_set_default(&netif);
    netif_set_up(&netif);
    netif_set_link_up(&netif);
    if (v6) {
        ip_addr_t own = address(of);
        netif_ip6_addr_set(&netif, 0, ip_2_ip6(&own));
        netif_ip6_addr_set_state(&netif, 0, IP6_ADDR_PREFERRED);
    }
    struct tcp_pcb *listener = tcp_new_ip_type(v6 ? IPADDR_TYPE_V6 : IPADDR_TYPE_V4);
    if (tcp_bind(listener, v6 ? IP6_ADDR_ANY : IP4_ADDR_ANY, PORT) != ERR_OK) {
        refuse("the port is taken");
    }
    tcp_accept(tcp_listen_with_backlog(listener, 255), opened);
    udp = udp_new_ip_type(v6 ? IPADDR_TYPE_V6 : IPADDR_TYPE_V4);
    udp_bind(udp, v6 ? IP6_ADDR_ANY : IP4_ADDR_ANY, PORT);
    udp_recv(udp, datagram, NULL);
    ip_addr_t to = address(3 - number);
    udp_connect(udp, &to, PORT);
}

static void host_take(const struct pbuf *packet) {
    struct pbuf *own = pbuf_alloc(PBUF_RAW, packet->tot_len, PBUF_POOL);
    if (own == NULL || inbox_len == INBOX) {
        refuse("no memory for a packet");
    }
    pbuf_copy_partial(packet, own->payload, packet->tot_len, 0);
    inbox[(inbox_first + inbox_len++) % INBOX] = own;
}

static void host_run(void) {
    while (inbox_len > 0) {
        struct pbuf *packet = inbox[inbox_first % INBOX];
        inbox_first = (inbox_first + 1) % INBOX;
        inbox_len -= 1;
        if (netif.input(packet, &netif) != ERR_OK) {
            refuse("a packet was refused");
        }
    }
    sys_check_timeouts();
}

static struct connection *host_connect(uint16_t port) {
    struct tcp_pcb *pcb = tcp_new_ip_type(v6 ? IPADDR_TYPE_V6 : IPADDR_TYPE_V4);
    ip_addr_t to = address(3 - number);
    if (pcb == NULL) {
        refuse("no memory for a connection");
    }
    struct connection *connection = connection_of(pcb);
    if (tcp_connect(pcb, &to, port, established) != ERR_OK) {
        refuse("connect");
    }
    return connection;
}

static struct connection *host_accept(void) {
    struct connection *first = accepted;
    if (first != NULL) {
        accepted = first->next;
        accepted_last = accepted == NULL ? &accepted : accepted_last;
    }
    return first;
}

static size_t host_send(struct connection *connection, const char *bytes, size_t len) {
    size_t sent = 0;
    while (sent < len) {
        size_t some = len - sent, room = tcp_sndbuf(connection->pcb);
        some = some < room ? some : room;
        some = some < 32768 ? some : 32768;
        if (some == 0
            || tcp_write(connection->pcb, bytes + sent, (u16_t)some, TCP_WRITE_FLAG_COPY) != ERR_OK) {
            break;
        }
        sent += some;
    }
    tcp_output(connection->pcb);
    return sent;
}

static long host_receive(struct connection *connection, const char **bytes) {
    size_t arrived = connection->arrived;
    if (arrived == 0) {
        return connection->ended ? 0 : -1;
    }
    *bytes = connection->bytes;
    connection->arrived = 0;
    for (size_t left = arrived; left > 0;) {
        u16_t some = (u16_t)(left < 32768 ? left : 32768);
        tcp_recved(connection->pcb, some);
        left -= some;
    }
    return (long)arrived;
}

static void host_close(struct connection *connection) {
    struct tcp_pcb *pcb = connection->pcb;
    tcp_arg(pcb, NULL);
    tcp_recv(pcb, NULL);
    tcp_err(pcb, NULL);
    if (tcp_close(pcb) != ERR_OK) {
        refuse("close");
    }
    connection->next = spare;
    spare = connection;
}

static void host_send_datagram(const char *bytes, size_t len) {
    struct pbuf *packet = pbuf_alloc(PBUF_TRANSPORT, (u16_t)len, PBUF_RAM);
    if (packet == NULL) {
        refuse("no memory for a datagram");
    }
    pbuf_take(packet, bytes, (u16_t)len);
    if (udp_send(udp, packet) != ERR_OK) {
        refuse("send");
    }
    pbuf_free(packet);
}

static size_t host_datagrams(const char *bytes, size_t len) {
    size_t before = equal;
    equal = 0, expected = bytes, expected_len = len;
    return before;
}

const struct host HOST = {
    .start = host_start,
    .take = host_take,
    .run = host_run,
    .connect = host_connect,
    .accept = host_accept,
    .send = host_send,
    .receive = host_receive,
    .close = host_close,
    .send_datagram = host_send_datagram,
    .datagrams = host_datagrams,
};
