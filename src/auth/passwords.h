/*
 * Passwords of users and links: argon2id (libsodium) with the parameters that OWASP recommends, 19 MiB and
 * two passes. A hash takes tens of milliseconds, so it runs on the hasher thread (query_job_submit_hash),
 * never on an event loop.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"

enum { PASSWORD_BYTES_MAX = 1024 };

/* The hash to store, in the arena. 0 or ERR_NOMEM. */
int password_hash(struct str text, struct arena *arena, struct str *ret);

/* 0, ERR_INVALID for a wrong password, or ERR_NOMEM. A STR_NULL hash takes as long and returns ERR_INVALID,
 * so the time does not reveal which accounts have a password. */
int password_verify(struct str hash, struct str text);
