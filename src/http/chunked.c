/*
 * A state machine that looks at each byte of the framing once, and copies data in runs. It keeps no bytes,
 * so the verdict cannot depend on how the input was cut.
 *
 * What costs a client little and us much is bounded. Framing bytes add to `overhead`, and each byte of data
 * takes OVERHEAD_PER_BYTE off again. So chunks of one byte pass (5 bytes of framing), but long extensions or
 * padded sizes on small chunks reach OVERHEAD_MAX. White space around sizes and extensions is refused,
 * because readers differ on it; RFC 9112 only tolerates it.
 */
#include "http/chunked.h"

#include "http/chars.h"

enum {
	SIZE_DIGITS_MAX = 16,
	OVERHEAD_MAX = 16384,
	OVERHEAD_PER_BYTE = 8,
	TRAILER_BYTES_MAX = 8192,
};

enum {
	SIZE_FIRST, /* a digit must come */
	SIZE,
	EXT_NAME_FIRST,
	EXT_NAME,
	EXT_VALUE_FIRST,
	EXT_TOKEN,
	EXT_QUOTED,
	EXT_ESCAPED,  /* behind a backslash in quotes */
	EXT_UNQUOTED, /* behind the closing quote */
	SIZE_LF,
	DATA,
	DATA_CR,
	DATA_LF,
	TRAILER_FIRST, /* a field line or the last line begins */
	TRAILER_NAME,
	TRAILER_VALUE,
	TRAILER_LF,
	LAST_LF,
};

static const char bad_size[] = "a chunk must begin with its size in 1 to 16 hex digits";
static const char bad_extension[] = "a chunk extension is malformed";
static const char bad_line_end[] = "a line of the chunked body does not end in CR LF";
static const char bad_data_end[] = "the data of a chunk must be followed by CR LF";
static const char bad_trailer[] = "a trailer field is malformed";
static const char long_framing[] = "the chunked body has too much framing for its data";
static const char long_trailers[] = "the trailer fields are too long";
static const char long_body[] = "the body is too large";
static const char no_memory[] = "the server is out of memory for the body";

void http_chunked_init(struct http_chunked *c)
{
	*c = (struct http_chunked){.state = SIZE_FIRST};
}

static int refuse(int status, const char *reason, const char **ret_reason)
{
	*ret_reason = reason;
	return -status;
}

/* After a complete part of the size line: another extension or the line's end may follow. */
static bool size_line_goes_on(struct http_chunked *c, char byte)
{
	if (byte == ';')
		c->state = EXT_NAME_FIRST;
	else if (byte == '\r')
		c->state = SIZE_LF;
	else
		return false;
	return true;
}

static int take_size_byte(struct http_chunked *c, char byte, uint64_t room, const char **ret_reason)
{
	int digit = ascii_hex(byte);
	if (digit < 0) {
		if (c->state == SIZE && size_line_goes_on(c, byte))
			return 0;
		return refuse(400, bad_size, ret_reason);
	}
	if (c->state == SIZE_FIRST) {
		c->left = 0;
		c->digits = 0;
		c->state = SIZE;
	}
	if (c->digits == SIZE_DIGITS_MAX)
		return refuse(400, bad_size, ret_reason);
	c->digits++;
	c->left = c->left << 4 | (unsigned)digit;
	if (c->left > room)
		return refuse(413, long_body, ret_reason);
	return 0;
}

static int take_extension_byte(struct http_chunked *c, char byte, const char **ret_reason)
{
	bool token = http_char_is(byte, HTTP_CHAR_TOKEN);
	bool fine = true;
	switch (c->state) {
	case EXT_NAME_FIRST:
		fine = token;
		c->state = EXT_NAME;
		break;
	case EXT_NAME:
		if (byte == '=')
			c->state = EXT_VALUE_FIRST;
		else if (!token)
			fine = size_line_goes_on(c, byte);
		break;
	case EXT_VALUE_FIRST:
		fine = token || byte == '"';
		c->state = token ? EXT_TOKEN : EXT_QUOTED;
		break;
	case EXT_TOKEN: fine = token || size_line_goes_on(c, byte); break;
	case EXT_QUOTED:
		fine = http_char_is(byte, HTTP_CHAR_VALUE);
		if (byte == '"')
			c->state = EXT_UNQUOTED;
		else if (byte == '\\')
			c->state = EXT_ESCAPED;
		break;
	case EXT_ESCAPED:
		fine = http_char_is(byte, HTTP_CHAR_VALUE);
		c->state = EXT_QUOTED;
		break;
	default: /* EXT_UNQUOTED */ fine = size_line_goes_on(c, byte); break;
	}
	return fine ? 0 : refuse(400, bad_extension, ret_reason);
}

