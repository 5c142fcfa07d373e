/*
 * The index of fingerprints seen within the window: a small log-structured merge tree, because ten million
 * random keys in a B-tree would write a page for each event.
 *
 *	table   in memory: the newest fingerprints. Each commit also appends its own to `seen_batch`.
 *	run     immutable, in the file: when the table is full, or covers more than a part of the window, it
 *	        is sealed into a run, and `seen_batch` is emptied. Entries are sorted and stored in chunks of
 *	        about a page (`seen_chunk`, keyed by the run and the first four bytes of the chunk's first
 *	        fingerprint). Its Bloom filter is in memory and in `seen_run`.
 *
 * A lookup checks the table, then the filter of each run, and reads a chunk only if the filter matches. A run
 * is dropped when its newest entry is out of the window of everything that may still arrive.
 *
 * Lookups are exact: an impression is a duplicate if a counted one with its fingerprint was received less
 * than the window before or after it. Memory changes only after the transaction is committed:
 *
 *	seen_check, seen_add                 in the transaction
 *	seen_committed or seen_rolled_back   after it
 */
#pragma once

#include "sink/sink.h"
#include "sink/sqlite_sink.h"

struct seen_entry {
	uint8_t fingerprint[SINK_FINGERPRINT_BYTES];
	uint8_t received[8]; /* milliseconds with the sign bit flipped; all 0: an empty slot */
};

struct seen_table {
	struct seen_entry *slots; /* open addressing; a fingerprint may occur several times */
	size_t slot_count;        /* a power of two, or 0 */
	size_t count;
	int64_t oldest_ms, newest_ms;
};

struct seen_run {
	int64_t run;
	int64_t newest_ms;
	uint64_t *filter; /* block_count blocks of a cache line */
	size_t block_count;
};

struct seen_index {
	int64_t window_ms;
	size_t seal_at; /* entries in the table */
	struct seen_table table;
	struct seen_run *runs;
	size_t run_count, run_cap;

	/* Of the transaction under way. */
	const struct seen_entry *added; /* the caller's, until the transaction has ended */
	size_t added_count;
	bool sealing;
	struct seen_run sealed;
};

enum { SEEN_SEAL_AT = 393216 }; /* three quarters of the table's largest size, 10 MB */

void seen_init(struct seen_index *s, int64_t window_ms);
void seen_release(struct seen_index *s);

static inline struct seen_entry seen_entry_of(const struct sink_impression *i)
{
	uint64_t received = (uint64_t)i->received_ms ^ 1ULL << 63;
	struct seen_entry entry;
	memcpy(entry.received, &received, sizeof(received));
	memcpy(entry.fingerprint, i->fingerprint, SINK_FINGERPRINT_BYTES);
	return entry;
}

/* The following return SQLite's codes. */

int seen_load(struct seen_index *s, struct sqlite_conn *c); /* replaces the index by the file's */

/* Sets ret_seen[i]: entries[i] was seen before. */
int seen_check(struct seen_index *s, struct sqlite_conn *c, const struct seen_entry *entries, size_t count,
               bool *ret_seen);

/* Adds new entries; they must live until one of the two calls below. */
int seen_add(struct seen_index *s, struct sqlite_conn *c, const struct seen_entry *entries, size_t count);
int seen_committed(struct seen_index *s); /* SQLITE_NOMEM: the caller must load it again */
void seen_rolled_back(struct seen_index *s);

/* One small step of dropping expired runs, in a transaction of its own that the caller has begun. Impressions
 * received before `horizon_ms` cannot arrive any more. *ret_more: it did something. When the transaction is
 * committed, call seen_dropped with *ret_run. */
int seen_drop(struct seen_index *s, struct sqlite_conn *c, int64_t horizon_ms, bool *ret_more,
              int64_t *ret_run);
void seen_dropped(struct seen_index *s, int64_t run); /* 0: none */
