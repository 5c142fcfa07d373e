#include "api/key_json.h"

#include "api/input.h"
#include "base/json_out.h"

enum { NAME_BYTES_MAX = 64, PERIOD_S_MAX = 31 * 24 * 3600 };
static const uint64_t limit_max = UINT32_MAX;

void key_json(struct buf *b, const struct key_record *key, struct str text)
{
	buf_printf(b, "{\"id\":%llu,\"name\":", (unsigned long long)key->id);
	json_out_str(b, key->name);
	if (text.ptr) {
		buf_str(b, STR(",\"key\":"));
		json_out_str(b, text);
	}
	buf_printf(b, ",\"admin\":%s,\"created_at\":", key->admin ? "true" : "false");
	json_out_time(b, key->created_ms);
	buf_str(b, STR(",\"revoked_at\":"));
	json_out_time(b, key->revoked_ms);
	buf_printf(b, ",\"creates_limit\":%llu,\"redirects_limit\":%llu,\"limit_period_s\":%llu}",
	           (unsigned long long)key->creates_max, (unsigned long long)key->redirects_max,
	           (unsigned long long)key->period_ms / 1000);
}

int key_input_check(const struct key_record *key, struct err *e)
{
	if (key->name.len == 0 || key->name.len > NAME_BYTES_MAX)
		return err_set(e, ERR_INVALID, "a key's name must have 1 to %d bytes", NAME_BYTES_MAX);
	if (key->creates_max > limit_max || key->redirects_max > limit_max)
		return err_set(e, ERR_INVALID, "a key's limit may be at most %llu",
		               (unsigned long long)limit_max);
	if (key->period_ms / 1000 > PERIOD_S_MAX)
		return err_set(e, ERR_INVALID, "a key's limit_period_s may be at most %d (31 days)",
		               PERIOD_S_MAX);
	return 0;
}

int key_input_read(struct str body, struct arena *arena, struct key_record *ret, struct err *e)
{
	uint64_t period_s = 0;
	const struct input_field fields[] = {
	    {"name", INPUT_TEXT, &ret->name, .required = true},
	    {"admin", INPUT_BOOL, &ret->admin},
	    {"creates_limit", INPUT_UINT, &ret->creates_max},
	    {"redirects_limit", INPUT_UINT, &ret->redirects_max},
	    {"limit_period_s", INPUT_UINT, &period_s},
	};
	int r = input_read(body, fields, ARRAY_LEN(fields), arena, e);
	if (r < 0)
		return r;
	ret->period_ms = MIN(period_s, UINT32_MAX) * 1000;
	return key_input_check(ret, e);
}
