/* GET /{key}+: where a link goes, without going there. */
#pragma once

#include "api/api.h"

void preview_submit(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                    struct str key);
