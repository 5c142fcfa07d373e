#include "sink/sqlite_seen.h"
#include "base/grow.h"
#include "base/hash.h"

#include <stdlib.h>

enum {
	SLOTS_MIN = 1024,
	SPANS_PER_WINDOW = 24, /* a run covers at most this fraction of the window */
	CHUNK_ENTRIES = 200,   /* 4,000 bytes: a chunk fits a page */
	CHUNKS_PER_DROP = 256,
	FILTER_WORDS = 8, /* one block: 512 bits, a cache line */
	FILTER_BLOCK_ENTRIES = 32,
	FILTER_PROBES = 8,
};

_Static_assert(sizeof(struct seen_entry) == 20, "stored as it is");

static int64_t received_of(const struct seen_entry *e)
{
	uint64_t received;
	memcpy(&received, e->received, sizeof(received));
	return (int64_t)(received ^ 1ULL << 63);
}

static bool slot_is_empty(const struct seen_entry *e)
{
	return received_of(e) == INT64_MIN;
}

/* Fingerprints are hashes already; this only distributes their bits. */
static uint64_t hash_of(const struct seen_entry *e)
{
	uint64_t low, high = 0;
	memcpy(&low, e->fingerprint, 8);
	memcpy(&high, e->fingerprint + 8, SINK_FINGERPRINT_BYTES - 8);
	return hash_mix(low ^ 0x9e3779b97f4a7c15ULL, high ^ 0xbf58476d1ce4e5b9ULL);
}

static uint32_t prefix_of(const struct seen_entry *e)
{
	uint32_t prefix;
	memcpy(&prefix, e->fingerprint, 4);
	return __builtin_bswap32(prefix); /* sorts like the bytes */
}

static bool is_duplicate(const struct seen_index *s, const struct seen_entry *a, const struct seen_entry *b)
{
	if (memcmp(a->fingerprint, b->fingerprint, SINK_FINGERPRINT_BYTES) != 0)
		return false;
	int64_t apart = received_of(a) - received_of(b);
	return apart < s->window_ms && -apart < s->window_ms;
}

/* --- the table --- */

static void table_put(struct seen_table *t, const struct seen_entry *e)
{
	size_t at = hash_of(e) & (t->slot_count - 1);
	while (!slot_is_empty(&t->slots[at]))
		at = (at + 1) & (t->slot_count - 1);
	t->slots[at] = *e;
	int64_t received = received_of(e);
	t->oldest_ms = t->count == 0 ? received : MIN(t->oldest_ms, received);
	t->newest_ms = t->count == 0 ? received : MAX(t->newest_ms, received);
	t->count++;
}

static int table_room(struct seen_table *t, size_t more)
{
	size_t slots = t->slot_count ? t->slot_count : SLOTS_MIN;
	while ((t->count + more) * 4 > slots * 3)
		slots *= 2;
	if (slots == t->slot_count)
		return SQLITE_OK;
	struct seen_table larger = {.slots = calloc(slots, sizeof(*larger.slots)), .slot_count = slots};
	if (!larger.slots)
		return SQLITE_NOMEM;
	for (size_t i = 0; i < t->slot_count; i++)
		if (!slot_is_empty(&t->slots[i]))
			table_put(&larger, &t->slots[i]);
	free(t->slots);
	*t = larger;
	return SQLITE_OK;
}

static bool table_has(const struct seen_index *s, const struct seen_entry *e)
{
	const struct seen_table *t = &s->table;
	if (t->count == 0)
		return false;
	for (size_t at = hash_of(e) & (t->slot_count - 1); !slot_is_empty(&t->slots[at]);
	     at = (at + 1) & (t->slot_count - 1))
		if (is_duplicate(s, e, &t->slots[at]))
			return true;
	return false;
}

static void table_clear(struct seen_table *t)
{
	free(t->slots); /* the next one grows as it needs */
	*t = (struct seen_table){0};
}

/* --- filters --- */

