/* Addresses and listening sockets. */
#pragma once

#include "base/err.h"
#include "base/str.h"

#include <netinet/in.h>
#include <sys/socket.h>

struct net_addr {
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	};
	socklen_t len;
};

enum { NET_ADDR_TEXT_BYTES = 64 }; /* "[v6]:65535" and its NUL */

/* "127.0.0.1:8080", "[::1]:8080", ":8080" (all IPv4 addresses), "localhost:0". Numeric hosts and
 * "localhost" only: start-up must not wait for a name server. "[::]:8080" takes IPv4 as well. */
int net_addr_parse(struct str text, struct net_addr *ret, struct err *e);

/* A numeric address alone; `ret` is a struct in_addr or in6_addr, by the family. */
bool net_ip_parse(int family, struct str text, void *ret);

struct str net_addr_format(const struct net_addr *a, char out[NET_ADDR_TEXT_BYTES]);
unsigned net_addr_port(const struct net_addr *a);
bool net_addr_is_loopback(const struct net_addr *a);
bool net_addr_is_wildcard(const struct net_addr *a); /* all addresses of its kind */

/* net_listen would silently share a port with another curt of the same user, so a process calls this before
 * its first listener. 0 when nobody listens on the address, ERR_BUSY when somebody does; port 0 is always
 * free. */
int net_port_is_free(const struct net_addr *addr, struct err *e);

/* A non-blocking, close-on-exec listener with SO_REUSEADDR and SO_REUSEPORT. `*addr` comes back with the
 * port that was bound, so that further workers can share a port chosen by the system (":0"). */
int net_listen(struct net_addr *addr, int backlog, int *ret_fd, struct err *e);

/* Lets no new connection begin on a listener: the system drops their first packet, and clients try again.
 * Handshakes that are under way end, and what waits in the queue can be accepted. */
void net_listen_end(int fd);
