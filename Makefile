# make          build build/curt                 make run    install what is missing, build, serve
# make test     ... and run every test           make check  the fast tests only
# make test-long  what takes long by nature      tests/run FILE...  some tests (CONTRIBUTING.md)
# make bench    measure against alternatives     make fuzz   fuzz the parsers for a while
# make cluster  run a whole cluster here
# make fmt      format the sources               make lint   static checks
# make docs     write docs/cli.md, docs/configuration.md and docs/metrics.md
# make install  PREFIX=/usr/local DESTDIR=       make clean
#
# VARIANT=asan or VARIANT=tsan puts an instrumented build of the same targets under build/VARIANT/.

MAKEFLAGS += --no-builtin-rules
ifeq ($(MAKELEVEL)$(filter -j%,$(MAKEFLAGS)),0)
MAKEFLAGS += --jobs=$(shell nproc)
endif
CC = gcc
PREFIX ?= /usr/local
VARIANT ?= release
FUZZ_SECONDS ?= 60
# The rules for user agents, which become part of the binary.
UAP_RULES ?= /usr/share/uap-core/regexes.yaml

PACKAGES := sqlite3 libsodium jansson icu-uc liburcu-qsbr libcurl libpcre2-8 yaml-0.1 libmaxminddb libpq hiredis liblz4 rdkafka
VERSION := $(shell cat VERSION)
COMMIT := $(shell git describe --always --dirty --abbrev=12 --exclude '*' 2>/dev/null)

ifeq ($(VARIANT),release)
OUT := build
OPTIMIZE := -O2 -D_FORTIFY_SOURCE=2
DEBUG := -g
else ifeq ($(VARIANT),asan)
OUT := build/asan
OPTIMIZE := -O1
INSTRUMENT := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
DEBUG := -g1
else ifeq ($(VARIANT),tsan)
OUT := build/tsan
OPTIMIZE := -O1
INSTRUMENT := -fsanitize=thread -fno-omit-frame-pointer
DEBUG := -g1
else
$(error VARIANT is release, asan or tsan, not '$(VARIANT)')
endif

# On a fresh machine pkg-config is not there yet; `make run` and `make test` install it and call make again.
CPPFLAGS := -Isrc -D_GNU_SOURCE -DCURT_VERSION='"$(VERSION)"' $(shell pkg-config --cflags $(PACKAGES) 2>/dev/null)
# gcc knows it on x86 only.
CONTROL_FLOW := $(if $(findstring 86,$(shell $(CC) -dumpmachine 2>/dev/null)),-fcf-protection)
CFLAGS = -std=gnu17 $(DEBUG) -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla \
	-Wno-missing-field-initializers $(OPTIMIZE) $(INSTRUMENT) \
	-fPIE -fstack-protector-strong -fstack-clash-protection $(CONTROL_FLOW) -pthread
LDFLAGS = -pie -Wl,-z,relro,-z,now -pthread $(INSTRUMENT)
LDLIBS := $(shell pkg-config --libs $(PACKAGES) 2>/dev/null) -lzookeeper_mt -lm

