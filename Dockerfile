# The gateway in a container; see docs/containers.md.
#
# docker build --tag waggle .
#   behind a proxy                  --build-arg HTTPS_PROXY=http://proxy.example.com:3128
#   if a proxy intercepts TLS       --build-arg EXTRA_CA="$(cat company-ca.pem)"
#   with a mirror of the crates     --secret id=cargo_config,src=config.toml

FROM docker.io/library/rust:1.95-bookworm AS build
WORKDIR /src

# cargo trusts the certificates of the image and the additional ones.
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

# All interfaces of the container. Any Host is accepted until WAGGLE_SERVER__ALLOWED_HOSTS is set. The image has no
# PostgreSQL: WAGGLE_DATABASE__URL and WAGGLE_ADMIN__OPERATOR_KEY are required.
ENV WAGGLE_SERVER__LISTEN=0.0.0.0:8094
EXPOSE 8094

# The volume of audit.spill_dir: a new volume gets the owner of this directory.
RUN install --directory --mode=0700 --owner=65532 --group=65532 /var/lib/waggle

# A numeric id, so that Kubernetes can verify that it is not root. Nothing else is written: the root may be read-only.
USER 65532:65532
WORKDIR /

# The gateway waits up to a minute for its database at startup.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["waggle", "health"]
ENTRYPOINT ["waggle"]
CMD ["serve"]

# Version and revision are given with --label: buildah keeps a layer whose label was made of another argument.
LABEL org.opencontainers.image.title="Waggle" \
    org.opencontainers.image.description="A multi-tenant MCP gateway: hosted agents register what they know, any MCP client reads it." \
    org.opencontainers.image.licenses="MIT OR Apache-2.0" \
    org.opencontainers.image.base.name="docker.io/library/debian:bookworm-slim"
