//! The span of a request: the fields that every log event inside it carries.
//!
//! A [`RequestSpan`] is current while the future of its request is polled, and its fields are formatted when an event is
//! logged. A span of `tracing` would format them for every request, whether anything is logged or not.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::future::Either;
use http::Method;
use serde_json::{Deserializer, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::field::{RecordFields, VisitOutput};
use tracing_subscriber::fmt::format::{DefaultVisitor, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::active_trace::{ActiveTrace, RequestTrace};
use crate::model::ids::TenantId;

/// The maximum length of `X-Request-Id`.
const REQUEST_ID_BYTES: usize = 128;
/// At least the maximum length of an agent id.
const AGENT_BYTES: usize = 64;
/// The field in which sqlx logs the whole text of a statement that is slow. Its first words are in `summary`.
const STATEMENT: &str = "db.statement";
/// The same in a line of JSON, where a quotation mark in a value is escaped.
const STATEMENT_MEMBER: &str = "\"db.statement\":";

tokio::task_local! {
    static CURRENT: RefCell<RequestSpan>;
}

/// The fields that every log event inside a request carries, as far as they are known.
#[derive(Debug, Clone)]
pub struct RequestSpan {
    request_id: InlineText<REQUEST_ID_BYTES>,
    agent: InlineText<AGENT_BYTES>,
    tenant: Option<TenantId>,
    method: Cow<'static, str>,
    trace: RequestTrace,
    /// The child span of the trace that is polled.
    child: u64,
}

impl RequestSpan {
    /// The span of a request. Its method is that of HTTP until a message is parsed.
    pub fn new(request_id: &str, method: &Method) -> Self {
        let method = match *method {
            Method::GET => "GET",
            Method::POST => "POST",
            Method::PUT => "PUT",
            Method::PATCH => "PATCH",
            Method::DELETE => "DELETE",
            Method::HEAD => "HEAD",
            Method::OPTIONS => "OPTIONS",
            _ => "other",
        };
        Self {
            request_id: InlineText::new(request_id),
            agent: InlineText::new(""),
            tenant: None,
            method: Cow::Borrowed(method),
            trace: RequestTrace::off(None),
            child: 0,
        }
    }

    /// The span with the trace of its request.
    #[must_use]
    pub fn with_trace(self, trace: RequestTrace) -> Self {
        Self { trace, ..self }
    }

    /// Runs a future inside the span. It is pinned by the caller, so that it is not moved.
    pub async fn run<T>(self, work: Pin<&mut impl Future<Output = T>>) -> T {
        CURRENT.scope(RefCell::new(self), work).await
    }

    /// Visits the fields that are known.
    fn visit(&self, mut each: impl FnMut(&'static str, &str) -> fmt::Result) -> fmt::Result {
        let tenant = self.tenant.map(|tenant| tenant.to_string()).unwrap_or_default();
        let fields = [
            ("request_id", self.request_id.as_str()),
            ("agent", self.agent.as_str()),
            ("tenant", &tenant),
            ("method", &self.method),
        ];
        fields
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .try_for_each(|(name, value)| each(name, value))?;
        self.trace.id.map_or(Ok(()), |id| each("trace_id", &format!("{id:032x}")))
    }
}

/// Visits the fields of the current span, if there is one.
fn visit_current(each: impl FnMut(&'static str, &str) -> fmt::Result) -> fmt::Result {
    CURRENT.try_with(|span| span.borrow().visit(each)).unwrap_or(Ok(()))
}

/// Runs a future that a request spawns inside the request's span. Not `async`, which would have space for it twice.
pub fn inherit<T>(work: impl Future<Output = T>) -> impl Future<Output = T> {
    match CURRENT.try_with(|span| span.borrow().clone()) {
        Ok(span) => Either::Left(CURRENT.scope(RefCell::new(span), work)),
        Err(_) => Either::Right(work),
    }
}

/// Records the agent that the current request names.
pub fn record_agent(agent: &str) {
    record(|span| span.agent = InlineText::new(agent));
}

/// Records the tenant of the agent that the current request may use.
pub fn record_tenant(tenant: TenantId) {
    record(|span| span.tenant = Some(tenant));
}

/// Records the method of the current request.
pub fn record_method(method: impl Into<Cow<'static, str>>) {
    record(|span| span.method = method.into());
}

/// The trace of the current request, if it may be exported.
pub fn active_trace() -> Option<Arc<ActiveTrace>> {
    CURRENT.try_with(|span| span.borrow().trace.active().cloned()).ok().flatten()
}

/// The id of the trace of the current request.
pub(super) fn trace_id() -> Option<u128> {
    CURRENT.try_with(|span| span.borrow().trace.id).ok().flatten()
}

/// Changes the trace of the current request.
pub(super) fn change_trace(change: impl FnOnce(&mut RequestTrace)) {
    record(|span| change(&mut span.trace));
}

/// The child span that is polled; `None` outside of all.
pub(super) fn current_child() -> Option<u64> {
    CURRENT.try_with(|span| span.borrow().child).ok().filter(|child| *child != 0)
}

/// Makes a child span the polled one, 0 for none; returns the one before.
pub(super) fn enter_child(child: u64) -> u64 {
    CURRENT.try_with(|span| std::mem::replace(&mut span.borrow_mut().child, child)).unwrap_or(0)
}

fn record(change: impl FnOnce(&mut RequestSpan)) {
    CURRENT.try_with(|span| change(&mut span.borrow_mut())).ok();
}

/// Formats the fields of an event as text, except the texts of statements, then those of the current span.
#[derive(Debug, Default)]
pub(super) struct TextFields;

/// Visits all fields but the text of a statement.
struct WithoutStatement<'a>(DefaultVisitor<'a>);

impl Visit for WithoutStatement<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() != STATEMENT {
            self.0.record_str(field, value);
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.0.record_error(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.record_debug(field, value);
    }
}

impl<'writer> FormatFields<'writer> for TextFields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut visitor = WithoutStatement(DefaultVisitor::new(writer.by_ref(), true));
        fields.record(&mut visitor);
        visitor.0.finish()?;
        visit_current(|name, value| write!(writer, " {name}={value:?}"))
    }
}

/// Formats an event as a JSON object that ends with the fields of the current span.
pub(super) struct JsonLines<F>(pub(super) F);

impl<S, N, F> FormatEvent<S, N> for JsonLines<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        self.0.format_event(context, Writer::new(&mut line), event)?;
        let line = without_statement(&line).unwrap_or(line);
        let object = line.trim_end().strip_suffix('}').unwrap_or(&line);
        writer.write_str(object)?;
        visit_current(|name, value| write!(writer, ",\"{name}\":{}", Value::from(value)))?;
        writer.write_str("}\n")
    }
}

