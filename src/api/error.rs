//! Every failure that a client can be told → status, code, prose, Retry-After: one table. What fails inside knows no HTTP.
//!
//! The code is the contract, the prose is for people. Each body is exactly `{"error":"<prose>","code":"<code>"}`.

use std::fmt;

use mayfly_net::http::{Refused, Status};
use mayfly_shards::{GROUPS_MAX, PARTITIONS_MAX, Refusal, TENANTS_MAX};

use super::fault::Fault;
use super::json::append_string;
use super::route::Missed;
use crate::identity::Forbidden;
use crate::identity::token::TokenFault;

/// Why a request has no success to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The request is not HTTP/1.x, or ambiguous; with what was wrong, in words. The connection closes.
    MalformedHttp(&'static str),
    /// A version other than 1.0 and 1.1. The connection closes.
    VersionUnsupported,
    /// A transfer coding besides chunked. The connection closes.
    TransferCodingUnsupported,
    /// Too long a target. The connection closes.
    TargetTooLong,
    /// Too many header lines, or too large a head. The connection closes.
    HeadersTooLarge,
    /// A body above the limit. The connection closes.
    BodyTooLarge,
    /// The request did not come on for too long.
    RequestTimeout,
    /// No such path, or not with this method.
    Missed(Missed),
    /// There is no token that holds.
    Unauthorized(TokenFault),
    /// The token does not suffice.
    Forbidden(Forbidden),
    /// The request cannot be read.
    Unreadable(Fault),
    /// depth of a queue that is not there.
    QueueNotFound,
    /// A call was not answered in time.
    NoReply,
    /// A shard refused; nothing was done.
    Refused(Refusal),
    /// The kill switch is off.
    Disabled,
    /// A change of what is agreed on could not be made certain: the log or the store it goes to is out of reach.
    Undecided,
    /// Too many such changes are under way; nothing was done.
    TooManyChanges,
    /// This node no longer serves the partition; nothing was done.
    OwnerMoved,
    /// The cluster cannot be changed so, for this reason.
    ClusterRefused(&'static str),
    /// The owner's node does not take what it is sent; nothing was done.
    OwnerBusy,
    /// A core or node that had to take part did not answer in time; what it did is not known.
    ForwardFailed,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The answer's status.
    pub status: Status,
    /// The answer's code.
    pub code: &'static str,
    /// Seconds for a `Retry-After` header, where trying again can help.
    pub retry_after_secs: Option<u64>,
}

const BAD_REQUEST: &str = "bad_request";

impl Failure {
    /// Status, code and Retry-After.
    #[must_use]
    pub fn row(&self) -> Row {
        match self {
            Self::MalformedHttp(_) => row(Status::BadRequest, BAD_REQUEST, None),
            Self::VersionUnsupported => row(Status::VersionNotSupported, BAD_REQUEST, None),
            Self::TransferCodingUnsupported => row(Status::NotImplemented, BAD_REQUEST, None),
            Self::TargetTooLong => row(Status::UriTooLong, "uri_too_long", None),
            Self::HeadersTooLarge => row(Status::HeadersTooLarge, "headers_too_large", None),
            Self::BodyTooLarge => row(Status::PayloadTooLarge, "payload_too_large", None),
            Self::RequestTimeout => row(Status::RequestTimeout, BAD_REQUEST, None),
            Self::Missed(Missed::NoSuchRoute) => row(Status::NotFound, "no_such_route", None),
            Self::Missed(Missed::MethodNotAllowed { .. }) => row(Status::MethodNotAllowed, "method_not_allowed", None),
            Self::Unauthorized(_) => row(Status::Unauthorized, "unauthorized", None),
            Self::Forbidden(_) => row(Status::Forbidden, "forbidden", None),
            Self::Unreadable(_) => row(Status::BadRequest, "ephemeral_bad_request", None),
            Self::QueueNotFound => row(Status::NotFound, "ephemeral_queue_not_found", None),
            Self::Refused(refusal) => refusal_row(*refusal),
            Self::NoReply => row(Status::GatewayTimeout, "no_reply", None),
            Self::Disabled => row(Status::ServiceUnavailable, "ephemeral_disabled", Some(1)),
            Self::Undecided | Self::TooManyChanges => row(Status::ServiceUnavailable, "ephemeral_unavailable", Some(1)),
            Self::ClusterRefused(_) => row(Status::Conflict, "cluster_refused", None),
            Self::OwnerMoved => row(Status::ServiceUnavailable, "owner_moved", Some(1)),
            Self::OwnerBusy => row(Status::ServiceUnavailable, "ephemeral_unavailable", Some(1)),
            Self::ForwardFailed => row(Status::ServiceUnavailable, "ephemeral_forward_failed", Some(1)),
        }
    }

    /// What an `Allow` header lists, where one is due.
    #[must_use]
    pub fn allow(&self) -> Option<&str> {
        match self {
            Self::Missed(Missed::MethodNotAllowed { allow }) => Some(allow),
            _ => None,
        }
    }

    /// What a `WWW-Authenticate` header says, where one is due.
    #[must_use]
    pub fn authenticate(&self) -> Option<&'static str> {
        matches!(self, Self::Unauthorized(_)).then_some("Bearer")
    }

    /// Appends the answer's body.
    pub fn append_body(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"error\":");
        append_string(out, &self.to_string());
        out.extend_from_slice(b",\"code\":");
        append_string(out, self.row().code);
        out.push(b'}');
    }
}

