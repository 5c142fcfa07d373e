#include "http/forwarded.h"

#include "base/utf8.h"

#include <arpa/inet.h>
#include <stdlib.h>

enum { V4_BYTES = 4, V6_BYTES = 16 };

/* An address without its port. IPv4 in IPv6 is always unwrapped, so that each address has one form. */
struct ip {
	uint8_t bytes[V6_BYTES];
	uint8_t len; /* V4_BYTES or V6_BYTES; 0: neither */
};

struct network {
	struct ip ip; /* nothing is set behind the prefix */
	unsigned bits;
};

struct proxies {
	size_t count;
	struct network networks[PROXIES_MAX];
};

static struct ip ip_of_v6(const struct in6_addr *v6)
{
	struct ip ip = {.len = V6_BYTES};
	if (IN6_IS_ADDR_V4MAPPED(v6)) {
		ip.len = V4_BYTES;
		memcpy(ip.bytes, v6->s6_addr + V6_BYTES - V4_BYTES, V4_BYTES);
	} else {
		memcpy(ip.bytes, v6->s6_addr, V6_BYTES);
	}
	return ip;
}

static struct ip ip_of(const struct net_addr *a)
{
	struct ip ip = {.len = 0};
	if (a->any.sa_family == AF_INET6)
		return ip_of_v6(&a->v6.sin6_addr);
	if (a->any.sa_family == AF_INET) {
		ip.len = V4_BYTES;
		memcpy(ip.bytes, &a->v4.sin_addr, V4_BYTES);
	}
	return ip;
}

/* The address in plain digits, without brackets and port. */
static bool ip_parse(struct str text, struct ip *ret)
{
	struct in6_addr v6;
	*ret = (struct ip){.len = V4_BYTES};
	if (net_ip_parse(AF_INET, text, ret->bytes))
		return true;
	if (!net_ip_parse(AF_INET6, text, &v6))
		return false;
	*ret = ip_of_v6(&v6);
	return true;
}

static void ip_format(const struct ip *ip, char out[INET6_ADDRSTRLEN])
{
	inet_ntop(ip->len == V4_BYTES ? AF_INET : AF_INET6, ip->bytes, out, INET6_ADDRSTRLEN);
}

static void ip_mask(struct ip *ip, unsigned bits)
{
	for (unsigned i = 0; i < ip->len; i++, bits -= MIN(bits, 8))
		ip->bytes[i] &= (uint8_t)(0xff00 >> MIN(bits, 8));
}

static bool network_has(const struct network *n, const struct ip *ip)
{
	if (n->ip.len != ip->len)
		return false;
	struct ip masked = *ip;
	ip_mask(&masked, n->bits);
	return memcmp(masked.bytes, n->ip.bytes, ip->len) == 0;
}

static bool networks_have(const struct network *networks, size_t count, const struct ip *ip)
{
	for (size_t i = 0; i < count; i++) {
		if (network_has(&networks[i], ip))
			return true;
	}
	return false;
}

/* The list of proxies */

static int add(struct proxies *p, struct ip ip, unsigned bits, struct err *e)
{
	if (p->count == PROXIES_MAX)
		return err_set(e, ERR_INVALID, "more than %d proxies: name their networks instead",
		               PROXIES_MAX);
	p->networks[p->count++] = (struct network){.ip = ip, .bits = bits};
	return 0;
}

static int bad_item(struct str item, struct err *e)
{
	struct echo shown;
	return err_set(e, ERR_INVALID,
	               "'%s' is not a proxy: write an address such as 192.0.2.7 or ::1, a network such as "
	               "10.0.0.0/8 or fd00::/8, or loopback",
	               echo(&shown, item));
}

/* Behind the slash: how many bits of the address count. */
static bool bits_parse(struct str text, bool is_mapped, const struct ip *ip, unsigned *ret)
{
	unsigned extra = is_mapped ? 8 * (V6_BYTES - V4_BYTES) : 0;
	uint64_t bits;
	if (text.len > 3 || !str_u64(text, &bits) || bits < extra || bits > extra + 8U * ip->len)
		return false;
	*ret = (unsigned)bits - extra;
	return true;
}

static int add_item(struct proxies *p, struct str item, struct err *e)
{
	struct str bits_text = item;
	struct str address = str_cut(&bits_text, '/');
	struct ip ip;
	if (str_eq_nocase(item, STR("loopback")))
		return add(p, (struct ip){.bytes = {127}, .len = V4_BYTES}, 8, e)
		           ?: add(p, (struct ip){.bytes = {[15] = 1}, .len = V6_BYTES}, 8 * V6_BYTES, e);
	if (!ip_parse(address, &ip))
		return bad_item(item, e);
	bool is_mapped = ip.len == V4_BYTES && memchr(address.ptr, ':', address.len);
	unsigned bits = 8U * ip.len;
	if (bits_text.ptr && !bits_parse(bits_text, is_mapped, &ip, &bits))
		return bad_item(item, e);
	struct ip masked = ip;
	ip_mask(&masked, bits);
	if (memcmp(masked.bytes, ip.bytes, ip.len) != 0) { /* which of the two was meant? */
		char network[INET6_ADDRSTRLEN], host[INET6_ADDRSTRLEN];
		struct echo shown;
		ip_format(&masked, network);
		ip_format(&ip, host);
		return err_set(e, ERR_INVALID,
		               "'%s' is not a network: write %s/%u, or %s for that address alone",
		               echo(&shown, item), network, bits, host);
	}
	return add(p, ip, bits, e);
}