/// A line of JSON without the text of a statement, if it has one.
fn without_statement(line: &str) -> Option<String> {
    let (before, rest) = line.split_once(STATEMENT_MEMBER)?;
    let mut values = Deserializer::from_str(rest).into_iter::<String>();
    values.next()?.ok()?;
    let after = rest.get(values.byte_offset()..)?.trim_start_matches(',');
    Some(format!("{before}{after}"))
}

/// A text of at most `N` bytes, stored in place.
#[derive(Clone)]
struct InlineText<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> InlineText<N> {
    /// The text, truncated at a character boundary.
    fn new(text: &str) -> Self {
        let length = text.floor_char_boundary(N);
        let mut bytes = [0; N];
        if let (Some(target), Some(source)) = (bytes.get_mut(..length), text.as_bytes().get(..length)) {
            target.copy_from_slice(source);
        }
        Self { bytes, length }
    }

    fn as_str(&self) -> &str {
        self.bytes.get(..self.length).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
    }
}

impl<const N: usize> fmt::Debug for InlineText<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use http::Method;
    use tracing_subscriber::filter::LevelFilter;
    use tracing_subscriber::layer::SubscriberExt;
    use uuid::Uuid;

    use super::{
        InlineText, RequestSpan, inherit, record_agent, record_method, record_tenant, visit_current,
    };
    use crate::model::ids::TenantId;

    fn fields() -> Vec<String> {
        let mut fields = Vec::new();
        visit_current(|name, value| {
            fields.push(format!("{name}={value}"));
            Ok(())
        })
        .unwrap();
        fields
    }

    #[tokio::test]
    async fn a_span_has_the_recorded_fields() {
        let work = pin!(async {
            let first = fields();
            record_agent("research");
            record_tenant(TenantId(Uuid::nil()));
            record_method("resources/read");
            let spawned = tokio::spawn(inherit(async { fields() })).await.unwrap();
            (first, fields(), spawned)
        });
        let (first, last, spawned) = RequestSpan::new("r-1", &Method::POST).run(work).await;
        assert_eq!(first, ["request_id=r-1", "method=POST"]);
        let all = [
            "request_id=r-1",
            "agent=research",
            "tenant=00000000-0000-0000-0000-000000000000",
            "method=resources/read",
        ];
        assert_eq!(last, all);
        assert_eq!(spawned, all);
        assert_eq!(fields(), Vec::<String>::new());
    }

    #[test]
    fn an_inherited_span_does_not_double_the_size_of_a_future() {
        let large = async {
            let kept = [0_u8; 4096];
            tokio::task::yield_now().await;
            kept.len()
        };
        let size = size_of_val(&large);
        assert!(size_of_val(&inherit(large)) < size + 1024);
    }

    fn run_without_waiting(id: &str) {
        let work = pin!(async {
            record_agent("research");
            record_tenant(TenantId(Uuid::nil()));
            record_method("resources/read");
            tracing::debug!("filtered out");
        });
        let run = pin!(RequestSpan::new(id, &Method::POST).run(work));
        assert!(run.poll(&mut Context::from_waker(Waker::noop())).is_ready());
    }

    #[test]
    fn a_span_without_an_interested_subscriber_allocates_nothing() {
        let subscriber = tracing_subscriber::registry().with(LevelFilter::WARN);
        tracing::subscriber::with_default(subscriber, || {
            run_without_waiting("registers the call site");
            let counted = allocation_counter::measure(|| run_without_waiting("r-1"));
            assert_eq!(counted.count_total, 0);
        });
    }

    #[test]
    fn inline_text_is_cut_between_characters() {
        assert_eq!(InlineText::<8>::new("research").as_str(), "research");
        assert_eq!(InlineText::<8>::new("researcä").as_str(), "researc");
        assert_eq!(InlineText::<8>::new("").as_str(), "");
    }
}
