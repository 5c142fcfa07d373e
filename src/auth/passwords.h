/*
 * Passwords of users and links: argon2id by libsodium, with the parameters that OWASP names (19 MiB, two
 * passes). It takes tens of milliseconds and that much memory, so it runs on a pool of its own with one
 * thread, never on a loop; see ask_job_submit_hash.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"

enum { PASSWORD_BYTES_MIN = 8, PASSWORD_BYTES_MAX = 1024, LINK_PASSWORD_BYTES_MIN = 1 };

/* ERR_INVALID with a sentence for one that may not be set; `bytes_min` as above. */
int password_check(struct str text, size_t bytes_min, struct err *e);

/* The text to keep goes to the arena: 0 or ERR_NOMEM. */
int password_hash(struct str text, struct arena *arena, struct str *ret);

/* 0, ERR_INVALID when it is another, ERR_NOMEM. With a STR_NULL hash it takes as long and says ERR_INVALID:
 * who has no password is not told by the time. */
int password_verify(struct str hash, struct str text);
