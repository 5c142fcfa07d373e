/*
 * When API keys were last used, until the store is told: a table of fixed size, so that it costs the same
 * however many keys there are. A slot is taken by the first use since the store was told last. Lock-free:
 * workers note, any thread looks, one thread takes. When too many keys are used between two takings, some
 * uses are forgotten.
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

/* 0: not since the store was told. */
int64_t key_uses_last(const struct key_uses *u, uint64_t key);

/* Writes of REGISTRY_KEY_USED, at most `max`, beginning at slot *at, which moves on; returns how many.
 * `writes` are zeroed before. Each use is given once. */
size_t key_uses_take(struct key_uses *u, size_t *at, struct registry_write *writes, size_t max);
