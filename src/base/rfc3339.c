#include "base/rfc3339.h"

#include <stdio.h>

enum { DAY_MS = 86400000 };
static const int64_t year_10000_ms = 253402300800000;
static const int64_t seconds_from = 100000000, milliseconds_from = 100000000000; /* the same time */

struct civil {
	int year, month, day, weekday; /* month and day from 1; weekday 0 is Sunday */
};

/* Days since 1970 to a date of the proleptic Gregorian calendar, by counting 400-year eras whose
 * years begin in March, so that the leap day is the last of its year. */
static struct civil civil_from_days(int64_t days)
{
	int64_t shifted = days + 719468;
	int64_t era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
	int64_t day_of_era = shifted - era * 146097;
	int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) /
	                      365;
	int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
	int64_t march_month = (5 * day_of_year + 2) / 153;
	struct civil c;
	c.day = (int)(day_of_year - (153 * march_month + 2) / 5 + 1);
	c.month = (int)(march_month < 10 ? march_month + 3 : march_month - 9);
	c.year = (int)(year_of_era + era * 400 + (c.month <= 2));
	c.weekday = (int)(((days % 7) + 11) % 7);
	return c;
}

static int64_t days_from_civil(int year, int month, int day)
{
	int64_t y = year - (month <= 2);
	int64_t era = y / 400; /* years here are 1969 and later */
	int64_t year_of_era = y - era * 400;
	int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
	int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
	return era * 146097 + day_of_era - 719468;
}

/* The day that holds `ms` and the milliseconds since its start, without overflow for any input. */
static int64_t split_days(int64_t ms, int64_t *ret_rest_ms)
{
	int64_t rest = ms % DAY_MS;
	*ret_rest_ms = rest < 0 ? rest + DAY_MS : rest;
	return ms / DAY_MS - (rest < 0);
}

static char *put(char *at, unsigned v, unsigned width, char behind)
{
	for (unsigned i = width; i > 0; i--, v /= 10)
		at[i - 1] = (char)('0' + v % 10);
	at[width] = behind;
	return at + width + 1;
}

struct str rfc3339_format(int64_t ms, char out[RFC3339_BYTES])
{
	int64_t rest;
	int64_t days = split_days(ms, &rest);
	struct civil c = civil_from_days(days);
	unsigned sec = (unsigned)(rest / 1000), msec = (unsigned)(rest % 1000);
	char *at = put(out, (unsigned)c.year, 4, '-');
	at = put(at, (unsigned)c.month, 2, '-');
	at = put(at, (unsigned)c.day, 2, 'T');
	at = put(at, sec / 3600, 2, ':');
	at = put(at, sec / 60 % 60, 2, ':');
	at = put(at, sec % 60, 2, msec ? '.' : 'Z');
	if (msec)
		at = put(at, msec, 3, 'Z');
	*at = '\0';
	return str_n(out, (size_t)(at - out));
}

static bool digits(struct str *s, size_t count, int *ret)
{
	if (s->len < count)
		return false;
	int value = 0;
	for (size_t i = 0; i < count; i++) {
		if (s->ptr[i] < '0' || s->ptr[i] > '9')
			return false;
		value = value * 10 + (s->ptr[i] - '0');
	}
	*s = str_n(s->ptr + count, s->len - count);
	*ret = value;
	return true;
}

static bool one_of(struct str *s, const char *accepted, char *ret)
{
	if (s->len == 0 || !strchr(accepted, s->ptr[0]) || s->ptr[0] == '\0')
		return false;
	*ret = s->ptr[0];
	*s = str_n(s->ptr + 1, s->len - 1);
	return true;
}

static bool parse_date(struct str *s, int64_t *ret_days)
{
	static const int month_days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	int year, month, day;
	char dash;
	if (!digits(s, 4, &year) || !one_of(s, "-", &dash) || !digits(s, 2, &month) ||
	    !one_of(s, "-", &dash) || !digits(s, 2, &day))
		return false;
	if (year < 1970 || month < 1 || month > 12 || day < 1)
		return false;
	bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
	if (day > month_days[month - 1] + (month == 2 && leap))
		return false;
	*ret_days = days_from_civil(year, month, day);
	return true;
}

static bool parse_fraction(struct str *s, int *ret_ms)
{
	char c;
	*ret_ms = 0;
	if (!one_of(s, ".", &c))
		return true;
	int weight = 100;
	size_t count = 0;
	while (s->len > 0 && s->ptr[0] >= '0' && s->ptr[0] <= '9') {
		*ret_ms += (s->ptr[0] - '0') * weight;
		weight /= 10;
		count++;
		*s = str_n(s->ptr + 1, s->len - 1);
	}
	return count > 0;
}

static bool parse_zone(struct str *s, int64_t *ret_offset_ms)
{
	char sign;
	int hour, min;
	*ret_offset_ms = 0;
	if (one_of(s, "Zz", &sign))
		return true;
	if (!one_of(s, "+-", &sign) || !digits(s, 2, &hour))
		return false;
	char colon;
	if (!one_of(s, ":", &colon) || !digits(s, 2, &min) || hour > 23 || min > 59)
		return false;
	*ret_offset_ms = (hour * 60 + min) * 60000LL * (sign == '-' ? -1 : 1);
	return true;
}

bool rfc3339_parse(struct str s, int64_t *ret_ms)
{
	int64_t days, offset_ms;
	int hour, min, sec, frac_ms;
	char c;
	if (!parse_date(&s, &days))
		return false;
	if (s.len == 0) {
		*ret_ms = days * DAY_MS;
		return true;
	}
	if (!one_of(&s, "Tt ", &c) || !digits(&s, 2, &hour) || !one_of(&s, ":", &c) || !digits(&s, 2, &min) ||
	    !one_of(&s, ":", &c) || !digits(&s, 2, &sec) || !parse_fraction(&s, &frac_ms) ||
	    !parse_zone(&s, &offset_ms) || s.len != 0)
		return false;
	if (hour > 23 || min > 59 || sec > 60) /* 60: a leap second counts as the next second */
		return false;
	int64_t ms = days * DAY_MS + ((hour * 60LL + min) * 60 + sec) * 1000 + frac_ms - offset_ms;
	if (ms < 0 || ms >= year_10000_ms) /* a zone or a leap second may lead out of the years */
		return false;
	*ret_ms = ms;
	return true;
}

bool time_from_number(int64_t number, int64_t *ret_ms)
{
	if (number != 0 && (number < seconds_from || number >= year_10000_ms))
		return false;
	*ret_ms = number < milliseconds_from ? number * 1000 : number;
	return true;
}

bool time_parse(struct str s, int64_t *ret_ms)
{
	uint64_t number;
	if (str_u64(s, &number))
		return number <= INT64_MAX && time_from_number((int64_t)number, ret_ms);
	return rfc3339_parse(s, ret_ms);
}

void http_date_format(int64_t ms, char out[HTTP_DATE_BYTES])
{
	static const char weekdays[] = "SunMonTueWedThuFriSat";
	static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
	int64_t rest;
	int64_t days = split_days(ms, &rest);
	unsigned sec = (unsigned)(rest / 1000);
	struct civil c = civil_from_days(days);
	char text[64];
	snprintf(text, sizeof(text), "%.3s, %02d %.3s %04d %02u:%02u:%02u GMT", weekdays + c.weekday * 3L,
	         c.day, months + (c.month - 1) * 3L, c.year, sec / 3600, sec / 60 % 60, sec % 60);
	memcpy(out, text, HTTP_DATE_BYTES);
}
