# A thin face on CMake. `make run` and `make test` install what they need (Debian 12, root or sudo).

JOBS ?= $(shell nproc)
# Tests at once: the many that start servers wait for half of their time.
TESTS ?= $(shell expr $(JOBS) + 2)
MODEL ?= models/fable-6m
ARGS ?=
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

BUILD_PACKAGES := cmake ninja-build pkg-config gcc libc6-dev libuv1-dev libnng-dev libmbedtls-dev libmsgpack-dev \
  libjemalloc-dev node-llhttp libjansson-dev libpcre2-dev libutf8proc-dev libxxhash-dev \
  zlib1g-dev libcmocka-dev
TEST_PACKAGES := python3 python3-jsonschema python3-msgpack python3-pynvim curl \
  $(shell command -v node >/dev/null || echo nodejs) $(shell command -v npm >/dev/null || echo npm) universal-ctags
# The page's tests; a browser draws no letters without a font.
PAGE_PACKAGES := chromium fonts-dejavu-core
# A load balancer for the tests of deploy/: its package starts a service, so nobody gets it unasked.
DEPLOY_PACKAGES := haproxy
# What groups across hosts run on (make test-mpi), for builds with -DWEFT_MPI=ON.
MPI_PACKAGES := libopenmpi-dev openmpi-bin iproute2
# The other architecture: its compiler and qemu are installed, its libraries unpacked into build-aarch64/sysroot/.
AARCH64_PACKAGES := cmake ninja-build pkg-config gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
AARCH64_LIBRARIES := libc6 libc6-dev linux-libc-dev libgcc-s1 libstdc++6 libuv1 libuv1-dev libnng1 libnng-dev libmbedcrypto7 \
  libmbedx509-1 libmbedtls14 libmbedtls-dev libmsgpackc2 libmsgpack-dev libjemalloc2 libjemalloc-dev node-llhttp \
  libjansson4 libjansson-dev libpcre2-8-0 libpcre2-dev libutf8proc2 libutf8proc-dev libxxhash0 libxxhash-dev zlib1g \
  zlib1g-dev libcmocka0 libcmocka-dev
# The linter reads the comparisons of bench/, too.
LINT_PACKAGES := clang-format clang-tidy libopenblas-dev libdnnl-dev libomp-dev
# Peers of bench_gemm, which goes without them, and what draws.
BENCH_PACKAGES := python3 libopenblas-dev libdnnl-dev gnuplot-nox

# Sanitizers that die before main on a new kernel want no address randomisation; some containers refuse to
# turn it off.
FUZZ_PACKAGES := clang libclang-rt-dev python3
FUZZ_SECONDS ?= 60
SUITE ?= -LE nightly
NO_ASLR = $(shell setarch -R true 2>/dev/null && echo setarch -R)

.PHONY: help run build everything image test test-page test-mpi aarch64 aarch64-test nightly asan tsan fuzz format lint check bench plots deps deps-test deps-promtool deps-page deps-deploy deps-mpi deps-aarch64 deps-lint deps-bench deps-fuzz clean

help:
	@echo "make run     build and serve the bundled model on http://127.0.0.1:8080; MODEL=PATH another one,"
	@echo "             ARGS='--port 8090 --rpc-port 8091' on other ports"
	@echo "             JOBS=1 for one compiler and test at a time; as many as CPUs otherwise"
	@echo "make test    build and run the suite; make nightly: all of it, in all builds, and fuzz for longer"
	@echo "make test-page   the page in Chromium; SHOTS=docs takes its pictures anew"
	@echo "make test-mpi    a group across hosts, which needs MPI: builds that, too, in build-mpi/"
	@echo "make aarch64 | aarch64-test   the same for aarch64, in build-aarch64/ | and its kernels, engine and goldens under qemu"
	@echo "make build   the programs, in build/bin/, and their man pages, in build/man/"
	@echo "make image   an image for containers, in build/image/"
	@echo "make asan | tsan   the suite under AddressSanitizer+UBSan | ThreadSanitizer"
	@echo "make fuzz    the parsers of outside bytes under libFuzzer, FUZZ_SECONDS=60 for each"
	@echo "make format | lint clang-format in place | formatter and clang-tidy, changing nothing"
	@echo "make bench MODELS='A.gguf B.gguf' LLAMA_BIN=DIR   measure rates, products and servers as docs/performance.md shows them, and draw"
	@echo "make plots   draw docs/*.svg from docs/data/*.tsv again"
	@echo "make deps    the Debian packages that a build needs"

