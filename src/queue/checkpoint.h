/*
 * The positions of a reader of the event log, in a file of the data folder: for consumers that store no
 * positions. After a crash it may be behind, never ahead. Events read twice have the same ids.
 */
#pragma once

#include "base/arena.h"
#include "event/log.h"

struct checkpoint {
	struct position *positions;
	size_t count;
	struct event_counts counts; /* all that was ever read */
};

/* A missing file is empty. A damaged one is logged and treated as empty: the whole log is read again. */
int checkpoint_read(const char *path, struct arena *arena, struct checkpoint *ret, struct err *e);

/* Replaces the file atomically and durably. */
int checkpoint_write(const char *path, const struct checkpoint *c, struct err *e);

bool checkpoint_is_valid(struct str text); /* of the file */
