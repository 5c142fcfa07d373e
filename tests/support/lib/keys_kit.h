/* For tests of the key pipeline: keys that are numbered, and all different; and waiting for conditions. */
#pragma once

#include "link/source.h"
#include "os/clock.h"

#include <time.h>

enum { PIPE_PATIENCE_MS = 30000 };

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

/* A source that counts: never gives a number twice, and marks every third as used before. */
struct key_source *pipe_source_new(unsigned first);

/* Looks again and again; fails the test when it was in vain. */
#define UNTIL(condition)                                                         \
	do {                                                                     \
		int64_t end_ms_ = clock_mono_ms() + PIPE_PATIENCE_MS;            \
		while (!(condition)) {                                           \
			if (clock_mono_ms() > end_ms_)                           \
				fail_msg("waited in vain until %s", #condition); \
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); \
		}                                                                \
	} while (0)
