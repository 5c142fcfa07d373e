#include "obs/log_format.h"

#include "base/rfc3339.h"
#include "base/utf8.h"

#include <stdio.h>

const char *const log_level_names[] = {"debug", "info", "warn", "error", NULL};
const char *const log_format_names[] = {"text", "json", NULL};

struct writer {
	char *at;
	enum log_format format;
};

static void put(struct writer *w, struct str s)
{
	if (s.len > 0)
		memcpy(w->at, s.ptr, s.len);
	w->at += s.len;
}

/* Terminals interpret U+0080 to U+009F like ESC sequences. */
static bool is_control(const unsigned char *p, size_t len)
{
	return len == 1 ? p[0] < 0x20 || p[0] == 0x7f : len == 2 && p[0] == 0xc2 && p[1] < 0xa0;
}

static void put_escape(struct writer *w, const unsigned char *p, size_t len)
{
	static const char hex[] = "0123456789abcdef";
	static const char named[] = "\n\r\t", letters[] = "nrt";
	const char *name = len == 1 && p[0] ? strchr(named, p[0]) : NULL;
	if (name) {
		put(w, (struct str){(const char[]){'\\', letters[name - named]}, 2});
	} else if (w->format == LOG_JSON) {
		unsigned char code = p[len - 1]; /* of U+0080 to U+009F it is the second byte */
		put(w, STR("\\u00"));
		put(w, (struct str){(const char[]){hex[code >> 4], hex[code & 15]}, 2});
	} else {
		for (size_t i = 0; i < len; i++) {
			put(w, STR("\\x"));
			put(w, (struct str){(const char[]){hex[p[i] >> 4], hex[p[i] & 15]}, 2});
		}
	}
}

static void put_text(struct writer *w, struct str s)
{
	const unsigned char *p = (const unsigned char *)s.ptr;
	size_t len;
	for (size_t left = s.len; left > 0; left -= len, p += len) {
		size_t valid = utf8_first(str_n((const char *)p, left));
		len = MAX(valid, 1);
		if (valid == 0 && w->format == LOG_JSON)
			put(w, STR("\\ufffd"));
		else if (valid == 0 || is_control(p, len))
			put_escape(w, p, len);
		else if (w->format == LOG_JSON && (p[0] == '"' || p[0] == '\\'))
			put(w, (struct str){(const char[]){'\\', (char)p[0]}, 2});
		else
			put(w, str_n((const char *)p, len));
	}
}

/* Always with milliseconds, so that lines align. */
static void put_time(struct writer *w, int64_t time_ms)
{
	char text[RFC3339_BYTES], fraction[8];
	unsigned ms = (unsigned)(((time_ms % 1000) + 1000) % 1000);
	struct str time = rfc3339_format(time_ms - ms, text);
	put(w, str_n(time.ptr, time.len - 1));
	snprintf(fraction, sizeof(fraction), ".%03uZ", ms % 1000);
	put(w, str_of(fraction));
}

size_t log_entry_format(const struct log_entry *entry, enum log_format format, char out[LOG_ENTRY_BYTES_MAX])
{
	struct writer w = {.at = out, .format = format};
	struct str module = str_n(entry->module, strnlen(entry->module, LOG_MODULE_MAX));
	struct str text = str_n(entry->text.ptr, MIN(entry->text.len, LOG_TEXT_MAX));
	struct str level = str_of(log_level_names[entry->level]);
	if (format == LOG_JSON) {
		put(&w, STR("{\"time\":\""));
		put_time(&w, entry->time_ms);
		put(&w, STR("\",\"level\":\""));
		put(&w, level);
		put(&w, STR("\",\"module\":\""));
		put_text(&w, module);
		put(&w, STR("\",\"message\":\""));
		put_text(&w, text);
		put(&w, STR("\"}\n"));
	} else {
		put_time(&w, entry->time_ms);
		put(&w, STR(" "));
		put(&w, level);
		put(&w, str_n("      ", 6 - level.len));
		put_text(&w, module);
		put(&w, STR(": "));
		put_text(&w, text);
		put(&w, STR("\n"));
	}
	return (size_t)(w.at - out);
}
