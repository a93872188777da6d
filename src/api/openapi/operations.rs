//! What each route is told and what it answers. Who may ask, and what follows from that, is added by the table.

use serde_json::{Value, json};

use crate::api::route::Route;

/// One route.
pub(super) struct Described {
    pub(super) summary: &'static str,
    pub(super) tag: &'static str,
    pub(super) parameters: Value,
    /// Null: there is none.
    pub(super) body: Value,
    /// Of success.
    pub(super) responses: Value,
    /// Of refusals.
    pub(super) codes: &'static [(u16, &'static str)],
}

/// Of routes that take a body.
const BODY: [(u16, &str); 2] = [(400, "ephemeral_bad_request"), (413, "payload_too_large")];

fn schema(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn object(required: &[&str], properties: Value) -> Value {
    json!({ "type": "object", "required": required, "properties": properties })
}

fn answer(status: u16, description: &str, schema: &Value) -> Value {
    json!({ status.to_string(): { "description": description, "content": { "application/json": { "schema": schema } } } })
}

fn query(name: &str, is_required: bool, schema: &Value, description: &str) -> Value {
    json!({ "name": name, "in": "query", "required": is_required, "schema": schema, "description": description })
}

fn timeout() -> Value {
    json!({ "type": "integer", "minimum": 0, "maximum": 300_000, "default": 30_000 })
}

fn flag() -> Value {
    json!({ "type": "boolean", "default": false })
}

/// Null is as if it were not given.
fn or_null(mut schema: Value) -> Value {
    schema["type"] = json!([schema["type"], "null"]);
    schema
}

/// The name of its operation.
pub(super) const fn id(route: Route) -> &'static str {
    match route {
        Route::Push => "push",
        Route::Pop => "pop",
        Route::Subscribe => "subscribe",
        Route::Ack => "ack",
        Route::Call => "call",
        Route::Reply => "reply",
        Route::Configure => "configure",
        Route::Reset => "reset",
        Route::Delete => "delete",
        Route::Queues => "queues",
        Route::Depth => "depth",
        Route::SwitchState => "switchState",
        Route::Switch => "switch",
        Route::SetQuota => "setQuota",
        Route::Quota => "quota",
        Route::Cluster => "cluster",
        Route::ChangeCluster => "changeCluster",
        Route::Health => "health",
        Route::Ready => "ready",
        Route::Metrics => "metrics",
        Route::Index => "index",
        Route::OpenApi => "openapi",
    }
}

/// What a route is told and what it answers.
pub(super) fn of(route: Route) -> Described {
    match route {
        Route::Push | Route::Pop | Route::Subscribe | Route::Ack | Route::Call | Route::Reply => of_messages(route),
        Route::Configure | Route::Reset | Route::Delete | Route::Queues | Route::Depth => of_queues(route),
        _ => of_node(route),
    }
}