SOURCES := $(sort $(wildcard src/*/*.c))
OBJECTS := $(SOURCES:src/%.c=$(OUT)/obj/%.o)
# Not in the library: a new commit changes only these, and no test is linked again.
MAIN := $(OUT)/obj/cmd/main.o $(OUT)/obj/cmd/version.o
LIBRARY := $(OUT)/libcurt.a

# The suites of a folder are one program, FOLDER/run, which runs one of them by its name (tests/support/suites.c). What
# else lies in the folder belongs to its program: doubles of other modules' functions.
TEST_FOLDERS := $(sort $(wildcard tests/unit/*)) tests/conformance
SUITES := $(patsubst %.c,$(OUT)/%.o,$(sort $(wildcard $(TEST_FOLDERS:=/*_test.c))))
DOUBLES := $(patsubst %.c,$(OUT)/%.o,$(filter-out %_test.c,$(sort $(wildcard $(TEST_FOLDERS:=/*.c)))))
TESTS := $(TEST_FOLDERS:%=$(OUT)/%/run)
SUPPORT := $(patsubst %.c,$(OUT)/%.o,$(sort $(wildcard tests/support/lib/*.c)))
# The thread sanitizer does not know the threads that librdkafka uses.
THREADS := $(if $(filter tsan,$(VARIANT)),$(OUT)/tests/support/tsan_threads.o)
TOOLS := $(OUT)/tests/support/hammer $(OUT)/tests/support/probe.so $(OUT)/tests/support/kafka_mock

.PHONY: all run cluster test test-long check bench fuzz fmt lint install clean servers-built tests-built packages-run packages-test docs
.DELETE_ON_ERROR:
.SECONDARY:

all: $(OUT)/curt

$(OUT)/curt: $(MAIN) $(THREADS) $(LIBRARY)
	@echo "  link  $@"
	@$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(LIBRARY): $(filter-out $(MAIN),$(OBJECTS))
	@rm -f $@
	@ar rcs $@ $^

$(OUT)/obj/%.o: src/%.c Makefile
	@mkdir -p $(@D)
	@echo "  cc    $<"
	@$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

# The commit that `curt version` and /metrics print; without git there is none.
STAMPED := $(OUT)/obj/cmd/version.o $(OUT)/obj/obs/process.o
$(STAMPED): CPPFLAGS += -DCURT_COMMIT='"$(COMMIT)"'
$(STAMPED): $(OUT)/commit
$(OUT)/commit: FORCE
	@mkdir -p $(@D)
	@echo '$(COMMIT)' | cmp -s - $@ || echo '$(COMMIT)' >$@
FORCE:

$(OUT)/obj/web/assets.o: $(wildcard src/web/*.json)
$(OUT)/obj/stats/uap_rules.o: CPPFLAGS += -DUAP_RULES='"$(UAP_RULES)"'
$(OUT)/obj/stats/uap_rules.o: $(UAP_RULES)

$(OUT)/tests/%.o: tests/%.c Makefile
	@mkdir -p $(@D)
	@echo "  cc    $<"
	@$(CC) $(CPPFLAGS) -Itests/support $(CFLAGS) -Wno-unused-parameter -MMD -MP -c -o $@ $<

# Tests are compiled more often than they run long.
$(OUT)/tests/unit/%.o $(OUT)/tests/conformance/%.o: OPTIMIZE := -O0
$(SUITES): CFLAGS += -Dmain=$(basename $(@F))_main -Wno-missing-prototypes

suites_of = $(filter $(OUT)/$1/%,$(SUITES))
define PROGRAM
$(OUT)/$1/run: $(OUT)/$1/suites.o $(suites_of) $(filter $(OUT)/$1/%,$(DOUBLES))
$(OUT)/$1/suites.o: CFLAGS += -D'SUITES=$(foreach suite,$(suites_of),SUITE($(basename $(notdir $(suite)))))'
$(OUT)/$1/suites.o: tests/support/suites.c $1 Makefile
endef
$(foreach folder,$(TEST_FOLDERS),$(eval $(call PROGRAM,$(folder))))

$(TEST_FOLDERS:%=$(OUT)/%/suites.o):
	@mkdir -p $(@D)
	@$(CC) $(CPPFLAGS) -Itests/support $(CFLAGS) -c -o $@ $<

$(TESTS): $(SUPPORT) $(THREADS) $(LIBRARY)
	@echo "  link  $@"
	@$(CC) $(LDFLAGS) -Wl,--wrap=pthread_create -o $@ $(filter %.o,$^) $(LIBRARY) -lcmocka $(LDLIBS)

# The load client, also the one that keeps a ledger of what was acknowledged.
$(OUT)/tests/support/hammer: tests/support/hammer.c Makefile
	@mkdir -p $(@D)
	@$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP $(LDFLAGS) -o $@ $<

# Preloaded under a real server to count the allocations and locks of its worker threads.
$(OUT)/tests/support/probe.so: tests/support/probe.c
	@mkdir -p $(@D)
	@$(CC) -std=gnu17 -O2 -g -Wall -Wextra -Werror -D_GNU_SOURCE -fPIC -shared -o $@ $< -ldl -pthread

# Where the real broker cannot be had.
$(OUT)/tests/support/kafka_mock: tests/support/kafka_mock.c
	@mkdir -p $(@D)
	@$(CC) -std=gnu17 -O2 -g -Wall -Wextra -Werror -D_GNU_SOURCE -o $@ $< -lrdkafka

-include $(OBJECTS:.o=.d) $(SUITES:.o=.d) $(DOUBLES:.o=.d) $(SUPPORT:.o=.d) $(OUT)/tests/support/hammer.d

packages-run:
	@tools/install-packages run
packages-test:
	@tools/install-packages test

run: packages-run
	@$(MAKE) --no-print-directory -s all
	@build/curt serve --data data

# Real PostgreSQL, Redis, ZooKeeper and HAProxy, and two of each of curt's services.
cluster: packages-test
	@$(MAKE) --no-print-directory -s all $(OUT)/tests/support/kafka_mock
	@tools/cluster

servers-built: $(OUT)/curt $(TOOLS)

tests-built: servers-built $(TESTS)

test: packages-test
	@tests/run all

test-long: packages-test
	@tests/run long

check: packages-test
	@tests/run fast

bench:
	@tools/install-packages bench
	@$(MAKE) --no-print-directory all $(OUT)/tests/support/hammer
	@bench/run

# These pages come from the tables that `curt help` and /metrics print.
docs: all
	@$(OUT)/curt help --settings >docs/configuration.md
	@$(OUT)/curt help --markdown >docs/cli.md
	@$(OUT)/curt help --metrics >docs/metrics.md

fuzz:
	@tests/fuzz/run $(FUZZ_SECONDS)

fmt:
	@tools/install-packages lint
	clang-format -i $(shell git ls-files '*.c' '*.h')

lint:
	@tools/install-packages lint
	@tools/lint

share := $(DESTDIR)$(PREFIX)/share
install: all
	install -D -m 0755 build/curt $(DESTDIR)$(PREFIX)/bin/curt
	build/curt help --man | install -D -m 0644 /dev/stdin $(share)/man/man1/curt.1
	build/curt help --completion bash | install -D -m 0644 /dev/stdin $(share)/bash-completion/completions/curt
	build/curt help --completion zsh | install -D -m 0644 /dev/stdin $(share)/zsh/site-functions/_curt
	build/curt help --completion fish | install -D -m 0644 /dev/stdin $(share)/fish/vendor_completions.d/curt.fish

clean:
	rm -rf build
