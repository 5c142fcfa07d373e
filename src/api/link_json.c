#include "api/link_json.h"

#include "base/json_out.h"
#include "store/fields.h"

void link_short_url(struct buf *b, const struct api *api, const struct link_record *link)
{
	buf_str(b, api->base_url);
	buf_char(b, '/');
	buf_str(b, link->key);
}

static void short_url_value(struct buf *b, const struct api *api, const struct link_record *link)
{
	buf_char(b, '"'); /* neither part has a byte that JSON escapes */
	link_short_url(b, api, link);
	buf_char(b, '"');
}

void link_json_short_url(struct buf *b, const struct api *api, const struct link_record *link)
{
	json_out_name(b, "short_url");
	short_url_value(b, api, link);
}

void link_json_created(struct buf *b, const struct api *api, const struct link_record *link)
{
	buf_char(b, '{');
	json_out_name_str(b, "key", link->key);
	link_json_short_url(b, api, link);
	json_out_name_str(b, "original_url", link->url);
	json_out_name_time(b, "created_at", link->created_ms);
	json_out_name_time(b, "expires_at", link->expires_ms);
	buf_char(b, '}');
}

/* Fields that are not in the record. */
static bool own_json(struct buf *b, const struct field *f, const void *record, const void *ctx)
{
	const struct link_record *link = record;
	const struct api *api = ctx;
	struct str name = str_of(f->name);
	if (str_eq(name, STR("short_url"))) {
		short_url_value(b, api, link);
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
