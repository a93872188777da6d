//! The one table of routes, and which of them a method and a path mean.
//!
//! A path matches as it is spelled: a trailing slash, other letter case or a percent-encoded letter of a fixed part makes another path.
//! The segment of a `:queue` is handed out still encoded.

use std::fmt;

use mayfly_net::http::Method;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// Append messages.
    Push,
    /// Take messages.
    Pop,
    /// Take messages as a stream of events.
    Subscribe,
    /// Settle deliveries.
    Ack,
    /// Push a request and wait for its answer.
    Call,
    /// Answer requests, settle them, and take more.
    Reply,
    /// Declare a queue.
    Configure,
    /// Drop a queue's messages.
    Reset,
    /// Forget a queue: named in the path, or by `?queue=`.
    Delete,
    /// List queues.
    Queues,
    /// One queue's depth.
    Depth,
    /// The kill switch: how it stands.
    SwitchState,
    /// The kill switch: turn it.
    Switch,
    /// Say what a tenant may use.
    SetQuota,
    /// What a tenant may use, and what it uses.
    Quota,
    /// How the cluster stands.
    Cluster,
    /// Take a node into the cluster, or let one go.
    ChangeCluster,
    /// The process runs.
    Health,
    /// The node takes requests.
    Ready,
    /// Metrics as text.
    Metrics,
    /// What this is.
    Index,
    /// The description of every route.
    OpenApi,
}

impl Route {
    /// Whether it is of the family that the kill switch turns off.
    #[must_use]
    #[inline]
    pub const fn is_ephemeral(self) -> bool {
        match self {
            Self::Push | Self::Pop | Self::Subscribe | Self::Ack | Self::Call | Self::Reply => true,
            Self::Configure | Self::Reset | Self::Delete | Self::Queues | Self::Depth => true,
            Self::SwitchState | Self::Switch | Self::SetQuota | Self::Quota | Self::Cluster | Self::ChangeCluster => false,
            Self::Health | Self::Ready | Self::Metrics | Self::Index | Self::OpenApi => false,
        }
    }
}

/// Who may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Anybody.
    Public,
    /// Who may read.
    ReadOnly,
    /// Who may write.
    WriteOnly,
    /// Who may do both.
    ReadWrite,
    /// Operators.
    Admin,
}

/// A path, exact but for one segment at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The whole path, or what comes before the segment.
    before: &'static str,
    /// What comes behind the segment; None: there is no segment.
    behind: Option<&'static str>,
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its method.
    pub method: Method,
    /// Its path.
    pub pattern: Pattern,
    /// Who may ask.
    pub access: Access,
    /// What it does.
    pub route: Route,
}

/// A row that a request means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found<'a> {
    /// The row. The request's method is the row's, or HEAD where the row's is GET.
    pub endpoint: &'static Endpoint,
    /// The `:queue` segment, still encoded, where the pattern has one.
    pub segment: Option<&'a [u8]>,
}

/// Why no row is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missed {
    /// No row has this path.
    NoSuchRoute,
    /// Rows have this path, with other methods.
    MethodNotAllowed {
        /// Those methods, as an `Allow` header lists them.
        allow: String,
    },
}

