/* Reads everything in a data folder that has checksums or invariants, and says what is wrong. Changes
 * nothing. */
#include "client/sqlite_file.h"
#include "cmd/args.h"
#include "cmd/command.h"
#include "event/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char usage[] = "usage: curt verify [--data DIR]\n"
                            "\n"
                            "Checks every segment of the event log, and the database files, and reports in "
                            "words. Nothing is changed; a "
                            "server may be\n"
                            "running. Exit status 1 when something is damaged.\n";

/* How many things are damaged, or an error. */
static int verify_events(const char *data, bool running, struct err *e)
{
	struct buf CLEANUP(buf_release) report = {0};
	char *path CLEANUP(freep) = NULL;
	if (asprintf(&path, "%s/events", data) < 0)
		return err_set(e, ERR_NOMEM, "out of memory");
	int damaged = event_verify(path, running, &report, e);
	if (damaged == ERR_NOT_FOUND) {
		puts("events: there is no event log yet");
		return 0;
	}
	if (damaged < 0)
		return damaged;
	fwrite(report.data ? report.data : "", 1, report.len, stdout);
	if (report.len == 0)
		puts("events: no segment is there; nothing waits and nothing is kept");
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
		printf("%s: is not there yet\n", path);
		return 0;
	}
	int damaged = sqlite_file_check(path, &report, e);
	if (damaged < 0)
		return damaged;
	if (damaged > 0)
		printf("%s: DAMAGED: %.*s\n", path, (int)report.len, report.data);
	else
		printf("%s: whole\n", path);
	return damaged;
}

static int verify(const struct args *a)
{
	struct settings settings = {0};
	struct err e;
	if (settings_load(&settings, a->client.settings, a->client.setting_count, &e) < 0)
		return cmd_fail("%s", e.text);
	const char *data = settings.serve.data;
	int damaged = 0, r = 0;
	if (access(data, F_OK) != 0) {
		r = cmd_fail("there is no data folder %s; name another with --data DIR", data);
	} else {
		int parts[3];
		bool running = folder_is_busy(data);
		parts[0] = verify_events(data, running, &e);
		parts[1] = parts[0] < 0 ? 0 : verify_file(data, settings.serve.store_url, "links.db", &e);
		parts[2] = parts[0] < 0 || parts[1] < 0
		               ? 0
		               : verify_file(data, settings.serve.sink_url, "stats.db", &e);
		for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
			r |= parts[i] < 0;
			damaged += parts[i] > 0 ? parts[i] : 0;
		}
		if (r)
			cmd_fail("%s", e.text);
		else if (damaged)
			printf("%d damaged\n", damaged);
		else
			puts("everything is sound");
	}
	settings_release(&settings);
	return r || damaged ? 1 : 0;
}

int cmd_verify(int argc, char **argv)
{
	const struct arg_command command = {.usage = usage, .run = verify};
	return args_run(&command, argc, argv, NULL);
}
