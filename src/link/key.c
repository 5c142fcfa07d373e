#include "link/key.h"

#include "base/bytes.h"

#include <sodium.h>

enum { ROUNDS = 10 };

static const struct {
	const char *digits;
	bool fold_case;
} alphabets[] = {
    [KEY_BASE62] = {"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", false},
    [KEY_BASE64URL] = {"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", false},
    [KEY_BASE36] = {"0123456789abcdefghijklmnopqrstuvwxyz", true},
};

void key_cipher_init(struct key_cipher *c, enum key_alphabet alphabet, unsigned length,
                     const uint8_t secret[KEY_SECRET_BYTES])
{
	ASSERT(length >= KEY_LENGTH_MIN && length <= KEY_LENGTH_MAX);
	c->digits = alphabets[alphabet].digits;
	c->fold_case = alphabets[alphabet].fold_case;
	c->base = (unsigned)strlen(c->digits);
	c->length = length;
	c->count = 1;
	for (unsigned i = 0; i < length; i++)
		c->count *= c->base;
	unsigned bits = 64 - (unsigned)__builtin_clzll(c->count - 1);
	c->half_bits = (bits + 1) / 2;
	memset(c->values, -1, sizeof(c->values));
	for (unsigned i = 0; i < c->base; i++) {
		unsigned char digit = (unsigned char)c->digits[i];
		c->values[digit] = (int8_t)i;
		if (c->fold_case && digit >= 'a' && digit <= 'z')
			c->values[digit - 'a' + 'A'] = (int8_t)i;
	}
	memcpy(c->secret, secret, KEY_SECRET_BYTES);
}

static uint64_t round_value(const struct key_cipher *c, unsigned round, uint64_t half)
{
	/* Little-endian everywhere: a data folder may move to another machine. */
	uint8_t in[9], out[crypto_shorthash_BYTES];
	bytes_put(in, half, 8);
	in[8] = (uint8_t)round;
	crypto_shorthash(out, in, sizeof(in), c->secret);
	return bytes_get(out, sizeof(out)) & ((1ULL << c->half_bits) - 1);
}

static uint64_t feistel(const struct key_cipher *c, uint64_t block)
{
	uint64_t left = block >> c->half_bits;
	uint64_t right = block & ((1ULL << c->half_bits) - 1);
	for (unsigned round = 0; round < ROUNDS; round++) {
		uint64_t next = left ^ round_value(c, round, right);
		left = right;
		right = next;
	}
	return left << c->half_bits | right;
}

static uint64_t feistel_back(const struct key_cipher *c, uint64_t block)
{
	uint64_t left = block >> c->half_bits;
	uint64_t right = block & ((1ULL << c->half_bits) - 1);
	for (unsigned round = ROUNDS; round-- > 0;) {
		uint64_t before = right ^ round_value(c, round, left);
		right = left;
		left = before;
	}
	return left << c->half_bits | right;
}

void key_encode(const struct key_cipher *c, uint64_t id, char *out)
{
	ASSERT(id > 0 && id < c->count);
	uint64_t value = id;
	do {
		value = feistel(c, value);
	} while (value >= c->count);
	for (unsigned i = c->length; i-- > 0;) {
		out[i] = c->digits[value % c->base];
		value /= c->base;
	}
}

uint64_t key_decode(const struct key_cipher *c, struct str text)
{
	if (text.len != c->length)
		return 0;
	uint64_t value = 0;
	for (size_t i = 0; i < text.len; i++) {
		int digit = c->values[(unsigned char)text.ptr[i]];
		if (digit < 0)
			return 0;
		value = value * c->base + (unsigned)digit;
	}
	do {
		value = feistel_back(c, value);
	} while (value >= c->count);
	return value; /* id 0 is never issued, so 0 means "none" */
}

struct str key_fold(const struct key_cipher *c, struct str text, char *out)
{
	return c->fold_case ? str_lower(text, out) : text;
}

static bool is_alias_byte(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
	       c == '_';
}

bool key_is_wellformed(struct str text)
{
	if (text.len == 0 || text.len > KEY_BYTES_MAX)
		return false;
	for (size_t i = 0; i < text.len; i++) {
		if (!is_alias_byte(text.ptr[i]))
			return false;
	}
	return true;
}

/* First path segments that the server uses or may use. Compared without case, so that no alias can imitate
 * one. */
static const char *const reserved[] = {
    "admin",   "api",     "app",    "assets",  "auth",    "curt",     "dashboard",  "docs",   "event",
    "events",  "favicon", "health", "healthz", "help",    "index",    "livez",      "login",  "logout",
    "metrics", "openapi", "ping",   "qr",      "readyz",  "register", "robots",     "signin", "signout",
    "signup",  "static",  "stats",  "status",  "version", "web",      "well-known",
};

bool key_is_reserved(struct str text)
{
	for (size_t i = 0; i < ARRAY_LEN(reserved); i++) {
		if (str_eq_nocase(text, str_of(reserved[i])))
			return true;
	}
	return false;
}

int alias_check(struct str alias, struct err *e)
{
	if (alias.len == 0)
		return err_set(e, ERR_INVALID, "the alias is empty; use 1 to %d of A-Z a-z 0-9 - _",
		               KEY_BYTES_MAX);
	if (alias.len > KEY_BYTES_MAX)
		return err_set(e, ERR_INVALID, "the alias has %zu characters; use at most %d", alias.len,
		               KEY_BYTES_MAX);
	if (!key_is_wellformed(alias))
		return err_set(e, ERR_INVALID, "the alias has invalid characters; use only A-Z a-z 0-9 - _");
	if (key_is_reserved(alias))
		return err_set(e, ERR_INVALID, "the alias '%.*s' is reserved; choose another",
		               STR_ARG(alias));
	return 0;
}
