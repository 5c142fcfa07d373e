#include "seen/coverage.h"

#include "base/grow.h"
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	FIELD_BYTES = 40,
	RECORD_BYTES = 160,
	REPEATED_MAX = 100 * 1000 * 1000, /* a partition that goes back further is another one */
};
#define ALWAYS_MS (INT64_MIN / 2)

void coverage_release(struct coverage *t)
{
	free(t->partitions);
	*t = (struct coverage){0};
}

int coverage_reply(struct redis_conn *c, enum redis_type type, struct redis_reply *ret, struct err *why)
{
	if (redis_read(c, ret) < 0)
		return err_set(why, ERR_UNAVAILABLE, "seen.url: Redis does not answer (%s)", redis_why(c));
	if (ret->type == REDIS_ERROR)
		return err_set(why, ERR_UNAVAILABLE, "seen.url: Redis refused a command (%.*s)",
		               (int)MIN(ret->text.len, (size_t)100), ret->text.ptr);
	if (ret->type != type)
		return err_set(why, ERR_UNAVAILABLE,
		               "seen.url: unexpected reply from Redis; is it another kind of server?");
	return 0;
}

/* Records */

struct coverage_record {
	unsigned long long offset;
	long long since_ms, covered_ms;
	unsigned long long evicted;
	char run_id[sizeof(((struct coverage *)0)->run_id)];
	bool is_there;
};

static struct coverage_record record_read(const struct redis_reply *reply)
{
	char text[RECORD_BYTES];
	struct coverage_record r = {0};
	if (reply->type != REDIS_STR || reply->text.len >= sizeof(text))
		return r;
	memcpy(text, reply->text.ptr, reply->text.len);
	text[reply->text.len] = '\0';
	r.is_there = sscanf(text, "%llu %lld %lld %llu %47s", &r.offset, &r.since_ms, &r.covered_ms,
	                    &r.evicted, r.run_id) == 5;
	return r;
}

static struct str record_text(const struct coverage *t, uint64_t offset, int64_t since_ms, int64_t covered_ms,
                              char out[RECORD_BYTES])
{
	int n = snprintf(out, RECORD_BYTES, "%llu %lld %lld %llu %s", (unsigned long long)offset,
	                 (long long)since_ms, (long long)covered_ms, (unsigned long long)t->evicted,
	                 t->run_id);
	return str_n(out, (size_t)n);
}

/* Was it written at the server's present state, and not in the future? */
static bool record_is_good(const struct coverage *t, const struct coverage_record *r, int64_t now_ms)
{
	return r->is_there && strcmp(r->run_id, t->run_id) == 0 && r->evicted == t->evicted &&
	       r->covered_ms <= now_ms + COVERAGE_SLACK_MS;
}

static const struct str beginning_field = STR("beginning");
static const struct str draw_field = STR("draw");

/* The server itself */

static struct str info_value(struct str info, const char *name)
{
	const char *at = memmem(info.ptr, info.len, name, strlen(name));
	if (!at)
		return STR_NULL;
	at += strlen(name);
	size_t room = (size_t)(info.ptr + info.len - at), len = 0;
	while (len < room && at[len] != '\r' && at[len] != '\n')
		len++;
	return str_n(at, len);
}

static int read_state(struct coverage *t, struct redis_conn *c, struct err *why)
{
	struct redis_reply info;
	if (coverage_reply(c, REDIS_STR, &info, why) < 0)
		return ERR_UNAVAILABLE;
	struct str id = info_value(info.text, "run_id:");
	if (id.len == 0 || id.len >= sizeof(t->run_id))
		return err_set(why, ERR_UNAVAILABLE, "seen.url: INFO of Redis has no run_id");
	memcpy(t->run_id, id.ptr, id.len);
	t->run_id[id.len] = '\0';
	if (coverage_reply(c, REDIS_STR, &info, why) < 0)
		return ERR_UNAVAILABLE;
	char number[24] = "";
	struct str evicted = info_value(info.text, "evicted_keys:");
	if (evicted.len == 0 || evicted.len >= sizeof(number))
		return err_set(why, ERR_UNAVAILABLE, "seen.url: INFO of Redis has no evicted_keys");
	memcpy(number, evicted.ptr, evicted.len);
	t->evicted = strtoull(number, NULL, 10);
	return 0;
}

/* Beginnings */

/* Whether partitions without a record are complete; read once per batch. */
struct beginning {
	const struct coverage_config *config;
	struct redis_conn *conn;
	struct err *why;
	int64_t now_ms;
	struct coverage_record noted;
	enum { BEGINNING_UNREAD, BEGINNING_IS_NOW, BEGINNING_IS_PAST } is;
};

