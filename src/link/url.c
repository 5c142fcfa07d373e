/*
 * The parser of the WHATWG URL Standard, for absolute URLs of the special schemes http and https. Each step
 * writes its part of the serialisation at once:
 *
 *	input      spaces and controls at both ends, and all tabs and line breaks, are removed
 *	scheme     http: or https:, then any number of slashes and backslashes
 *	authority  up to the next / \ ? #
 *	host       a name, IPv4 or [IPv6] (link/url_host.h)
 *	port       0 to 65535; the scheme's own is left out
 *	path       segments between / or \, with . and .. resolved
 *	query      up to #
 *	fragment   the rest
 *
 * Escapes are kept as they are; characters that must not stand in a part are percent-encoded.
 */
#include "link/url.h"

#include "base/utf8.h"
#include "link/url_host.h"

/* Input */

static bool is_removed(char c)
{
	return c == '\t' || c == '\n' || c == '\r';
}

static struct str trim(struct str s)
{
	while (s.len > 0 && (unsigned char)s.ptr[0] <= ' ')
		s = str_n(s.ptr + 1, s.len - 1);
	while (s.len > 0 && (unsigned char)s.ptr[s.len - 1] <= ' ')
		s.len--;
	return s;
}

static int input_clean(struct str in, char *out, size_t *ret_len, struct err *e)
{
	size_t to = 0;
	for (size_t at = 0, len; at < in.len; at += len) {
		const unsigned char *p = (const unsigned char *)in.ptr + at;
		len = utf8_first(str_n(in.ptr + at, in.len - at));
		if (len == 0)
			return err_set(
			    e, ERR_INVALID,
			    "the URL is not valid UTF-8 at byte %zu; send it as UTF-8 or percent-encode it",
			    at + 1);
		if (is_removed(in.ptr[at]))
			continue;
		if (*p < 0x20 || *p == 0x7f || (*p == 0xc2 && p[1] < 0xa0))
			return err_set(e, ERR_INVALID,
			               "the URL has a control character at byte %zu; remove it", at + 1);
		memcpy(out + to, p, len);
		to += len;
	}
	*ret_len = to;
	return 0;
}

/* Percent-encoding: each part of a URL has its own set of characters, besides controls and what is not ASCII. */

#define FRAGMENT_SET " \"<>`"
#define QUERY_SET    " \"#<>'" /* of special schemes */
#define PATH_SET     " \"#<>?^`{}"

static void write_encoded(struct buf *out, struct str part, const char *set)
{
	static const char digits[] = "0123456789ABCDEF";
	for (size_t i = 0; i < part.len; i++) {
		unsigned char c = (unsigned char)part.ptr[i];
		if (c > 0x20 && c < 0x7f && !strchr(set, c))
			buf_char(out, (char)c);
		else
			buf_append(out, (char[]){'%', digits[c >> 4], digits[c & 15]}, 3);
	}
}

/* This server */

static bool is_own(struct str host_text, uint64_t port, const struct url_host *host,
                   const struct url_rules *rules)
{
	if (rules->port == 0 || port != rules->port)
		return false;
	for (size_t i = 0; i < rules->host_count; i++) {
		if (str_eq(host_text, rules->hosts[i]))
			return true;
	}
	return rules->loopback && url_host_is_this_machine(host);
}

/* `authority` is serialised, and `host_len` of it are the host. A trailing dot names the same host. */
static int check_not_own(struct str authority, size_t host_len, uint64_t port, const struct url_host *host,
                         const struct url_rules *rules, struct err *e)
{
	struct echo shown;
	struct str host_text = str_n(authority.ptr, host_len);
	struct str port_text = str_n(authority.ptr + host_len, authority.len - host_len);
	if (str_ends(host_text, STR(".")))
		host_text.len--;
	if (!rules || (!is_own(host_text, port, host, rules) &&
	               !(rules->own.len == host_text.len + port_text.len &&
	                 str_starts(rules->own, host_text) && str_ends(rules->own, port_text))))
		return 0;
	return err_set(
	    e, ERR_INVALID,
	    "the URL points back to this server (%s); give the address that the link should end at",
	    echo(&shown, host_text));
}

/* Authority */

static int port_parse(struct str in, bool is_https, uint64_t *ret, struct err *e)
{
	struct echo shown;
	*ret = is_https ? 443 : 80;
	if (in.len == 0)
		return 0;
	if (!str_u64(in, ret) || *ret > 65535)
		return err_set(e, ERR_INVALID,
		               "the port '%s' is not a number from 0 to 65535; correct it or leave it out",
		               echo(&shown, in));
	return 0;
}

static int write_authority(struct str in, bool is_https, const struct url_rules *rules, struct buf *out,
                           struct err *e)
{
	const char *at = in.len > 0 ? memrchr(in.ptr, '@', in.len) : NULL;
	if (at && !str_eq(str_n(in.ptr, (size_t)(at - in.ptr)), STR(":")) && at > in.ptr)
		return err_set(e, ERR_INVALID,
		               "the URL has a user name or password before its host (an @); remove it: "
		               "links are public");
	if (at)
		in = str_n(at + 1, in.len - (size_t)(at + 1 - in.ptr));
	const char *bracket = in.len > 0 ? memrchr(in.ptr, ']', in.len) : NULL;
	const char *from = bracket ? bracket : in.ptr;
	const char *colon = in.len > 0 ? memchr(from, ':', in.len - (size_t)(from - in.ptr)) : NULL;
	struct str port_text = colon ? str_n(colon + 1, in.len - (size_t)(colon + 1 - in.ptr)) : STR_NULL;
	struct url_host host;
	uint64_t port = 0;
	size_t start = out->len;
	int r = url_host_parse(colon ? str_n(in.ptr, (size_t)(colon - in.ptr)) : in, &host, e);
	if (r == 0)
		r = port_parse(port_text, is_https, &port, e);
	if (r < 0)
		return r;
	url_host_write(out, &host);
	size_t host_len = out->len - start;
	if (port != (is_https ? 443 : 80))
		buf_printf(out, ":%u", (unsigned)port);
	return out->failed ? 0
	                   : check_not_own(str_n(out->data + start, out->len - start), host_len, port, &host,
	                                   rules, e);
}

