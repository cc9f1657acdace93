# delta: build, test, install. GNU make; needs a Rust toolchain and a C compiler.

PREFIX  = /usr/local
DESTDIR =
# How the program is called; see "Two programs named delta" in docs/installing.md.
NAME    = delta
CARGO   = cargo

TARGET_DIR = $(or $(CARGO_TARGET_DIR),target)
# Where the demo's program is.
DEMO_BIN = $(TARGET_DIR)/quick
# Where the programs are that are installed.
BIN     = $(TARGET_DIR)/release
MUSL    = $(shell uname -m)-unknown-linux-musl

# A word of the shell, whatever is in it.
quoted  = '$(subst ','\'',$(1))'

all:
	$(CARGO) build --release --locked
	@CARGO=$(call quoted,$(CARGO)) packaging/licenses.sh $(call quoted,$(BIN)/THIRD-PARTY)

# The main job, offline: an agent whose model is a script. Only what it needs is built, and quickly.
demo:
	$(CARGO) build --profile quick --locked --no-default-features --bin delta
	@examples/hello-world/demo.sh $(DEMO_BIN)/delta

# Most tests wait for programs: four at once for each processor take half the time of one.
test:
	n=$$(nproc); RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$$((n > 6 ? 24 : n * 4))} $(CARGO) test --locked

check:
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps --document-private-items
	@if [ -x man/check.sh ]; then man/check.sh; fi

# Without optional features, with the oldest compiler (where rustup has it), and what the dependencies may be.
check-deps:
	$(CARGO) clippy --locked --no-default-features --lib --bins -- -D warnings
	@msrv=$$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml); \
	if rustup toolchain list 2>/dev/null | grep -q "^$$msrv"; then \
		$(CARGO) +$$msrv check --locked --all-targets; \
	else echo "make check-deps: rustup has no Rust $$msrv here: only clippy has compared what is used with it"; fi
	@if command -v cargo-deny >/dev/null; then $(CARGO) deny check licenses sources bans; \
	else echo 'make check-deps: cargo-deny is not installed: dependencies not checked'; fi

# The pages as text, which the program carries; needs mandoc.
man-text:
	man/render.sh

# The manual as pages for a browser, in target/html; needs mandoc and Python. Fails if a link leads nowhere.
html:
	python3 man/html/build.py '$(TARGET_DIR)/html'
	@echo $(TARGET_DIR)/html/index.html

# The pictures of docs/, from runs whose model is a script; needs tmux, git, Python and chromium.
pictures: all
	python3 docs/tools/pictures.py '$(BIN)'

bench: all
	$(CARGO) bench --locked --quiet --bench bench -- '$(BIN)/delta' --json '$(TARGET_DIR)/bench.json'

# Instructions of fixed workloads against those recorded in benches/; needs valgrind.
bench-compare: all
	$(CARGO) bench --locked --quiet --bench bench -- '$(BIN)/delta' --instructions benches/instructions.json

# docs/measurements.md and its plots, on an idle machine: some ten minutes, and the time to build the bench.
measure: all
	$(CARGO) bench --locked --quiet --bench bench -- '$(BIN)/delta' --evaluation > '$(TARGET_DIR)/evaluation.txt'
	python3 benches/measure/measure.py --simulation '$(TARGET_DIR)/evaluation.txt' '$(BIN)/delta'

bench-record: all
	$(CARGO) bench --locked --quiet --bench bench -- '$(BIN)/delta' --instructions benches/instructions.json --record

# What "make" has built: as root there may be no cargo, and nothing of root's belongs in target/.
install:
	packaging/files.sh install $(call quoted,$(BIN)) $(call quoted,$(DESTDIR)) $(call quoted,$(PREFIX)) $(call quoted,$(NAME))

# Exactly what "make install" with the same PREFIX, DESTDIR and NAME has put there.
uninstall:
	packaging/files.sh remove $(call quoted,$(BIN)) $(call quoted,$(DESTDIR)) $(call quoted,$(PREFIX)) $(call quoted,$(NAME))

# Programs that need no library, for any Linux of this machine's kind.
static:
	@test -d "$$(rustc --print target-libdir --target $(MUSL))" || { \
		echo 'make static: Rust cannot build for $(MUSL) here; rustup target add $(MUSL)' >&2; exit 1; }
	@command -v musl-gcc >/dev/null || { \
		echo 'make static: musl-gcc is not installed; apt-get install musl-tools' >&2; exit 1; }
	$(call static_build,$(MUSL))

# Packages, into DIST; packaging/README.md says more.
DIST    = $(TARGET_DIR)/dist
GNU     = $(shell uname -m)-unknown-linux-gnu
# The programs without shared libraries that were built last.
STATIC  = $(TARGET_DIR)/static
define static_build
$(CARGO) build --release --locked --target $(1)
mkdir -p $(call quoted,$(STATIC))
cp -f $(call quoted,$(TARGET_DIR)/$(1)/release/delta) $(call quoted,$(STATIC)/)
@CARGO=$(call quoted,$(CARGO)) packaging/licenses.sh $(call quoted,$(STATIC)/THIRD-PARTY)
@echo $(call quoted,$(STATIC)/delta)
endef

# Where Rust cannot build for musl: the same with the C library of this machine.
static-glibc: export RUSTFLAGS = -C target-feature=+crt-static
static-glibc:
	$(call static_build,$(GNU))

# Of what "make" has built.
deb: all
	packaging/deb.sh $(call quoted,$(BIN)) $(call quoted,$(DIST))

tarball:
	packaging/tarball.sh $(call quoted,$(STATIC)) $(call quoted,$(DIST))

# What the source packages for Debian and RPM are built from, offline.
source:
	packaging/source.sh $(call quoted,$(DIST))

# The crate, built from itself, installed and tried.
package-check:
	packaging/package-check.sh $(call quoted,$(DIST))

# make release VERSION=X.Y.Z URL=https://… [DRY_RUN=1]
release:
	packaging/release.sh $(call quoted,$(VERSION)) $(call quoted,$(URL)) $(call quoted,$(DIST)) $(if $(DRY_RUN),--dry-run)

clean:
	$(CARGO) clean

.PHONY: html pictures measure
.PHONY: static-glibc tarball source package-check release
.PHONY: all demo test check check-deps man-text bench bench-compare bench-record install uninstall deb static clean
