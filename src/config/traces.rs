//! `[traces]`: what spans show; and the export of traces, which the `OTEL_*` variables of the OpenTelemetry specification
//! configure.

use trace_export::Config;

use super::reader::Reader;
use super::section::section;
use super::text::ON_OFF;

section! {
    /// What the spans of traces show. Whether and where traces are exported is configured by `OTEL_*` variables.
    #[derive(Clone, Debug)]
    pub struct Traces["traces"] {
        /// on or off: the URI of the resource that a request reads, which may name persons or secrets.
        resource_uri: value(bool, ON_OFF) = false,
    }
}

/// The export of traces; `None` if the variables name no collector.
pub(super) fn export(reader: &mut Reader) -> Option<Config> {
    match Config::read("waggle", |name| reader.variable(name)) {
        Ok(config) => config,
        Err(problems) => {
            for problem in problems {
                reader.refuse_variable(&problem);
            }
            None
        }
    }
}
