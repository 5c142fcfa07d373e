#include "cmd/client.h"

#include "base/utf8.h"
#include "os/clock.h"

#include <curl/curl.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

enum { BUSY_WAIT_MS = 5000, BUSY_LOOK_MS = 30, LOOK_SECONDS = 2, CALL_SECONDS = 60 };

static size_t take_bytes(char *data, size_t size, size_t count, void *to)
{
	buf_append(to, data, size * count);
	return size * count;
}

int client_call(struct client *c, const char *method, const char *path, struct str body, struct buf *response,
                int *ret_status, struct err *e)
{
	struct buf CLEANUP(buf_release) url = {0}, authorization = {0};
	buf_printf(&url, "%s%s", c->url, path);
	buf_char(&url, '\0');
	buf_printf(&authorization, "Authorization: Bearer %s", c->key ? c->key : "");
	buf_char(&authorization, '\0');
	CURL *curl = curl_easy_init();
	if (!curl || url.failed || authorization.failed) {
		curl_easy_cleanup(curl);
		return err_set(e, ERR_NOMEM, "out of memory");
	}
	struct curl_slist *headers = c->key ? curl_slist_append(NULL, authorization.data) : NULL;
	if (body.ptr)
		headers = curl_slist_append(headers, "Content-Type: application/json");
	curl_easy_setopt(curl, CURLOPT_URL, url.data);
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L); /* an argument in the path may be ".." */
	curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_bytes);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, response);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)c->call_seconds);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_FORBID_REUSE, 1L);
	curl_easy_setopt(curl, CURLOPT_PROXY, ""); /* none: the server is often this machine */
	if (body.ptr) {
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body.ptr);
		curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)body.len);
	}
	CURLcode code = curl_easy_perform(curl);
	long status = 0;
	char *elsewhere = NULL;
	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_getinfo(curl, CURLINFO_REDIRECT_URL,
	                  &elsewhere); /* not followed: it would get the API key */
	*ret_status = (int)status;
	int r = 0;
	if (code != CURLE_OK)
		r = err_set(e, ERR_UNAVAILABLE, "cannot reach %s: %s", c->url, curl_easy_strerror(code));
	else if (elsewhere)
		r = err_set(e, ERR_UNAVAILABLE, "%s redirects to %.200s; name the right server with --server",
		            c->url, elsewhere);
	else if (response->failed)
		r = err_set(e, ERR_NOMEM, "out of memory");
	curl_slist_free_all(headers);
	curl_easy_cleanup(curl);
	return r;
}

static const char *remote_url(const struct args *a)
{
	const char *option = args_value(a, "--server"), *variable = getenv("CURT_URL");
	if (option)
		return option;
	return variable && variable[0] ? variable : NULL;
}

bool client_is_remote(const struct args *a)
{
	return remote_url(a) != NULL;
}

static bool url_has(CURLU *u, CURLUPart part)
{
	char *text = NULL;
	curl_url_get(u, part, &text, 0);
	curl_free(text);
	return text != NULL;
}

/* libcurl knows more schemes. The message does not quote a URL with a password. */
static int check_url(const char *name, const char *url, struct err *e)
{
	CURLU *u = curl_url();
	char *scheme = NULL;
	bool is_url = u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
	              curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
	              (strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0) &&
	              !url_has(u, CURLUPART_QUERY) && !url_has(u, CURLUPART_FRAGMENT) &&
	              strlen(url) < sizeof(((struct client *)0)->url);
	bool has_user = is_url && (url_has(u, CURLUPART_USER) || url_has(u, CURLUPART_PASSWORD));
	curl_free(scheme);
	curl_url_cleanup(u);
	if (has_user)
		return err_set(e, ERR_INVALID,
		               "%s takes no user and no password in the address; give the API key with "
		               "--api-key or CURT_API_KEY",
		               name);
	struct str shown = strchr(url, '@') ? str_n(url, strcspn(url, ":")) : str_of(url);
	if (!is_url)
		return err_set(e, ERR_INVALID,
		               "%s takes the http:// or https:// address of a server, such as "
		               "https://s.example, not '%.*s'",
		               name, STR_ARG(utf8_prefix(shown, 100)));
	return 0;
}

