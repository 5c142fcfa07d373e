/* Times: RFC 3339 in UTC outside, milliseconds since 1970 (int64_t) inside. */
#pragma once

#include "base/str.h"

enum { RFC3339_BYTES = sizeof("2026-01-02T03:04:05.678Z") };
#define RFC3339_MS_MAX 253402300799999LL /* the last millisecond of the year 9999 */

/* Writes "2026-01-02T03:04:05Z", with ".678" when there are milliseconds; NUL-terminated. */
struct str rfc3339_format(int64_t ms, char out[RFC3339_BYTES]);

/* Takes a date ("2026-01-02": its first instant in UTC) or a date-time with a zone ("Z" or
 * "+02:00"), years 1970 to 9999. False when it is anything else. */
bool rfc3339_parse(struct str s, int64_t *ret_ms);

/* Takes what people and programs may write as a time, everywhere: the above, or a whole number since 1970,
 * in seconds from 10^8 on and in milliseconds from 10^11 on, both of which are in March 1973; or 0. Other
 * numbers are rather a duration (3600) or a date (20261231), and refused. */
bool time_parse(struct str s, int64_t *ret_ms);
bool time_from_number(int64_t number, int64_t *ret_ms);
#define TIME_HINT "write 2027-01-31T12:00:00Z, 2027-01-31, or seconds or milliseconds since 1970"

/* "Sun, 06 Nov 1994 08:49:37 GMT" for HTTP's Date field: exactly 29 bytes, no NUL. */
enum { HTTP_DATE_BYTES = 29 };
void http_date_format(int64_t ms, char out[HTTP_DATE_BYTES]);
