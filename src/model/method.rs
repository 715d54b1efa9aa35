//! The method table: one row for each MCP method, with everything that the gateway decides by a method.
//!
//! The name of a method is read once, with its message ([`Method::parse`]); later decisions match on [`Method`] or read
//! its row. Removing a row removes the method: it is unknown from then on, and the compiler names the code that served
//! it.

/// An era of the protocol, which decides how a request is read and answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Era {
    /// Revisions 2024-11-05 to 2025-11-25: `initialize` opens a session.
    Legacy,
    /// Revision 2026-07-28: version, identity and capabilities travel with each request.
    Modern,
}

impl Era {
    /// Both eras.
    pub const ALL: [Self; 2] = [Self::Legacy, Self::Modern];

    /// The name of the era in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        }
    }
}

macro_rules! cost_classes {
    ($($(#[$doc:meta])* $class:ident,)+) => {
        /// The settings of `[costs]` that price a method.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum CostClass {
            $($(#[$doc])* $class,)+
        }

        impl CostClass {
            /// Every class, in the order of their numbers.
            pub const ALL: [Self; [$(stringify!($class)),+].len()] = [$(Self::$class),+];
        }
    };
}

cost_classes! {
    /// `costs.list`.
    List,
    /// `costs.read`.
    Read,
    /// `costs.prompt`.
    Prompt,
    /// `costs.search`.
    Search,
    /// `costs.complete`.
    Complete,
    /// `costs.stream`.
    Stream,
    /// `costs.discover`, which also takes nothing from quotas.
    Discover,
    /// `costs.other`.
    Other,
}

impl CostClass {
    /// Whether a request counts as a call in quotas.
    pub fn takes_quota(self) -> bool {
        self != Self::Discover
    }
}

/// A row of the method table.
struct Row {
    /// The name on the wire, which is also the label in the audit log, in usage and in metrics.
    name: &'static str,
    /// The eras that have the method.
    eras: &'static [Era],
    cost: CostClass,
    /// The parameter that names what the request is about.
    subject: Option<&'static str>,
    /// The header `Mcp-Name` repeats the subject (2026-07-28, Streamable HTTP).
    name_header: bool,
    needs_session: bool,
}

const BOTH: &[Era] = &Era::ALL;
const LEGACY: &[Era] = &[Era::Legacy];
const MODERN: &[Era] = &[Era::Modern];

/// A row of a method without a subject, of both eras.
const fn row(name: &'static str, cost: CostClass) -> Row {
    Row { name, eras: BOTH, cost, subject: None, name_header: false, needs_session: false }
}

macro_rules! methods {
    ($($(#[$doc:meta])* $method:ident: $row:expr,)+) => {
        /// A method of MCP, in any of the served revisions.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Method {
            $($(#[$doc])* $method,)+
        }

        impl Method {
            /// Every method.
            pub const ALL: [Self; [$(stringify!($method)),+].len()] = [$(Self::$method),+];
        }

        const TABLE: [Row; Method::ALL.len()] = [$($row),+];
    };
}

methods! {
    /// `initialize`.
    Initialize: Row { eras: LEGACY, ..row("initialize", CostClass::Other) },
    /// `ping`.
    Ping: Row { eras: LEGACY, ..row("ping", CostClass::Other) },
    /// `server/discover`.
    Discover: Row { eras: MODERN, ..row("server/discover", CostClass::Discover) },
    /// `resources/list`.
    ListResources: row("resources/list", CostClass::List),
    /// `resources/templates/list`.
    ListTemplates: row("resources/templates/list", CostClass::List),
    /// `resources/read`.
    ReadResource: Row { subject: Some("uri"), name_header: true, ..row("resources/read", CostClass::Read) },
    /// `prompts/list`.
    ListPrompts: row("prompts/list", CostClass::List),
    /// `prompts/get`.
    GetPrompt: Row { subject: Some("name"), name_header: true, ..row("prompts/get", CostClass::Prompt) },
    /// `completion/complete`.
    Complete: row("completion/complete", CostClass::Complete),
    /// `tools/list`.
    ListTools: row("tools/list", CostClass::List),
    /// `tools/call`.
    CallTool: Row { subject: Some("name"), name_header: true, ..row("tools/call", CostClass::Other) },
    /// `skills/list`.
    ListSkills: row("skills/list", CostClass::List),
    /// `skills/get`.
    GetSkill: Row { subject: Some("uri"), ..row("skills/get", CostClass::Read) },
    /// `resources/directory/read`.
    ReadDirectory: Row { subject: Some("uri"), ..row("resources/directory/read", CostClass::List) },
    /// `subscriptions/listen`.
    Listen: Row { eras: MODERN, ..row("subscriptions/listen", CostClass::Stream) },
    /// `resources/subscribe`.
    Subscribe: Row {
        eras: LEGACY, subject: Some("uri"), needs_session: true, ..row("resources/subscribe", CostClass::Other)
    },
    /// `resources/unsubscribe`.
    Unsubscribe: Row {
        eras: LEGACY, subject: Some("uri"), needs_session: true, ..row("resources/unsubscribe", CostClass::Other)
    },
    /// `logging/setLevel`.
    SetLevel: Row { eras: LEGACY, needs_session: true, ..row("logging/setLevel", CostClass::Other) },
}

impl Method {
    const fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// Reads the name of a method; `None` for one that no served revision has.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name() == name)
    }

    /// The name on the wire, in the audit log, in usage and in metrics.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Whether an era has the method.
    pub fn exists_in(self, era: Era) -> bool {
        self.row().eras.contains(&era)
    }

    /// The price of a request.
    pub const fn cost(self) -> CostClass {
        self.row().cost
    }

    /// The parameter that names what a request is about, such as `uri`.
    pub const fn subject(self) -> Option<&'static str> {
        self.row().subject
    }

    /// The parameter that the header `Mcp-Name` must repeat.
    pub const fn name_header(self) -> Option<&'static str> {
        let row = self.row();
        if row.name_header { row.subject } else { None }
    }

    /// Whether a request is refused outside of a session.
    pub const fn needs_session(self) -> bool {
        self.row().needs_session
    }
}

#[cfg(test)]
mod tests {
    use super::{Era, Method};

    #[test]
    fn each_name_parses_to_its_own_row() {
        for method in Method::ALL {
            assert_eq!(Method::parse(method.name()), Some(method));
        }
        assert_eq!(Method::parse("Resources/Read"), None);
        assert_eq!(Method::parse(""), None);
    }

    #[test]
    fn only_legacy_methods_need_a_session() {
        for method in Method::ALL.into_iter().filter(|method| method.needs_session()) {
            assert!(!method.exists_in(Era::Modern), "{}", method.name());
        }
    }
}
