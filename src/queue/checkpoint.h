/*
 * How far a reader of the event log has come, in a file of the data folder: for readers whose consumer keeps
 * no positions. It may lag behind after a crash, never run ahead: what is read twice has the same ids.
 */
#pragma once

#include "base/arena.h"
#include "event/log.h"

struct checkpoint {
	struct position *positions;
	size_t count;
	struct event_counts counts; /* all that was ever read */
};

/* One that is not there is empty. One that is damaged is, too, and said to be: all is read again then. */
int checkpoint_read(const char *path, struct arena *arena, struct checkpoint *ret, struct err *e);

/* Replaces it in one step that survives power loss. */
int checkpoint_write(const char *path, const struct checkpoint *c, struct err *e);
