/*
 * Names of new links. An alias is given. Generated keys come from the cipher over leased ids, or from the
 * configured key source. A key from a source determines its id: what the text decodes to. A key that
 * another link had before is used like an alias, under a new id, so that it inherits no clicks and no click
 * limit.
 */
#include "link/links_private.h"

#include "obs/log.h"

#include <stdlib.h>

enum { TAKE_MAX = 64, DOWN_BATCHES = 3, SHARD_TRIES = 32 };

/* Does the create want a generated key? On a retry a reused key looks like an alias. */
static bool wants_generated_key(const struct store_write *w)
{
	return !w->link.is_alias || w->reuse;
}

bool links_key_was_taken(const struct store_write *w)
{
	return w->kind == STORE_LINK_CREATE && w->result == ERR_CONFLICT && wants_generated_key(w);
}

bool links_shard_was_down(const struct store_write *w)
{
	return w->kind == STORE_LINK_CREATE && w->result == ERR_UNAVAILABLE && wants_generated_key(w) &&
	       !w->idempotency_key.ptr;
}

/* An alias may decode to an id. Was that id issued? The counter only grows, so it is read only for ids
 * beyond the last known value. */
static int issued_find(struct links *l, struct store_write *w)
{
	uint64_t next = atomic_load(&l->counter_seen);
	int r = 0;
	if (w->ref.id >= next)
		r = registry_counter(l->store->registry, STORE_LINK_COUNTER, &next);
	if (r == 0)
		atomic_store(&l->counter_seen, next);
	w->was_issued = w->ref.id < next;
	return r;
}

static int name_alias(struct links *l, struct store_write *w)
{
	w->ref = links_ref(l, w->link.key);
	int r = w->ref.id != 0 ? issued_find(l, w) : 0;
	return r ? r : ids_next(&l->ids, &w->link.id);
}

static bool spare_take(struct links *l, size_t shard, uint64_t *ret)
{
	bool found = false;
	if (shard >= SPARE_SHARDS_MAX)
		return false;
	pthread_mutex_lock(&l->spare_lock);
	struct spare_ids *spare = &l->spare[shard];
	if ((found = spare->count > 0))
		*ret = spare->ids[--spare->count];
	pthread_mutex_unlock(&l->spare_lock);
	return found;
}

/* Without room the id is lost: ids are plenty. */
static void spare_put(struct links *l, size_t shard, uint64_t id)
{
	if (shard >= SPARE_SHARDS_MAX)
		return;
	pthread_mutex_lock(&l->spare_lock);
	struct spare_ids *spare = &l->spare[shard];
	if (spare->count < SPARE_IDS_MAX)
		spare->ids[spare->count++] = id;
	pthread_mutex_unlock(&l->spare_lock);
}

/* `tries` is bounded: a database without slots has no keys. */
static int name_by_cipher(struct links *l, size_t shard, struct store_write *w)
{
	size_t tries = shard == (size_t)LINKS_ANY_SHARD ? 0 : SHARD_TRIES * (store_shard_count(l->store) - 1);
	for (;;) {
		int r = tries > 0 && spare_take(l, shard, &w->link.id) ? 0 : ids_next(&l->ids, &w->link.id);
		if (r == 0)
			r = links_key_fill(l, &w->link, w->arena);
		if (r < 0)
			return r;
		if (key_is_reserved(w->link.key))
			continue;
		size_t owner = tries > 0 ? store_shard_of(l->store, w->link.key) : shard;
		if (owner == shard)
			break;
		tries--;
		spare_put(l, owner, w->link.id);
	}
	w->ref = (struct link_ref){.id = w->link.id, .key = w->link.key};
	return 0;
}

/* ERR_INVALID: it is no key of this store. */
static int name_by_key(struct links *l, struct store_write *w, const struct source_key *key)
{
	struct str text = str_n(key->text, key->len);
	uint64_t id = key_decode(&l->cipher, text);
	if (id == 0 || key_is_reserved(text))
		return ERR_INVALID;
	w->link.key = arena_str(w->arena, text);
	if (!w->link.key.ptr)
		return ERR_NOMEM;
	w->ref = (struct link_ref){.id = id, .key = w->link.key};
	w->reuse = w->link.is_alias = key->used_before;
	w->link.id = id;
	return key->used_before ? ids_next(&l->ids, &w->link.id) : 0;
}

/* Keys from the source, taken in blocks. */
struct key_supply {
	struct links *links;
	size_t shard;
	struct source_key keys[TAKE_MAX];
	size_t at, count;
	size_t wanted; /* by the rest of the batch: take no more */
	int failed;
	struct unused_keys *left;
};

/* Without memory the key is lost. */
static void unused_keys_add(struct unused_keys *left, const struct source_key *key, bool of_shard)
{
	if (left->count == left->room) {
		size_t room = MAX(2 * left->room, (size_t)TAKE_MAX);
		struct unused_key *all = realloc(left->all, room * sizeof(*all));
		if (!all)
			return;
		left->all = all;
		left->room = room;
	}
	left->all[left->count++] = (struct unused_key){*key, of_shard};
}

static void source_failed(struct key_supply *s, int r, const struct err *why, struct metrics *m)
{
	struct links *l = s->links;
	s->failed = r == ERR_LIMIT || r == ERR_UNAVAILABLE ? ERR_BUSY : r;
	metric_add(&m->keys_exhausted, 1);
	pthread_mutex_lock(&l->source_lock);
	l->source_why = *why;
	pthread_mutex_unlock(&l->source_lock);
}

