/*
 * The one validator of target URLs, for the API, bulk and import alike. Takes what people paste, gives what
 * is safe to put in a Location field: canonical and percent-encoded, the host as an A-label.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "store/record.h"

/* What is this server itself: a link must not point at another short link. Hosts and authorities are in
 * canonical form. */
struct url_rules {
	struct str own; /* the authority that short links begin with ("s.example"); STR_NULL: none */

	/* The port that it listens on (0: none), and the hosts that reach it there: these, and every spelling
	 * of "this machine" when `loopback` is set. */
	uint16_t port;
	bool loopback;
	const struct str *hosts;
	size_t host_count;
};

/*
 * Appends the canonical form to `out`. ERR_INVALID with a sentence that names the problem and the fix when:
 * not http or https; no host; control characters or white space inside; over URL_BYTES_MAX (before or after);
 * user info (user:pass@) is present; the host is not a valid name, IPv4 or bracketed IPv6 address; the port
 * is not 1 to 65535; a malformed % escape; invalid UTF-8; points back at this server. On failure `out` is
 * unchanged.
 *
 * Canonical: scheme and host in lower case, IDN to A-labels (IDNA 2008), a trailing dot of the host dropped,
 * default port dropped, an empty path is "/", dot segments removed, bytes that must not stand in a URL
 * percent-encoded as UTF-8, hex digits of escapes in upper case, escaped unreserved characters decoded. Query
 * and fragment are kept.
 */
int url_canonicalize(struct str in, const struct url_rules *rules, struct buf *out, struct err *e);
