/*
 * Checks the input byte by byte (controls, white space, backslashes, UTF-8), cuts it into parts as in RFC
 * 3986, and appends each part in its canonical form. A canonical URL maps to itself.
 *
 * A spelling that browsers, resolvers and filters read differently is refused rather than repaired:
 * backslashes, user info, escapes in the host, and IPv4 addresses in any but the dotted form (some read
 * 0x7f.1 and 2130706433 as the same address, others as names).
 */
#include "link/url.h"

#include "base/utf8.h"
#include "os/net.h"

#include <arpa/inet.h>
#include <idn2.h>
#include <stdio.h>

enum {
	HOST_BYTES_MAX = 253,        /* as an A-label without a trailing dot (RFC 1035) */
	HOST_INPUT_BYTES_MAX = 1020, /* the same in UTF-8, with some slack */
	LABEL_BYTES_MAX = 63,
	ECHO_BYTES_MAX = 40,
};

/* A part of the input for an error message: short and printable. */
struct echo {
	char text[ECHO_BYTES_MAX + sizeof("...")];
};

static const char *echo(struct echo *to, struct str s)
{
	size_t len = MIN(s.len, ECHO_BYTES_MAX);
	for (size_t i = 0; i < len; i++)
		to->text[i] = s.ptr[i] >= 0x20 && s.ptr[i] < 0x7f ? s.ptr[i] : '?';
	snprintf(to->text + len, sizeof(to->text) - len, "%s", s.len > len ? "..." : "");
	return to->text;
}

/* ---- bytes ---- */

