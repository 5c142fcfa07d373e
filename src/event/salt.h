/*
 * The salt of the day: visitors are told apart by a hash of address and user agent under it, and once the day
 * is over it is thrown away, so that nobody can tell from the hash who it was. Until then, who has both could
 * find an address by trying all of them. It survives a restart in a file of the log's folder, unless no trace
 * of addresses is to be kept. Servers whose visits are counted together are given the same one by whoever
 * knows it, before the day begins; then it is in memory only.
 */
#pragma once

#include "base/err.h"

enum { SALT_BYTES = 16 };

struct salts;

/* `folder` may be NULL: the salt is kept in memory only, and a restart counts the day's visitors again. */
int salts_new(const char *folder, struct salts **ret, struct err *e);
void salts_free(struct salts *s);

/* The day has this salt. Not if it has had another one: then its visitors are counted under that. Any thread.
 */
void salts_give(struct salts *s, int64_t day, const uint8_t salt[SALT_BYTES]);

/* Was it given, or is it in use? Any thread. */
bool salts_is_known(struct salts *s, int64_t day);

/* The salt of the day (days since 1970, UTC), made when there is none; older ones are gone then. Any thread;
 * takes a lock and may write a file, so callers ask once a day. */
void salts_of_day(struct salts *s, int64_t day, uint8_t ret[SALT_BYTES]);
