/*
 * The salt of the day. Visitors are distinguished by a salted hash of address and user agent. The salt is
 * deleted after the day, so that the hashes cannot be traced back. Until then, an attacker who has both can
 * find an address by trying all of them.
 *
 * The salt is kept in a file of the log's folder, to survive a restart, unless no trace of addresses may be
 * kept. Servers whose visits are counted together get a common salt before the day begins (salts_give), which
 * is kept in memory only.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

enum { SALT_BYTES = 16 };

struct salts;

/* `folder` may be NULL: the salt is kept in memory only, and a restart counts the day's visitors again. */
int salts_new(const char *folder, struct salts **ret, struct err *e);
void salts_free(struct salts *s);

/* Sets the salt of a day, unless it has one already. Any thread. */
void salts_give(struct salts *s, int64_t day, const uint8_t salt[SALT_BYTES]);

/* Is the salt given or in use? Any thread. */
bool salts_is_known(struct salts *s, int64_t day);

/* The salt of the day (days since 1970, UTC), created if needed; deletes older ones. Any thread. It takes a
 * lock and may write a file, so callers cache it for the day. */
void salts_of_day(struct salts *s, int64_t day, uint8_t ret[SALT_BYTES]);

/* Is this what the file may contain? */
bool salt_is_valid(struct str text);
