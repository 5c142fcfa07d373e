#include "queue/wire.h"

#include "base/json_in.h"
#include "base/json_out.h"
#include "base/rfc3339.h"
#include "base/utf8.h"

enum { NUMBER_BYTES_MAX = 20 };

const char *const wire_topic_names[WIRE_TOPICS] = {"impressions", "url-access-events"};

static const char *const kind_names[EVENT_VISIT_KINDS] = {"click", "head", "prefetch", "unknown", "root"};
static const char *const source_names[EVENT_SOURCES] = {"link", "qr"};
static const char hex_digits[] = "0123456789abcdef";
#define WIRE_TALLY "tally" /* a kind that is not a visit */

/* Writing */

bool wire_is_sent(const struct event *ev)
{
	return ev->kind == EVENT_VISIT || ev->kind == EVENT_IMPRESSION || ev->kind == EVENT_TALLY;
}

enum wire_topic wire_topic_of(const struct event *ev)
{
	return ev->kind == EVENT_IMPRESSION ? WIRE_IMPRESSIONS : WIRE_VISITS;
}

static size_t number_text(uint64_t n, char out[NUMBER_BYTES_MAX])
{
	char digits[NUMBER_BYTES_MAX];
	size_t len = 0;
	do {
		digits[NUMBER_BYTES_MAX - ++len] = (char)('0' + n % 10);
	} while ((n /= 10) > 0);
	memcpy(out, digits + NUMBER_BYTES_MAX - len, len);
	return len;
}

struct str wire_key(const struct event *ev, char scratch[WIRE_KEY_BYTES_MAX])
{
	if (ev->kind == EVENT_IMPRESSION)
		return ev->impression.id;
	if (ev->kind == EVENT_VISIT && !event_is_orphan(ev->visit.kind))
		return str_n(scratch, number_text(ev->visit.link, scratch));
	/* Orphans need not stay together, so a flood of them is spread over the partitions. */
	size_t len = ev->kind == EVENT_VISIT ? MIN(ev->visit.key.len, (size_t)EVENT_KEY_BYTES_MAX) : 0;
	scratch[0] = '-';
	if (len > 0)
		memcpy(scratch + 1, ev->visit.key.ptr, len);
	return str_n(scratch, 1 + len);
}
_Static_assert(1 + EVENT_KEY_BYTES_MAX <= WIRE_KEY_BYTES_MAX, "an orphan's key fits");

static void put_number(struct buf *out, struct str label, int64_t n)
{
	char text[1 + NUMBER_BYTES_MAX] = {'-'};
	size_t len = number_text(n < 0 ? -(uint64_t)n : (uint64_t)n, text + 1);
	buf_str(out, label);
	buf_append(out, n < 0 ? text : text + 1, len + (n < 0));
}

static void put_hex(struct buf *out, uint64_t n, unsigned digits)
{
	char text[16];
	for (unsigned i = digits; i-- > 0; n >>= 4)
		text[i] = hex_digits[n & 15];
	buf_append(out, text, digits);
}

static void put_id(struct buf *out, struct str label, struct event_id id)
{
	buf_str(out, label);
	put_hex(out, id.node, 16);
	buf_char(out, '-');
	put_hex(out, id.segment, 16);
	buf_char(out, '-');
	put_hex(out, id.position, id.position >> 32 ? 16 : 8);
	buf_char(out, '"');
}

/* Needs no escaping. */
static bool is_simple(struct str s)
{
	bool simple = true;
	for (size_t i = 0; i < s.len; i++) {
		unsigned char c = (unsigned char)s.ptr[i];
		simple &= c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
	}
	return simple;
}

static bool is_text(struct str s)
{
	for (size_t i = 0, n; i < s.len; i += n) {
		n = utf8_first(str_n(s.ptr + i, s.len - i));
		if (n == 0 || s.ptr[i] == '\0')
			return false;
	}
	return true;
}