/* The `since` of the note is the end of its validity. */
static bool is_noted(const struct coverage *t, const struct beginning *g)
{
	return record_is_good(t, &g->noted, g->now_ms) && g->now_ms < g->noted.since_ms;
}

static int beginning_fetch(struct beginning *g)
{
	struct redis_reply reply;
	redis_write(g->conn, REDIS_ARGS(STR("HMGET"), str_of(g->config->key), beginning_field));
	if (coverage_reply(g->conn, REDIS_ARRAY, &reply, g->why) < 0)
		return ERR_UNAVAILABLE;
	struct redis_reply one = redis_reply_at(&reply, 0);
	g->noted = record_read(&one);
	return 0;
}

/* The note is written before anything is counted. So if the sink is not empty, and the note was missing
 * before the sink was queried, another worker may have written it since. */
static int beginning_read(const struct coverage *t, struct beginning *g)
{
	int r = 0;
	if (g->is != BEGINNING_UNREAD)
		return 0;
	bool is_now = is_noted(t, g);
	if (!is_now && g->config->sink_is_empty(g->config->ctx) == 1) {
		char text[RECORD_BYTES];
		struct redis_reply reply;
		redis_write(g->conn, REDIS_ARGS(STR("HSET"), str_of(g->config->key), beginning_field,
		                                record_text(t, 0, g->now_ms + (int64_t)g->config->window_ms,
		                                            g->now_ms, text)));
		r = coverage_reply(g->conn, REDIS_INT, &reply, g->why);
		is_now = true;
	} else if (!is_now) {
		r = beginning_fetch(g);
		is_now = is_noted(t, g);
	}
	g->is = is_now ? BEGINNING_IS_NOW : BEGINNING_IS_PAST;
	return r;
}

/* Reading */

static int by_number(const void *a, const void *b)
{
	const struct coverage_partition *x = a, *y = b;
	return (x->number > y->number) - (x->number < y->number);
}

const struct coverage_partition *coverage_partition_find(const struct coverage *t, uint64_t number)
{
	const struct coverage_partition key = {.number = number};
	return t->count ? bsearch(&key, t->partitions, t->count, sizeof(key), by_number) : NULL;
}

/* The partition continues its record, or begins now. */
static int partition_judge(struct coverage *t, const struct advance *a, const struct coverage_record *r,
                           struct beginning *g, struct coverage_partition *ret)
{
	*ret = (struct coverage_partition){.number = a->stream, .since_ms = g->now_ms + COVERAGE_SLACK_MS};
	if (!r->is_there && a->from == 0) {
		if (beginning_read(t, g) < 0)
			return ERR_UNAVAILABLE;
		ret->is_complete = g->is == BEGINNING_IS_NOW;
		ret->since_ms = ret->is_complete ? ALWAYS_MS : ret->since_ms;
		return 0;
	}
	ret->is_complete = record_is_good(t, r, g->now_ms) && r->offset >= a->from &&
	                   r->offset - a->from < REPEATED_MAX;
	ret->since_ms = ret->is_complete ? r->since_ms : ret->since_ms;
	t->has_gap |= !ret->is_complete;
	return 0;
}

/* Writes records if `draw` is unchanged; 0: it is not. */
static const char set_script[] =
    "if redis.call('HGET', KEYS[1], 'draw') ~= ARGV[1] then return 0 end\n"
    "for i = 2, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end\n"
    "return 1";

static void draw_take(struct coverage *t, const struct redis_reply *reply)
{
	bool is_there = reply->type == REDIS_STR && reply->text.len < sizeof(t->draw);
	size_t len = is_there ? reply->text.len : 0;
	if (len > 0)
		memcpy(t->draw, reply->text.ptr, len);
	t->draw[len] = '\0';
}

/* Creates the number; another worker may be faster. */
static int draw_make(struct coverage *t, const struct coverage_config *config, struct redis_conn *c,
                     struct err *why)
{
	uint64_t number;
	char text[COVERAGE_DRAW_BYTES];
	struct redis_reply reply;
	randombytes_buf(&number, sizeof(number));
	int n = snprintf(text, sizeof(text), "%016llx", (unsigned long long)number);
	redis_write(c, REDIS_ARGS(STR("HSETNX"), str_of(config->key), draw_field, str_n(text, (size_t)n)));
	redis_write(c, REDIS_ARGS(STR("HGET"), str_of(config->key), draw_field));
	if (coverage_reply(c, REDIS_INT, &reply, why) < 0 || coverage_reply(c, REDIS_STR, &reply, why) < 0)
		return ERR_UNAVAILABLE;
	draw_take(t, &reply);
	return 0;
}

