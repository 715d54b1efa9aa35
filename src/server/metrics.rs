//! `GET /metrics`: the counters of all modules in the formats of Prometheus, for authorized scrapers.
//!
//! Each module counts in atomics of its own, which are collected on a scrape. No label value comes from a client or a
//! tenant's name.

mod answers;
mod connections;
mod format;
mod process;
mod tenants;

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response};
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;

pub(crate) use self::answers::AnswerMeter;
use super::connection_limiter::ConnectionLimiter;
use crate::cache::MemoryBudget;
use crate::catalog::Catalog;
use crate::http::body::Body;
use crate::http::credential::{self, Presented};
use crate::http::operator_keys::OperatorKeys;
use crate::http::origin::FOREIGN_HOST;
use crate::http::problem;
use crate::http::recorder::RequestRecorder;
use crate::identity::Identity;
use crate::mcp::endpoint::{Endpoint, StreamStats};
use crate::model::client_address::ClientAddress;
use crate::model::fault::Fault;
use crate::quota::limits::Limits;
use crate::sources::Leases;
use crate::store::Store;
use crate::telemetry::exposition::{Exposition, Format, Kind};
use crate::telemetry::trace::Tracer;

/// The name of the cache of encoded results, which has metrics of its own.
const RESULTS: &str = "results";

/// Headers that proxies add: a request with one of these was forwarded from another machine.
const FORWARDING_HEADERS: [HeaderName; 4] = [
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("forwarded"),
    HeaderName::from_static("via"),
    HeaderName::from_static("x-real-ip"),
];

/// The sources of all metrics.
pub(crate) struct Metrics {
    /// Credentials and access.
    pub(crate) identity: Arc<Identity>,
    /// Rendering, and content from outside.
    pub(crate) catalog: Arc<Catalog>,
    /// The audit log, and the requests of endpoints.
    pub(crate) recorder: Arc<RequestRecorder>,
    /// Rate limits and requests in flight.
    pub(crate) limits: Arc<Limits>,
    /// The memory of all caches.
    pub(crate) budget: Arc<MemoryBudget>,
    /// Traces, if they are exported.
    pub(crate) tracer: Option<Arc<Tracer>>,
    /// Counts connections to the database.
    pub(crate) store: Store,
    /// The connections of each listener.
    pub(crate) connections: Vec<(&'static str, Arc<ConnectionLimiter>)>,
    /// The leases of connections to content from outside.
    pub(crate) leases: Arc<Leases>,
    /// The operator keys, each of which authorizes a scrape.
    pub(crate) operators: OperatorKeys,
    /// A token that authorizes scrapes only.
    pub(crate) token: Option<SecretString>,
    /// Counts the answers of all surfaces.
    pub(crate) answers: AnswerMeter,
    /// When the gateway started, in seconds since 1970.
    pub(crate) started: f64,
}

/// The origin of a scrape.
pub(super) struct Scraper<'a> {
    /// The headers of the request.
    pub(super) headers: &'a HeaderMap,
    /// The other end of the connection.
    pub(super) peer: IpAddr,
    /// The address of the client, behind trusted proxies.
    pub(super) client: ClientAddress,
    /// Whether the `Host` is not allowed.
    pub(super) foreign_host: bool,
    /// Whether the `Host` is an IP literal or a known name.
    pub(super) has_literal_or_allowed_host: bool,
}