fn row(status: Status, code: &'static str, retry_after_secs: Option<u64>) -> Row {
    Row { status, code, retry_after_secs }
}

fn refusal_row(refusal: Refusal) -> Row {
    match refusal {
        Refusal::QueueFull { can_fit } => row(Status::TooManyRequests, "queue_full", can_fit.then_some(1)),
        Refusal::TooManyGroups | Refusal::TooManyPartitions => row(Status::TooManyRequests, "queue_full", Some(1)),
        Refusal::RateLimited { retry_after } => row(Status::TooManyRequests, "rate_limited", Some(retry_after.as_retry_after_secs())),
        Refusal::TooManyParked => row(Status::TooManyRequests, "rate_limited", Some(1)),
        Refusal::TenantBytes | Refusal::TenantQueues => row(Status::Forbidden, "ephemeral_quota_exceeded", None),
        Refusal::NoConsumers => row(Status::Conflict, "no_consumers", None),
        Refusal::NodeBytes | Refusal::TooManyTenants => row(Status::ServiceUnavailable, "ephemeral_unavailable", Some(1)),
        Refusal::NotGranted => row(Status::Forbidden, "feature_gated", None),
        Refusal::NotHereYet => row(Status::ServiceUnavailable, "owner_moved", Some(1)),
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MalformedHttp(what) => write!(f, "malformed HTTP request: {what}"),
            Self::VersionUnsupported => f.write_str("only HTTP/1.1 and HTTP/1.0 are spoken here"),
            Self::TransferCodingUnsupported => f.write_str("chunked is the only transfer coding that is understood"),
            Self::TargetTooLong => f.write_str("the request target is longer than the limit"),
            Self::HeadersTooLarge => f.write_str("the request head has more lines or bytes than the limit"),
            Self::BodyTooLarge => f.write_str("the body is larger than the limit"),
            Self::RequestTimeout => f.write_str("the request did not arrive in time"),
            Self::Missed(Missed::NoSuchRoute) => f.write_str("there is no such route"),
            Self::Missed(Missed::MethodNotAllowed { allow }) => write!(f, "this route allows {allow} only"),
            Self::Unauthorized(fault) => fault.fmt(f),
            Self::Forbidden(forbidden) => forbidden.fmt(f),
            Self::Unreadable(fault) => fault.fmt(f),
            Self::QueueNotFound => f.write_str("there is no such queue"),
            Self::Refused(refusal) => fmt_refusal(*refusal, f),
            Self::NoReply => f.write_str("no reply came in time"),
            Self::Disabled => f.write_str("ephemeral queues are switched off; nothing was done"),
            Self::Undecided => f.write_str("the store of declarations is out of reach; the change may have been made, repeat it"),
            Self::TooManyChanges => f.write_str("too many declarations are being changed; nothing was done, try again"),
            Self::ClusterRefused(cause) => f.write_str(cause),
            Self::OwnerMoved => f.write_str("the partition is being moved to another owner; nothing was done, try again"),
            Self::OwnerBusy => f.write_str("the owner's node does not keep up; nothing was done, try again"),
            Self::ForwardFailed => f.write_str("the owner did not answer in time; the outcome is not known"),
        }
    }
}

fn fmt_refusal(refusal: Refusal, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match refusal {
        Refusal::QueueFull { can_fit: true } => {
            f.write_str("the queue is full (maxLength or maxBytes); nothing was pushed, try again when it was drained")
        }
        Refusal::QueueFull { can_fit: false } => f.write_str("the push is larger than the queue's maxLength or maxBytes and can never fit"),
        Refusal::TooManyGroups => write!(f, "the queue has {GROUPS_MAX} groups, the most there can be"),
        Refusal::TooManyPartitions => write!(f, "the queue has {PARTITIONS_MAX} partitions, the most there can be"),
        Refusal::RateLimited { retry_after } => {
            write!(f, "the tenant's message rate is used up for {} s", retry_after.as_retry_after_secs())
        }
        Refusal::TooManyParked => f.write_str("the tenant has as many parked pops and calls as it may"),
        Refusal::NoConsumers => f.write_str("nobody listens to the partition; nothing was pushed"),
        Refusal::TenantBytes => f.write_str("the tenant holds as many bytes as it may"),
        Refusal::TenantQueues => f.write_str("the tenant has as many queues as it may"),
        Refusal::TooManyTenants => write!(f, "the node serves {TENANTS_MAX} tenants without a grant, the most there can be; try again"),
        Refusal::NotGranted => f.write_str("the tenant is not granted the use of ephemeral queues"),
        Refusal::NotHereYet => f.write_str("the partition is still on its way to its owner; nothing was done, try again"),
        Refusal::NodeBytes => f.write_str("the node's memory for messages is full; nothing was done, try again"),
    }
}

