/* What a server says, in the words of the command line: its fields and parameters are options here. */
#pragma once

#include "base/buf.h"
#include "cmd/command.h"

/* Appends the `detail` of an error to a call that the command has made. */
void wording_put(struct buf *out, const struct command *c, struct str detail);
