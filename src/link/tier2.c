#include "link/tier2.h"

#include "base/bytes.h"
#include "base/crc32c.h"

#include <stdlib.h>

enum {
	FORMAT = 1,
	KIND_LINK = 'L',
	KIND_NONE = 'N',
	FLAG_ALIAS = 1 << 0,
	FLAG_ENABLED = 1 << 1,
	FLAG_LATE_URL = 1 << 2,
	FLAGS_KNOWN = FLAG_ALIAS | FLAG_ENABLED | FLAG_LATE_URL,
	CRC_BYTES = 4,
};

/* Writing */

static void put(struct buf *out, uint64_t v, unsigned bytes)
{
	uint8_t le[8];
	bytes_put(le, v, bytes);
	buf_append(out, le, bytes);
}

static void put_text(struct buf *out, struct str text)
{
	put(out, text.len, 4);
	buf_str(out, text);
}

static void put_link(struct buf *out, const struct link_record *link)
{
	unsigned flags = (link->is_alias ? FLAG_ALIAS : 0) | (link->enabled ? FLAG_ENABLED : 0) |
	                 (link->expired_url.ptr ? FLAG_LATE_URL : 0);
	put(out, flags, 1);
	put(out, link->redirect_status, 2);
	put(out, link->id, 8);
	put(out, link->owner, 8);
	put(out, link->api_key, 8);
	put(out, (uint64_t)link->not_before_ms, 8);
	put(out, (uint64_t)link->expires_ms, 8);
	put_text(out, link->url);
	put_text(out, link->expired_url);
}

void tier2_encode(const struct link_record *link, struct buf *out)
{
	size_t at = out->len;
	put(out, 0, CRC_BYTES);
	put(out, FORMAT, 1);
	put(out, link ? KIND_LINK : KIND_NONE, 1);
	if (link)
		put_link(out, link);
	if (out->failed)
		return;
	size_t body = at + CRC_BYTES;
	uint32_t crc = crc32c(0, out->data + body, out->len - body);
	bytes_put(out->data + at, crc, CRC_BYTES);
}

/* Reading. Failure is sticky, as in base/buf.h. */

struct value_reader {
	struct str rest;
	bool failed;
};

static uint64_t take(struct value_reader *c, unsigned bytes)
{
	if (c->failed || c->rest.len < bytes) {
		c->failed = true;
		return 0;
	}
	uint64_t v = bytes_get(c->rest.ptr, bytes);
	c->rest = str_n(c->rest.ptr + bytes, c->rest.len - bytes);
	return v;
}

/* Stored URLs are visible ASCII. */
static struct str take_url(struct value_reader *c)
{
	size_t len = take(c, 4);
	if (c->failed || len > c->rest.len) {
		c->failed = true;
		return STR_NULL;
	}
	struct str url = str_n(c->rest.ptr, len);
	for (size_t i = 0; i < len; i++)
		c->failed |= url.ptr[i] <= ' ' || url.ptr[i] > '~';
	c->rest = str_n(c->rest.ptr + len, c->rest.len - len);
	return url;
}

static bool status_is_known(uint64_t status)
{
	return status == 301 || status == 302 || status == 307 || status == 308;
}

static int take_link(struct value_reader *c, struct arena *arena, struct link_record *ret)
{
	uint64_t flags = take(c, 1);
	struct link_record link = {
	    .is_alias = flags & FLAG_ALIAS,
	    .enabled = flags & FLAG_ENABLED,
	    .redirect_status = (uint16_t)take(c, 2),
	};
	link.id = take(c, 8);
	link.owner = take(c, 8);
	link.api_key = take(c, 8);
	link.not_before_ms = (int64_t)take(c, 8);
	link.expires_ms = (int64_t)take(c, 8);
	struct str url = take_url(c);
	struct str late = take_url(c);
	bool has_late = flags & FLAG_LATE_URL;
	if (c->failed || c->rest.len > 0 || (flags & ~(uint64_t)FLAGS_KNOWN) || link.id == 0 ||
	    url.len == 0 || has_late != (late.len > 0) || !status_is_known(link.redirect_status))
		return ERR_CORRUPT;
	link.url = arena_str(arena, url);
	link.expired_url = has_late ? arena_str(arena, late) : STR_NULL;
	if (!link.url.ptr || (has_late && !link.expired_url.ptr))
		return ERR_NOMEM;
	*ret = link;
	return 0;
}

