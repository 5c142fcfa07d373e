#include "handler/ratelimit.h"

#include "handler/problem.h"

#include <stdio.h>

static uint32_t seconds_up(uint32_t ms)
{
	return ms / 1000 + (ms % 1000 != 0);
}

size_t ratelimit_fields(const struct meter_reading *reading, struct ratelimit_text *text,
                        struct http_field fields[RATELIMIT_FIELDS])
{
	if (reading->limit == 0)
		return 0;
	snprintf(text->limit, sizeof(text->limit), "%u", reading->limit);
	snprintf(text->remaining, sizeof(text->remaining), "%u", reading->remaining);
	snprintf(text->reset, sizeof(text->reset), "%u", seconds_up(reading->reset_ms));
	fields[0] = (struct http_field){STR("RateLimit-Limit"), str_of(text->limit)};
	fields[1] = (struct http_field){STR("RateLimit-Remaining"), str_of(text->remaining)};
	fields[2] = (struct http_field){STR("RateLimit-Reset"), str_of(text->reset)};
	return RATELIMIT_FIELDS;
}

void ratelimit_refuse(struct http_conn *c, const struct meter_reading *reading, bool as_html,
                      const char *reason)
{
	struct ratelimit_text text;
	struct http_field fields[RATELIMIT_FIELDS + 1];
	size_t n = ratelimit_fields(reading, &text, fields);
	fields[n++] = (struct http_field){STR("Retry-After"), str_of(text.reset)};
	const struct problem p = {
	    .status = 429, .code = "limit-reached", .fields = fields, .field_count = n, .as_html = as_html};
	problem_reply_with(c, &p, "%s Try again in %u s.", reason, seconds_up(reading->reset_ms));
}
