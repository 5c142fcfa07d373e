/*
 * Which fingerprints were seen within the window: a small log-structured tree, because ten million random
 *keys in a B-tree would write a page for each event.
 *
 * The newest lie in a table in memory; each commit also appends its own as one row of `seen_batch`. When the
 * table is full, or spans more than a part of the window, it is sealed into a run: sorted by fingerprint,
 * written in chunks of about a page (`seen_chunk`, keyed by the run and the first four bytes of the chunk's
 * first fingerprint), with a Bloom filter that is kept in memory and in `seen_run`; the batches go. A look-up
 * asks the table, then each run's filter, and a chunk only where a filter says "perhaps". A run whose newest
 * entry is out of the window of everything that may still come is dropped.
 *
 * Exact: an impression is a duplicate if one of its fingerprint that counted was received less than the
 * window away from it, before or after. Nothing in memory changes before the transaction is committed:
 *
 *	seen_check, seen_add in the transaction; then seen_committed, or seen_rolled_back.
 */
#pragma once

#include "sink/sink.h"
#include "sink/sqlite_sink.h"

struct seen_entry {
	uint8_t fingerprint[SINK_FINGERPRINT_BYTES];
	uint8_t received[8]; /* milliseconds with the sign bit turned; all 0: an empty slot */
};

struct seen_table {
	struct seen_entry *slots; /* open addressing; one fingerprint may be there several times */
	size_t slot_count;        /* a power of two, or 0 */
	size_t count;
	int64_t oldest_ms, newest_ms;
};

struct seen_run {
	int64_t run;
	int64_t newest_ms;
	uint64_t *filter; /* blocks of a cache line */
	size_t block_count;
};

struct seen {
	int64_t window_ms;
	size_t sealed_at; /* entries */
	struct seen_table table;
	struct seen_run *runs;
	size_t run_count, run_cap;

	/* of the transaction under way */
	const struct seen_entry *added; /* the caller's, until it has ended */
	size_t added_count;
	bool sealing;
	struct seen_run sealed;
};

enum { SEEN_SEALED_AT = 393216 }; /* three quarters of the table at its largest: 10 MB */

void seen_init(struct seen *s, int64_t window_ms);
void seen_release(struct seen *s);

static inline struct seen_entry seen_entry_of(const struct sink_impression *i)
{
	uint64_t received = (uint64_t)i->received_ms ^ 1ULL << 63;
	struct seen_entry entry;
	memcpy(entry.received, &received, sizeof(received));
	memcpy(entry.fingerprint, i->fingerprint, SINK_FINGERPRINT_BYTES);
	return entry;
}

/* These answer with SQLite's codes. */

int seen_load(struct seen *s, struct sqlite_conn *c); /* from the file, whatever was there before */

/* Sets ret_seen[i] for each entry that was seen before. */
int seen_check(struct seen *s, struct sqlite_conn *c, const struct seen_entry *entries, size_t count,
               bool *ret_seen);

/* Remembers new ones; `entries` must live until one of the two below. */
int seen_add(struct seen *s, struct sqlite_conn *c, const struct seen_entry *entries, size_t count);
int seen_committed(struct seen *s); /* SQLITE_NOMEM: load again */
void seen_rolled_back(struct seen *s);

/* One small step of dropping what nobody can repeat any more, in a transaction of its own that the caller has
 * begun; `horizon_ms` is the oldest reception that may still come. *ret_more: it did something. Followed by
 * seen_dropped when committed. */
int seen_drop(struct seen *s, struct sqlite_conn *c, int64_t horizon_ms, bool *ret_more, int64_t *ret_run);
void seen_dropped(struct seen *s, int64_t run); /* 0: none */
