#include "api/stats_params.h"

#include "base/rfc3339.h"
#include "base/utf8.h"
#include "handler/query_params.h"

#define MINUTE_MS 60000LL
#define HOUR_MS   (60 * MINUTE_MS)
#define DAY_MS    (24 * HOUR_MS)

static const char *const step_names[] = {"minute", "hour", "day", "week", "month"};
static const char *const bots_names[] = {"include", "exclude", "only"};

const char *stats_step_name(enum stats_step s)
{
	return step_names[s];
}

/* The query with spaces for '+', as forms send it. Times are read without this: +02:00 is an offset. */
static int form_text(struct str query, struct arena *arena, struct str *ret)
{
	char *text = arena_alloc(arena, query.len + 1);
	if (!text)
		return ERR_NOMEM;
	for (size_t i = 0; i < query.len; i++)
		text[i] = query.ptr[i] == '+' ? ' ' : query.ptr[i];
	*ret = str_n(text, query.len);
	return 0;
}

static int time_param(struct str query, const char *name, struct arena *arena, int64_t otherwise_ms,
                      int64_t *ret_ms, struct err *e)
{
	struct str text;
	int r = query_param_text(query, name, arena, &text, e);
	if (r < 0)
		return r;
	if (!text.ptr) {
		*ret_ms = otherwise_ms;
		return 0;
	}
	if (!time_parse(text, ret_ms))
		return err_set(e, ERR_INVALID, "The parameter '%s' is not a time; " TIME_HINT ".", name);
	return 0;
}

int stats_range_read(struct str query, int64_t now_ms, struct arena *arena, int64_t *ret_from_ms,
                     int64_t *ret_to_ms, struct err *e)
{
	int r = time_param(query, "to", arena, now_ms + 1, ret_to_ms, e);
	if (r == 0)
		r = time_param(query, "from", arena, MAX(*ret_to_ms - 30 * DAY_MS, 0), ret_from_ms, e);
	if (r == 0 && *ret_from_ms >= *ret_to_ms)
		r = err_set(e, ERR_INVALID, "The parameter 'from' must be earlier than the parameter 'to'.");
	return r;
}

static int find_name(struct str name, const char *const *names, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (str_eq(name, str_of(names[i])))
			return (int)i;
	}
	return -1;
}

static int by_param(struct stats_query *q, struct str list, bool *ret_step_given, struct err *e)
{
	struct echo shown;
	q->dims_wanted = 0;
	q->series_wanted = false;
	while (list.ptr) {
		struct str item = str_trim(str_cut(&list, ','));
		int step = find_name(item, step_names, ARRAY_LEN(step_names));
		int dim = find_name(item, visit_dim_names, DIM_COUNT);
		if (step >= 0 && *ret_step_given) {
			return err_set(e, ERR_INVALID,
			               "The parameter 'by' has the steps %s and %s; it takes one.",
			               step_names[q->step], step_names[step]);
		} else if (step >= 0) {
			q->step = (enum stats_step)step;
			q->series_wanted = true;
			*ret_step_given = true;
		} else if (dim >= 0) {
			q->dims_wanted |= 1U << dim;
		} else {
			return err_set(
			    e, ERR_INVALID,
			    "The parameter 'by' has the unknown value '%s'; use minute, hour, day, "
			    "week, month, referrer, country, browser, os, device, language, source or "
			    "bot, separated by commas.",
			    echo(&shown, item));
		}
	}
	return 0;
}

static int filters_read(struct str query, struct stats_query *q, struct err *e)
{
	struct str form;
	int r = form_text(query, q->arena, &form);
	if (r < 0)
		return r;
	for (unsigned dim = 0; dim < DIM_COUNT; dim++) {
		struct str value;
		r = query_param_text(form, visit_dim_names[dim], q->arena, &value, e);
		if (r < 0)
			return r;
		if (!value.ptr)
			continue;
		q->filtered |= 1U << dim;
		q->filter[dim] = value.len > 0 ? value : STR_NULL;
	}
	return 0;
}

int stats_params_read(struct str query, int64_t now_ms, struct stats_query *q, struct err *e)
{
	struct str by = STR_NULL, bots = STR_NULL, limit = STR_NULL;
	struct echo shown;
	bool step_given = false;
	uint64_t shares = SHARES_DEFAULT;
	q->series_wanted = true;
	q->dims_wanted = (1U << DIM_COUNT) - 1;
	int r = stats_range_read(query, now_ms, q->arena, &q->from_ms, &q->to_ms, e);
	if (r == 0)
		r = query_param_text(query, "by", q->arena, &by, e);
	if (r == 0 && by.ptr)
		r = by_param(q, by, &step_given, e);
	if (r == 0)
		r = query_param_text(query, "bots", q->arena, &bots, e);
	if (r == 0)
		r = query_param_text(query, "limit", q->arena, &limit, e);
	if (r == 0)
		r = filters_read(query, q, e);
	if (r < 0)
		return r;
	int64_t range_ms = q->to_ms - q->from_ms;
	if (!step_given)
		q->step = range_ms <= 6 * HOUR_MS     ? STEP_MINUTE
		          : range_ms <= 8 * DAY_MS    ? STEP_HOUR
		          : range_ms <= 3660 * DAY_MS ? STEP_DAY
		                                      : STEP_MONTH;
	if (bots.ptr) {
		int found = find_name(bots, bots_names, ARRAY_LEN(bots_names));
		if (found < 0)
			return err_set(e, ERR_INVALID,
			               "The parameter 'bots' is '%s'; it must be include, exclude or only.",
			               echo(&shown, bots));
		q->bots = (enum stats_bots)found;
	}
	if (limit.ptr && (!str_u64(limit, &shares) || shares < 1 || shares > SHARES_MAX))
		return err_set(e, ERR_INVALID,
		               "The parameter 'limit' is '%s'; it must be a number from 1 to %d.",
		               echo(&shown, limit), SHARES_MAX);
	q->shares_max = shares;
	return 0;
}
