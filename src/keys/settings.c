#include "keys/settings.h"

#define FIELD(f) offsetof(struct keys_settings, f)

const struct conf_row keys_rows[] = {
    {"keys", "url", CONF_STRING, FIELD(url), .def = "", .flags = CONF_SECRET,
     .help = "The Redis servers that hold keys ready for use (keys.source = pool): redis://HOST:PORT/DB or "
             "redis+sentinel://HOST:PORT,HOST:PORT/NAME, separated by commas."},
    {"keys", "db_url", CONF_STRING, FIELD(db_url), .def = "", .flags = CONF_SECRET,
     .help = "The PostgreSQL databases in which curt keygen stores keys for curt keysync: "
             "postgres://USER@HOST:PORT/NAME, separated by commas."},
    {"keys", "low", CONF_UINT, FIELD(low), .def = "1000", .min = 1, .max = 100000000,
     .help = "curt keysync refills a Redis server that has fewer keys than this."},
    {"keys", "high", CONF_UINT, FIELD(high), .def = "5000", .min = 1, .max = 100000000,
     .help = "How many keys a Redis server has after a refill."},
    {"keys", "db_low", CONF_UINT, FIELD(db_low), .def = "10000", .min = 1, .max = 10000000000,
     .help = "curt keygen refills a database that has fewer keys than this."},
    {"keys", "db_high", CONF_UINT, FIELD(db_high), .def = "50000", .min = 1, .max = 10000000000,
     .help = "How many keys a database has after a refill."},
    {"keys", "batch", CONF_UINT, FIELD(batch), .def = "64", .min = 1, .max = 1000,
     .help = "Number of keys a server takes from Redis at once."},
    {"keys", "sync_shards", CONF_UINT, FIELD(sync_shards), .def = "2", .min = 1, .max = 64,
     .help = "How many Redis servers one curt keysync refills at most."},
    {"keys", "gen_dbs", CONF_UINT, FIELD(gen_dbs), .def = "1", .min = 1, .max = 64,
     .help = "How many databases one curt keygen refills at most."},
    {"keys", "lease_time", CONF_DURATION, FIELD(lease_ms), .def = "10s", .min = 500, .max = 600000,
     .help = "How long after a curt keygen or curt keysync was killed another one takes over its work."},
};
const size_t keys_row_count = ARRAY_LEN(keys_rows);

int keys_settings_check(const struct keys_settings *s, struct err *e)
{
	if (s->low > s->high)
		return err_set(e, ERR_INVALID, "keys.low = %ju is above keys.high = %ju; swap them",
		               (uintmax_t)s->low, (uintmax_t)s->high);
	if (s->db_low > s->db_high)
		return err_set(e, ERR_INVALID, "keys.db_low = %ju is above keys.db_high = %ju; swap them",
		               (uintmax_t)s->db_low, (uintmax_t)s->db_high);
	return 0;
}
