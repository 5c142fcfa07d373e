/* Its own parser: jansson and SQLite's json_valid() do not distinguish lack of memory from invalid text. A
 * tag that is skipped for lack of memory would be missing from the index for ever, or never be removed from
 * it. */
#include "store/tags.h"

#include "base/buf.h"

/* Consumes the character, and white space before it, if it is next. */
static bool take(struct str *s, char c)
{
	while (s->len > 0 &&
	       (s->ptr[0] == ' ' || s->ptr[0] == '\t' || s->ptr[0] == '\n' || s->ptr[0] == '\r'))
		*s = str_n(s->ptr + 1, s->len - 1);
	if (s->len == 0 || s->ptr[0] != c)
		return false;
	*s = str_n(s->ptr + 1, s->len - 1);
	return true;
}

static bool take_hex(struct str *s, uint32_t *ret)
{
	uint32_t value = 0;
	if (s->len < 4)
		return false;
	for (size_t i = 0; i < 4; i++) {
		char c = ascii_lower(s->ptr[i]);
		bool digit = c >= '0' && c <= '9';
		if (!digit && (c < 'a' || c > 'f'))
			return false;
		value = value << 4 | (uint32_t)(digit ? c - '0' : c - 'a' + 10);
	}
	*s = str_n(s->ptr + 4, s->len - 4);
	*ret = value;
	return true;
}

/* The code point after "\u"; a surrogate needs a second one. */
static bool take_code(struct str *s, uint32_t *ret)
{
	uint32_t low;
	if (!take_hex(s, ret) || (*ret >= 0xdc00 && *ret <= 0xdfff))
		return false;
	if (*ret < 0xd800 || *ret > 0xdbff)
		return true;
	if (!str_starts(*s, STR("\\u")))
		return false;
	*s = str_n(s->ptr + 2, s->len - 2);
	if (!take_hex(s, &low) || low < 0xdc00 || low > 0xdfff)
		return false;
	*ret = 0x10000 + ((*ret - 0xd800) << 10) + (low - 0xdc00);
	return true;
}

static void put_utf8(struct buf *b, uint32_t code)
{
	if (code < 0x80) {
		buf_char(b, (char)code);
		return;
	}
	int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
	static const uint8_t lead[] = {0, 0xc0, 0xe0, 0xf0};
	buf_char(b, (char)(lead[more] | code >> 6 * more));
	while (more-- > 0)
		buf_char(b, (char)(0x80 | (code >> 6 * more & 0x3f)));
}

/* What follows a backslash. */
static bool take_escape(struct str *s, struct buf *name)
{
	static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
	if (s->len == 0)
		return false;
	char c = s->ptr[0];
	*s = str_n(s->ptr + 1, s->len - 1);
	uint32_t code;
	if (c == 'u') {
		bool good = take_code(s, &code);
		if (good)
			put_utf8(name, code);
		return good;
	}
	const char *at = c ? strchr(letters, c) : NULL;
	if (at)
		buf_char(name, meanings[at - letters]);
	return at != NULL;
}

static bool take_string(struct str *s, struct buf *name)
{
	name->len = 0;
	if (!take(s, '"'))
		return false;
	while (s->len > 0) {
		char c = s->ptr[0];
		*s = str_n(s->ptr + 1, s->len - 1);
		if (c == '"')
			return true;
		if (c != '\\')
			buf_char(name, c);
		else if (!take_escape(s, name))
			return false;
	}
	return false;
}

int tags_each(struct str tags, int (*fn)(void *ctx, struct str name), void *ctx)
{
	if (tags.len <= STR("[]").len || !take(&tags, '[')) /* most links have no tags */
		return 0;
	CLEANUP(buf_release) struct buf name = {0};
	int r = 0;
	do {
		if (!take_string(&tags, &name))
			break;
		r = name.failed ? ERR_NOMEM : fn(ctx, str_n(name.data ? name.data : "", name.len));
	} while (r == 0 && take(&tags, ','));
	return r;
}
