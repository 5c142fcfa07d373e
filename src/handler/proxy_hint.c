#include "handler/proxy_hint.h"

#include "http/forwarded.h"
#include "obs/log.h"

#include <stdatomic.h>

void proxy_hint(const struct api_worker *w, const struct http_conn *c, const struct http_request *req)
{
	static _Atomic bool warned; /* relaxed: it guards nothing but itself */
	const struct net_addr *peer = http_conn_peer(c);
	if (LIKELY(atomic_load_explicit(&warned, memory_order_relaxed)) ||
	    !http_forwarded_is_lost(w->api->proxies, peer, req) ||
	    atomic_exchange_explicit(&warned, true, memory_order_relaxed))
		return;
	char text[NET_ADDR_TEXT_BYTES];
	net_addr_format(peer, text);
	log_warn(
	    "api",
	    "requests come through a proxy (X-Forwarded-For) that is not trusted: limits count the proxy as "
	    "one visitor; add it to serve.trusted_proxies proxy=%s",
	    text);
}