/* The upper half of the hash selects the block, a remix of the hash the bits in it. */
static uint64_t *filter_block(const struct seen_run *r, uint64_t hash)
{
	return r->filter + (size_t)(((hash >> 32) * r->block_count) >> 32) * FILTER_WORDS;
}

static bool filter_has(const struct seen_run *r, uint64_t hash)
{
	const uint64_t *block = filter_block(r, hash);
	uint64_t bits = hash_mix(hash, 0x94d049bb133111ebULL);
	for (int i = 0; i < FILTER_PROBES; i++, bits >>= 8)
		if (!(block[i] >> (bits & 63) & 1))
			return false;
	return true;
}

static int filter_new(struct seen_run *r, size_t entries)
{
	r->block_count = entries / FILTER_BLOCK_ENTRIES + 1;
	r->filter = aligned_alloc(CACHE_LINE_BYTES, r->block_count * CACHE_LINE_BYTES);
	if (!r->filter)
		return SQLITE_NOMEM;
	memset(r->filter, 0, r->block_count * CACHE_LINE_BYTES);
	return SQLITE_OK;
}

/* --- runs --- */

static int64_t chunk_key(int64_t run, uint32_t prefix)
{
	return run << 32 | prefix;
}

static int entry_compare(const void *a, const void *b)
{
	return memcmp(a, b, SINK_FINGERPRINT_BYTES);
}

static int chunks_write(struct sqlite_conn *c, int64_t run, const struct seen_entry *entries, size_t count)
{
	int rc = SQLITE_OK;
	for (size_t at = 0, end; rc == SQLITE_OK && at < count; at = end) {
		/* Entries with the same first four bytes share a chunk: its key has no more. */
		end = MIN(at + CHUNK_ENTRIES, count);
		while (end < count && prefix_of(&entries[end]) == prefix_of(&entries[end - 1]))
			end++;
		CLEANUP(query_end)
		struct query q = QUERY(c, SQL_SEEN_CHUNK_INSERT, chunk_key(run, prefix_of(&entries[at])));
		query_blob(&q, entries + at, (end - at) * sizeof(*entries));
		rc = query_run(&q);
	}
	return rc;
}

static int seal(struct seen_index *s, struct sqlite_conn *c)
{
	s->sealed = (struct seen_run){.newest_ms = s->table.newest_ms};
	s->sealing = true;
	struct seen_entry *entries = malloc(MAX(s->table.count, 1) * sizeof(*entries));
	int rc = entries ? filter_new(&s->sealed, s->table.count) : SQLITE_NOMEM;
	if (rc == SQLITE_OK && !ARRAY_ROOM(s->runs, s->run_cap, s->run_count + 1))
		rc = SQLITE_NOMEM; /* reserved now, because nothing may fail after the commit */
	if (rc == SQLITE_OK) {
		size_t count = 0;
		for (size_t i = 0; i < s->table.slot_count; i++)
			if (!slot_is_empty(&s->table.slots[i]))
				entries[count++] = s->table.slots[i];
		ASSERT(count == s->table.count);
		qsort(entries, count, sizeof(*entries), entry_compare);
		for (size_t i = 0; i < count; i++) {
			uint64_t hash = hash_of(&entries[i]);
			uint64_t *block = filter_block(&s->sealed, hash),
			         bits = hash_mix(hash, 0x94d049bb133111ebULL);
			for (int k = 0; k < FILTER_PROBES; k++, bits >>= 8)
				block[k] |= 1ULL << (bits & 63);
		}
		CLEANUP(query_end) struct query q = QUERY(c, SQL_SEEN_RUN_INSERT, s->sealed.newest_ms);
		query_blob(&q, s->sealed.filter, s->sealed.block_count * CACHE_LINE_BYTES);
		rc = query_run(&q);
		s->sealed.run = sqlite3_last_insert_rowid(c->db);
		if (rc == SQLITE_OK)
			rc = chunks_write(c, s->sealed.run, entries, count);
		if (rc == SQLITE_OK)
			rc = sqlite_conn_run(c, SQL_SEEN_BATCH_DELETE);
	}
	free(entries);
	return rc;
}

