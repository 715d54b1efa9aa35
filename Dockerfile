# The gateway in a container; deploy/README.md says how to build it and run it.
#
# docker build --tag waggle .
#   behind a proxy                  --build-arg HTTPS_PROXY=http://proxy.example.com:3128
#   where a proxy opens TLS         --build-arg EXTRA_CA="$(cat company-ca.pem)"
#   with a mirror of the crates     --secret id=cargo_config,src=config.toml

FROM docker.io/library/rust:1.95-bookworm AS build
WORKDIR /src

# What cargo trusts: what the image does, and whose certificates were given.
ARG EXTRA_CA=""
RUN { cat /etc/ssl/certs/ca-certificates.crt; printf '%s\n' "$EXTRA_CA"; } >/usr/local/share/trusted.pem
ENV CARGO_HTTP_CAINFO=/usr/local/share/trusted.pem
# Queries are checked against .sqlx.
ENV SQLX_OFFLINE=true

# The dependencies and the workspace's small crates, a layer that lasts until one of these or a manifest changes. What was made of the empty crate is removed: COPY keeps
# the times of files, and cargo would take it for newer than the sources.
COPY Cargo.toml Cargo.lock ./
COPY bench/Cargo.toml bench/
COPY crates crates
RUN --mount=type=secret,id=cargo_config,target=/usr/local/cargo/config.toml \
    mkdir src bench/src \
    && echo 'fn main() {}' | tee src/main.rs >bench/src/main.rs \
    && : >src/lib.rs \
    && cargo build --profile dist --locked --package waggle --bin waggle \
    && cargo clean --profile dist --package waggle

COPY . .
RUN --mount=type=secret,id=cargo_config,target=/usr/local/cargo/config.toml \
    cargo build --profile dist --locked --package waggle --bin waggle

FROM docker.io/library/debian:bookworm-slim

# For TLS to the database. The company's certificates of EXTRA_CA are not among them.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY LICENSE-APACHE LICENSE-MIT /usr/share/doc/waggle/
COPY --from=build /src/target/dist/waggle /usr/local/bin/

# Every interface of the container's own network. While it listens there, any Host passes until
# WAGGLE_SERVER__ALLOWED_HOSTS is set. There is no PostgreSQL in here: WAGGLE_DATABASE__URL and
# WAGGLE_ADMIN__OPERATOR_KEY must be given.
ENV WAGGLE_SERVER__LISTEN=0.0.0.0:8094
EXPOSE 8094

# Where a volume goes for audit.spill_dir: one that is new belongs to whom this does.
RUN install --directory --mode=0700 --owner=65532 --group=65532 /var/lib/waggle

# A number, so that Kubernetes sees that it is not root. Nothing else is written: the root may be read-only.
USER 65532:65532
WORKDIR /

# A start waits a minute for its database.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["waggle", "health"]
ENTRYPOINT ["waggle"]
CMD ["serve"]

# Version and revision are given with --label: buildah keeps a layer whose label was made of another argument.
LABEL org.opencontainers.image.title="Waggle" \
    org.opencontainers.image.description="A multi-tenant MCP gateway: hosted agents register what they know, any MCP client reads it." \
    org.opencontainers.image.licenses="MIT OR Apache-2.0" \
    org.opencontainers.image.base.name="docker.io/library/debian:bookworm-slim"
