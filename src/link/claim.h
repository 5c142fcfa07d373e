/*
 * A source of keys that gives keys out again: those of links whose time is over and whose quarantine has
 * ended, claimed from the store one server at a time (store.h: claim). When there are none, it makes new ones
 * as the cipher does, so that creating never stops for want of an ended link.
 *
 * Claiming is for good: a key that was claimed and then not used is lost. So no more are claimed than are
 * asked for, and what is given back is kept for the next who asks, or for later: a claimed one is tried again
 * after a second; a new one is dropped, as the cipher does, since there are more numbers where it came from.
 * A store that had none is not asked again for a moment.
 */
#pragma once

#include "link/source.h"
#include "store/store.h"

struct claim_config {
	struct store *store; /* with `claim`; outlives the source */
	const struct key_cipher *cipher;
	uint64_t quarantine_ms; /* the quarantine, as store_write.quarantine_ms */
	uint64_t id_block;      /* how many ids to lease at once, for new keys */
};

int claim_new(const struct claim_config *config, struct key_source **ret, struct err *e);
