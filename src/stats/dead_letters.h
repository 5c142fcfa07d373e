/*
 * Events that could not be processed, with the reason: one JSON object per line, for people to read. When the
 * file is full, it is renamed to NAME.1, which replaces the previous one.
 */
#pragma once

#include "base/err.h"
#include "base/position.h"
#include "event/format.h"

struct dead_letters;

int dead_letters_new(const char *folder, struct dead_letters **ret, struct err *e);
void dead_letters_free(struct dead_letters *d);

/* Writes at once. A failure is only logged. */
void dead_letters_add(struct dead_letters *d, struct event_id id, const struct event *ev, const char *reason);
