/* Looks for problems that a server on this machine would have, and says what to do. */
#include "client/redis_ring.h"
#include "cmd/ask.h"
#include "os/clock.h"
#include "queue/topics.h"
#include "server/backends.h"

#include <stdarg.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

enum { FILES_WANTED = 4096, DISK_WANTED_MIB = 1024, QUEUE_MS = 5000 };
static const int64_t year_2024_ms = 1704067200000;

static json_t *results; /* with --json, the lines so far; otherwise NULL */

/* One line of the report. */
static void report(bool fine, const char *what, const char *fmt, ...) PRINTF_LIKE(3, 4);
static void report(bool fine, const char *what, const char *fmt, ...)
{
	char *text CLEANUP(freep) = NULL;
	va_list ap;
	va_start(ap, fmt);
	ASSERT(vasprintf(&text, fmt, ap) >= 0);
	va_end(ap);
	if (results)
		json_array_append_new(results,
		                      json_pack("{s:s, s:b, s:s}", "name", what, "ok", fine, "detail", text));
	else
		printf("%-4s %-12s %s\n", fine ? "ok" : "BAD", what, text);
}

static bool report_answer(const char *what, int r, const struct err *e)
{
	report(r == 0, what, "%s", r == 0 ? "answers" : e->text);
	return r == 0;
}

static bool check_clock(void)
{
	bool fine = clock_real_ms() > year_2024_ms;
	report(fine, "clock", "%s",
	       fine ? "is set" : "is before 2024; set it, or links will expire at wrong times");
	return fine;
}

static bool check_files(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return true;
	bool fine = limit.rlim_max >= FILES_WANTED;
	report(fine, "files", "the limit of open files is %llu%s", (unsigned long long)limit.rlim_max,
	       fine ? ""
	            : "; each connection is one: raise the limit (ulimit -Hn, or LimitNOFILE in systemd)");
	return fine;
}

static bool check_disk(const char *data)
{
	struct statvfs disk;
	if (statvfs(data, &disk) != 0)
		return true;
	unsigned long long mib = (unsigned long long)disk.f_bavail * disk.f_frsize >> 20;
	bool fine = mib >= DISK_WANTED_MIB;
	report(fine, "disk", "%llu MiB are free%s", mib,
	       fine ? "" : "; free some space, or writes will soon fail");
	return fine;
}

/* Opens the folder as any command would, and asks the server whether it is ready. */
static bool check_data(struct args *a, const char *data)
{
	struct err e;
	struct client c;
	int r = client_open(&c, a, &e);
	if (r == ERR_NOT_FOUND) {
		report(true, "data", "there is no folder %s yet; the first start creates it", data);
		return true;
	}
	if (r < 0) {
		report(false, "data", "%s", e.text);
		return false;
	}
	if (c.own)
		report(true, "data", "%s is sound, and no server uses it", data);
	else
		report(true, "server", "%s answers", c.url);
	struct buf CLEANUP(buf_release) response = {0};
	int status;
	r = client_call(&c, "GET", "/readyz", STR_NULL, &response, &status, &e);
	bool fine = r == 0 && status == 200;
	json_t *answer = r == 0 ? json_loadb(response.data ? response.data : "", response.len, 0, NULL)
	                        : NULL;
	if (!answer)
		report(false, "ready", "%s", r < 0 ? e.text : "the answer of the server is not JSON");
	const char *name;
	json_t *result;
	json_object_foreach(json_object_get(answer, "checks"), name, result)
	{
		bool well = strcmp(json_string_value(result) ? json_string_value(result) : "", "ok") == 0;
		report(well, name, "%s", well ? "answers" : json_string_value(result));
		fine &= well;
	}
	json_decref(answer);
	client_close(&c);
	return fine;
}

/* A running server does not report this: it takes a lease only now and then. */
static bool check_leases(const char *url)
{
	struct err e = {""};
	struct leases *leases = NULL;
	if (!url[0])
		return true;
	int r = backend_open_leases(url, &leases, &e);
	if (r == 0)
		r = leases->ops->ping(leases, &e);
	leases_free(leases);
	return report_answer("leases", r, &e);
}

/* A running server only reports past trouble, and a command sends nothing: ask the queue itself. */
static bool check_queue(const struct queue_settings *settings)
{
	struct err e = {""};
	struct topics topics;
	struct kafka_producer *producer = NULL;
	if (!settings->url[0])
		return true;
	int r = topics_init(&topics, settings, &e);
	if (r == 0)
		r = kafka_producer_new(&topics.kafka, &producer, &e);
	if (r == 0)
		r = kafka_producer_ping(producer, QUEUE_MS, &e);
	kafka_producer_free(producer);
	return report_answer("queue", r, &e);
}

static bool check_seen(const char *urls)
{
	struct err e = {""};
	struct redis_ring ring = {0};
	if (!urls[0])
		return true;
	int r = redis_ring_open(str_of(urls), &ring, &e);
	if (r == 0)
		r = redis_ring_ping(&ring, &e);
	redis_ring_release(&ring);
	return report_answer("seen", r, &e);
}

static bool check_all(struct args *a)
{
	struct settings settings = {0};
	struct err e;
	if (settings_load(&settings, a->settings, a->setting_count, &e) < 0) {
		report(false, "settings", "%s", e.text);
		return false;
	}
	report(true, "settings", "are valid");
	bool fine = check_clock();
	fine &= check_files();
	fine &= check_disk(settings.data);
	fine &= check_data(a, settings.data);
	fine &= check_leases(settings.serve.lease_url);
	fine &= check_queue(&settings.queue);
	fine &= check_seen(settings.serve.seen_url);
	settings_release(&settings);
	return fine;
}

static int examine(struct args *a)
{
	struct err e;
	if (client_check(a, &e) < 0)
		return cmd_usage("%s", e.text);
	results = args_has(a, "--json") ? json_array() : NULL;
	bool fine = check_all(a);
	if (results)
		ask_print_json(json_pack("{s:b, s:o}", "ok", fine, "checks", results));
	return fine ? 0 : EXIT_FAILED;
}

const struct command doctor_command = {
    .name = "doctor",
    .summary = "Look for problems with the settings, the backends and this machine",
    .details =
        "Prints a line for each check: ok, or BAD and what to do. The exit status is 1 when one is BAD.",
    .examples = "curt doctor --data /srv/curt",
    .options = (const struct command_option[]){{"--json", "Print the report as JSON."},
                                               {"--server URL", "Check this server; or set CURT_URL."},
                                               {"--api-key KEY",
                                                "The API key for --server; or set CURT_API_KEY."},
                                               {NULL, NULL}},
    .takes_settings = true,
    .run = examine,
};
