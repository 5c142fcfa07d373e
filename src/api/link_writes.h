/* What links.c shares with legacy_urls.c. */
#pragma once

#include "handler/jobs.h"

/* What a create says beside the fields of the link; STR_NULL: not given. */
struct link_create_input {
	struct str alias, password, owner;
};

/* A create of a link with default fields. NULL: the request has been answered. */
struct write_job *link_create_new(const struct api_call *call);

/* Validates the link of the job and the input, and submits. Replies in any case. */
void link_create_submit(struct write_job *j, const struct api_call *call, const struct link_create_input *in);

/* Deletes a link and replies; `plain` as in struct write_job. */
void link_delete_submit(const struct api_call *call, struct str key, bool plain);