/* The first field of an object has no comma in front. */
static void put_text(struct buf *out, bool first, struct str name, struct str s)
{
	if (s.len == 0)
		return;
	buf_str(out, first ? STR("\"") : STR(",\""));
	buf_str(out, name);
	buf_str(out, STR("\":"));
	if (LIKELY(is_simple(s))) {
		buf_char(out, '"');
		buf_str(out, s);
		buf_char(out, '"');
	} else if (is_text(s)) {
		json_out_str(out, s);
	} else {
		/* Readable, and byte for byte. */
		char readable[EVENT_STRING_BYTES_MAX];
		s.len = MIN(s.len, sizeof(readable));
		for (size_t i = 0; i < s.len; i++)
			readable[i] = (char)(s.ptr[i] ? s.ptr[i] : '\xff');
		json_out_str(out, str_n(readable, s.len));
		buf_str(out, STR(",\""));
		buf_str(out, name);
		buf_str(out, STR("Hex\":\""));
		for (size_t i = 0; i < s.len; i++)
			put_hex(out, (unsigned char)s.ptr[i], 2);
		buf_char(out, '"');
	}
}

static void visit_encode(struct buf *out, struct event_id id, const struct event_visit *v,
                         const struct wire_texts *texts)
{
	put_id(out, STR("{\"eventId\":\""), id);
	put_number(out, STR(",\"ts\":"), v->time_ms);
	buf_str(out, STR(",\"kind\":\""));
	buf_str(out, str_of(kind_names[v->kind]));
	buf_char(out, '"');
	if (v->link != 0)
		put_number(out, STR(",\"link\":"), (int64_t)v->link);
	put_text(out, false, STR("key"), v->key);
	if (v->visitor != 0) {
		buf_str(out, STR(",\"visitor\":\""));
		put_hex(out, v->visitor, 16);
		buf_char(out, '"');
	}
	put_text(out, false, STR("agent"), texts->agent);
	put_text(out, false, STR("referrer"), texts->referrer);
	put_text(out, false, STR("language"), texts->language);
	if (event_country_is_valid(v->country))
		put_text(out, false, STR("country"), str_n(v->country, 2));
	const uint8_t *a = v->address;
	if (v->address_len == 3) {
		put_number(out, STR(",\"address\":\""), a[0]);
		put_number(out, STR("."), a[1]);
		put_number(out, STR("."), a[2]);
		buf_str(out, STR(".0/24\""));
	} else if (v->address_len == 6) {
		buf_printf(out, ",\"address\":\"%x:%x:%x::/48\"", a[0] << 8 | a[1], a[2] << 8 | a[3],
		           a[4] << 8 | a[5]);
	}
	put_text(out, false, STR("source"), str_of(source_names[v->source]));
}

void wire_encode(struct buf *out, struct event_id id, const struct event *ev, const struct wire_texts *texts)
{
	if (ev->kind == EVENT_VISIT) {
		visit_encode(out, id, &ev->visit, texts);
	} else if (ev->kind == EVENT_IMPRESSION) {
		const struct event_impression *i = &ev->impression;
		buf_char(out, '{');
		put_text(out, true, STR("id"), i->id);
		put_number(out, i->id.len > 0 ? STR(",\"ts\":") : STR("\"ts\":"), i->time_ms);
		put_text(out, false, STR("userId"), i->user);
		put_text(out, false, STR("adId"), i->ad);
		put_number(out, STR(",\"receivedAt\":"), i->received_ms);
		put_id(out, STR(",\"eventId\":\""), id);
	} else {
		put_id(out, STR("{\"eventId\":\""), id);
		put_number(out, STR(",\"ts\":"), ev->tally.time_ms);
		buf_str(out, STR(",\"kind\":\"" WIRE_TALLY "\""));
		put_number(out, STR(",\"rejected\":"), (int64_t)ev->tally.rejected);
		put_number(out, STR(",\"dropped\":"), (int64_t)ev->tally.dropped);
	}
	buf_char(out, '}');
}

/* Reading */

enum {
	FUTURE_MS = 3600 * 1000, /* other programs' clocks may be this far ahead of Kafka's */
	NAME_BYTES_MAX = 16,
};

