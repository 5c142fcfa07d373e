/*
 * The API keys in force, known to every worker without a lock: an immutable snapshot, replaced whole when a
 * key is made or revoked. Only digests are kept; a presented key is hashed and compared in constant time.
 */
#pragma once

#include "base/err.h"
#include "link/budget.h"
#include "store/store.h"

enum { API_KEY_TEXT_BYTES = 48 };

struct keyring;

/* Limits for keys that have none of their own; 0: none. */
struct keyring_defaults {
	uint64_t creates_max;
	uint64_t redirects_max;
	uint64_t period_ms;
};

/* What a worker learns about a presented key. */
struct api_key {
	uint64_t id;
	bool admin;
	struct str name; /* good until the end of the loop's turn */
	struct budget *budget;
};

int keyring_new(struct store *store, struct budgets *budgets, const struct keyring_defaults *defaults,
                struct keyring **ret, struct err *e);
void keyring_free(struct keyring *k);

/* Reads the keys from the store again and sets their budgets. Pool threads and start-up; one at a time. */
int keyring_reload(struct keyring *k);

/* Loop threads, until the end of the turn. False: unknown or revoked. */
bool keyring_find(struct keyring *k, struct str presented, struct api_key *ret);

/* A key that is in force until the process ends, and in no store: for the command line of the machine's own
 * user. */
void keyring_set_local(struct keyring *k, struct str presented);

/* The name of a key by id, revoked or not; STR_NULL when there is none. Loop threads, until the end of the
 * turn. */
struct str keyring_name(struct keyring *k, uint64_t id);

/* Is the key still in force? Loop threads. */
bool keyring_in_force(struct keyring *k, uint64_t id);

/* A fresh key, NUL-terminated, and the digest to keep. */
void api_key_make(char text[API_KEY_TEXT_BYTES], uint8_t digest[KEY_DIGEST_BYTES]);
void api_key_digest(struct str text, uint8_t digest[KEY_DIGEST_BYTES]);
