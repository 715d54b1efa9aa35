# Development tasks.

.DEFAULT_GOAL := help
.PHONY: help demo test soak check corpus docs fmt sqlx openapi bench bench-check bench-growth verify-faults verify-first-use verify-labels verify-memory verify-metrics verify-properties verify-read-path verify-replicas verify-rolling-restart verify-search verify-sources verify-traces verify-watching verify-audit-log verify-upgrade verify-kubernetes kubernetes deb dist prerequisites verify-mounts dashboards verify-compose verify-package

# The directory of rustup, for shells started before its installation.
export PATH := $(PATH):$(HOME)/.cargo/bin
# Most tests wait for something most of the time.
export RUST_TEST_THREADS ?= $(shell expr 3 '*' $$(getconf _NPROCESSORS_ONLN))
# Queries are checked against .sqlx, also with DATABASE_URL set.
export SQLX_OFFLINE := true

help: ## List the targets
	@sed -n 's/^\([a-z-]*\): .*## /\1:/p' $(MAKEFILE_LIST) | awk -F: '{ printf "  make %-22s %s\n", $$1, $$2 }'

# Unoptimised, so that it answers soonest after a clone. The workspace with its examples has the features of the tests, so
# `make test` continues from here.
demo: prerequisites ## Run the gateway with a demo agent, its own database in ./waggle-data
	cargo build --locked --workspace --bin waggle --examples
	@scripts/run-demo

# The cases of property tests are the same in each run, so that a change fails for what it does; verify-properties finds new ones.
test: export PROPTEST_RNG_SEED ?= 1
test: prerequisites ## Run all tests, on a PostgreSQL cluster of their own unless DATABASE_URL is set
	@scripts/run-tests

# On the debug build, as the tests are: what is measured is what is lost, not how fast it goes. SOAK_BINARY names
# another gateway, such as a release.
soak: prerequisites ## Kill and cut off replicas for a minute while 400 streams listen, and stop readers for one
	SOAK=long cargo test --workspace --locked --test soak -- --nocapture --test-threads=1

# VERIFY_FAULTS_SEED repeats a schedule; the seed is printed.
verify-faults: prerequisites ## Hold revocations to their bound for 20 minutes of random faults (VERIFY_FAULTS_SECONDS)
	VERIFY_FAULTS_SECONDS=$${VERIFY_FAULTS_SECONDS:-1200} cargo test --workspace --locked --test soak -- --nocapture beyond_the_bound

check: prerequisites ## Run every check that a change must pass
	@scripts/check

docs: ## Build the guides as static pages in target/book
	@scripts/build-docs

fmt: ## Format the code
	cargo fmt --all

sqlx: prerequisites ## Write the query metadata in .sqlx, after a change of a query or a migration
	@scripts/sqlx-prepare

openapi: prerequisites ## Write openapi.json, after a change of the administration API
	cargo build --locked --workspace --bin waggle --examples
	@"$${CARGO_TARGET_DIR:-target}/debug/waggle" openapi > openapi.json

# CORPUS_BINARY names another gateway, such as the build before a change.
corpus: prerequisites ## Record the answers of tests/corpus again, after an intended change of behavior
	CORPUS_RECORD=1 cargo test --workspace --locked --test corpus

bench: prerequisites ## Measure the CPU time of a request (ARGS='--rounds 3')
	cargo build --release --locked --workspace --bins
	cargo run --release --locked --package waggle-bench -- $(ARGS)

# The machine should be otherwise idle. ARGS='--record bench/baseline.json' records the ratios instead, after an intended change.
BENCH_CHECK = --what reads --only limit,waggle --rounds 9 --seconds 1
bench-check: prerequisites ## Fail where a read costs over 10 % more CPU than bench/baseline.json says
	cargo build --release --locked --workspace --bins
	cargo run --release --locked --package waggle-bench -- $(BENCH_CHECK) $(or $(ARGS),--check bench/baseline.json)

# 100,000 agents of ten resources (ARGS='--agents 2000 --active 1,10,100 --cold 300 --large 1000 --svg growth.svg').
bench-growth: prerequisites ## Measure reads, memory and lists as more agents of a large database are in use
	cargo build --release --locked --workspace --bins
	cargo run --release --locked --package waggle-bench -- growth $(ARGS)

# A gateway on a database of its own, restarted: 5,000 keys in 5 s beside 5,000 forged ones a second (ARGS='--keys 500').
verify-first-use: prerequisites ## Use many keys right after a start beside forged ones; none may be refused
	cargo build --release --locked --workspace --bins
	cargo run --release --locked --package waggle-bench -- first-use $(ARGS)

# VERIFY_LABELS_SEED repeats a history; the seed is printed.
verify-labels: prerequisites ## Compare 100,000 answers of an agent with hidden definitions with those of agents without them
	VERIFY_LABELS_STEPS=$${VERIFY_LABELS_STEPS:-100000} cargo test --workspace --locked --test it -- --nocapture hidden_definitions_are_answered

# A working set of 2 GiB under budgets of 64 MiB, 256 MiB and 1 GiB (ARGS='--budgets 64 --working-set 512').
verify-memory: prerequisites ## Hold the resident memory to cache.bytes under a larger working set; print hit rates
	cargo build --release --locked --workspace --bins
	cargo run --release --locked --package waggle-bench -- caches $(ARGS)

# PROPTEST_CASES is their number. A failure prints the smallest case, which then becomes a test or a narrower property.
verify-properties: prerequisites ## Try 30,000 random cases, new in each run, of every property test
	PROPTEST_CASES=$${PROPTEST_CASES:-30000} cargo test --workspace --locked --lib --test properties

