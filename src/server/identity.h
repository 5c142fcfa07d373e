/* The public address of this server: what short links begin with, and all addresses that lead back to it. */
#pragma once

#include "base/arena.h"
#include "link/url.h"
#include "os/net.h"

enum { IDENTITY_HOSTS_MAX = 64 };

struct identity {
	struct arena arena;
	struct str base_url; /* canonical, without the last slash */
	struct str domain;   /* its authority */
	struct url_rules rules;
	struct str hosts[IDENTITY_HOSTS_MAX];
};

/* `setting` is serve.base_url, which may be empty; `addr` is the listening address, with its port.
 * ERR_INVALID: links cannot begin with the setting. */
int identity_init(struct identity *id, const char *setting, const struct net_addr *addr, struct err *e);
void identity_release(struct identity *id);
