#include "client/clickhouse_url.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>

/* A part of the URL, in memory of our own; NULL when it is not there. */
static int part_get(CURLU *u, CURLUPart part, unsigned flags, char **ret, struct err *e)
{
	char *text = NULL;
	CURLUcode code = curl_url_get(u, part, &text, flags);
	*ret = NULL;
	if (code == CURLUE_OK && text && !(*ret = strdup(text)))
		code = CURLUE_OUT_OF_MEMORY;
	curl_free(text);
	if (code == CURLUE_OUT_OF_MEMORY)
		return err_set(e, ERR_NOMEM, "memory ran out");
	if (code == CURLUE_URLDECODE)
		return err_set(e, ERR_INVALID,
		               "a %% in a ClickHouse URL stands before two hexadecimal digits: write a plain "
		               "%% as %%25");
	return 0;
}

/* A header's value is one line. */
static bool is_line(const char *text)
{
	for (; text && *text; text++)
		if ((unsigned char)*text < ' ')
			return false;
	return true;
}

/* As it can be written in SQL without quotes. */
static bool is_name(const char *text)
{
	size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
	return len > 0 && len <= CLICKHOUSE_NAME_BYTES_MAX && text[len] == '\0' &&
	       !(text[0] >= '0' && text[0] <= '9');
}

static int database_get(CURLU *u, struct clickhouse_url *ret, struct err *e)
{
	CLEANUP(freep) char *path = NULL;
	int r = part_get(u, CURLUPART_PATH, 0, &path, e);
	if (r < 0)
		return r;
	const char *name = path && path[0] == '/' ? path + 1 : "";
	ret->database = strdup(name[0] ? name : "curt");
	if (!ret->database)
		return err_set(e, ERR_NOMEM, "memory ran out");
	if (!is_name(ret->database))
		return err_set(
		    e, ERR_INVALID,
		    "the database of a ClickHouse URL has letters, digits and _ only, at most %d, and "
		    "begins with no digit",
		    CLICKHOUSE_NAME_BYTES_MAX);
	return 0;
}

static int options_get(CURLU *u, struct clickhouse_url *ret, bool *ret_secure, struct err *e)
{
	CLEANUP(freep) char *query = NULL;
	int r = part_get(u, CURLUPART_QUERY, 0, &query, e);
	struct str rest = str_of(query);
	while (r == 0 && rest.ptr) {
		struct str option = str_cut(&rest, '&');
		if (str_eq(option, STR("secure=1")) || str_eq(option, STR("secure=0")))
			*ret_secure = option.ptr[option.len - 1] == '1';
		else if (str_eq(option, STR("compress=1")) || str_eq(option, STR("compress=0")))
			ret->is_packed = option.ptr[option.len - 1] == '1';
		else
			r = err_set(
			    e, ERR_INVALID,
			    "behind the ? of a ClickHouse URL stand secure=1, compress=0, or both with "
			    "a & between them");
	}
	return r;
}

static int parts_get(CURLU *u, struct clickhouse_url *ret, struct err *e)
{
	CLEANUP(freep) char *host = NULL;
	CLEANUP(freep) char *port = NULL;
	bool secure = false;
	ret->is_packed = true;
	int r = options_get(u, ret, &secure, e)
	        ?: part_get(u, CURLUPART_HOST, 0, &host, e)
	        ?: part_get(u, CURLUPART_PORT, 0, &port, e)
	        ?: part_get(u, CURLUPART_USER, CURLU_URLDECODE, &ret->user, e)
	        ?: part_get(u, CURLUPART_PASSWORD, CURLU_URLDECODE, &ret->password, e);
	if (r < 0)
		return r;
	if (!host || !host[0])
		return err_set(e, ERR_INVALID, "a ClickHouse URL names a host: clickhouse://HOST:%d/DATABASE",
		               CLICKHOUSE_PORT);
	if (!is_line(ret->user) || !is_line(ret->password))
		return err_set(e, ERR_INVALID,
		               "the user or password of a ClickHouse URL has a control character in it");
	if (asprintf(&ret->address, "%s:%s", host, port ? port : "8123") < 0)
		ret->address = NULL;
	if (!ret->address ||
	    asprintf(&ret->endpoint, "%s://%s/", secure ? "https" : "http", ret->address) < 0) {
		ret->endpoint = NULL;
		return err_set(e, ERR_NOMEM, "memory ran out");
	}
	return database_get(u, ret, e);
}

int clickhouse_url_parse(struct str url, struct clickhouse_url *ret, struct err *e)
{
	CLEANUP(freep) char *text = strndup(url.ptr, url.len);
	CURLU *u = curl_url();
	struct clickhouse_url parts = {0};
	int r = text && u ? 0 : err_set(e, ERR_NOMEM, "memory ran out");
	if (r == 0 && (!str_starts(url, STR("clickhouse://")) ||
	               curl_url_set(u, CURLUPART_URL, text, CURLU_NON_SUPPORT_SCHEME) != CURLUE_OK))
		r = err_set(
		    e, ERR_INVALID,
		    "a ClickHouse URL is written clickhouse://USER:PASSWORD@HOST:%d/DATABASE, with @, / and "
		    ": in a password as %%40, %%2F and %%3A",
		    CLICKHOUSE_PORT);
	if (r == 0)
		r = parts_get(u, &parts, e);
	curl_url_cleanup(u);
	if (text)
		explicit_bzero(text, url.len);
	if (r < 0)
		clickhouse_url_release(&parts);
	else
		*ret = parts;
	return r;
}

void clickhouse_url_release(struct clickhouse_url *u)
{
	free(u->endpoint);
	free(u->address);
	free(u->database);
	free(u->user);
	if (u->password)
		explicit_bzero(u->password, strlen(u->password));
	free(u->password);
}
