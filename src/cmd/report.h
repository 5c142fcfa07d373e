/* Prints what a check found: a line for each, or all of them as JSON. */
#pragma once

#include "base/buf.h"
#include "base/findings.h"
#include "cmd/command.h"

struct report {
	struct findings base;
	bool is_json;
	bool has_paths; /* the names are long, and details say what is damaged: verdicts are not printed */
	struct buf json;
	char busy_with[256]; /* what the line of progress says; "": there is none */
	int64_t busy_ms;     /* since when */
	int64_t shown_ms;
};

#define REPORT_JSON_OPTION                                                                        \
	{                                                                                         \
		"--json", "Print {\"sound\", \"checks\": [{\"name\", \"status\", \"detail\"}]}; " \
		          "status is ok, note or bad."                                            \
	}

void report_begin(struct report *r, const struct args *a, bool has_paths);

/* Ends the output, and returns the exit status: EXIT_FAILED when something was BAD. */
int report_end(struct report *r);
