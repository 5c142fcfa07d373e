#include "event/log_private.h"
#include "event/reader.h"
#include "event/salt.h"
#include "os/file.h"

#include <stdio.h>

static void add_segment(struct findings *f, const char *path, const struct event_scan *s, bool may_grow,
                        bool has_next)
{
	unsigned long long rest = s->size - s->valid_end, at = s->valid_end;
	char counts[96];
	snprintf(counts, sizeof(counts), "%llu clicks, %llu orphan visits, %llu impressions",
	         (unsigned long long)s->counts.clicks, (unsigned long long)s->counts.orphans,
	         (unsigned long long)s->counts.impressions);
	if (!s->header_valid && s->size < EVENT_HEADER_BYTES && !has_next)
		findings_add(f, VERDICT_OK, path, "empty: the process stopped while it made this segment");
	else if (!s->header_valid)
		findings_add(f, VERDICT_BAD, path,
		             "DAMAGED at byte 0: its header is not valid; nothing in it can be read");
	else if (event_scan_is_damage(s) && s->valid_again_at != 0)
		findings_add(f, VERDICT_BAD, path,
		             "%s; DAMAGED at byte %llu: %s; valid records go on at byte %llu, but nothing "
		             "behind damage is trusted: %llu bytes are lost",
		             counts, at, event_fault_text(s->fault), (unsigned long long)s->valid_again_at,
		             rest);
	else if (event_scan_is_damage(s))
		findings_add(f, VERDICT_BAD, path, "%s; DAMAGED at byte %llu: %s; %llu bytes are lost",
		             counts, at, event_fault_text(s->fault), rest);
	else if (s->ended && rest > 0)
		findings_add(f, VERDICT_BAD, path,
		             "%s; DAMAGED at byte %llu: %llu bytes stand behind its end record", counts, at,
		             rest);
	else if (s->ended && s->count_is_wrong)
		findings_add(f, VERDICT_BAD, path,
		             "%s; DAMAGED: its end record tells another number of records", counts);
	else if (s->ended)
		findings_add(f, VERDICT_OK, path, "%s; whole%s", counts,
		             s->end_flags & EVENT_END_BY_RECOVERY ? " (closed by recovery)" : "");
	else if (has_next)
		findings_add(f, VERDICT_BAD, path,
		             "%s; DAMAGED at byte %llu: %s, and the log goes on in another segment", counts,
		             at, rest > 0 ? event_fault_text(s->fault) : "its end record is missing");
	else if (may_grow)
		findings_add(f, VERDICT_OK, path, "%s; being written", counts);
	else if (rest > 0)
		findings_add(f, VERDICT_NOTE, path,
		             "%s; torn at byte %llu: %s; the process stopped during its last write, and the "
		             "next start cuts %llu bytes off",
		             counts, at, event_fault_text(s->fault), rest);
	else
		findings_add(f, VERDICT_OK, path, "%s; not closed: the next start does it", counts);
}

/* The segment that was begun last. */
struct newest {
	uint32_t boot; /* 0: none */
	uint64_t node;
};

static int verify_segments(const char *folder, bool is_deep, bool growing, struct newest *ret_newest,
                           struct findings *f, struct err *e)
{
	struct arena CLEANUP(arena_release) arena = {0};
	uint64_t *segments;
	size_t count;
	int r = event_folder_list(folder, &arena, &segments, &count, e);
	if (r < 0)
		return r;
	uint32_t newest = count > 0 ? event_segment_boot(segments[count - 1]) : 0;
	for (size_t i = 0; i < count; i++) {
		char path[SEGMENT_PATH_BYTES];
		struct event_scan scan;
		segment_path(folder, segments[i], path);
		findings_busy(f, path);
		struct err why = {0};
		r = is_deep ? event_scan(folder, segments[i], 0, &scan, &why)
		            : event_scan_header(folder, segments[i], &scan, &why);
		if (r == ERR_NOT_FOUND && growing)
			continue;           /* it was removed meanwhile */
		if (r == ERR_UNAVAILABLE) { /* the others are looked at all the same */
			findings_add(f, VERDICT_BAD, path, "DAMAGED at byte %llu: %s",
			             (unsigned long long)scan.valid_end, why.text);
			continue;
		}
		if (r < 0)
			return err_set(e, r, "%s", why.text);
		if (scan.header_valid)
			*ret_newest = (struct newest){event_segment_boot(segments[i]), scan.node};
		bool has_next = event_segment_has_next(segments, count, i);
		if (is_deep || !scan.header_valid)
			add_segment(f, path, &scan, growing && event_segment_boot(segments[i]) == newest,
			            has_next);
	}
	if (count == 0)
		findings_add(f, VERDICT_OK, folder, "no segments");
	return 0;
}

static bool boot_is_valid(struct str text, const struct newest *newest)
{
	uint64_t node;
	uint32_t boot;
	return event_boot_parse(text, &node, &boot) && boot >= newest->boot &&
	       (boot > newest->boot || node == newest->node);
}

static bool salt_file_is_valid(struct str text, const struct newest *newest)
{
	(void)newest;
	return salt_is_valid(text);
}

/* A file of one line, if it exists. */
static void verify_line(const char *folder, const char *name, const struct newest *newest,
                        bool (*is_valid)(struct str text, const struct newest *newest), const char *effect,
                        struct findings *f)
{
	struct buf CLEANUP(buf_release) text = {0};
	char path[SEGMENT_PATH_BYTES];
	struct err e;
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	int r = file_read(path, EVENT_LINE_BYTES_MAX, &text, &e);
	if (r == ERR_NOT_FOUND)
		return;
	if (r < 0 && r != ERR_LIMIT)
		findings_add(f, VERDICT_BAD, path, "cannot be checked: %s", e.text);
	else if (r == ERR_LIMIT || !is_valid(buf_view(&text), newest))
		findings_add(f, VERDICT_BAD, path, "DAMAGED: it is not as curt writes it; remove it: %s",
		             effect);
	else
		findings_add(f, VERDICT_OK, path, "sound");
}

int event_verify(const char *folder, bool is_deep, bool growing, struct findings *f, struct err *e)
{
	struct newest newest = {0};
	int r = verify_segments(folder, is_deep, growing, &newest, f, e);
	if (r < 0)
		return r;
	verify_line(folder, "boot", &newest, boot_is_valid, "the next start creates a new one", f);
	verify_line(folder, "salt", &newest, salt_file_is_valid, "today's visitors are then counted again",
	            f);
	return 0;
}