# Needs Python, and nginx and Prometheus or a Debian that has their packages (VERIFY_METRICS_SECONDS=20).
verify-metrics: prerequisites ## Scrape two replicas behind nginx under load; check all metrics, rules and dashboards
	cargo build --locked --workspace --bin waggle --examples
	@scripts/with-balancer scripts/verify-metrics

# Needs valgrind. READ_FILES names another bound: lower it when a read passes fewer files.
verify-read-path: prerequisites ## Count the source files that a warm read passes, and fail if they are more than before
	cargo build --locked --workspace --bin waggle --examples
	@scripts/files-of-a-read --max $(or $(READ_FILES),31)

dashboards: prerequisites ## Draw the dashboards in docs/images again, after a change of them or of a metric
	cargo build --release --locked --workspace --bins
	@WAGGLE_BIN="$${CARGO_TARGET_DIR:-target}/release/waggle" VERIFY_METRICS_SECONDS=90 VERIFY_METRICS_PLOTS=docs/images scripts/with-balancer scripts/verify-metrics

# Up to 32 gateways on a PostgreSQL of their own (ARGS='--sizes 2,8 --seconds 5').
verify-replicas: prerequisites ## Measure what idle replicas cost, and an event with a stream on each
	cargo build --release --locked --workspace --bins
	cargo run --release --locked --package waggle-bench -- replicas $(ARGS)

# 2,000 requests a second with 10,000 keys on three replicas (ARGS='--rate 200 --keys 500 --svg restart.svg').
verify-rolling-restart: prerequisites ## Restart replicas one after another under load; no request may fail
	cargo build --release --locked --workspace --bins
	cargo run --release --locked --package waggle-bench -- rolling-restart $(ARGS)

# 1,000 requests a second and 200 streams through nginx or HAProxy with the configuration of deploy/balancer
# (BALANCER=haproxy, ARGS='--rate 200 --streams 20'). The replicas run the commit before the last migration, on the schema
# of this one, until each is restarted; PREVIOUS names another binary.
verify-upgrade: prerequisites ## Upgrade replicas behind a load balancer; no request may fail, no event may be lost
	cargo build --release --locked --workspace --bins
	@PREVIOUS=$$(scripts/previous-binary) && scripts/with-balancer "$${CARGO_TARGET_DIR:-target}/release/waggle-bench" \
		rolling-restart --from "$$PREVIOUS" --balancer $(or $(BALANCER),nginx) --rate 1000 --keys 1000 --streams 200 $(ARGS)

# With podman, as root, on Debian or Ubuntu: images that no registry provides are made of Debian's packages (BALANCER=haproxy).
verify-compose: prerequisites ## Start compose.yaml in containers: events, a restart under load, Prometheus, nginx and HAProxy
	cargo build --release --locked --workspace --bins
	@deploy/verify-compose

verify-kubernetes: ## Validate the Helm chart and the manifests for Kubernetes without a cluster
	@deploy/kubernetes/verify/run

kubernetes: ## Write the manifests in deploy/kubernetes that are generated from the chart
	@deploy/kubernetes/verify/run --write

deb: prerequisites ## Make a package of Debian, in target/package
	cargo build --profile dist --locked --bin waggle
	@deploy/package/build-deb "$${CARGO_TARGET_DIR:-target}/dist/waggle" target/package

# As root, on Debian or Ubuntu. WAGGLE_BIN names another gateway, WAGGLE_PACKAGE a package that is made already.
verify-package: prerequisites ## Install, run, upgrade and remove the package of Debian in a root made by debootstrap
	cargo build --release --locked --workspace --bins
	@deploy/package/verify

# TARGET=x86_64-unknown-linux-musl makes a static binary, where rustup has that target.
dist: prerequisites ## Make what is released: binary, package, bill of materials and check sums, in target/package
	@deploy/package/dist

# 100,000 resources in four languages on two replicas (ARGS='--resources 10000 --queries 500').
verify-search: prerequisites ## Search in a large agent: latency, memory, time to index, and how soon a change is found
	cargo build --release --locked --workspace --bins
	cargo run --release --locked --package waggle-bench -- search $(ARGS)

# A gateway and a source of its own (ARGS='--rounds 3 --seconds 2').
verify-sources: prerequisites ## Compare cached content from a connection with inline content; read beside failing sources
	cargo build --release --locked --workspace --bins
	cargo run --release --locked --package waggle-bench -- sources $(ARGS)

# Two gateways without traces and one with, and a collector of its own (ARGS='--sampled 1').
verify-traces: prerequisites ## Compare the CPU of a read with traces, 1 % of them sampled, with one without
	cargo build --release --locked --workspace --bins
	cargo run --release --locked --package waggle-bench -- traces $(ARGS)

# A mount of 100,000 files beside as many inline resources (ARGS='--files 10000 --changes 5').
verify-mounts: prerequisites ## Mount many files: time until listed, memory, notifications, list pages, restart
	cargo build --release --locked --workspace --bins
	cargo run --release --locked --package waggle-bench -- mounts $(ARGS)

# Three replicas; the one that watches is killed every five seconds (VERIFY_WATCHING_CHANGES=100).
verify-watching: prerequisites ## Change watched files 1,000 times while watchers are killed; none may be lost or notified twice
	VERIFY_WATCHING_CHANGES=$${VERIFY_WATCHING_CHANGES:-1000} cargo test --workspace --locked --test it -- --nocapture no_change_is_lost_or_notified_twice

# 10,000,000 rows, which take 5 GB on disk (ARGS='--rows 100000 --rates 500').
verify-audit-log: prerequisites ## Measure what audit rows cost, how long they take to verify, and unwritten events
	cargo build --release --locked --workspace --bins
	cargo run --release --locked --package waggle-bench -- audit-log $(ARGS)

prerequisites:
	@scripts/install-rust
	@scripts/install-postgres
