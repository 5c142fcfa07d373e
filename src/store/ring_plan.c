#include "store/ring_plan.h"

#include "base/buf.h"
#include "base/json_out.h"

#include <jansson.h>

static bool text_get(const json_t *object, const char *name, struct arena *arena, struct str *ret)
{
	const json_t *value = json_object_get(object, name);
	if (!json_is_string(value) || json_string_length(value) == 0)
		return false;
	*ret = arena_str(arena, str_n(json_string_value(value), json_string_length(value)));
	return ret->ptr;
}

static bool parts_get(const json_t *array, struct arena *arena, struct plan_parts *ret)
{
	size_t count = json_array_size(array);
	struct plan_part *parts = arena_zalloc(arena, (count + 1) * sizeof(*parts));
	if (!json_is_array(array) || count == 0 || count > RING_PARTS_MAX || !parts)
		return false;
	*ret = (struct plan_parts){.at = parts};
	for (size_t i = 0; i < count; i++) {
		const json_t *part = json_array_get(array, i);
		if (!text_get(part, "name", arena, &parts[i].name) ||
		    !text_get(part, "address", arena, &parts[i].address))
			return false;
		if (plan_parts_find(ret, parts[i].name) < ret->count)
			return false;
		ret->count++;
	}
	return true;
}

static bool plan_get(const json_t *root, struct arena *arena, struct ring_plan *plan)
{
	const json_t *target = json_object_get(root, "target");
	return text_get(root, "home", arena, &plan->home) &&
	       parts_get(json_object_get(root, "members"), arena, &plan->members) &&
	       (!target || parts_get(target, arena, &plan->target)) &&
	       plan_parts_find(&plan->members, plan->home) < plan->members.count &&
	       (!target || plan_parts_find(&plan->target, plan->home) < plan->target.count);
}

int ring_plan_read(struct str text, uint64_t epoch, struct arena *arena, struct ring_plan *ret)
{
	json_t *root = json_loadb(text.ptr, text.len, JSON_REJECT_DUPLICATES, NULL);
	struct ring_plan plan = {.epoch = epoch};
	bool done = plan_get(root, arena, &plan);
	json_decref(root);
	if (!done)
		return ERR_CORRUPT;
	*ret = plan;
	return 0;
}

static void parts_put(struct buf *out, const char *name, const struct plan_parts *parts)
{
	buf_printf(out, ",\"%s\":[", name);
	for (size_t i = 0; i < parts->count; i++) {
		buf_str(out, i ? STR(",{\"name\":") : STR("{\"name\":"));
		json_out_str(out, parts->at[i].name);
		buf_str(out, STR(",\"address\":"));
		json_out_str(out, parts->at[i].address);
		buf_char(out, '}');
	}
	buf_char(out, ']');
}

struct str ring_plan_write(const struct ring_plan *plan, struct arena *arena)
{
	CLEANUP(buf_release) struct buf out = {0};
	buf_str(&out, STR("{\"home\":"));
	json_out_str(&out, plan->home);
	parts_put(&out, "members", &plan->members);
	if (plan->target.count > 0)
		parts_put(&out, "target", &plan->target);
	buf_char(&out, '}');
	return out.failed ? STR_NULL : arena_str(arena, buf_view(&out));
}

size_t plan_parts_find(const struct plan_parts *parts, struct str name)
{
	size_t at = 0;
	while (at < parts->count && !str_eq(parts->at[at].name, name))
		at++;
	return at;
}

bool plan_parts_equal(const struct plan_parts *a, const struct plan_parts *b)
{
	size_t common = 0;
	for (size_t i = 0; i < a->count; i++)
		common += plan_parts_find(b, a->at[i].name) < b->count;
	return common == a->count && a->count == b->count;
}
