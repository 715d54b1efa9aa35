//! The cost of a body by its methods, and the number of its requests.

use super::wire::{Incoming, Message, Rejected, message};
use crate::config::Costs;

/// The cost of a body, by its methods alone; of a batch, the sum of its members.
pub(super) fn of(costs: &Costs, incoming: &Result<Incoming<'_>, Rejected<'_>>) -> u32 {
    match incoming {
        Ok(Incoming::Message(message)) => of_message(costs, message),
        Ok(Incoming::Batch(members)) => {
            let cost = |message: Message<'_>| of_message(costs, &message);
            members.iter().map(|member| message(member.get()).map_or(costs.other, cost)).sum()
        }
        Err(_) => costs.other,
    }
}

fn of_message(costs: &Costs, message: &Message<'_>) -> u32 {
    match message {
        Message::Request(request) => costs.of(request.method.cost()),
        Message::Notification { .. } | Message::Response => costs.other,
    }
}

/// The number of requests in a body. Notifications, responses and discovery do not count.
pub(super) fn calls(incoming: &Incoming<'_>) -> u32 {
    let one = |message: &Message<'_>| match message {
        Message::Request(request) => u32::from(request.method.cost().takes_quota()),
        Message::Notification { .. } | Message::Response => 0,
    };
    match incoming {
        Incoming::Message(message) => one(message),
        Incoming::Batch(members) => {
            members.iter().map(|member| message(member.get()).map_or(1, |message| one(&message))).sum()
        }
    }
}
