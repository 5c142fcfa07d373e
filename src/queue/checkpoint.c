#include "queue/checkpoint.h"

#include "base/hash.h"
#include "obs/log.h"
#include "os/file.h"

#include <stdio.h>

/*
 * The file is text:
 *
 *	curt checkpoint 1
 *	counts CLICKS ORPHANS IMPRESSIONS REJECTED DROPPED positions N
 *	STREAM OFFSET                  N lines; STREAM is hexadecimal
 *	sum HASH                       over all lines above, hexadecimal
 */

enum { FILE_BYTES_MAX = 64 << 20 };
static const char title[] = "curt checkpoint 1\n";

static int text_read(struct buf *text, struct arena *arena, struct checkpoint *ret)
{
	unsigned long long sum;
	buf_char(text, 0);
	if (text->failed)
		return ERR_NOMEM;
	const char *last = text->len > 2 ? memrchr(text->data, '\n', text->len - 2) : NULL;
	if (!last || strncmp(text->data, title, sizeof(title) - 1) != 0)
		return ERR_CORRUPT;
	size_t len = (size_t)(last + 1 - text->data);
	if (sscanf(text->data + len, "sum %16llx", &sum) != 1 || sum != hash_bytes(text->data, len, 0))
		return ERR_CORRUPT;
	const char *line = text->data + sizeof(title) - 1;
	unsigned long long clicks, orphans, impressions, rejected, dropped, count;
	int n = 0;
	if (sscanf(line, "counts %llu %llu %llu %llu %llu positions %llu\n%n", &clicks, &orphans,
	           &impressions, &rejected, &dropped, &count, &n) != 6 ||
	    n == 0 || count > FILE_BYTES_MAX)
		return ERR_CORRUPT;
	ret->counts = (struct event_counts){.clicks = clicks,
	                                    .orphans = orphans,
	                                    .impressions = impressions,
	                                    .rejected = rejected,
	                                    .dropped = dropped};
	ret->positions = arena_alloc(arena, count * sizeof(*ret->positions) + 1);
	if (!ret->positions)
		return ERR_NOMEM;
	for (ret->count = 0; ret->count < count; ret->count++) {
		unsigned long long stream, offset;
		line += n;
		if (sscanf(line, "%16llx %llu\n%n", &stream, &offset, &n) != 2)
			return ERR_CORRUPT;
		ret->positions[ret->count] = (struct position){stream, offset};
	}
	return 0;
}

bool checkpoint_is_valid(struct str text)
{
	struct arena CLEANUP(arena_release) arena = {0};
	struct buf CLEANUP(buf_release) copy = {0};
	struct checkpoint c;
	buf_str(&copy, text);
	return text_read(&copy, &arena, &c) == 0;
}

int checkpoint_read(const char *path, struct arena *arena, struct checkpoint *ret, struct err *e)
{
	struct buf CLEANUP(buf_release) text = {0};
	*ret = (struct checkpoint){0};
	int r = file_read(path, FILE_BYTES_MAX, &text, e);
	if (r == ERR_NOT_FOUND)
		return 0;
	if (r < 0)
		return r;
	r = text_read(&text, arena, ret);
	if (r == ERR_CORRUPT) {
		log_warn("events", "damaged checkpoint, reading the event log from its beginning: file=%s",
		         path);
		*ret = (struct checkpoint){0};
		return 0;
	}
	return r < 0 ? err_set(e, r, "out of memory") : 0;
}

int checkpoint_write(const char *path, const struct checkpoint *c, struct err *e)
{
	struct buf CLEANUP(buf_release) text = {0};
	const struct event_counts *n = &c->counts;
	buf_printf(&text, "%scounts %llu %llu %llu %llu %llu positions %zu\n", title,
	           (unsigned long long)n->clicks, (unsigned long long)n->orphans,
	           (unsigned long long)n->impressions, (unsigned long long)n->rejected,
	           (unsigned long long)n->dropped, c->count);
	for (size_t i = 0; i < c->count; i++)
		buf_printf(&text, "%016llx %llu\n", (unsigned long long)c->positions[i].stream,
		           (unsigned long long)c->positions[i].offset);
	buf_printf(&text, "sum %016llx\n", (unsigned long long)hash_bytes(text.data, text.len, 0));
	if (text.failed)
		return err_set(e, ERR_NOMEM, "out of memory");
	return file_write_atomic(path, str_n(text.data, text.len), 0600, e);
}
