/*
 * The role `limiter` in memory, as its interface promises it: budgets of several servers that live in one
 * process. All limiters of one world settle with each other.
 */
#pragma once

#include "base/list.h"
#include "limiter/limiter.h"

struct limiter_world {
	int64_t now_ms; /* 0: the real clock's; otherwise time stands until it is moved */
	bool is_away;   /* nobody is heard */
	bool is_mute;   /* all are heard, nobody is answered */
	struct list rows;
	struct list limiters;
};

void limiter_world_init(struct limiter_world *w);
void limiter_world_forget(struct limiter_world *w); /* all budgets and servers */
int limiter_memory_open(struct limiter_world *w, struct limiter **ret, struct err *e);

/* What all servers of the world have told that they used; and with what they were granted. */
uint64_t limiter_world_used(struct limiter_world *w, uint64_t owner);
uint64_t limiter_world_granted(struct limiter_world *w, uint64_t owner);