#[expect(clippy::too_many_lines, reason = "a table: one entry a route")]
fn of_messages(route: Route) -> Described {
    let (tag, none) = ("messages", json!([]));
    match route {
        Route::Push => Described {
            summary: "Push messages to a queue, all or none of them",
            tag,
            parameters: none,
            body: object(
                &["queue", "messages"],
                json!({
                    "queue": schema("Name"),
                    "partition": { "oneOf": [schema("Name"), { "type": "null" }], "default": "Default" },
                    "messages": { "type": "array", "maxItems": 10_000, "items": object(&["payload"], json!({ "payload": schema("Payload") })) },
                }),
            ),
            responses: answer(201, "Pushed", &object(&["pushed"], json!({ "pushed": { "type": "integer", "minimum": 0 } }))),
            codes: &[
                BODY[0],
                BODY[1],
                (403, "ephemeral_quota_exceeded"),
                (429, "queue_full"),
                (429, "rate_limited"),
                (503, "owner_moved"),
                (503, "ephemeral_forward_failed"),
            ],
        },
        Route::Pop => Described {
            summary: "Take messages, waiting for them if that is wanted",
            tag,
            parameters: json!([
                query("queue", true, &schema("Name"), "Made, if there is none."),
                query("partition", false, &schema("NameOrNone"), "Any, unless it is named."),
                query("group", false, &schema("NameOrNone"), "The consumer group; without one all share a place."),
                query("batch", false, &json!({ "type": "integer", "minimum": 1, "maximum": 10_000, "default": 1 }), "At most so many."),
                query("wait", false, &flag(), "Wait when there is none."),
                query("timeout", false, &timeout(), "How long, in milliseconds."),
                query("autoAck", false, &flag(), "Settle messages as they are given."),
                query("commitOnDelivery", false, &flag(), "The same by its older name."),
            ]),
            body: Value::Null,
            responses: answer(
                200,
                "What there was, or nothing",
                &object(&["queue", "messages"], json!({ "queue": schema("Name"), "messages": schema("Messages") })),
            ),
            codes: &[
                (400, "ephemeral_bad_request"),
                (403, "ephemeral_quota_exceeded"),
                (429, "queue_full"),
                (429, "rate_limited"),
                (503, "owner_moved"),
                (503, "ephemeral_forward_failed"),
            ],
        },
        Route::Subscribe => Described {
            summary: "Take messages as a stream of server-sent events, for as long as the connection lasts",
            tag,
            parameters: json!([
                query("queue", true, &schema("Name"), "Made, if there is none."),
                query("partition", false, &schema("NameOrNone"), "Any, unless it is named."),
                query("group", false, &schema("NameOrNone"), "The consumer group; without one everything from now on."),
                query("access_token", false, &json!({ "type": "string" }), "The token, for a client that can send no header."),
            ]),
            body: Value::Null,
            responses: json!({ "200": {
                "description": "Events with a message each as their data, and a comment every 15 s",
                "content": { "text/event-stream": { "schema": { "type": "string" } } },
            } }),
            codes: &[
                (400, "ephemeral_bad_request"),
                (403, "ephemeral_quota_exceeded"),
                (429, "queue_full"),
                (429, "rate_limited"),
                (503, "owner_moved"),
            ],
        },
        Route::Ack => Described {
            summary: "Settle messages that were taken",
            tag,
            parameters: none,
            body: object(
                &["queue", "acks"],
                json!({
                    "queue": schema("Name"),
                    "group": { "type": ["string", "null"] },
                    "acks": { "type": "array", "maxItems": 10_000, "items": object(&["id"], json!({
                        "id": { "type": "string" },
                        "status": { "type": "string", "default": "completed", "description": "completed; with retry, failed or any other the message comes back." },
                    })) },
                }),
            ),
            responses: answer(200, "What came of each", &object(&["results"], json!({ "results": schema("Results") }))),
            codes: &[BODY[0], BODY[1], (503, "owner_moved"), (503, "ephemeral_forward_failed")],
        },
        Route::Call => Described {
            summary: "Push a request and wait for its reply",
            tag,
            parameters: none,
            body: object(
                &["queue", "payload"],
                json!({
                    "queue": schema("Name"),
                    "partition": { "oneOf": [schema("Name"), { "type": "null" }], "default": "Default" },
                    "payload": schema("Payload"),
                    "timeout": or_null(timeout()),
                    "failFast": or_null(flag()),
                }),
            ),
            responses: answer(200, "The reply", &object(&["payload"], json!({ "payload": schema("Payload") }))),
            codes: &[
                BODY[0],
                BODY[1],
                (403, "ephemeral_quota_exceeded"),
                (409, "no_consumers"),
                (429, "queue_full"),
                (429, "rate_limited"),
                (503, "owner_moved"),
                (503, "ephemeral_forward_failed"),
                (504, "no_reply"),
            ],
        },
        _ => Described {
            summary: "Give replies, settle their requests, and take more",
            tag,
            parameters: none,
            body: object(
                &["queue", "replies"],
                json!({
                    "queue": schema("Name"),
                    "group": { "type": ["string", "null"] },
                    "replies": { "type": "array", "maxItems": 10_000, "items": object(&["id", "replyTo", "payload"], json!({
                        "id": { "type": "string" },
                        "replyTo": schema("Name"),
                        "payload": schema("Payload"),
                    })) },
                    "next": { "oneOf": [{ "type": "null" }, object(&[], json!({
                        "queue": { "oneOf": [schema("Name"), { "type": "null" }] },
                        "partition": { "oneOf": [schema("Name"), { "type": "null" }] },
                        "group": { "oneOf": [schema("NameOrNone"), { "type": "null" }] },
                        "batch": { "type": ["integer", "null"], "minimum": 1, "maximum": 10_000 },
                        "wait": or_null(flag()),
                        "timeout": or_null(timeout()),
                        "autoAck": or_null(flag()),
                    }))] },
                }),
            ),
            responses: answer(
                200,
                "What came of each, and the messages of next",
                &object(
                    &["results"],
                    json!({
                        "results": schema("Results"),
                        "messages": schema("Messages"),
                        "next": object(&["outcome", "code"], json!({ "outcome": { "const": "refused" }, "code": { "type": "string" } })),
                    }),
                ),
            ),
            codes: &[BODY[0], BODY[1], (503, "owner_moved"), (503, "ephemeral_forward_failed")],
        },
    }
}

