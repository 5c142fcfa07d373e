/* Looks for problems that a server on this machine would have, and says what to do. */
#include "client/redis_ring.h"
#include "cmd/ask.h"
#include "cmd/report.h"
#include "os/clock.h"
#include "queue/topics.h"
#include "server/backends.h"
#include "server/folder_verify.h"

#include <sys/resource.h>
#include <sys/statvfs.h>

enum { FILES_WANTED = 4096, DISK_WANTED_MIB = 1024, QUEUE_MS = 5000 };
static const int64_t year_2024_ms = 1704067200000;

static void report_answer(struct findings *f, const char *what, int r, const struct err *e)
{
	findings_add(f, r == 0 ? VERDICT_OK : VERDICT_BAD, what, "%s", r == 0 ? "answers" : e->text);
}

static void check_clock(struct findings *f)
{
	if (clock_real_ms() > year_2024_ms)
		findings_add(f, VERDICT_OK, "clock", "is set");
	else
		findings_add(f, VERDICT_BAD, "clock",
		             "is before 2024; set it, or links will expire at wrong times");
}

static void check_files(struct findings *f)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return;
	bool fine = limit.rlim_max >= FILES_WANTED;
	findings_add(
	    f, fine ? VERDICT_OK : VERDICT_BAD, "files", "the limit of open files is %llu%s",
	    (unsigned long long)limit.rlim_max,
	    fine ? "" : "; each connection is one: raise the limit (ulimit -Hn, or LimitNOFILE in systemd)");
}

static void check_disk(struct findings *f, const char *data)
{
	struct statvfs disk;
	if (statvfs(data, &disk) != 0)
		return;
	unsigned long long mib = (unsigned long long)disk.f_bavail * disk.f_frsize >> 20;
	bool fine = mib >= DISK_WANTED_MIB;
	findings_add(f, fine ? VERDICT_OK : VERDICT_BAD, "disk", "%llu MiB are free%s", mib,
	             fine ? "" : "; free some space, or writes will soon fail");
}

/* Of the files of a folder, the doctor names those that are not OK. */
struct data_findings {
	struct findings base;
	struct findings *to;
};

static void data_found(struct findings *base, enum verdict verdict, const char *name, const char *detail)
{
	struct data_findings *f = container_of(base, struct data_findings, base);
	if (verdict != VERDICT_OK)
		findings_add(f->to, verdict, "data", "%s: %s", name, detail);
}

static void data_busy(struct findings *base, const char *name)
{
	findings_busy(container_of(base, struct data_findings, base)->to, name);
}

/* True: a server may be started on it, or runs. */
static bool check_folder(struct findings *f, const struct settings *settings)
{
	struct data_findings data = {.base = {.found = data_found, .busy = data_busy}, .to = f};
	struct err e;
	int r = folder_verify(settings, false, &data.base, &e);
	if (r == ERR_NOT_FOUND)
		findings_add(f, VERDICT_OK, "data", "there is no folder %s yet; the first start creates it",
		             settings->data);
	else if (r < 0)
		findings_add(f, VERDICT_BAD, "data", "%s", e.text);
	else if (data.base.bad_count == 0)
		findings_add(f, VERDICT_OK, "data",
		             "%s: a quick look found no damage; 'curt verify' reads every record",
		             settings->data);
	return r == 0 && data.base.bad_count == 0;
}

