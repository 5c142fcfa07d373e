#include "rcache/owed.h"

#include "base/hash.h"
#include "base/list.h"
#include "os/clock.h"

#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { BUCKETS = 16384 };

struct entry {
	struct list link; /* in `open` or `told`, in the order of coming */
	struct entry *next;
	unsigned attempts; /* under way */
	bool owed;         /* one has failed */
	int64_t told_ms;   /* when none is under way or owed */
	size_t len;
	char key[];
};

struct owed {
	_Atomic bool any; /* something is open: so that looking costs nothing while all is well */
	pthread_mutex_t lock;
	struct list open, told;
	size_t open_count, told_count;
	uint64_t seed;
	struct entry **buckets;
	bool all;
	uint64_t all_version;
	int64_t all_since_ms;
};

struct owed *owed_new(void)
{
	struct owed *o = calloc(1, sizeof(*o));
	struct entry **buckets = calloc(BUCKETS, sizeof(struct entry *));
	if (!o || !buckets) {
		free(o);
		free(buckets);
		return NULL;
	}
	o->buckets = buckets;
	randombytes_buf(&o->seed, sizeof(o->seed));
	list_init(&o->open);
	list_init(&o->told);
	pthread_mutex_init(&o->lock, NULL);
	return o;
}

void owed_free(struct owed *o)
{
	if (!o)
		return;
	struct list *node;
	list_splice(&o->open, &o->told);
	while ((node = list_pop(&o->open)))
		free(container_of(node, struct entry, link));
	pthread_mutex_destroy(&o->lock);
	free(o->buckets);
	free(o);
}

/* Where the entry's pointer is, or would be. */
static struct entry **find_locked(struct owed *o, struct str key)
{
	struct entry **at = &o->buckets[hash_str(key, o->seed) % BUCKETS];
	while (*at && !str_eq(str_n((*at)->key, (*at)->len), key))
		at = &(*at)->next;
	return at;
}

static bool is_open(const struct entry *e)
{
	return e->attempts > 0 || e->owed;
}

static void forget_oldest_locked(struct owed *o)
{
	struct entry *e = container_of(o->told.next, struct entry, link);
	*find_locked(o, str_n(e->key, e->len)) = e->next;
	list_remove(&e->link);
	o->told_count--;
	free(e);
}

/* A new entry, in no list yet; NULL when there is no room. */
static struct entry *add_locked(struct owed *o, struct str key)
{
	if (o->open_count >= OWED_KEYS_MAX)
		return NULL;
	if (o->open_count + o->told_count >= OWED_KEYS_MAX)
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

static void open_locked(struct owed *o, struct entry *e)
{
	list_remove(&e->link);
	list_push(&o->open, &e->link);
	o->open_count++;
}

static void all_locked(struct owed *o)
{
	o->all = true;
	o->all_version++;
	o->all_since_ms = clock_mono_ms();
}

static void note_any_locked(struct owed *o)
{
	atomic_store_explicit(&o->any, o->open_count > 0 || o->all, memory_order_release);
}

void owed_begin(struct owed *o, const struct str *keys, size_t n)
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
			o->told_count -= is_new ? 0 : 1;
			open_locked(o, e);
		}
		e->attempts++;
	}
	note_any_locked(o);
	pthread_mutex_unlock(&o->lock);
}

void owed_end(struct owed *o, const struct str *keys, size_t n, bool told)
{
	pthread_mutex_lock(&o->lock);
	for (size_t i = 0; i < n; i++) {
		struct entry *e = *find_locked(o, keys[i]);
		if (!e || e->attempts == 0) { /* it found no room when it began */
			if (!told)
				all_locked(o);
			continue;
		}
		e->attempts--;
		e->owed |= !told;
		if (!is_open(e)) {
			e->told_ms = clock_mono_ms();
			list_remove(&e->link);
			list_push(&o->told, &e->link);
			o->open_count--;
			o->told_count++;
			while (e->told_ms - container_of(o->told.next, struct entry, link)->told_ms >
			       OWED_RECENT_MS)
				forget_oldest_locked(o);
		}
	}
	note_any_locked(o);
	pthread_mutex_unlock(&o->lock);
}

bool owed_any(const struct owed *o)
{
	/* Whoever was told of the change by its maker sees what its maker stored. */
	return atomic_load_explicit(&o->any, memory_order_acquire);
}

bool owed_has(struct owed *o, struct str key)
{
	if (!owed_any(o))
		return false;
	pthread_mutex_lock(&o->lock);
	const struct entry *e = *find_locked(o, key);
	bool has = o->all || (e && is_open(e));
	pthread_mutex_unlock(&o->lock);
	return has;
}

size_t owed_count(struct owed *o)
{
	pthread_mutex_lock(&o->lock);
	size_t count = o->open_count;
	pthread_mutex_unlock(&o->lock);
	return count;
}

size_t owed_pick(struct owed *o, struct arena *arena, struct str *ret, size_t max)
{
	size_t n = 0;
	pthread_mutex_lock(&o->lock);
	for (struct list *i = o->open.next; i != &o->open && n < max; i = i->next) {
		struct entry *e = container_of(i, struct entry, link);
		struct str copy = e->owed ? arena_str(arena, str_n(e->key, e->len)) : STR_NULL;
		if (!copy.ptr)
			continue;
		e->owed = false;
		e->attempts++;
		ret[n++] = copy;
	}
	pthread_mutex_unlock(&o->lock);
	return n;
}

void owed_recall(struct owed *o)
{
	pthread_mutex_lock(&o->lock);
	while (!list_empty(&o->told)) {
		struct entry *e = container_of(o->told.next, struct entry, link);
		o->told_count--;
		e->owed = true;
		open_locked(o, e);
	}
	note_any_locked(o);
	pthread_mutex_unlock(&o->lock);
}

bool owed_all_begin(struct owed *o, int64_t *ret_since_ms, uint64_t *ret_version)
{
	pthread_mutex_lock(&o->lock);
	bool all = o->all;
	*ret_since_ms = o->all_since_ms;
	*ret_version = o->all_version;
	pthread_mutex_unlock(&o->lock);
	return all;
}

void owed_all_end(struct owed *o, uint64_t version)
{
	pthread_mutex_lock(&o->lock);
	if (version == o->all_version)
		o->all = false;
	note_any_locked(o);
	pthread_mutex_unlock(&o->lock);
}
