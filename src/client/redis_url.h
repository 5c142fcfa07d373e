/* The parts of a redis:// or redis+sentinel:// URL (client/redis.h describes them). User, password and
 * names may be percent-encoded. Errors repeat no byte of the URL: it may contain a misplaced password. */
#pragma once

#include "base/arena.h"
#include "base/err.h"

enum { REDIS_HOSTS_MAX = 16, REDIS_PORT = 6379, REDIS_SENTINEL_PORT = 26379 };

struct redis_host {
	char *host; /* a name or an address, without brackets */
	uint16_t port;
};

struct redis_url {
	struct arena arena; /* holds all texts */
	bool is_sentinel;   /* the hosts are sentinels; otherwise there is one host, the server */
	size_t host_count;
	struct redis_host hosts[REDIS_HOSTS_MAX];
	struct str user;     /* STR_NULL: none */
	struct str password; /* STR_NULL: none */
	struct str primary;  /* its name in Sentinel */
	struct str db;       /* digits */
	struct str name;     /* see redis_name */
};

int redis_url_parse(struct str url, struct redis_url *ret, struct err *e);
void redis_url_release(struct redis_url *u);
