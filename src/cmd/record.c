#include "cmd/record.h"

#include "cmd/ask.h"
#include "cmd/command.h"

enum { HELP_INDENT = 21 };

/* The second of two flags; NULL: the option is one. */
static const char *other_flag(const struct field *f)
{
	const char *bar = strchr(f->option, '|');
	return bar ? bar + 1 : NULL;
}

size_t record_options_add(struct record_options *r, struct arg_option *to)
{
	size_t n = 0;
	for (size_t i = 0; i < r->fields->count; i++) {
		const struct field *f = &r->fields->rows[i];
		if (!f->option)
			continue;
		if (f->type == FIELD_TAGS) {
			to[n++] = (struct arg_option){.name = f->option, .repeat = r->words};
		} else if (strchr(f->option, ' ')) {
			to[n++] = (struct arg_option){.name = f->option, .value = &r->values[i].text};
		} else {
			to[n++] = (struct arg_option){.name = f->option, .flag = &r->values[i].on[0]};
			if (other_flag(f))
				to[n++] = (struct arg_option){.name = other_flag(f),
				                              .flag = &r->values[i].on[1]};
		}
	}
	return n;
}

void record_options_help(const struct fields *s, FILE *to)
{
	for (const struct field *f = s->rows; f < s->rows + s->count; f++) {
		if (!f->option)
			continue;
		const char *other = other_flag(f);
		int at = other ? fprintf(to, "  %.*s, %s", (int)args_option_len(f->option), f->option, other)
		               : fprintf(to, "  %s", f->option);
		if (at >= HELP_INDENT)
			at = fprintf(to, "\n") - 1;
		fprintf(to, "%*s%s", HELP_INDENT - at, "", f->help ? f->help : f->name);
		if (f->none)
			fprintf(to, "; %s is %s", f->none, f->null);
		fputs(f->type == FIELD_TAGS     ? "; may be repeated\n"
		      : f->type == FIELD_SECRET ? "; asked for, or a line of the standard input\n"
		                                : "\n",
		      to);
	}
}

static bool is_number(const struct field *f, const char *text)
{
	uint64_t n;
	if (f->none && strcmp(text, f->none) == 0)
		return true;
	if (f->words)
		return field_value(f, str_of(text), &n);
	return str_u64(str_of(text), &n) && n <= INT64_MAX;
}

int record_prepare(const struct args *a)
{
	const struct record_options *r = a->ctx;
	bool wants_secret = false;
	struct err e;
	for (size_t i = 0; i < r->fields->count; i++) {
		const struct field *f = &r->fields->rows[i];
		const char *text = r->values[i].text;
		if (r->values[i].on[0] && r->values[i].on[1])
			return cmd_fail("%s and %.*s contradict each other; give one", other_flag(f),
			                (int)args_option_len(f->option), f->option);
		wants_secret |= f->type == FIELD_SECRET && r->values[i].on[1];
		if (!text || (f->type != FIELD_NUMBER && f->type != FIELD_SECONDS) || is_number(f, text))
			continue;
		struct buf CLEANUP(buf_release) takes = {0};
		if (f->words)
			field_words_list(&takes, f);
		else
			buf_printf(&takes, f->none ? "whole numbers or %s" : "whole numbers", f->none);
		return cmd_fail("%.*s takes %.*s, not '%s'", (int)args_option_len(f->option), f->option,
		                STR_ARG(buf_view(&takes)), text);
	}
	return wants_secret && secret_read(r->secret, r->secret_prompt, &e) < 0 ? cmd_fail("%s", e.text) : 0;
}

/* False: a text is not UTF-8. */
static bool set_words(json_t *body, const char *name, const char *const *words)
{
	json_t *array = json_array();
	bool fine = true;
	for (size_t i = 0; words[i]; i++)
		fine &= json_array_append_new(array, json_string(words[i])) == 0;
	return json_object_set_new(body, name, array) == 0 && fine;
}

/* "read,create" as an array. */
static bool set_list(json_t *body, const char *name, const char *text)
{
	json_t *array = json_array();
	bool fine = true;
	for (struct str rest = str_of(text); fine && rest.ptr;) {
		struct str word = str_trim(str_cut(&rest, ','));
		fine = json_array_append_new(array, json_stringn(word.ptr, word.len)) == 0;
	}
	return json_object_set_new(body, name, array) == 0 && fine;
}

static bool set_flag(json_t *body, const struct field *f, bool on, const struct secret *secret)
{
	json_t *value = json_true(); /* of a flag that is alone */
	if (f->type == FIELD_SECRET && on)
		return ask_set_secret(body, f->name, secret);
	if (f->type == FIELD_SECRET)
		value = json_null();
	else if (f->type == FIELD_ENUM)
		value = json_string(f->words[on]);
	else if (f->type == FIELD_BOOL)
		value = json_boolean(on);
	return json_object_set_new(body, f->name, value) == 0;
}

int record_not_utf8(json_t *body)
{
	json_decref(body);
	return cmd_fail("an argument or the password is not UTF-8 text; check the terminal's encoding");
}

json_t *record_body(const struct record_options *r, const char *field, const char *word)
{
	json_t *body = json_object();
	bool fine = true;
	for (size_t i = 0; i < r->fields->count; i++) {
		const struct field *f = &r->fields->rows[i];
		const char *text = field && f->name && strcmp(f->name, field) == 0 ? word : r->values[i].text;
		if (f->type == FIELD_TAGS && f->option && r->words[0])
			fine &= set_words(body, f->name, r->words);
		else if (r->values[i].on[0] || r->values[i].on[1])
			fine &= set_flag(body, f, r->values[i].on[1], r->secret);
		else if (text && f->none && strcmp(text, f->none) == 0)
			json_object_set_new(body, f->name, json_null());
		else if (text && f->type == FIELD_SET)
			fine &= set_list(body, f->name, text);
		else if (text && (f->type == FIELD_NUMBER || f->type == FIELD_SECONDS))
			ask_set_number(body, f->name, text);
		else
			fine &= ask_set_text(body, f->name, text);
	}
	if (r->secret)
		secret_wipe(r->secret);
	if (fine)
		return body;
	record_not_utf8(body);
	return NULL;
}
