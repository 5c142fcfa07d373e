#include "api/link_json.h"

#include "base/json_out.h"

void link_short_url(struct buf *b, const struct api *api, const struct link_record *link)
{
	buf_str(b, api->base_url);
	buf_char(b, '/');
	buf_str(b, link->key);
}

static void name_fields(struct buf *b, const struct api *api, const struct link_record *link)
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
}

void link_json_created(struct buf *b, const struct api *api, const struct link_record *link)
{
	name_fields(b, api, link);
	buf_char(b, '}');
}

void link_json(struct buf *b, const struct api *api, const struct link_record *link)
{
	name_fields(b, api, link);
	buf_str(b, STR(",\"domain\":"));
	json_out_str(b, api->domain);
	buf_str(b, STR(",\"updated_at\":"));
	json_out_time(b, link->updated_ms);
	buf_str(b, STR(",\"not_before\":"));
	json_out_time(b, link->not_before_ms);
	buf_str(b, STR(",\"expired_url\":"));
	json_out_str_or_null(b, link->expired_url);
	if (link->max_clicks > 0)
		buf_printf(b, ",\"max_clicks\":%llu", (unsigned long long)link->max_clicks);
	else
		buf_str(b, STR(",\"max_clicks\":null"));
	buf_printf(b, ",\"visibility\":\"%s\",\"has_password\":%s", link->is_private ? "private" : "public",
	           link->password.ptr ? "true" : "false");
	/* What this version has no other value for stands here too, so that the shape is the contract's. */
	buf_str(b, STR(",\"forward_query\":false,\"rules\":[]"));
	buf_printf(b, ",\"clicks\":%llu,\"redirect_status\":%u,\"enabled\":%s,\"title\":",
	           (unsigned long long)link->clicks, link->redirect_status, link->enabled ? "true" : "false");
	json_out_str_or_null(b, link->title);
	buf_str(b, STR(",\"note\":"));
	json_out_str_or_null(b, link->note);
	buf_str(b, STR(",\"tags\":"));
	buf_str(b, link->tags.len > 0 ? link->tags : STR("[]"));
	buf_str(b, STR(",\"owner\":"));
	json_out_str_or_null(b, link->user_name.len > 0 ? link->user_name
	                                                : accounts_name(api->accounts, link->owner));
	buf_char(b, '}');
}
