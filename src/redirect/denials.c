#include "redirect/denials.h"

#include "handler/caller.h"
#include "handler/guess_limits.h"
#include "handler/html.h"
#include "handler/problem.h"
#include "handler/reply.h"

void deny_not_found(struct http_conn *c, bool as_html)
{
	const struct problem p = {.status = 404, .code = "no-such-link", .as_html = as_html};
	problem_reply_with(
	    c, &p, "There is no link at this address. Check its spelling; the link may have expired.");
}

void deny_unknown_key(struct api_worker *w, struct http_conn *c, const struct net_addr *client, bool as_html)
{
	if (guess_miss(w, c, client, as_html))
		deny_not_found(c, as_html);
}

/* The password goes into the body of a POST, and no registered scheme says so. */
static const struct http_field password_challenge = {STR("WWW-Authenticate"), STR("Password realm=\"link\"")};

static void reply_locked(struct http_conn *c, const char *code, const char *detail)
{
	const struct problem p = {
	    .status = 401, .code = code, .fields = &password_challenge, .field_count = 1};
	problem_reply_with(c, &p, "%s", detail);
}

/* A form that posts to the page's own address, which is the link. Works without scripts. */
static void password_page(struct http_conn *c, const char *text)
{
	struct buf CLEANUP(buf_release) page = {0};
	html_page_begin(&page, STR("Password required"));
	buf_printf(&page,
	           "<h1>Password required</h1><p>%s</p><form method=\"post\"><p><input type=\"password\" "
	           "name=\"password\" aria-label=\"Password\" autocomplete=\"off\" required autofocus> "
	           "<button>Follow the link</button></p></form>",
	           text);
	html_page_end(&page);
	reply_html(c, 401, &page, html_form_policy, &password_challenge);
}

void deny_wrong_password(struct http_conn *c, bool as_html)
{
	if (as_html)
		password_page(c, "The password is wrong. Try again.");
	else
		reply_locked(c, "wrong-password", "The password is wrong for this link.");
}

static void require_sign_in(struct http_conn *c, struct str key, bool as_html)
{
	const struct problem p = {
	    .status = 401, .code = "sign-in-required", .fields = &bearer_challenge, .field_count = 1};
	char next[KEY_BYTES_MAX + 2] = "/";
	if (!as_html) {
		problem_reply_with(
		    c, &p, "This link is private: sign in (POST /api/v1/session), or send an API key.");
		return;
	}
	memcpy(next + 1, key.ptr, key.len);
	reply_sign_in_page(c, 401, "This link is private. Sign in to follow it.", str_n(next, key.len + 1));
}

void deny_verdict(struct http_conn *c, enum link_verdict verdict, struct str key, bool as_html)
{
	const struct problem forbidden = {.status = 403, .code = "not-permitted", .as_html = as_html};
	if (verdict == LINK_SIGN_IN)
		require_sign_in(c, key, as_html);
	else if (verdict == LINK_LOCKED && as_html)
		password_page(c, "This link is protected by a password.");
	else if (verdict == LINK_LOCKED)
		reply_locked(c, "password-required",
		             "This link needs a password: POST {\"password\": \"...\"} to it.");
	else
		problem_reply_with(c, &forbidden,
		                   "This link is private, and you may not follow it. Ask its owner to permit "
		                   "you.");
}