/// Every route, those of the hot path first.
pub static ENDPOINTS: [Endpoint; 24] = [
    endpoint(Method::Post, exact("/api/v1/ephemeral/push"), Access::WriteOnly, Route::Push),
    endpoint(Method::Get, exact("/api/v1/ephemeral/pop"), Access::ReadWrite, Route::Pop),
    endpoint(Method::Post, exact("/api/v1/ephemeral/ack"), Access::ReadWrite, Route::Ack),
    endpoint(Method::Post, exact("/api/v1/ephemeral/call"), Access::ReadWrite, Route::Call),
    endpoint(Method::Post, exact("/api/v1/ephemeral/reply"), Access::ReadWrite, Route::Reply),
    endpoint(Method::Get, exact("/api/v1/ephemeral/subscribe"), Access::ReadWrite, Route::Subscribe),
    endpoint(Method::Post, exact("/api/v1/ephemeral/configure"), Access::ReadWrite, Route::Configure),
    endpoint(Method::Post, exact("/api/v1/ephemeral/reset"), Access::ReadWrite, Route::Reset),
    endpoint(Method::Delete, with_queue("/api/v1/ephemeral/queue/", ""), Access::ReadWrite, Route::Delete),
    endpoint(Method::Delete, exact("/api/v1/ephemeral/queue"), Access::ReadWrite, Route::Delete),
    endpoint(Method::Get, exact("/api/v1/ephemeral/queues"), Access::ReadOnly, Route::Queues),
    endpoint(Method::Get, with_queue("/api/v1/ephemeral/queues/", "/depth"), Access::ReadOnly, Route::Depth),
    endpoint(Method::Get, exact("/api/v1/system/ephemeral"), Access::Admin, Route::SwitchState),
    endpoint(Method::Post, exact("/api/v1/system/ephemeral"), Access::Admin, Route::Switch),
    endpoint(Method::Post, exact("/api/v1/system/quota"), Access::Admin, Route::SetQuota),
    endpoint(Method::Get, exact("/api/v1/system/quota"), Access::Admin, Route::Quota),
    endpoint(Method::Get, exact("/api/v1/system/cluster"), Access::Admin, Route::Cluster),
    endpoint(Method::Post, exact("/api/v1/system/cluster"), Access::Admin, Route::ChangeCluster),
    endpoint(Method::Get, exact("/health"), Access::Public, Route::Health),
    endpoint(Method::Get, exact("/ready"), Access::Public, Route::Ready),
    endpoint(Method::Get, exact("/metrics"), Access::Public, Route::Metrics),
    endpoint(Method::Get, exact("/metrics/prometheus"), Access::Public, Route::Metrics),
    endpoint(Method::Get, exact("/"), Access::Public, Route::Index),
    endpoint(Method::Get, exact("/openapi.json"), Access::Public, Route::OpenApi),
];

const fn endpoint(method: Method, pattern: Pattern, access: Access, route: Route) -> Endpoint {
    Endpoint { method, pattern, access, route }
}

const fn exact(path: &'static str) -> Pattern {
    Pattern { before: path, behind: None }
}

const fn with_queue(before: &'static str, behind: &'static str) -> Pattern {
    Pattern { before, behind: Some(behind) }
}

/// The row that a method and a path (still encoded, without its query) mean.
///
/// # Errors
/// [`Missed`]: no row is meant.
pub fn find(method: Method, path: &[u8]) -> Result<Found<'_>, Missed> {
    for endpoint in &ENDPOINTS {
        if endpoint.admits(method)
            && let Some(segment) = endpoint.pattern.matches(path)
        {
            return Ok(Found { endpoint, segment });
        }
    }
    let allow = allowed_methods(path);
    Err(if allow.is_empty() { Missed::NoSuchRoute } else { Missed::MethodNotAllowed { allow } })
}

fn allowed_methods(path: &[u8]) -> String {
    const NAMES: [(Method, &str); 5] =
        [(Method::Get, "GET"), (Method::Head, "HEAD"), (Method::Post, "POST"), (Method::Put, "PUT"), (Method::Delete, "DELETE")];
    let is_allowed = |method| ENDPOINTS.iter().any(|endpoint| endpoint.admits(method) && endpoint.pattern.matches(path).is_some());
    let names: Vec<&str> = NAMES.iter().filter(|(method, _)| is_allowed(*method)).map(|(_, name)| *name).collect();
    names.join(", ")
}

impl Endpoint {
    /// HEAD stands for GET wherever asking changes nothing: a pop or a subscription would take messages.
    #[inline]
    fn admits(&self, method: Method) -> bool {
        self.method == method
            || (method == Method::Head && self.method == Method::Get && !matches!(self.route, Route::Pop | Route::Subscribe))
    }
}

