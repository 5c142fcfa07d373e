/*
 * The parser of the WHATWG URL Standard, for absolute URLs of the special schemes http and https. Each step
 * writes its part of the serialisation at once:
 *
 *	input      spaces and controls at both ends, and all tabs and line breaks, are removed
 *	scheme     http: or https:, then any number of slashes and backslashes
 *	authority  up to the next / \ ? #
 *	host       percent-decoded, mapped by UTS #46, then a name, IPv4 or [IPv6]
 *	port       0 to 65535; the scheme's own is left out
 *	path       segments between / or \, with . and .. resolved
 *	query      up to #
 *	fragment   the rest
 *
 * Escapes are kept as they are; characters that must not stand in a part are percent-encoded.
 */
#include "link/url.h"

#include "base/utf8.h"
#include "os/net.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <unicode/uidna.h>
#include <unicode/utf8.h>

enum { ECHO_BYTES_MAX = 40, HOST_BYTES_MAX = 4 * URL_BYTES_MAX };

/* What a sentence repeats of the input: short, and without control characters. */
struct echo {
	char text[ECHO_BYTES_MAX + sizeof("...")];
};

static const char *echo(struct echo *to, struct str s)
{
	size_t len = 0, step;
	for (; len < s.len && (step = utf8_first(str_n(s.ptr + len, s.len - len))) > 0; len += step) {
		if (len + step > ECHO_BYTES_MAX || (unsigned char)s.ptr[len] < 0x20 || s.ptr[len] == 0x7f)
			break;
	}
	memcpy(to->text, s.ptr, len);
	snprintf(to->text + len, sizeof(to->text) - len, "%s", s.len > len ? "..." : "");
	return to->text;
}

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

static size_t percent_decode(struct str in, char *out)
{
	size_t to = 0;
	for (size_t i = 0; i < in.len; i++) {
		int high = in.ptr[i] == '%' && in.len - i > 2 ? ascii_hex(in.ptr[i + 1]) : -1;
		int low = high >= 0 ? ascii_hex(in.ptr[i + 2]) : -1;
		out[to++] = low >= 0 ? (char)(high << 4 | low) : in.ptr[i];
		i += low >= 0 ? 2 : 0;
	}
	return to;
}

/* Host */

struct host {
	enum { HOST_NAME, HOST_IPV4, HOST_IPV6 } kind;
	uint32_t ipv4;
	uint16_t ipv6[8];
	struct str name; /* lower case, ASCII */
};

static UIDNA *idna;

static void idna_open(void)
{
	UErrorCode failed = U_ZERO_ERROR;
	idna = uidna_openUTS46(UIDNA_CHECK_BIDI | UIDNA_CHECK_CONTEXTJ | UIDNA_NONTRANSITIONAL_TO_ASCII |
	                           UIDNA_NONTRANSITIONAL_TO_UNICODE,
	                       &failed);
	if (U_FAILURE(failed))
		idna = NULL;
}

/* Code points that UTS #46 refused, or mapped to another name, before Unicode 15.1 and 16, as ICU 72 still does. */
static const struct idna_change {
	UChar32 first, last;
	UChar32 to; /* what `first` maps to, the others likewise; 0: they are ignored */
} idna_changes[] = {
    {0x04c0, 0x04c0, 0x04cf},   {0x10a0, 0x10c5, 0x2d00},    {0x115f, 0x1160, 0},
    {0x17b4, 0x17b5, 0},        {0x180e, 0x180e, 0},         {0x1e9e, 0x1e9e, 0x00df},
    {0x206a, 0x206f, 0},        {0x2132, 0x2132, 0x214e},    {0x2183, 0x2183, 0x2184},
    {0x3164, 0x3164, 0},        {0xffa0, 0xffa0, 0},         {0x2f868, 0x2f868, 0x36fc},
    {0x2f874, 0x2f874, 0x5f53}, {0x2f91f, 0x2f91f, 0x243ab}, {0x2f95f, 0x2f95f, 0x7aee},
    {0x2f9bf, 0x2f9bf, 0x45d7}, {0x1d173, 0x1d17a, 0},
};

