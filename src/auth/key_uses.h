/*
 * When API keys were last used, until the housekeeper writes it to the store. The table has a fixed size, so
 * its cost does not depend on the number of keys. If too many keys are used between two writes, some uses are
 * lost. Lock-free: workers note, any thread reads, one thread takes.
 */
#pragma once

#include "store/store.h"

#include <stdatomic.h>

enum { KEY_USES_SLOTS = 1 << 15 };

struct key_use {
	_Atomic uint64_t key; /* 0: free */
	_Atomic int64_t used_ms;
};

struct key_uses {
	struct key_use slots[KEY_USES_SLOTS];
};

void key_uses_note(struct key_uses *u, uint64_t key, int64_t now_ms);

/* 0: not since the last take. */
int64_t key_uses_last(const struct key_uses *u, uint64_t key);

/* Moves uses out of the table from slot *at on, which advances, into at most `max` writes of
 * REGISTRY_KEY_USED; returns how many. The caller zeroes `writes`. Each use is taken once. */
size_t key_uses_take(struct key_uses *u, size_t *at, struct registry_write *writes, size_t max);
