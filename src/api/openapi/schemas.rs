//! The shapes that bodies and answers share.

use serde_json::{Value, json};

/// Every schema by its name.
pub(super) fn all() -> Value {
    json!({
        "Name": {
            "type": "string", "minLength": 1, "maxLength": 512, "pattern": "^[^\\u0000-\\u001f\\u007f]+$",
            "description": "At most 512 bytes of UTF-8, without control characters.",
        },
        "NameOrNone": {
            "type": "string", "maxLength": 512, "pattern": "^[^\\u0000-\\u001f\\u007f]*$",
            "description": "As a name; an empty one is as if it were not given.",
        },
        "Payload": { "description": "Any JSON. It comes back byte for byte." },
        "Refusal": {
            "type": "object", "required": ["error", "code"],
            "properties": { "error": { "type": "string", "description": "For people." }, "code": { "type": "string", "description": "The contract." } },
        },
        "Message": {
            "type": "object", "required": ["id", "partition", "attempts", "payload"],
            "properties": {
                "id": { "type": "string", "description": "Opaque; what an ack names." },
                "partition": { "$ref": "#/components/schemas/Name" },
                "attempts": { "type": "integer", "minimum": 1, "description": "1 on the first delivery." },
                "replyTo": { "type": "string", "description": "Of a call's request: push the answer there, or use reply." },
                "payload": { "$ref": "#/components/schemas/Payload" },
            },
        },
        "Messages": { "type": "array", "items": { "$ref": "#/components/schemas/Message" } },
        "Outcome": { "enum": ["acked", "redelivered", "stale", "unknown", "refused"] },
        "Results": {
            "type": "array",
            "items": {
                "type": "object", "required": ["id", "outcome"],
                "properties": {
                    "id": { "type": "string" },
                    "outcome": { "$ref": "#/components/schemas/Outcome" },
                    "code": { "type": "string", "description": "Why a reply was refused." },
                },
            },
        },
        "Options": {
            "type": "object", "additionalProperties": false,
            "properties": {
                "maxBytes": { "type": ["integer", "null"], "minimum": 0, "description": "Most payload bytes; 0: the node's default." },
                "maxLength": { "type": ["integer", "null"], "minimum": 0, "description": "Most messages; 0: the node's default." },
                "policy": { "enum": ["reject", "dropOldest"], "description": "What a push to a full queue does." },
                "ttlSeconds": { "type": ["integer", "null"], "minimum": 0, "description": "Older messages are dropped; 0: never." },
                "leaseSeconds": { "type": ["integer", "null"], "minimum": 0, "description": "0: the node's default; at most 86,400 is in force." },
                "retryLimit": { "type": ["integer", "null"], "minimum": 0, "description": "Deliveries before a failing message is dropped." },
                "windowBuffer": {
                    "type": "object", "additionalProperties": false,
                    "properties": {
                        "ms": { "type": ["integer", "null"], "minimum": 0, "description": "At most 60,000 is in force." },
                        "count": { "type": ["integer", "null"], "minimum": 0, "description": "At most 10,000 is in force." },
                    },
                },
            },
        },
        "Tier": { "enum": ["declared", "implicit"] },
        "Queue": {
            "type": "object", "required": ["queue", "tier", "depth", "bytes", "partitions", "groups", "drops", "options"],
            "properties": {
                "queue": { "$ref": "#/components/schemas/Name" },
                "tier": { "$ref": "#/components/schemas/Tier" },
                "depth": { "type": "integer", "minimum": 0 },
                "bytes": { "type": "integer", "minimum": 0 },
                "partitions": { "type": "integer", "minimum": 0 },
                "groups": { "type": "integer", "minimum": 0 },
                "drops": {
                    "type": "object", "required": ["bounds", "ttl", "retry"],
                    "additionalProperties": { "type": "integer", "minimum": 0 },
                },
                "options": { "$ref": "#/components/schemas/Options" },
            },
        },
        "Missing": { "type": "array", "items": { "type": "integer" }, "description": "Nodes of the cluster that did not answer in time." },
        "Grant": {
            "type": "object", "required": ["tenant"],
            "properties": {
                "tenant": { "type": "string", "format": "uuid" },
                "kind": { "enum": ["ephemeral", null] },
                "enabled": { "type": ["boolean", "null"] },
                "maxBytes": { "type": ["integer", "null"], "minimum": 0 },
                "maxQueues": { "type": ["integer", "null"], "minimum": 0 },
                "maxMessagesPerSecond": { "type": ["integer", "null"], "minimum": 0 },
                "maxParked": { "type": ["integer", "null"], "minimum": 0 },
            },
        },
        "Status": { "type": "object", "required": ["status"], "properties": { "status": { "type": "string" } } },
    })
}
