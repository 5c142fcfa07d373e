/*
 * The client's address behind proxies. Anybody may send X-Forwarded-For, so only what a configured proxy
 * appended counts: the field is read from the right, up to the first address that is not a trusted proxy.
 */
#pragma once

#include "base/err.h"
#include "http/request.h"
#include "os/net.h"

struct proxies; /* networks whose X-Forwarded-For is trusted; immutable */

enum { PROXIES_MAX = 256, FORWARDED_HOPS_MAX = 32 };

/* "10.0.0.0/8, 192.0.2.7, ::1/128, loopback": separated by commas; an empty list trusts nobody. The message of
 * ERR_INVALID names the bad item and the right form. */
int proxies_parse(struct str list, struct proxies **ret, struct err *e);
void proxies_free(struct proxies *p);
bool proxies_trust(const struct proxies *p, const struct net_addr *peer); /* NULL trusts nobody */

/*
 * The client: the peer, or, when that is trusted, the rightmost address of X-Forwarded-For (all
 * fields of that name, in order) that is not trusted itself; the leftmost when all of them are. Entries are
 * "1.2.3.4", "1.2.3.4:567", "::1" or "[::1]:80"; at anything else ("unknown"), and after FORWARDED_HOPS_MAX,
 * the walk ends and the last good address stands. IPv4 in IPv6 (::ffff:1.2.3.4) is IPv4, the peer's too.
 * Never allocates.
 */
void http_client_address(const struct proxies *p, const struct net_addr *peer, const struct http_request *req,
                         struct net_addr *ret);

/* Whether there seems to be a proxy that is not configured: the field is there, the peer is on this machine
 * or in a private network, and the list trusts nobody. */
bool http_forwarded_is_lost(const struct proxies *p, const struct net_addr *peer,
                            const struct http_request *req);
