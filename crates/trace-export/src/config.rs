//! The configuration, read from the variables of the OpenTelemetry specification.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use url::Url;

use crate::sampler::Sampler;

/// How spans are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// `http/protobuf`.
    Http,
    /// `grpc`.
    Grpc,
}

/// Where, how and which traces are exported.
#[derive(Clone)]
pub struct Config {
    pub(crate) url: Url,
    pub(crate) protocol: Protocol,
    pub(crate) headers: HeaderMap,
    pub(crate) timeout: Duration,
    /// The attributes of the service, its name included.
    pub(crate) resource: Vec<(String, String)>,
    pub(crate) sampler: Sampler,
    pub(crate) queue: usize,
    pub(crate) batch: usize,
    pub(crate) delay: Duration,
}

const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const GRPC_PATH: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

impl Config {
    /// Reads the variables; an empty one counts as not set. `None` without an endpoint, and where traces are turned off.
    ///
    /// # Errors
    /// The variables with a wrong value, each with what is wrong about it.
    pub fn read(
        default_service: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, Vec<String>> {
        let variables = Variables { variable, problems: Vec::new() };
        variables.read(default_service)
    }

    /// The sampler.
    pub fn sampler(&self) -> Sampler {
        self.sampler
    }
}

struct Variables<F> {
    variable: F,
    problems: Vec<String>,
}

impl<F: Fn(&str) -> Option<String>> Variables<F> {
    fn read(mut self, default_service: &str) -> Result<Option<Config>, Vec<String>> {
        let is_disabled = self.get("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true"));
        let exporter = self.parse("OTEL_TRACES_EXPORTER", "otlp", |text| match text {
            "otlp" => Ok(true),
            "none" => Ok(false),
            _ => Err("is neither otlp nor none".to_owned()),
        });
        let sampler = self.sampler();
        let exports =
            exporter == Some(true) && !is_disabled && sampler.is_none_or(|sampler| !sampler.is_off());
        let endpoint = self.get(TRACES_ENDPOINT).or_else(|| self.get(ENDPOINT));
        if endpoint.is_none() || !exports {
            return if self.problems.is_empty() { Ok(None) } else { Err(self.problems) };
        }
        let protocol = self.of_traces("PROTOCOL", "http/protobuf", |text| match text {
            "http/protobuf" => Ok(Protocol::Http),
            "grpc" => Ok(Protocol::Grpc),
            _ => Err("is neither http/protobuf nor grpc".to_owned()),
        });
        let url = protocol.and_then(|protocol| self.url(protocol));
        let headers = self.of_traces("HEADERS", "", headers);
        let timeout = self.of_traces("TIMEOUT", "10000", milliseconds);
        let queue = self.parse("OTEL_BSP_MAX_QUEUE_SIZE", "2048", count);
        let batch = self.parse("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "512", count);
        let delay = self.parse("OTEL_BSP_SCHEDULE_DELAY", "5000", milliseconds);
        let resource = self.resource(default_service);
        let read = (url, protocol, headers, timeout, resource, sampler, queue, batch, delay);
        match read {
            (
                Some(url),
                Some(protocol),
                Some(headers),
                Some(timeout),
                Some(resource),
                Some(sampler),
                Some(queue),
                Some(batch),
                Some(delay),
            ) if self.problems.is_empty() => Ok(Some(Config {
                url,
                protocol,
                headers,
                timeout,
                resource,
                sampler,
                queue,
                batch: batch.min(queue),
                delay,
            })),
            _ => Err(self.problems),
        }
    }

    fn get(&self, name: &str) -> Option<String> {
        (self.variable)(name).filter(|text| !text.is_empty())
    }

    fn parse<T>(
        &mut self,
        name: &str,
        default: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let given = self.get(name);
        match parse(given.as_deref().unwrap_or(default)) {
            Ok(value) => Some(value),
            Err(why) => {
                self.problems.push(format!("{name} {why}"));
                None
            }
        }
    }

    /// The variable of traces, or that of all signals.
    fn of_traces<T>(
        &mut self,
        name: &str,
        default: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let own = format!("OTEL_EXPORTER_OTLP_TRACES_{name}");
        let name = if self.get(&own).is_some() { own } else { format!("OTEL_EXPORTER_OTLP_{name}") };
        self.parse(&name, default, parse)
    }

    fn sampler(&mut self) -> Option<Sampler> {
        let argument = self.get("OTEL_TRACES_SAMPLER_ARG");
        self.parse("OTEL_TRACES_SAMPLER", "parentbased_always_on", |name| {
            Sampler::parse(name, argument.as_deref())
        })
    }

    /// The URL of traces is taken as it is; to that of all signals, HTTP adds a path.
    fn url(&mut self, protocol: Protocol) -> Option<Url> {
        let is_own = self.get(TRACES_ENDPOINT).is_some();
        self.parse(if is_own { TRACES_ENDPOINT } else { ENDPOINT }, "", |text| {
            let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
            let mut url = url.ok_or("is not an http or https URL")?;
            match protocol {
                Protocol::Grpc => url.set_path(GRPC_PATH),
                Protocol::Http if is_own => {}
                Protocol::Http => {
                    let path = format!("{}/v1/traces", url.path().trim_end_matches('/'));
                    url.set_path(&path);
                }
            }
            Ok(url)
        })
    }

