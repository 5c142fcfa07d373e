/* The format of a store's generated keys: alphabet, length, and the secret of the cipher. All three are
 * constants of the store, fixed by its first user. All processes that make keys for the store use them. */
#pragma once

#include "link/key.h"
#include "store/store.h"

/* Names by enum key_alphabet, NULL-terminated. */
extern const char *const key_format_alphabets[];

/* ERR_INVALID: no keys are that short. 0 is right: the alphabet's default. */
int key_length_check(uint64_t length, struct err *e);

/* Returns the store's cipher. On a new store it fixes `alphabet` and `length` (0: the alphabet's default).
 * ERR_INVALID with a sentence: the store has others, whose keys would stop working. */
int key_format_fix(struct store *store, enum key_alphabet alphabet, uint64_t length, struct key_cipher *ret,
                   struct err *e);
