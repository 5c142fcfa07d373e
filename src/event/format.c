#include "event/format.h"

#include "base/crc32c.h"

#include <endian.h>
#include <stdio.h>

static const char magic[8] = {'c', 'u', 'r', 't', 'l', 'o', 'g', '\n'};

static void put16(uint8_t *at, uint16_t v)
{
	v = htole16(v);
	memcpy(at, &v, sizeof(v));
}

static void put32(uint8_t *at, uint32_t v)
{
	v = htole32(v);
	memcpy(at, &v, sizeof(v));
}

static void put64(uint8_t *at, uint64_t v)
{
	v = htole64(v);
	memcpy(at, &v, sizeof(v));
}

static uint16_t get16(const uint8_t *at)
{
	uint16_t v;
	memcpy(&v, at, sizeof(v));
	return le16toh(v);
}

static uint32_t get32(const uint8_t *at)
{
	uint32_t v;
	memcpy(&v, at, sizeof(v));
	return le32toh(v);
}

static uint64_t get64(const uint8_t *at)
{
	uint64_t v;
	memcpy(&v, at, sizeof(v));
	return le64toh(v);
}

void event_header_encode(const struct event_header *h, uint8_t out[EVENT_HEADER_BYTES])
{
	memset(out, 0, EVENT_HEADER_BYTES);
	memcpy(out, magic, sizeof(magic));
	put32(out + 8, EVENT_FORMAT_VERSION);
	put32(out + 12, EVENT_HEADER_BYTES);
	put64(out + 16, h->node);
	put64(out + 24, h->segment);
	put64(out + 32, (uint64_t)h->created_ms);
	put32(out + 60, crc32c(0, out, 60));
}

bool event_header_decode(const uint8_t in[EVENT_HEADER_BYTES], struct event_header *ret)
{
	if (memcmp(in, magic, sizeof(magic)) != 0 || get32(in + 60) != crc32c(0, in, 60) ||
	    get32(in + 8) != EVENT_FORMAT_VERSION || get32(in + 12) != EVENT_HEADER_BYTES)
		return false;
	*ret = (struct event_header){
	    .node = get64(in + 16), .segment = get64(in + 24), .created_ms = (int64_t)get64(in + 32)};
	return true;
}

static uint32_t checksum(const uint8_t *record, size_t length, uint64_t segment, uint64_t position)
{
	uint8_t place[16];
	put64(place, segment);
	put64(place + 8, position);
	return crc32c(crc32c(0, place, sizeof(place)), record + 4, length - 4);
}

static size_t seal(uint8_t *out, uint64_t segment, uint64_t position, enum event_kind kind, uint8_t flags,
                   size_t length)
{
	ASSERT(length <= EVENT_RECORD_BYTES_MAX);
	put16(out + 4, (uint16_t)length);
	out[6] = (uint8_t)kind;
	out[7] = flags;
	put32(out, checksum(out, length, segment, position));
	return length;
}

static uint8_t *put_text(uint8_t *at, struct str text)
{
	if (text.len > 0)
		memcpy(at, text.ptr, text.len);
	return at + text.len;
}

size_t event_encode_string(uint8_t *out, uint64_t segment, uint64_t position, struct str text)
{
	put_text(out + 8, text);
	return seal(out, segment, position, EVENT_STRING, 0, 8 + text.len);
}

size_t event_encode_visit(uint8_t *out, uint64_t segment, uint64_t position, const struct event_visit *v)
{
	put64(out + 8, (uint64_t)v->time_ms);
	put64(out + 16, v->link);
	put64(out + 24, v->visitor);
	put32(out + 32, v->agent);
	put32(out + 36, v->referrer);
	put32(out + 40, v->language);
	out[44] = v->kind;
	out[45] = v->source;
	memcpy(out + 46, v->country, 2);
	out[48] = v->address_len;
	memcpy(out + 49, v->address, sizeof(v->address));
	out[55] = 0;
	put_text(out + EVENT_VISIT_BYTES, v->key);
	return seal(out, segment, position, EVENT_VISIT, 0, EVENT_VISIT_BYTES + v->key.len);
}

size_t event_encode_impression(uint8_t *out, uint64_t segment, uint64_t position,
                               const struct event_impression *i)
{
	put64(out + 8, (uint64_t)i->time_ms);
	put64(out + 16, (uint64_t)i->received_ms);
	put16(out + 24, (uint16_t)i->id.len);
	put16(out + 26, (uint16_t)i->user.len);
	put16(out + 28, (uint16_t)i->ad.len);
	put16(out + 30, 0);
	uint8_t *end = put_text(put_text(put_text(out + EVENT_IMPRESSION_BYTES, i->id), i->user), i->ad);
	return seal(out, segment, position, EVENT_IMPRESSION, 0, (size_t)(end - out));
}

size_t event_encode_tally(uint8_t *out, uint64_t segment, uint64_t position, const struct event_tally *t)
{
	put64(out + 8, (uint64_t)t->time_ms);
	put64(out + 16, t->rejected);
	put64(out + 24, t->dropped);
	return seal(out, segment, position, EVENT_TALLY, 0, EVENT_TALLY_BYTES);
}

