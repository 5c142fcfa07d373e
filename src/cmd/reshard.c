#include "store/reshard.h"
#include "cmd/command.h"
#include "cmd/service.h"
#include "os/clock.h"
#include "server/backends.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char usage[] =
    "usage: curt reshard [--dry-run | --status | --forget ADDRESS] [--leave ADDRESS]... [--config FILE] "
    "[--SETTING VALUE]...\n"
    "\n"
    "Spreads links over the databases of store.url. Only what must move does: a third of all links when a "
    "third database\n"
    "joins two. Servers go on serving; before a database joins, they must have it in their store.url (it "
    "stays "
    "idle until\n"
    "then). Interrupted at any point, nothing is lost: run it again.\n"
    "\n"
    "  --dry-run        say what would move, and change nothing\n"
    "  --status         say which databases have which share\n"
    "  --leave ADDRESS  empty this one, as --status calls it; afterwards it can be left out of store.url\n"
    "  --forget ADDRESS give this one up for lost, with all links in it; asks for --yes\n"
    "\n";

enum { LEAVE_MAX = SHARDS_MAX, TERMINAL_MS = 1000, FILE_MS = 10000, PATIENCE_MS = 30000 };

struct options {
	bool dry_run, status, help, yes;
	struct str leave[LEAVE_MAX];
	size_t leave_count;
	struct str forget;
};

static atomic_bool is_stopped;

static void on_signal(int number)
{
	(void)number;
	atomic_store(&is_stopped, true);
}

static bool flag_take(struct options *o, const char *arg)
{
	const struct {
		const char *name;
		bool *to;
	} flags[] = {{"--dry-run", &o->dry_run},
	             {"--status", &o->status},
	             {"--yes", &o->yes},
	             {"--help", &o->help},
	             {"-h", &o->help}};
	for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
		if (strcmp(arg, flags[i].name) == 0) {
			*flags[i].to = true;
			return true;
		}
	}
	return false;
}

/* Takes what is ours out of the arguments; the rest are settings. */
static int options_take(struct options *o, int *argc, char **argv)
{
	int kept = 0;
	for (int i = 0; i < *argc; i++) {
		const char *arg = argv[i];
		bool leaves = strcmp(arg, "--leave") == 0;
		if (flag_take(o, arg))
			continue;
		if (!leaves && strcmp(arg, "--forget") != 0)
			argv[kept++] = argv[i];
		else if (i + 1 == *argc || (leaves ? o->leave_count == LEAVE_MAX : o->forget.ptr != NULL))
			return cmd_fail(
			    "%s takes the address of a database; 'curt reshard --status' shows them", arg);
		else
			*(leaves ? &o->leave[o->leave_count++] : &o->forget) = str_of(argv[++i]);
	}
	*argc = kept;
	return 0;
}

/* --- progress --- */

struct progress {
	bool on_terminal;
	int64_t start_ms, last_ms;
};

static bool progress_show(void *ctx, const struct reshard_progress *p)
{
	struct progress *shown = ctx;
	int64_t now_ms = clock_mono_ms();
	int64_t pause_ms = shown->on_terminal || p->waits_ms > 0 ? TERMINAL_MS : FILE_MS;
	const char *end = shown->on_terminal ? "\033[K\r" : "\n";
	if (now_ms - shown->last_ms < pause_ms)
		return !atomic_load(&is_stopped);
	shown->last_ms = now_ms;
	if (p->waits_ms > 0)
		fprintf(stderr, "waiting for a database that does not answer, for %jd s%s",
		        (intmax_t)(p->waits_ms / 1000), end);
	else
		fprintf(stderr, "%.*s -> %.*s: %ju keys copied, %ju caught up; %zu of %zu slots switched%s",
		        STR_ARG(p->from), STR_ARG(p->to), (uintmax_t)p->copied, (uintmax_t)p->caught_up,
		        p->switched, p->slots, end);
	return !atomic_load(&is_stopped);
}

