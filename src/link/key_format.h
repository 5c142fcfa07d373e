/*
 * What a store's generated keys look like: their alphabet, their length, and the secret of the cipher. All
 * three are constants of the store, fixed by whoever uses it first; everybody who makes keys for the store,
 * in whichever process, makes them so.
 */
#pragma once

#include "link/key.h"
#include "store/store.h"

/* By enum key_alphabet, NULL at the end. */
extern const char *const key_format_alphabets[];

/*
 * The store's cipher. On a fresh store `alphabet` and `length` (0: the alphabet's own) are fixed now.
 * ERR_INVALID with a sentence when it was made with others: its keys would stop working.
 */
int key_format_settle(struct store *store, enum key_alphabet alphabet, uint64_t length,
                      struct key_cipher *ret, struct err *e);
