//! What a message costs, by its method.

use super::wire::{Incoming, Message, Rejected, message};

/// What a request takes from the rates of whoever sends it, by its method.
#[derive(Debug, Clone, Copy)]
pub struct Costs {
    /// A list.
    pub list: u32,
    /// `resources/read`.
    pub read: u32,
    /// `prompts/get`.
    pub prompt: u32,
    /// `completion/complete`.
    pub complete: u32,
    /// A stream that is opened.
    pub stream: u32,
    /// `server/discover`.
    pub discover: u32,
    /// Everything else.
    pub other: u32,
}

impl Costs {
    /// What a body costs, of which nothing was looked at yet but the methods: a batch the sum of its members.
    pub(super) fn of(&self, incoming: &Result<Incoming<'_>, Rejected<'_>>) -> u32 {
        match incoming {
            Ok(Incoming::Message(message)) => self.of_message(message),
            Ok(Incoming::Batch(members)) => members
                .iter()
                .map(|member| message(member.get()).map_or(self.other, |message| self.of_message(&message)))
                .sum(),
            Err(_) => self.other,
        }
    }

    /// How many requests a body is: what asks for nothing is none, and discovery is for nothing.
    pub(super) fn calls(incoming: &Incoming<'_>) -> u32 {
        let one = |message: &Message<'_>| match message {
            Message::Request(request) => u32::from(request.method != "server/discover"),
            Message::Notification { .. } | Message::Response => 0,
        };
        match incoming {
            Incoming::Message(message) => one(message),
            Incoming::Batch(members) => {
                members.iter().map(|member| message(member.get()).map_or(1, |message| one(&message))).sum()
            }
        }
    }

    fn of_message(&self, message: &Message<'_>) -> u32 {
        match message {
            Message::Request(request) => self.of_method(&request.method),
            Message::Notification { .. } | Message::Response => self.other,
        }
    }

    fn of_method(&self, method: &str) -> u32 {
        match method {
            "resources/read" => self.read,
            "resources/list" | "resources/templates/list" | "prompts/list" | "tools/list" => self.list,
            "prompts/get" => self.prompt,
            "completion/complete" => self.complete,
            "subscriptions/listen" => self.stream,
            "server/discover" => self.discover,
            _ => self.other,
        }
    }
}
