/*
 * The host of a URL, by the WHATWG URL Standard: percent-decoded and mapped by UTS #46, then a name, an IPv4 or
 * an IPv6 address. For link/url.c only.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "store/record.h"

enum { HOST_BYTES_MAX = 4 * URL_BYTES_MAX };

struct url_host {
	enum { HOST_NAME, HOST_IPV4, HOST_IPV6 } kind;
	uint32_t ipv4;
	uint16_t ipv6[8];
	struct str name; /* lower case, ASCII, in `text` */
	char text[HOST_BYTES_MAX];
};

/* `in` has at most URL_BYTES_MAX bytes. ERR_INVALID with a sentence; ERR_NOMEM. */
int url_host_parse(struct str in, struct url_host *ret, struct err *e);
void url_host_write(struct buf *out, const struct url_host *host);

/* Loopback and unspecified addresses, and the names of this machine. A trailing dot names the same host. */
bool url_host_is_this_machine(const struct url_host *host);
