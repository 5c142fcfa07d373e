#include "obs/log_ring.h"

#include <pthread.h>
#include <stdlib.h>

/* In the ring, in front of an entry's text. */
struct log_record {
	uint32_t bytes; /* with text and padding, a multiple of RECORD_ALIGN */
	uint32_t text_len;
	uint64_t lost;
	int64_t time_ms;
	const char *module;
	int level;
};

enum {
	RECORD_ALIGN = 8,
	/* After a loss, this much must be free before the ring takes lines again. Otherwise, in a flood, each
	 * line that just fits would come with a notice of its own. More than one line can need. */
	RESUME_BYTES = LOG_RING_BYTES / 4,
};

static struct log_ring *_Atomic rings; /* only ever grows */
static pthread_mutex_t rings_lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local struct log_ring *own;
static pthread_key_t own_key; /* its destructor runs when a thread ends */
static pthread_once_t own_key_once = PTHREAD_ONCE_INIT;

static void copy_in(struct log_ring *r, uint64_t at, const void *data, size_t len)
{
	size_t offset = at & (LOG_RING_BYTES - 1);
	size_t first = MIN(len, LOG_RING_BYTES - offset);
	memcpy(r->data + offset, data, first);
	memcpy(r->data, (const char *)data + first, len - first);
}

static void copy_out(const struct log_ring *r, uint64_t at, void *data, size_t len)
{
	size_t offset = at & (LOG_RING_BYTES - 1);
	size_t first = MIN(len, LOG_RING_BYTES - offset);
	memcpy(data, r->data + offset, first);
	memcpy((char *)data + first, r->data, len - first);
}

bool log_ring_push(struct log_ring *r, const struct log_entry *entry)
{
	ASSERT(entry->text.len <= LOG_TEXT_MAX);
	size_t need = sizeof(struct log_record) + entry->text.len;
	need = (need + RECORD_ALIGN - 1) / RECORD_ALIGN * RECORD_ALIGN;
	uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
	uint64_t tail = atomic_load_explicit(&r->tail, memory_order_acquire); /* pairs with the pop's store */
	bool losing = atomic_load_explicit(&r->lost, memory_order_relaxed) > 0;
	if (LOG_RING_BYTES - (head - tail) < (losing ? RESUME_BYTES : need)) {
		atomic_fetch_add_explicit(&r->lost, 1, memory_order_relaxed);
		return false;
	}
	struct log_record record = {
	    .bytes = (uint32_t)need,
	    .text_len = (uint32_t)entry->text.len,
	    .lost = log_ring_take_lost(r),
	    .time_ms = entry->time_ms,
	    .module = entry->module,
	    .level = entry->level,
	};
	copy_in(r, head, &record, sizeof(record));
	copy_in(r, head + sizeof(record), entry->text.ptr, entry->text.len);
	atomic_store(&r->head, head + need); /* pairs with the pop's load */
	return true;
}

bool log_ring_pop(struct log_ring *r, struct log_entry *ret, char text[LOG_TEXT_MAX], uint64_t *ret_lost)
{
	struct log_record record;
	uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
	if (atomic_load(&r->head) == tail)
		return false;
	copy_out(r, tail, &record, sizeof(record));
	copy_out(r, tail + sizeof(record), text, record.text_len);
	atomic_store_explicit(&r->tail, tail + record.bytes, memory_order_release);
	*ret = (struct log_entry){.time_ms = record.time_ms,
	                          .level = record.level,
	                          .module = record.module,
	                          .text = str_n(text, record.text_len)};
	*ret_lost = record.lost;
	return true;
}

uint64_t log_ring_take_lost(struct log_ring *r)
{
	if (LIKELY(atomic_load_explicit(&r->lost, memory_order_relaxed) == 0))
		return 0;
	return atomic_exchange_explicit(&r->lost, 0, memory_order_relaxed);
}

static void abandon(void *arg)
{
	struct log_ring *r = arg;
	own = NULL;
	pthread_mutex_lock(&rings_lock);
	r->owned = false;
	pthread_mutex_unlock(&rings_lock);
}

static void own_key_make(void)
{
	int error = pthread_key_create(&own_key, abandon);
	ASSERT(error == 0);
}

static struct log_ring *take_locked(void)
{
	struct log_ring *r;
	for (r = atomic_load(&rings); r; r = r->next) {
		if (!r->owned && atomic_load(&r->head) == atomic_load(&r->tail))
			return r;
	}
	r = aligned_alloc(CACHE_LINE_BYTES, sizeof(*r));
	if (!r)
		return NULL;
	memset(r, 0, offsetof(struct log_ring, data));
	r->next = atomic_load(&rings);
	atomic_store(&rings, r);
	return r;
}

struct log_ring *log_ring_own(void)
{
	if (LIKELY(own))
		return own;
	pthread_once(&own_key_once, own_key_make);
	pthread_mutex_lock(&rings_lock);
	struct log_ring *r = take_locked();
	if (r)
		r->owned = true;
	pthread_mutex_unlock(&rings_lock);
	if (r && pthread_setspecific(own_key, r) != 0) {
		abandon(r);
		return NULL;
	}
	own = r;
	return r;
}

struct log_ring *log_ring_first(void)
{
	return atomic_load(&rings);
}
