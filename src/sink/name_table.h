/* Names and their numbers, remembered by a thread. Zero-initialised is empty. */
#pragma once

#include "base/arena.h"
#include "base/err.h"

struct name {
	uint64_t hash; /* keyed with a secret */
	struct str text;
	uint32_t id;     /* 0: an empty slot */
	int64_t day;     /* of ads: last used */
	bool is_changed; /* the database is to be told */
};

struct name_table {
	struct name *slots; /* open addressing, at most half full */
	size_t slot_count, count;
	struct arena texts;
};

/* NULL: it is not there. Good until the next one is put. */
struct name *name_table_find(const struct name_table *t, uint64_t hash, struct str text);

/* Copies the text. One that is there only gets a later day. 0 or ERR_NOMEM. */
int name_table_put(struct name_table *t, struct name name);
void name_table_forget(struct name_table *t); /* all of them */
