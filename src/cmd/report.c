#include "cmd/report.h"

#include "base/json_out.h"
#include "os/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SHOW_MS = 1000 };

static void progress_clear(struct report *r)
{
	if (r->shown_ms > 0)
		fputs("\r\033[K", stderr);
	r->shown_ms = 0;
}

static void found(struct findings *f, enum verdict verdict, const char *name, const char *detail)
{
	static const char *const words[] = {"ok", "note", "BAD"}, *const statuses[] = {"ok", "note", "bad"};
	struct report *r = container_of(f, struct report, base);
	progress_clear(r);
	r->busy_with[0] = '\0';
	if (!r->is_json && r->has_paths)
		printf("%s: %s\n", name, detail);
	else if (!r->is_json)
		printf("%-4s %-12s %s\n", words[verdict], name, detail);
	if (!r->is_json)
		return;
	json_out_next(&r->json);
	buf_char(&r->json, '{');
	json_out_name_str(&r->json, "name", str_of(name));
	json_out_name_str(&r->json, "status", str_of(statuses[verdict]));
	json_out_name_str(&r->json, "detail", str_of(detail));
	buf_char(&r->json, '}');
}

/* Says on a terminal what takes long, once it has taken a second. */
static void busy(struct findings *f, const char *name)
{
	struct report *r = container_of(f, struct report, base);
	int64_t now_ms = clock_mono_ms();
	if (strncmp(r->busy_with, name, sizeof(r->busy_with) - 1) != 0) {
		snprintf(r->busy_with, sizeof(r->busy_with), "%s", name);
		r->busy_ms = now_ms;
		return;
	}
	if (now_ms - r->busy_ms < SHOW_MS || now_ms - r->shown_ms < SHOW_MS)
		return;
	fprintf(stderr, "\r\033[Kchecking %s: %lld s", r->busy_with, (long long)(now_ms - r->busy_ms) / 1000);
	fflush(stderr);
	r->shown_ms = now_ms;
}

void report_begin(struct report *r, const struct args *a, bool has_paths)
{
	*r = (struct report){
	    .base = {.found = found}, .is_json = args_has(a, "--json"), .has_paths = has_paths};
	if (isatty(STDERR_FILENO))
		r->base.busy = busy;
	if (r->is_json)
		buf_str(&r->json, STR("{\"checks\":["));
}

int report_end(struct report *r)
{
	progress_clear(r);
	if (r->is_json) {
		buf_printf(&r->json, "],\"sound\":%s}\n", r->base.bad_count == 0 ? "true" : "false");
		fwrite(r->json.data, 1, r->json.len, stdout);
	}
	buf_release(&r->json);
	return r->base.bad_count == 0 ? 0 : EXIT_FAILED;
}