int tier2_decode(struct str value, struct arena *arena, struct link_record *ret)
{
	struct value_reader c = {.rest = value};
	uint32_t crc = (uint32_t)take(&c, CRC_BYTES);
	if (c.failed || crc32c(0, c.rest.ptr, c.rest.len) != crc || take(&c, 1) != FORMAT)
		return ERR_CORRUPT;
	uint64_t kind = take(&c, 1);
	if (kind == KIND_LINK)
		return take_link(&c, arena, ret);
	return kind == KIND_NONE && !c.failed && c.rest.len == 0 ? ERR_NOT_FOUND : ERR_CORRUPT;
}

/* Lookups */

static void got(struct tier2_read *r, const struct rcache_get *get)
{
	struct store_lookup *read = r->read;
	if (get->state == RCACHE_HIT) {
		int result = tier2_decode(get->value, read->arena, &read->link);
		r->answered = result == 0 || result == ERR_NOT_FOUND;
		if (r->answered)
			read->result = result;
	}
	read->fresh = get->state == RCACHE_CHANGED;
	/* An invalid value stays until it expires: a fill replaces nothing. */
	r->fills = get->state == RCACHE_MISS;
}

void tier2_get(const struct tier2 *t, struct tier2_read *reads, size_t n)
{
	CLEANUP(arena_release) struct arena arena = {0};
	struct rcache_get *gets = t->rcache ? arena_zalloc(&arena, n * sizeof(*gets)) : NULL;
	size_t count = 0;
	if (!gets)
		return;
	for (size_t i = 0; i < n; i++) {
		if (!reads[i].skip)
			gets[count++] = (struct rcache_get){.key = reads[i].read->ref.key, .arena = &arena};
	}
	if (count == 0)
		return;
	t->rcache->ops->get(t->rcache, gets, count);
	for (size_t i = 0, at = 0; i < n; i++) {
		if (!reads[i].skip)
			got(&reads[i], &gets[at++]);
	}
}

/* STR_NULL: not for the shared cache. */
static struct str value_of(const struct tier2 *t, const struct store_lookup *read, struct arena *arena,
                           uint64_t *ret_life_ms)
{
	CLEANUP(buf_release) struct buf value = {0};
	if (read->result == 0 && tier2_holds(&read->link)) {
		*ret_life_ms = t->life_ms;
		tier2_encode(&read->link, &value);
	} else if (read->result == ERR_NOT_FOUND && t->absent_ms > 0) {
		*ret_life_ms = t->absent_ms;
		tier2_encode(NULL, &value);
	}
	return value.failed || value.len == 0 ? STR_NULL : arena_str(arena, buf_view(&value));
}

void tier2_fill(const struct tier2 *t, const struct tier2_read *reads, size_t n, int64_t began_ms)
{
	CLEANUP(arena_release) struct arena arena = {0};
	struct rcache_fill *fills = t->rcache ? arena_zalloc(&arena, n * sizeof(*fills)) : NULL;
	size_t count = 0;
	for (size_t i = 0; fills && i < n; i++) {
		if (!reads[i].fills || reads[i].read->old)
			continue;
		struct rcache_fill *f = &fills[count];
		f->key = reads[i].read->ref.key;
		f->value = value_of(t, reads[i].read, &arena, &f->life_ms);
		count += f->value.ptr != NULL;
	}
	if (count > 0)
		t->rcache->ops->fill(t->rcache, fills, count, began_ms);
}