    fn resource(&mut self, default_service: &str) -> Option<Vec<(String, String)>> {
        let mut resource = self.parse("OTEL_RESOURCE_ATTRIBUTES", "", pairs)?;
        let named = self.get("OTEL_SERVICE_NAME");
        if named.is_some() || !resource.iter().any(|(name, _)| name == "service.name") {
            resource.retain(|(name, _)| name != "service.name");
            let name = named.unwrap_or_else(|| default_service.to_owned());
            resource.insert(0, ("service.name".to_owned(), name));
        }
        Some(resource)
    }
}

/// `key=value` with commas between; values are percent-encoded.
fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').ok_or("is not key=value,key=value")?;
        let value = percent_decode_str(value.trim()).decode_utf8().map_err(|_| "is not UTF-8")?;
        Ok((name.trim().to_owned(), value.into_owned()))
    };
    text.split(',').filter(|part| !part.trim().is_empty()).map(pair).collect()
}

fn headers(text: &str) -> Result<HeaderMap, String> {
    let header = |(name, value): (String, String)| {
        let name = HeaderName::try_from(name).map_err(|_| "names a header that is none".to_owned())?;
        let mut value =
            HeaderValue::try_from(value).map_err(|_| "has a value that no header has".to_owned())?;
        value.set_sensitive(true);
        Ok((name, value))
    };
    pairs(text)?.into_iter().map(header).collect()
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    let millis = text.parse().ok().filter(|millis| (1..=600_000).contains(millis));
    millis.map(Duration::from_millis).ok_or_else(|| "is not 1 to 600000 milliseconds".to_owned())
}

fn count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=1_000_000).contains(count));
    count.ok_or_else(|| "is not 1 to 1000000".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Config, Protocol};

    fn read(variables: &[(&str, &str)]) -> Result<Option<Config>, Vec<String>> {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
        Config::read("waggle", |name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    fn config(variables: &[(&str, &str)]) -> Config {
        read(variables).ok().flatten().unwrap_or_else(|| panic!("{variables:?} configure no traces"))
    }

    const COLLECTOR: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/prefix/");

    #[test]
    fn endpoint_turns_traces_on() {
        for off in [
            &[][..],
            &[COLLECTOR, ("OTEL_SDK_DISABLED", "TRUE")],
            &[COLLECTOR, ("OTEL_TRACES_EXPORTER", "none")],
            &[COLLECTOR, ("OTEL_TRACES_SAMPLER", "always_off")],
            &[("OTEL_EXPORTER_OTLP_ENDPOINT", "")],
        ] {
            assert!(matches!(read(off), Ok(None)), "{off:?}");
        }
        let config = config(&[COLLECTOR]);
        assert_eq!(config.url.as_str(), "http://collector:4318/prefix/v1/traces");
        assert_eq!((config.protocol, config.timeout.as_millis()), (Protocol::Http, 10_000));
        assert_eq!((config.queue, config.batch, config.delay.as_millis()), (2_048, 512, 5_000));
        assert_eq!(config.resource, [("service.name".to_owned(), "waggle".to_owned())]);
    }

    #[test]
    fn variables_of_traces_override_those_of_all_signals() {
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://collector/as/it/is");
        assert_eq!(config(&[COLLECTOR, own]).url.as_str(), "https://collector/as/it/is");
        let grpc = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc");
        let path = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
        let config = config(&[COLLECTOR, ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"), grpc]);
        assert_eq!((config.protocol, config.url.path()), (Protocol::Grpc, path));
    }

    #[test]
    fn lists_are_decoded() {
        let config = config(&[
            COLLECTOR,
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x, x-team = a"),
            ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=prod,service.name=other"),
            ("OTEL_SERVICE_NAME", "gateway"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "8"),
        ]);
        assert_eq!(config.headers["authorization"], "Bearer x");
        assert_eq!(config.headers["x-team"], "a");
        let resource = [("service.name", "gateway"), ("deployment.environment.name", "prod")];
        assert_eq!(config.resource, resource.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(config.batch, 8, "no larger than the queue");
    }

    #[test]
    fn wrong_values_are_reported_together() {
        let problems = read(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "0"),
            ("OTEL_TRACES_SAMPLER", "sometimes"),
        ]);
        let names: Vec<_> = problems.err().into_iter().flatten().collect();
        let names: Vec<_> = names.iter().filter_map(|problem| problem.split(' ').next()).collect();
        let expected = [
            "OTEL_TRACES_SAMPLER",
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "OTEL_EXPORTER_OTLP_HEADERS",
            "OTEL_EXPORTER_OTLP_TIMEOUT",
        ];
        assert_eq!(names, expected);
        let json = [COLLECTOR, ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")];
        let problems = read(&json).err().unwrap_or_default();
        assert_eq!(problems, ["OTEL_EXPORTER_OTLP_PROTOCOL is neither http/protobuf nor grpc"]);
    }
}
