#include "link/url_host.h"

#include "base/utf8.h"
#include "os/net.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <unicode/uidna.h>
#include <unicode/utf8.h>

/* As the standard says: a % without two digits is a %. */
static size_t percent_decode(struct str in, char *out)
{
	size_t to = 0;
	while (in.len > 0) {
		int c = str_take_decoded(&in);
		if (c < 0) {
			c = '%';
			in = str_n(in.ptr + 1, in.len - 1);
		}
		out[to++] = (char)c;
	}
	return to;
}

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
	do {
		if (count == ARRAY_LEN(numbers) || !ipv4_number(str_cut(&name, '.'), &numbers[count++]))
			return false;
	} while (name.ptr);
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

static int name_parse(struct str in, struct url_host *ret, struct err *e)
{
	char *text = ret->text;
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

int url_host_parse(struct str in, struct url_host *ret, struct err *e)
{
	struct echo shown;
	ret->kind = HOST_NAME;
	if (in.len == 0)
		return err_set(e, ERR_INVALID, "the URL has no host; write one such as https://example.com/");
	if (in.ptr[0] != '[')
		return name_parse(in, ret, e);
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

void url_host_write(struct buf *out, const struct url_host *host)
{
	if (host->kind == HOST_NAME)
		buf_str(out, host->name);
	else if (host->kind == HOST_IPV6)
		write_ipv6(out, host->ipv6);
	else
		buf_printf(out, "%u.%u.%u.%u", host->ipv4 >> 24, host->ipv4 >> 16 & 255,
		           host->ipv4 >> 8 & 255, host->ipv4 & 255);
}

bool url_host_is_this_machine(const struct url_host *host)
{
	static const uint16_t zeros[5];
	const uint16_t *p = host->ipv6;
	struct str name = host->name;
	if (host->kind == HOST_NAME && str_ends(name, STR(".")))
		name.len--;
	switch (host->kind) {
	case HOST_IPV4: return host->ipv4 >> 24 == 127 || host->ipv4 == 0;
	case HOST_NAME: return str_eq(name, STR("localhost")) || str_ends(name, STR(".localhost"));
	case HOST_IPV6: break;
	}
	if (memcmp(p, zeros, sizeof(zeros)) != 0)
		return false;
	if (p[5] == 0xffff) /* an IPv4 address within */
		return p[6] >> 8 == 127 || (p[6] == 0 && p[7] == 0);
	return p[5] == 0 && p[6] == 0 && p[7] <= 1;
}
