// needs: src/link/url.c src/link/url_host.c
// packages: icu-uc
// flags: -max_len=1024
/* A URL that is taken has only safe bytes and gives itself again. One that is refused leaves no trace. */
#include "base/utf8.h"
#include "link/url.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void check_safe(struct str url)
{
	ASSERT(url.len <= URL_BYTES_MAX);
	ASSERT(str_starts(url, STR("http://")) || str_starts(url, STR("https://")));
	for (size_t i = 0; i < url.len; i++) {
		char c = url.ptr[i];
		ASSERT(c > 0x20 && c < 0x7f && !strchr("<>", c));
	}
}

static void check_sentence(const struct err *e)
{
	ASSERT(e->text[0]);
	ASSERT(utf8_is_printable(str_of(e->text)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	const struct url_rules rules = {.own = STR("s.example"), .port = 8080, .loopback = true};
	struct buf out = {0}, again = {0};
	struct err e = {0};
	buf_str(&out, STR("as before"));
	int rc = url_canonicalize(str_n((const char *)data, len), &rules, &out, &e);
	ASSERT(!out.failed);
	if (rc == 0) {
		struct str url = str_n(out.data + 9, out.len - 9);
		check_safe(url);
		ASSERT(url_canonicalize(url, &rules, &again, &e) == 0);
		ASSERT(str_eq(url, buf_view(&again)));
	} else {
		ASSERT(rc == ERR_INVALID);
		ASSERT(str_eq(buf_view(&out), STR("as before")));
		check_sentence(&e);
	}
	buf_release(&out);
	buf_release(&again);
	return 0;
}
