#include "api/link_json.h"

#include "base/json_out.h"
#include "store/fields.h"

void link_short_url(struct buf *b, const struct api *api, const struct link_record *link)
{
	buf_str(b, api->base_url);
	buf_char(b, '/');
	buf_str(b, link->key);
}

void link_json_created(struct buf *b, const struct api *api, const struct link_record *link)
{
	buf_str(b, STR("{\"key\":"));
	json_out_str(b, link->key);
	buf_str(b, STR(",\"short_url\":\"")); /* neither part has a byte that JSON escapes */
	link_short_url(b, api, link);
	buf_str(b, STR("\",\"original_url\":"));
	json_out_str(b, link->url);
	buf_str(b, STR(",\"created_at\":"));
	json_out_time(b, link->created_ms);
	buf_str(b, STR(",\"expires_at\":"));
	json_out_time(b, link->expires_ms);
	buf_char(b, '}');
}

/* Fields that are not in the record. */
static bool own_json(struct buf *b, const struct field *f, const void *record, const void *ctx)
{
	const struct link_record *link = record;
	const struct api *api = ctx;
	struct str name = str_of(f->name);
	if (str_eq(name, STR("short_url"))) {
		buf_char(b, '"');
		link_short_url(b, api, link);
		buf_char(b, '"');
	} else if (str_eq(name, STR("domain"))) {
		json_out_str(b, api->domain);
	} else if (str_eq(name, STR("owner"))) {
		json_out_str_or_null(b, link->user_name.len > 0 ? link->user_name : STR_NULL);
	} else { /* reserved for later versions: always false, or an empty list */
		buf_str(b, str_eq(name, STR("rules")) ? STR("[]") : STR("false"));
	}
	return true;
}

void link_json(struct buf *b, const struct api *api, const struct link_record *link)
{
	buf_char(b, '{');
	fields_json(b, &link_fields, link, own_json, api);
	buf_char(b, '}');
}
