#include "http/peers.h"

#include "base/hash.h"

#include <stdlib.h>

struct peer_slot {
	uint64_t prefix; /* the IPv4 address, or the upper half of the IPv6 one */
	uint32_t count;  /* 0: the slot is free */
	uint32_t family;
};

/* Open addressing with linear probing; removal closes the gap, so a probe may stop at a free slot. */
struct peers {
	size_t mask;
	size_t used;
	uint64_t seed;
	struct peer_slot slots[];
};

struct peers *peers_new(size_t addresses_max)
{
	size_t slots = 64;
	while (slots < addresses_max * 2)
		slots *= 2;
	struct peers *p = calloc(1, sizeof(*p) + slots * sizeof(struct peer_slot));
	if (!p)
		return NULL;
	p->mask = slots - 1;
	p->seed = (uint64_t)(uintptr_t)p * 0x9e3779b97f4a7c15ULL;
	return p;
}

void peers_free(struct peers *p)
{
	free(p);
}

static struct peer_slot key_of(const struct net_addr *a)
{
	struct peer_slot key = {.family = a->any.sa_family};
	if (a->any.sa_family != AF_INET6) {
		key.prefix = a->v4.sin_addr.s_addr;
	} else if (IN6_IS_ADDR_V4MAPPED(&a->v6.sin6_addr)) {
		uint32_t v4;
		memcpy(&v4, &a->v6.sin6_addr.s6_addr[12], sizeof(v4));
		key = (struct peer_slot){.family = AF_INET, .prefix = v4};
	} else {
		memcpy(&key.prefix, &a->v6.sin6_addr, sizeof(key.prefix));
	}
	return key;
}

static size_t home_of(const struct peers *p, const struct peer_slot *key)
{
	return hash_u64(key->prefix + key->family, p->seed) & p->mask;
}

/* The slot of the key, or the free slot where it belongs. */
static size_t slot_find(const struct peers *p, const struct peer_slot *key)
{
	size_t i = home_of(p, key);
	while (p->slots[i].count > 0 &&
	       (p->slots[i].prefix != key->prefix || p->slots[i].family != key->family))
		i = (i + 1) & p->mask;
	return i;
}

bool peers_enter(struct peers *p, const struct net_addr *a, uint64_t max)
{
	struct peer_slot key = key_of(a);
	size_t i = slot_find(p, &key);
	if (p->slots[i].count == 0) {
		if (p->used > p->mask / 2)
			return false;
		p->used++;
		p->slots[i] = key;
	}
	if (max > 0 && p->slots[i].count >= max)
		return false;
	p->slots[i].count++;
	return true;
}

static void slot_clear(struct peers *p, size_t gap)
{
	p->used--;
	p->slots[gap].count = 0;
	for (size_t i = (gap + 1) & p->mask; p->slots[i].count > 0; i = (i + 1) & p->mask) {
		size_t home = home_of(p, &p->slots[i]);
		if (((i - home) & p->mask) < ((i - gap) & p->mask))
			continue; /* it would land before its home */
		p->slots[gap] = p->slots[i];
		p->slots[i].count = 0;
		gap = i;
	}
}

void peers_leave(struct peers *p, const struct net_addr *a)
{
	struct peer_slot key = key_of(a);
	size_t i = slot_find(p, &key);
	ASSERT(p->slots[i].count > 0);
	if (--p->slots[i].count == 0)
		slot_clear(p, i);
}
