/*
 * A loopback address that passes bytes on to a server and back, until a test wants it to stop: to see what
 * happens when a server goes away, without touching one that others use.
 */
#pragma once

#include "base/def.h"

struct relay;

/* `server` is HOST:PORT, numeric. */
struct relay *relay_start(const char *server);
void relay_stop(struct relay *r); /* NULL is fine */

const char *relay_address(const struct relay *r); /* 127.0.0.1:PORT */

enum relay_mode {
	RELAY_PASS,
	RELAY_HOLD, /* connections stay and are accepted, but nothing comes through, as from a paused machine
	             */
	RELAY_MUTE, /* what clients say arrives, the server's answers are dropped */
	RELAY_CUT,  /* connections are closed, new ones too at once, as from a machine that restarts */
};

/* In force when it returns. */
void relay_set(struct relay *r, enum relay_mode mode);

/* How many bytes of answers were dropped. */
size_t relay_dropped(const struct relay *r);

/*
 * Once: closes the connection whose client sends `text` (within one packet), before the server has it, or
 * after that but before the client has the answer. With `stays` the mode is RELAY_CUT from then on. NULL: not
 * any more.
 */
void relay_cut_at(struct relay *r, const char *text, bool after, bool stays);
