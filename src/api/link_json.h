/* The JSON of links. */
#pragma once

#include "handler/api.h"

/* The link has a user_name, its own or its owner's (READ_OWNER). */
void link_json(struct buf *b, const struct api *api, const struct link_record *link);

/* The short response of createURL. */
void link_json_created(struct buf *b, const struct api *api, const struct link_record *link);

/* Appends the short URL: alone, or as the member "short_url". */
void link_short_url(struct buf *b, const struct api *api, const struct link_record *link);
void link_json_short_url(struct buf *b, const struct api *api, const struct link_record *link);
