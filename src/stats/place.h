/*
 * GeoIP lookups in a database of MaxMind's format (GeoLite2, DB-IP and others). The file is mapped into
 * memory: replace it by rename, never write into it. The next places_open sees the new file.
 *
 * Lookups are thread-safe.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

/* STR_NULL: unknown. The texts are in the mapped file, valid until places_close. */
struct place_info {
	struct str country; /* ISO 3166-1 alpha-2, in capitals */
	struct str region;  /* in English; so is the city */
	struct str city;
};

struct places;

/* ERR_NOT_FOUND, ERR_UNAVAILABLE, ERR_CORRUPT (not a database), ERR_NOMEM. */
int places_open(const char *path, struct places **ret, struct err *e);
void places_close(struct places *p);

/* `address` is the prefix that events have: 3 bytes for AF_INET, 6 for AF_INET6. Never fails: missing and
 * invalid values are unknown. */
void places_find(const struct places *p, int family, const uint8_t *address, struct place_info *ret);
