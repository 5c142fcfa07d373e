/* The RateLimit fields of answers to limited keys. */
#pragma once

#include "http/conn.h"
#include "link/budget.h"

enum { RATELIMIT_FIELDS = 3 };

/* Memory for the values. */
struct ratelimit_text {
	char limit[16], remaining[16], reset[16];
};

/* Fills the fields and returns how many: none when there is no limit. */
size_t ratelimit_fields(const struct meter_reading *reading, struct ratelimit_text *text,
                        struct http_field fields[RATELIMIT_FIELDS]);

/* 429 with Retry-After. */
void ratelimit_refuse(struct http_conn *c, const struct meter_reading *reading, bool as_page,
                      const char *what);
