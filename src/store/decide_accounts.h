/*
 * The rules of the registry. No I/O, no SQL; for backends only. Changes of users, sessions and API keys are
 * decided one at a time, as they are rare: the backend fetches what account_needs says, with the accounts
 * locked against other changes where others write too, decides, and writes before it fetches for the next.
 */
#pragma once

#include "base/buf.h"
#include "store/registry.h"

/* What a change will say once it is committed. */
struct account_outcome {
	int result;
	bool has_user, has_key; /* that come back */
	struct user_record user;
	struct key_record key;
	struct session_record session;
};

void account_publish(const struct account_outcome *out, struct registry_write *w);

enum {
	NEEDS_USER = 1 << 0,   /* user.id of USER_UPDATE, key.user of KEY_CREATE */
	NEEDS_EMAIL = 1 << 1,  /* of `user` */
	NEEDS_KEY = 1 << 2,    /* key.id */
	NEEDS_DIGEST = 1 << 3, /* of `key` */
	NEEDS_ADMINS = 1 << 4, /* has_admin_key and has_other_admin */
	NEEDS_ADMIN_KEYS = 1 << 5,
	NEEDS_LIVE_KEYS = 1 << 6, /* of that user */
};

struct account_rows {
	bool is_damaged;                /* one of the rows cannot be read */
	const struct user_record *user; /* NULL: there is none; likewise `key` */
	const struct key_record *key;
	uint64_t email_holder; /* id of the user who has that address; 0: nobody */
	bool digest_exists;
	/* In force at now_ms, with RIGHT_ADMIN: */
	bool has_admin_key;     /* of `user` */
	bool has_other_admin;   /* an enabled admin other than `user` has one, or can sign in */
	uint64_t admin_keys[2]; /* of enabled admins; two of them will do */
	size_t admin_key_count;
	size_t live_keys; /* of `user`, in force at now_ms; counted up to ACCOUNT_KEYS_MAX */
};

/* What is to be written: out->user, out->key and out->session as they shall be. Inserts bring ids, which the
 * backend puts there; a key that is made with its user gets that one's. */
enum {
	EDIT_USER_INSERT = 1 << 0,
	EDIT_USER_UPDATE = 1 << 1,
	EDIT_KEY_INSERT = 1 << 2,
	EDIT_KEY_REVOKE = 1 << 3,
	EDIT_KEY_USED = 1 << 4,
	EDIT_SESSION_INSERT = 1 << 5, /* and SESSION_PURGE_PER_CREATE that are over go */
	EDIT_SESSION_DELETE = 1 << 6,
	EDIT_KEY_PURGE = 1 << 7,
};

unsigned account_needs(const struct registry_write *w);

/* The rows that a change is about: the backend reads those that are wanted, and the sets by their NEEDS_*. */
enum { READ_USER, READ_EMAIL, READ_KEY, READ_DIGEST, ACCOUNT_READS };

struct account_fetch {
	unsigned needs;
	struct registry_account reads[ACCOUNT_READS];
	bool is_wanted[ACCOUNT_READS];
	struct account_rows rows;
};

void account_fetch_init(struct account_fetch *f, const struct registry_write *w);
int account_fetch_take(struct account_fetch *f); /* of the reads, into `rows`: 0 or ERR_NOMEM */

/* Returns what is to be written, or ERR_NOMEM. */
int decide_account(const struct account_rows *rows, const struct registry_write *w,
                   struct account_outcome *out);

/* The feed's entries of what was written, once ids are known, added to *feed. False: memory ran out. */
bool account_feed(unsigned edits, const struct account_rows *rows, const struct registry_write *w,
                  const struct account_outcome *out, struct buf *feed);