/* Sends the command that reads or writes the records. */
static int partitions_write(const struct coverage *t, const struct coverage_config *config,
                            const struct seen_batch *b, struct redis_conn *c, bool is_set)
{
	size_t n = 0, count = b->partition_count;
	struct str *args = calloc(5 + 2 * count, sizeof(*args));
	char(*fields)[FIELD_BYTES] = calloc(count + 1, sizeof(*fields));
	char(*records)[RECORD_BYTES] = calloc(is_set ? count + 1 : 1, sizeof(*records));
	bool has_room = args && fields && records;
	if (has_room && is_set) {
		args[n++] = STR("EVAL");
		args[n++] = str_of(set_script);
		args[n++] = STR("1");
		args[n++] = str_of(config->key);
		args[n++] = str_of(t->draw);
	} else if (has_room) {
		args[n++] = STR("HMGET");
		args[n++] = str_of(config->key);
		args[n++] = draw_field;
		args[n++] = beginning_field;
	}
	for (size_t i = 0; has_room && i < count; i++) {
		snprintf(fields[i], FIELD_BYTES, "%016llx:%llx", (unsigned long long)b->source,
		         (unsigned long long)b->partitions[i].stream);
		args[n++] = str_of(fields[i]);
		if (is_set)
			args[n++] = record_text(t, b->partitions[i].to,
			                        coverage_partition_find(t, b->partitions[i].stream)->since_ms,
			                        b->now_ms, records[i]);
	}
	if (has_room)
		redis_write(c, args, n);
	free(args);
	free(fields);
	free(records);
	return has_room ? 0 : ERR_NOMEM;
}

static int partitions_judge(struct coverage *t, const struct seen_batch *b, struct coverage_record *records,
                            struct beginning *g)
{
	struct redis_reply reply;
	size_t count = b->partition_count;
	if (coverage_reply(g->conn, REDIS_ARRAY, &reply, g->why) < 0)
		return ERR_UNAVAILABLE;
	if (reply.count != count + 2)
		return err_set(g->why, ERR_UNAVAILABLE, "seen.url: Redis sent too short a reply");
	struct redis_reply one = redis_reply_at(&reply, 0);
	draw_take(t, &one);
	for (size_t i = 0; i <= count; i++) {
		one = redis_reply_at(&reply, i + 1);
		*(i == 0 ? &g->noted : &records[i - 1]) = record_read(&one);
	}
	int r = read_state(t, g->conn, g->why);
	if (r == 0 && !t->draw[0])
		r = draw_make(t, g->config, g->conn, g->why);
	for (size_t i = 0; r == 0 && i < count; i++)
		r = partition_judge(t, &b->partitions[i], &records[i], g, &t->partitions[i]);
	t->count = r == 0 ? count : 0;
	qsort(t->partitions, t->count, sizeof(*t->partitions), by_number);
	return r;
}

int coverage_read(struct coverage *t, const struct coverage_config *config, const struct seen_batch *b,
                  struct redis_conn *c, struct err *why)
{
	struct beginning g = {.config = config, .conn = c, .why = why, .now_ms = b->now_ms};
	t->count = 0;
	t->has_gap = false;
	struct coverage_record *records = calloc(b->partition_count + 1, sizeof(*records));
	if (!records || !ARRAY_ROOM(t->partitions, t->cap, b->partition_count + 1) ||
	    partitions_write(t, config, b, c, false) < 0) {
		free(records);
		return err_set(why, ERR_NOMEM, "out of memory");
	}
	redis_write(c, REDIS_ARGS(STR("INFO"), STR("server")));
	redis_write(c, REDIS_ARGS(STR("INFO"), STR("stats")));
	int r = partitions_judge(t, b, records, &g);
	free(records);
	return r;
}

/* Writing */

int coverage_write(const struct coverage *t, const struct coverage_config *config, const struct seen_batch *b,
                   struct redis_conn *c, struct err *why)
{
	struct redis_reply reply;
	if (partitions_write(t, config, b, c, true) < 0)
		return err_set(why, ERR_NOMEM, "out of memory");
	if (t->has_gap)
		redis_write(c, REDIS_ARGS(STR("HDEL"), str_of(config->key), beginning_field));
	int r = coverage_reply(c, REDIS_INT, &reply, why);
	return r == 0 && t->has_gap ? coverage_reply(c, REDIS_INT, &reply, why) : r;
}
