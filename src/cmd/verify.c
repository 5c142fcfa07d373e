/* Reads everything in a data folder that has checksums or invariants, and reports damage. Changes nothing. */
#include "client/sqlite_file.h"
#include "cmd/ask.h"
#include "event/reader.h"
#include "server/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* These report a line for each part, "NAME: what was found", and return how many are damaged, or an error. */
static int verify_events(const char *data, bool running, struct buf *report, struct err *e)
{
	size_t before = report->len;
	char *path CLEANUP(freep) = NULL;
	if (asprintf(&path, "%s/events", data) < 0)
		return err_set(e, ERR_NOMEM, "out of memory");
	int damaged = event_verify(path, running, report, e);
	if (damaged == ERR_NOT_FOUND) {
		buf_str(report, STR("events: no event log yet\n"));
		return 0;
	}
	if (damaged >= 0 && report->len == before)
		buf_str(report, STR("events: no segments\n"));
	return damaged;
}

static int verify_file(const char *data, const char *url, const char *name, struct buf *report, struct err *e)
{
	struct buf CLEANUP(buf_release) found = {0};
	char *path CLEANUP(freep) = NULL;
	if (strncmp(url, "sqlite:", 7) != 0)
		return 0;
	if ((url[7] ? asprintf(&path, "%s", url + 7) : asprintf(&path, "%s/%s", data, name)) < 0)
		return err_set(e, ERR_NOMEM, "out of memory");
	if (access(path, F_OK) != 0) {
		buf_printf(report, "%s: does not exist yet\n", path);
		return 0;
	}
	int damaged = sqlite_file_check(path, &found, e);
	if (damaged < 0)
		return damaged;
	if (damaged > 0)
		buf_printf(report, "%s: DAMAGED: %.*s\n", path, STR_ARG(buf_view(&found)));
	else
		buf_printf(report, "%s: sound\n", path);
	return damaged;
}

static void print_json(struct str report, int damaged)
{
	json_t *parts = json_array();
	while (report.len > 0) {
		struct str line = str_cut(&report, '\n');
		const char *colon = memmem(line.ptr, line.len, ": ", 2);
		size_t len = colon ? (size_t)(colon - line.ptr) : 0;
		struct str found = colon ? str_n(colon + 2, line.len - len - 2) : line;
		json_array_append_new(parts, json_pack("{s:s%, s:b, s:s%}", "name", line.ptr, len, "sound",
		                                       !memmem(found.ptr, found.len, "DAMAGED", 7), "detail",
		                                       found.ptr, found.len));
	}
	ask_print_json(
	    json_pack("{s:b, s:i, s:o}", "sound", damaged == 0, "damaged", damaged, "parts", parts));
}

static void print_text(struct str report, int damaged)
{
	fwrite(report.ptr, 1, report.len, stdout);
	if (damaged > 0)
		printf("%d damaged\n", damaged);
	else
		puts("everything is sound");
}

static int verify(struct args *a)
{
	struct settings settings = {0};
	struct err e;
	if (settings_load(&settings, a->settings, a->setting_count, &e) < 0)
		return cmd_fail("%s", e.text);
	const char *data = settings.data;
	struct buf CLEANUP(buf_release) report = {0};
	int status = EXIT_FAILED, parts[3] = {0};
	if (access(data, F_OK) != 0) {
		cmd_fail("there is no data folder %s; name another with --data DIR", data);
	} else if ((parts[0] = verify_events(data, folder_is_busy(data), &report, &e)) < 0 ||
	           (parts[1] = verify_file(data, settings.serve.store_url, "links.db", &report, &e)) < 0 ||
	           (parts[2] = verify_file(data, settings.serve.sink_url, "stats.db", &report, &e)) < 0) {
		fwrite(report.data ? report.data : "", 1, args_has(a, "--json") ? 0 : report.len, stdout);
		cmd_fail("%s", e.text);
	} else {
		int damaged = parts[0] + parts[1] + parts[2];
		(args_has(a, "--json") ? print_json : print_text)(buf_view(&report), damaged);
		status = damaged > 0 ? EXIT_FAILED : 0;
	}
	settings_release(&settings);
	return status;
}

const struct command verify_command = {
    .name = "verify",
    .summary = "Check the event log and the databases of the data folder for damage",
    .details =
        "Changes nothing, and may run beside a server. The exit status is 1 when something is damaged.",
    .examples = "curt verify --data /srv/curt",
    .options = (const struct command_option[]){{"--json", "Print the report as JSON."}, {NULL, NULL}},
    .takes_settings = true,
    .run = verify,
};
