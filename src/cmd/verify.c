/* Reads everything in a data folder that has checksums or invariants, and reports damage. Changes nothing. */
#include "client/sqlite_file.h"
#include "cmd/command.h"
#include "event/reader.h"
#include "server/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* These return how many parts are damaged, or an error. */
static int verify_events(const char *data, bool running, struct err *e)
{
	struct buf CLEANUP(buf_release) report = {0};
	char *path CLEANUP(freep) = NULL;
	if (asprintf(&path, "%s/events", data) < 0)
		return err_set(e, ERR_NOMEM, "out of memory");
	int damaged = event_verify(path, running, &report, e);
	if (damaged == ERR_NOT_FOUND) {
		puts("events: no event log yet");
		return 0;
	}
	if (damaged < 0)
		return damaged;
	fwrite(report.data ? report.data : "", 1, report.len, stdout);
	if (report.len == 0)
		puts("events: no segments");
	return damaged;
}

static int verify_file(const char *data, const char *url, const char *name, struct err *e)
{
	struct buf CLEANUP(buf_release) report = {0};
	char *path CLEANUP(freep) = NULL;
	if (strncmp(url, "sqlite:", 7) != 0)
		return 0;
	if ((url[7] ? asprintf(&path, "%s", url + 7) : asprintf(&path, "%s/%s", data, name)) < 0)
		return err_set(e, ERR_NOMEM, "out of memory");
	if (access(path, F_OK) != 0) {
		printf("%s: does not exist yet\n", path);
		return 0;
	}
	int damaged = sqlite_file_check(path, &report, e);
	if (damaged < 0)
		return damaged;
	if (damaged > 0)
		printf("%s: DAMAGED: %.*s\n", path, (int)report.len, report.data);
	else
		printf("%s: sound\n", path);
	return damaged;
}

static int verify(struct args *a)
{
	struct settings settings = {0};
	struct err e;
	if (settings_load(&settings, a->settings, a->setting_count, &e) < 0)
		return cmd_fail("%s", e.text);
	const char *data = settings.data;
	int status = EXIT_FAILED, parts[3] = {0};
	if (access(data, F_OK) != 0) {
		cmd_fail("there is no data folder %s; name another with --data DIR", data);
	} else if ((parts[0] = verify_events(data, folder_is_busy(data), &e)) < 0 ||
	           (parts[1] = verify_file(data, settings.serve.store_url, "links.db", &e)) < 0 ||
	           (parts[2] = verify_file(data, settings.serve.sink_url, "stats.db", &e)) < 0) {
		cmd_fail("%s", e.text);
	} else if (parts[0] + parts[1] + parts[2] > 0) {
		printf("%d damaged\n", parts[0] + parts[1] + parts[2]);
	} else {
		puts("everything is sound");
		status = 0;
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
    .takes_settings = true,
    .run = verify,
};
