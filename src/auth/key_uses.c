#include "auth/key_uses.h"

#include "base/hash.h"

enum { PROBES = 8, STEP_MS = 1000 /* a use this soon after the last one is not noted */ };

static size_t slot_index(uint64_t key, size_t probe)
{
	return (hash_u64(key, 0x75736573) + probe) % KEY_USES_SLOTS;
}

/* If key_uses_take frees the slot at this moment, the time may land on the slot's next key. That is harmless:
 * both keys were used now. */
void key_uses_note(struct key_uses *u, uint64_t key, int64_t now_ms)
{
	for (size_t i = 0; i < PROBES; i++) {
		struct key_use *use = &u->slots[slot_index(key, i)];
		uint64_t holder = atomic_load_explicit(&use->key, memory_order_relaxed);
		if (holder == 0)
			atomic_compare_exchange_strong_explicit(&use->key, &holder, key, memory_order_relaxed,
			                                        memory_order_relaxed);
		if (holder != 0 && holder != key)
			continue;
		/* The slot of a busy key is in every core's cache: write it at most once a second. */
		if (now_ms - atomic_load_explicit(&use->used_ms, memory_order_relaxed) >= STEP_MS)
			atomic_store_explicit(&use->used_ms, now_ms, memory_order_relaxed);
		return;
	}
}

int64_t key_uses_last(const struct key_uses *u, uint64_t key)
{
	for (size_t i = 0; i < PROBES; i++) {
		const struct key_use *use = &u->slots[slot_index(key, i)];
		if (atomic_load_explicit(&use->key, memory_order_relaxed) == key)
			return atomic_load_explicit(&use->used_ms, memory_order_relaxed);
	}
	return 0;
}

size_t key_uses_take(struct key_uses *u, size_t *at, struct registry_write *writes, size_t max)
{
	size_t n = 0;
	for (; *at < KEY_USES_SLOTS && n < max; ++*at) {
		struct key_use *use = &u->slots[*at];
		uint64_t key = atomic_load_explicit(&use->key, memory_order_relaxed);
		int64_t used_ms = key ? atomic_exchange_explicit(&use->used_ms, 0, memory_order_relaxed) : 0;
		if (key)
			atomic_store_explicit(&use->key, 0, memory_order_relaxed);
		if (used_ms == 0)
			continue;
		writes[n].kind = REGISTRY_KEY_USED;
		writes[n].key.id = key;
		writes[n].key.used_ms = used_ms;
		n++;
	}
	return n;
}
