#include "api/keyring.h"

#include "base/hash.h"
#include "os/reclaim.h"

#include <sodium.h>
#include <stdatomic.h>
#include <stdlib.h>

static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
enum { RANDOM_DIGITS = 40 }; /* 238 bits */

struct held_key {
	struct key_record record;
	struct budget *budget;
};

/* Never changes once published; keys by id, and a table of their places by digest. */
struct snapshot {
	struct arena arena;
	struct held_key *keys;
	size_t count;
	uint32_t *slots; /* place + 1; 0 is free */
	size_t mask;
};

struct keyring {
	struct store *store;
	struct budgets *budgets;
	struct keyring_defaults defaults;
	_Atomic(struct snapshot *) current;
	uint8_t local_digest[KEY_DIGEST_BYTES]; /* set before the workers start */
	bool has_local;
	struct budget *local_budget;
};

void api_key_digest(struct str text, uint8_t digest[KEY_DIGEST_BYTES])
{
	crypto_generichash(digest, KEY_DIGEST_BYTES, (const unsigned char *)text.ptr, text.len, NULL, 0);
}

void api_key_make(char text[API_KEY_TEXT_BYTES], uint8_t digest[KEY_DIGEST_BYTES])
{
	memcpy(text, "ck_", 3);
	for (size_t i = 0; i < RANDOM_DIGITS; i++)
		text[3 + i] = digits[randombytes_uniform(sizeof(digits) - 1)];
	text[3 + RANDOM_DIGITS] = '\0';
	api_key_digest(str_of(text), digest);
}

static size_t slot_of(const struct snapshot *s, const uint8_t digest[KEY_DIGEST_BYTES])
{
	uint64_t head;
	memcpy(&head, digest, sizeof(head));
	return head & s->mask;
}

static void snapshot_free(struct snapshot *s)
{
	if (!s)
		return;
	arena_release(&s->arena);
	free(s);
}

static int snapshot_fill(struct keyring *k, struct snapshot *s)
{
	struct key_record *records;
	int r = store_keys(k->store, &s->arena, &records, &s->count);
	if (r < 0)
		return r;
	size_t slots = 16;
	while (slots < s->count * 2)
		slots *= 2;
	s->mask = slots - 1;
	s->keys = arena_zalloc(&s->arena, MAX(s->count, 1) * sizeof(*s->keys));
	s->slots = arena_zalloc(&s->arena, slots * sizeof(*s->slots));
	if (!s->keys || !s->slots)
		return ERR_NOMEM;
	for (size_t i = 0; i < s->count; i++) {
		const struct key_record *record = &records[i];
		s->keys[i].record = *record;
		s->keys[i].budget = budgets_of(k->budgets, record->id);
		if (!s->keys[i].budget)
			return ERR_NOMEM;
		uint64_t creates = record->creates_max ? record->creates_max : k->defaults.creates_max;
		uint64_t redirects = record->redirects_max ? record->redirects_max
		                                           : k->defaults.redirects_max;
		uint64_t period_ms = record->period_ms ? record->period_ms : k->defaults.period_ms;
		budget_set(s->keys[i].budget, creates, redirects, period_ms);
		if (record->revoked_ms)
			continue;
		size_t at = slot_of(s, record->digest);
		while (s->slots[at])
			at = (at + 1) & s->mask;
		s->slots[at] = (uint32_t)i + 1;
	}
	return 0;
}

int keyring_reload(struct keyring *k)
{
	struct snapshot *fresh = calloc(1, sizeof(*fresh));
	if (!fresh)
		return ERR_NOMEM;
	int r = snapshot_fill(k, fresh);
	if (r < 0) {
		snapshot_free(fresh);
		return r;
	}
	/* release pairs with the acquire in keyring_find */
	struct snapshot *old = atomic_exchange_explicit(&k->current, fresh, memory_order_acq_rel);
	if (old) {
		reclaim_wait();
		snapshot_free(old);
	}
	return 0;
}

int keyring_new(struct store *store, struct budgets *budgets, const struct keyring_defaults *defaults,
                struct keyring **ret, struct err *e)
{
	struct keyring *k = calloc(1, sizeof(*k));
	if (!k)
		return err_set(e, ERR_NOMEM, "out of memory for the API keys");
	k->store = store;
	k->budgets = budgets;
	k->defaults = *defaults;
	int r = keyring_reload(k);
	if (r < 0) {
		free(k);
		return err_set(e, r, "cannot read the API keys from the store (%s)", err_name(r));
	}
	*ret = k;
	return 0;
}

void keyring_free(struct keyring *k)
{
	if (!k)
		return;
	snapshot_free(atomic_load(&k->current));
	free(k);
}

void keyring_set_local(struct keyring *k, struct str presented)
{
	api_key_digest(presented, k->local_digest);
	k->local_budget = budgets_of(k->budgets, 0);
	k->has_local = k->local_budget != NULL;
}

static struct snapshot *snapshot_now(struct keyring *k)
{
	return atomic_load_explicit(&k->current, memory_order_acquire);
}

bool keyring_find(struct keyring *k, struct str presented, struct api_key *ret)
{
	uint8_t digest[KEY_DIGEST_BYTES];
	api_key_digest(presented, digest);
	if (k->has_local && sodium_memcmp(k->local_digest, digest, sizeof(digest)) == 0) {
		*ret = (struct api_key){
		    .id = 0, .admin = true, .name = STR("local"), .budget = k->local_budget};
		return true;
	}
	const struct snapshot *s = snapshot_now(k);
	for (size_t at = slot_of(s, digest); s->slots[at]; at = (at + 1) & s->mask) {
		const struct held_key *key = &s->keys[s->slots[at] - 1];
		if (sodium_memcmp(key->record.digest, digest, sizeof(digest)) != 0)
			continue;
		*ret = (struct api_key){
		    .id = key->record.id,
		    .admin = key->record.admin,
		    .name = key->record.name,
		    .budget = key->budget,
		};
		return true;
	}
	return false;
}

static const struct key_record *record_of(struct keyring *k, uint64_t id)
{
	const struct snapshot *s = snapshot_now(k);
	size_t low = 0, high = s->count;
	while (low < high) {
		size_t mid = (low + high) / 2;
		if (s->keys[mid].record.id < id)
			low = mid + 1;
		else
			high = mid;
	}
	return low < s->count && s->keys[low].record.id == id ? &s->keys[low].record : NULL;
}

bool keyring_in_force(struct keyring *k, uint64_t id)
{
	const struct key_record *record = id != 0 ? record_of(k, id) : NULL;
	return id == 0 || (record && record->revoked_ms == 0);
}

struct str keyring_name(struct keyring *k, uint64_t id)
{
	if (id == 0)
		return STR("local");
	const struct key_record *record = record_of(k, id);
	return record ? record->name : STR_NULL;
}