static void result_print(const struct reshard *r, int64_t elapsed_ms)
{
	if (r->is_settled) {
		puts("nothing to do: links are spread over the databases of store.url");
		return;
	}
	for (size_t from = 0; from < r->count; from++) {
		for (size_t to = 0; to < r->count; to++) {
			if (r->flows[from][to] > 0)
				printf("  %.*s -> %.*s: %ju keys\n", STR_ARG(r->addresses[from]),
				       STR_ARG(r->addresses[to]), (uintmax_t)r->flows[from][to]);
		}
	}
	if (r->dry_run)
		printf("would move %ju of %ju keys, in %zu of %d slots\n", (uintmax_t)r->keys,
		       (uintmax_t)r->all, r->slots, SLOT_COUNT);
	else
		printf("moved %ju keys, in %zu of %d slots, in %.1f s%s\n", (uintmax_t)r->keys, r->slots,
		       SLOT_COUNT, (double)elapsed_ms / 1000,
		       r->was_begun ? ", going on where it was left" : "");
}

static int reshard(struct store *store, const struct options *o, struct err *e)
{
	struct progress shown = {
	    .on_terminal = isatty(STDERR_FILENO), .start_ms = clock_mono_ms(), .last_ms = clock_mono_ms()};
	struct reshard *r = calloc(1, sizeof(*r));
	if (!r)
		return err_set(e, ERR_NOMEM, "out of memory");
	r->leave = o->leave;
	r->leave_count = o->leave_count;
	r->dry_run = o->dry_run;
	r->patience_ms = PATIENCE_MS;
	r->progress = progress_show;
	r->ctx = &shown;
	int result = store_reshard(store, r, e);
	if (shown.on_terminal)
		fputs("\033[K", stderr);
	if (result == 0)
		result_print(r, clock_mono_ms() - shown.start_ms);
	else if (r->slots > 0)
		fprintf(stderr, "switched %zu slots so far; run 'curt reshard' again to go on\n", r->slots);
	free(r);
	return result;
}

/* --- status --- */

static const char *shard_role(const struct shards_status *status, const struct shard_status *shard)
{
	if (shard->is_registry)
		return "registry";
	if (status->moves && shard->is_target && shard->slots == 0)
		return "joining";
	if (status->moves && !shard->is_target && shard->is_member)
		return "leaving";
	return shard->is_member ? "member" : "idle";
}

static const char *shard_trouble(const struct shard_status *shard)
{
	if (!shard->is_configured)
		return " (not in store.url)";
	if (!shard->answers)
		return " (does not answer)";
	return shard->is_lost ? " (another database stands in its place)" : "";
}

static int status_print(struct store *store, struct err *e)
{
	struct shards_status *status = calloc(1, sizeof(*status));
	if (!status)
		return err_set(e, ERR_NOMEM, "out of memory");
	store_shards_status(store, status);
	printf("map %ju, %s\n", (uintmax_t)status->version,
	       status->moves ? "slots are moving ('curt reshard' goes on with it)" : "nothing moves");
	for (size_t i = 0; i < status->count; i++) {
		const struct shard_status *shard = &status->shards[i];
		printf("  %-8s %4zu slots  %s%s\n", shard_role(status, shard), shard->slots, shard->address,
		       shard_trouble(shard));
	}
	if (status->orphans > 0)
		printf("  %zu slots have no owner\n", status->orphans);
	free(status);
	return 0;
}

static int forget(struct store *store, const struct options *o, struct err *e)
{
	int r = store_shards_forget(store, o->forget, o->yes, e);
	if (r == 0)
		printf("the links of %.*s are given up\n", STR_ARG(o->forget));
	return r;
}

static int run(const struct options *o, const struct settings *s, struct err *e)
{
	struct store *store = NULL;
	if (strncmp(s->serve.store_url, "postgres", strlen("postgres")) != 0)
		return err_set(e, ERR_INVALID,
		               "store.url names no PostgreSQL databases: there is nothing to spread");
	int r = backend_open_shards(s->serve.store_url, "", true, &store, e);
	if (r == 0 && o->status)
		r = status_print(store, e);
	else if (r == 0)
		r = o->forget.ptr ? forget(store, o, e) : reshard(store, o, e);
	store_free(store);
	return r;
}

int cmd_reshard(int argc, char **argv)
{
	struct options o = {0};
	struct settings settings = {0};
	struct err e = {""};
	if (options_take(&o, &argc, argv) != 0)
		return 2;
	if (o.help)
		return service_help(usage);
	if (settings_load(&settings, argv, argc, &e) < 0)
		return cmd_fail("%s", e.text);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	int r = run(&o, &settings, &e);
	settings_release(&settings);
	return r < 0 ? cmd_fail("%s", e.text) : 0;
}
