/* Reads every file of a data folder, and reports damage. Changes nothing. */
#include "cmd/report.h"
#include "server/folder_verify.h"

#include <stdio.h>

static int verify(struct args *a)
{
	struct settings settings = {0};
	struct report report;
	struct err e;
	if (settings_load(&settings, a->settings, a->setting_count, &e) < 0)
		return cmd_fail("%s", e.text);
	report_begin(&report, a, true);
	int r = folder_verify(&settings, true, &report.base, &e);
	size_t damaged = report.base.bad_count;
	if (r < 0 && !report.is_json)
		r = cmd_fail("%s", e.text);
	else if (r < 0)
		findings_add(&report.base, VERDICT_BAD, settings.data, "%s", e.text);
	settings_release(&settings);
	int status = report_end(&report);
	if (report.is_json || r != 0)
		return r > 0 ? r : status;
	if (damaged > 0)
		printf("%zu damaged\n", damaged);
	else
		puts("no damage found");
	return status;
}

const struct command verify_command = {
    .name = "verify",
    .summary = "Check every file of the data folder for damage",
    .details =
        "Changes nothing, and may run beside a server. The exit status is 1 when something is damaged.\n"
        "It finds every changed byte in the event log, and in the databases what breaks a rule: structure, "
        "indexes, types, sums. It cannot find a changed character in a text without an index, such as a "
        "link's URL, nor in unused space.",
    .examples = "curt verify --data /srv/curt",
    .options = (const struct command_option[]){REPORT_JSON_OPTION, {NULL, NULL}},
    .takes_settings = true,
    .run = verify,
};