#[expect(clippy::too_many_lines, reason = "a table: one entry a route")]
fn of_queues(route: Route) -> Described {
    let (tag, none) = ("queues", json!([]));
    let queue = query("queue", true, &schema("Name"), "Its name.");
    match route {
        Route::Configure => Described {
            summary: "Declare a queue, in place of any earlier declaration",
            tag,
            parameters: none,
            body: object(&["queue"], json!({ "queue": schema("Name"), "options": { "oneOf": [schema("Options"), { "type": "null" }] } })),
            responses: answer(
                201,
                "Declared: the options as they were sent",
                &object(
                    &["queue", "options", "updatedAt"],
                    json!({ "queue": schema("Name"), "options": { "type": "object" }, "updatedAt": { "type": "string", "format": "date-time" } }),
                ),
            ),
            codes: &[BODY[0], BODY[1], (403, "ephemeral_quota_exceeded"), (503, "owner_moved")],
        },
        Route::Reset => Described {
            summary: "Drop a queue's messages; groups and declaration stay",
            tag,
            parameters: none,
            body: object(&["queue"], json!({ "queue": schema("Name") })),
            responses: answer(
                200,
                "How many were dropped",
                &object(&["queue", "dropped"], json!({ "queue": schema("Name"), "dropped": { "type": "integer", "minimum": 0 } })),
            ),
            codes: &[BODY[0], BODY[1], (503, "owner_moved"), (503, "ephemeral_forward_failed")],
        },
        Route::Delete => Described {
            summary: "Forget a queue: messages, groups and declaration",
            tag,
            parameters: json!([queue]),
            body: Value::Null,
            responses: answer(
                200,
                "Whether there was anything, and a declaration",
                &object(
                    &["queue", "deleted", "declared"],
                    json!({ "queue": schema("Name"), "deleted": { "type": "boolean" }, "declared": { "type": "boolean" } }),
                ),
            ),
            codes: &[(400, "ephemeral_bad_request"), (503, "owner_moved"), (503, "ephemeral_forward_failed")],
        },
        Route::Queues => Described {
            summary: "List queues by name, page by page if that is wanted",
            tag,
            parameters: json!([
                query("prefix", false, &json!({ "type": "string" }), "Queues whose names begin so."),
                query("after", false, &json!({ "type": "string" }), "Queues behind this one: the last of the page before."),
                query("limit", false, &json!({ "type": "integer", "minimum": 0 }), "At most so many."),
                query("scope", false, &json!({ "type": "string" }), "With `node`: ask no other node."),
            ]),
            body: Value::Null,
            responses: answer(
                200,
                "Queues, and the bytes that this node holds in all",
                &object(
                    &["queues", "count", "cellBytes"],
                    json!({
                        "queues": { "type": "array", "items": schema("Queue") },
                        "count": { "type": "integer", "minimum": 0 },
                        "cellBytes": { "type": "integer", "minimum": 0 },
                        "missing": schema("Missing"),
                    }),
                ),
            ),
            codes: &[(400, "ephemeral_bad_request"), (503, "owner_moved")],
        },
        _ => Described {
            summary: "Tell what is pending in a queue, by partition and group",
            tag,
            parameters: json!([
                query("group", false, &schema("NameOrNone"), "For that group alone."),
                query("scope", false, &json!({ "type": "string" }), "With `node`: ask no other node."),
            ]),
            body: Value::Null,
            responses: answer(
                200,
                "Its depth",
                &object(
                    &["queue", "group", "tier", "pending", "partitionsPending", "bytes", "partitions", "groups"],
                    json!({
                        "queue": schema("Name"),
                        "group": { "type": ["string", "null"] },
                        "tier": schema("Tier"),
                        "pending": { "type": "integer", "minimum": 0 },
                        "partitionsPending": { "type": "integer", "minimum": 0 },
                        "bytes": { "type": "integer", "minimum": 0 },
                        "partitions": { "type": "array", "items": object(&["partition", "pending", "bytes"], json!({
                            "partition": schema("Name"), "pending": { "type": "integer" }, "bytes": { "type": "integer" },
                        })) },
                        "groups": { "type": "array", "items": object(&["group", "pending", "skipped"], json!({
                            "group": { "type": "string" }, "pending": { "type": "integer" }, "skipped": { "type": "integer" },
                        })) },
                        "missing": schema("Missing"),
                    }),
                ),
            ),
            codes: &[(400, "ephemeral_bad_request"), (404, "ephemeral_queue_not_found"), (503, "owner_moved")],
        },
    }
}

