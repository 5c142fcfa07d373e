/* The subcommands. Each gets what stands behind its name and returns the exit status. */
#pragma once

int cmd_serve(int argc, char **argv);
int cmd_link(int argc, char **argv);
int cmd_user(int argc, char **argv);
int cmd_key(int argc, char **argv);
int cmd_sweep(int argc, char **argv);
int cmd_worker(int argc, char **argv);
int cmd_keygen(int argc, char **argv);
int cmd_keysync(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_stats(int argc, char **argv);
int cmd_reshard(int argc, char **argv);
int cmd_verify(int argc, char **argv);
int cmd_version(int argc, char **argv);

/* Prints "curt: …" on standard error and returns the exit status for a failure. */
int cmd_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