impl std::error::Error for Failure {}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Unreadable(fault)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Missed> for Failure {
    fn from(missed: Missed) -> Self {
        Self::Missed(missed)
    }
}

impl From<Refused<'_>> for Failure {
    fn from(refused: Refused<'_>) -> Self {
        match refused {
            Refused::Malformed(what) => Self::MalformedHttp(what),
            Refused::HeadersTooLarge => Self::HeadersTooLarge,
            Refused::TargetTooLong => Self::TargetTooLong,
            Refused::VersionUnsupported => Self::VersionUnsupported,
            Refused::TransferCodingUnsupported => Self::TransferCodingUnsupported,
            Refused::BodyTooLarge(_) => Self::BodyTooLarge,
        }
    }
}

#[cfg(test)]
mod tests {
    use mayfly_shards::Span;

    use super::*;

    /// Status, code, seconds of Retry-After.
    type Seen = (u16, &'static str, Option<u64>);

    #[test]
    fn the_table_is_the_contract() {
        let rows: [(Failure, Seen); 31] = [
            (Refused::Malformed("x").into(), (400, "bad_request", None)),
            (Refused::TargetTooLong.into(), (414, "uri_too_long", None)),
            (Refused::HeadersTooLarge.into(), (431, "headers_too_large", None)),
            (Failure::BodyTooLarge, (413, "payload_too_large", None)),
            (Missed::NoSuchRoute.into(), (404, "no_such_route", None)),
            (Missed::MethodNotAllowed { allow: "GET".to_owned() }.into(), (405, "method_not_allowed", None)),
            (Fault::Missing("queue").into(), (400, "ephemeral_bad_request", None)),
            (TokenFault::Missing.into(), (401, "unauthorized", None)),
            (Forbidden::Role.into(), (403, "forbidden", None)),
            (Failure::QueueNotFound, (404, "ephemeral_queue_not_found", None)),
            (Refusal::QueueFull { can_fit: true }.into(), (429, "queue_full", Some(1))),
            (Refusal::QueueFull { can_fit: false }.into(), (429, "queue_full", None)),
            (Refusal::TooManyGroups.into(), (429, "queue_full", Some(1))),
            (Refusal::TooManyPartitions.into(), (429, "queue_full", Some(1))),
            (Refusal::RateLimited { retry_after: Span::from_millis(2_001) }.into(), (429, "rate_limited", Some(3))),
            (Refusal::TooManyParked.into(), (429, "rate_limited", Some(1))),
            (Refusal::TenantBytes.into(), (403, "ephemeral_quota_exceeded", None)),
            (Refusal::TenantQueues.into(), (403, "ephemeral_quota_exceeded", None)),
            (Refusal::NodeBytes.into(), (503, "ephemeral_unavailable", Some(1))),
            (Refusal::TooManyTenants.into(), (503, "ephemeral_unavailable", Some(1))),
            (Refusal::NotGranted.into(), (403, "feature_gated", None)),
            (Refusal::NotHereYet.into(), (503, "owner_moved", Some(1))),
            (Refusal::NoConsumers.into(), (409, "no_consumers", None)),
            (Failure::NoReply, (504, "no_reply", None)),
            (Failure::Disabled, (503, "ephemeral_disabled", Some(1))),
            (Failure::Undecided, (503, "ephemeral_unavailable", Some(1))),
            (Failure::TooManyChanges, (503, "ephemeral_unavailable", Some(1))),
            (Failure::ClusterRefused("x"), (409, "cluster_refused", None)),
            (Failure::OwnerMoved, (503, "owner_moved", Some(1))),
            (Failure::OwnerBusy, (503, "ephemeral_unavailable", Some(1))),
            (Failure::ForwardFailed, (503, "ephemeral_forward_failed", Some(1))),
        ];
        for (failure, wanted) in rows {
            let row = failure.row();
            assert_eq!((row.status.code(), row.code, row.retry_after_secs), wanted, "{failure:?}");
        }
    }

    #[test]
    fn a_body_is_an_object_of_error_and_code_whatever_the_prose_holds() {
        let fault = Fault::UnknownOption { within: "options", key: "a\"b\\\n\u{1f}é".to_owned() };
        let mut out = Vec::new();
        Failure::from(fault.clone()).append_body(&mut out);
        let body: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&out).unwrap();
        assert_eq!(body.keys().collect::<Vec<_>>(), ["code", "error"]);
        assert_eq!(body["error"], fault.to_string());
        assert_eq!(body["code"], "ephemeral_bad_request");
    }

    #[test]
    fn only_a_wrong_method_is_told_what_is_allowed() {
        assert_eq!(Failure::from(Missed::MethodNotAllowed { allow: "GET, HEAD".to_owned() }).allow(), Some("GET, HEAD"));
        assert_eq!(Failure::QueueNotFound.allow(), None);
        assert_eq!(Failure::from(TokenFault::Expired).authenticate(), Some("Bearer"));
        assert_eq!(Failure::from(Forbidden::Role).authenticate(), None);
    }
}
