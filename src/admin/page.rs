//! Pagination of lists: the parameters `limit` and `cursor`, and the answer with `items` and `nextCursor`.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::http::cursor::CursorSigner;
use crate::model::fault::Fault;

const DEFAULT_LIMIT: i64 = 100;
const MAX_LIMIT: i64 = 500;

/// The parameters of a page.
#[derive(Debug, Default, PartialEq, Eq, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct PageParams {
    /// The maximum number of items on the page.
    #[param(minimum = 1, maximum = 500, default = 100)]
    limit: Option<i64>,
    /// The `nextCursor` of the previous page.
    cursor: Option<String>,
}

impl PageParams {
    /// From the two parameters of a list with further ones.
    pub(super) fn new(limit: Option<i64>, cursor: Option<String>) -> Self {
        Self { limit, cursor }
    }

    /// Verifies the cursor for the list, and the limit.
    pub(super) fn verify<'a>(
        &self,
        cursor_signer: &'a CursorSigner,
        list: &'static str,
        uid: Uuid,
    ) -> Result<Page<'a>, Fault> {
        let limit = self.limit.unwrap_or(DEFAULT_LIMIT);
        if !(1..=MAX_LIMIT).contains(&limit) {
            return Err(Fault::invalid_params(format!("limit must be 1 to {MAX_LIMIT}")));
        }
        let after =
            self.cursor.as_deref().map(|cursor| cursor_signer.verify(list, uid, cursor)).transpose()?;
        Ok(Page { cursor_signer, list, uid, limit, after: after.unwrap_or_default() })
    }
}

/// The position and size of a page.
pub(super) struct Page<'a> {
    cursor_signer: &'a CursorSigner,
    list: &'static str,
    uid: Uuid,
    /// The maximum number of items.
    pub(super) limit: i64,
    /// The position of the last item of the previous page; empty for the first page.
    pub(super) after: String,
}

/// A page of a list.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Items<T> {
    items: Vec<T>,
    /// The cursor of the next page; `null` on the last one.
    next_cursor: Option<String>,
}

impl Page<'_> {
    /// How many items to read: one more than the page holds, to know whether there is a next page.
    pub(super) fn read(&self) -> i64 {
        self.limit + 1
    }

    /// The answer with the items that were read.
    pub(super) fn answer<R, T>(
        &self,
        mut rows: Vec<R>,
        position: impl Fn(&R) -> String,
        show: impl Fn(R) -> T,
    ) -> axum::Json<Items<T>> {
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let more = rows.len() > limit;
        rows.truncate(limit);
        axum::Json(self.items((rows, more), position, show))
    }

    /// The page with these items, which are all that it has.
    pub(super) fn items<R, T>(
        &self,
        (rows, more): (Vec<R>, bool),
        position: impl Fn(&R) -> String,
        show: impl Fn(R) -> T,
    ) -> Items<T> {
        let last = rows.last().filter(|_| more).map(position);
        let next_cursor = last.map(|last| self.cursor_signer.sign(self.list, self.uid, &last));
        Items { items: rows.into_iter().map(show).collect(), next_cursor }
    }
}
