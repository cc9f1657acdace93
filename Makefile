# delta: build, test, install. GNU make; needs a Rust toolchain and a C compiler.

PREFIX  = /usr/local
DESTDIR =
CARGO   = cargo

bindir = $(DESTDIR)$(PREFIX)/bin
mandir = $(DESTDIR)$(PREFIX)/share/man
pages  = $(wildcard man/*.[157])

all:
	$(CARGO) build --release --locked

# The main job, offline: an agent whose model is a script.
demo: all
	@examples/hello-world/demo.sh target/release/delta

test:
	$(CARGO) test --locked

check:
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps --document-private-items
	@if [ -x man/check.sh ]; then man/check.sh; fi

# The pages as text, which the program carries; needs mandoc.
man-text:
	man/render.sh

bench: all
	$(CARGO) bench --locked --quiet --bench bench -- $(CURDIR)/target/release/delta --json target/bench.json

# Instructions of fixed workloads against those recorded in benches/; needs valgrind.
bench-compare: all
	$(CARGO) bench --locked --quiet --bench bench -- $(CURDIR)/target/release/delta --instructions benches/instructions.json

bench-record: all
	$(CARGO) bench --locked --quiet --bench bench -- $(CURDIR)/target/release/delta --instructions benches/instructions.json --record

install: all
	mkdir -p $(bindir)
	install -m 755 target/release/delta target/release/delta-sessions $(bindir)/
	for page in $(pages); do \
		section=man$${page##*.}; \
		mkdir -p $(mandir)/$$section && \
		install -m 644 $$page $(mandir)/$$section/ || exit 1; \
	done

uninstall:
	rm -f $(bindir)/delta $(bindir)/delta-sessions
	for page in $(pages); do rm -f $(mandir)/man$${page##*.}/$${page#man/}; done

clean:
	$(CARGO) clean

.PHONY: all demo test check man-text bench bench-compare bench-record install uninstall clean
