//! Routing: from a path to the part of the gateway that answers it.

use crate::http::origin::{ADMIN_CORS, Cors, MCP_CORS};

/// The paths that a listener serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListenerPaths {
    /// All.
    All,
    /// All but administration and metrics, which have a listener of their own.
    Mcp,
    /// Administration and metrics.
    Admin,
}

/// The part of the gateway that a path belongs to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Surface {
    /// `/healthz`.
    Alive,
    /// `/readyz`.
    Ready,
    /// The MCP endpoint of an agent.
    Mcp,
    /// The administration API and its documentation, and the requests to hooks.
    Admin,
    /// A document of the gateway itself.
    Document(Document),
}

/// A document of the gateway itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Document {
    /// Metadata of protected resources.
    WellKnown,
    /// `/metrics`.
    Metrics,
    /// No such path.
    Unknown,
}

impl Surface {
    /// The CORS policy of the answers; `None` for health checks, which no page reads.
    pub(super) fn cors(self) -> Option<Cors> {
        match self {
            Self::Alive | Self::Ready => None,
            Self::Admin | Self::Document(Document::Metrics) => Some(ADMIN_CORS),
            Self::Mcp | Self::Document(_) => Some(MCP_CORS),
        }
    }
}

/// Determines the part of the gateway that a path belongs to.
pub(super) fn find_surface(path: &str, served: ListenerPaths) -> Surface {
    let administered = path == "/admin" || path.starts_with("/admin/");
    match path {
        "/healthz" => Surface::Alive,
        "/readyz" => Surface::Ready,
        "/metrics" if served != ListenerPaths::Mcp => Surface::Document(Document::Metrics),
        _ if administered && served != ListenerPaths::Mcp => Surface::Admin,
        _ if path.starts_with("/.well-known/") && served != ListenerPaths::Admin => {
            Surface::Document(Document::WellKnown)
        }
        _ if administered || served == ListenerPaths::Admin => Surface::Document(Document::Unknown),
        _ if path.starts_with("/hooks/") && mcp_agent(path).is_none() => Surface::Admin,
        _ => mcp_agent(path).map_or(Surface::Document(Document::Unknown), |_| Surface::Mcp),
    }
}

/// The agent of `/{agent_id}/mcp` and `/{agent_id}/mcp/`.
pub(super) fn mcp_agent(path: &str) -> Option<&str> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let agent = path.strip_suffix("/mcp")?.strip_prefix('/')?;
    if agent.is_empty() || agent.contains('/') { None } else { Some(agent) }
}

#[cfg(test)]
mod tests {
    use super::{ListenerPaths, find_surface, mcp_agent};

    #[test]
    fn each_listener_has_its_paths() {
        let unknown = "Document(Unknown)";
        for (path, of_all, of_mcp, of_admin) in [
            ("/healthz", "Alive", "Alive", "Alive"),
            ("/readyz", "Ready", "Ready", "Ready"),
            ("/research/mcp", "Mcp", "Mcp", unknown),
            ("/hooks/mcp", "Mcp", "Mcp", unknown),
            ("/hooks/0197", "Admin", "Admin", unknown),
            ("/.well-known/x", "Document(WellKnown)", "Document(WellKnown)", unknown),
            ("/metrics", "Document(Metrics)", unknown, "Document(Metrics)"),
            ("/admin", "Admin", unknown, "Admin"),
            ("/admin/mcp", "Admin", unknown, "Admin"),
            ("/administration", unknown, unknown, unknown),
        ] {
            let surfaces = [ListenerPaths::All, ListenerPaths::Mcp, ListenerPaths::Admin]
                .map(|served| find_surface(path, served));
            assert_eq!(surfaces.map(|surface| format!("{surface:?}")), [of_all, of_mcp, of_admin], "{path}");
        }
    }

    #[test]
    fn an_endpoint_path_has_one_segment_before_mcp() {
        assert_eq!(mcp_agent("/research/mcp"), Some("research"));
        assert_eq!(mcp_agent("/research/mcp/"), Some("research"));
        for path in ["/mcp", "//mcp", "/a/b/mcp", "/research", "/research/mcp//", "/research/mcpx", "", "/"] {
            assert_eq!(mcp_agent(path), None, "{path}");
        }
    }
}
