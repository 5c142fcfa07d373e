/*
 * The rules for users, sessions and API keys. Pure: no I/O, no SQL; only backends use this.
 *
 * Changes are rare, so they are decided one at a time. For each change the backend fetches what
 * account_needs asks for, decides, and writes before it fetches for the next. While it does so, it holds a
 * lock against other changes of accounts.
 */
#pragma once

#include "base/buf.h"
#include "store/registry.h"

/* The result of a change, published to the caller only after the commit. */
struct account_outcome {
	int result;
	bool has_user, has_key; /* are returned */
	struct user_record user;
	struct key_record key;
	struct session_record session;
};

void account_publish(const struct account_outcome *out, struct registry_write *w);

enum {
	NEEDS_USER = 1 << 0,   /* user.id of USER_UPDATE, key.user of KEY_CREATE */
	NEEDS_EMAIL = 1 << 1,  /* who holds user.email */
	NEEDS_KEY = 1 << 2,    /* key.id */
	NEEDS_DIGEST = 1 << 3, /* whether key.digest exists */
	NEEDS_ADMINS = 1 << 4, /* has_admin_key and has_other_admin */
	NEEDS_ADMIN_KEYS = 1 << 5,
	NEEDS_LIVE_KEYS = 1 << 6, /* in force, of key.user */
};

struct account_rows {
	bool is_damaged;                /* one of the rows cannot be read */
	const struct user_record *user; /* NULL: not found; likewise `key` */
	const struct key_record *key;
	uint64_t email_holder; /* the user with that address; 0: none */
	bool digest_exists;
	/* In force at now_ms, with RIGHT_ADMIN: */
	bool has_admin_key;     /* of `user` */
	bool has_other_admin;   /* another enabled admin has such a key, or a password */
	uint64_t admin_keys[2]; /* of enabled admins; two are enough for the rules */
	size_t admin_key_count;
	size_t live_keys; /* of `user`, counted up to ACCOUNT_KEYS_MAX */
};

/* What the backend must write: out->user, out->key and out->session as they shall be. Inserts assign ids,
 * which the backend stores there. A key created together with its user gets that user's id. */
enum {
	EDIT_USER_INSERT = 1 << 0,
	EDIT_USER_UPDATE = 1 << 1,
	EDIT_KEY_INSERT = 1 << 2,
	EDIT_KEY_REVOKE = 1 << 3,
	EDIT_KEY_USED = 1 << 4,
	EDIT_SESSION_INSERT = 1 << 5, /* also purges SESSION_PURGE_PER_CREATE expired sessions */
	EDIT_SESSION_DELETE = 1 << 6,
	EDIT_KEY_PURGE = 1 << 7,
};

unsigned account_needs(const struct registry_write *w);

/* The rows of one change. The backend reads those with is_wanted, and the sets by their NEEDS_ bits. */
enum { READ_USER, READ_EMAIL, READ_KEY, READ_DIGEST, ACCOUNT_READS };

struct account_fetch {
	unsigned needs;
	struct registry_account reads[ACCOUNT_READS];
	bool is_wanted[ACCOUNT_READS];
	struct account_rows rows;
};

void account_fetch_init(struct account_fetch *f, const struct registry_write *w);
int account_fetch_take(struct account_fetch *f); /* moves the reads into `rows`: 0 or ERR_NOMEM */

/* Returns EDIT_ bits, or ERR_NOMEM. */
int decide_account(const struct account_rows *rows, const struct registry_write *w,
                   struct account_outcome *out);

/* Appends the feed entries of what was written, once ids are known. False: out of memory. */
bool account_feed(unsigned edits, const struct account_rows *rows, const struct registry_write *w,
                  const struct account_outcome *out, struct buf *feed);
