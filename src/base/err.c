#include "base/err.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>

int err_set(struct err *e, int code, const char *fmt, ...)
{
	if (e) {
		va_list ap;
		va_start(ap, fmt);
		int len = vsnprintf(e->text, sizeof(e->text), fmt, ap);
		va_end(ap);
		if (len >= (int)sizeof(e->text)) /* no part of a character at the end */
			e->text[utf8_prefix(str_of(e->text), sizeof(e->text)).len] = '\0';
	}
	return code;
}

int err_about(struct err *e, int code, const char *setting)
{
	if (code == 0 || !e || strstr(e->text, setting))
		return code;
	const struct err before = *e;
	return err_set(e, code, "%s: %s", setting, before.text);
}

const char *err_name(int code)
{
	switch (code) {
	case 0: return "ok";
	case ERR_NOT_FOUND: return "not-found";
	case ERR_CONFLICT: return "conflict";
	case ERR_INVALID: return "invalid";
	case ERR_LIMIT: return "limit";
	case ERR_BUSY: return "busy";
	case ERR_UNAVAILABLE: return "unavailable";
	case ERR_UNCERTAIN: return "uncertain";
	case ERR_CORRUPT: return "corrupt";
	case ERR_NOMEM: return "no-memory";
	default: return "unknown";
	}
}
