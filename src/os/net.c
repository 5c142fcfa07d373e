#include "os/net.h"

#include "base/utf8.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <stdio.h>
#include <unistd.h>

enum { TEXT_BYTES_SHOWN = 80 };

static int bad_form(struct str text, struct err *e)
{
	text = utf8_prefix(text, TEXT_BYTES_SHOWN);
	return err_set(
	    e, ERR_INVALID,
	    "'%.*s' is not an address of the form HOST:PORT, such as 127.0.0.1:8080, [::1]:8080 or "
	    ":8080 for all IPv4 addresses",
	    (int)text.len, text.ptr ? text.ptr : "");
}

bool net_ip_parse(int family, struct str text, void *ret)
{
	char copy[INET6_ADDRSTRLEN];
	if (text.len == 0 || text.len >= sizeof(copy) || memchr(text.ptr, '\0', text.len))
		return false;
	memcpy(copy, text.ptr, text.len);
	copy[text.len] = '\0';
	return inet_pton(family, copy, ret) == 1;
}

static int parse_v6(struct str host, uint16_t port, struct net_addr *ret)
{
	struct net_addr a = {.v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)}, .len = sizeof(a.v6)};
	if (!net_ip_parse(AF_INET6, host, &a.v6.sin6_addr))
		return ERR_INVALID;
	*ret = a;
	return 0;
}

static int parse_v4(struct str host, uint16_t port, struct net_addr *ret)
{
	struct net_addr a = {.v4 = {.sin_family = AF_INET, .sin_port = htons(port)}, .len = sizeof(a.v4)};
	if (str_eq_nocase(host, STR("localhost")))
		host = STR("127.0.0.1");
	if (host.len > 0 && !net_ip_parse(AF_INET, host, &a.v4.sin_addr))
		return ERR_INVALID;
	*ret = a; /* without a host: all addresses */
	return 0;
}

int net_addr_parse(struct str text, struct net_addr *ret, struct err *e)
{
	const char *colon = text.len ? memrchr(text.ptr, ':', text.len) : NULL;
	const struct str shown = utf8_prefix(text, TEXT_BYTES_SHOWN);
	if (!colon)
		return bad_form(text, e);
	struct str host = str_n(text.ptr, (size_t)(colon - text.ptr));
	struct str port_text = str_n(colon + 1, text.len - host.len - 1);
	uint64_t port;
	if (!str_u64(port_text, &port))
		return bad_form(text, e);
	if (port > UINT16_MAX)
		return err_set(e, ERR_INVALID, "the port in '%.*s' is beyond 65535", STR_ARG(shown));
	if (str_starts(host, STR("[")) && str_ends(host, STR("]"))) {
		struct str inner = str_n(host.ptr + 1, host.len - 2);
		return parse_v6(inner, (uint16_t)port, ret) < 0 ? bad_form(text, e) : 0;
	}
	if (memchr(host.ptr, ':', host.len))
		return err_set(e, ERR_INVALID,
		               "'%.*s': write an IPv6 address in brackets, such as [::1]:8080",
		               STR_ARG(shown));
	if (parse_v4(host, (uint16_t)port, ret) < 0)
		return err_set(e, ERR_INVALID,
		               "'%.*s' is not a numeric address: give one of the form HOST:PORT, such as "
		               "127.0.0.1:8080 (the only name allowed is localhost)",
		               STR_ARG(shown));
	return 0;
}

struct str net_addr_format(const struct net_addr *a, char out[NET_ADDR_TEXT_BYTES])
{
	char host[INET6_ADDRSTRLEN] = "";
	int len;
	if (a->any.sa_family == AF_INET6) {
		inet_ntop(AF_INET6, &a->v6.sin6_addr, host, sizeof(host));
		len = snprintf(out, NET_ADDR_TEXT_BYTES, "[%s]:%u", host, ntohs(a->v6.sin6_port));
	} else {
		inet_ntop(AF_INET, &a->v4.sin_addr, host, sizeof(host));
		len = snprintf(out, NET_ADDR_TEXT_BYTES, "%s:%u", host, ntohs(a->v4.sin_port));
	}
	return str_n(out, (size_t)len);
}