/* Name, and whether it is a number. The hexadecimal form of a text must follow it in the list. */
#define FIELD_LIST(FIELD)                               \
	FIELD(FIELD_EVENT, "eventId", false)            \
	FIELD(FIELD_TS, "ts", true)                     \
	FIELD(FIELD_KIND, "kind", false)                \
	FIELD(FIELD_LINK, "link", true)                 \
	FIELD(FIELD_KEY, "key", false)                  \
	FIELD(FIELD_KEY_HEX, "keyHex", false)           \
	FIELD(FIELD_VISITOR, "visitor", false)          \
	FIELD(FIELD_AGENT, "agent", false)              \
	FIELD(FIELD_AGENT_HEX, "agentHex", false)       \
	FIELD(FIELD_REFERRER, "referrer", false)        \
	FIELD(FIELD_REFERRER_HEX, "referrerHex", false) \
	FIELD(FIELD_LANGUAGE, "language", false)        \
	FIELD(FIELD_LANGUAGE_HEX, "languageHex", false) \
	FIELD(FIELD_COUNTRY, "country", false)          \
	FIELD(FIELD_ADDRESS, "address", false)          \
	FIELD(FIELD_SOURCE, "source", false)            \
	FIELD(FIELD_REJECTED, "rejected", true)         \
	FIELD(FIELD_DROPPED, "dropped", true)           \
	FIELD(FIELD_ID, "id", false)                    \
	FIELD(FIELD_ID_HEX, "idHex", false)             \
	FIELD(FIELD_USER, "userId", false)              \
	FIELD(FIELD_USER_HEX, "userIdHex", false)       \
	FIELD(FIELD_AD, "adId", false)                  \
	FIELD(FIELD_AD_HEX, "adIdHex", false)           \
	FIELD(FIELD_RECEIVED, "receivedAt", true)

enum field {
#define FIELD_ENUM(field, text, is_number) field,
	FIELD_LIST(FIELD_ENUM) FIELDS,
};

static const struct {
	struct str name;
	bool is_number;
} fields[FIELDS] = {
#define FIELD_ROW(field, text, is_number) {STR(text), is_number},
    FIELD_LIST(FIELD_ROW)};

/* The fields of an object. */
struct wire_fields {
	struct str texts[FIELDS]; /* STR_NULL: missing */
	int64_t numbers[FIELDS];
	const char *wrong; /* why it is invalid; NULL: it is valid */
};

/* Starts after the last field found, as fields mostly come in the same order. */
static enum field field_of(struct str name, enum field after)
{
	enum field f = after;
	for (unsigned n = 0; n < FIELDS; n++) {
		f = f + 1 < FIELDS ? f + 1 : 0;
		if (str_eq(fields[f].name, name))
			return f;
	}
	return FIELDS;
}

static void text_take(struct json_in *in, struct wire_message *m, struct wire_fields *found, enum field f)
{
	size_t room = sizeof(m->scratch) - m->scratch_used;
	bool whole;
	struct str text;
	if (json_in_peek(in) == JSON_IN_NULL) {
		json_in_skip(in);
		return;
	}
	if (!json_in_string(in, m->scratch + m->scratch_used, room, &text, &whole))
		return;
	if (text.ptr == m->scratch + m->scratch_used)
		m->scratch_used += text.len;
	if (!whole)
		found->wrong = "its texts are too long";
	else if (text.len > 0 && memchr(text.ptr, '\0', text.len))
		found->wrong = "one of its texts contains a NUL character";
	found->texts[f] = text;
}

static void object_take(struct json_in *in, struct wire_message *m, enum field before,
                        struct wire_fields *found)
{
	char scratch[NAME_BYTES_MAX];
	struct str name;
	bool first = true;
	enum field last = before;
	json_in_enter(in, '{');
	while (json_in_more(in, '{', &first) && json_in_name(in, scratch, sizeof(scratch), &name)) {
		enum field f = field_of(name, last);
		if (f == FIELDS) {
			json_in_skip(in);
			continue;
		}
		last = f;
		if (fields[f].is_number) {
			if (json_in_number(in, &found->numbers[f]) == JSON_IN_NUMBER || found->numbers[f] < 0)
				found->wrong = "one of its numbers is not a positive integer";
		} else
			text_take(in, m, found, f);
	}
	if (!json_in_finish(in))
		found->wrong = in->wrong;
}

