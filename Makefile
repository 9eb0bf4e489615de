# Every target does its own set-up; a compiler, make, git, and Python 3.10 or newer (with venv and headers) must be there.
#
#   make demo      the two examples          make test      C tests and Python tests
#   make build     library and extension     make lint      formats and static checks
#   make format    lays out C and Python sources as lint wants them
#   make asan      tests under AddressSanitizer (with leak checks for the C tests)
#   make ubsan     tests under UndefinedBehaviorSanitizer
#   make tsan      C tests under ThreadSanitizer, and Python tests of threads
#   make valgrind  C tests under valgrind
#   make aarch64   C tests compiled for AArch64, in an emulator
#   make bench     benchmarks against the peers
#   make clean     remove what was built; `make distclean` removes the virtual environments, too
#
# PYTHON chooses the interpreter, CC the compiler, BUILD the folder of the builds, MESON_OPTIONS further options of
# meson (MESON_OPTIONS=-Dblas=system), PYTEST_ARGS arguments of pytest (PYTEST_ARGS="-k tanh"), BENCH_ARGS the rows of
# the benchmarks (BENCH_ARGS="matmul readme").

PYTHON ?= python3
BUILD ?= build
MESON_OPTIONS ?=
PYTEST_ARGS ?=
BENCH_ARGS ?=

VENV := .venv
BENCH_VENV := .venv-bench
BIN := $(CURDIR)/$(VENV)/bin
MESON := PATH="$(BIN):$$PATH" $(BIN)/meson


