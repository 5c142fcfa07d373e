/*
 * The encoding of the event log (docs/internals/eventlog-format.md), as pure functions over memory. All numbers are
 * little-endian. A segment is a header followed by records.
 *
 *	header, 64 bytes           record                               visit (56 bytes + key)
 *	 0  8  "curtlog\n"         0  4  CRC-32C over segment,           8  8  time      32  4  agent
 *	 8  4  version                   position, and bytes 4…         16  8  link      36  4  referrer
 *	12  4  header bytes        4  2  length                         24  8  visitor   40  4  language
 *	16  8  node                6  1  kind                           44  1  kind      48  1  address length
 *	24  8  segment             7  1  flags                          45  1  source    49  6  address
 *	32  8  created             8  …  by kind                        46  2  country   56  …  key
 *	60  4  CRC-32C of 0…59
 *
 *	string      8  …  text
 *	impression  8  8  time   16  8  received   24  3*2  lengths of id, user, ad   32  …  id, user, ad
 *	tally       8  8  time   16  8  rejected   24  8  dropped
 *	end         8  8  number of records before it
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

enum {
	EVENT_FORMAT_VERSION = 1,
	EVENT_HEADER_BYTES = 64,
	EVENT_RECORD_BYTES_MIN = 8,
	EVENT_RECORD_BYTES_MAX = UINT16_MAX,
	EVENT_END_BYTES = 16,
	EVENT_TALLY_BYTES = 32,
	EVENT_VISIT_BYTES = 56,      /* without the key */
	EVENT_IMPRESSION_BYTES = 32, /* without its texts */
	EVENT_STRING_BYTES_MAX = 1024,
	EVENT_KEY_BYTES_MAX = 255,
	EVENT_FIELD_BYTES_MAX = 256, /* id, userId, adId */
	EVENT_ID_TEXT_BYTES = 16 + 1 + 16 + 1 + 8 + 1,
};

/* A segment's number. */
static inline uint64_t event_segment(uint32_t boot, unsigned writer, unsigned sequence)
{
	return (uint64_t)boot << 32 | (uint64_t)(writer & 0xff) << 24 | (sequence & 0xffffff);
}
static inline uint32_t event_segment_boot(uint64_t segment)
{
	return (uint32_t)(segment >> 32);
}

struct event_header {
	uint64_t node;
	uint64_t segment;
	int64_t created_ms;
};

void event_header_encode(const struct event_header *h, uint8_t out[EVENT_HEADER_BYTES]);
bool event_header_decode(const uint8_t in[EVENT_HEADER_BYTES], struct event_header *ret);

enum event_kind {
	EVENT_STRING = 1,
	EVENT_VISIT,
	EVENT_IMPRESSION,
	EVENT_TALLY,
	EVENT_END,
	EVENT_UNUSABLE, /* never in the log: a message of a queue that is not a valid event */
};
enum event_visit_kind {
	EVENT_CLICK,
	EVENT_HEAD,
	EVENT_PREFETCH,
	EVENT_ORPHAN_KEY,
	EVENT_ORPHAN_ROOT,
	EVENT_VISIT_KINDS,
};
enum event_source { EVENT_SOURCE_LINK, EVENT_SOURCE_QR, EVENT_SOURCES };
enum { EVENT_END_BY_RECOVERY = 1 }; /* flag */

static inline bool event_is_orphan(enum event_visit_kind k)
{
	return k >= EVENT_ORPHAN_KEY;
}

static inline bool event_country_is_valid(const char country[2])
{
	return country[0] >= 'A' && country[0] <= 'Z' && country[1] >= 'A' && country[1] <= 'Z';
}

struct event_visit {
	int64_t time_ms;
	uint64_t link;
	uint64_t visitor;
	uint32_t agent; /* positions of strings; 0: none */
	uint32_t referrer;
	uint32_t language;
	uint8_t kind;   /* enum event_visit_kind */
	uint8_t source; /* enum event_source */
	char country[2];
	uint8_t address_len;
	uint8_t address[6];
	struct str key;
};

struct event_impression {
	int64_t time_ms;
	int64_t received_ms;
	struct str id;
	struct str user;
	struct str ad;
};

struct event_tally {
	int64_t time_ms;
	uint64_t rejected;
	uint64_t dropped;
};

struct event_unusable {
	int64_t time_ms;
	bool is_impression; /* or a visit */
	const char *reason;
	struct str text; /* as received */
};

/* A decoded record. Its strings point into the bytes that it was decoded from. */
struct event {
	enum event_kind kind;
	uint8_t flags;
	uint32_t length;
	uint64_t position;
	union {
		struct str string;
		struct event_visit visit;
		struct event_impression impression;
		struct event_tally tally;
		struct event_unusable unusable;
		uint64_t records_before_end;
	};
};

/* Each writes one record for that position, and returns its length. `out` has room for it, and texts are
 * within their bounds. */
size_t event_encode_string(uint8_t *out, uint64_t segment, uint64_t position, struct str text);
size_t event_encode_visit(uint8_t *out, uint64_t segment, uint64_t position, const struct event_visit *v);
size_t event_encode_impression(uint8_t *out, uint64_t segment, uint64_t position,
                               const struct event_impression *i);
size_t event_encode_tally(uint8_t *out, uint64_t segment, uint64_t position, const struct event_tally *t);
size_t event_encode_end(uint8_t *out, uint64_t segment, uint64_t position, uint64_t records, uint8_t flags);

/* What is wrong with a record. */
enum event_fault {
	EVENT_VALID,
	EVENT_CUT, /* it continues after the given bytes */
	EVENT_BAD_LENGTH,
	EVENT_BAD_KIND,
	EVENT_BAD_CHECKSUM,
	EVENT_BAD_BODY,
};
const char *event_fault_text(enum event_fault f);

/* Decodes the record at the start of `data`. */
enum event_fault event_decode(const uint8_t *data, size_t len, uint64_t segment, uint64_t position,
                              struct event *ret);

/* "<node>-<segment>-<position>" in hexadecimal. */
struct str event_id_format(uint64_t node, uint64_t segment, uint64_t position, char out[EVENT_ID_TEXT_BYTES]);