/* In place: no mapping is longer than what it maps. Invalid UTF-8 stays, for ICU to refuse. */
static size_t idna_apply_changes(char *text, size_t len)
{
	size_t to = 0;
	for (size_t at = 0, next; at < len; at = next) {
		UChar32 c;
		bool is_ignored = false;
		next = at;
		U8_NEXT(text, next, len, c);
		for (size_t i = 0; c >= 0x80 && i < ARRAY_LEN(idna_changes); i++) {
			const struct idna_change *change = &idna_changes[i];
			if (c < change->first || c > change->last)
				continue;
			is_ignored = change->to == 0;
			c = change->to + (c - change->first);
			break;
		}
		if (c < 0) {
			memmove(text + to, text + at, next - at);
			to += next - at;
		} else if (!is_ignored) {
			U8_APPEND_UNSAFE(text, to, c);
		}
	}
	return to;
}

/* ToASCII of UTS #46 as the standard calls it: without checks of hyphens and of the lengths of labels. */
static int name_to_ascii(char *name, size_t len, char out[HOST_BYTES_MAX], size_t *ret_len, struct err *e)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	static const uint32_t allowed = UIDNA_ERROR_EMPTY_LABEL | UIDNA_ERROR_LABEL_TOO_LONG |
	                                UIDNA_ERROR_DOMAIN_NAME_TOO_LONG | UIDNA_ERROR_LEADING_HYPHEN |
	                                UIDNA_ERROR_TRAILING_HYPHEN | UIDNA_ERROR_HYPHEN_3_4;
	UIDNAInfo info = UIDNA_INFO_INITIALIZER;
	UErrorCode failed = U_ZERO_ERROR;
	struct echo shown;
	pthread_once(&once, idna_open);
	if (!idna)
		return err_set(e, ERR_NOMEM, "there is no memory to read the URL");
	len = idna_apply_changes(name, len);
	int32_t n = uidna_nameToASCII_UTF8(idna, name, (int32_t)len, out, HOST_BYTES_MAX, &info, &failed);
	if (U_FAILURE(failed) || n > HOST_BYTES_MAX || (info.errors & ~allowed))
		return err_set(e, ERR_INVALID,
		               "the host '%s' is not a valid international name; check its spelling",
		               echo(&shown, str_n(name, len)));
	*ret_len = (size_t)n;
	return 0;
}

/* A number of an IPv4 address: decimal, 0x and hex, or 0 and octal. False: it is none. */
static bool ipv4_number(struct str part, uint64_t *ret)
{
	unsigned base = 10;
	if (part.len == 0)
		return false;
	if (str_starts(part, STR("0x"))) {
		base = 16;
		part = str_n(part.ptr + 2, part.len - 2);
	} else if (part.len > 1 && part.ptr[0] == '0') {
		base = 8;
		part = str_n(part.ptr + 1, part.len - 1);
	}
	*ret = 0;
	for (size_t i = 0; i < part.len; i++) {
		int digit = ascii_hex(part.ptr[i]);
		if (digit < 0 || (unsigned)digit >= base)
			return false;
		*ret = MIN(*ret * base + (unsigned)digit, (uint64_t)1 << 40);
	}
	return true;
}

static bool is_digits(struct str s)
{
	for (size_t i = 0; i < s.len; i++) {
		if (s.ptr[i] < '0' || s.ptr[i] > '9')
			return false;
	}
	return s.len > 0;
}

/* A name whose last label is a number is an IPv4 address, or nothing. */
static bool ends_in_number(struct str name)
{
	uint64_t ignored;
	if (str_ends(name, STR(".")))
		name.len--;
	const char *dot = name.len > 0 ? memrchr(name.ptr, '.', name.len) : NULL;
	struct str last = dot ? str_n(dot + 1, name.len - (size_t)(dot + 1 - name.ptr)) : name;
	return is_digits(last) || (str_starts(last, STR("0x")) && ipv4_number(last, &ignored));
}