impl Metrics {
    /// Answers a scrape with an operator key or the token, or from this machine without a credential.
    ///
    /// # Errors
    /// [`Fault::Unauthenticated`], charged to the address of the client; [`Fault::RateLimited`];
    /// [`Fault::ForbiddenOrigin`] for a foreign `Host` without a credential that holds.
    pub(super) fn answer(
        &self,
        endpoint: &Endpoint,
        method: &Method,
        scraper: &Scraper<'_>,
    ) -> Result<Response<Body>, Fault> {
        self.admit(scraper)?;
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Ok(problem::method_not_allowed(Some("GET, HEAD")).map(Body::Axum));
        }
        let format = format::negotiate(scraper.headers);
        let families = self.render(format, endpoint);
        let mut response = Response::new(Body::from(Bytes::from(families)));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(response)
    }

    fn admit(&self, scraper: &Scraper<'_>) -> Result<(), Fault> {
        let (presented, fault) = match credential::read(scraper.headers, &self.operators) {
            Ok(Presented::Operator(_)) => return Ok(()),
            Ok(Presented::None) => (false, Fault::Unauthenticated),
            Ok(_) => (true, Fault::Unauthenticated),
            Err(fault) => (true, fault),
        };
        if presented && self.is_token(scraper.headers) {
            return Ok(());
        }
        if !presented && scraper.is_local() {
            return if scraper.has_literal_or_allowed_host { Ok(()) } else { Err(FOREIGN_HOST) };
        }
        self.limits.charge_failure(scraper.client)?;
        Err(if scraper.foreign_host { FOREIGN_HOST } else { fault })
    }

    /// Whether a request presents the token as its only credential.
    fn is_token(&self, headers: &HeaderMap) -> bool {
        let shown = credential::only_bearer(headers).map(str::as_bytes);
        let token = self.token.as_ref().map(|token| token.expose_secret().as_bytes());
        shown.zip(token).is_some_and(|(shown, token)| shown.ct_eq(token).into())
    }

    fn render(&self, format: Format, endpoint: &Endpoint) -> Vec<u8> {
        let mut out = Exposition::new(format);
        process::render(&mut out, self.started);
        self.answers.render(&mut out);
        self.requests(&mut out);
        tenants::render(&mut out, &self.recorder);
        streams(&mut out, endpoint.stream_stats());
        self.refusals(&mut out);
        feed(&mut out, endpoint);
        self.caches(&mut out);
        self.look_ups(&mut out);
        self.fetches(&mut out);
        self.connections(&mut out);
        self.audit(&mut out);
        self.traces(&mut out);
        out.finish()
    }

    fn requests(&self, out: &mut Exposition) {
        let help = "Requests of MCP endpoints by method, era and outcome.";
        let mut family = out.family("waggle_requests_total", Kind::Counter, help);
        for requests in self.recorder.meter().requests() {
            let labels = [("method", requests.method), ("era", requests.era), ("outcome", requests.outcome)];
            family.sample(&labels, requests.count);
        }
        let help = "Duration of requests of MCP endpoints; of streams, until they were opened.";
        let mut family = out.family("waggle_request_duration_seconds", Kind::Histogram, help);
        for took in self.recorder.meter().durations() {
            family.durations(&[("method", took.method)], &took.durations);
        }
    }

    fn refusals(&self, out: &mut Exposition) {
        let stats = self.limits.stats();
        let help = "Requests refused by a rate limit, by its scope.";
        let mut family = out.family("waggle_rate_limited_total", Kind::Counter, help);
        for (scope, count) in stats.refused {
            family.sample(&[("scope", scope.as_str())], count);
        }
        let help = "Requests refused since too many of their key or agent were in flight.";
        out.counter("waggle_shed_total", help, stats.shed);
        let help = "Bytes reserved for request bodies, and for long answers of the administration API.";
        out.gauge("waggle_upload_bytes", help, stats.upload_bytes);
        let help = "Rate limiters in memory, by subject.";
        let mut family = out.family("waggle_limiters", Kind::Gauge, help);
        family.sample(&[("of", "holders")], stats.holders);
        family.sample(&[("of", "addresses")], stats.addresses);
    }

    fn caches(&self, out: &mut Exposition) {
        let (caches, pinned) = (self.budget.stats(), self.identity.pinned_bytes());
        let help = "Bytes that all caches may take together.";
        out.gauge("waggle_cache_budget_bytes", help, self.budget.limit());
        let help = "Bytes of the budget that are not used, since the process has too much memory resident.";
        out.gauge("waggle_cache_withheld_bytes", help, self.budget.withheld());
        let help = "Entries of caches.";
        let mut family = out.family("waggle_cache_entries", Kind::Gauge, help);
        for cache in &caches {
            family.sample(&[("cache", cache.name)], cache.entries);
        }
        let help = "Bytes of caches; of the directory and the filter of issued keys, which are not evicted.";
        let mut family = out.family("waggle_cache_bytes", Kind::Gauge, help);
        for (cache, bytes) in caches.iter().map(|cache| (cache.name, cache.bytes)).chain(pinned) {
            family.sample(&[("cache", cache)], bytes);
        }
        let help = "Look-ups in caches, by hit or miss.";
        let mut family = out.family("waggle_cache_look_ups_total", Kind::Counter, help);
        for cache in &caches {
            family.sample(&[("cache", cache.name), ("outcome", "hit")], cache.hits);
            family.sample(&[("cache", cache.name), ("outcome", "miss")], cache.misses);
        }
        let help = "Entries that were evicted from caches for others.";
        let mut family = out.family("waggle_cache_evictions_total", Kind::Counter, help);
        for cache in &caches {
            family.sample(&[("cache", cache.name)], cache.evictions);
        }
        let help = "Look-ups of encoded results, by hit or miss.";
        let mut family = out.family("waggle_results_total", Kind::Counter, help);
        for results in caches.iter().filter(|cache| cache.name == RESULTS) {
            family.sample(&[("outcome", "hit")], results.hits);
            family.sample(&[("outcome", "miss")], results.misses);
        }
    }

    fn look_ups(&self, out: &mut Exposition) {
        let identity = self.identity.stats();
        let help = "Free permits for rendering.";
        out.gauge("waggle_render_places_free", help, self.catalog.renderer().free());
        let help = "Look-ups of keys in the database.";
        out.counter("waggle_key_look_ups_total", help, identity.key_look_ups);
        if let Some(expiring) = identity.expiring_keys {
            let help = "Keys that expire within 14 days, by their own expiry or their tenant's `maxKeyAgeDays`, except those with a successor that is valid for longer; the log names them.";
            out.gauge("waggle_keys_expiring", help, expiring);
        }
    }

    fn connections(&self, out: &mut Exposition) {
        let help = "Open connections, by listener.";
        let mut family = out.family("waggle_connections", Kind::Gauge, help);
        for (listener, limiter) in &self.connections {
            family.sample(&[("listener", listener)], limiter.open());
        }
        let help = "Connections refused by the limit of their address, by listener.";
        let mut family = out.family("waggle_connections_refused_total", Kind::Counter, help);
        for (listener, limiter) in &self.connections {
            family.sample(&[("listener", listener)], limiter.refused());
        }
        let (in_use, idle) = self.store.connections();
        let help = "Connections to the database.";
        let mut family = out.family("waggle_database_connections", Kind::Gauge, help);
        family.sample(&[("state", "in_use")], in_use);
        family.sample(&[("state", "idle")], idle);
        let help = "Connections that the pool may open.";
        out.gauge("waggle_database_connections_limit", help, self.store.connection_limit());
        let help = "Waits for a connection to the database that timed out (`database.acquire_seconds`).";
        out.counter("waggle_database_acquire_timeouts_total", help, self.store.acquisitions_timed_out());
    }

    fn fetches(&self, out: &mut Exposition) {
        let stats = self.catalog.fetcher().stats();
        let help =
            "Reads of content from connections, by where it was: in memory, fresh or stale, or fetched.";
        let mut family = out.family("waggle_source_reads_total", Kind::Counter, help);
        for (from, count) in stats.reads {
            family.sample(&[("from", from)], count);
        }
        let help = "Fetches of content from connections, by outcome.";
        let mut family = out.family("waggle_source_fetches_total", Kind::Counter, help);
        for (outcome, count) in stats.fetches {
            family.sample(&[("outcome", outcome)], count);
        }
        let help =
            "Watched content: looked at, reported by its source, changed, and answered as it was found.";
        let mut family = out.family("waggle_source_watched_total", Kind::Counter, help);
        for (event, count) in stats.watched {
            family.sample(&[("event", event)], count);
        }
        let help = "Leases of connections that this replica holds.";
        out.gauge("waggle_source_leases", help, self.leases.held().borrow().len());
        let help = "Fetches of content from connections in progress.";
        out.gauge("waggle_source_fetches", help, stats.in_flight);
        connections::render(out, self.catalog.fetcher().connections());
    }

    fn traces(&self, out: &mut Exposition) {
        let stats = self.tracer.as_ref().map(|tracer| tracer.stats()).unwrap_or_default();
        let help = "Spans of traces: accepted by the collector, refused or lost, or dropped since the queue was full.";
        let mut family = out.family("waggle_trace_spans_total", Kind::Counter, help);
        family.sample(&[("outcome", "exported")], stats.exported);
        family.sample(&[("outcome", "failed")], stats.failed);
        family.sample(&[("outcome", "dropped")], stats.dropped);
        let help = "Spans that wait to be exported.";
        out.gauge("waggle_trace_spans_queued", help, stats.queued);
    }

    fn audit(&self, out: &mut Exposition) {
        let audit = self.recorder.audit();
        let stats = audit.stats();
        let help = "Audit events lost: neither the database nor a spill file took them in time.";
        out.counter("waggle_audit_lost_total", help, stats.lost);
        let help = "Rows added to the audit log.";
        out.counter("waggle_audit_rows_total", help, stats.written);
        let help = "Requests that share an aggregated audit row.";
        out.counter("waggle_audit_aggregated_total", help, stats.aggregated);
        let help = "Audit rows that the database refused for their content.";
        out.counter("waggle_audit_quarantined_total", help, stats.quarantined);
        let help = "Corrupt records of spill files.";
        out.counter("waggle_audit_spill_damaged_total", help, stats.damaged);
        let help = "Audit events in memory only, neither in the log nor in a spill file.";
        out.gauge("waggle_audit_waiting", help, stats.waiting);
        let help = "Events that may be queued (audit.queue); further ones are lost.";
        out.gauge("waggle_audit_waiting_limit", help, audit.capacity());
        let help = "Seconds since the oldest of these events was made.";
        out.gauge("waggle_audit_oldest_seconds", help, stats.oldest.as_secs_f64());
        let help = "Duration of writes of audit events that wait in memory, until these are in the log or in a spill file.";
        out.family("waggle_audit_write_seconds", Kind::Histogram, help).durations(&[], &audit.writes());
        let help = "Bytes of spill files that are not in the audit log yet.";
        out.gauge("waggle_audit_spilled_bytes", help, stats.spilled_bytes);
        let help = "Whether there is a spill file; without one, rows wait in memory while the database is unreachable.";
        out.gauge("waggle_audit_spill_file", help, u8::from(stats.has_file));
    }
}

