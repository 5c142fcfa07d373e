#include "queue/wire_private.h"

#include "base/json_out.h"
#include "base/utf8.h"

enum { NUMBER_BYTES_MAX = 20 };

const char *const wire_topic_names[WIRE_TOPICS] = {"impressions", "url-access-events"};

const char *const wire_kind_names[EVENT_VISIT_KINDS] = {"click", "head", "prefetch", "unknown", "root"};
const char *const wire_source_names[EVENT_SOURCES] = {"link", "qr"};
static const char hex_digits[] = "0123456789abcdef";

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
	/* Nobody adds orphans up, so they are spread: a flood of them is no one partition's. */
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

/* Nothing to escape, nothing to check. */
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
		/* As far as it can be read, and byte for byte. */
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
	buf_str(out, str_of(wire_kind_names[v->kind]));
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
	if (wire_is_country(v->country))
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
	put_text(out, false, STR("source"), str_of(wire_source_names[v->source]));
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
