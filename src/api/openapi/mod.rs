//! The description of every route, OpenAPI 3.1, made of the table that routes.
//!
//! Invariants: every row of [`ENDPOINTS`] is in it, with every code that the route may answer; it is made once, at the first asking.

mod operations;
mod schemas;

use std::sync::LazyLock;

use mayfly_net::http::Method;
use serde_json::{Map, Value, json};

use super::route::{Access, ENDPOINTS, Endpoint};

/// The document, as JSON.
pub static DOCUMENT: LazyLock<Box<[u8]>> = LazyLock::new(|| document().to_string().into_bytes().into());

fn document() -> Value {
    let mut paths = Map::new();
    for endpoint in &ENDPOINTS {
        let path = endpoint.pattern.to_string().replace(":queue", "{queue}");
        let operations = paths.entry(path).or_insert_with(|| json!({}));
        operations[method(endpoint)] = operation(endpoint);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Mayfly",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "A broker for ephemeral queues: messages live in memory and nowhere else.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "tags": [
            { "name": "messages", "description": "Push, take, settle, call and reply." },
            { "name": "queues", "description": "Declare, list, empty and forget." },
            { "name": "node", "description": "The node and its cluster." },
        ],
        "paths": paths,
        "components": {
            "schemas": schemas::all(),
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "With --jwt-enabled." },
                "tenant": { "type": "apiKey", "in": "header", "name": "x-queen-tenant", "description": "With --tenancy-header: the tenant, a UUID." },
            },
        },
    })
}

fn method(endpoint: &Endpoint) -> &'static str {
    match endpoint.method {
        Method::Get => "get",
        Method::Post => "post",
        Method::Delete => "delete",
        method => unreachable!("no row has {method:?}"),
    }
}

/// What a route is told and what it answers; who may ask and what it refuses for that is the table's.
fn operation(endpoint: &Endpoint) -> Value {
    let mut described = operations::of(endpoint.route);
    if endpoint.pattern.to_string().contains(":queue") {
        // The queue stands in the path; the other spelling of the route has it in the query.
        let parameters = described.parameters.as_array_mut();
        parameters.into_iter().for_each(|all| all.retain(|parameter| parameter["name"] != "queue"));
        let schema = json!({ "$ref": "#/components/schemas/Name" });
        let queue = json!({ "name": "queue", "in": "path", "required": true, "schema": schema, "description": "Percent-encoded." });
        described.parameters.as_array_mut().into_iter().for_each(|all| all.insert(0, queue.clone()));
    }
    let id = operations::id(endpoint.route);
    // The same route by another path.
    let is_second = ENDPOINTS.iter().find(|row| row.route == endpoint.route) != Some(endpoint);
    let is_public = endpoint.access == Access::Public;
    let mut responses = described.responses;
    let mut codes = described.codes.to_vec();
    if !is_public {
        codes.extend([(401, "unauthorized"), (403, "forbidden")]);
    }
    if endpoint.route.is_ephemeral() {
        codes.extend([(503, "ephemeral_disabled"), (403, "feature_gated"), (503, "ephemeral_unavailable")]);
    }
    for (status, answer) in refusals(&codes) {
        responses[status] = answer;
    }
    let mut operation = json!({
        "operationId": if is_second { format!("{id}Too") } else { id.to_owned() },
        "summary": described.summary,
        "tags": [described.tag],
        "responses": responses,
        "security": if is_public { json!([]) } else { json!([{}, { "bearer": [] }, { "tenant": [] }]) },
    });
    if described.parameters.as_array().is_some_and(|all| !all.is_empty()) {
        operation["parameters"] = described.parameters;
    }
    if !described.body.is_null() {
        operation["requestBody"] = json!({ "required": true, "content": { "application/json": { "schema": described.body } } });
    }
    operation
}

/// Refusals by status, each with its codes. What is no HTTP, and what is no route, is refused before a route is known.
fn refusals(codes: &[(u16, &'static str)]) -> Vec<(String, Value)> {
    let mut statuses: Vec<u16> = codes.iter().map(|(status, _)| *status).collect();
    statuses.sort_unstable();
    statuses.dedup();
    let answer = |status: u16| {
        let mut of_status: Vec<&str> = codes.iter().filter(|(of, _)| *of == status).map(|(_, code)| *code).collect();
        of_status.sort_unstable();
        of_status.dedup();
        let schema = json!({
            "allOf": [{ "$ref": "#/components/schemas/Refusal" }],
            "properties": { "code": { "enum": of_status } },
        });
        let mut answer = json!({ "description": of_status.join(", "), "content": { "application/json": { "schema": schema } } });
        if matches!(status, 429 | 503) {
            answer["headers"] = json!({ "Retry-After": { "schema": { "type": "integer", "minimum": 1 }, "description": "Seconds; not of what can never fit." } });
        }
        if status == 401 {
            answer["headers"] = json!({ "WWW-Authenticate": { "schema": { "type": "string" } } });
        }
        (status.to_string(), answer)
    };
    statuses.into_iter().map(answer).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn all_operations(document: &Value) -> Vec<(String, String, &Value)> {
        let paths = document["paths"].as_object().expect("paths").iter();
        paths
            .flat_map(|(path, operations)| {
                let operations = operations.as_object().expect("operations").iter();
                operations.map(move |(method, operation)| (path.clone(), method.clone(), operation)).collect::<Vec<_>>()
            })
            .collect()
    }

    #[test]
    fn every_route_is_described_once_and_by_a_name_of_its_own() {
        let document = document();
        let operations = all_operations(&document);
        assert_eq!(operations.len(), ENDPOINTS.len());
        let ids: BTreeSet<&str> = operations.iter().filter_map(|(.., operation)| operation["operationId"].as_str()).collect();
        assert_eq!(ids.len(), ENDPOINTS.len(), "{ids:?}");
        for (path, method, operation) in &operations {
            assert!(operation["summary"].as_str().is_some_and(|text| text.len() > 10), "{method} {path}");
            assert!(
                operation["responses"].as_object().is_some_and(|all| all.keys().any(|status| status.starts_with('2'))),
                "{method} {path}"
            );
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let text = document().to_string();
        let document = document();
        for reference in text.split("\"$ref\":\"#").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(document.pointer(reference).is_some(), "{reference}");
        }
    }
}
