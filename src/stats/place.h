/*
 * Where an address is, from a database in MaxMind's format (GeoLite2, DB-IP and others have it). The file is
 * mapped into memory: a new one takes its place by rename, and is seen by the next places_open; writing into
 * a file that is open here is forbidden, as for every mapped file.
 *
 * Any thread may ask.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

/* Each is STR_NULL when it is not known. They are inside the mapped file: good until places_close. */
struct place {
	struct str country; /* ISO 3166-1 alpha-2, in capitals */
	struct str region;  /* names in English */
	struct str city;
};

struct places;

/* ERR_NOT_FOUND, ERR_UNAVAILABLE, ERR_CORRUPT when it is no such database, ERR_NOMEM. */
int places_open(const char *path, struct places **ret, struct err *e);
void places_close(struct places *p);

/* `address` is a prefix, as events carry it: the first 3 bytes for AF_INET, the first 6 for AF_INET6; no more
 * is read. Never fails: what the file does not tell, or tells wrongly, is not known. */
void places_find(const struct places *p, int family, const uint8_t *address, struct place *ret);
