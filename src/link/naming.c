/*
 * How new links get their names. An alias is its own; generated keys come from the cipher over leased ids, or
 * from the source that is configured. A key from a source is taken by its text: the id behind it is what the
 * text decodes to. One that was another link's before names its link as an alias does, under a fresh id, so
 * that it inherits neither clicks nor gate.
 */
#include "link/links_private.h"

#include "obs/log.h"

#include <stdlib.h>

enum { TAKE_MAX = 64, DARK_BATCHES = 3, SHARD_TRIES = 4 };

/* Was the name left to us? On a second try it may stand there as if it were an alias. */
static bool is_ours_to_name(const struct store_write *w)
{
	return !w->link.is_alias || w->reuse;
}

bool links_met_another(const struct store_write *w)
{
	return w->kind == STORE_LINK_CREATE && w->result == ERR_CONFLICT && is_ours_to_name(w);
}

bool links_may_lie_elsewhere(const struct store_write *w)
{
	return w->kind == STORE_LINK_CREATE && w->result == ERR_UNAVAILABLE && is_ours_to_name(w) &&
	       !w->idempotency_key.ptr;
}

/* An alias may read like a key. Has the counter of ids passed it? What was asked last is asked again only
 * beyond that: the counter only grows. */
static int given_find(struct links *l, struct store_write *w)
{
	uint64_t next = atomic_load(&l->counter_seen);
	int r = 0;
	if (w->ref.id >= next)
		r = registry_counter(l->store->registry, STORE_LINK_COUNTER, &next);
	if (r == 0)
		atomic_store(&l->counter_seen, next);
	w->was_given = w->ref.id < next;
	return r;
}

static int name_alias(struct links *l, struct store_write *w)
{
	w->ref = links_ref(l, w->link.key);
	int r = w->ref.id != 0 ? given_find(l, w) : 0;
	return r ? r : ids_next(&l->ids, &w->link.id);
}

static bool stash_take(struct links *l, size_t shard, uint64_t *ret)
{
	bool found = false;
	if (shard >= SHARDS_MAX)
		return false;
	pthread_mutex_lock(&l->stash_lock);
	struct id_stash *stash = &l->stashes[shard];
	if ((found = stash->count > 0))
		*ret = stash->ids[--stash->count];
	pthread_mutex_unlock(&l->stash_lock);
	return found;
}

/* What there is no room for is lost: ids are many. */
static void stash_put(struct links *l, size_t shard, uint64_t id)
{
	if (shard >= SHARDS_MAX)
		return;
	pthread_mutex_lock(&l->stash_lock);
	struct id_stash *stash = &l->stashes[shard];
	if (stash->count < STASH_IDS)
		stash->ids[stash->count++] = id;
	pthread_mutex_unlock(&l->stash_lock);
}

/* A database that has no part of the names yet would be looked for in vain. */
static int name_by_cipher(struct links *l, size_t shard, struct store_write *w)
{
	size_t tries = shard == (size_t)LINKS_ANY_SHARD ? 0 : SHARD_TRIES * (store_shard_count(l->store) - 1);
	for (;;) {
		int r = tries > 0 && stash_take(l, shard, &w->link.id) ? 0 : ids_next(&l->ids, &w->link.id);
		if (r == 0)
			r = links_key_fill(l, &w->link, w->arena);
		if (r < 0)
			return r;
		if (key_is_reserved(w->link.key))
			continue;
		size_t lies_in = tries > 0 ? store_shard_of(l->store, w->link.key) : shard;
		if (lies_in == shard)
			break;
		tries--;
		stash_put(l, lies_in, w->link.id);
	}
	w->ref = (struct link_ref){.id = w->link.id, .key = w->link.key};
	return 0;
}

/* ERR_INVALID: that is no key of this store. */
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

/* Keys as they are wanted, taken from the source some at a time. */
struct supply {
	struct links *links;
	size_t shard;
	struct source_key keys[TAKE_MAX];
	size_t at, count;
	size_t wanted; /* by the rest of the batch: no more is taken */
	int failed;
	struct leftovers *left;
};

/* Without memory the key is lost. */
static void leftovers_add(struct leftovers *left, const struct source_key *key, bool of_shard)
{
	if (left->count == left->room) {
		size_t room = MAX(2 * left->room, (size_t)TAKE_MAX);
		struct leftover *all = realloc(left->all, room * sizeof(*all));
		if (!all)
			return;
		left->all = all;
		left->room = room;
	}
	left->all[left->count++] = (struct leftover){*key, of_shard};
}

static void source_failed(struct supply *s, int r, const struct err *why, struct metrics *m)
{
	struct links *l = s->links;
	s->failed = r == ERR_LIMIT || r == ERR_UNAVAILABLE ? ERR_BUSY : r;
	metric_add(&m->keys_exhausted, 1);
	pthread_mutex_lock(&l->source_lock);
	l->source_why = *why;
	pthread_mutex_unlock(&l->source_lock);
}

static const struct source_key *supply_next(struct supply *s, struct metrics *m)
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

