/*
 * Events that could not be processed, one JSON object a line, with the reason: for people to look at, and
 * nothing reads them back. The file is bounded: when it is full it is renamed to NAME.1, over the one before.
 */
#pragma once

#include "base/err.h"
#include "base/position.h"
#include "event/format.h"

struct dead_letters;

int dead_letters_new(const char *folder, struct dead_letters **ret, struct err *e);
void dead_letters_free(struct dead_letters *d);

/* Written at once. A letter that cannot be written is logged and counted all the same. */
void dead_letters_add(struct dead_letters *d, struct event_id id, const struct event *ev, const char *reason);
