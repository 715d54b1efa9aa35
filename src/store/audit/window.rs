//! The periods in which rows that match a filter are looked for, each earlier and longer than the one before.
//!
//! The indexes of the log say which groups of neighboring rows may match, in no order. A filter that matches often
//! therefore reads a short period, and one that matches rarely reads few groups of a long one.

use sqlx::PgConnection;
use time::{Duration, OffsetDateTime};

use crate::model::audit::row::{AuditFilter, AuditPosition};
use crate::store::StoreError;

/// Number of rows in the first window.
const FIRST: i64 = 4_096;
/// How much longer than all before it a window is.
const GROWTH: i32 = 8;
/// Counts as the length of all windows so far if they are shorter.
const SHORTEST: Duration = Duration::SECOND;

/// A period of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    /// The start, if bounded.
    pub(super) from: Option<OffsetDateTime>,
    /// The end, exclusive, if bounded.
    pub(super) to: Option<OffsetDateTime>,
    /// The period of all windows, if it has earlier ones.
    until: Option<Until>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Until {
    /// The newest row of the first window.
    newest: OffsetDateTime,
    /// The oldest row of the last window.
    oldest: OffsetDateTime,
}

impl Window {
    /// The first window after a position: the whole period if all its rows match, or if they are few.
    pub(super) async fn newest(
        connection: &mut PgConnection,
        filter: &AuditFilter,
        after: Option<AuditPosition>,
    ) -> Result<Self, StoreError> {
        let whole = Self { from: filter.from, to: filter.to, until: None };
        if filter.matches_every_row() {
            return Ok(whole);
        }
        let bounds = sqlx::query!(
            "select
                (select at from audit_log
                    where ($1::timestamptz is null or at >= $1) and ($2::timestamptz is null or at < $2)
                    and ($3::timestamptz is null or at <= $3) order by at desc limit 1) as newest,
                (select at from audit_log
                    where ($1::timestamptz is null or at >= $1) and ($2::timestamptz is null or at < $2)
                    and ($3::timestamptz is null or at <= $3) order by at desc offset $4 limit 1) as first,
                (select at from audit_log
                    where ($1::timestamptz is null or at >= $1) order by at limit 1) as oldest",
            filter.from,
            filter.to,
            after.map(|after| after.at),
            FIRST,
        )
        .fetch_one(connection)
        .await?;
        let first = bounds.newest.zip(bounds.first).zip(bounds.oldest);
        Ok(first.map_or(whole, |((newest, first), oldest)| Self {
            from: Some(first),
            until: Some(Until { newest, oldest }),
            ..whole
        }))
    }

    /// The window before this one.
    pub(super) fn earlier(self) -> Option<Self> {
        let (from, until) = self.from.zip(self.until)?;
        let span = (until.newest - from).max(SHORTEST) * GROWTH;
        let next = from.checked_sub(span).filter(|next| *next > until.oldest);
        (from > until.oldest).then(|| Self {
            from: Some(next.unwrap_or(until.oldest)),
            to: Some(from),
            until: Some(until),
        })
    }

    /// Whether there is a window before this one.
    pub(super) fn has_earlier(self) -> bool {
        self.earlier().is_some()
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::{Until, Window};

    #[test]
    fn windows_grow_and_cover_the_period_without_gaps() {
        let (newest, oldest) = (datetime!(2026-07-28 12:00 UTC), datetime!(2026-07-01 00:00 UTC));
        let first = datetime!(2026-07-28 11:59:59.9 UTC);
        let start = Window { from: Some(first), to: None, until: Some(Until { newest, oldest }) };
        let windows: Vec<_> =
            std::iter::successors(Some(start), |window| window.earlier()).take(100).collect();
        assert!(windows.is_sorted_by(|later, earlier| later.from == earlier.to));
        assert_eq!(windows.last().and_then(|last| last.from), Some(oldest));
        assert_eq!(windows.len(), 8);
        let whole = Window { from: None, to: None, until: None };
        assert_eq!(whole.earlier(), None);
    }
}
