//! Lists: `?limit=` and `?cursor=` in, items and `nextCursor` out.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::http::cursor::CursorSeal;
use crate::model::fault::Fault;

const DEFAULT: i64 = 100;
const MOST: i64 = 500;

/// Where a page begins and how long it may be.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct PageParams {
    /// Most items of the page.
    #[param(minimum = 1, maximum = 500, default = 100)]
    limit: Option<i64>,
    /// `nextCursor` of the page before.
    cursor: Option<String>,
}

impl PageParams {
    /// From its two parameters, where a list has others besides.
    pub(super) fn new(limit: Option<i64>, cursor: Option<String>) -> Self {
        Self { limit, cursor }
    }

    /// Checks the parameters against the list they are for.
    pub(super) fn open<'a>(
        &self,
        seal: &'a CursorSeal,
        list: &'static str,
        uid: Uuid,
    ) -> Result<Page<'a>, Fault> {
        let limit = self.limit.unwrap_or(DEFAULT);
        if !(1..=MOST).contains(&limit) {
            return Err(Fault::invalid_params("limit must be 1 to 500"));
        }
        let after = self.cursor.as_deref().map(|cursor| seal.open(list, uid, cursor)).transpose()?;
        Ok(Page { seal, list, uid, limit, after: after.unwrap_or_default() })
    }
}

/// A page that is being read.
pub(super) struct Page<'a> {
    seal: &'a CursorSeal,
    list: &'static str,
    uid: Uuid,
    limit: i64,
    /// The position of the last item of the page before; empty for the first page.
    pub(super) after: String,
}

/// A page of a list.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Items<T> {
    items: Vec<T>,
    /// Where the next page begins; `null` on the last.
    next_cursor: Option<String>,
}

impl Page<'_> {
    /// How many items to read: one more than the page holds, to know whether there is another.
    pub(super) fn read(&self) -> i64 {
        self.limit + 1
    }

    /// Makes the answer of what was read.
    pub(super) fn answer<R, T>(
        &self,
        rows: Vec<R>,
        position: impl Fn(&R) -> String,
        show: impl Fn(R) -> T,
    ) -> axum::Json<Items<T>> {
        axum::Json(self.items(rows, position, show))
    }

    /// Makes the page of what was read.
    pub(super) fn items<R, T>(
        &self,
        mut rows: Vec<R>,
        position: impl Fn(&R) -> String,
        show: impl Fn(R) -> T,
    ) -> Items<T> {
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let more = rows.len() > limit;
        rows.truncate(limit);
        let last = rows.last().filter(|_| more).map(position);
        let next_cursor = last.map(|last| self.seal.seal(self.list, self.uid, &last));
        Items { items: rows.into_iter().map(show).collect(), next_cursor }
    }
}