static bool chunk_has(const struct seen_index *s, const struct seen_entry *chunk, size_t count,
                      const struct seen_entry *e)
{
	size_t low = 0, high = count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (entry_compare(&chunk[middle], e) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < count && entry_compare(&chunk[low], e) == 0; low++)
		if (is_duplicate(s, &chunk[low], e))
			return true;
	return false;
}

static int run_has(const struct seen_index *s, struct sqlite_conn *c, const struct seen_run *r,
                   const struct seen_entry *e, bool *ret)
{
	CLEANUP(query_end)
	struct query q = QUERY(c, SQL_SEEN_CHUNK_AT, chunk_key(r->run, 0), chunk_key(r->run, prefix_of(e)));
	bool found;
	int rc = query_find(&q, &found);
	if (rc != SQLITE_OK || !found)
		return rc;
	struct str blob = column_blob(&q, 0);
	if (blob.len % sizeof(*e) != 0)
		return SQLITE_CORRUPT;
	*ret = chunk_has(s, (const struct seen_entry *)blob.ptr, blob.len / sizeof(*e), e);
	return SQLITE_OK;
}

/* --- interface --- */

void seen_init(struct seen_index *s, int64_t window_ms)
{
	*s = (struct seen_index){.window_ms = window_ms, .seal_at = SEEN_SEAL_AT};
}

static void forget_all(struct seen_index *s)
{
	for (size_t i = 0; i < s->run_count; i++)
		free(s->runs[i].filter);
	s->run_count = 0;
	table_clear(&s->table);
}

void seen_release(struct seen_index *s)
{
	forget_all(s);
	free(s->runs);
	*s = (struct seen_index){0};
}

static int load_runs(struct seen_index *s, struct sqlite_conn *c)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_SEEN_RUNS);
	int rc;
	while ((rc = query_step(&q)) == SQLITE_ROW) {
		struct seen_run r = {.run = sqlite3_column_int64(q.stmt, 0),
		                     .newest_ms = sqlite3_column_int64(q.stmt, 1)};
		struct str blob = column_blob(&q, 2);
		size_t len = blob.len;
		if (len == 0 || len % CACHE_LINE_BYTES != 0)
			return SQLITE_CORRUPT;
		r.block_count = len / CACHE_LINE_BYTES;
		r.filter = ARRAY_ROOM(s->runs, s->run_cap, s->run_count + 1)
		               ? aligned_alloc(CACHE_LINE_BYTES, len)
		               : NULL;
		if (!r.filter)
			return SQLITE_NOMEM;
		memcpy(r.filter, blob.ptr, len);
		s->runs[s->run_count++] = r;
	}
	return db_done(rc);
}

static int load_table(struct seen_index *s, struct sqlite_conn *c)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_SEEN_BATCHES);
	int rc;
	while ((rc = query_step(&q)) == SQLITE_ROW) {
		const struct seen_entry *entries = sqlite3_column_blob(q.stmt, 0);
		size_t len = (size_t)sqlite3_column_bytes(q.stmt, 0), count = len / sizeof(*entries);
		if (len % sizeof(*entries) != 0)
			return SQLITE_CORRUPT;
		if (table_room(&s->table, count) != SQLITE_OK)
			return SQLITE_NOMEM;
		for (size_t i = 0; i < count; i++)
			table_put(&s->table, &entries[i]);
	}
	return db_done(rc);
}

int seen_load(struct seen_index *s, struct sqlite_conn *c)
{
	forget_all(s);
	return load_runs(s, c) ?: load_table(s, c);
}

/* Run by run, not entry by entry, so that the filter blocks can be prefetched. */
static int check_run(struct seen_index *s, struct sqlite_conn *c, const struct seen_run *r,
                     const struct seen_entry *entries, const uint64_t *hashes, size_t count, bool *seen)
{
	enum { AHEAD = 16 };
	int rc = SQLITE_OK;
	for (size_t i = 0; rc == SQLITE_OK && i < count; i++) {
		if (i + AHEAD < count)
			__builtin_prefetch(filter_block(r, hashes[i + AHEAD]));
		if (!seen[i] && filter_has(r, hashes[i]))
			rc = run_has(s, c, r, &entries[i], &seen[i]);
	}
	return rc;
}

