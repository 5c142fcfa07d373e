#include "store/reshard.h"
#include "cmd/backends.h"
#include "cmd/command.h"
#include "os/clock.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char usage[] =
    "usage: curt reshard [--dry-run | --status | --forget ADDRESS] [--leave ADDRESS]... [--config FILE] "
    "[--SETTING VALUE]...\n"
    "\n"
    "Spreads links and keys over the databases of store.url, so that all of them are members of the ring. "
    "Only "
    "what must move\n"
    "does: a third of all keys when a third database joins two. Servers go on serving; before a database "
    "joins, "
    "they must\n"
    "have it in their store.url (it stays idle until then). Interrupted at any point, nothing is lost: run "
    "it "
    "again.\n"
    "\n"
    "  --dry-run        say what would move, and change nothing\n"
    "  --status         say who is in the ring\n"
    "  --leave ADDRESS  empty this one, as --status calls it; afterwards it can be left out of store.url\n"
    "  --forget ADDRESS give this one up for lost, with all links in it; asks for --yes\n"
    "\n";

enum { LEAVE_MAX = RING_PARTS_MAX, TERMINAL_MS = 1000, FILE_MS = 10000, PATIENCE_MS = 30000 };

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
			    "%s takes the address of a member; 'curt reshard --status' shows them", arg);
		else
			*(leaves ? &o->leave[o->leave_count++] : &o->forget) = str_of(argv[++i]);
	}
	*argc = kept;
	return 0;
}

/* --- progress --- */

struct progress {
	bool on_terminal;
	bool dry_run;
	int64_t start_ms, last_ms;
};

static bool progress_show(void *ctx, const struct reshard_progress *p)
{
	struct progress *shown = ctx;
	int64_t now_ms = clock_mono_ms();
	int64_t pause_ms = shown->on_terminal ? TERMINAL_MS : FILE_MS;
	if (p->waits_ms > TERMINAL_MS && now_ms - shown->last_ms >= TERMINAL_MS) {
		shown->last_ms = now_ms;
		fprintf(
		    stderr, "waiting for %.*s, which does not answer or cannot take the ring, for %jd s%s",
		    STR_ARG(p->part), (intmax_t)(p->waits_ms / 1000), shown->on_terminal ? "\033[K\r" : "\n");
	} else if (now_ms - shown->last_ms >= pause_ms) {
		int64_t elapsed_ms = MAX(now_ms - shown->start_ms, 1);
		shown->last_ms = now_ms;
		fprintf(stderr, "%s%.*s: %ju keys looked at, %ju moved, %ju/s%s",
		        p->walk == 1 ? "" : "checking ", STR_ARG(p->part), (uintmax_t)p->looked_at,
		        (uintmax_t)p->moved, (uintmax_t)(p->moved * 1000 / (uint64_t)elapsed_ms),
		        shown->on_terminal ? "\033[K\r" : "\n");
	}
	return !atomic_load(&is_stopped);
}

static void result_print(const struct reshard *r, int64_t elapsed_ms)
{
	if (r->strays > 0)
		printf("%s %ju keys from databases that they do not belong to any more (was one of them "
		       "restored from an older backup?)\n",
		       r->dry_run ? "would remove" : "removed", (uintmax_t)r->strays);
	if (r->is_settled) {
		puts("nothing to do: the databases of store.url are the members of the ring");
		return;
	}
	for (size_t i = 0; i < r->flow_count; i++)
		printf("  %.*s -> %.*s: %ju\n", STR_ARG(r->flows[i].from), STR_ARG(r->flows[i].to),
		       (uintmax_t)r->flows[i].keys);
	double share = r->looked_at ? 100.0 * (double)r->moved / (double)r->looked_at : 0;
	printf("%s %ju of %ju keys (%.1f %%)", r->dry_run ? "would move" : "moved", (uintmax_t)r->moved,
	       (uintmax_t)r->looked_at, share);
	if (!r->dry_run)
		printf(" in %.1f s%s", (double)elapsed_ms / 1000,
		       r->was_begun ? ", going on where it was left" : "");
	putchar('\n');
}

static int reshard(struct store *ring, const struct options *o, struct err *e)
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
	int result = store_reshard(ring, r, e);
	if (shown.on_terminal)
		fputs("\033[K", stderr);
	if (result == 0)
		result_print(r, clock_mono_ms() - shown.start_ms);
	else if (r->moved > 0)
		fprintf(stderr, "moved %ju keys so far; run 'curt reshard' again to go on\n",
		        (uintmax_t)r->moved);
	free(r);
	return result;
}

/* --- status --- */

static const char *part_role(const struct ring_status *status, const struct ring_status_part *part)
{
	if (part->is_home)
		return "home";
	if (!status->moves || part->is_member == part->is_target)
		return part->is_member ? "member" : "idle";
	return part->is_member ? "leaving" : "joining";
}

static const char *part_trouble(const struct ring_status_part *part)
{
	if (!part->is_configured)
		return " (not in store.url)";
	if (!part->answers)
		return " (away)";
	if (part->is_lost)
		return " (another database stands in its place)";
	return part->is_behind ? " (does not take the ring: a transaction stays open there)" : "";
}

static int status_print(struct store *ring, struct err *e)
{
	CLEANUP(arena_release) struct arena arena = {0};
	struct ring_status *status = calloc(1, sizeof(*status));
	if (!status)
		return err_set(e, ERR_NOMEM, "out of memory");
	int r = store_ring_status(ring, &arena, status, e);
	if (r == 0)
		printf("epoch %ju, %s\n", (uintmax_t)status->epoch,
		       status->moves ? "keys are moving ('curt reshard' goes on with it)" : "nothing moves");
	for (size_t i = 0; r == 0 && i < status->part_count; i++) {
		const struct ring_status_part *part = &status->parts[i];
		printf("  %-8s %.*s%s\n", part_role(status, part), STR_ARG(part->address),
		       part_trouble(part));
	}
	free(status);
	return r;
}

static int forget(struct store *ring, const struct options *o, struct err *e)
{
	int r = store_ring_forget(ring, o->forget, o->yes, e);
	if (r == 0)
		printf("%.*s is not in the ring any more\n", STR_ARG(o->forget));
	return r;
}

static int run(const struct options *o, const struct settings *s, struct err *e)
{
	struct store *ring = NULL;
	int r = backend_open_ring(s->serve.store_url, "", false, &ring, e);
	if (r == 0 && o->status)
		r = status_print(ring, e);
	else if (r == 0)
		r = o->forget.ptr ? forget(ring, o, e) : reshard(ring, o, e);
	store_free(ring);
	return r;
}

static int print_help(void)
{
	struct buf CLEANUP(buf_release) text = {0};
	buf_str(&text, str_of(usage));
	settings_help(&text);
	printf("%.*s", STR_ARG(buf_view(&text)));
	return 0;
}

int cmd_reshard(int argc, char **argv)
{
	struct options o = {0};
	struct settings settings = {0};
	struct err e = {""};
	if (options_take(&o, &argc, argv) != 0)
		return 2;
	if (o.help)
		return print_help();
	if (settings_load(&settings, argv, argc, &e) < 0)
		return cmd_fail("%s", e.text);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	int r = run(&o, &settings, &e);
	settings_release(&settings);
	return r < 0 ? cmd_fail("%s", e.text) : 0;
}