static bool is_space(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_unreserved(char c)
{
	char lower = ascii_lower(c);
	return (lower >= 'a' && lower <= 'z') || is_digit(c) || c == '-' || c == '.' || c == '_' || c == '~';
}

static struct str trim(struct str s)
{
	while (s.len > 0 && is_space(s.ptr[0]))
		s = str_n(s.ptr + 1, s.len - 1);
	while (s.len > 0 && is_space(s.ptr[s.len - 1]))
		s.len--;
	return s;
}

static int check_bytes(struct str in, struct err *e)
{
	for (size_t at = 0, len; at < in.len; at += len) {
		const char *p = in.ptr + at;
		len = utf8_first(str_n(p, in.len - at));
		if (len == 0)
			return err_set(e, ERR_INVALID,
			               "the URL is not valid UTF-8 at byte %zu; send it as UTF-8 or "
			               "percent-encode it",
			               at + 1);
		if (is_space(*p))
			return err_set(e, ERR_INVALID,
			               "the URL has white space inside, at byte %zu; remove it or write %%20",
			               at + 1);
		unsigned char first = (unsigned char)p[0];
		if (first < 0x20 || first == 0x7f || (first == 0xc2 && (unsigned char)p[1] < 0xa0))
			return err_set(e, ERR_INVALID,
			               "the URL has a control character at byte %zu; remove it", at + 1);
		if (*p == '\\')
			return err_set(e, ERR_INVALID,
			               "the URL has a backslash at byte %zu; write / or %%5C instead",
			               at + 1);
	}
	return 0;
}

/* ---- scheme ---- */

/* Removes http:// or https:// from `*s`. */
static int take_scheme(struct str *s, bool *ret_https, struct err *e)
{
	struct str rest = *s;
	struct str scheme = str_cut(&rest, ':');
	struct echo shown;
	if (!rest.ptr) {
		while (scheme.len > 0 && scheme.ptr[0] == '/')
			scheme = str_n(scheme.ptr + 1, scheme.len - 1);
		return err_set(
		    e, ERR_INVALID,
		    "the URL must begin with http:// or https://; write 'https://%s' if you mean that",
		    echo(&shown, scheme));
	}
	*ret_https = str_eq_nocase(scheme, STR("https"));
	if (!*ret_https && !str_eq_nocase(scheme, STR("http")))
		return err_set(e, ERR_INVALID, "the URL must begin with http:// or https://, not '%s:'",
		               echo(&shown, scheme));
	if (!str_starts(rest, STR("//")))
		return err_set(e, ERR_INVALID, "the URL must have // after '%s:'", echo(&shown, scheme));
	*s = str_n(rest.ptr + 2, rest.len - 2);
	return 0;
}

/* ---- host ---- */

/* A DNS label, or one with '_', which some hosts have. */
static bool label_valid(struct str label)
{
	if (label.len == 0 || label.len > LABEL_BYTES_MAX || label.ptr[0] == '-' ||
	    label.ptr[label.len - 1] == '-')
		return false;
	for (size_t i = 0; i < label.len; i++) {
		char c = label.ptr[i];
		if (!(c >= 'a' && c <= 'z') && !is_digit(c) && c != '-' && c != '_')
			return false;
	}
	return true;
}

/* All digits, or 0x and hex digits: some programs read the host as an IPv4 address. */
static bool label_numeric(struct str label)
{
	bool hex = str_starts(label, STR("0x"));
	for (size_t i = hex ? 2 : 0; i < label.len; i++) {
		if (hex ? ascii_hex(label.ptr[i]) < 0 : !is_digit(label.ptr[i]))
			return false;
	}
	return true;
}

static bool ipv4_valid(struct str host)
{
	size_t count = 0;
	while (host.ptr) {
		struct str part = str_cut(&host, '.');
		uint64_t value;
		if (part.len > 3 || !str_u64(part, &value) || value > 255 ||
		    (part.len > 1 && part.ptr[0] == '0'))
			return false;
		count++;
	}
	return count == 4;
}

/* Checks a lower-case ASCII name in its final form, or an IPv4 address. */
static int check_name(struct str host, bool *ret_has_alabel, struct err *e)
{
	struct echo shown;
	struct str rest = host, label = STR_NULL;
	if (host.len > HOST_BYTES_MAX)
		return err_set(e, ERR_INVALID, "the host '%s' is longer than %d characters; check it",
		               echo(&shown, host), HOST_BYTES_MAX);
	*ret_has_alabel = false;
	while (rest.ptr) {
		label = str_cut(&rest, '.');
		if (!label_valid(label))
			return err_set(e, ERR_INVALID,
			               "the host '%s' is not a valid name; use 1 to 63 "
			               "letters, digits, '-' or '_' between dots, and no '-' at either end",
			               echo(&shown, host));
		*ret_has_alabel |= str_starts(label, STR("xn--"));
	}
	if (label_numeric(label) && !ipv4_valid(host))
		return err_set(
		    e, ERR_INVALID,
		    "the host '%s' is not an IPv4 address such as 192.0.2.1; write it in that form",
		    echo(&shown, host));
	return 0;
}

/* The A-label form, with upper case and compatibility characters mapped (UTS 46, then IDNA 2008). */
static int idn_to_ascii(const char *host, char out[HOST_INPUT_BYTES_MAX + 1], struct err *e)
{
	struct echo shown;
	char *ascii = NULL;
	int rc = idn2_to_ascii_8z(host, &ascii, IDN2_NFC_INPUT | IDN2_NONTRANSITIONAL);
	if (rc == IDN2_MALLOC)
		return err_set(e, ERR_NOMEM, "out of memory");
	if (rc != IDN2_OK)
		return err_set(e, ERR_INVALID,
		               "the host '%s' is not a valid international name (%s); check it",
		               echo(&shown, str_of(host)), idn2_strerror(rc));
	size_t len = strlen(ascii);
	bool fits = len <= HOST_INPUT_BYTES_MAX;
	if (fits)
		memcpy(out, ascii, len + 1);
	idn2_free(ascii);
	return fits ? 0 : err_set(e, ERR_INVALID, "the host is too long; check it");
}

/* A name with A-labels must be the encoding of its decoded form. */
static int check_alabels(struct str host, struct err *e)
{
	char text[HOST_INPUT_BYTES_MAX + 1], again[HOST_INPUT_BYTES_MAX + 1];
	struct echo shown;
	memcpy(text, host.ptr, host.len);
	text[host.len] = '\0';
	int rc = idn_to_ascii(text, again, e);
	if (rc == 0 && !str_eq(str_of(again), host))
		rc = err_set(e, ERR_INVALID, "the host '%s' has a malformed xn-- part; check it",
		             echo(&shown, host));
	return rc;
}

static int write_name(struct str host, struct buf *out, struct err *e)
{
	char text[HOST_INPUT_BYTES_MAX + 1], mapped[HOST_INPUT_BYTES_MAX + 1];
	struct echo shown;
	bool ascii = true, has_alabel = false;
	if (host.len > HOST_INPUT_BYTES_MAX)
		return err_set(e, ERR_INVALID, "the host '%s' is longer than %d characters; check it",
		               echo(&shown, host), HOST_BYTES_MAX);
	for (size_t i = 0; i < host.len; i++) {
		text[i] = ascii_lower(host.ptr[i]);
		ascii &= (unsigned char)host.ptr[i] < 0x80;
	}
	text[host.len] = '\0';
	int rc = ascii ? 0 : idn_to_ascii(text, mapped, e);
	if (rc < 0)
		return rc;
	struct str name = str_of(ascii ? text : mapped);
	if (name.len > 1 && str_ends(name, STR(".")))
		name.len--;
	rc = check_name(name, &has_alabel, e);
	if (rc == 0 && has_alabel)
		rc = check_alabels(name, e);
	if (rc == 0)
		buf_str(out, name);
	return rc;
}

static int write_ipv6(struct str inside, struct buf *out, struct err *e)
{
	char text[INET6_ADDRSTRLEN];
	struct in6_addr address;
	struct echo shown;
	if (!net_ip_parse(AF_INET6, inside, &address))
		return err_set(e, ERR_INVALID,
		               "the host '[%s]' is not an IPv6 address; write one such as [2001:db8::1], "
		               "without a zone",
		               echo(&shown, inside));
	ASSERT(inet_ntop(AF_INET6, &address, text, sizeof(text)));
	buf_char(out, '[');
	buf_str(out, str_of(text));
	buf_char(out, ']');
	return 0;
}

static int write_port(struct str port, bool https, struct buf *out, struct err *e)
{
	uint64_t number;
	struct echo shown;
	if (port.len > 5 || !str_u64(port, &number) || number < 1 || number > 65535)
		return err_set(e, ERR_INVALID,
		               "the port '%s' is not a number from 1 to 65535; correct or remove it",
		               echo(&shown, port));
	if (number != (https ? 443 : 80))
		buf_printf(out, ":%u", (unsigned)number);
	return 0;
}

static int write_authority(struct str authority, bool https, struct buf *out, struct err *e)
{
	struct echo shown;
	struct str host, port;
	if (authority.len > 0 && memchr(authority.ptr, '@', authority.len))
		return err_set(e, ERR_INVALID,
		               "the URL has user info before its host (an @); remove it, links are public");
	bool bracketed = authority.len > 0 && authority.ptr[0] == '[';
	if (bracketed) {
		port = authority;
		host = str_cut(&port, ']');
		bool closed = port.ptr;
		if (!closed || (port.len > 0 && port.ptr[0] != ':'))
			return err_set(e, ERR_INVALID,
			               "the host '%s' is not an IPv6 address in brackets; write one such as "
			               "[2001:db8::1]",
			               echo(&shown, authority));
		port = port.len > 0 ? str_n(port.ptr + 1, port.len - 1) : STR_NULL;
		host = str_n(host.ptr + 1, host.len - 1);
	} else {
		port = authority;
		host = str_cut(&port, ':');
		if (port.ptr && memchr(port.ptr, ':', port.len))
			return err_set(e, ERR_INVALID,
			               "the host '%s' has several colons; put an IPv6 address in brackets",
			               echo(&shown, authority));
	}
	if (host.len == 0)
		return err_set(e, ERR_INVALID, "the URL has no host; write one such as https://example.com/");
	int rc = bracketed ? write_ipv6(host, out, e) : write_name(host, out, e);
	if (rc == 0 && port.ptr)
		rc = write_port(port, https, out, e);
	return rc;
}

/* A canonical host that always means the local machine. */
static bool is_this_machine(struct str host)
{
	return str_starts(host, STR("127.")) || str_eq(host, STR("0.0.0.0")) ||
	       str_eq(host, STR("localhost")) || str_ends(host, STR(".localhost")) ||
	       str_eq(host, STR("[::1]")) || str_eq(host, STR("[::]")) ||
	       str_starts(host, STR("[::ffff:127.")) || str_eq(host, STR("[::ffff:0.0.0.0]"));
}

/* "127." can only start an address here: the last label of a name is not numeric. */
static bool is_own(struct str authority, bool https, const struct url_rules *rules)
{
	if (rules->own.ptr && str_eq(authority, rules->own))
		return true;
	uint64_t port = https ? 443 : 80;
	struct str host = authority;
	const char *colon = memrchr(authority.ptr, ':', authority.len);
	if (colon && authority.ptr[authority.len - 1] != ']') {
		host.len = (size_t)(colon - authority.ptr);
		str_u64(str_n(colon + 1, authority.len - host.len - 1), &port);
	}
	if (rules->port == 0 || port != rules->port)
		return false;
	for (size_t i = 0; i < rules->host_count; i++) {
		if (str_eq(host, rules->hosts[i]))
			return true;
	}
	return rules->loopback && is_this_machine(host);
}

static int check_not_own(struct str authority, bool https, const struct url_rules *rules, struct err *e)
{
	struct echo shown;
	if (!rules || !is_own(authority, https, rules))
		return 0;
	return err_set(e, ERR_INVALID, "the URL points back to this server (%s); use the final address",
	               echo(&shown, authority));
}

/* ---- path, query, fragment ---- */

static void write_escape(struct buf *out, char byte)
{
	static const char digits[] = "0123456789ABCDEF";
	unsigned value = (unsigned char)byte;
	buf_append(out, (char[]){'%', digits[value >> 4], digits[value & 15]}, 3);
}

static int write_part(struct str part, struct buf *out, struct err *e)
{
	struct echo shown;
	for (size_t i = 0; i < part.len; i++) {
		char c = part.ptr[i];
		/* needs no escape in paths (which end at '?'), queries and fragments */
		if (is_unreserved(c) || (c != '\0' && strchr("!$&'()*+,;=:@/?", c))) {
			buf_char(out, c);
			continue;
		}
		if (c != '%') {
			write_escape(out, c);
			continue;
		}
		int high = part.len - i > 2 ? ascii_hex(part.ptr[i + 1]) : -1;
		int low = part.len - i > 2 ? ascii_hex(part.ptr[i + 2]) : -1;
		if (high < 0 || low < 0)
			return err_set(e, ERR_INVALID,
			               "'%s' is not an escape; write two hex digits after %%, or %%25 for a "
			               "plain %%",
			               echo(&shown, str_n(part.ptr + i, MIN(part.len - i, 3))));
		c = (char)(high << 4 | low);
		if (is_unreserved(c))
			buf_char(out, c);
		else
			write_escape(out, c);
		i += 2;
	}
	return 0;
}

/* In place, as in RFC 3986, section 5.2.4. The path begins with '/'. */
static size_t remove_dot_segments(char *path, size_t len)
{
	size_t to = 0;
	for (size_t at = 0, next; at < len; at = next) {
		next = at + 1;
		while (next < len && path[next] != '/')
			next++;
		struct str segment = str_n(path + at + 1, next - at - 1);
		bool up = str_eq(segment, STR(".."));
		if (!up && !str_eq(segment, STR("."))) {
			memmove(path + to, path + at, next - at);
			to += next - at;
			continue;
		}
		if (up) {
			while (to > 0 && path[--to] != '/')
				;
		}
		if (next == len) /* the last segment leaves its slash */
			path[to++] = '/';
	}
	return to;
}

static int write_path(struct str path, struct buf *out, struct err *e)
{
	size_t start = out->len;
	if (path.len == 0)
		buf_char(out, '/');
	int rc = write_part(path, out, e);
	if (rc == 0 && !out->failed)
		out->len = start + remove_dot_segments(out->data + start, out->len - start);
	return rc;
}

/* ---- the whole ---- */

/* Returns the part of `*s` before the first of `marks`, and leaves the rest with its mark. */
static struct str cut_before(struct str *s, const char *marks)
{
	size_t len = 0;
	while (len < s->len && !strchr(marks, s->ptr[len]))
		len++;
	struct str before = str_n(s->ptr, len);
	*s = str_n(s->ptr + len, s->len - len);
	return before;
}

/* Writes a query or fragment with its mark, if present. */
static int write_marked(struct str part, struct buf *out, struct err *e)
{
	if (part.len == 0)
		return 0;
	buf_char(out, part.ptr[0]);
	return write_part(str_n(part.ptr + 1, part.len - 1), out, e);
}

static int write_url(struct str in, const struct url_rules *rules, struct buf *out, struct err *e)
{
	bool https = false;
	int rc = take_scheme(&in, &https, e);
	if (rc < 0)
		return rc;
	struct str fragment = in;
	struct str query = cut_before(&fragment, "#");
	struct str path = cut_before(&query, "?");
	struct str authority = cut_before(&path, "/");

	buf_str(out, https ? STR("https://") : STR("http://"));
	size_t authority_at = out->len;
	rc = write_authority(authority, https, out, e);
	if (rc == 0 && !out->failed)
		rc = check_not_own(str_n(out->data + authority_at, out->len - authority_at), https, rules, e);
	return rc ?: write_path(path, out, e)
 ?: write_marked(query, out, e) ?: write_marked(fragment, out, e);
}

static int canonicalize(struct str in, const struct url_rules *rules, struct buf *out, struct err *e)
{
	size_t start = out->len;
	if (in.len == 0)
		return err_set(e, ERR_INVALID,
		               "the URL is empty; write one such as https://example.com/page");
	if (in.len > URL_BYTES_MAX)
		return err_set(e, ERR_INVALID, "the URL has %zu bytes; use at most %d", in.len,
		               URL_BYTES_MAX);
	int rc = check_bytes(in, e) ?: write_url(in, rules, out, e);
	if (rc == 0 && out->failed)
		return err_set(e, ERR_NOMEM, "out of memory");
	if (rc == 0 && out->len - start > URL_BYTES_MAX)
		return err_set(e, ERR_INVALID, "the URL has %zu bytes when percent-encoded; use at most %d",
		               out->len - start, URL_BYTES_MAX);
	return rc;
}

int url_canonicalize(struct str in, const struct url_rules *rules, struct buf *out, struct err *e)
{
	if (out->failed)
		return err_set(e, ERR_NOMEM, "out of memory");
	size_t start = out->len;
	int rc = canonicalize(trim(in), rules, out, e);
	if (rc < 0) {
		out->len = start;
		out->failed = false; /* the truncated part was removed */
	}
	return rc;
}