static bool ipv4_parse(struct str name, uint32_t *ret)
{
	uint64_t numbers[4];
	size_t count = 0;
	if (str_ends(name, STR(".")))
		name.len--;
	while (name.ptr) {
		if (count == ARRAY_LEN(numbers) || !ipv4_number(str_cut(&name, '.'), &numbers[count++]))
			return false;
	}
	uint64_t address = numbers[count - 1];
	if (address >= (uint64_t)1 << 8 * (5 - count))
		return false;
	for (size_t i = 0; i + 1 < count; i++) {
		if (numbers[i] > 255)
			return false;
		address |= numbers[i] << 8 * (3 - i);
	}
	*ret = (uint32_t)address;
	return true;
}

static int name_parse(struct str in, char text[HOST_BYTES_MAX], struct host *ret, struct err *e)
{
	char decoded[URL_BYTES_MAX];
	struct echo shown;
	size_t len = percent_decode(in, decoded);
	bool is_ascii = true;
	for (size_t i = 0; i < len; i++) {
		text[i] = ascii_lower(decoded[i]);
		is_ascii &= (unsigned char)decoded[i] < 0x80;
	}
	/* ASCII names are not checked further: there are sites whose xn-- labels no rule allows. */
	int r = is_ascii ? 0 : name_to_ascii(decoded, len, text, &len, e);
	if (r < 0)
		return r;
	ret->name = str_n(text, len);
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];
		if (c <= ' ' || c >= 0x7f || strchr("#/:<>?@[\\]^|%", c))
			return err_set(e, ERR_INVALID,
			               "the host '%s' has a character that no host has; remove it",
			               echo(&shown, in));
	}
	if (len == 0)
		return err_set(e, ERR_INVALID, "the URL has no host; write one such as https://example.com/");
	if (!ends_in_number(ret->name))
		return 0;
	ret->kind = HOST_IPV4;
	return ipv4_parse(ret->name, &ret->ipv4)
	           ? 0
	           : err_set(e, ERR_INVALID, "the host '%s' is not an IPv4 address; write it as 192.0.2.1",
	                     echo(&shown, in));
}

static int host_parse(struct str in, char text[HOST_BYTES_MAX], struct host *ret, struct err *e)
{
	struct echo shown;
	*ret = (struct host){.kind = HOST_NAME};
	if (in.len == 0)
		return err_set(e, ERR_INVALID, "the URL has no host; write one such as https://example.com/");
	if (in.ptr[0] != '[')
		return name_parse(in, text, ret, e);
	struct in6_addr address;
	ret->kind = HOST_IPV6;
	if (!str_ends(in, STR("]")) || !net_ip_parse(AF_INET6, str_n(in.ptr + 1, in.len - 2), &address))
		return err_set(
		    e, ERR_INVALID,
		    "the host '%s' is not an IPv6 address; write one such as [2001:db8::1], without a zone",
		    echo(&shown, in));
	for (size_t i = 0; i < ARRAY_LEN(ret->ipv6); i++)
		ret->ipv6[i] = (uint16_t)(address.s6_addr[2 * i] << 8 | address.s6_addr[2 * i + 1]);
	return 0;
}

/* The first of the longest runs of at least two zeros is written "::". */
static void write_ipv6(struct buf *out, const uint16_t pieces[8])
{
	size_t best = 8, best_len = 1;
	for (size_t i = 0, len; i < 8; i += len + 1) {
		for (len = 0; i + len < 8 && pieces[i + len] == 0;)
			len++;
		if (len > best_len) {
			best = i;
			best_len = len;
		}
	}
	buf_char(out, '[');
	for (size_t i = 0; i < 8; i++) {
		if (i == best) {
			buf_str(out, i == 0 ? STR("::") : STR(":"));
			i += best_len - 1;
			continue;
		}
		buf_printf(out, i < 7 ? "%x:" : "%x", pieces[i]);
	}
	buf_char(out, ']');
}

