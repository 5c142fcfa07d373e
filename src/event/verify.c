#include "event/log_private.h"
#include "event/reader.h"

/* True when the segment is damaged. */
static bool report_segment(struct buf *report, const char *path, const struct event_scan *s, bool may_grow,
                           bool has_next)
{
	uint64_t rest = s->size - s->valid_end;
	buf_printf(report, "%s: ", path);
	if (!s->header_valid) {
		if (s->size < EVENT_HEADER_BYTES && !has_next) {
			buf_printf(report, "empty: the process stopped while it made this segment\n");
			return false;
		}
		buf_printf(report, "DAMAGED at byte 0: its header is not valid; nothing in it can be read\n");
		return true;
	}
	buf_printf(report, "%llu clicks, %llu orphan visits, %llu impressions",
	           (unsigned long long)s->counts.clicks, (unsigned long long)s->counts.orphans,
	           (unsigned long long)s->counts.impressions);
	if (event_scan_is_damage(s)) {
		buf_printf(report, "; DAMAGED at byte %llu: %s; ", (unsigned long long)s->valid_end,
		           event_fault_text(s->fault));
		if (s->valid_again_at != 0)
			buf_printf(report,
			           "valid records go on at byte %llu, but nothing behind damage is trusted: ",
			           (unsigned long long)s->valid_again_at);
		buf_printf(report, "%llu bytes are lost\n", (unsigned long long)rest);
		return true;
	}
	if (s->ended && (rest > 0 || s->count_is_wrong)) {
		if (rest > 0)
			buf_printf(report, "; DAMAGED at byte %llu: %llu bytes stand behind its end record\n",
			           (unsigned long long)s->valid_end, (unsigned long long)rest);
		else
			buf_printf(report, "; DAMAGED: its end record tells another number of records\n");
		return true;
	}
	if (s->ended) {
		buf_printf(report, "; whole%s\n",
		           s->end_flags & EVENT_END_BY_RECOVERY ? " (closed by recovery)" : "");
		return false;
	}
	if (has_next) {
		buf_printf(report, "; DAMAGED at byte %llu: %s, and the log goes on in another segment\n",
		           (unsigned long long)s->valid_end,
		           rest > 0 ? event_fault_text(s->fault) : "its end record is missing");
		return true;
	}
	if (may_grow)
		buf_printf(report, "; being written\n");
	else if (rest > 0)
		buf_printf(report,
		           "; torn at byte %llu: %s; the process stopped during its last write, and the next "
		           "start cuts %llu bytes off\n",
		           (unsigned long long)s->valid_end, event_fault_text(s->fault),
		           (unsigned long long)rest);
	else
		buf_printf(report, "; not closed: the next start does it\n");
	return false;
}

int event_verify(const char *folder, bool growing, struct buf *report, struct err *e)
{
	struct arena CLEANUP(arena_release) arena = {0};
	uint64_t *segments;
	size_t count;
	int damaged = 0;
	int r = event_folder_list(folder, &arena, &segments, &count, e);
	if (r < 0)
		return r;
	uint32_t newest = count > 0 ? event_segment_boot(segments[count - 1]) : 0;
	for (size_t i = 0; i < count; i++) {
		char path[SEGMENT_PATH_BYTES];
		struct event_scan scan;
		segment_path(folder, segments[i], path);
		r = event_scan(folder, segments[i], 0, &scan, e);
		if (r == ERR_NOT_FOUND && growing)
			continue;           /* it was removed meanwhile */
		if (r == ERR_UNAVAILABLE) { /* the others are looked at all the same */
			buf_printf(report, "%s: DAMAGED at byte %llu: %s\n", path,
			           (unsigned long long)scan.valid_end, e->text);
			damaged++;
			continue;
		}
		if (r < 0)
			return r;
		bool may_grow = growing && event_segment_boot(segments[i]) == newest;
		damaged += report_segment(report, path, &scan, may_grow,
		                          event_segment_has_next(segments, count, i));
	}
	return damaged;
}