int proxies_parse(struct str list, struct proxies **ret, struct err *e)
{
	struct proxies *p = calloc(1, sizeof(*p));
	if (!p)
		return err_set(e, ERR_NOMEM, "out of memory");
	struct str rest = str_trim(list);
	int r = 0;
	while (r == 0 && rest.len > 0) {
		struct str item = str_trim(str_cut(&rest, ','));
		r = add_item(p, item, e);
		if (r == 0 && rest.ptr && rest.len == 0)
			r = bad_item(STR(""), e); /* a comma at the end */
	}
	if (r != 0) {
		free(p);
		return r;
	}
	*ret = p;
	return 0;
}

void proxies_free(struct proxies *p)
{
	free(p);
}

bool proxies_trust(const struct proxies *p, const struct net_addr *peer)
{
	if (!p || p->count == 0)
		return false;
	struct ip ip = ip_of(peer);
	return networks_have(p->networks, p->count, &ip);
}

/* X-Forwarded-For */

static bool port_parse(struct str text, uint16_t *ret)
{
	uint64_t port;
	if (text.len > 5 || !str_u64(text, &port) || port > UINT16_MAX)
		return false;
	*ret = (uint16_t)port;
	return true;
}

/* Cuts a port from the end of an entry, and the brackets that it needs around IPv6. */
static bool port_cut(struct str *entry, uint16_t *ret_port)
{
	*ret_port = 0;
	if (str_starts(*entry, STR("["))) {
		struct str rest = str_n(entry->ptr + 1, entry->len - 1);
		*entry = str_cut(&rest, ']');
		if (!rest.ptr || !memchr(entry->ptr, ':', entry->len))
			return false; /* nothing closes it, or it is no IPv6 */
		return rest.len == 0 ||
		       (rest.ptr[0] == ':' && port_parse(str_n(rest.ptr + 1, rest.len - 1), ret_port));
	}
	const char *colon = entry->len ? memchr(entry->ptr, ':', entry->len) : NULL;
	const char *last = entry->len ? memrchr(entry->ptr, ':', entry->len) : NULL;
	if (!colon || colon != last)
		return true; /* no port, or IPv6 */
	struct str port = str_n(colon + 1, entry->len - (size_t)(colon + 1 - entry->ptr));
	entry->len = (size_t)(colon - entry->ptr);
	return port_parse(port, ret_port);
}

static struct net_addr addr_of(const struct ip *ip, uint16_t port)
{
	struct net_addr a = {.len = 0};
	if (ip->len == V4_BYTES) {
		a.len = sizeof(a.v4);
		a.v4.sin_family = AF_INET;
		a.v4.sin_port = htons(port);
		memcpy(&a.v4.sin_addr, ip->bytes, V4_BYTES);
	} else {
		a.len = sizeof(a.v6);
		a.v6.sin6_family = AF_INET6;
		a.v6.sin6_port = htons(port);
		memcpy(&a.v6.sin6_addr, ip->bytes, V6_BYTES);
	}
	return a;
}

/* Takes the last entry off a list; what is left of it has a NULL pointer when that was the only one. */
static struct str entry_cut(struct str *list)
{
	const char *comma = list->len ? memrchr(list->ptr, ',', list->len) : NULL;
	struct str entry = *list;
	if (comma) {
		size_t before = (size_t)(comma - list->ptr);
		entry = str_n(comma + 1, list->len - before - 1);
		list->len = before;
	} else {
		*list = STR_NULL;
	}
	return str_trim(entry);
}

/* Follows one field from the right. True when the walk goes on in the field before it. */
static bool walk(const struct proxies *p, struct str list, unsigned *hops, struct net_addr *ret)
{
	do {
		struct ip ip;
		uint16_t port;
		struct str entry = entry_cut(&list);
		if (++*hops > FORWARDED_HOPS_MAX || !port_cut(&entry, &port) || !ip_parse(entry, &ip))
			return false;
		*ret = addr_of(&ip, port);
		if (!networks_have(p->networks, p->count, &ip))
			return false;
	} while (list.ptr);
	return true;
}

void http_client_address(const struct proxies *p, const struct net_addr *peer, const struct http_request *req,
                         struct net_addr *ret)
{
	*ret = *peer;
	/* A listener on [::] sees all IPv4 clients so. */
	if (UNLIKELY(peer->any.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&peer->v6.sin6_addr))) {
		struct ip ip = ip_of(peer);
		*ret = addr_of(&ip, net_addr_port(peer));
	}
	if (LIKELY(!p || p->count == 0) || !proxies_trust(p, peer))
		return;
	unsigned hops = 0;
	for (size_t i = req->field_count; i > 0; i--) {
		const struct http_field *f = &req->fields[i - 1];
		if (str_eq_nocase(f->name, STR("x-forwarded-for")) && !walk(p, f->value, &hops, ret))
			return;
	}
}

/* A proxy that is not configured */

/* Loopback, and the private networks of RFC 1918 and RFC 4193. */
static const struct network nearby[] = {
    {{.bytes = {127}, .len = V4_BYTES}, 8},        {{.bytes = {10}, .len = V4_BYTES}, 8},
    {{.bytes = {172, 16}, .len = V4_BYTES}, 12},   {{.bytes = {192, 168}, .len = V4_BYTES}, 16},
    {{.bytes = {[15] = 1}, .len = V6_BYTES}, 128}, {{.bytes = {0xfc}, .len = V6_BYTES}, 7},
};

bool http_forwarded_is_lost(const struct proxies *p, const struct net_addr *peer,
                            const struct http_request *req)
{
	struct ip ip = ip_of(peer);
	if ((p && p->count > 0) || !networks_have(nearby, ARRAY_LEN(nearby), &ip))
		return false;
	for (size_t i = 0; i < req->field_count; i++) {
		if (str_eq_nocase(req->fields[i].name, STR("x-forwarded-for")))
			return true;
	}
	return false;
}