static int take_trailer_byte(struct http_chunked *c, char byte, const char **ret_reason)
{
	if (c->state == TRAILER_FIRST && byte == '\r') {
		c->state = LAST_LF;
		return 0;
	}
	if (++c->trailer_bytes > TRAILER_BYTES_MAX)
		return refuse(400, long_trailers, ret_reason);
	switch (c->state) {
	case TRAILER_FIRST:
		c->state = TRAILER_NAME;
		return http_char_is(byte, HTTP_CHAR_TOKEN) ? 0 : refuse(400, bad_trailer, ret_reason);
	case TRAILER_NAME:
		if (byte == ':')
			c->state = TRAILER_VALUE;
		else if (!http_char_is(byte, HTTP_CHAR_TOKEN))
			return refuse(400, bad_trailer, ret_reason);
		return 0;
	case TRAILER_VALUE:
		if (byte == '\r')
			c->state = TRAILER_LF;
		else if (!http_char_is(byte, HTTP_CHAR_VALUE))
			return refuse(400, bad_trailer, ret_reason);
		return 0;
	default: /* TRAILER_LF */
		c->state = TRAILER_FIRST;
		return byte == '\n' ? 0 : refuse(400, bad_line_end, ret_reason);
	}
}

static int take_framing_byte(struct http_chunked *c, char byte, uint64_t room, const char **ret_reason)
{
	switch (c->state) {
	case SIZE_FIRST:
	case SIZE: return take_size_byte(c, byte, room, ret_reason);
	case SIZE_LF:
		c->state = c->left > 0 ? DATA : TRAILER_FIRST;
		return byte == '\n' ? 0 : refuse(400, bad_line_end, ret_reason);
	case DATA_CR: c->state = DATA_LF; return byte == '\r' ? 0 : refuse(400, bad_data_end, ret_reason);
	case DATA_LF: c->state = SIZE_FIRST; return byte == '\n' ? 0 : refuse(400, bad_data_end, ret_reason);
	case TRAILER_FIRST:
	case TRAILER_NAME:
	case TRAILER_VALUE:
	case TRAILER_LF: return take_trailer_byte(c, byte, ret_reason);
	case LAST_LF: c->done = byte == '\n'; return c->done ? 0 : refuse(400, bad_line_end, ret_reason);
	default: return take_extension_byte(c, byte, ret_reason);
	}
}

/* Copies what has arrived of the current chunk. Returns how many bytes; 0: out of memory. */
static size_t take_data(struct http_chunked *c, const char *data, size_t len, struct buf *body)
{
	size_t count = (size_t)MIN(c->left, len);
	buf_append(body, data, count);
	if (body->failed)
		return 0;
	c->left -= count;
	if (c->left == 0)
		c->state = DATA_CR;
	uint64_t forgiven = (uint64_t)count * OVERHEAD_PER_BYTE;
	c->overhead -= (uint32_t)MIN(forgiven, c->overhead);
	return count;
}

ssize_t http_chunked_feed(struct http_chunked *c, const char *data, size_t len, uint64_t body_bytes_max,
                          struct buf *body, const char **ret_reason)
{
	size_t at = 0;
	while (at < len && !c->done) {
		if (c->state == DATA) {
			size_t count = take_data(c, data + at, len - at, body);
			if (count == 0)
				return refuse(503, no_memory, ret_reason);
			at += count;
			continue;
		}
		if (c->state < TRAILER_FIRST && ++c->overhead > OVERHEAD_MAX)
			return refuse(400, long_framing, ret_reason);
		uint64_t room = body_bytes_max - MIN(body_bytes_max, body->len);
		int rc = take_framing_byte(c, data[at], room, ret_reason);
		if (rc < 0)
			return rc;
		at++;
	}
	return (ssize_t)at;
}
