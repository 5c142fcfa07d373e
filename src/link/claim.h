/*
 * A key source that reuses keys: those of expired links whose quarantine has ended, claimed from the store
 * (store.h: claim). If there are none, it makes new keys with the cipher, so creating never stops.
 *
 * A claimed key that is never used is lost. So it claims no more than requested, and keeps returned keys
 * for the next request. A deferred claimed key is tried again after a second; a deferred new key is
 * dropped, because the cipher has more. If the store had none, it is not asked again for a second.
 */
#pragma once

#include "link/key_source.h"
#include "store/store.h"

struct claim_config {
	struct store *store; /* must support claim; outlives the source */
	const struct key_cipher *cipher;
	uint64_t quarantine_ms; /* as in store_write */
	uint64_t id_block;      /* ids to lease at once, for new keys */
};

int claim_new(const struct claim_config *config, struct key_source **ret, struct err *e);