static void write_host(struct buf *out, const struct host *host)
{
	if (host->kind == HOST_NAME)
		buf_str(out, host->name);
	else if (host->kind == HOST_IPV6)
		write_ipv6(out, host->ipv6);
	else
		buf_printf(out, "%u.%u.%u.%u", host->ipv4 >> 24, host->ipv4 >> 16 & 255,
		           host->ipv4 >> 8 & 255, host->ipv4 & 255);
}

/* This server */

static bool is_this_machine(const struct host *host)
{
	static const uint16_t zeros[5];
	const uint16_t *p = host->ipv6;
	switch (host->kind) {
	case HOST_IPV4: return host->ipv4 >> 24 == 127 || host->ipv4 == 0;
	case HOST_NAME:
		return str_eq(host->name, STR("localhost")) || str_ends(host->name, STR(".localhost"));
	case HOST_IPV6: break;
	}
	if (memcmp(p, zeros, sizeof(zeros)) != 0)
		return false;
	if (p[5] == 0xffff) /* an IPv4 address within */
		return p[6] >> 8 == 127 || (p[6] == 0 && p[7] == 0);
	return p[5] == 0 && p[6] == 0 && p[7] <= 1;
}

static bool is_own(struct str authority, const struct host *host, uint64_t port,
                   const struct url_rules *rules)
{
	if (rules->own.ptr && str_eq(authority, rules->own))
		return true;
	if (rules->port == 0 || port != rules->port)
		return false;
	struct str text = authority;
	const char *colon = memrchr(text.ptr, ':', text.len);
	if (colon && !str_ends(text, STR("]")))
		text.len = (size_t)(colon - text.ptr);
	for (size_t i = 0; i < rules->host_count; i++) {
		if (str_eq(text, rules->hosts[i]))
			return true;
	}
	return rules->loopback && is_this_machine(host);
}

/* A trailing dot names the same host. */
static int check_not_own(struct str authority, const struct host *host, uint64_t port,
                         const struct url_rules *rules, struct err *e)
{
	struct echo shown;
	char text[HOST_BYTES_MAX + sizeof(":65535")];
	struct host plain = *host;
	if (!rules)
		return 0;
	if (host->kind == HOST_NAME && str_ends(host->name, STR(".")) && host->name.len > 1) {
		plain.name.len--;
		memcpy(text, authority.ptr, plain.name.len);
		memcpy(text + plain.name.len, authority.ptr + host->name.len, authority.len - host->name.len);
		authority = str_n(text, authority.len - 1);
	}
	if (!is_own(authority, &plain, port, rules))
		return 0;
	return err_set(
	    e, ERR_INVALID,
	    "the URL points back at this server (%s); give the address that the link should end at",
	    echo(&shown, authority));
}

/* Authority */

static int port_parse(struct str in, bool is_https, uint64_t *ret, struct err *e)
{
	struct echo shown;
	*ret = is_https ? 443 : 80;
	if (in.len == 0)
		return 0;
	if (!is_digits(in) || !str_u64(in, ret) || *ret > 65535)
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
	char text[HOST_BYTES_MAX];
	struct host host;
	uint64_t port;
	size_t start = out->len;
	int r = host_parse(colon ? str_n(in.ptr, (size_t)(colon - in.ptr)) : in, text, &host, e);
	if (r == 0)
		r = port_parse(port_text, is_https, &port, e);
	if (r < 0)
		return r;
	write_host(out, &host);
	if (port != (is_https ? 443 : 80))
		buf_printf(out, ":%u", (unsigned)port);
	return out->failed ? 0
	                   : check_not_own(str_n(out->data + start, out->len - start), &host, port, rules, e);
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
		    "the URL must begin with http:// or https://; write 'https://%s' if you mean that",
		    echo(&shown, *s));
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
