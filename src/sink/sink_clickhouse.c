#include "sink/sink_clickhouse.h"
#include "sink/clickhouse_sink.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

enum { SELECT_TIMEOUT_MS = 30000, EXEC_TIMEOUT_MS = 60000, PING_TIMEOUT_MS = 3000 };

/* --- statements --- */

static int run(struct sink_clickhouse *s, const struct clickhouse_call *call, struct buf *answer,
               struct err *e)
{
	int r = clickhouse_run(s->client, call, answer, e);
	return r == 0 || r == ERR_NOMEM ? r : ERR_UNAVAILABLE;
}

int ch_select(struct sink_clickhouse *s, struct buf *sql, struct buf *ret_answer)
{
	buf_printf(sql, " FORMAT RowBinary");
	struct clickhouse_call call = {
	    .sql = buf_view(sql), .settings = s->select_settings, .timeout_ms = SELECT_TIMEOUT_MS};
	return sql->failed ? ERR_NOMEM : run(s, &call, ret_answer, NULL);
}

int ch_exec(struct sink_clickhouse *s, struct buf *sql)
{
	struct clickhouse_call call = {
	    .sql = buf_view(sql), .settings = s->alter_settings, .timeout_ms = EXEC_TIMEOUT_MS};
	return sql->failed ? ERR_NOMEM : run(s, &call, NULL, NULL);
}

int ch_rows_status(const struct row_reader *r)
{
	return r->bad ? ERR_CORRUPT : 0;
}

void ch_quote(struct buf *sql, struct str text)
{
	static const char digits[] = "0123456789abcdef";
	char *out = buf_reserve(sql, text.len * 4 + 2);
	if (!out)
		return;
	char *begin = out;
	*out++ = '\'';
	for (size_t i = 0; i < text.len; i++) {
		unsigned char c = (unsigned char)text.ptr[i];
		if ((c >= '0' && c <= '9') || (ascii_lower((char)c) >= 'a' && ascii_lower((char)c) <= 'z')) {
			*out++ = (char)c;
			continue;
		}
		*out++ = '\\';
		*out++ = 'x';
		*out++ = digits[c >> 4];
		*out++ = digits[c & 15];
	}
	*out++ = '\'';
	sql->len += (size_t)(out - begin);
}

void ch_where_time(struct buf *sql, int64_t from_ms, int64_t to_ms)
{
	buf_printf(sql, " WHERE day >= toDate(%u) AND day <= toDate(%u) AND time >= %lld AND time < %lld",
	           ch_day(from_ms), ch_day(to_ms - 1), (long long)from_ms, (long long)to_ms);
}

bool ch_text_get(struct row_reader *r, struct arena *arena, struct str *ret)
{
	struct str s = row_text(r);
	*ret = STR_NULL;
	if (s.len == 0)
		return true;
	if (s.ptr[0] == '\0')
		s = str_n(s.ptr + 1, s.len - 1);
	*ret = arena_str(arena, s);
	return ret->ptr != NULL;
}

/* --- ops --- */

static void click_free(struct sink *base)
{
	struct sink_clickhouse *s = ch_self(base);
	clickhouse_free(s->client);
	ch_intake_release(&s->now);
	ch_intake_release(&s->failed);
	free(s);
}

static void click_cancel(struct sink *base)
{
	clickhouse_let_go(ch_self(base)->client);
}

static int click_commit(struct sink *base, const struct sink_batch *batch, uint64_t *ret_duplicates)
{
	int r = ch_commit(ch_self(base), batch);
	if (r == 0)
		*ret_duplicates = 0;
	return r;
}

static int click_ping(struct sink *base, struct err *e)
{
	struct clickhouse_call call = {.sql = STR("SELECT toUInt8(0) FROM visit LIMIT 1 FORMAT RowBinary"),
	                               .timeout_ms = PING_TIMEOUT_MS,
	                               .is_quiet = true};
	CLEANUP(buf_release) struct buf answer = {0};
	return run(ch_self(base), &call, &answer, e);
}

static const struct sink_ops click_ops = {
    .free = click_free,
    .cancel = click_cancel,
    .commit = click_commit,
    .find_duplicates = ch_find_duplicates,
    .has_fingerprints = ch_has_fingerprints,
    .retention = ch_retention,
    .stats = ch_stats,
    .visits = ch_visits,
    .window = ch_window,
    .top_links = ch_top_links,
    .clicks = ch_clicks,
    .reconciliation = ch_reconciliation,
    .ping = click_ping,
};

int sink_clickhouse_open(const char *url, const struct sink_settings *settings, struct sink **ret,
                         struct err *e)
{
	struct sink_clickhouse *s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(e, ERR_NOMEM, "out of memory");
	s->base.ops = &click_ops;
	s->settings = sink_settings_normalize(settings);
	s->insert_timeout_ms = CH_INSERT_TIMEOUT_MS;
	s->quiet_s = CH_QUIET_S;
	uint64_t process;
	randombytes_buf(&process, sizeof(process));
	snprintf(s->base_id, sizeof(s->base_id), "curt-%016llx", (unsigned long long)process);
	int r = clickhouse_new(str_of(url), &s->client, e) ?: ch_tables_open(s, e);
	if (r < 0)
		click_free(&s->base);
	else
		*ret = &s->base;
	return r;
}