# The line to try is printed with the address, once there is one. What prints it outlives Ctrl-C, as the
# server does that still says how it ends.
run: SHELL := /bin/bash
run: build
	@build/bin/weft serve $(MODEL) $(ARGS) 2> >(trap '' INT TERM; exec sed -u "$$TRY" >&2) & pid=$$!; \
	trap 'kill $$pid 2>/dev/null' INT TERM; \
	until wait $$pid; status=$$?; [ $$status -le 128 ] || ! kill -0 $$pid 2>/dev/null; do :; done; exit $$status

# sed: "weft: ready on URL", and below it how to ask there.
define TRY
s|^weft: ready on \(.*\)|&\n\nTry it in another terminal, or that address in a browser:\n  curl \1/v1/completions -H 'Content-Type: application/json' -d '{"prompt": "The old house stood", "max_tokens": 60, "temperature": 0.6, "seed": 11}'\n|
endef
export TRY

build: deps
	cmake --preset release
	cmake --build build -j $(JOBS) --target programs

# The programs as an image of a container, in build/image/: a root folder, and an OCI archive where buildah is installed.
image: build
	deploy/image/build.sh build/bin build/image

# Tests and what measures, too.
everything: build
	cmake --build build -j $(JOBS)

test: deps-test everything
	ctest --test-dir build -j $(TESTS) --output-on-failure -LE nightly

test-page: deps-page deps-test build
	$(if $(SHOTS),WEFT_PAGE_SHOTS=$(abspath $(SHOTS))) ctest --test-dir build --output-on-failure -L page

# Another build: nothing else needs MPI. The linter reads what only this one compiles.
test-mpi: deps-mpi deps-test deps
	cmake --preset mpi
	cmake --build build-mpi -j $(JOBS) --target programs coll_mpi engine_mpi
	ctest --test-dir build-mpi --output-on-failure -L mpi
	$(if $(shell command -v clang-tidy),clang-tidy -p build-mpi --quiet $(filter $(MPI_SOURCES),$(SOURCES)))

aarch64: deps-aarch64
	cmake --preset aarch64
	cmake --build build-aarch64 -j $(JOBS)

# What runs in minutes there: AARCH64_TESTS picks others. The linter reads what only this build compiles.
AARCH64_TESTS ?= -R '^(test_(gemm|attention|lora_kernels|ops|pack|peak|quant|quantise|sampler|chain|engine_[a-z]*)|golden_[a-z]*)$$' -E perplexity
aarch64-test: aarch64
	ctest --test-dir build-aarch64 -j $(JOBS) --output-on-failure $(AARCH64_TESTS)
	$(if $(shell command -v clang-tidy),clang-tidy -p build-aarch64 --quiet $(filter $(AARCH64_SOURCES),$(SOURCES)))

# All of the suite, in all builds; and longer fuzzing.
nightly: deps-deploy deps-test everything
	ctest --test-dir build -j $(TESTS) --output-on-failure
	$(MAKE) lint
	$(MAKE) aarch64-test
	$(MAKE) asan tsan SUITE=
	$(MAKE) fuzz FUZZ_SECONDS=600

asan: deps-test deps
	cmake --preset asan
	cmake --build build-asan -j $(JOBS)
	$(NO_ASLR) ctest --test-dir build-asan -j $(TESTS) --output-on-failure $(SUITE)

tsan: deps-test deps
	cmake --preset tsan
	cmake --build build-tsan -j $(JOBS)
	$(NO_ASLR) ctest --test-dir build-tsan -j $(TESTS) --output-on-failure $(SUITE)

