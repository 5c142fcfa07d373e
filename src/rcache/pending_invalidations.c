#include "rcache/pending_invalidations.h"

#include "base/hash.h"
#include "base/list.h"
#include "os/clock.h"

#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { BUCKETS = 16384 };

struct entry {
	struct list link; /* in `open` or `acknowledged`, in order of arrival */
	struct entry *next;
	unsigned attempts;       /* running */
	bool pending;            /* an attempt has failed */
	int64_t acknowledged_ms; /* when none is running or pending */
	size_t len;
	char key[];
};

struct pending {
	_Atomic bool any; /* `open` is not empty; makes the check cheap */
	pthread_mutex_t lock;
	struct list open, acknowledged;
	size_t open_count, acknowledged_count;
	uint64_t seed;
	struct entry **buckets;
	bool all;
	uint64_t all_version;
	int64_t all_since_ms;
};

struct pending *pending_new(void)
{
	struct pending *o = calloc(1, sizeof(*o));
	struct entry **buckets = calloc(BUCKETS, sizeof(struct entry *));
	if (!o || !buckets) {
		free(o);
		free(buckets);
		return NULL;
	}
	o->buckets = buckets;
	randombytes_buf(&o->seed, sizeof(o->seed));
	list_init(&o->open);
	list_init(&o->acknowledged);
	pthread_mutex_init(&o->lock, NULL);
	return o;
}

void pending_free(struct pending *o)
{
	if (!o)
		return;
	struct list *node;
	list_splice(&o->open, &o->acknowledged);
	while ((node = list_pop(&o->open)))
		free(container_of(node, struct entry, link));
	pthread_mutex_destroy(&o->lock);
	free(o->buckets);
	free(o);
}

/* The slot of the entry, or where it belongs. */
static struct entry **find_locked(struct pending *o, struct str key)
{
	struct entry **at = &o->buckets[hash_str(key, o->seed) % BUCKETS];
	while (*at && !str_eq(str_n((*at)->key, (*at)->len), key))
		at = &(*at)->next;
	return at;
}

static bool is_open(const struct entry *e)
{
	return e->attempts > 0 || e->pending;
}

static void forget_oldest_locked(struct pending *o)
{
	struct entry *e = container_of(o->acknowledged.next, struct entry, link);
	*find_locked(o, str_n(e->key, e->len)) = e->next;
	list_remove(&e->link);
	o->acknowledged_count--;
	free(e);
}

/* A new entry, in no list yet; NULL: no room. */
static struct entry *add_locked(struct pending *o, struct str key)
{
	if (o->open_count >= PENDING_KEYS_MAX)
		return NULL;
	if (o->open_count + o->acknowledged_count >= PENDING_KEYS_MAX)
		forget_oldest_locked(o);
	struct entry *e = calloc(1, sizeof(*e) + key.len);
	if (!e)
		return NULL;
	memcpy(e->key, key.ptr, key.len);
	e->len = key.len;
	list_init(&e->link);
	*find_locked(o, key) = e;
	return e;
}

static void open_locked(struct pending *o, struct entry *e)
{
	list_remove(&e->link);
	list_push(&o->open, &e->link);
	o->open_count++;
}

static void all_locked(struct pending *o)
{
	o->all = true;
	o->all_version++;
	o->all_since_ms = clock_mono_ms();
}

static void note_any_locked(struct pending *o)
{
	atomic_store_explicit(&o->any, o->open_count > 0 || o->all, memory_order_release);
}

void pending_begin(struct pending *o, const struct str *keys, size_t n)
{
	pthread_mutex_lock(&o->lock);
	for (size_t i = 0; i < n; i++) {
		struct entry *e = *find_locked(o, keys[i]);
		bool is_new = !e;
		if (is_new)
			e = add_locked(o, keys[i]);
		if (!e) {
			all_locked(o);
			continue;
		}
		if (!is_open(e)) {
			o->acknowledged_count -= is_new ? 0 : 1;
			open_locked(o, e);
		}
		e->attempts++;
	}
	note_any_locked(o);
	pthread_mutex_unlock(&o->lock);
}

void pending_end(struct pending *o, const struct str *keys, size_t n, bool acknowledged)
{
	pthread_mutex_lock(&o->lock);
	for (size_t i = 0; i < n; i++) {
		struct entry *e = *find_locked(o, keys[i]);
		if (!e || e->attempts == 0) { /* there was no room when it began */
			if (!acknowledged)
				all_locked(o);
			continue;
		}
		e->attempts--;
		e->pending |= !acknowledged;
		if (!is_open(e)) {
			e->acknowledged_ms = clock_mono_ms();
			list_remove(&e->link);
			list_push(&o->acknowledged, &e->link);
			o->open_count--;
			o->acknowledged_count++;
			while (e->acknowledged_ms -
			           container_of(o->acknowledged.next, struct entry, link)->acknowledged_ms >
			       PENDING_RECENT_MS)
				forget_oldest_locked(o);
		}
	}
	note_any_locked(o);
	pthread_mutex_unlock(&o->lock);
}

bool pending_any(const struct pending *o)
{
	/* Requests that follow the change must see what it stored. */
	return atomic_load_explicit(&o->any, memory_order_acquire);
}

bool pending_has(struct pending *o, struct str key)
{
	if (!pending_any(o))
		return false;
	pthread_mutex_lock(&o->lock);
	const struct entry *e = *find_locked(o, key);
	bool has = o->all || (e && is_open(e));
	pthread_mutex_unlock(&o->lock);
	return has;
}

size_t pending_count(struct pending *o)
{
	pthread_mutex_lock(&o->lock);
	size_t count = o->open_count;
	pthread_mutex_unlock(&o->lock);
	return count;
}

size_t pending_pick(struct pending *o, struct arena *arena, struct str *ret, size_t max)
{
	size_t n = 0;
	pthread_mutex_lock(&o->lock);
	for (struct list *i = o->open.next; i != &o->open && n < max; i = i->next) {
		struct entry *e = container_of(i, struct entry, link);
		struct str copy = e->pending ? arena_str(arena, str_n(e->key, e->len)) : STR_NULL;
		if (!copy.ptr)
			continue;
		e->pending = false;
		e->attempts++;
		ret[n++] = copy;
	}
	pthread_mutex_unlock(&o->lock);
	return n;
}

void pending_recall(struct pending *o)
{
	pthread_mutex_lock(&o->lock);
	while (!list_empty(&o->acknowledged)) {
		struct entry *e = container_of(o->acknowledged.next, struct entry, link);
		o->acknowledged_count--;
		e->pending = true;
		open_locked(o, e);
	}
	note_any_locked(o);
	pthread_mutex_unlock(&o->lock);
}

bool pending_all_begin(struct pending *o, int64_t *ret_since_ms, uint64_t *ret_version)
{
	pthread_mutex_lock(&o->lock);
	bool all = o->all;
	*ret_since_ms = o->all_since_ms;
	*ret_version = o->all_version;
	pthread_mutex_unlock(&o->lock);
	return all;
}

void pending_all_end(struct pending *o, uint64_t version)
{
	pthread_mutex_lock(&o->lock);
	if (version == o->all_version)
		o->all = false;
	note_any_locked(o);
	pthread_mutex_unlock(&o->lock);
}
