//! `[costs]`: what a request takes from the rates of `[limits]`, by its method.

use std::num::NonZeroU32;

use super::{number::Count, reader::Reader};
use crate::model::method::CostClass;

/// What a request takes from the rates, by its method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// A list.
    pub list: u32,
    /// `resources/read`.
    pub read: u32,
    /// `prompts/get`.
    pub prompt: u32,
    /// `completion/complete`.
    pub complete: u32,
    /// A stream that is opened: `subscriptions/listen`, and `GET` in a session.
    pub stream: u32,
    /// `server/discover`.
    pub discover: u32,
    /// Everything else.
    pub other: u32,
    /// `GET` on the administration surface.
    pub admin_read: u32,
    /// Everything else there.
    pub admin_write: u32,
}

impl Costs {
    pub(super) fn read(reader: &mut Reader) -> Self {
        let mut cost = |name, default| reader.value(name, &Count(0..=1_000), default);
        Self {
            list: cost("costs.list", 1),
            read: cost("costs.read", 1),
            prompt: cost("costs.prompt", 1),
            complete: cost("costs.complete", 1),
            stream: cost("costs.stream", 5),
            discover: cost("costs.discover", 0),
            other: cost("costs.other", 1),
            admin_read: cost("costs.admin_read", 1),
            admin_write: cost("costs.admin_write", 1),
        }
    }

    /// What a request of this class costs.
    pub fn of(&self, class: CostClass) -> u32 {
        match class {
            CostClass::List => self.list,
            CostClass::Read => self.read,
            CostClass::Prompt => self.prompt,
            CostClass::Complete => self.complete,
            CostClass::Stream => self.stream,
            CostClass::Discover => self.discover,
            CostClass::Other => self.other,
        }
    }

    /// What the cheapest request to an MCP endpoint costs that costs anything.
    pub fn least(&self) -> Option<NonZeroU32> {
        let Self { list, read, prompt, complete, stream, discover, other, admin_read: _, admin_write: _ } =
            *self;
        [list, read, prompt, complete, stream, discover, other].into_iter().filter_map(NonZeroU32::new).min()
    }

    /// What the dearest request costs, and the setting that says so.
    pub fn dearest(&self) -> (&'static str, u32) {
        let costs = [
            ("costs.list", self.list),
            ("costs.read", self.read),
            ("costs.prompt", self.prompt),
            ("costs.complete", self.complete),
            ("costs.discover", self.discover),
            ("costs.other", self.other),
            ("costs.admin_read", self.admin_read),
            ("costs.admin_write", self.admin_write),
        ];
        let stream = ("costs.stream", self.stream);
        costs.into_iter().fold(stream, |dearest, cost| if cost.1 > dearest.1 { cost } else { dearest })
    }
}
