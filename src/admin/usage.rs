//! `/agents/{agent}/usage`.

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};
use utoipa::{IntoParams, ToSchema};

use super::authority::Authority;
use super::extract::{Params, Segment};
use super::instant;
use super::openapi::Problems;
use super::services::{Answer, App};
use crate::model::fault::Fault;
use crate::model::limits::{UsageInterval, UsageRow};

/// The longest period, by hour and by day.
const LONGEST: [(UsageInterval, Duration); 2] =
    [(UsageInterval::Hour, Duration::days(31)), (UsageInterval::Day, Duration::days(400))];

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct UsageParams {
    /// The beginning of the period, to the hour, or a date in UTC. Default: a day before `to`, or thirty days with `day`.
    #[serde(default, deserialize_with = "instant::deserialize")]
    from: Option<OffsetDateTime>,
    /// The end of the period, to the hour, or a date in UTC. Default: now.
    #[serde(default, deserialize_with = "instant::deserialize")]
    to: Option<OffsetDateTime>,
    /// The size of the buckets.
    #[param(inline)]
    bucket: Option<UsageInterval>,
}

/// The usage of one method in an hour or a day, in UTC.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UsageItem)]
#[serde(rename_all = "camelCase")]
pub(super) struct UsageView {
    /// The beginning of the hour or day.
    #[serde(with = "time::serde::rfc3339")]
    at: OffsetDateTime,
    /// The MCP method, or `other`.
    method: String,
    /// All requests.
    calls: u64,
    /// Failed requests.
    errors: u64,
    /// Requests refused by a rate limit, a quota or a bound on requests in flight.
    denied: u64,
    /// Bytes of request and response bodies.
    bytes: u64,
    bytes_in: u64,
    bytes_out: u64,
}

impl From<UsageRow> for UsageView {
    fn from(UsageRow { at, method, usage, .. }: UsageRow) -> Self {
        Self {
            at,
            method: method.into_owned(),
            calls: usage.calls,
            errors: usage.errors,
            denied: usage.denied,
            bytes: usage.bytes_in.saturating_add(usage.bytes_out),
            bytes_in: usage.bytes_in,
            bytes_out: usage.bytes_out,
        }
    }
}

/// The usage of an agent, oldest first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Usage {
    items: Vec<UsageView>,
}

/// Reads the usage of an agent, by hour or day and by method. The last seconds may be missing.
#[utoipa::path(
    get,
    path = "/admin/v1/agents/{agent}/usage",
    operation_id = "readUsage",
    tag = "Agents",
    params(("agent" = String, Path, description = "The id of the agent"), UsageParams),
    responses((status = 200, description = "The usage", body = Usage), Problems)
)]
pub(super) async fn read(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    Params(params): Params<UsageParams>,
) -> Answer<impl IntoResponse> {
    let agent = authority.agent(&app.identity, &slug).await?;
    let bucket = params.bucket.unwrap_or_default();
    let span = params.span(bucket, app.identity.now())?;
    let rows = app.usage.usage(agent.uid, span, bucket).await?;
    Ok(Json(Usage { items: rows.into_iter().map(UsageView::from).collect() }))
}

impl UsageParams {
    fn span(
        &self,
        bucket: UsageInterval,
        now: OffsetDateTime,
    ) -> Result<(OffsetDateTime, OffsetDateTime), Fault> {
        let usual = match bucket {
            UsageInterval::Hour => Duration::DAY,
            UsageInterval::Day => Duration::days(30),
        };
        let to = self.to.unwrap_or(now);
        let from = self.from.or_else(|| to.checked_sub(usual)).unwrap_or(to);
        let longest =
            LONGEST.iter().find(|(known, _)| *known == bucket).map_or(usual, |(_, longest)| *longest);
        if from > to {
            return Err(Fault::invalid_params("from must not be after to"));
        }
        if to - from > longest {
            let days = longest.whole_days();
            return Err(Fault::invalid_params(format!(
                "from and to may be at most {days} days apart with this bucket"
            )));
        }
        Ok((from.truncate_to_hour(), to))
    }
}
