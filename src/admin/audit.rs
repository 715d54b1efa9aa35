//! `/audit`: queries of the audit log, and checkpoints of its chains.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::try_unfold;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use serde::Deserialize;
use time::OffsetDateTime;
use utoipa::IntoParams;
use uuid::Uuid;

use super::audit_form::AuditFormat;
use super::authority::Authority;
use super::extract::{Nothing, Params};
use super::instant;
use super::openapi::Problems;
use super::page::{Items, PageParams};
use super::services::{Admin, Answer, App};
use crate::http::request_id::is_request_id;
use crate::model::audit::checkpoint::Checkpoint;
use crate::model::audit::encoding;
use crate::model::audit::event::Outcome;
use crate::model::audit::row::{AgentFilter, AuditFilter, AuditPosition, AuditRow};
use crate::model::caller::Payer;
use crate::model::fault::{Fault, shortened};
use crate::model::ids::KeyId;

/// Rows per chunk of a stream.
const PIECE: i64 = 500;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditQuery {
    /// The agent as named in requests, refused ones included, or the `agentId` of a row.
    agent: Option<String>,
    /// The tenant.
    tenant: Option<String>,
    /// The id of the key.
    key: Option<Uuid>,
    /// The full method.
    method: Option<String>,
    /// `ok`, or the name of the error.
    outcome: Option<String>,
    /// The id of the request: the `X-Request-Id` of its answer.
    request: Option<String>,
    /// Not before this time (RFC 3339), or this date in UTC.
    from: Option<String>,
    /// Before this time (RFC 3339), or this date in UTC.
    to: Option<String>,
    /// The maximum number of items on the page.
    #[param(minimum = 1, maximum = 500, default = 100)]
    limit: Option<i64>,
    /// The `nextCursor` of the previous page.
    cursor: Option<String>,
}

/// Reads the audit log, newest row first.
///
/// The operator reads all rows, an owner those of its tenant, an agent key with the scope `audit` those of its agent. With
/// `Accept: application/x-ndjson` or `text/csv` all rows are sent as one stream, without pages.
#[utoipa::path(
    get,
    path = "/admin/v1/audit",
    operation_id = "readAudit",
    tag = "Audit",
    params(AuditQuery),
    responses((status = 200, description = "A page of rows, or all of them", content(
        (Items<AuditRow> = "application/json"), (String = "application/x-ndjson"), (String = "text/csv")
    )), Problems)
)]
pub(super) async fn read(
    State(app): App,
    authority: Authority,
    Params(query): Params<AuditQuery>,
    headers: HeaderMap,
) -> Answer<Response> {
    let (form, page) = (AuditFormat::of(&headers), PageParams::new(query.limit, query.cursor.clone()));
    let filter = filter(&app, &authority, &query).await?;
    if form.is_some() && page != PageParams::default() {
        return Err(Fault::invalid_params("a stream has no pages: omit limit and cursor").into());
    }
    let agent = filter.agent.as_ref().map(AgentFilter::fingerprint);
    let uid = agent.or(filter.tenant.map(|tenant| tenant.0)).unwrap_or_default();
    let page = page.verify(&app.cursor_signer, "audit", uid)?;
    let intake = &authority.call().intake;
    let _permit = intake.wait(app.queries.acquire_audit_read(intake.payer())).await?;
    let sees_hidden = authority.audit()?.sees_hidden();
    if let Some(form) = form {
        let rows = stream((Arc::clone(&app), intake.payer()), filter, (form, sees_hidden)).await?;
        let body = Body::from_stream(rows);
        return Ok(([(CONTENT_TYPE, form.mime_type())], body).into_response());
    }
    let wrong = || Fault::invalid_params("cursor is not valid for this list");
    let after = (!page.after.is_empty()).then(|| AuditPosition::parse(&page.after).ok_or_else(wrong));
    let rows = app.audit.log.rows(&filter, after.transpose()?, page.read()).await.map_err(Fault::from)?;
    app.audit.recent.omit_repeated(authority.call(), &query);
    Ok(page.answer(rows, |row| row.position().to_string(), |row| shown(row, sees_hidden)).into_response())
}

/// Creates a checkpoint: the last row of every chain of the audit log.
///
/// Stored out of reach of the owner of the database, it proves with `waggle audit verify --against` that earlier rows are
/// present and unchanged.
#[utoipa::path(
    post,
    path = "/admin/v1/audit/checkpoint",
    operation_id = "checkpointAudit",
    tag = "Audit",
    responses((status = 200, description = "The checkpoint", body = Checkpoint), Problems)
)]
pub(super) async fn checkpoint(
    State(app): App,
    authority: Authority,
    _: Params<Nothing>,
) -> Answer<Json<Checkpoint>> {
    authority.operator()?;
    Ok(Json(app.audit.log.checkpoint().await.map_err(Fault::from)?))
}

