#include "store/reshard.h"

#include "cmd/command.h"
#include "os/clock.h"
#include "server/backends.h"
#include "server/settings.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { TERMINAL_MS = 1000, FILE_MS = 10000, PATIENCE_MS = 30000 };

static atomic_bool is_stopped;

static void on_signal(int number)
{
	(void)number;
	atomic_store(&is_stopped, true);
}

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
		fprintf(stderr, "waiting for a database that does not answer, %jd s%s",
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
		puts("nothing to do: the links are spread over the databases of store.url");
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
		       r->was_begun ? ", continuing an interrupted run" : "");
}

static int reshard(struct store *store, const struct args *a, struct err *e)
{
	struct progress shown = {
	    .on_terminal = isatty(STDERR_FILENO), .start_ms = clock_mono_ms(), .last_ms = clock_mono_ms()};
	struct reshard *r = calloc(1, sizeof(*r));
	struct str *leave = calloc(a->given_count + 1, sizeof(*leave));
	if (!r || !leave) {
		free(r);
		free(leave);
		return err_set(e, ERR_NOMEM, "out of memory");
	}
	r->leave = leave;
	for (size_t i = 0; i < a->given_count; i++) {
		if (str_eq(a->given[i].name, STR("--leave")))
			leave[r->leave_count++] = str_of(a->given[i].value);
	}
	r->dry_run = args_has(a, "--dry-run");
	r->patience_ms = PATIENCE_MS;
	r->progress = progress_show;
	r->ctx = &shown;
	int result = store_reshard(store, r, e);
	if (shown.on_terminal)
		fputs("\033[K", stderr);
	if (result == 0)
		result_print(r, clock_mono_ms() - shown.start_ms);
	else if (r->slots > 0)
		fprintf(stderr, "switched %zu slots so far; run 'curt reshard' again to continue\n",
		        r->slots);
	free(leave);
	free(r);
	return result;
}

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
	return shard->is_lost ? " (another database is in its place)" : "";
}

static int status_print(struct store *store, struct err *e)
{
	struct shards_status *status = calloc(1, sizeof(*status));
	if (!status)
		return err_set(e, ERR_NOMEM, "out of memory");
	store_shards_status(store, status);
	printf("map %ju, %s\n", (uintmax_t)status->version,
	       status->moves ? "slots are moving ('curt reshard' continues)" : "nothing moves");
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

static int forget(struct store *store, const char *address, bool yes, struct err *e)
{
	int r = store_shards_forget(store, str_of(address), yes, e);
	if (r == 0)
		printf("the links of %s are given up\n", address);
	return r;
}

static int run_on(const struct settings *s, const struct args *a, struct err *e)
{
	struct store *store = NULL;
	const char *lost = args_value(a, "--forget");
	if (strncmp(s->serve.store_url, "postgres", strlen("postgres")) != 0)
		return err_set(e, ERR_INVALID,
		               "store.url names no PostgreSQL databases: there is nothing to spread");
	int r = backend_open_shards(s->serve.store_url, "", true, &store, e);
	if (r == 0 && args_has(a, "--status"))
		r = status_print(store, e);
	else if (r == 0)
		r = lost ? forget(store, lost, args_has(a, "--yes"), e) : reshard(store, a, e);
	store_free(store);
	return r;
}

/* Options of what is not done would be ignored. */
static int check_options(const struct args *a)
{
	if (args_has(a, "--status") && a->given_count > 1)
		return cmd_usage(
		    "--status changes nothing and goes with no other option; leave the others out");
	if (args_has(a, "--forget") && (args_has(a, "--dry-run") || args_has(a, "--leave")))
		return cmd_usage(
		    "--forget moves nothing and does not go with --dry-run or --leave; leave those out");
	if (args_has(a, "--yes") && !args_has(a, "--forget"))
		return cmd_usage("--yes confirms --forget, which is not given; leave it out");
	return 0;
}

static int run(struct args *a)
{
	struct settings settings = {0};
	struct err e = {""};
	int wrong = check_options(a);
	if (wrong)
		return wrong;
	if (settings_load(&settings, a->settings, a->setting_count, &e) < 0)
		return cmd_fail("%s", e.text);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	int r = run_on(&settings, a, &e);
	settings_release(&settings);
	return r < 0 ? cmd_fail("%s", e.text) : 0;
}

const struct command reshard_command = {
    .name = "reshard",
    .summary = "Spread the links over the databases of store.url",
    .details =
        "Moves only what must move: a third of all links when a third database joins two. Servers keep "
        "serving. Before a database joins, all servers must have it in their store.url; it stays idle "
        "until then.\n"
        "An interrupted run loses nothing: run it again.",
    .examples = "curt reshard --dry-run --config curt.conf",
    .options =
        (const struct command_option[]){
            {"--dry-run", "Print what would move, and change nothing."},
            {"--status", "Print the share of each database."},
            {"--leave ADDRESS", "Empty this database, named as --status prints it, so that it can leave "
                                "store.url afterwards. May be repeated."},
            {"--forget ADDRESS", "Give up a lost database and all links in it; needs --yes."},
            {"--yes", "Confirm --forget."},
            {NULL, NULL}},
    .takes_settings = true,
    .run = run,
};