# libFuzzer under AddressSanitizer and UBSan, FUZZ_SECONDS for each kind of input. ARGS=--keep takes what is new into
# the corpus.
fuzz: deps-fuzz deps-test deps
	cmake --preset fuzz
	cmake --build build-fuzz -j $(JOBS) --target fuzz_targets
	$(NO_ASLR) tests/fuzz/run.py build-fuzz --seconds $(FUZZ_SECONDS) --jobs $(JOBS) $(ARGS)

SOURCES = $(shell git ls-files '*.c' '*.h')
# What clang-tidy does not read: .ci/run leaves out tests/%, which are two fifths of all lines, and what is not built of a
# file that commits of the last hours changed. The analyzer takes nine tenths of the time, so there it reads only what
# they changed itself. `make nightly`: everything.
UNTIDY ?=
ANALYZE_SINCE ?=
TIDY = $(filter-out $(UNTIDY) $(MPI_SOURCES) $(AARCH64_SOURCES),$(filter %.c,$(SOURCES)))
CHANGED = $(shell git log --since="$(ANALYZE_SINCE)" --format= --name-only)
MPI_SOURCES := lib/collective/mpi.c tests/mpi/%.c
AARCH64_SOURCES := lib/kernels/neon/%.c

format: deps-lint
	clang-format -i $(SOURCES)

lint: deps-lint build
	clang-format --dry-run -Werror $(SOURCES)
	@printf '%s\n' $(TIDY) $(if $(ANALYZE_SINCE),| .ci/affected.py build "$(ANALYZE_SINCE)") >build/tidy.txt
	@echo "clang-tidy reads $$(wc -l <build/tidy.txt) of $(words $(TIDY)) files"
	@<build/tidy.txt xargs -r -P $(JOBS) -n 1 clang-tidy -p build --quiet $(if $(ANALYZE_SINCE),--checks='-clang-analyzer-*')
	@$(if $(ANALYZE_SINCE),printf '%s\n' $(filter $(CHANGED),$(TIDY)) | xargs -r -P $(JOBS) -n 1 clang-tidy -p build --quiet)

check: lint test asan

# A quiet machine and an hour; ARGS='--only products' measures a part.
bench: deps-bench everything
	bench/all.py $(MODELS) $(ARGS)

plots: deps-bench
	for plot in bench/plots/*.gp; do gnuplot $$plot || exit 1; done

clean:
	rm -rf build build-asan build-tsan build-clang build-fuzz build-mpi build-aarch64

# Asks dpkg first, so that a machine that has everything needs neither network nor root.
define install
	@missing="$$(for p in $(1); do dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || echo $$p; done)"; \
	if [ -n "$$missing" ]; then \
	  $(SUDO) apt-get update && \
	  $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $$missing; \
	fi
endef

# A program of a package that starts a server when it is installed, which listens on a port that others want: it is
# unpacked instead, into build/tools/.
define unpack
@if ! command -v $(notdir $(2)) >/dev/null && [ ! -x build/tools/$(notdir $(2)) ]; then \
	  mkdir -p build/tools && cd build/tools && \
	  { apt-get download $(1) || { $(SUDO) apt-get update && apt-get download $(1); }; } && \
	  dpkg-deb --fsys-tarfile $(1)_*.deb | tar -x --strip-components=3 $(2) && \
	  rm $(1)_*.deb; \
	fi
endef

deps:
	$(call install,$(BUILD_PACKAGES))
deps-test: deps-promtool
	$(call install,$(TEST_PACKAGES))
# What the suite can do without: its tests are skipped, and say so, if it cannot be had.
deps-promtool:
	-$(call unpack,prometheus,./usr/bin/promtool)
deps-page:
	-$(call install,$(PAGE_PACKAGES))
deps-deploy:
	-$(call install,$(DEPLOY_PACKAGES))
	-$(call unpack,nginx,./usr/sbin/nginx)
deps-mpi:
	$(call install,$(MPI_PACKAGES))
deps-aarch64:
	$(call install,$(AARCH64_PACKAGES))
	tests/aarch64/sysroot.sh build-aarch64 $(AARCH64_LIBRARIES)
deps-lint:
	$(call install,$(LINT_PACKAGES))
deps-fuzz:
	$(call install,$(FUZZ_PACKAGES))
deps-bench:
	$(call install,$(BENCH_PACKAGES))