static int name_by_source(struct supply *s, struct store_write *w, struct metrics *m)
{
	int r;
	do {
		const struct source_key *key = supply_next(s, m);
		if (!key)
			return s->failed;
		r = name_by_key(s->links, w, key);
		if (r == ERR_INVALID) {
			metric_add(&m->keys_skipped, 1);
			log_warn(
			    "link",
			    "the key '%.*s' from stock cannot name a link of this store, and was skipped",
			    (int)key->len, key->text);
		}
	} while (r == ERR_INVALID);
	if (r < 0)
		leftovers_add(s->left, &s->keys[s->at - 1], false);
	s->wanted--;
	return r;
}

static int name_one(struct supply *s, struct store_write *w, struct metrics *m)
{
	if (!is_ours_to_name(w))
		return name_alias(s->links, w);
	return s->links->source ? name_by_source(s, w, m) : name_by_cipher(s->links, s->shard, w);
}

void links_name(struct links *l, size_t shard, struct store_write *writes, size_t n, struct leftovers *left,
                struct metrics *m)
{
	struct supply supply = {.links = l, .shard = shard, .left = left};
	int no_ids = 0; /* then nobody waits for the store once more */
	for (size_t i = 0; i < n; i++)
		supply.wanted += writes[i].kind == STORE_LINK_CREATE && is_ours_to_name(&writes[i]);
	for (size_t i = 0; i < n; i++) {
		if (writes[i].kind != STORE_LINK_CREATE)
			continue;
		int r = no_ids < 0 ? no_ids : name_one(&supply, &writes[i], m);
		if (r < 0 && r != ERR_BUSY && r != ERR_NOMEM)
			no_ids = r;
		writes[i].result = r;
	}
	while (supply.at < supply.count)
		leftovers_add(left, &supply.keys[supply.at++], false);
}

struct link_name links_name_of(const struct links *l, const struct store_write *w)
{
	struct link_name name = {.ref = w->ref, .reuse = w->reuse};
	bool is_from_source = l->source && w->kind == STORE_LINK_CREATE && is_ours_to_name(w) &&
	                      w->ref.key.len <= KEY_LENGTH_MAX;
	if (!is_from_source)
		name.ref.key = STR_NULL;
	return name;
}

/* The link that came back, made now or before, may have this name or another. */
static bool is_called(const struct link_record *link, const struct link_name *name)
{
	return link->is_alias ? str_eq(link->key, name->ref.key) : link->id == name->ref.id;
}

/* Not when it is somebody's (ERR_CONFLICT), nor when that is not known. What can be repeated may have been
 * promised its name, which it gets when its part is there again. */
static bool is_unused(const struct store_write *w, const struct link_name *name)
{
	switch (w->result) {
	case 0: return !is_called(&w->link, name);
	case ERR_INVALID:
	case ERR_NOT_FOUND:
	case ERR_LIMIT: return true;
	case ERR_UNAVAILABLE: return !w->idempotency_key.ptr;
	default: return false;
	}
}

void leftovers_note(struct leftovers *left, const struct store_write *w, const struct link_name *name,
                    bool away)
{
	if (!name->ref.key.ptr)
		return;
	if (!is_unused(w, name))
		return;
	struct source_key key = {.len = (uint8_t)name->ref.key.len, .used_before = name->reuse};
	memcpy(key.text, name->ref.key.ptr, key.len);
	leftovers_add(left, &key, w->result == ERR_UNAVAILABLE && !away);
}

/* While a part is away and others are there, its keys are for later: they would come back again and again,
 * until nothing else is at hand. */
void leftovers_return(struct leftovers *left, struct links *l)
{
	bool dark = links_is_dark(l);
	for (size_t i = 0; i < left->count; i++)
		l->source->ops->give_back(l->source, &left->all[i].key, 1, left->all[i].of_shard && !dark);
	free(left->all);
	*left = (struct leftovers){0};
}

void links_note_shards(struct links *l, const struct store_write *writes, size_t n)
{
	bool answered = false, refused = false;
	for (size_t i = 0; i < n; i++) {
		const struct store_write *w = &writes[i];
		bool named = w->kind == STORE_LINK_CREATE && is_ours_to_name(w) && w->result != ERR_BUSY;
		answered |= named && w->result != ERR_UNAVAILABLE;
		refused |= links_may_lie_elsewhere(w);
	}
	if (answered)
		atomic_store_explicit(&l->dark, 0, memory_order_relaxed);
	else if (refused && !links_is_dark(l))
		atomic_fetch_add_explicit(&l->dark, 1, memory_order_relaxed);
}

bool links_is_dark(const struct links *l)
{
	return atomic_load_explicit(&l->dark, memory_order_relaxed) >= DARK_BATCHES;
}

bool links_source_trouble(struct links *l, struct err *ret)
{
	pthread_mutex_lock(&l->source_lock);
	*ret = l->source_why;
	pthread_mutex_unlock(&l->source_lock);
	return ret->text[0] != '\0';
}
