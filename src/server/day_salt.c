#include "server/day_salt.h"

#include "base/rfc3339.h"
#include "obs/log.h"

#include <sodium.h>

#define PREFIX "day-salt-"

enum { DAY_MS = 24 * 3600 * 1000, NAME_BYTES = sizeof(PREFIX) + RFC3339_BYTES };

/* Names sort in the order of days. */
static struct str name_of(int64_t day, char out[NAME_BYTES])
{
	size_t prefix = sizeof(PREFIX) - 1;
	memcpy(out, PREFIX, prefix);
	rfc3339_format(day * DAY_MS, out + prefix);
	return str_n(out, prefix + sizeof("2026-01-02") - 1);
}

static int fetch(struct salts *salts, struct store *store, int64_t day)
{
	char name[NAME_BYTES];
	uint8_t salt[SALT_BYTES];
	randombytes_buf(salt, sizeof(salt));
	int r = registry_constant(store->registry, name_of(day, name), salt, sizeof(salt));
	if (r == 0)
		salts_give(salts, day, salt);
	sodium_memzero(salt, sizeof(salt));
	return r;
}

void day_salt_keep(struct salts *salts, struct store *store, int64_t now_ms)
{
	char name[NAME_BYTES];
	int64_t today = now_ms / DAY_MS;
	if (!store->is_shared || salts_is_known(salts, today + 1))
		return;
	int r = salts_is_known(salts, today) ? 0 : fetch(salts, store, today);
	if (r == 0)
		r = registry_forget(store->registry, STR(PREFIX), name_of(today, name));
	if (r == 0)
		r = fetch(salts, store, today + 1);
	if (r < 0)
		log_warn("server", "cannot read the day's salt, visitors may count once per server error=%s",
		         err_name(r));
}