fn feed(out: &mut Exposition, endpoint: &Endpoint) {
    let stats = endpoint.feed_stats();
    let help = "Time since the change feed was last proven current; +Inf before the first proof.";
    let never = stats.unproven == std::time::Duration::MAX;
    let unproven = if never { f64::INFINITY } else { stats.unproven.as_secs_f64() };
    out.gauge("waggle_feed_unproven_seconds", help, unproven);
    let help = "Changes of the database's timeline, by a restore or a failover.";
    out.counter("waggle_feed_timeline_changes_total", help, stats.timeline_changes);
    let help = "Offset of the database's clock from the local clock.";
    out.gauge("waggle_clock_offset_seconds", help, stats.clock_offset.as_seconds_f64());
    let help = "Time since the oldest transaction in progress was first seen, in any database of the server.";
    let oldest = stats.oldest_transaction.as_secs_f64();
    out.gauge("waggle_database_oldest_transaction_seconds", help, oldest);
    let help = "Sweeps of the change log, by outcome.";
    let mut family = out.family("waggle_feed_sweeps_total", Kind::Counter, help);
    family.sample(&[("outcome", "ok")], stats.sweeps);
    family.sample(&[("outcome", "failed")], stats.failed_sweeps);
    let help = "Cached scopes that were brought up to date.";
    out.counter("waggle_feed_catch_ups_total", help, stats.catch_ups);
    let help = "Time from a change until its events could be sent, for agents with streams.";
    out.family("waggle_event_lag_seconds", Kind::Histogram, help).durations(&[], &stats.event_lag);
}

fn streams(out: &mut Exposition, streams: [StreamStats; 2]) {
    let help = "Open streams, by era.";
    let mut family = out.family("waggle_streams", Kind::Gauge, help);
    for stats in streams {
        family.sample(&[("era", stats.era)], stats.open);
    }
    let help = "Events sent on streams, by era.";
    let mut family = out.family("waggle_events_total", Kind::Counter, help);
    for stats in streams {
        family.sample(&[("era", stats.era)], stats.notified);
    }
}

impl Scraper<'_> {
    /// Whether the request was sent from this machine, and not forwarded by a proxy.
    fn is_local(&self) -> bool {
        self.peer.to_canonical().is_loopback()
            && !FORWARDING_HEADERS.iter().any(|name| self.headers.contains_key(name))
    }
}
