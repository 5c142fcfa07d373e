#include "cmd/record.h"

#include "cmd/ask.h"

/* Of two flags, "--off|--on": was this one given? */
static bool flag_given(const struct args *a, const struct field *f, bool on)
{
	const char *bar = strchr(f->option, '|');
	return on ? bar && args_has(a, bar + 1) : args_has(a, f->option);
}

/* "3.0" is 3, and people write it. */
static int refuse_number(const struct field *f, const char *text)
{
	struct buf CLEANUP(buf_release) takes = {0};
	size_t digits = strspn(text, "0123456789");
	const char *rest = text + digits;
	bool is_whole = digits > 0 && rest[0] == '.' && rest[1 + strspn(rest + 1, "0")] == '\0';
	buf_str(&takes, STR("a whole number"));
	if (f->min > 0 || f->max > 0)
		buf_printf(&takes, " from %ju to %ju", (uintmax_t)f->min,
		           (uintmax_t)(f->max ? f->max : INT64_MAX));
	if (f->none)
		buf_printf(&takes, " or %s", f->none);
	if (is_whole)
		return cmd_usage("%.*s takes %.*s; write %.*s, not %s", (int)option_len(f->option), f->option,
		                 STR_ARG(buf_view(&takes)), (int)digits, text, text);
	return cmd_usage("%.*s takes %.*s, not '%s'", (int)option_len(f->option), f->option,
	                 STR_ARG(buf_view(&takes)), text);
}

static int check_number(const struct field *f, const char *text)
{
	uint64_t n;
	bool is_right = str_u64(str_of(text), &n) && n >= f->min && n <= (f->max ? f->max : INT64_MAX);
	return is_right || (f->none && strcmp(text, f->none) == 0) ? 0 : refuse_number(f, text);
}

/* The form of a value; other rules are the server's. */
static int check_value(const struct field *f, const char *text)
{
	const struct str option = str_n(f->option, option_len(f->option));
	int r = 0;
	switch (f->type) {
	case FIELD_NUMBER:
	case FIELD_SECONDS:
		return f->words ? cmd_check_word(option, str_of(text), f->words) : check_number(f, text);
	case FIELD_ENUM: return cmd_check_word(option, str_of(text), f->words);
	case FIELD_SET:
		for (struct str rest = str_of(text); r == 0 && rest.ptr;)
			r = cmd_check_word(option, str_trim(str_cut(&rest, ',')), f->words);
		return r;
	default: return 0;
	}
}

int record_prepare(struct args *a)
{
	bool wants_secret = false, is_any_given = false;
	struct err e;
	for (size_t i = 0; i < a->command->fields->count; i++) {
		const struct field *f = &a->command->fields->rows[i];
		if (!f->option)
			continue;
		if (flag_given(a, f, false) && flag_given(a, f, true))
			return cmd_usage("%s and %.*s exclude each other; give one of them",
			                 strchr(f->option, '|') + 1, (int)option_len(f->option), f->option);
		const char *text = args_value(a, f->option);
		wants_secret |= f->type == FIELD_SECRET && flag_given(a, f, true);
		is_any_given |= flag_given(a, f, false) || flag_given(a, f, true);
		int r = text ? check_value(f, text) : 0;
		if (r != 0)
			return r;
	}
	if (!is_any_given && a->command->field_flag == FIELD_PATCH)
		return cmd_usage("no option says what to change; see 'curt help %s'", a->command->name);
	return wants_secret && secret_read(&a->secret, "password of the link", &e) < 0
	           ? cmd_fail("%s", e.text)
	           : 0;
}

/* All --tag options; a single empty one means no tags. False when one is not UTF-8. */
static bool set_words(json_t *body, const struct field *f, const struct args *a)
{
	json_t *array = json_array();
	bool fine = true;
	for (size_t i = 0; i < a->given_count; i++) {
		if (str_eq(a->given[i].name, str_n(f->option, option_len(f->option))))
			fine &= json_array_append_new(array, json_string(a->given[i].value)) == 0;
	}
	if (json_array_size(array) == 1 && json_string_length(json_array_get(array, 0)) == 0)
		json_array_clear(array);
	return json_object_set_new(body, f->name, array) == 0 && fine;
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
	json_t *value = json_true(); /* of a single flag */
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
	return cmd_fail("an argument or the password is not UTF-8; check the encoding of the terminal");
}

static bool set_field(json_t *body, const struct field *f, const char *text, const struct args *a)
{
	if (f->option && (flag_given(a, f, false) || flag_given(a, f, true)) && !text)
		return set_flag(body, f, flag_given(a, f, true), &a->secret);
	if (!text)
		return true;
	if (f->type == FIELD_TAGS)
		return set_words(body, f, a);
	bool is_none = f->none ? strcmp(text, f->none) == 0 : field_takes_empty(f) && !text[0];
	if (is_none)
		return json_object_set_new(body, f->name, json_null()) == 0;
	if (f->type == FIELD_SET)
		return set_list(body, f->name, text);
	if (f->type == FIELD_NUMBER || f->type == FIELD_SECONDS)
		return ask_set_number(body, f->name, text);
	return ask_set_text(body, f->name, text);
}

json_t *record_body(struct args *a)
{
	const struct command *c = a->command;
	json_t *body = json_object();
	bool fine = true;
	for (size_t i = 0; i < c->fields->count; i++) {
		const struct field *f = &c->fields->rows[i];
		bool is_argument = c->argument_field && f->name && strcmp(f->name, c->argument_field) == 0;
		if (is_argument)
			fine &= ask_set_text(body, f->name, a->words[0]);
		else if (f->option)
			fine &= set_field(body, f, args_value(a, f->option), a);
	}
	if (fine)
		return body;
	record_not_utf8(body);
	return NULL;
}

int record_create(struct client *c, struct args *a, const char *path, const char *member)
{
	json_t *body = record_body(a), *made;
	if (!body)
		return EXIT_FAILED;
	int r = ask(c, "POST", path, body, args_has(a, "--json"), &made);
	if (made)
		printf("%s\n", ask_text(made, member));
	json_decref(made);
	return r;
}
