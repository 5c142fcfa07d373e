#include "server/identity.h"

#include <arpa/inet.h>
#include <ifaddrs.h>

/* As a URL's host: IPv6 in brackets. */
static struct str host_text(struct arena *arena, const struct sockaddr *a)
{
	char text[INET6_ADDRSTRLEN];
	if (a->sa_family == AF_INET) {
		inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)a)->sin_addr, text,
		          sizeof(text));
		return arena_str(arena, str_of(text));
	}
	inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr, text, sizeof(text));
	return arena_printf(arena, "[%s]", text);
}

static void add_host(struct identity *id, const struct sockaddr *a)
{
	struct str host = host_text(&id->arena, a);
	if (host.ptr && id->rules.host_count < IDENTITY_HOSTS_MAX)
		id->hosts[id->rules.host_count++] = host;
}

/* All addresses of this machine, as they are at the start. */
static void add_interfaces(struct identity *id)
{
	struct ifaddrs *list;
	if (getifaddrs(&list) != 0)
		return;
	for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
		if (i->ifa_addr && (i->ifa_addr->sa_family == AF_INET || i->ifa_addr->sa_family == AF_INET6))
			add_host(id, i->ifa_addr);
	}
	freeifaddrs(list);
}

static int base_url_take(struct identity *id, struct str text, struct err *e)
{
	const struct url_rules none = {0};
	struct buf CLEANUP(buf_release) canonical = {0};
	struct err why;
	int r = url_canonicalize(text, &none, &canonical, &why);
	if (r < 0)
		return err_set(e, r, "serve.base_url = %.*s: %s", STR_ARG(text), why.text);
	struct str url = arena_str(&id->arena, buf_view(&canonical));
	if (!url.ptr)
		return err_set(e, ERR_NOMEM, "out of memory");
	size_t authority_at = (size_t)(strstr(url.ptr, "://") - url.ptr) + 3;
	if (strchr(url.ptr + authority_at, '/') != url.ptr + url.len - 1)
		return err_set(
		    e, ERR_INVALID,
		    "serve.base_url = %.*s must end after the host and port, since keys follow its "
		    "slash; remove the path",
		    STR_ARG(text));
	id->base_url = str_n(url.ptr, url.len - 1);
	id->domain = str_n(url.ptr + authority_at, url.len - 1 - authority_at);
	return 0;
}

int identity_init(struct identity *id, const char *setting, const struct net_addr *addr, struct err *e)
{
	*id = (struct identity){0};
	bool everywhere = net_addr_is_wildcard(addr);
	struct str host = everywhere ? STR("localhost") : host_text(&id->arena, &addr->any);
	struct str text = str_of(setting);
	if (text.len == 0)
		text = arena_printf(&id->arena, "http://%.*s:%u", STR_ARG(host), net_addr_port(addr));
	int r = base_url_take(id, text, e);
	if (r < 0)
		return r;
	id->rules = (struct url_rules){
	    .own = id->domain,
	    .port = (uint16_t)net_addr_port(addr),
	    .loopback = everywhere || net_addr_is_loopback(addr),
	    .hosts = id->hosts,
	};
	if (everywhere)
		add_interfaces(id);
	else
		add_host(id, &addr->any);
	return 0;
}

void identity_release(struct identity *id)
{
	arena_release(&id->arena);
}
