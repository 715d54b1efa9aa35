//! `[costs]`: how many units of a rate a request costs, by its method.

use std::num::NonZeroU32;

use super::number::Count;
use super::reader::Reader;
use super::section::section;
use crate::model::method::CostClass;

section! {
    /// How many units of a rate a request costs, by its method.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Costs["costs"] {
        /// A list.
        list: count(u32, 0..=1_000) = 1,
        /// `resources/read`.
        read: count(u32, 0..=1_000) = 1,
        /// `prompts/get`.
        prompt: count(u32, 0..=1_000) = 1,
        /// The tool `search`.
        search: count(u32, 0..=1_000) = 1,
        /// `completion/complete`.
        complete: count(u32, 0..=1_000) = 1,
        /// Opening a stream: `subscriptions/listen`, and `GET` in a session. Default: 5, or the smallest burst of `[limits]`
        /// if that is less.
        stream: count(u32, 0..=1_000) = 5,
        /// `server/discover`. A client whose probe is refused assumes an old server.
        discover: count(u32, 0..=1_000) = 0,
        /// Every other method.
        other: count(u32, 0..=1_000) = 1,
        /// `GET` on the administration API, where keys, tenants and addresses have the same rates in separate buckets; the
        /// operator has none.
        admin_read: count(u32, 0..=1_000) = 1,
        /// Every other method there.
        admin_write: count(u32, 0..=1_000) = 1,
    }
}

impl Costs {
    /// Lowers the default cost of a stream to the smallest burst: above it each stream would be refused.
    pub(super) fn fit(&mut self, burst: u32, reader: &mut Reader) {
        if burst < self.stream && !reader.was_given("costs.stream") {
            self.stream = burst;
            reader.override_displayed("costs.stream", &Count(0..=1_000), &burst);
        }
    }

    /// The cost of a request of this class.
    pub fn of(&self, class: CostClass) -> u32 {
        match class {
            CostClass::List => self.list,
            CostClass::Read => self.read,
            CostClass::Prompt => self.prompt,
            CostClass::Search => self.search,
            CostClass::Complete => self.complete,
            CostClass::Stream => self.stream,
            CostClass::Discover => self.discover,
            CostClass::Other => self.other,
        }
    }

    /// The lowest cost of a request to an MCP endpoint that is not free.
    pub fn least(&self) -> Option<NonZeroU32> {
        let Self {
            list,
            read,
            prompt,
            search,
            complete,
            stream,
            discover,
            other,
            admin_read: _,
            admin_write: _,
        } = *self;
        [list, read, prompt, search, complete, stream, discover, other]
            .into_iter()
            .filter_map(NonZeroU32::new)
            .min()
    }

    /// The highest cost of a request, and its setting.
    pub fn highest(&self) -> (&'static str, u32) {
        let costs = [
            ("costs.list", self.list),
            ("costs.read", self.read),
            ("costs.prompt", self.prompt),
            ("costs.search", self.search),
            ("costs.complete", self.complete),
            ("costs.discover", self.discover),
            ("costs.other", self.other),
            ("costs.admin_read", self.admin_read),
            ("costs.admin_write", self.admin_write),
        ];
        let stream = ("costs.stream", self.stream);
        costs.into_iter().fold(stream, |highest, cost| if cost.1 > highest.1 { cost } else { highest })
    }
}