/// The filter of the request, restricted to what the caller may read.
async fn filter(app: &Admin, authority: &Authority, query: &AuditQuery) -> Result<AuditFilter, Fault> {
    let mut filter = AuditFilter {
        key: query.key.map(KeyId),
        method: query.method.as_deref().map(|method| encoding::line(method).into_owned()),
        outcome: outcome(query.outcome.as_deref())?,
        request: request(query.request.as_deref())?,
        from: time("from", query.from.as_deref())?,
        to: time("to", query.to.as_deref())?,
        ..AuditFilter::default()
    };
    let sees = authority.audit()?;
    filter.tenant = sees.tenant;
    if let Some(slug) = &query.tenant {
        filter.tenant = Some(sees.tenant_called(&app.identity, slug).await?);
    }
    let Some(name) = &query.agent else {
        filter.agent = sees.only_agent()?;
        return Ok(filter);
    };
    filter.agent = Some(sees.agents_named(&app.identity, name).await?);
    Ok(filter)
}

fn outcome(name: Option<&str>) -> Result<Option<String>, Fault> {
    match name {
        Some(name) if Outcome::parse(name).is_none() => Err(Fault::invalid_params(format!(
            "unknown outcome: {}; expected ok, the name of a failure such as unauthenticated, or ended:shutdown",
            shortened(name)
        ))),
        known => Ok(known.map(str::to_owned)),
    }
}

fn request(id: Option<&str>) -> Result<Option<String>, Fault> {
    match id {
        Some(id) if !is_request_id(id.as_bytes()) => Err(Fault::invalid_params(
            "request is not the id of a request: expected 1 to 128 visible ASCII characters",
        )),
        known => Ok(known.map(str::to_owned)),
    }
}

fn time(name: &str, text: Option<&str>) -> Result<Option<OffsetDateTime>, Fault> {
    let wrong = || Fault::invalid_params(format!("{name} is not {}", instant::EXPECTED));
    text.map(|text| instant::parse(text).ok_or_else(wrong)).transpose()
}

/// A row as a reader is shown it.
fn shown(row: AuditRow, sees_hidden: bool) -> AuditRow {
    if sees_hidden { row } else { row.without_hidden() }
}

/// The next chunk of a stream.
enum Chunk {
    /// These rows, with the header of the format.
    First(Vec<AuditRow>),
    /// Rows after this position, which are read when the client has taken those before.
    After(AuditPosition),
    /// None: all rows are sent.
    End,
}

/// All rows, in chunks, as fast as the client reads them. The first chunk is read before the answer begins, so that a database
/// that is away is an error and no broken answer. Each further one has the permits of a read of its own.
async fn stream(
    (app, payer): (Arc<Admin>, Payer),
    filter: AuditFilter,
    (form, sees_hidden): (AuditFormat, bool),
) -> Result<impl Stream<Item = Result<Bytes, std::io::Error>>, Fault> {
    let first = Chunk::First(app.audit.log.rows(&filter, None, PIECE).await.map_err(Fault::from)?);
    Ok(try_unfold((app, filter, first), move |(app, filter, chunk)| async move {
        let (rows, mut out) = match chunk {
            Chunk::First(rows) => (rows, form.head()),
            Chunk::After(last) => {
                let rows = chunk_after(&app, payer, &filter, last).await;
                (rows.map_err(std::io::Error::other)?, Vec::new())
            }
            Chunk::End => return Ok(None),
        };
        let more = i64::try_from(rows.len()).is_ok_and(|count| count == PIECE);
        let next = rows.last().filter(|_| more).map_or(Chunk::End, |last| Chunk::After(last.position()));
        for row in rows {
            form.write(&mut out, &shown(row, sees_hidden));
        }
        Ok(Some((Bytes::from(out), (app, filter, next))))
    }))
}

async fn chunk_after(
    app: &Admin,
    payer: Payer,
    filter: &AuditFilter,
    last: AuditPosition,
) -> Result<Vec<AuditRow>, Fault> {
    let _read = app.queries.acquire_audit_read(payer).await?;
    let _query = app.queries.acquire(payer).await?;
    Ok(app.audit.log.rows(filter, Some(last), PIECE).await?)
}
