/* Small change for tests of the role `store`: writes ready to hand in. */
#pragma once

#include "store/store.h"

enum { KIT_NOW_MS = 1000000 };

/* Creates of an enabled link to https://example.com/ID of owner 7. The first is named "gID", which stands for
 * the text that the key cipher would make of the id; the second by its name, which decodes to no id. */
struct store_write kit_generated(struct arena *a, uint64_t id);
struct store_write kit_alias(struct arena *a, uint64_t id, const char *name);

/* As a client asks for one: a link of owner 7 to that URL, made at 1000, with that alias or none. */
struct store_write kit_creation(struct arena *a, const char *url, const char *alias);

/* Creates of an enabled user (of nobody's address with NULL), and of a key of the user (of a new editor with
 * 0) with all rights, whose digest is that byte over and over. */
struct registry_write kit_user(struct arena *a, const char *email, enum user_role role);
struct registry_write kit_key(struct arena *a, uint8_t digest, uint64_t user);

/* Applies one change, of a link or of an account, and gives back its result. The call itself must succeed. */
#define kit_apply(s, w)                                    \
	_Generic((w), struct store_write *                 \
	         : kit_apply_link, struct registry_write * \
	         : kit_apply_account)(s, w)
int kit_apply_link(struct store *s, struct store_write *w);
int kit_apply_account(struct store *s, struct registry_write *w);

/* Looks up one name and gives back the result; the call itself must succeed. `ret` may be NULL. */
int kit_find(struct store *s, struct arena *a, uint64_t id, const char *key, struct link_record *ret);
int kit_find_generated(struct store *s, struct arena *a, uint64_t id);

/* All API keys, and one session: 0 or ERR_NOT_FOUND. The calls themselves must succeed. */
struct key_record *kit_keys(struct store *s, struct arena *a, size_t *ret_count);
int kit_session(struct store *s, struct arena *a, const uint8_t id[SESSION_ID_BYTES],
                struct session_record *ret);

/* A SQLite store with nothing in it, in a folder that goes when the program ends. Ends with store_free. */
struct store *kit_store_new(void);
