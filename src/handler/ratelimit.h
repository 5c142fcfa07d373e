/* The RateLimit fields of responses, and the response 429. */
#pragma once

#include "http/conn.h"
#include "link/budget.h"

enum { RATELIMIT_FIELDS = 3 };

/* Memory for the values. */
struct ratelimit_text {
	char limit[16], remaining[16], reset[16];
};

/* Fills the fields and returns how many: none if there is no limit. */
size_t ratelimit_fields(const struct meter_reading *reading, struct ratelimit_text *text,
                        struct http_field fields[RATELIMIT_FIELDS]);

/* 429 with Retry-After; `reason` is a sentence. */
void ratelimit_refuse(struct http_conn *c, const struct meter_reading *reading, bool as_html,
                      const char *reason);