fn of_node(route: Route) -> Described {
    let switch =
        object(&["ephemeralEnabled", "mirrored"], json!({ "ephemeralEnabled": { "type": "boolean" }, "mirrored": { "type": "boolean" } }));
    let cluster = object(
        &["node", "epoch", "members"],
        json!({ "node": { "type": "integer" }, "epoch": { "type": "integer" }, "members": { "type": "array" } }),
    );
    let simple = |summary, description: &str, schema: &Value| Described {
        summary,
        tag: "node",
        parameters: json!([]),
        body: Value::Null,
        responses: answer(200, description, schema),
        codes: &[],
    };
    match route {
        Route::SwitchState => simple("Tell how the kill switch stands", "Its state", &switch),
        Route::Switch => Described {
            body: object(&["enabled"], json!({ "enabled": { "type": "boolean" } })),
            codes: &[BODY[0], BODY[1], (503, "ephemeral_unavailable")],
            ..simple("Turn the kill switch, which is remembered", "Its state", &switch)
        },
        Route::SetQuota => Described {
            body: schema("Grant"),
            codes: &[BODY[0], BODY[1], (503, "ephemeral_unavailable")],
            ..simple("Say what a tenant may use, in place of what was said before", "The grant", &schema("Grant"))
        },
        Route::Quota => Described {
            parameters: json!([query(
                "tenant",
                false,
                &json!({ "type": "string", "format": "uuid" }),
                "One tenant; without it all that have a grant."
            )]),
            codes: &[(400, "ephemeral_bad_request")],
            ..simple("Tell what a tenant may use and what it uses", "The grant and its use, or every grant", &json!({ "type": "object" }))
        },
        Route::Cluster => simple("Tell how the cluster stands", "As this node knows it", &cluster),
        Route::ChangeCluster => Described {
            body: json!({
                "type": "object",
                "properties": { "add": { "type": "integer", "minimum": 1 }, "remove": { "type": "integer", "minimum": 1 } },
                "oneOf": [{ "required": ["add"] }, { "required": ["remove"] }],
            }),
            codes: &[BODY[0], BODY[1], (409, "cluster_refused"), (503, "ephemeral_unavailable")],
            ..simple("Take a node into the cluster, or let one go", "The cluster then", &cluster)
        },
        Route::Health => simple("Tell that the process runs", "It does", &schema("Status")),
        Route::Ready => Described {
            responses: json!({
                "200": { "description": "The node serves", "content": { "application/json": { "schema": schema("Status") } } },
                "503": { "description": "It is joining, or draining", "content": { "application/json": { "schema": schema("Status") } } },
            }),
            ..simple("Tell whether the node takes requests", "", &Value::Null)
        },
        Route::Metrics => Described {
            responses: json!({ "200": { "description": "Prometheus' text", "content": { "text/plain": { "schema": { "type": "string" } } } } }),
            ..simple("Give the node's metrics", "", &Value::Null)
        },
        Route::OpenApi => simple("Give this description", "OpenAPI 3.1", &json!({ "type": "object" })),
        _ => simple(
            "Tell what this is",
            "Its name and version",
            &object(&["name", "version"], json!({ "name": { "type": "string" }, "version": { "type": "string" } })),
        ),
    }
}