/* Path */

static bool is_slash(char c)
{
	return c == '/' || c == '\\';
}

/* How many dots a segment is made of, each "." or "%2e"; 0 when it has anything else. */
static size_t dots(struct str segment)
{
	size_t count = 0;
	while (segment.len > 0) {
		bool escaped = segment.len >= 3 && str_eq_nocase(str_n(segment.ptr, 3), STR("%2e"));
		if (!escaped && segment.ptr[0] != '.')
			return 0;
		segment = str_n(segment.ptr + (escaped ? 3 : 1), segment.len - (escaped ? 3 : 1));
		count++;
	}
	return count;
}

static void write_path(struct buf *out, struct str path)
{
	size_t start = out->len;
	buf_char(out, '/');
	for (size_t at = path.len > 0 && is_slash(path.ptr[0]) ? 1 : 0, end; at <= path.len; at = end + 1) {
		for (end = at; end < path.len && !is_slash(path.ptr[end]);)
			end++;
		struct str segment = str_n(path.ptr + at, end - at);
		size_t count = dots(segment);
		bool is_last = end == path.len;
		if (count == 2) {
			/* What is written ends with a slash: back to the one before it. */
			while (out->len > start + 1 && out->data[--out->len - 1] != '/')
				;
		} else if (count != 1) {
			write_encoded(out, segment, PATH_SET);
			if (!is_last)
				buf_char(out, '/');
		}
	}
}

/* The whole */

static int scheme_take(struct str *s, bool *ret_https, struct err *e)
{
	struct str rest = *s;
	struct str scheme = str_cut(&rest, ':');
	struct echo shown;
	if (!rest.ptr)
		return err_set(
		    e, ERR_INVALID,
		    "the URL must begin with http:// or https://; write 'https:%s%s' if you mean that",
		    str_starts(*s, STR("//")) ? "" : "//", echo(&shown, *s));
	*ret_https = str_eq_nocase(scheme, STR("https"));
	if (!*ret_https && !str_eq_nocase(scheme, STR("http")))
		return err_set(e, ERR_INVALID, "the URL must begin with http:// or https://, not '%s:'",
		               echo(&shown, scheme));
	while (rest.len > 0 && is_slash(rest.ptr[0]))
		rest = str_n(rest.ptr + 1, rest.len - 1);
	*s = rest;
	return 0;
}

/* Cuts `*s` before the first of `marks`: returns what is before it and leaves the rest with its mark. */
static struct str cut_before(struct str *s, const char *marks)
{
	size_t len = 0;
	while (len < s->len && !strchr(marks, s->ptr[len]))
		len++;
	struct str before = str_n(s->ptr, len);
	*s = str_n(s->ptr + len, s->len - len);
	return before;
}

static void write_marked(struct buf *out, struct str part, const char *set)
{
	if (part.len == 0)
		return;
	buf_char(out, part.ptr[0]);
	write_encoded(out, str_n(part.ptr + 1, part.len - 1), set);
}

static int write_url(struct str in, const struct url_rules *rules, struct buf *out, struct err *e)
{
	bool is_https = false;
	int r = scheme_take(&in, &is_https, e);
	if (r < 0)
		return r;
	struct str fragment = in;
	struct str query = cut_before(&fragment, "#");
	struct str path = cut_before(&query, "?");
	struct str authority = cut_before(&path, "/\\");
	buf_str(out, is_https ? STR("https://") : STR("http://"));
	r = write_authority(authority, is_https, rules, out, e);
	if (r < 0)
		return r;
	write_path(out, path);
	write_marked(out, query, QUERY_SET);
	write_marked(out, fragment, FRAGMENT_SET);
	return 0;
}

int url_canonicalize(struct str in, const struct url_rules *rules, struct buf *out, struct err *e)
{
	char clean[URL_BYTES_MAX];
	size_t start = out->len, len = 0;
	in = trim(in);
	if (out->failed)
		return err_set(e, ERR_NOMEM, "there is no memory to read the URL");
	if (in.len == 0)
		return err_set(e, ERR_INVALID,
		               "the URL is empty; write one such as https://example.com/page");
	if (in.len > URL_BYTES_MAX)
		return err_set(e, ERR_INVALID, "the URL has %zu bytes; it may have %d", in.len,
		               URL_BYTES_MAX);
	int r = input_clean(in, clean, &len, e);
	if (r == 0)
		r = write_url(str_n(clean, len), rules, out, e);
	if (r == 0 && out->failed)
		r = err_set(e, ERR_NOMEM, "there is no memory to read the URL");
	if (r == 0 && out->len - start > URL_BYTES_MAX)
		r = err_set(e, ERR_INVALID,
		            "the URL has %zu bytes once it is percent-encoded; it may have %d",
		            out->len - start, URL_BYTES_MAX);
	if (r < 0) {
		out->len = start;
		out->failed = false; /* what was cut short is gone again */
	}
	return r;
}
