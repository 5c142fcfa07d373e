#include "event/salt.h"

#include "base/buf.h"
#include "base/rfc3339.h"
#include "obs/log.h"
#include "os/file.h"

#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
	DAY_MS = 24 * 3600 * 1000,
	DAY_BYTES = 10,
	LINE_BYTES = DAY_BYTES + 1 + 2 * SALT_BYTES + 1,
	GIVEN_MAX = 2 /* today and tomorrow */
};

struct salts {
	char *path;
	pthread_mutex_t lock; /* guards the rest */
	int64_t day;          /* in use; -1: none yet */
	uint8_t salt[SALT_BYTES];
	struct {
		int64_t day; /* -1: none */
		uint8_t salt[SALT_BYTES];
	} given[GIVEN_MAX];
};

int salts_new(const char *folder, struct salts **ret, struct err *e)
{
	struct salts *s = calloc(1, sizeof(*s));
	if (!s || (folder && asprintf(&s->path, "%s/salt", folder) < 0)) {
		free(s);
		return err_set(e, ERR_NOMEM, "out of memory");
	}
	s->day = -1;
	for (size_t i = 0; i < GIVEN_MAX; i++)
		s->given[i].day = -1;
	pthread_mutex_init(&s->lock, NULL);
	*ret = s;
	return 0;
}

void salts_free(struct salts *s)
{
	if (!s)
		return;
	pthread_mutex_destroy(&s->lock);
	sodium_memzero(s->salt, sizeof(s->salt));
	sodium_memzero(s->given, sizeof(s->given));
	free(s->path);
	free(s);
}

static struct str day_text(int64_t day, char out[RFC3339_BYTES])
{
	struct str text = rfc3339_format(day * DAY_MS, out);
	text.len = DAY_BYTES;
	return text;
}

/* "2026-01-31 ", the salt in hexadecimal, and a line feed. */
static bool parse(struct str line, uint8_t ret[SALT_BYTES])
{
	size_t len;
	return line.len == LINE_BYTES && line.ptr[DAY_BYTES] == ' ' && line.ptr[LINE_BYTES - 1] == '\n' &&
	       sodium_hex2bin(ret, SALT_BYTES, line.ptr + DAY_BYTES + 1, (size_t)2 * SALT_BYTES, NULL, &len,
	                      NULL) == 0 &&
	       len == SALT_BYTES;
}

bool salt_is_valid(struct str text)
{
	uint8_t salt[SALT_BYTES];
	int64_t ms;
	bool valid = parse(text, salt);
	sodium_memzero(salt, sizeof(salt));
	return valid && rfc3339_parse(str_n(text.ptr, DAY_BYTES), &ms);
}

static bool load(struct salts *s, int64_t day)
{
	char text[RFC3339_BYTES];
	struct buf CLEANUP(buf_release) line = {0};
	return s->path && file_read(s->path, (size_t)2 * LINE_BYTES, &line, NULL) == 0 &&
	       str_starts(buf_view(&line), day_text(day, text)) && parse(buf_view(&line), s->salt);
}

static void make(struct salts *s, int64_t day)
{
	char date[RFC3339_BYTES], hex[2 * SALT_BYTES + 1], line[LINE_BYTES + 1];
	struct err e;
	randombytes_buf(s->salt, SALT_BYTES);
	sodium_bin2hex(hex, sizeof(hex), s->salt, SALT_BYTES);
	snprintf(line, sizeof(line), "%.*s %s\n", STR_ARG(day_text(day, date)), hex);
	if (s->path && file_write_atomic(s->path, str_n(line, LINE_BYTES), 0600, &e) < 0)
		log_warn("event",
		         "cannot write the day's salt, a restart counts today's visitors again: error=%s",
		         e.text);
}

/* NULL: there is none. */
static const uint8_t *given_find(const struct salts *s, int64_t day)
{
	for (size_t i = 0; i < GIVEN_MAX; i++)
		if (s->given[i].day == day)
			return s->given[i].salt;
	return NULL;
}

void salts_give(struct salts *s, int64_t day, const uint8_t salt[SALT_BYTES])
{
	pthread_mutex_lock(&s->lock);
	size_t oldest = 0;
	for (size_t i = 1; i < GIVEN_MAX; i++)
		oldest = s->given[i].day < s->given[oldest].day ? i : oldest;
	if (s->day != day && !given_find(s, day)) {
		s->given[oldest].day = day;
		memcpy(s->given[oldest].salt, salt, SALT_BYTES);
	}
	pthread_mutex_unlock(&s->lock);
}

bool salts_is_known(struct salts *s, int64_t day)
{
	pthread_mutex_lock(&s->lock);
	bool is_known = s->day == day || given_find(s, day);
	pthread_mutex_unlock(&s->lock);
	return is_known;
}

/* Also deletes the file of an earlier day. */
static bool take_given(struct salts *s, int64_t day)
{
	const uint8_t *given = given_find(s, day);
	if (!given)
		return false;
	memcpy(s->salt, given, SALT_BYTES);
	for (size_t i = 0; i < GIVEN_MAX; i++) {
		if (s->given[i].day >= day)
			continue;
		s->given[i].day = -1;
		sodium_memzero(s->given[i].salt, SALT_BYTES);
	}
	if (s->path)
		unlink(s->path);
	return true;
}

void salts_of_day(struct salts *s, int64_t day, uint8_t ret[SALT_BYTES])
{
	pthread_mutex_lock(&s->lock);
	if (s->day != day && !take_given(s, day) && !load(s, day))
		make(s, day);
	s->day = day;
	memcpy(ret, s->salt, SALT_BYTES);
	pthread_mutex_unlock(&s->lock);
}