int client_check(const struct args *a, struct err *e)
{
	const char *url = remote_url(a);
	if (url)
		return check_url(args_has(a, "--server") ? "--server" : "CURT_URL", url, e);
	if (args_has(a, "--api-key"))
		return err_set(
		    e, ERR_INVALID,
		    "--api-key needs --server URL or CURT_URL: on the data folder, commands need no "
		    "key; leave it out");
	return 0;
}

static void use_remote(struct client *c, const char *url, const char *key)
{
	snprintf(c->url, sizeof(c->url), "%s", url);
	size_t len = strlen(c->url);
	if (len > 0 && c->url[len - 1] == '/')
		c->url[len - 1] = '\0';
	c->key = key ? strdup(key) : NULL;
}

/* Does the server know our token? By now another process may have its port. */
static bool answers(struct client *c)
{
	struct buf CLEANUP(buf_release) response = {0};
	int status = 0;
	c->call_seconds = LOOK_SECONDS;
	int r = client_call(c, "GET", "/api/v1/links?limit=1", STR_NULL, &response, &status, NULL);
	c->call_seconds = CALL_SECONDS;
	return r == 0 && status == 200;
}

/* The holder of the folder is a server that can be asked, or another command that will soon end. */
static int use_holder(struct client *c, const char *data)
{
	struct folder_server server;
	if (folder_find_server(data, &server, NULL) < 0)
		return ERR_BUSY;
	use_remote(c, server.url, server.token);
	if (answers(c))
		return 0;
	free(steal(c->key));
	return ERR_BUSY;
}

/* 0: the folder is ours now. 1: its holder answers, and `c` is set to ask it. */
static int use_folder(struct client *c, struct server *own, struct err *e)
{
	int64_t until_ms = clock_mono_ms() + BUSY_WAIT_MS;
	for (;;) {
		int r = folder_open(&own->folder, own->settings.data, false, e);
		if (r != ERR_BUSY)
			return r;
		if (use_holder(c, own->settings.data) == 0)
			return 1;
		if (clock_mono_ms() >= until_ms)
			return err_set(e, ERR_UNAVAILABLE,
			               "the data folder %s is in use by a process that does not answer; wait "
			               "for it, or end it ('fuser %s/curt.lock' prints its pid)",
			               own->settings.data, own->settings.data);
		nanosleep(&(struct timespec){.tv_nsec = BUSY_LOOK_MS * 1000000L}, NULL);
	}
}

int client_open(struct client *c, const struct args *a, struct err *e)
{
	*c = (struct client){.call_seconds = CALL_SECONDS, .command = a->command};
	curl_global_init(CURL_GLOBAL_DEFAULT);
	if (client_is_remote(a)) {
		const char *key = args_value(a, "--api-key");
		use_remote(c, remote_url(a), key ? key : getenv("CURT_API_KEY"));
		return 0;
	}
	struct server *own = calloc(1, sizeof(*own));
	if (!own)
		return err_set(e, ERR_NOMEM, "out of memory");
	own->is_private = true;
	own->folder.lock_fd = -1;
	int r = settings_load(&own->settings, a->settings, a->setting_count, e);
	if (r < 0) {
		free(own);
		return r;
	}
	r = use_folder(c, own, e);
	if (r == 0 && own->folder.path) {
		signal(SIGPIPE, SIG_IGN);
		r = server_start(own, e);
		if (r == 0) {
			use_remote(c, own->local.url, own->local.token);
			c->own = own;
			return 0;
		}
		server_stop(own);
	}
	settings_release(&own->settings);
	free(own);
	return MIN(r, 0);
}

void client_close(struct client *c)
{
	if (c->own) {
		server_stop(c->own);
		settings_release(&c->own->settings);
		free(c->own);
	}
	free(c->key);
	*c = (struct client){0};
	curl_global_cleanup();
}
