//! `/agents/{agent}/usage`.

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};
use utoipa::{IntoParams, ToSchema};

use super::authority::Authority;
use super::extract::{Params, Segment};
use super::openapi::Problems;
use super::{Answer, App};
use crate::model::fault::Fault;
use crate::model::usage::{UsageInterval, UsageRow};

/// Of how long one may ask, by the hour and by the day.
const LONGEST: [(UsageInterval, Duration); 2] =
    [(UsageInterval::Hour, Duration::days(31)), (UsageInterval::Day, Duration::days(400))];

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct UsageParams {
    /// Since when, to the hour; a day before `to` unless given, thirty by the day.
    #[serde(default, with = "time::serde::rfc3339::option")]
    from: Option<OffsetDateTime>,
    /// Until when, to the hour; now unless given.
    #[serde(default, with = "time::serde::rfc3339::option")]
    to: Option<OffsetDateTime>,
    /// In which steps.
    #[param(inline)]
    bucket: Option<UsageInterval>,
}

/// What was used in an hour or a day, in UTC, by one method.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UsageItem)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shown {
    /// When the hour or day began.
    #[serde(with = "time::serde::rfc3339")]
    at: OffsetDateTime,
    /// `other` for whatever is no method of MCP.
    method: String,
    /// Requests, whatever became of them.
    calls: u64,
    /// Those that failed.
    errors: u64,
    /// Those that were refused for a rate, a quota or a bound on what is under way.
    denied: u64,
    /// Bytes of bodies and answers.
    bytes: u64,
    bytes_in: u64,
    bytes_out: u64,
}

impl From<UsageRow> for Shown {
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

/// What was used of an agent, oldest first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Usage {
    items: Vec<Shown>,
}

/// Tells what was used of an agent, by hour or day and by method. What was used in the last seconds may not be in it yet.
#[utoipa::path(
    get,
    path = "/admin/v1/agents/{agent}/usage",
    operation_id = "readUsage",
    tag = "Agents",
    params(("agent" = String, Path, description = "The id of the agent"), UsageParams),
    responses((status = 200, description = "What was used", body = Usage), Problems)
)]
pub(super) async fn read(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    Params(params): Params<UsageParams>,
) -> Answer<impl IntoResponse> {
    let agent = authority.agent(&app.registry, &slug).await?;
    let bucket = params.bucket.unwrap_or_default();
    let span = params.span(bucket, app.registry.now())?;
    let rows = app.usage.usage(agent.uid, span, bucket).await?;
    Ok(Json(Usage { items: rows.into_iter().map(Shown::from).collect() }))
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
                "from and to may be {days} days apart with this bucket"
            )));
        }
        Ok((from.truncate_to_hour(), to))
    }
}