/* Asks the server whether it is ready: the given one, that of the folder, or one of our own. */
static void check_server(struct findings *f, struct args *a)
{
	struct err e;
	struct client c;
	int r = client_open(&c, a, &e);
	if (r < 0) {
		findings_add(f, VERDICT_BAD, client_is_remote(a) ? "server" : "data", "%s", e.text);
		return;
	}
	if (c.own)
		findings_add(f, VERDICT_OK, "server", "none uses the folder");
	else
		findings_add(f, VERDICT_OK, "server", "%s answers", c.url);
	struct buf CLEANUP(buf_release) response = {0};
	int status;
	r = client_call(&c, "GET", "/readyz", STR_NULL, &response, &status, &e);
	json_t *answer = r == 0 ? json_loadb(response.data ? response.data : "", response.len, 0, NULL)
	                        : NULL;
	const json_t *checks = json_object_get(answer, "checks");
	if (!checks)
		findings_add(f, VERDICT_BAD, "ready", "%s",
		             r < 0 ? e.text : "the answer of the server is not that of curt");
	const char *name;
	json_t *result;
	json_object_foreach((json_t *)checks, name, result)
	{
		const char *text = json_string_value(result) ? json_string_value(result) : "";
		bool well = strcmp(text, "ok") == 0;
		findings_add(f, well ? VERDICT_OK : VERDICT_BAD, name, "%s", well ? "answers" : text);
	}
	json_decref(answer);
	client_close(&c);
}

/* A running server does not report this: it takes a lease only now and then. */
static void check_leases(struct findings *f, const char *url)
{
	struct err e = {""};
	struct leases *leases = NULL;
	if (!url[0])
		return;
	int r = backend_open_leases(url, &leases, &e);
	if (r == 0)
		r = leases->ops->ping(leases, &e);
	leases_free(leases);
	report_answer(f, "leases", r, &e);
}

/* A running server only reports past trouble, and a command sends nothing: ask the queue itself. */
static void check_queue(struct findings *f, const struct queue_settings *settings)
{
	struct err e = {""};
	struct topics topics;
	struct kafka_producer *producer = NULL;
	if (!settings->url[0])
		return;
	int r = topics_init(&topics, settings, &e);
	if (r == 0)
		r = kafka_producer_new(&topics.kafka, &producer, &e);
	if (r == 0)
		r = kafka_producer_ping(producer, QUEUE_MS, &e);
	kafka_producer_free(producer);
	report_answer(f, "queue", r, &e);
}

static void check_seen(struct findings *f, const char *urls)
{
	struct err e = {""};
	struct redis_ring ring = {0};
	if (!urls[0])
		return;
	int r = redis_ring_open(str_of(urls), &ring, &e);
	if (r == 0)
		r = redis_ring_ping(&ring, &e);
	redis_ring_release(&ring);
	report_answer(f, "seen", r, &e);
}

static int examine(struct args *a)
{
	struct settings settings = {0};
	struct report report;
	struct findings *f = &report.base;
	struct err e;
	if (client_check(a, &e) < 0)
		return cmd_usage("%s", e.text);
	report_begin(&report, a, false);
	if (settings_load(&settings, a->settings, a->setting_count, &e) < 0) {
		findings_add(f, VERDICT_BAD, "settings", "%s", e.text);
		return report_end(&report);
	}
	findings_add(f, VERDICT_OK, "settings", "are valid");
	check_clock(f);
	check_files(f);
	check_disk(f, settings.data);
	if (client_is_remote(a) || check_folder(f, &settings))
		check_server(f, a);
	check_leases(f, settings.serve.lease_url);
	check_queue(f, &settings.queue);
	check_seen(f, settings.serve.seen_url);
	settings_release(&settings);
	return report_end(&report);
}

const struct command doctor_command = {
    .name = "doctor",
    .summary = "Look for problems with the settings, the backends and this machine",
    .details =
        "Prints a line for each check: ok, or BAD and what to do. The exit status is 1 when one is BAD.\n"
        "Of the data folder it checks the formats and takes a quick look at the databases. 'curt verify' "
        "reads everything.",
    .examples = "curt doctor --data /srv/curt",
    .options = (const struct command_option[]){{"--server URL", "Check this server; or set CURT_URL."},
                                               {"--api-key KEY",
                                                "The API key for --server; or set CURT_API_KEY."},
                                               REPORT_JSON_OPTION,
                                               {NULL, NULL}},
    .takes_settings = true,
    .run = examine,
};