/* Lower-case digits, as forwarders write them. */
static bool hex_read(struct str s, size_t from, size_t digits, uint64_t *ret)
{
	*ret = 0;
	for (size_t i = from; i < from + digits; i++) {
		int digit = s.ptr[i] >= 'A' && s.ptr[i] <= 'F' ? -1 : ascii_hex(s.ptr[i]);
		if (digit < 0)
			return false;
		*ret = *ret << 4 | (unsigned)digit;
	}
	return true;
}

/* Only exactly as forwarders write it. Other programs may use the field for something else. */
static bool id_read(struct str s, struct event_id *ret)
{
	enum { NODE = 0, SEGMENT = 17, POSITION = 34, SHORT = POSITION + 8, LONG = POSITION + 16 };
	return s.ptr && (s.len == SHORT || s.len == LONG) && s.ptr[SEGMENT - 1] == '-' &&
	       s.ptr[POSITION - 1] == '-' && hex_read(s, NODE, 16, &ret->node) &&
	       hex_read(s, SEGMENT, 16, &ret->segment) &&
	       hex_read(s, POSITION, s.len - POSITION, &ret->position);
}

/* The text of a field, byte for byte. */
static struct str text_of(struct wire_message *m, struct wire_fields *found, enum field f, size_t max)
{
	struct str hex = found->texts[f + 1], text = found->texts[f];
	char *to = m->scratch + m->scratch_used;
	if (LIKELY(!hex.ptr)) {
		text.len = MIN(text.len, max);
		return text;
	}
	size_t len = hex.len / 2;
	if (hex.len % 2 != 0 || len > max || len > sizeof(m->scratch) - m->scratch_used) {
		found->wrong = "one of its texts in hexadecimal has a wrong length";
		return text;
	}
	for (size_t i = 0; i < len; i++) {
		int high = ascii_hex(hex.ptr[2 * i]), low = ascii_hex(hex.ptr[2 * i + 1]);
		if (high < 0 || low < 0)
			found->wrong = "one of its texts in hexadecimal has other characters";
		to[i] = (char)((unsigned)high << 4 | (unsigned)low);
	}
	m->scratch_used += len;
	return str_n(to, len);
}

/* Parses three numbers, each followed by `mark`. */
static bool network_take(struct str *s, char mark, unsigned base, unsigned max, unsigned ret[3])
{
	for (unsigned i = 0; i < 3; i++) {
		size_t n = 0;
		ret[i] = 0;
		for (; n < s->len && s->ptr[n] != mark; n++) {
			int digit = ascii_hex(s->ptr[n]);
			if (digit < 0 || (unsigned)digit >= base || ret[i] > max)
				return false;
			ret[i] = ret[i] * base + (unsigned)digit;
		}
		if (n == 0 || n == s->len || ret[i] > max)
			return false;
		*s = str_n(s->ptr + n + 1, s->len - n - 1);
	}
	return true;
}

static bool address_read(struct str s, struct event_visit *v)
{
	struct str rest = s;
	unsigned p[3];
	if (network_take(&rest, '.', 10, UINT8_MAX, p) && str_eq(rest, STR("0/24"))) {
		for (int i = 0; i < 3; i++)
			v->address[i] = (uint8_t)p[i];
		v->address_len = 3;
		return true;
	}
	rest = s;
	if (!network_take(&rest, ':', 16, UINT16_MAX, p) || !str_eq(rest, STR(":/48")))
		return false;
	for (size_t i = 0; i < 3; i++) {
		v->address[2 * i] = (uint8_t)(p[i] >> 8);
		v->address[2 * i + 1] = (uint8_t)p[i];
	}
	v->address_len = 6;
	return true;
}

/* The index of a name; `count`: unknown. */
static unsigned name_find(struct str name, const char *const *names, unsigned count)
{
	unsigned i = 0;
	while (i < count && !str_eq(name, str_of(names[i])))
		i++;
	return i;
}

