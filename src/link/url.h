/*
 * The one validator of target URLs. It follows the WHATWG URL Standard for absolute http and https URLs: what
 * a browser's address bar takes is taken, and the result is the standard's serialisation, byte for byte.
 *
 * Refused by policy, though the standard takes them: user names and passwords, control characters other than
 * the tabs and line breaks that the standard removes, URLs of this server, and more than URL_BYTES_MAX bytes.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "store/record.h"

/* What this server is: a link must not point at another short link. Hosts and authorities are serialised. */
struct url_rules {
	struct str own; /* the authority that short links begin with ("s.example"); STR_NULL: none */

	/* The port that it listens on (0: none), and the hosts that reach it there: these, and every name of
	 * this machine when `loopback` is set. */
	uint16_t port;
	bool loopback;
	const struct str *hosts;
	size_t host_count;
};

/* Appends the serialised URL to `out`. ERR_INVALID with a sentence that names the problem and the fix;
 * ERR_NOMEM. On failure `out` is unchanged. A serialised URL gives itself. */
int url_canonicalize(struct str in, const struct url_rules *rules, struct buf *out, struct err *e);
