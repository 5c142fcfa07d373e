/* Validates target URLs for the API, bulk and import. Takes what people paste; returns what is safe in a
 * Location header: canonical, percent-encoded, the host as an A-label. */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "store/record.h"

/* What identifies this server: a link must not point to another short link. Hosts and authorities are
 * canonical. */
struct url_rules {
	struct str own; /* authority of short links ("s.example"); STR_NULL: none */

	/* The port that the server listens on (0: none), and the hosts that reach it there: these, and all
	 * names of the local machine if `loopback` is set. */
	uint16_t port;
	bool loopback;
	const struct str *hosts;
	size_t host_count;
};

/*
 * Appends the canonical form to `out`. On failure `out` is unchanged, and it returns ERR_INVALID with a
 * sentence that names the problem and the fix:
 *
 *	not http or https; no host; user info (user:pass@)
 *	control characters or white space inside; a malformed % escape; invalid UTF-8
 *	longer than URL_BYTES_MAX, before or after
 *	the host is no valid name, IPv4 or bracketed IPv6 address; the port is not 1 to 65535
 *	it points back to this server
 *
 * Canonical means: scheme and host in lower case, IDN as A-labels (IDNA 2008), no trailing dot of the host,
 * no default port, "/" for an empty path, no dot segments, invalid bytes percent-encoded as UTF-8, hex
 * digits of escapes in upper case, no escaped unreserved characters. Query and fragment are kept.
 */
int url_canonicalize(struct str in, const struct url_rules *rules, struct buf *out, struct err *e);
