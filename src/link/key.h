/*
 * Generated keys. An id (1, 2, 3, …) becomes a key by a keyed permutation of all strings of one length over
 * one alphabet: different ids give different keys, so a key is unique by construction and needs no table, and
 * without the secret nobody can tell which key comes next.
 *
 * The permutation is a balanced Feistel network over the smallest even number of bits that holds all keys,
 * ten rounds with SipHash as round function. A result beyond the last key is encrypted again until it falls
 * inside (cycle-walking); fewer than four passes are expected for every alphabet and length.
 *
 * Changing a constant here changes every key that was ever given out.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"
#include "store/record.h"

enum { KEY_SECRET_BYTES = 16, KEY_LENGTH_MIN = 4, KEY_LENGTH_MAX = 10 };

enum key_alphabet { KEY_BASE62, KEY_BASE64URL, KEY_BASE36 };

struct key_cipher {
	const char *digits;
	unsigned base;
	unsigned length;
	bool fold_case;     /* base36: keys are read without regard to case */
	uint64_t count;     /* base ^ length: ids run from 1 to count - 1 */
	unsigned half_bits; /* of the Feistel network */
	int8_t values[256]; /* of the digits; -1: not one */
	uint8_t secret[KEY_SECRET_BYTES];
};

void key_cipher_init(struct key_cipher *c, enum key_alphabet alphabet, unsigned length,
                     const uint8_t secret[KEY_SECRET_BYTES]);

/* The key of `id` (which is below count), `length` bytes without a NUL. */
void key_encode(const struct key_cipher *c, uint64_t id, char *out);

/* The id that the text encodes, 0 when it encodes none. Never says whether a link exists. */
uint64_t key_decode(const struct key_cipher *c, struct str text);

/* What an alias must be: 1 to 255 of A-Z a-z 0-9 - _, not a word that the server needs itself. */
int alias_check(struct str alias, struct err *e);

/* With an alphabet that is read without regard to case, keys and aliases alike are looked up in lower case:
 * this is that form, in `out`, which has room for text.len bytes. Otherwise it is the text itself. */
struct str key_fold(const struct key_cipher *c, struct str text, char *out);

/* A word that the server needs for itself, in any case. */
bool key_is_reserved(struct str text);

/* Could this be a key or an alias at all? Anything else need not be looked up. */
bool key_is_wellformed(struct str text);
