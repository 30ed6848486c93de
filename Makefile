# Everything but hftok, differ, race, lint and fuzz needs Go alone.
GO ?= go

# How long each fuzz target runs.
FUZZTIME ?= 10s

# How long the soak runs, and a Python with pyzmq as its peer, if there is one.
SOAK           ?= 5m
SOAKFLAGS      ?=
KVSCOPE_PYTHON ?=

GOFUMPT     := mvdan.cc/gofumpt@v0.12.0
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

# Tools are built at their pinned versions into a folder of our own.
TOOLS := $(CURDIR)/bin/tools

# HuggingFace's tokenizers: a folder of our own with the Rust sources of the Go
# module and our manifest, and what cargo makes of them.
HFTOK     := bin/hftok
HFTOK_MOD := github.com/daulet/tokenizers
HFTOK_GO  := CGO_ENABLED=1 CGO_LDFLAGS="'-L$(CURDIR)/$(HFTOK)'" $(GO)

# How many random strings make differ holds both tokenizers against each other on.
DIFFER ?= 100000

.PHONY: build hftok crates differ differ-short demo test ui race lint fuzz soak bench screens lab-tables lab-million tools clean

build: ## the program, static, as bin/kvscope
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/kvscope ./cmd/kvscope

hftok: $(HFTOK)/libtokenizers.a ## the program with HuggingFace's own tokenizers; needs cargo and a C compiler
	$(HFTOK_GO) build -trimpath -tags hftok -o bin/kvscope-hftok ./cmd/kvscope

# A lock file without all of its crates must not stay.
.DELETE_ON_ERROR:

# What hftok needs of the network.
crates: $(HFTOK)/Cargo.lock

$(HFTOK)/Cargo.lock: prompt/hf/Cargo.toml go.mod
	rm -rf $(HFTOK)/src
	mkdir -p $(HFTOK)/src
	$(GO) mod download $(HFTOK_MOD)
	cp "$$($(GO) list -m -f '{{.Dir}}' $(HFTOK_MOD))"/src/*.rs $(HFTOK)/src/
	chmod -R u+w $(HFTOK)/src
	cp prompt/hf/Cargo.toml $(HFTOK)/Cargo.toml
	cd $(HFTOK) && cargo fetch --target "$$(rustc -vV | sed -n 's/^host: //p')"
	touch $@

$(HFTOK)/libtokenizers.a: $(HFTOK)/Cargo.lock
	cd $(HFTOK) && cargo build --release --offline --quiet
	cp $(HFTOK)/target/release/libtokenizers.a $@

differ-short: $(HFTOK)/libtokenizers.a
	$(HFTOK_GO) vet -tags hftok ./prompt/hf
	$(HFTOK_GO) test -tags hftok -v -run . ./prompt/hf

differ: $(HFTOK)/libtokenizers.a ## both tokenizers on DIFFER random strings, and their speed
	KVSCOPE_DIFFER=$(DIFFER) $(HFTOK_GO) test -tags hftok -timeout 2h -v -run 'TestDiffer|TestOracle' ./prompt/hf
	$(HFTOK_GO) test -tags hftok -run '^$$' -bench Encode -benchtime 10x ./prompt/hf

demo: ## a simulated fleet on the screen: no GPU, no engine, no configuration
	@$(GO) run ./cmd/kvscope demo

test: ## all tests
	CGO_ENABLED=0 $(GO) test ./...

ui: build ## the program driven in tmux
	.ci/ui bin/kvscope

screens: ## the screens of docs/ui.md, renewed; needs tmux
	docs/screens.sh

lab-tables: ## the tables of docs/lab.md, renewed; needs KVSCOPE_DATA
	docs/lab.sh

lab-million: build ## a million requests on 8 replicas through every policy, and how long it took
	@start=$$(date +%s); bin/kvscope lab --requests-count 1000000 --replicas 8; echo "$$(($$(date +%s) - start)) s"

race: ## the quick tests under the race detector; needs a C compiler
	CGO_ENABLED=1 $(GO) test -race -short ./...

lint: tools ## form, vet and staticcheck
	@test -z "$$($(TOOLS)/gofumpt -l .)" || { $(TOOLS)/gofumpt -d .; exit 1; }
	$(GO) vet ./...
	$(TOOLS)/staticcheck ./...

# A pinned version is in the cache after the first time, so this is cheap.
tools:
	GOBIN=$(TOOLS) $(GO) install $(GOFUMPT)
	GOBIN=$(TOOLS) $(GO) install $(STATICCHECK)

fuzz: ## every fuzz target of every package, FUZZTIME each
	@grep -rEo '^func Fuzz[[:alnum:]_]+' --include='*_test.go' . \
	| sed -E 's|^(.*)/[^/]+:func |\1 |' | sort \
	| { set -e; while read -r dir name; do \
		echo "== $$dir $$name"; \
		$(GO) test -run='^$$' -fuzz="^$$name\$$" -fuzztime=$(FUZZTIME) -fuzzminimizetime=1x "$$dir" </dev/null; \
	done; }

soak: build ## the tap under load beside pyzmq, and a recorder that is killed: SOAK long
	$(GO) build -o bin/soak ./cmd/soak
	bin/soak -duration $(SOAK) -python "$(KVSCOPE_PYTHON)" $(SOAKFLAGS)

bench: ## all benchmarks
	$(GO) test -run='^$$' -bench=. -benchmem ./...

clean:
	rm -rf bin
