/* For tests of the key pipeline: keys that are numbered, and all different. */
#pragma once

#include "lib/test.h"
#include "link/key_source.h"

/* Number `number` (below 10^7) as a key. */
struct source_key pipe_key(unsigned number);
void pipe_keys(struct source_key *ret, size_t n, unsigned first);
unsigned pipe_key_number(const struct source_key *key);

/* Which numbers were seen; fails the test at one that was seen before. */
struct pipe_seen {
	bool *seen;
	size_t room, count;
};
void pipe_seen_init(struct pipe_seen *s, size_t room);
void pipe_seen_release(struct pipe_seen *s);
void pipe_seen_note(struct pipe_seen *s, const struct source_key *keys, size_t n);

/* As the source's take, but it retries when it must: its servers may be slow. */
int pipe_take(struct key_source *from, struct source_key *ret, size_t n, size_t *ret_count, struct err *e);

/* A source that counts: never gives a number twice, and marks every third as used before. */
struct key_source *pipe_source_new(unsigned first);