int seen_check(struct seen_index *s, struct sqlite_conn *c, const struct seen_entry *entries, size_t count,
               bool *ret_seen)
{
	uint64_t *hashes = malloc(MAX(count, 1) * sizeof(*hashes));
	if (!hashes)
		return SQLITE_NOMEM;
	int64_t oldest_ms = INT64_MAX;
	for (size_t i = 0; i < count; i++) {
		hashes[i] = hash_of(&entries[i]);
		ret_seen[i] = table_has(s, &entries[i]);
		oldest_ms = MIN(oldest_ms, received_of(&entries[i]));
	}
	int rc = SQLITE_OK;
	for (size_t i = 0; rc == SQLITE_OK && i < s->run_count; i++)
		if (oldest_ms - s->runs[i].newest_ms < s->window_ms)
			rc = check_run(s, c, &s->runs[i], entries, hashes, count, ret_seen);
	free(hashes);
	return rc;
}

int seen_add(struct seen_index *s, struct sqlite_conn *c, const struct seen_entry *entries, size_t count)
{
	s->added = entries;
	s->added_count = count;
	if (count == 0)
		return SQLITE_OK;
	bool is_wide = s->table.count > 0 &&
	               s->table.newest_ms - s->table.oldest_ms > s->window_ms / SPANS_PER_WINDOW;
	int rc = s->table.count >= s->seal_at || is_wide ? seal(s, c) : SQLITE_OK;
	if (rc == SQLITE_OK && !s->sealing)
		rc = table_room(&s->table, count);
	if (rc != SQLITE_OK)
		return rc;
	CLEANUP(query_end) struct query q = query_begin(c, SQL_SEEN_BATCH_INSERT);
	query_blob(&q, entries, count * sizeof(*entries));
	return query_run(&q);
}

int seen_committed(struct seen_index *s)
{
	int rc = SQLITE_OK;
	if (s->sealing) {
		s->runs[s->run_count++] = s->sealed;
		s->sealed = (struct seen_run){0};
		table_clear(&s->table);
		rc = table_room(&s->table, s->added_count);
	}
	for (size_t i = 0; rc == SQLITE_OK && i < s->added_count; i++)
		table_put(&s->table, &s->added[i]);
	seen_rolled_back(s);
	return rc;
}

void seen_rolled_back(struct seen_index *s)
{
	if (s->sealing)
		free(s->sealed.filter);
	s->sealed = (struct seen_run){0};
	s->sealing = false;
	s->added = NULL;
	s->added_count = 0;
}

int seen_drop(struct seen_index *s, struct sqlite_conn *c, int64_t horizon_ms, bool *ret_more,
              int64_t *ret_run)
{
	*ret_more = false;
	*ret_run = 0;
	for (size_t i = 0; i < s->run_count; i++) {
		const struct seen_run *r = &s->runs[i];
		if (r->newest_ms > horizon_ms - s->window_ms)
			continue;
		*ret_more = true;
		int rc = RUN(c, SQL_SEEN_CHUNK_DELETE, chunk_key(r->run, 0), chunk_key(r->run + 1, 0),
		             CHUNKS_PER_DROP);
		if (rc == SQLITE_OK && sqlite3_changes(c->db) < CHUNKS_PER_DROP) {
			rc = RUN(c, SQL_SEEN_RUN_DELETE, r->run);
			*ret_run = r->run;
		}
		return rc;
	}
	return SQLITE_OK;
}

void seen_dropped(struct seen_index *s, int64_t run)
{
	for (size_t i = 0; i < s->run_count; i++) {
		if (s->runs[i].run != run)
			continue;
		free(s->runs[i].filter);
		memmove(&s->runs[i], &s->runs[i + 1], (s->run_count - i - 1) * sizeof(s->runs[0]));
		s->run_count--;
		return;
	}
}