bool net_addr_is_wildcard(const struct net_addr *a)
{
	return a->any.sa_family == AF_INET ? a->v4.sin_addr.s_addr == htonl(INADDR_ANY)
	                                   : IN6_IS_ADDR_UNSPECIFIED(&a->v6.sin6_addr);
}

bool net_addr_is_loopback(const struct net_addr *a)
{
	if (a->any.sa_family == AF_INET)
		return ntohl(a->v4.sin_addr.s_addr) >> 24 == 127;
	if (a->any.sa_family != AF_INET6)
		return false;
	const struct in6_addr *ip = &a->v6.sin6_addr;
	return IN6_IS_ADDR_LOOPBACK(ip) || (IN6_IS_ADDR_V4MAPPED(ip) && ip->s6_addr[12] == 127);
}

unsigned net_addr_port(const struct net_addr *a)
{
	return ntohs(a->any.sa_family == AF_INET6 ? a->v6.sin6_port : a->v4.sin_port);
}

static int fail(struct err *e, int error, const struct net_addr *a)
{
	char text[NET_ADDR_TEXT_BYTES];
	net_addr_format(a, text);
	switch (error) {
	case EADDRINUSE:
		return err_set(e, ERR_BUSY,
		               "cannot listen on %s: the address is already in use; another process listens "
		               "there: stop it or choose another address with --listen",
		               text);
	case EACCES:
	case EPERM:
		return err_set(e, ERR_UNAVAILABLE,
		               "cannot listen on %s: permission denied; ports below 1024 need root or "
		               "CAP_NET_BIND_SERVICE: choose a higher one with --listen",
		               text);
	case EADDRNOTAVAIL:
		return err_set(e, ERR_INVALID,
		               "cannot listen on %s: this machine has no such address; choose another with "
		               "--listen",
		               text);
	default: return err_set(e, ERR_UNAVAILABLE, "cannot listen on %s: %s", text, strerrordesc_np(error));
	}
}

/* A TCP socket bound to `a`; a negative errno on failure. */
static int bound_socket(const struct net_addr *a, bool shared)
{
	int on = 1, off = 0;
	int fd = socket(a->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	/* "[::]" takes IPv4 as well, whatever the system's default says. */
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
	    (shared && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) < 0) ||
	    (a->any.sa_family == AF_INET6 &&
	     setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) < 0) ||
	    bind(fd, &a->any, a->len) < 0) {
		int error = errno;
		close(fd);
		return -error;
	}
	return fd;
}

int net_port_is_free(const struct net_addr *addr, struct err *e)
{
	if (net_addr_port(addr) == 0)
		return 0;
	int fd = bound_socket(addr, false);
	if (fd < 0)
		return fail(e, -fd, addr);
	close(fd);
	return 0;
}

int net_listen(struct net_addr *addr, int backlog, int *ret_fd, struct err *e)
{
	int fd = bound_socket(addr, true);
	if (fd < 0)
		return fail(e, -fd, addr);
	struct net_addr bound = {.len = sizeof(bound.v6)};
	if (listen(fd, backlog) < 0 || getsockname(fd, &bound.any, &bound.len) < 0) {
		int error = errno;
		close(fd);
		return fail(e, error, addr);
	}
	*addr = bound;
	*ret_fd = fd;
	return 0;
}

void net_listen_end(int fd)
{
	enum { TCP_FLAGS_AT = 13, TCP_SYN = 2 };
	struct sock_filter drop_syn[] = {
	    BPF_STMT(BPF_LD | BPF_B | BPF_ABS, TCP_FLAGS_AT), /* from the TCP header on */
	    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, TCP_SYN, 0, 1),
	    BPF_STMT(BPF_RET | BPF_K, 0),
	    BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
	};
	const struct sock_fprog program = {ARRAY_LEN(drop_syn), drop_syn};
	/* If the system has no filters, a connection that begins now may be reset when the listener closes. */
	setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}
