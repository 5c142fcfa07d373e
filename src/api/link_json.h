/* Links as the outside sees them. */
#pragma once

#include "handler/api.h"

/* A link without a user_name has been given its owner's (READ_OWNER). */
void link_json(struct buf *b, const struct api *api, const struct link_record *link);

/* The short answer of createURL. */
void link_json_created(struct buf *b, const struct api *api, const struct link_record *link);

/* Appends the short URL. */
void link_short_url(struct buf *b, const struct api *api, const struct link_record *link);
