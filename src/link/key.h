/*
 * Generated keys. A keyed permutation of all strings of one length over one alphabet maps an id (1, 2, 3,
 * …) to a key. Different ids give different keys, so keys are unique without a table. Without the secret
 * the next key cannot be predicted.
 *
 * The permutation is a balanced Feistel network over the smallest even number of bits that holds all keys:
 * ten rounds, with SipHash as round function. A result beyond the last key is encrypted again until it is
 * in range (cycle-walking); fewer than four passes are expected.
 *
 * Changing a constant here changes every key that was ever issued.
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
	bool fold_case;     /* base36: case-insensitive */
	uint64_t count;     /* base ^ length: ids run from 1 to count - 1 */
	unsigned half_bits; /* of the Feistel network */
	int8_t values[256]; /* value of each digit; -1: not a digit */
	uint8_t secret[KEY_SECRET_BYTES];
};

void key_cipher_init(struct key_cipher *c, enum key_alphabet alphabet, unsigned length,
                     const uint8_t secret[KEY_SECRET_BYTES]);

/* The key of `id`, which must be below `count`; `length` bytes without a NUL. */
void key_encode(const struct key_cipher *c, uint64_t id, char *out);

/* The id that the text encodes; 0: none. Says nothing about whether a link exists. */
uint64_t key_decode(const struct key_cipher *c, struct str text);

/* An alias has 1 to 255 of A-Z a-z 0-9 - _, and is no reserved word. */
int alias_check(struct str alias, struct err *e);

/* With a case-insensitive alphabet, keys and aliases are looked up in lower case: returns that form in
 * `out`, which has room for text.len bytes. Otherwise returns the text itself. */
struct str key_fold(const struct key_cipher *c, struct str text, char *out);

/* A word that the server uses itself, in any case. */
bool key_is_reserved(struct str text);

/* Could this be a key or an alias? Anything else need not be looked up. */
bool key_is_wellformed(struct str text);