static const struct source_key *key_supply_next(struct key_supply *s, struct metrics *m)
{
	struct key_source *source = s->links->source;
	if (s->at == s->count && s->failed == 0) {
		struct err why = {0};
		s->at = s->count = 0;
		int r = source->ops->take(source, s->keys, MIN(s->wanted, (size_t)TAKE_MAX), &s->count, &why);
		if (r < 0)
			source_failed(s, r, &why, m);
	}
	return s->failed < 0 ? NULL : &s->keys[s->at++];
}

static int name_by_source(struct key_supply *s, struct store_write *w, struct metrics *m)
{
	int r;
	do {
		const struct source_key *key = key_supply_next(s, m);
		if (!key)
			return s->failed;
		r = name_by_key(s->links, w, key);
		if (r == ERR_INVALID) {
			metric_add(&m->keys_skipped, 1);
			log_warn("link", "key skipped, it is not of this store's format key='%.*s'",
			         (int)key->len, key->text);
		}
	} while (r == ERR_INVALID);
	if (r < 0)
		unused_keys_add(s->left, &s->keys[s->at - 1], false);
	s->wanted--;
	return r;
}

static int name_link(struct key_supply *s, struct store_write *w, struct metrics *m)
{
	if (!wants_generated_key(w))
		return name_alias(s->links, w);
	return s->links->source ? name_by_source(s, w, m) : name_by_cipher(s->links, s->shard, w);
}

void links_name(struct links *l, size_t shard, struct store_write *writes, size_t n, struct unused_keys *left,
                struct metrics *m)
{
	struct key_supply key_supply = {.links = l, .shard = shard, .left = left};
	int no_ids = 0; /* then the rest does not wait for the store */
	for (size_t i = 0; i < n; i++)
		key_supply.wanted += writes[i].kind == STORE_LINK_CREATE && wants_generated_key(&writes[i]);
	for (size_t i = 0; i < n; i++) {
		if (writes[i].kind != STORE_LINK_CREATE)
			continue;
		int r = no_ids < 0 ? no_ids : name_link(&key_supply, &writes[i], m);
		if (r < 0 && r != ERR_BUSY && r != ERR_NOMEM)
			no_ids = r;
		writes[i].result = r;
	}
	while (key_supply.at < key_supply.count)
		unused_keys_add(left, &key_supply.keys[key_supply.at++], false);
}

struct link_name links_name_of(const struct links *l, const struct store_write *w)
{
	struct link_name name = {.ref = w->ref, .reuse = w->reuse};
	bool is_from_source = l->source && w->kind == STORE_LINK_CREATE && wants_generated_key(w) &&
	                      w->ref.key.len <= KEY_LENGTH_MAX;
	if (!is_from_source)
		name.ref.key = STR_NULL;
	return name;
}

/* Is this the name of the returned link, which may be from an earlier create? */
static bool has_name(const struct link_record *link, const struct link_name *name)
{
	return link->is_alias ? str_eq(link->key, name->ref.key) : link->id == name->ref.id;
}

/* Not if it is taken (ERR_CONFLICT) or unknown. A create with an idempotency key keeps its name for its
 * retry. */
static bool is_unused(const struct store_write *w, const struct link_name *name)
{
	switch (w->result) {
	case 0: return !has_name(&w->link, name);
	case ERR_INVALID:
	case ERR_NOT_FOUND:
	case ERR_LIMIT: return true;
	case ERR_UNAVAILABLE: return !w->idempotency_key.ptr;
	default: return false;
	}
}

void unused_keys_note(struct unused_keys *left, const struct store_write *w, const struct link_name *name,
                      bool away)
{
	if (!name->ref.key.ptr)
		return;
	if (!is_unused(w, name))
		return;
	struct source_key key = {.len = (uint8_t)name->ref.key.len, .used_before = name->reuse};
	memcpy(key.text, name->ref.key.ptr, key.len);
	unused_keys_add(left, &key, w->result == ERR_UNAVAILABLE && !away);
}

/* While a shard is down and others are up, its keys are deferred. Otherwise they would be taken again and
 * again, until no others are left. */
void unused_keys_return(struct unused_keys *left, struct links *l)
{
	bool failed_batches = links_store_is_down(l);
	for (size_t i = 0; i < left->count; i++)
		l->source->ops->put_back(l->source, &left->all[i].key, 1,
		                         left->all[i].of_shard && !failed_batches);
	free(left->all);
	*left = (struct unused_keys){0};
}

void links_note_outage(struct links *l, const struct store_write *writes, size_t n)
{
	bool answered = false, refused = false;
	for (size_t i = 0; i < n; i++) {
		const struct store_write *w = &writes[i];
		bool named = w->kind == STORE_LINK_CREATE && wants_generated_key(w) && w->result != ERR_BUSY;
		answered |= named && w->result != ERR_UNAVAILABLE;
		refused |= links_shard_was_down(w);
	}
	if (answered)
		atomic_store_explicit(&l->failed_batches, 0, memory_order_relaxed);
	else if (refused && !links_store_is_down(l))
		atomic_fetch_add_explicit(&l->failed_batches, 1, memory_order_relaxed);
}

bool links_store_is_down(const struct links *l)
{
	return atomic_load_explicit(&l->failed_batches, memory_order_relaxed) >= DOWN_BATCHES;
}

bool links_source_trouble(struct links *l, struct err *ret)
{
	pthread_mutex_lock(&l->source_lock);
	*ret = l->source_why;
	pthread_mutex_unlock(&l->source_lock);
	return ret->text[0] != '\0';
}
