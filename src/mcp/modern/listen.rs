//! `subscriptions/listen`: the filter of a request, its honored part, and its events (2026-07-28, Subscriptions).

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;
use time::OffsetDateTime;

use crate::catalog::Catalog;
use crate::catalog::snapshot::view::View;
use crate::feed::hub::{ChangeEvent, Subscription};
use crate::identity::grant::Caller;
use crate::mcp::call::members;
use crate::mcp::event_stream::{Obstacle, StreamEncoder};
use crate::mcp::modern::encode;
use crate::mcp::notification::{self, END};
use crate::mcp::sse;
use crate::mcp::streams::StreamEnd;
use crate::mcp::wire::members::text_of;
use crate::mcp::wire::{Params, RequestId, RequestIdOwned, result_message};
use crate::model::agent::AgentDescription;
use crate::model::fault::Fault;
use crate::model::ids::ResourceUri;
use crate::model::scope::Revision;
use crate::model::subject::{Interest, Subject};

const FILTER: &str = "params.notifications";

/// `SubscriptionFilter` of the specification: the subjects that a client subscribes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    resources: bool,
    prompts: bool,
    tools: bool,
    uris: Option<Vec<ResourceUri>>,
}

impl Filter {
    /// Reads the parameters, which may name at most `most` URIs. They are counted before anything else.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`].
    pub fn read(params: &Params<'_>, most: usize) -> Result<Self, Fault> {
        params.check_shape()?;
        let members = members(FILTER, params.required_object("notifications")?.get())?;
        let flag = |name: &str| match members.get(name).map(RawValue::get) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(Fault::invalid_params(format!("{FILTER}.{name} must be true or false"))),
        };
        let tools = flag("toolsListChanged")?;
        Ok(Self {
            tools,
            resources: flag("resourcesListChanged")?,
            prompts: flag("promptsListChanged")?,
            uris: members.get("resourceSubscriptions").map(|raw| uris(raw, most)).transpose()?,
        })
    }

    /// The part that is honored: a URI that names nothing readable is left out.
    ///
    /// # Errors
    /// As [`Catalog::answered`].
    pub async fn honored(self, catalog: &Catalog, caller: &Caller, view: &View) -> Result<Self, Fault> {
        let Some(uris) = self.uris else { return Ok(self) };
        let answered = catalog.answered(caller, view, uris).await;
        let named = |fault: Fault| fault.within(format_args!("{FILTER}.resourceSubscriptions"));
        Ok(Self { uris: Some(answered.map_err(named)?), ..self })
    }

    /// The interests of the filter, from a revision on.
    pub fn interests(&self, since: Revision) -> Vec<Interest> {
        let lists = [
            (self.resources, Subject::ResourceList),
            (self.prompts, Subject::PromptList),
            (self.tools, Subject::ToolList),
        ];
        let lists = lists.into_iter().filter_map(|(wanted, subject)| wanted.then_some(subject));
        let uris = self.uris.iter().flatten().cloned().map(Subject::resource);
        lists.chain(uris).map(|subject| Interest { subject, since }).collect()
    }

    fn as_json(&self) -> String {
        let mut members = Vec::new();
        if self.resources {
            members.push(r#""resourcesListChanged":true"#.to_owned());
        }
        if self.prompts {
            members.push(r#""promptsListChanged":true"#.to_owned());
        }
        if self.tools {
            members.push(r#""toolsListChanged":true"#.to_owned());
        }
        if let Some(uris) = &self.uris {
            let uris: Vec<_> = uris.iter().map(ResourceUri::as_str).collect();
            members.push(format!(r#""resourceSubscriptions":{}"#, serde_json::json!(uris)));
        }
        format!("{{{}}}", members.join(","))
    }
}

fn uris(raw: &RawValue, most: usize) -> Result<Vec<ResourceUri>, Fault> {
    let wrong = || Fault::invalid_params(format!("{FILTER}.resourceSubscriptions must be a list of strings"));
    let mut too_many = false;
    let listed = Bounded { most, too_many: &mut too_many }
        .deserialize(&mut serde_json::Deserializer::from_str(raw.get()));
    if too_many {
        let wrong = format!("{FILTER}.resourceSubscriptions names more than {most} resources");
        return Err(Fault::invalid_params(wrong));
    }
    let texts = listed.map_err(|_| wrong())?;
    let uri = |raw: &&RawValue| {
        ResourceUri::parse(&text_of(raw).ok_or_else(wrong)?)
            .map_err(|error| Fault::invalid_params(format!("{FILTER}.resourceSubscriptions: a URI {error}")))
    };
    let mut uris = texts.iter().map(uri).collect::<Result<Vec<_>, _>>()?;
    let mut seen = std::collections::HashSet::new();
    uris.retain(|uri| seen.insert(uri.clone()));
    Ok(uris)
}

/// A list of at most this many members; further ones are not read.
struct Bounded<'t> {
    most: usize,
    too_many: &'t mut bool,
}

impl<'de> DeserializeSeed<'de> for Bounded<'_> {
    type Value = Vec<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Bounded<'_> {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {} members", self.most)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = list.next_element()? {
            if members.len() == self.most {
                *self.too_many = true;
                return Err(A::Error::invalid_length(self.most + 1, &self));
            }
            members.push(member);
        }
        Ok(members)
    }
}

/// Encodes the events of one request's stream.
pub struct ListenEncoder {
    id: RequestIdOwned,
    /// The `_meta` of every message on the stream.
    meta: String,
    agent: AgentDescription,
}

impl ListenEncoder {
    /// For the stream of a request.
    pub fn new(id: RequestId<'_>, agent: AgentDescription) -> Self {
        let meta = format!(r#""_meta":{{"io.modelcontextprotocol/subscriptionId":{}}}"#, id.as_json());
        Self { id: id.to_owned(), meta, agent }
    }

    /// The first event: the part of the filter that is honored.
    pub fn acknowledge(&self, honored: &Filter) -> Vec<u8> {
        let mut out = Vec::new();
        let head = r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"#;
        let filter = format!(r#","notifications":{}"#, honored.as_json());
        let pieces = [head, &self.meta, &filter, END];
        sse::event(&mut out, None, &pieces.map(str::as_bytes));
        out
    }
}

impl StreamEncoder for ListenEncoder {
    fn notification(&mut self, out: &mut Vec<u8>, change: &ChangeEvent) {
        let pieces = notification::changed(&change.subject);
        let [name, value] = pieces.params;
        let comma = if name.is_empty() { "" } else { "," };
        let data = [pieces.head, &self.meta, comma, name, value, END];
        sse::event(out, None, &data.map(str::as_bytes));
    }

    /// The answer to the request: it ends gracefully.
    fn last(&mut self, out: &mut Vec<u8>, _end: StreamEnd) {
        let mut result = Vec::new();
        if encode::listened(&mut result, self.id.as_id(), &self.agent).is_ok() {
            sse::event(out, None, &[&result_message(self.id.as_id(), &result)]);
        }
    }

    async fn check(
        &mut self,
        _subscription: &Subscription,
        _expires_at: Option<OffsetDateTime>,
        _out: &mut Vec<u8>,
    ) -> Result<(), Obstacle> {
        Ok(())
    }
}
