/* A hash table of names and their ids. Zero-initialised it is empty. Not thread-safe. */
#pragma once

#include "base/arena.h"
#include "base/err.h"

struct name_entry {
	uint64_t hash; /* keyed with a secret */
	struct str text;
	uint32_t id;     /* 0: an empty slot */
	int64_t day;     /* ads: last used */
	bool is_changed; /* must be written to the database */
};

struct name_table {
	struct name_entry *slots; /* open addressing, at most half full */
	size_t slot_count, count;
	struct arena texts;
};

/* NULL: not found. Valid until the next put. */
struct name_entry *name_table_find(const struct name_table *t, uint64_t hash, struct str text);

/* Copies the text. An existing entry only gets the later day. 0 or ERR_NOMEM. */
int name_table_put(struct name_table *t, struct name_entry name);
void name_table_forget(struct name_table *t); /* all entries */