C_FILES = $(wildcard include/quabla/*.h src/*/*.[ch] python/ext/*.[ch] tests/c/*.[ch] examples/c/*.[ch])
PYTHON_FOLDERS = python tests examples benchmarks tools

.PHONY: demo test build lint format asan ubsan tsan valgrind aarch64 bench clean distclean
.DELETE_ON_ERROR:

demo: build
	@$(BIN)/python examples/poisson1d.py
	@$(BIN)/python examples/poisson2d_mlp.py

# Both run, whatever the first says; the target fails if either does.
test: build
	@$(MESON) test -C $(BUILD)/dev --no-rebuild --quiet --print-errorlogs; c=$$?; \
	    $(BIN)/python -m pytest $(PYTEST_ARGS); python=$$?; \
	    [ $$c = 0 ] || echo "the C tests failed: see above, or $(BUILD)/dev/meson-logs/testlog.txt" >&2; \
	    [ $$python = 0 ] || echo "the Python tests failed: see above" >&2; \
	    [ $$c = 0 ] && [ $$python = 0 ]

# --- environments and builds ---

$(VENV)/ready: tools/requirements-dev.txt
	@$(PYTHON) tools/make_venv.py $(VENV) $<
	@touch $@

$(BENCH_VENV)/ready: tools/requirements-bench.txt
	@$(PYTHON) tools/make_venv.py $(BENCH_VENV) $<
	@touch $@

# $(call configure,folder,options), $(call compile,folder)
configure = if ! [ -f $(BUILD)/$(1)/build.ninja ]; then \
	    mkdir -p $(BUILD) && $(MESON) setup $(2) $(MESON_OPTIONS) $(BUILD)/$(1) >$(BUILD)/$(1)-setup.log 2>&1 || \
	    { rc=$$?; cat $(BUILD)/$(1)-setup.log >&2; exit $$rc; }; fi
compile = PATH="$(BIN):$$PATH" $(BIN)/ninja --quiet -C $(BUILD)/$(1) && \
	    $(BIN)/python tools/stage_package.py $(BUILD)/$(1)

build: $(VENV)/ready
	@$(call configure,dev)
	@$(call compile,dev)
	@$(BIN)/python tools/stage_package.py --activate $(BUILD)/dev

# --- checks ---

lint: build
	@$(BIN)/python tools/source_lists.py
	@clang-format --dry-run -Werror $(C_FILES)
	@awk 'length > 120 { print FILENAME ":" FNR ": longer than 120 columns"; found = 1 } END { exit found }' $(C_FILES)
	@$(BIN)/ruff check --quiet $(wildcard $(PYTHON_FOLDERS:%=%/))
	@$(BIN)/ruff format --quiet --check $(wildcard $(PYTHON_FOLDERS:%=%/))
	@cppcheck --quiet --error-exitcode=1 --enable=warning,performance,portability --inline-suppr --std=c11 \
	    --library=python --suppressions-list=tools/cppcheck.txt -j2 -I include -I src -I $(BUILD)/dev/src \
	    $(filter %.c,$(C_FILES))

format: $(VENV)/ready
	@clang-format -i $(C_FILES)
	@$(BIN)/ruff check --quiet --fix $(wildcard $(PYTHON_FOLDERS:%=%/))
	@$(BIN)/ruff format --quiet $(wildcard $(PYTHON_FOLDERS:%=%/))

# The interpreter itself is not instrumented: the runtime is loaded before it, and libstdc++ with it, whose exceptions
# (thrown by packages that the tests use) the runtime intercepts. An interpreter leaks by design, so leaks are only
# looked for in the C tests. --capture=sys lets the runtime's report through when it ends the process.
ASAN_PRELOAD = $$($(SANITIZER_CC) -print-file-name=libasan.so) $$($(SANITIZER_CC) -print-file-name=libstdc++.so.6)
SANITIZER_CC := gcc
SANITIZE = -Dbuildtype=debugoptimized -Db_lundef=false

asan: export CC = $(SANITIZER_CC)
asan: $(VENV)/ready
	@$(call configure,asan,$(SANITIZE) -Db_sanitize=address)
	@$(call compile,asan)
	@ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 \
	    $(MESON) test -C $(BUILD)/asan --no-rebuild --quiet --print-errorlogs --timeout-multiplier 10
	@LD_PRELOAD="$(ASAN_PRELOAD)" ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:strict_string_checks=1 PYTHONMALLOC=malloc \
	    PYTHONPATH=$(BUILD)/asan/python $(BIN)/python -m pytest --capture=sys $(PYTEST_ARGS)

ubsan: export CC = $(SANITIZER_CC)
ubsan: export UBSAN_OPTIONS = print_stacktrace=1:halt_on_error=1
ubsan: $(VENV)/ready
	@$(call configure,ubsan,$(SANITIZE) -Db_sanitize=undefined)
	@$(call compile,ubsan)
	@$(MESON) test -C $(BUILD)/ubsan --no-rebuild --quiet --print-errorlogs --timeout-multiplier 10
	@PYTHONPATH=$(BUILD)/ubsan/python $(BIN)/python -m pytest --capture=sys $(PYTEST_ARGS)

# Python and OpenBLAS are not built for it, so of the Python tests only those of threads run, and what happens inside the two
# is not looked at.
TSAN_PRELOAD = $$($(SANITIZER_CC) -print-file-name=libtsan.so)

tsan: export CC = $(SANITIZER_CC)
tsan: export TSAN_OPTIONS = suppressions=$(CURDIR)/tools/tsan.supp:ignore_noninstrumented_modules=1:report_signal_unsafe=0:die_after_fork=0
tsan: $(VENV)/ready
	@$(call configure,tsan,$(SANITIZE) -Db_sanitize=thread)
	@$(call compile,tsan)
	@QUABLA_NUM_THREADS=4 $(MESON) test -C $(BUILD)/tsan --no-rebuild --quiet --print-errorlogs --timeout-multiplier 20 \
	    test_threads test_program test_base test_graph
	@LD_PRELOAD="$(TSAN_PRELOAD)" QUABLA_NUM_THREADS=4 PYTHONPATH=$(BUILD)/tsan/python $(BIN)/python -m pytest --capture=sys \
	    tests/python/test_worker_threads.py $(PYTEST_ARGS)

# Aligned blocks are known by pointers into them only, which counts as "possibly lost". test_lanes compares with long double,
# which valgrind computes as double.
VALGRIND = valgrind --quiet --error-exitcode=9 --leak-check=full --show-leak-kinds=definite,indirect \
	--errors-for-leak-kinds=definite,indirect --suppressions=$(CURDIR)/tools/valgrind.supp
VALGRIND_TESTS = $(filter-out test_lanes,$(patsubst tests/c/%.c,%,$(wildcard tests/c/test_*.c)))

valgrind: $(VENV)/ready
	@$(call configure,valgrind,-Dbuildtype=debugoptimized -Dpython=false)
	@PATH="$(BIN):$$PATH" $(BIN)/ninja --quiet -C $(BUILD)/valgrind
	@$(MESON) test -C $(BUILD)/valgrind --no-rebuild --quiet --print-errorlogs --timeout-multiplier 50 --wrapper "$(VALGRIND)" \
	    $(VALGRIND_TESTS)

# The compiler and the emulator are Debian's gcc-aarch64-linux-gnu and qemu-user-static.
$(BUILD)/aarch64-packages/ready: $(VENV)/ready
	@$(BIN)/python -m pip install --quiet --upgrade --no-deps --only-binary=:all: --platform manylinux_2_28_aarch64 \
	    --target $(@D) scipy-openblas32
	@touch $@

aarch64: $(BUILD)/aarch64-packages/ready
	@export PYTHONPATH=$(<D); $(call configure,aarch64,--cross-file tools/aarch64.ini -Dpython=false)
	@PATH="$(BIN):$$PATH" $(BIN)/ninja --quiet -C $(BUILD)/aarch64
	@$(MESON) test -C $(BUILD)/aarch64 --no-rebuild --quiet --print-errorlogs --timeout-multiplier 30

# --- benchmarks ---

# BENCH_ARGS chooses rows: make bench BENCH_ARGS="matmul readme"
bench: build $(BENCH_VENV)/ready
	@PYTHONPATH=$(BUILD)/dev/python $(BENCH_VENV)/bin/python benchmarks/run.py $(BENCH_ARGS)

clean:
	@rm -rf $(BUILD)

distclean: clean
	@rm -rf $(VENV) $(BENCH_VENV)
