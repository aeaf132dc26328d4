/* lwIP as a rival of `benches/tcp` and `benches/udp`: raw API without an operating system, bare IP
 * of both families, TCP with checksums and scaled windows. Of the heap and malloc, the three sums
 * and a sum while copying, the fastest for these rows (measured). FLOODWALL_PCBS: connections that
 * an end has room for; a new one replaces the oldest in TIME-WAIT only where that is full, so it is
 * close to what a row needs. */
#ifndef LWIPOPTS_H
#define LWIPOPTS_H

#define NO_SYS 1
#define SYS_LIGHTWEIGHT_PROT 0
#define LWIP_NETCONN 0
#define LWIP_SOCKET 0
#define LWIP_STATS 0
#define LWIP_NOASSERT 1

#define LWIP_IPV4 1
#define LWIP_IPV6 1
#define LWIP_IPV6_MLD 0
#define LWIP_IPV6_AUTOCONFIG 0
#define LWIP_ARP 0
#define LWIP_ETHERNET 0
#define LWIP_RAW 0
#define LWIP_DHCP 0
#define LWIP_UDP 1
#define LWIP_TCP 1

#define MEM_ALIGNMENT 8
#define MEM_SIZE 16000000
#define MEMP_NUM_TCP_PCB FLOODWALL_PCBS
#define MEMP_NUM_TCP_PCB_LISTEN 8
#define MEMP_NUM_TCP_SEG 16384
#define MEMP_NUM_PBUF 16384
#define PBUF_POOL_SIZE 2048
#define PBUF_POOL_BUFSIZE 1536

#define TCP_MSS 1460
#define LWIP_WND_SCALE 1
#define TCP_RCV_SCALE 3
#define TCP_WND 262144
#define TCP_SND_BUF 262144
#define TCP_SND_QUEUELEN 1024
#define TCP_SNDLOWAT 4096
#define TCP_LISTEN_BACKLOG 1
#define TCP_DEFAULT_LISTEN_BACKLOG 255

#define LWIP_CHKSUM_ALGORITHM 2

#endif
