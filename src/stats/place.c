/*
 * The library checks offsets against the bounds of the file. Values are checked here: in a damaged file a
 * city may be a number, or control characters.
 */
#include "stats/place.h"

#include "base/utf8.h"
#include "event/format.h"

#include <errno.h>
#include <maxminddb.h>
#include <stdlib.h>

enum { V4_BYTES = 3, V6_BYTES = 6, NAME_BYTES_MAX = 120 };

struct places {
	MMDB_s db;
};

/* Paths of the fields: MaxMind's layout first, then the flat one of other vendors. */
static const char *const country_paths[][5] = {
    {"country", "iso_code"}, {"country_code"}, {"country"}, {NULL}};
static const char *const region_paths[][5] = {{"subdivisions", "0", "names", "en"}, {"region"}, {NULL}};
static const char *const city_paths[][5] = {{"city", "names", "en"}, {"city"}, {NULL}};

static int open_failed(const char *path, int status, struct err *e)
{
	int why = errno;
	if (status == MMDB_FILE_OPEN_ERROR)
		return err_set(e, why == ENOENT ? ERR_NOT_FOUND : ERR_UNAVAILABLE,
		               "worker.places: cannot open %s (%s)", path, strerror(why));
	if (status == MMDB_OUT_OF_MEMORY_ERROR)
		return err_set(e, ERR_NOMEM, "out of memory for %s", path);
	return err_set(e, ERR_CORRUPT,
	               "worker.places: %s is not a MaxMind DB file, or damaged (%s); download it again", path,
	               MMDB_strerror(status));
}

int places_open(const char *path, struct places **ret, struct err *e)
{
	struct places *p = calloc(1, sizeof(*p));
	if (!p)
		return err_set(e, ERR_NOMEM, "out of memory for %s", path);
	int status = MMDB_open(path, MMDB_MODE_MMAP, &p->db);
	if (status != MMDB_SUCCESS) {
		int r = open_failed(path, status, e);
		free(p);
		return r;
	}
	*ret = p;
	return 0;
}

void places_close(struct places *p)
{
	if (!p)
		return;
	MMDB_close(&p->db);
	free(p);
}

static bool is_name(struct str s)
{
	return s.len > 0 && s.len <= NAME_BYTES_MAX && utf8_is_printable(s);
}

static bool is_country(struct str s)
{
	return s.len == 2 && event_country_is_valid(s.ptr);
}

/* The first text at one of the paths that is valid. */
static struct str entry_text(MMDB_entry_s *entry, const char *const (*paths)[5], bool (*is_good)(struct str))
{
	for (; paths[0][0]; paths++) {
		MMDB_entry_data_s data;
		if (MMDB_aget_value(entry, &data, paths[0]) != MMDB_SUCCESS || !data.has_data ||
		    data.type != MMDB_DATA_TYPE_UTF8_STRING)
			continue;
		struct str text = str_n(data.utf8_string, data.data_size);
		if (is_good(text))
			return text;
	}
	return STR_NULL;
}

void places_find(const struct places *p, int family, const uint8_t *address, struct place_info *ret)
{
	*ret = (struct place_info){0};
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} from = {0};
	from.any.sa_family = (sa_family_t)family;
	if (family == AF_INET)
		memcpy(&from.v4.sin_addr, address, V4_BYTES);
	else if (family == AF_INET6)
		memcpy(&from.v6.sin6_addr, address, V6_BYTES);
	else
		return;
	int status;
	MMDB_lookup_result_s found = MMDB_lookup_sockaddr(&p->db, &from.any, &status);
	if (status != MMDB_SUCCESS || !found.found_entry)
		return;
	ret->country = entry_text(&found.entry, country_paths, is_country);
	ret->region = entry_text(&found.entry, region_paths, is_name);
	ret->city = entry_text(&found.entry, city_paths, is_name);
}