size_t event_encode_end(uint8_t *out, uint64_t segment, uint64_t position, uint64_t records, uint8_t flags)
{
	put64(out + 8, records);
	return seal(out, segment, position, EVENT_END, flags, EVENT_END_BYTES);
}

static bool decode_visit(const uint8_t *d, size_t length, struct event_visit *v)
{
	*v = (struct event_visit){
	    .time_ms = (int64_t)get64(d + 8),
	    .link = get64(d + 16),
	    .visitor = get64(d + 24),
	    .agent = get32(d + 32),
	    .referrer = get32(d + 36),
	    .language = get32(d + 40),
	    .kind = d[44],
	    .source = d[45],
	    .country = {(char)d[46], (char)d[47]},
	    .address_len = d[48],
	    .key = str_n((const char *)d + EVENT_VISIT_BYTES, length - EVENT_VISIT_BYTES),
	};
	memcpy(v->address, d + 49, sizeof(v->address));
	return v->kind < EVENT_VISIT_KINDS && v->source < EVENT_SOURCES &&
	       v->address_len <= sizeof(v->address);
}

static bool decode_impression(const uint8_t *d, size_t length, struct event_impression *i)
{
	size_t id = get16(d + 24), user = get16(d + 26), ad = get16(d + 28);
	if (EVENT_IMPRESSION_BYTES + id + user + ad != length)
		return false;
	const char *texts = (const char *)d + EVENT_IMPRESSION_BYTES;
	*i = (struct event_impression){
	    .time_ms = (int64_t)get64(d + 8),
	    .received_ms = (int64_t)get64(d + 16),
	    .id = str_n(texts, id),
	    .user = str_n(texts + id, user),
	    .ad = str_n(texts + id + user, ad),
	};
	return true;
}

static bool length_fits(unsigned kind, size_t length)
{
	switch (kind) {
	case EVENT_STRING: return length <= 8 + EVENT_STRING_BYTES_MAX;
	case EVENT_VISIT:
		return length >= EVENT_VISIT_BYTES && length <= EVENT_VISIT_BYTES + EVENT_KEY_BYTES_MAX;
	case EVENT_IMPRESSION:
		return length >= EVENT_IMPRESSION_BYTES &&
		       length <= EVENT_IMPRESSION_BYTES + 3 * EVENT_FIELD_BYTES_MAX;
	case EVENT_TALLY: return length == EVENT_TALLY_BYTES;
	case EVENT_END: return length == EVENT_END_BYTES;
	default: return false;
	}
}

enum event_fault event_decode(const uint8_t *data, size_t len, uint64_t segment, uint64_t position,
                              struct event *ret)
{
	if (len < EVENT_RECORD_BYTES_MIN)
		return EVENT_CUT;
	size_t length = get16(data + 4);
	unsigned kind = data[6];
	if (length < EVENT_RECORD_BYTES_MIN)
		return EVENT_BAD_LENGTH;
	if (kind < EVENT_STRING || kind > EVENT_END)
		return EVENT_BAD_KIND;
	if (!length_fits(kind, length))
		return EVENT_BAD_LENGTH;
	if (length > len)
		return EVENT_CUT;
	if (get32(data) != checksum(data, length, segment, position))
		return EVENT_BAD_CHECKSUM;
	ret->kind = kind;
	ret->flags = data[7];
	ret->length = (uint32_t)length;
	ret->position = position;
	switch (ret->kind) {
	case EVENT_STRING: ret->string = str_n((const char *)data + 8, length - 8); return EVENT_VALID;
	case EVENT_VISIT: return decode_visit(data, length, &ret->visit) ? EVENT_VALID : EVENT_BAD_BODY;
	case EVENT_IMPRESSION:
		return decode_impression(data, length, &ret->impression) ? EVENT_VALID : EVENT_BAD_BODY;
	case EVENT_TALLY:
		ret->tally = (struct event_tally){(int64_t)get64(data + 8), get64(data + 16),
		                                  get64(data + 24)};
		return EVENT_VALID;
	case EVENT_END: ret->records_before_end = get64(data + 8); return EVENT_VALID;
	case EVENT_UNUSABLE: break;
	}
	return EVENT_BAD_KIND;
}

const char *event_fault_text(enum event_fault f)
{
	switch (f) {
	case EVENT_VALID: return "it is valid";
	case EVENT_CUT: return "it goes on beyond the end of the file";
	case EVENT_BAD_LENGTH: return "its length cannot be right";
	case EVENT_BAD_KIND: return "its kind is not known";
	case EVENT_BAD_CHECKSUM: return "its checksum is wrong";
	case EVENT_BAD_BODY: return "its fields contradict each other";
	}
	return "it is not valid";
}

struct str event_id_format(uint64_t node, uint64_t segment, uint64_t position, char out[EVENT_ID_TEXT_BYTES])
{
	int n = snprintf(out, EVENT_ID_TEXT_BYTES, "%016llx-%016llx-%08llx", (unsigned long long)node,
	                 (unsigned long long)segment, (unsigned long long)position & 0xffffffff);
	return str_n(out, (size_t)n);
}