static void visit_make(struct wire_message *m, struct wire_fields *found)
{
	struct event_visit *v = &m->event.visit;
	struct str kind = found->texts[FIELD_KIND], source = found->texts[FIELD_SOURCE];
	struct str visitor = found->texts[FIELD_VISITOR], country = found->texts[FIELD_COUNTRY];
	if (str_eq(kind, STR(WIRE_TALLY))) {
		m->event.kind = EVENT_TALLY;
		m->event.tally = (struct event_tally){found->numbers[FIELD_TS],
		                                      (uint64_t)found->numbers[FIELD_REJECTED],
		                                      (uint64_t)found->numbers[FIELD_DROPPED]};
		return;
	}
	m->event.kind = EVENT_VISIT;
	*v = (struct event_visit){
	    .time_ms = found->numbers[FIELD_TS],
	    .link = (uint64_t)found->numbers[FIELD_LINK],
	    .kind = (uint8_t)name_find(kind, kind_names, EVENT_VISIT_KINDS),
	    .source = (uint8_t)(source.ptr ? name_find(source, source_names, EVENT_SOURCES) : 0),
	    .key = text_of(m, found, FIELD_KEY, EVENT_KEY_BYTES_MAX),
	};
	m->texts = (struct wire_texts){
	    .agent = text_of(m, found, FIELD_AGENT, EVENT_STRING_BYTES_MAX),
	    .referrer = text_of(m, found, FIELD_REFERRER, EVENT_STRING_BYTES_MAX),
	    .language = text_of(m, found, FIELD_LANGUAGE, EVENT_STRING_BYTES_MAX),
	};
	if (country.len == 2 && event_country_is_valid(country.ptr))
		memcpy(v->country, country.ptr, 2);
	if (v->kind == EVENT_VISIT_KINDS)
		found->wrong = "its kind is not known";
	else if (v->source == EVENT_SOURCES)
		found->wrong = "its source is not known";
	else if (visitor.ptr &&
	         (visitor.len <= 0 || visitor.len > 16 || !hex_read(visitor, 0, visitor.len, &v->visitor)))
		found->wrong = "its visitor is not a number in hexadecimal";
	else if (found->texts[FIELD_ADDRESS].ptr && !address_read(found->texts[FIELD_ADDRESS], v))
		found->wrong = "its address is not a network of 24 or 48 bits";
}

static void impression_make(struct wire_message *m, int64_t time_ms, struct wire_fields *found)
{
	struct event_impression *i = &m->event.impression;
	m->event.kind = EVENT_IMPRESSION;
	*i = (struct event_impression){
	    .time_ms = found->numbers[FIELD_TS],
	    .received_ms = found->numbers[FIELD_RECEIVED],
	    .id = text_of(m, found, FIELD_ID, SIZE_MAX),
	    .user = text_of(m, found, FIELD_USER, SIZE_MAX),
	    .ad = text_of(m, found, FIELD_AD, SIZE_MAX),
	};
	if (m->has_id)
		return;
	i->received_ms = time_ms;
	if (!time_from_number(i->time_ms, &i->time_ms))
		found->wrong = "its ts is not a time in seconds or milliseconds since 1970";
	else if (i->time_ms > time_ms + FUTURE_MS)
		found->wrong = "its ts is more than an hour in the future";
}

void wire_decode(enum wire_topic topic, struct str value, int64_t time_ms, struct wire_message *ret)
{
	struct wire_fields found = {.wrong = NULL};
	struct json_in in = json_in_begin(value.ptr ? value : STR(""));
	ret->scratch_used = 0;
	ret->event.flags = 0;
	ret->event.length = 0;
	object_take(&in, ret, topic == WIRE_IMPRESSIONS ? FIELD_DROPPED : FIELDS - 1, &found);
	/* Only impressions of forwarders have a time of receipt. */
	ret->has_id = (topic != WIRE_IMPRESSIONS || found.numbers[FIELD_RECEIVED] > 0) &&
	              id_read(found.texts[FIELD_EVENT], &ret->id);
	ret->event.position = ret->has_id ? ret->id.position : 0;
	ret->texts = (struct wire_texts){0};
	if (found.wrong)
		;
	else if (topic == WIRE_IMPRESSIONS)
		impression_make(ret, time_ms, &found);
	else
		visit_make(ret, &found);
	if (LIKELY(!found.wrong))
		return;
	ret->has_id = false;
	ret->event.kind = EVENT_UNUSABLE;
	ret->event.position = 0;
	ret->event.unusable = (struct event_unusable){.time_ms = time_ms,
	                                              .is_impression = topic == WIRE_IMPRESSIONS,
	                                              .reason = found.wrong,
	                                              .text = value};
}