impl Pattern {
    /// None: another path. Else the segment, where there is one.
    #[inline]
    fn matches<'a>(&self, path: &'a [u8]) -> Option<Option<&'a [u8]>> {
        let Some(behind) = self.behind else {
            return (path == self.before.as_bytes()).then_some(None);
        };
        let segment = path.strip_prefix(self.before.as_bytes())?.strip_suffix(behind.as_bytes())?;
        (!segment.is_empty() && !segment.contains(&b'/')).then_some(Some(segment))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.behind {
            None => f.write_str(self.before),
            Some(behind) => write!(f, "{}:queue{behind}", self.before),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const BASE: &str = "/api/v1/ephemeral";

    fn found(method: Method, path: &str) -> Option<(Route, Option<String>)> {
        let found = find(method, path.as_bytes()).ok()?;
        Some((found.endpoint.route, found.segment.map(|segment| String::from_utf8(segment.to_vec()).unwrap())))
    }

    #[test]
    fn every_row_is_found_by_its_own_method_and_path() {
        for endpoint in &ENDPOINTS {
            let path = endpoint.pattern.to_string().replace(":queue", "a%2Fb");
            let found = find(endpoint.method, path.as_bytes()).unwrap();
            assert_eq!(found.endpoint, endpoint);
            assert_eq!(found.segment, endpoint.pattern.behind.map(|_| b"a%2Fb".as_slice()));
        }
    }

    #[test]
    fn no_row_stands_twice() {
        let rows: HashSet<_> = ENDPOINTS.iter().map(|endpoint| (endpoint.method, endpoint.pattern.to_string())).collect();
        assert_eq!(rows.len(), ENDPOINTS.len());
    }

    #[test]
    fn a_segment_is_one_and_may_look_like_anything() {
        for segment in [":queue", "..", "depth", "%2F", "a+b", "%zz", "a%2Fdepth", "%"] {
            let segment = segment.to_owned();
            assert_eq!(found(Method::Delete, &format!("{BASE}/queue/{segment}")), Some((Route::Delete, Some(segment.clone()))));
            assert_eq!(found(Method::Get, &format!("{BASE}/queues/{segment}/depth")), Some((Route::Depth, Some(segment))));
        }
        assert_eq!(found(Method::Delete, &format!("{BASE}/queue")), Some((Route::Delete, None)));
    }

    #[test]
    fn another_spelling_of_a_path_is_unknown() {
        let under_base = [
            "",
            "/",
            "/nope",
            "/push/",
            "/push/x",
            "/Push",
            "/pus%68",
            "/queues/",
            "/queues/x",
            "/queue/",
            "/queue/a/b",
            "/queues//depth",
            "/queues/a/b/depth",
            "/queues/x/depth/",
            "/queues/depth",
            "//push",
            "/call/",
            "/reply/x",
            "/subscribe/",
        ];
        let paths = under_base.map(|rest| format!("{BASE}{rest}"));
        for path in
            paths.iter().map(String::as_str).chain(["", "*", "//", "/Health", "/metrics/", "/openapi.json/", "/api/v1/system/ephemeral/"])
        {
            for method in [Method::Get, Method::Post, Method::Delete, Method::Options, Method::Other] {
                assert_eq!(find(method, path.as_bytes()), Err(Missed::NoSuchRoute), "{path}");
            }
        }
    }

    #[test]
    fn another_method_is_told_which_are_allowed() {
        let table = [
            (Method::Get, "/api/v1/ephemeral/push", "POST"),
            (Method::Head, "/api/v1/ephemeral/push", "POST"),
            (Method::Options, "/api/v1/ephemeral/push", "POST"),
            (Method::Get, "/api/v1/ephemeral/call", "POST"),
            (Method::Head, "/api/v1/ephemeral/reply", "POST"),
            (Method::Post, "/api/v1/ephemeral/pop", "GET"),
            (Method::Head, "/api/v1/ephemeral/pop", "GET"),
            (Method::Put, "/api/v1/ephemeral/ack", "POST"),
            (Method::Get, "/api/v1/ephemeral/queue/x", "DELETE"),
            (Method::Get, "/api/v1/ephemeral/queue", "DELETE"),
            (Method::Delete, "/api/v1/ephemeral/queues", "GET, HEAD"),
            (Method::Other, "/api/v1/ephemeral/queues/x/depth", "GET, HEAD"),
            (Method::Put, "/api/v1/system/quota", "GET, HEAD, POST"),
            (Method::Post, "/", "GET, HEAD"),
            (Method::Options, "/metrics", "GET, HEAD"),
        ];
        for (method, path, allow) in table {
            assert_eq!(find(method, path.as_bytes()), Err(Missed::MethodNotAllowed { allow: allow.to_owned() }), "{path}");
        }
    }

    #[test]
    fn head_stands_for_get_except_where_it_would_take_a_message() {
        for (path, route) in [("/", Route::Index), ("/health", Route::Health), ("/api/v1/ephemeral/queues", Route::Queues)] {
            assert_eq!(found(Method::Head, path), Some((route, None)));
        }
        assert_eq!(found(Method::Head, "/api/v1/ephemeral/pop"), None);
    }
}
